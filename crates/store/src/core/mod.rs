//! All messages of one shard, with their indexes, in memory: what the memory store and the engine share.
//!
//! [`Core`] is pure and deterministic: it reads no clock and does no I/O. Each call is given `now`, and
//! reports its changes to a [`Log`]; the same calls under the same seed give the same answers and the same
//! records.
//!
//! # For the owner of a core
//! - **Time.** Read the clock when the call is made, not when it was asked for: a `now` whose wall time is
//!   earlier than that of the call before counts as a step of the clock back.
//! - **Calls** answer at once, except [`revive`](Core::revive) and [`discard`](Core::discard) of many: those
//!   do a slice, and [`go_on`](Core::go_on) does the next one, after other calls if there are any. Nothing is
//!   durable when they return: make the log durable before answers are sent.
//! - **Leases that run out and messages that expire** all at once are processed in slices, of which there is
//!   one between two calls of [`serve`](Core::serve) and one in each. Where [`has_lapsed`](Core::has_lapsed)
//!   is true for a queue that a call names, call [`lapse_some`](Core::lapse_some), and make the call later if
//!   there are more. Before a call that changes `on_expiry`, which lets time act on all queues, do so with
//!   [`lapse_some_everywhere`](Core::lapse_some_everywhere). A take without wait, or a call of [`queues`](Core::queues), may have [given
//!   up](Core::gave_up) for the same reason: repeat it after the next serve.
//! - **Retention.** Between two serves, calls discard a slice of the dead messages whose retention is over.
//!   Where calls are rare, call [`retain_some`](Core::retain_some) within a minute after
//!   [`next_retention`](Core::next_retention), and again while it returns that there are more.
//! - **Closing.** Call [`give_back_session_leases`](Core::give_back_session_leases) until it has finished, and nothing
//!   else in between.
//! - **Cold messages that expire** are processed in slices: call [`catch_up`](Core::catch_up) before each
//!   batch of calls. While the core [is behind](Core::is_behind), a take or a peek may have [given
//!   up](Core::gave_up): repeat it. The same applies to a take, a list or a peek at any time where expired
//!   messages could not be read in time: repeat it after the next serve. All other calls are correct at any
//!   time, and take longer if they come too early.
//! - **Takes that wait.** If [`take`](Core::take) returns nothing and the caller wants to wait, pass the take
//!   to [`waiters`](Core::wait). After each batch of calls, whether any take waits or not, and when
//!   [`next_wake`](Core::next_wake) has passed, call [`serve`](Core::serve): it answers those that have
//!   messages now, and those whose wait has timed out. If a caller has disconnected, call
//!   [`forget`](Core::forget); if its messages were already handed out, [`give_back`](Core::give_back).
//! - **Opening.** Make a new core of a new incarnation; then for each batch of the log
//!   [`replay_put`](Core::replay_put) and [`replay`](Core::replay) its records in order and pass its time to
//!   [`replay_time`](Core::replay_time); then call [`opened`](Core::opened), once, and
//!   [`release_session_leases`](Core::release_session_leases) until it has finished. Where messages may be cold, pass
//!   the time that a batch carries to [`replay_begins`](Core::replay_begins) before its records.
//!
//! # Ground rules
//! 1. Time comes first: each call lets time act on the queue that it touches (due, lapsed, expired) before it
//!    looks, and on no other, so that a storm in one queue does not delay the next.
//! 2. The standing of a message changes in two places only: `time` and `queue`, for messages that become due,
//!    and `move_to`, for all else. Both keep every index correct; [`check`](Core::check) verifies it.
//! 3. Ids and numbers rise together with each put, so one index finds a message by either.
//! 4. [`dwell_model::apply`] alone decides what may happen to a message.
//!
//! # Layout
//! - [`Record`], [`Log`]: what is reported to the log
//! - `entry`, `slab`, `index`, `numbers`, `schedule`, `ready`, `queue`, `queues`, `idempotency`, `rng`: the parts
//! - `time`, `placement`: time acting on a queue, a message changing its place; `lapse`: slices of leases that
//!   run out and messages that expire
//! - `put`, `take`, `settle`, `expire_lease`, `cancel`, `reschedule`, `get`, `list`, `stats`, `forecast`,
//!   `configure`, `revive`, `purge`: one call each, with related ones; `bulk`: many dead messages, slice by
//!   slice; `late_deaths`: cold ones that a sweep does not include
//! - `retention`: how long messages stay dead, and how many; `deaths`: counts of deaths and discards;
//!   `holders`: who holds messages
//! - `waiters`: takes that wait
//! - `cold`: messages that are not in memory; `residency`: brings them in, and evicts them; `cold_expiry`: those that
//!   expire
//! - `snapshot`, `snapshot_entry`: messages to be copied; `lazy_free`: lazy free of removed messages
//! - `replay`: building the same core again
//! - `check`: the invariants

mod bulk;
mod bulk_in_progress;
mod cancel;
mod check;
mod cold;
mod cold_expiry;
mod configure;
mod deaths;
mod entry;
mod expire_lease;
mod forecast;
mod get;
mod holders;
mod idempotency;
mod index;
mod lapse;
mod late_deaths;
mod lazy_free;
mod list;
mod numbers;
mod placement;
mod purge;
mod put;
mod queue;
mod queues;
mod ready;
mod record;
mod replay;
mod reschedule;
mod residency;
mod retention;
mod revive;
mod rng;
mod schedule;
mod settle;
mod slab;
mod snapshot;
mod snapshot_entry;
mod stats;
mod take;
#[cfg(test)]
mod tests;
mod time;
mod waiters;

use std::collections::BTreeSet;

use dwell_model::{Limits, MessageId, Now, Number, QueueName, Timestamp};

use crate::{Error, Result};
use bulk_in_progress::BulkInProgress;
use deaths::Deaths;
use entry::{ChangeMark, Entry, LeaseTimer};
use holders::Holders;
use idempotency::IdempotencyKeys;
use index::{Numbering, SlotTable, TextHash};
use lapse::LapseSlice;
use late_deaths::LateDeaths;
use lazy_free::LazyFree;
use numbers::Numbers;
use queues::Queues;
use rng::Rng;
use slab::Slab;
use snapshot::SnapshotInProgress;
use waiters::Waiters;

pub use bulk::{BulkOperation, BulkProgress};
pub use cold::{
    Cold, ColdCounts, ColdHead, ColdMessage, CopyAt, DeadProgress, DeadReader, DeadSearch, Died, Expired,
    Expiring, QueuePart,
};
pub use get::{Get, Getting, Peek, Peeking};
pub use record::{Durability, IdempotencyRecord, Log, NoLog, PutRecord, Record, StoredBody};
pub use replay::ReplayError;
pub use snapshot::{CopyOutcome, Snapshot};
pub use snapshot_entry::{QueueNames, SnapshotEntry};
pub use waiters::{TakeAnswer, WaiterId};

/// The memory of a lease, without its message.
const LEASE_BYTES: usize = 96;

/// The number of messages freed in less time than a sync takes.
const FREED_PER_CALL: usize = 1_000;

/// The number of leases that run out in about the time of a sync, and the number of bytes that they record.
const LAPSED_PER_CALL: usize = 1_000;
const LAPSED_BYTES_PER_CALL: usize = 1024 * 1024;

/// The number of dead messages revived in little more than the time of a sync.
const BULK_PER_CALL: usize = 1_000;

/// The number of expiries looked at in about the time of a sync.
const EXPIRED_PER_CALL: usize = 16 * 1024;

/// The configuration of a new core.
#[derive(Clone, Debug)]
pub struct CoreConfig {
    /// The shard number in its ids, at most [`MessageId::MAX_SHARD`].
    pub shard: u16,
    /// The incarnation in its ids and lease tokens, never used before in this shard; at most
    /// [`MessageId::MAX_INCARNATION`].
    pub incarnation: u32,
    /// The number of the next message. Past [`Number::MAX`] puts are refused. Replay raises it.
    pub next_number: u64,
    /// The difference between two consecutive numbers: 1, or the number of shards that share the numbers.
    pub number_step: u64,
    /// Its limits.
    pub limits: Limits,
    /// The maximum number of takes that wait at a time.
    pub waiting_limit: usize,
    /// The seed of its random numbers, used for the jitter of backoff.
    pub seed: u64,
    /// The number of removed messages that each call frees, and so how many a purge frees itself; at least 1.
    pub freed_per_call: usize,
    /// The maximum number of dead messages that one call of a revive or a discard looks at, where it is about
    /// all or the oldest, and the maximum number past their retention that all calls between two serves
    /// discard; at least 1.
    pub bulk_per_call: usize,
    /// The maximum number of leases that run out and messages that expire per slice, and with the next field
    /// about how many bytes they record. Each call of [`Core::serve`] has a slice, and all calls between two
    /// of them have one; at least 1.
    pub lapsed_a_call: usize,
    /// See [`CoreConfig::lapsed_a_call`].
    pub lapsed_bytes_a_call: usize,
    /// The maximum number of expiries of cold messages that one call of [`Core::catch_up`] looks at; at least
    /// 1.
    pub expired_a_call: usize,
}

impl CoreConfig {
    /// Shard 0, incarnation 0, numbers from 1, waiting takes limited by memory alone, 1,000 messages of a
    /// purge freed by each call, and 1,000 dead ones looked at by each call of a sweep.
    pub fn new(limits: Limits, seed: u64) -> CoreConfig {
        CoreConfig {
            shard: 0,
            incarnation: 0,
            next_number: 1,
            number_step: 1,
            limits,
            waiting_limit: 1_000_000,
            seed,
            freed_per_call: FREED_PER_CALL,
            bulk_per_call: BULK_PER_CALL,
            lapsed_a_call: LAPSED_PER_CALL,
            lapsed_bytes_a_call: LAPSED_BYTES_PER_CALL,
            expired_a_call: EXPIRED_PER_CALL,
        }
    }
}

/// All messages of one shard. See the [module](self) for how to drive it.
#[derive(Debug)]
pub struct Core<B> {
    config: CoreConfig,
    /// The counter of the next id.
    next_counter: u64,
    next_number: u64,
    /// The counter of the next lease token.
    next_lease: u64,
    random: Rng,
    /// The wall time of the last call.
    seen: Timestamp,
    /// Whether cold messages have expired that no slice has processed yet, and how often that has begun.
    is_behind: bool,
    fell_behind: u64,
    /// Whether cold messages have died that were to be dropped, which is not recorded yet.
    died_unread: bool,
    /// Queues whose first message is not looked for until their expired messages have been processed. Some
    /// may have been removed.
    given_up: Vec<u32>,
    /// Whether the call did not reach the messages behind expired ones.
    gave_up: bool,
    /// The wall time of the batch that is being replayed.
    replaying: Timestamp,
    /// Counts calls, so that each lets time act on a queue once.
    call: u64,
    entries: Slab<Entry<B>>,
    leases: Slab<LeaseTimer>,
    holders: Holders,
    /// What may still run out before the next serve.
    slice: LapseSlice,
    /// The index of that slice, from 1.
    slices: u64,
    /// Messages whose leases end with the process, while these are freed.
    session: Vec<u32>,
    /// Queues not yet checked for lapsed leases, while the store closes.
    closing: Option<Vec<u32>>,
    /// The number of queues that were checked for lapsed leases.
    #[cfg(test)]
    looks_for_lapsed: usize,
    queues: Queues,
    /// Queues with a pause of their own that has an end, by that end.
    pauses: BTreeSet<(Timestamp, u32)>,
    numbering: Numbering,
    by_number: Numbers,
    /// Live messages with a key of their own.
    by_key: SlotTable,
    key_hash: TextHash,
    idempotency_keys: IdempotencyKeys,
    waiters: Waiters<B>,
    /// The number of cold messages.
    cold: u64,
    /// The number of resident messages that have changed since they were captured.
    changed: usize,
    /// The mark of messages that change now.
    span: ChangeMark,
    snapshotting: Option<Box<SnapshotInProgress<B>>>,
    /// The number of captures that were begun.
    snapshots: u64,
    lazy_free: LazyFree,
    /// Counts of deaths and discards.
    deaths: Deaths,
    /// The queue whose cold dead messages are being read for its retention.
    retaining: Option<retention::Retaining>,
    /// Queues that may have nothing left that keeps them, since time has removed a message.
    maybe_bare: Vec<u32>,
    /// The number of sweeps that have begun.
    sweeps: u64,
    /// The sweeps in progress.
    bulk_in_progress: BulkInProgress,
    /// Cold messages that have died since a sweep began.
    late: LateDeaths,
    /// The memory of all resident messages, in bytes; see [`Core::weight`].
    weight: usize,
    /// The slot that eviction looked at last.
    hand: u32,
}

impl<B: StoredBody> Core<B> {
    /// A core without messages.
    ///
    /// # Panics
    /// If shard or incarnation exceed their maximum, if numbers do not rise, or if one of the sizes of slices
    /// is 0.
    pub fn new(config: CoreConfig) -> Core<B> {
        assert!(config.shard <= MessageId::MAX_SHARD, "shard {} is too high", config.shard);
        assert!(config.incarnation <= MessageId::MAX_INCARNATION, "incarnation {}", config.incarnation);
        assert!(config.number_step > 0, "numbers rise");
        assert!(config.freed_per_call > 0, "what a purge has removed is forgotten some time");
        assert!(config.bulk_per_call > 0, "a sweep goes on");
        assert!(config.lapsed_a_call > 0 && config.lapsed_bytes_a_call > 0, "leases run out some time");
        assert!(config.expired_a_call > 0, "what has expired is come to some time");
        Core {
            next_counter: 0,
            next_number: config.next_number,
            next_lease: 0,
            random: Rng::new(config.seed),
            seen: Timestamp::MIN,
            replaying: Timestamp::MIN,
            is_behind: false,
            fell_behind: 0,
            died_unread: false,
            given_up: Vec::new(),
            gave_up: false,
            call: 0,
            entries: Slab::new(),
            leases: Slab::new(),
            holders: Holders::default(),
            slice: LapseSlice::of(&config),
            slices: 1,
            session: Vec::new(),
            closing: None,
            #[cfg(test)]
            looks_for_lapsed: 0,
            queues: Queues::new(),
            pauses: BTreeSet::new(),
            numbering: Numbering::new(config.number_step),
            by_number: Numbers::new(),
            by_key: SlotTable::new(),
            key_hash: TextHash::default(),
            idempotency_keys: IdempotencyKeys::new(),
            waiters: Waiters::new(),
            cold: 0,
            changed: 0,
            span: ChangeMark::Odd,
            snapshotting: None,
            snapshots: 0,
            lazy_free: LazyFree::default(),
            deaths: Deaths::default(),
            retaining: None,
            maybe_bare: Vec::new(),
            sweeps: 0,
            bulk_in_progress: BulkInProgress::default(),
            late: LateDeaths::default(),
            weight: 0,
            hand: 0,
            config,
        }
    }

    /// The limits in its configuration.
    pub fn limits(&self) -> &Limits {
        &self.config.limits
    }

    /// The number of resident messages, in all queues and states, with removed ones that are [not
    /// freed](Core::has_unfreed) yet: those that take memory.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The approximate memory of the resident messages in bytes, with their keys, headers and error texts,
    /// and their share of all indexes; without bodies, idempotency keys, queues and waiting takes.
    pub fn weight(&self) -> usize {
        self.weight + self.leases.len() * LEASE_BYTES
    }

    /// The number of leased messages.
    pub fn leased_len(&self) -> usize {
        self.leases.len()
    }

    /// The number of idempotency keys that are remembered, and the number of queues.
    pub fn others_len(&self) -> (usize, usize) {
        (self.idempotency_keys.len(), self.queues.len())
    }

    /// Whether there are no messages, resident or cold.
    pub fn is_empty(&self) -> bool {
        self.len() == self.lazy_free.unfreed() && self.cold == 0
    }

    /// The location of a message's body; `None` if there is no such message.
    pub fn body_of(&self, number: Number) -> Option<&B> {
        Some(&self.entries.get(self.resident_number(number)?).body)
    }

    /// Changes the location of a message's body: the same bytes are there now. `None` if there is no such
    /// message.
    pub fn move_body(&mut self, number: Number, body: B) -> Option<B> {
        let slot = self.resident_number(number)?;
        Some(std::mem::replace(&mut self.entries.get_mut(slot).body, body))
    }

    /// The wall time of the last call, which a batch of its records has to carry.
    pub fn seen(&self) -> Timestamp {
        self.seen
    }

    /// The queue, after time has acted on it; `None` if it is unknown.
    fn touched(&mut self, name: &QueueName, now: Now, log: &mut impl Log<B>) -> Option<u32> {
        let queue = self.queues.find(name)?;
        if !self.touch(queue, now, log) {
            return Some(queue);
        }
        // Messages that have expired may have been all that kept it.
        self.queues.remove_if_bare(queue);
        self.queues.find(name)
    }

    fn known(&mut self, name: &QueueName, now: Now, log: &mut impl Log<B>) -> Result<u32> {
        self.touched(name, now, log).ok_or_else(|| Error::UnknownQueue { queue: name.clone() })
    }

    /// Runs `each` on every item, or refuses them all if there are too many.
    fn each<I, T>(
        &mut self,
        items: Vec<I>,
        mut each: impl FnMut(&mut Self, I) -> Result<T>,
    ) -> Vec<Result<T>> {
        match self.config.limits.check_batch(items.len()) {
            Ok(()) => items.into_iter().map(|item| each(self, item)).collect(),
            Err(refusal) => items.iter().map(|_| Err(refusal.clone().into())).collect(),
        }
    }
}

//! All messages of one shard, with their indexes, in memory: what the memory store and the engine share.
//!
//! [`Core`] is pure and deterministic: it reads no clock and does no I/O. Each call is given `now`, and tells a
//! [`Log`] what it changed; the same calls under the same seed give the same answers and the same records.
//!
//! # For whoever owns a core
//! - **Time.** Read the clock when the call is made, not when it was asked for: a `now` whose wall time is
//!   earlier than that of the call before counts as a step of the clock back.
//! - **Calls** answer at once, but for [`revive`](Core::revive) and [`discard`](Core::discard) of many: those do a slice,
//!   and [`go_on`](Core::go_on) does the next one, after other calls if there are any. Nothing is durable when they return: make the log so before answers leave.
//! - **Leases that run out and messages that expire** all at once are seen to in slices, of which there is one between two calls
//!   of [`serve`](Core::serve) and one in each: where [`has_lapsed`](Core::has_lapsed) says so of a queue that a call names, call
//!   [`lapse_some`](Core::lapse_some), and make the call later if there are more. A take without wait, or a call of
//!   [`queues`](Core::queues), may have [given up](Core::gave_up) for the same reason: repeat it after the next serve.
//! - **Retention.** Between two serves calls discard a slice of the dead messages whose time is over. Where calls are rare, call
//!   [`retain_some`](Core::retain_some) when [`next_retention`](Core::next_retention) has come, within a minute, and again while it
//!   says that there are more.
//! - **Closing.** Call [`give_back_bound`](Core::give_back_bound) until it is through, and nothing else in between.
//! - **Cold messages that expire** are seen to in slices: call [`catch_up`](Core::catch_up) before each batch of calls. While
//!   the core [is behind](Core::is_behind), a take or a peek may have [given up](Core::gave_up): repeat it. So may a take, a list or
//!   a peek at any time where what has expired could not be read in time: repeat it after the next serve. All else is right at
//!   any time, and takes longer if it comes too early.
//! - **Takes that wait.** If [`take`](Core::take) answers with nothing and the caller wants to wait, hand it to
//!   [`wait`](Core::wait). After each batch of calls, whether any take waits or not, and when [`next_wake`](Core::next_wake) has come, call
//!   [`serve`](Core::serve): it answers those that have messages now, and those whose time is over. A caller
//!   that has gone is [`forget`](Core::forget); what was handed to one is [`give_back`](Core::give_back).
//! - **Opening.** Make a new core of a new incarnation; then for each batch of the log [`replay_put`](Core::replay_put)
//!   and [`replay`](Core::replay) its records in order and say when it was by [`replay_time`](Core::replay_time);
//!   then call [`opened`](Core::opened), once, and [`free_some`](Core::free_some) until it is through. Where messages may be cold, say before the records of a batch what time it
//!   carries, by [`replay_begins`](Core::replay_begins).
//!
//! # Ground rules
//! 1. Time comes first: each call lets time act on the queue that it touches (due, lapsed, expired) before it
//!    looks, and on no other, so that a storm in one queue does not delay the next.
//! 2. Where a message stands changes in two places only: `time` and `queue`, for what becomes due, and `restand`,
//!    for all else. Both keep every index right; [`check`](Core::check) verifies it.
//! 3. Ids and numbers rise together, put by put: so one index finds a message by either.
//! 4. What a message may do is decided by [`dwell_model::apply`] alone.
//!
//! # Layout
//! - [`Record`], [`Log`]: what is told to the log
//! - `entry`, `slab`, `index`, `numbers`, `schedule`, `ready`, `queue`, `queues`, `tokens`, `random`: the parts
//! - `time`, `stand`: time acting on a queue, a message changing its place; `lapse`: many leases that run out, and many
//!   messages that expire
//! - `put`, `take`, `settle`, `expire`, `cancel`, `reschedule`, `get`, `list`, `stats`, `forecast`, `configure`, `revive`, `purge`:
//!   a call each, with its kin; `sweep`: many dead messages, slice by slice; `late`: those that are cold and not meant
//! - `retention`: how long messages stay dead, and how many; `deaths`: how many have died and were discarded; `holders`: who
//!   holds messages
//! - `wait`: takes that wait
//! - `cold`: messages that are not in memory; `captured`: those that are to be copied; `grave`: those that are gone and not forgotten yet
//! - `replay`: building the same core again
//! - `check`: the invariants

mod cancel;
mod captured;
mod check;
mod cold;
mod configure;
mod deaths;
mod entry;
mod expire;
mod forecast;
mod get;
mod grave;
mod holders;
mod index;
mod lapse;
mod late;
mod list;
mod numbers;
mod purge;
mod put;
mod queue;
mod queues;
mod random;
mod ready;
mod record;
mod replay;
mod reschedule;
mod retention;
mod revive;
mod schedule;
mod settle;
mod slab;
mod stand;
mod stats;
mod sweep;
mod take;
#[cfg(test)]
mod tests;
mod time;
mod tokens;
mod under_way;
mod wait;

use std::collections::BTreeSet;

use dwell_model::{Limits, MessageId, Now, Number, QueueName, Timestamp};

use crate::{Error, Result};
use cold::Capturing;
use deaths::Deaths;
use entry::{Entry, Held, Mark};
use grave::Graves;
use holders::Holders;
use index::{Numbering, SlotTable, TextHash};
use lapse::Slice;
use late::Late;
use numbers::Numbers;
use queues::Queues;
use random::Random;
use slab::Slab;
use tokens::Tokens;
use under_way::UnderWay;
use wait::Waiters;

pub use captured::{Captured, Names};
pub use cold::{
    Capture, Cold, ColdCounts, ColdHead, ColdMessage, CopyAt, DeadSearch, Died, Expired, Expiring,
    HandedOver, Placed, Reader, Which,
};
pub use get::{Get, Getting, Peek, Peeking};
pub use record::{Durability, Log, NoLog, PutRecord, Record, StoredBody, TokenRecord};
pub use replay::ReplayError;
pub use sweep::{Sweep, Sweeping};
pub use wait::{Answer, WaiterId};

/// What a lease takes in memory beside its message.
const LEASE_BYTES: usize = 96;

/// So many messages are forgotten in less time than a sync takes.
const BURIED_A_CALL: usize = 1_000;

/// So many leases run out in about the time of a sync, and record so many bytes.
const LAPSED_A_CALL: usize = 1_000;
const LAPSED_BYTES_A_CALL: usize = 1024 * 1024;

/// So many dead messages are revived in little more than the time of a sync.
const SWEPT_A_CALL: usize = 1_000;

/// So many expiries are looked at in about the time of a sync.
const EXPIRED_A_CALL: usize = 16 * 1024;

/// How a core begins.
#[derive(Clone, Debug)]
pub struct CoreConfig {
    /// The shard that its ids name, at most [`MessageId::MAX_SHARD`].
    pub shard: u16,
    /// The incarnation that its ids and lease tokens name, never used before in this shard; at most
    /// [`MessageId::MAX_INCARNATION`].
    pub incarnation: u32,
    /// The number of the next message. Past [`Number::MAX`] puts are refused. Replay raises it.
    pub next_number: u64,
    /// From one number to the next: 1, or the number of shards that share the numbers.
    pub number_step: u64,
    /// What it accepts at most.
    pub limits: Limits,
    /// How many takes may wait at a time.
    pub waiting_limit: usize,
    /// Where its chance begins: the jitter of backoff.
    pub seed: u64,
    /// How many messages that were removed with all others of their queue each call forgets, and so how many a purge
    /// forgets itself; at least 1.
    pub buried_a_call: usize,
    /// At how many dead messages a revive or a discard looks in one call, where it is about all or the oldest, and how many that are
    /// past their retention all calls between two serves discard; at least 1.
    pub swept_a_call: usize,
    /// How many leases a slice lets run out and messages expire, and about how many bytes it records: each call of [`Core::serve`] has one, and
    /// all calls between two of them; at least 1.
    pub lapsed_a_call: usize,
    /// See [`CoreConfig::lapsed_a_call`].
    pub lapsed_bytes_a_call: usize,
    /// At how many expiries of cold messages one call of [`Core::catch_up`] looks; at least 1.
    pub expired_a_call: usize,
}

impl CoreConfig {
    /// Shard 0, incarnation 0, numbers from 1, so many takes waiting that memory is the limit, 1,000 messages of a purge
    /// forgotten by each call, and 1,000 dead ones looked at by each call of a sweep.
    pub fn new(limits: Limits, seed: u64) -> CoreConfig {
        CoreConfig {
            shard: 0,
            incarnation: 0,
            next_number: 1,
            number_step: 1,
            limits,
            waiting_limit: 1_000_000,
            seed,
            buried_a_call: BURIED_A_CALL,
            swept_a_call: SWEPT_A_CALL,
            lapsed_a_call: LAPSED_A_CALL,
            lapsed_bytes_a_call: LAPSED_BYTES_A_CALL,
            expired_a_call: EXPIRED_A_CALL,
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
    random: Random,
    /// The wall time of the last call.
    seen: Timestamp,
    /// Whether cold messages have expired that no slice has come to yet, and how often that has begun to be so.
    is_behind: bool,
    fell_behind: u64,
    /// Queues of which what goes out first is not looked for before what has expired in them was come to. Some may be gone.
    given_up: Vec<u32>,
    /// Whether the call has not come to what is behind expired messages.
    gave_up: bool,
    /// The wall time of the batch that is replayed.
    replaying: Timestamp,
    /// Counts calls, so that each lets time act on a queue once.
    call: u64,
    entries: Slab<Entry<B>>,
    leases: Slab<Held>,
    holders: Holders,
    /// So many leases may still run out before the next serve.
    slice: Slice,
    /// The how-manieth slice that is, from 1.
    slices: u64,
    /// Messages whose leases end with the process, while these are freed.
    bound: Vec<u32>,
    /// Queues of which it is not known yet that none of their leases has run out, while the store closes.
    closing: Option<Vec<u32>>,
    /// How many queues were looked at for what has run out.
    #[cfg(test)]
    looks_for_lapsed: usize,
    queues: Queues,
    /// Queues whose own pause ends by itself, by that instant.
    pauses: BTreeSet<(Timestamp, u32)>,
    numbering: Numbering,
    by_number: Numbers,
    /// Live messages with a key of their own.
    by_key: SlotTable,
    key_hash: TextHash,
    tokens: Tokens,
    waiters: Waiters<B>,
    /// How many messages are cold.
    cold: u64,
    /// How many resident messages have changed since they were captured.
    changed: usize,
    /// How those are marked that change now.
    span: Mark,
    capturing: Option<Box<Capturing<B>>>,
    /// How many captures were begun.
    captures: u64,
    graves: Graves,
    /// What has died and was discarded.
    deaths: Deaths,
    /// The queue whose cold dead messages are being read, to see whether they are past its retention.
    retaining: Option<retention::Retaining>,
    /// Queues that nothing may keep any more, since time has removed a message.
    maybe_bare: Vec<u32>,
    /// How many sweeps have begun.
    sweeps: u64,
    /// Those that may go on.
    under_way: UnderWay,
    /// What has died since and is cold.
    late: Late,
    /// What all resident messages take in memory, in bytes; see [`Core::weight`].
    weight: usize,
    /// The slot that was looked at last for eviction.
    hand: u32,
}

impl<B: StoredBody> Core<B> {
    /// A core without messages.
    ///
    /// # Panics
    /// If shard or incarnation are over their maximum, if numbers do not rise, or if nothing is buried, swept or expires.
    pub fn new(config: CoreConfig) -> Core<B> {
        assert!(config.shard <= MessageId::MAX_SHARD, "shard {} is too high", config.shard);
        assert!(config.incarnation <= MessageId::MAX_INCARNATION, "incarnation {}", config.incarnation);
        assert!(config.number_step > 0, "numbers rise");
        assert!(config.buried_a_call > 0, "what a purge has removed is forgotten some time");
        assert!(config.swept_a_call > 0, "a sweep goes on");
        assert!(config.lapsed_a_call > 0 && config.lapsed_bytes_a_call > 0, "leases run out some time");
        assert!(config.expired_a_call > 0, "what has expired is come to some time");
        Core {
            next_counter: 0,
            next_number: config.next_number,
            next_lease: 0,
            random: Random::new(config.seed),
            seen: Timestamp::MIN,
            replaying: Timestamp::MIN,
            is_behind: false,
            fell_behind: 0,
            given_up: Vec::new(),
            gave_up: false,
            call: 0,
            entries: Slab::new(),
            leases: Slab::new(),
            holders: Holders::default(),
            slice: Slice::of(&config),
            slices: 1,
            bound: Vec::new(),
            closing: None,
            #[cfg(test)]
            looks_for_lapsed: 0,
            queues: Queues::new(),
            pauses: BTreeSet::new(),
            numbering: Numbering::new(config.number_step),
            by_number: Numbers::new(),
            by_key: SlotTable::new(),
            key_hash: TextHash::default(),
            tokens: Tokens::new(),
            waiters: Waiters::new(),
            cold: 0,
            changed: 0,
            span: Mark::Odd,
            capturing: None,
            captures: 0,
            graves: Graves::default(),
            deaths: Deaths::default(),
            retaining: None,
            maybe_bare: Vec::new(),
            sweeps: 0,
            under_way: UnderWay::default(),
            late: Late::default(),
            weight: 0,
            hand: 0,
            config,
        }
    }

    /// The limits it was made with.
    pub fn limits(&self) -> &Limits {
        &self.config.limits
    }

    /// How many messages are resident, in all queues and states, with those that are gone and [not
    /// forgotten](Core::has_ghosts) yet: so many take memory.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// About how many bytes the resident messages take in memory, with their keys, headers and error texts, and their
    /// share of all indexes; without bodies, put tokens, queues and takes that wait.
    pub fn weight(&self) -> usize {
        self.weight + self.leases.len() * LEASE_BYTES
    }

    /// How many messages are leased.
    pub fn leased_len(&self) -> usize {
        self.leases.len()
    }

    /// How many put tokens are remembered, and how many queues there are.
    pub fn others_len(&self) -> (usize, usize) {
        (self.tokens.len(), self.queues.len())
    }

    /// Whether there are no messages, resident or cold.
    pub fn is_empty(&self) -> bool {
        self.len() == self.graves.ghosts() && self.cold == 0
    }

    /// Where the body of a message lies; `None` if there is no such message.
    pub fn body_of(&self, number: Number) -> Option<&B> {
        Some(&self.entries.get(self.resident_number(number)?).body)
    }

    /// Gives a message's body another place: the same bytes lie there now. `None` if there is no such message.
    pub fn move_body(&mut self, number: Number, body: B) -> Option<B> {
        let slot = self.resident_number(number)?;
        Some(std::mem::replace(&mut self.entries.get_mut(slot).body, body))
    }

    /// The wall time of the last call: what a batch of its records has to carry.
    pub fn seen(&self) -> Timestamp {
        self.seen
    }

    /// The queue, with time let act on it; `None` if it is unknown.
    fn touched(&mut self, name: &QueueName, now: Now, log: &mut impl Log<B>) -> Option<u32> {
        let queue = self.queues.find(name)?;
        self.touch(queue, now, log);
        // What has expired may be all that kept it.
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

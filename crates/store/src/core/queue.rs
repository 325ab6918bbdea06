//! One queue: its messages by state, in the orders in which they are asked for.

use std::collections::{BTreeMap, BTreeSet};

use dwell_model::{DEFAULT_PRIORITY, MessageId, OwnSettings, QueueName, Settings, Timestamp};
use dwell_time::Handle;

use super::cold::ColdBounds;
use super::entry::Entry;
use super::ready::Ready;
use super::schedule::{Schedule, Timers};
use super::slab::Slab;
use crate::StateCounts;

/// The order in which due messages are handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ReadyKey {
    pub(super) priority: u32,
    pub(super) due: Timestamp,
    pub(super) id: MessageId,
}

impl ReadyKey {
    pub(super) fn of<B>(entry: &Entry<B>) -> ReadyKey {
        ReadyKey { priority: entry.priority, due: entry.due, id: entry.id }
    }
}

/// Slots of messages of one queue. The timers accept only their own handles.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) name: QueueName,
    pub(super) own: Option<Box<OwnValues>>,
    pub(super) scheduled: Schedule,
    /// Scheduled messages that are due by then are ready. If the clock steps back, they are moved to the
    /// ready first.
    pub(super) ready_until: Timestamp,
    pub(super) ready: Ready,
    pub(super) ready_urgent: u64,
    /// Leased messages, by their deadlines in monotonic milliseconds.
    pub(super) leased: Timers,
    /// A lower bound of the end of its leases, and its handle among all queues.
    pub(super) lapse: Option<(i64, Handle)>,
    /// Scheduled and ready messages that expire, by that instant.
    pub(super) expiries: Timers,
    pub(super) dead: DeadOrders,
    /// A lower bound, in milliseconds, of the instant at which one of its dead messages is past its
    /// retention; and its handle among all queues.
    pub(super) retention: Option<(i64, Handle)>,
    /// When those of its dead messages are tried again that were passed over for retention, if any were.
    pub(super) passed_over_again: Option<Timestamp>,
    pub(super) cold: ColdBounds,
    /// How often all pending messages were removed at once, and all dead ones; see [`super::lazy_free`].
    pub(super) epoch: u16,
    pub(super) dead_epoch: u16,
    /// The number of removals whose messages are not all freed yet.
    pub(super) lazy_free: u32,
    /// The last call that let time act here.
    pub(super) touched: u64,
    pub(super) watch: Option<Box<QueueWaiters>>,
}

/// Its own settings, and the effective ones over the defaults.
#[derive(Debug)]
pub(super) struct OwnValues {
    pub(super) own: OwnSettings,
    pub(super) in_force: Settings,
}

/// Dead messages, oldest first and by (due, id); those with a key also by their key.
#[derive(Debug, Default)]
pub(super) struct DeadOrders {
    pub(super) by_death: BTreeMap<(Timestamp, MessageId), u32>,
    pub(super) by_due: BTreeMap<(Timestamp, MessageId), u32>,
    /// By the key's hash, and then oldest first.
    pub(super) by_key: BTreeMap<(u64, Timestamp, MessageId), u32>,
}

/// The state of a queue while takes wait on it.
#[derive(Debug, Default)]
pub(super) struct QueueWaiters {
    /// The waiting takes, in the order of their arrival.
    pub(super) waiting: BTreeSet<u64>,
    /// Whether it is on the list of queues to be looked at.
    pub(super) dirty: bool,
    /// Whether it has something to hand out, but no lease may be granted.
    pub(super) held_up: Option<CapReached>,
    pub(super) wall_alarm: Option<Handle>,
    pub(super) mono_alarm: Option<Handle>,
}

/// The cap that prevents a queue from handing out its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CapReached {
    /// The queue's own: it is looked at when one of its leases ends.
    ByQueue,
    /// The store's: it is served after the other held-up queues whose takes have lower turns.
    ByStore(u64),
}

/// A queue's order of monotonic deadlines: 2^63 ms are never reached.
pub(super) fn mono(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

pub(super) fn is_urgent(priority: u32) -> bool {
    priority < DEFAULT_PRIORITY
}

impl Queue {
    pub(super) fn new(name: QueueName) -> Queue {
        Queue {
            name,
            own: None,
            scheduled: Schedule::default(),
            ready_until: Timestamp::MIN,
            ready: Ready::default(),
            ready_urgent: 0,
            leased: Timers::default(),
            lapse: None,
            expiries: Timers::default(),
            dead: DeadOrders::default(),
            retention: None,
            passed_over_again: None,
            cold: ColdBounds::default(),
            epoch: 0,
            dead_epoch: 0,
            lazy_free: 0,
            touched: 0,
            watch: None,
        }
    }

    pub(super) fn settings<'a>(&'a self, defaults: &'a Settings) -> &'a Settings {
        self.own.as_ref().map_or(defaults, |own| &own.in_force)
    }

    /// When a pause of its own ends by itself, if it does.
    pub(super) fn pause_end(&self) -> Option<Timestamp> {
        self.own.as_ref().and_then(|own| own.own.pause_end())
    }

    /// Scheduled and ready messages together, cold ones included.
    pub(super) fn pending(&self) -> u64 {
        (self.scheduled.len() + self.ready.len()) as u64 + self.cold.pending
    }

    pub(super) fn has_messages(&self) -> bool {
        let pending = !self.scheduled.is_empty() || !self.ready.is_empty() || self.cold.pending > 0;
        pending || self.leased.len() > 0 || self.dead() > 0
    }

    /// Dead messages, cold ones included.
    pub(super) fn dead(&self) -> u64 {
        self.dead.by_death.len() as u64 + self.cold.dead
    }

    /// Whether nothing keeps it: no messages, no waiters, no settings of its own.
    pub(super) fn is_bare(&self) -> bool {
        self.watch.is_none() && self.own.is_none() && !self.has_messages()
    }

    /// The resident messages by state.
    pub(super) fn counts(&self) -> StateCounts {
        let (due, urgent) = self.scheduled.count_due(self.ready_until);
        StateCounts {
            scheduled: self.scheduled.len() as u64 - due,
            ready: self.ready.len() as u64 + due,
            ready_urgent: self.ready_urgent + urgent,
            leased: self.leased.len() as u64,
            dead: self.dead.by_death.len() as u64,
        }
    }

    /// The message that is handed out first.
    pub(super) fn first_ready<B>(&self, entries: &Slab<Entry<B>>) -> Option<(ReadyKey, u32)> {
        self.ready.first().into_iter().chain(self.scheduled.first_due(self.ready_until, entries)).min()
    }

    /// Whether any message may be handed out.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty() || self.scheduled.next_due().is_some_and(|due| due <= self.ready_until)
    }

    pub(super) fn insert_ready(&mut self, key: ReadyKey, slot: u32) {
        self.ready_urgent += u64::from(is_urgent(key.priority));
        self.ready.insert(key, slot);
    }

    pub(super) fn remove_ready(&mut self, key: ReadyKey) {
        self.ready_urgent -= u64::from(is_urgent(key.priority));
        self.ready.remove(key);
    }
}

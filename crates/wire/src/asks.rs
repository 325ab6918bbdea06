//! What a route asks of its caller: a token, and what it has to be good for.

/// What a scope allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Put, cancel, reschedule.
    Put,
    /// Take, settle, look at messages.
    Take,
    /// Look at messages, cancel, reschedule, revive, discard, settings, pause, purge, delete.
    Manage,
    /// Look at queues and messages.
    Look,
    /// Read the metrics, which tell of all queues.
    Metrics,
}

impl Verb {
    /// All of them.
    pub const ALL: [Verb; 5] = [Verb::Put, Verb::Take, Verb::Manage, Verb::Look, Verb::Metrics];
    /// Those that stand beside a queue.
    pub const OF_QUEUES: [Verb; 4] = [Verb::Put, Verb::Take, Verb::Manage, Verb::Look];

    /// The word that configuration uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Verb::Put => "put",
            Verb::Take => "take",
            Verb::Manage => "manage",
            Verb::Look => "look",
            Verb::Metrics => "metrics",
        }
    }
}

/// What a route asks of its caller. Any one of the verbs will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// Nothing: health, documentation.
    Nothing,
    /// A token, whatever it is good for.
    AnyToken,
    /// One of these, in the queue that the path names.
    InQueue(&'static [Verb]),
    /// One of these, in the queue of the receipt in the path.
    InReceipt(&'static [Verb]),
    /// One of these, in each queue that the request names: the handler asks.
    InEach(&'static [Verb]),
    /// One of these, in every queue there may be.
    Everywhere(&'static [Verb]),
}

pub(crate) const MAY_PUT: &[Verb] = &[Verb::Put];
pub(crate) const MAY_TAKE: &[Verb] = &[Verb::Take];
pub(crate) const MAY_MANAGE: &[Verb] = &[Verb::Manage];
/// Whoever puts may replace what is there by its key, and so may take it back or move it.
pub(crate) const MAY_MOVE: &[Verb] = &[Verb::Put, Verb::Manage];
/// Who may look at messages. Whoever takes sees all bodies anyway.
pub const MAY_LOOK: &[Verb] = &[Verb::Take, Verb::Manage, Verb::Look];
/// Who may read counts over time, which show no message.
pub(crate) const MAY_COUNT: &[Verb] = &[Verb::Take, Verb::Manage, Verb::Look, Verb::Metrics];
/// Who may read counts of all queues.
pub(crate) const MAY_COUNT_ALL: &[Verb] = &[Verb::Metrics, Verb::Manage, Verb::Look];
/// Who may look at what the server itself does with all queues.
pub(crate) const MAY_LOOK_ALL: &[Verb] = &[Verb::Manage, Verb::Look];
pub(crate) const MAY_ANYTHING: &[Verb] = &[Verb::Put, Verb::Take, Verb::Manage, Verb::Look];

//! What a route requires of its caller: a token, and its scopes.

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
    /// Read the metrics, which cover all queues.
    Metrics,
}

impl Verb {
    /// All of them.
    pub const ALL: [Verb; 5] = [Verb::Put, Verb::Take, Verb::Manage, Verb::Look, Verb::Metrics];
    /// Those that a scope can name together with a queue.
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

/// What a route requires of its caller. Any one of the verbs suffices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// Nothing: health, documentation.
    Nothing,
    /// A token, with any scopes.
    AnyToken,
    /// One of these, in the queue that the path names.
    InQueue(&'static [Verb]),
    /// One of these, in the queue of the receipt in the path.
    InReceipt(&'static [Verb]),
    /// One of these, in each queue that the request names: the handler checks.
    InEach(&'static [Verb]),
    /// One of these, for every queue.
    Everywhere(&'static [Verb]),
}

pub(crate) const MAY_PUT: &[Verb] = &[Verb::Put];
pub(crate) const MAY_TAKE: &[Verb] = &[Verb::Take];
pub(crate) const MAY_MANAGE: &[Verb] = &[Verb::Manage];
/// Who may move messages. A put can replace a message by its key, so a caller that may put may also cancel and reschedule.
pub(crate) const MAY_MOVE: &[Verb] = &[Verb::Put, Verb::Manage];
/// Who may look at messages. A take returns the bodies anyway.
pub const MAY_LOOK: &[Verb] = &[Verb::Take, Verb::Manage, Verb::Look];
/// Who may read counts over time, which show no message.
pub(crate) const MAY_COUNT: &[Verb] = &[Verb::Take, Verb::Manage, Verb::Look, Verb::Metrics];
/// Who may read counts of all queues.
pub(crate) const MAY_COUNT_ALL: &[Verb] = &[Verb::Metrics, Verb::Manage, Verb::Look];
/// Who may look at the sinks and schedules that the server runs for all queues.
pub(crate) const MAY_LOOK_ALL: &[Verb] = &[Verb::Manage, Verb::Look];
pub(crate) const MAY_ANYTHING: &[Verb] = &[Verb::Put, Verb::Take, Verb::Manage, Verb::Look];

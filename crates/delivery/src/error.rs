//! Errors of delivery: one enum with stable codes, and whether a retry can help.

use dwell_model::QueueName;
use thiserror::Error;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error. The call has changed nothing, unless it is [`Error::Store`] and says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The store's error.
    #[error(transparent)]
    Store(#[from] dwell_store::Error),
    /// An invalid ladder of delays.
    #[error("the delays of retries are no ladder: {reason}")]
    InvalidLadder {
        /// What is wrong, and what would be accepted.
        reason: Box<str>,
    },
    /// A lane that could never run, or a worker without lanes.
    #[error("no worker can run this: {reason}")]
    InvalidLane {
        /// What is wrong, and what would be accepted.
        reason: Box<str>,
    },
    /// Two lanes of one worker take from one queue.
    #[error("queue '{queue}' has two handlers in this worker; give each queue one")]
    DuplicateLane {
        /// The queue.
        queue: QueueName,
    },
    /// An invalid configuration of a sink.
    #[error("no sink can be made of this: {reason}")]
    InvalidSink {
        /// What is wrong, and what would be accepted.
        reason: Box<str>,
    },
    /// A text that is not a secret. The message does not show it.
    #[error("the secret is refused: {reason}")]
    InvalidSecret {
        /// What is wrong, and what would be accepted.
        reason: Box<str>,
    },
    /// A secret cannot be read from its source.
    #[error("the secret '{source_name}' cannot be read: {reason}")]
    UnreadableSecret {
        /// The source, `file:PATH` or `env:NAME`, shortened.
        source_name: Box<str>,
        /// Why it cannot be read.
        reason: Box<str>,
    },
    /// A message names no URL that its sink may send to.
    #[error("the message names no URL that may be sent to: {reason}")]
    RefusedTarget {
        /// What is wrong.
        reason: Box<str>,
    },
    /// The host in a message's URL has an address that its sink may not connect to.
    #[error(
        "the address {address} is refused: it is {kind}; allow its network if messages may be sent there"
    )]
    RefusedAddress {
        /// The address that the host's name resolved to.
        address: std::net::IpAddr,
        /// The purpose of such addresses.
        kind: Box<str>,
    },
    /// The text is not a cron expression.
    #[error("'{expression}' is no cron expression: {reason}")]
    MalformedCron {
        /// The text as given, shortened.
        expression: Box<str>,
        /// What is wrong, and what would be accepted.
        reason: Box<str>,
    },
    /// The digit of a weekday means one day to Spring and another to Quartz.
    #[error(
        "the weekday '{weekday}' is ambiguous: 1 is Monday to Spring and Sunday to Quartz; \
         write names such as MON, or say dialect = \"spring\" or \"quartz\""
    )]
    AmbiguousDialect {
        /// The weekday field as given.
        weekday: Box<str>,
    },
    /// No instant matches the cron expression.
    #[error("'{expression}' never fires after {after}")]
    CronNeverFires {
        /// The expression as given.
        expression: Box<str>,
        /// The instant after which it never fires.
        after: dwell_model::Timestamp,
    },
    /// The zone is not in the database of time zones.
    #[error("'{zone}' is no time zone: write a name of the IANA database, such as Europe/Berlin or UTC")]
    UnknownZone {
        /// The name as given, shortened.
        zone: Box<str>,
    },
    /// An invalid schedule.
    #[error("the schedule '{name}' is refused: {reason}")]
    InvalidSchedule {
        /// Its name, shortened.
        name: Box<str>,
        /// What is wrong, and what would be accepted.
        reason: Box<str>,
    },
    /// The message of a schedule cannot be read by this version: a newer one may have written it.
    #[error(
        "the schedule '{name}' cannot be read by this version: {reason}; \
         see whether a newer version has written it, else delete it"
    )]
    UnreadableSchedule {
        /// Its name.
        name: Box<str>,
        /// What cannot be read.
        reason: Box<str>,
    },
    /// The queue is dwell's own.
    #[error("queue '{queue}' is reserved: names that begin with 'dwell:' are dwell's own")]
    ReservedQueue {
        /// The queue.
        queue: QueueName,
    },
    /// There is no schedule with this name.
    #[error("there is no schedule '{name}'")]
    UnknownSchedule {
        /// The name as given.
        name: Box<str>,
    },
    /// A server is running the schedule at this moment.
    #[error("the schedule '{name}' is being run at this moment; try again")]
    ScheduleBusy {
        /// Its name.
        name: Box<str>,
    },
}

impl Error {
    /// The stable code of this kind: a word that programs may match on. Each has a page in `docs/errors/`.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Store(error) => error.code(),
            Error::InvalidLadder { .. } => "invalid_ladder",
            Error::InvalidLane { .. } => "invalid_lane",
            Error::DuplicateLane { .. } => "duplicate_lane",
            Error::InvalidSink { .. } => "invalid_sink",
            Error::InvalidSecret { .. } => "invalid_secret",
            Error::UnreadableSecret { .. } => "unreadable_secret",
            Error::RefusedTarget { .. } => "refused_target",
            Error::RefusedAddress { .. } => "refused_address",
            Error::MalformedCron { .. } => "malformed_cron",
            Error::AmbiguousDialect { .. } => "ambiguous_dialect",
            Error::CronNeverFires { .. } => "cron_never_fires",
            Error::UnknownZone { .. } => "unknown_zone",
            Error::InvalidSchedule { .. } => "invalid_schedule",
            Error::UnreadableSchedule { .. } => "unreadable_schedule",
            Error::ReservedQueue { .. } => "queue_reserved",
            Error::UnknownSchedule { .. } => "unknown_schedule",
            Error::ScheduleBusy { .. } => "schedule_busy",
        }
    }

    /// Whether the same call may succeed later, with nothing else changed by the caller.
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Store(error) => error.is_retryable(),
            Error::ScheduleBusy { .. } => true,
            _ => false,
        }
    }
}

/// Untrusted text, shortened for a message.
pub(crate) fn excerpt(text: &str) -> Box<str> {
    const LONGEST: usize = 80;
    if text.chars().count() <= LONGEST {
        return text.into();
    }
    text.chars().take(LONGEST).chain(['…']).collect::<String>().into()
}

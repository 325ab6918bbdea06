//! Why a store refuses: one enum, stable codes, and whether a retry can help.

use dwell_model::{Invalid, MessageId, QueueName, SettingName};
use thiserror::Error;

/// A refusal. Nothing has changed, except where it says that the outcome is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// A value that no store would accept.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// No such queue: it has no messages, no waiters and no settings of its own.
    #[error("queue '{queue}' is unknown: it has no messages and no settings of its own")]
    UnknownQueue {
        /// The queue asked for.
        queue: QueueName,
    },
    /// No such message in the queue, by id or by key.
    #[error("no such message in queue '{queue}'")]
    MessageNotFound {
        /// The queue asked for.
        queue: QueueName,
    },
    /// The receipt proves no current lease: it ran out, was settled, or the message was removed.
    #[error("the lease is lost: it ran out or was settled, and the message may have gone to somebody else")]
    LeaseLost,
    /// Another live message in the queue has this key.
    #[error("the key is taken by message {id}")]
    KeyTaken {
        /// The message that has it.
        id: MessageId,
    },
    /// The message is leased.
    #[error("message {id} is leased; wait until it is settled or its lease runs out")]
    Leased {
        /// The message.
        id: MessageId,
    },
    /// The message is dead.
    #[error("message {id} is dead; revive it first")]
    Dead {
        /// The message.
        id: MessageId,
    },
    /// The message is not dead.
    #[error("message {id} is not dead")]
    NotDead {
        /// The message.
        id: MessageId,
    },
    /// The message is not leased, so there is no lease to end.
    #[error("message {id} is not leased; nobody holds it")]
    NotLeased {
        /// The message.
        id: MessageId,
    },
    /// The message is leased by another take than the one that was named.
    #[error(
        "message {id} was handed out again since: its takes are {takes} now; look who holds it, then try again"
    )]
    LeaseChanged {
        /// The message.
        id: MessageId,
        /// How often it has been handed out by now.
        takes: u32,
    },
    /// The idempotency key was used in this queue for a message with another body or key. Nothing was put.
    #[error(
        "the idempotency key stands for message {id}, which was put with another body or key; use a new idempotency key for a new message"
    )]
    IdempotencyMismatch {
        /// The message that it stands for, which may have been removed.
        id: MessageId,
    },
    /// The queue has reached its limit of pending messages.
    #[error("queue '{queue}' is full: it holds {limit} pending messages; try again later")]
    QueueFull {
        /// The queue.
        queue: QueueName,
        /// Its limit.
        limit: u64,
    },
    /// The limit of queues is reached.
    #[error("there are {limit} queues already; try again later, or raise the limit")]
    TooManyQueues {
        /// The limit.
        limit: usize,
    },
    /// The limit of leased messages is reached.
    #[error("{limit} messages are leased already; settle some, then try again")]
    TooManyLeased {
        /// The limit.
        limit: usize,
    },
    /// The limit of waiting takes is reached.
    #[error("{limit} takes are waiting already; try again later")]
    TooManyWaiting {
        /// The limit.
        limit: usize,
    },
    /// The setting cannot be changed while the queue has messages.
    #[error("setting {} of queue '{queue}' cannot change while it has messages", setting.as_str())]
    SettingFixed {
        /// The queue.
        queue: QueueName,
        /// The setting.
        setting: SettingName,
    },
    /// The queue is reserved for dwell: over the network it can only be read.
    #[error("queue '{queue}' is reserved: it is dwell's own and can only be read; choose another name")]
    QueueReserved {
        /// The queue.
        queue: QueueName,
    },
    /// Connection lost or sync failed after the command was sent: it may or may not have happened.
    #[error("the outcome is unknown: {reason}; repeating with the same idempotency key is safe")]
    OutcomeUnknown {
        /// What failed.
        reason: Box<str>,
        /// Whether the store has stopped because of it, so that no call succeeds before it is opened again.
        needs_reopen: bool,
    },
    /// The disk has too little space for more messages; acks and cancels still work.
    #[error("the disk is nearly full: {reason}; puts are refused until space is back")]
    DiskFull {
        /// How much is left and how much is needed.
        reason: Box<str>,
    },
    /// The store cannot flush messages as fast as they come, and has no memory for more; takes, acks and
    /// cancels still work.
    #[error("the store cannot keep up: {reason}; try again later")]
    Overloaded {
        /// What it waits for.
        reason: Box<str>,
    },
    /// The ids of this opening are used up, or the numbers of the store.
    #[error("{what} are used up{}", if *needs_reopen { "; open the store again" } else { "" })]
    Exhausted {
        /// What is used up.
        what: &'static str,
        /// Whether each opening has a range of its own, so that opening the store again helps. Numbers belong
        /// to the store: none are left.
        needs_reopen: bool,
    },
    /// The store's location contains data that it has not written, or that a later version has written.
    /// Nothing was done, and a retry does not help.
    #[error("the store cannot read its data: {reason}")]
    ForeignData {
        /// What was found, and what to do.
        reason: Box<str>,
    },
    /// The body of a message is not of the requested form, or a value cannot be converted to it. Nothing was
    /// done.
    #[error("the body is not {form}: {reason}")]
    MalformedBody {
        /// The requested form: `JSON`, `UTF-8 text`.
        form: &'static str,
        /// What is wrong with it.
        reason: Box<str>,
    },
    /// The store is closing or closed.
    #[error("the store is closed")]
    Closed,
    /// A server refuses for a reason of its own, not its store's: the caller is not permitted, or the server
    /// is stopping. Nothing was done.
    #[error("{reason}")]
    Refused {
        /// The stable code that the server returned.
        code: &'static str,
        /// The server's message.
        reason: Box<str>,
        /// Whether the same call may succeed later.
        is_retryable: bool,
    },
    /// No server answers at the address. Nothing was done.
    #[error(
        "no dwell server answers at {server} ({reason}); start one with `dwell serve`, or name another with --server or DWELL_SERVER"
    )]
    Unreachable {
        /// The address as it was given.
        server: Box<str>,
        /// The message of the operating system or the connection.
        reason: Box<str>,
    },
    /// The address answers, but not like a dwell server of this version. If a call that changes something is
    /// answered with a success that cannot be read, the error is [`Error::OutcomeUnknown`] instead.
    #[error("{server} answers, but not as a dwell server does: {reason}")]
    BadAnswer {
        /// The address as it was given.
        server: Box<str>,
        /// What is wrong with the answer.
        reason: Box<str>,
    },
    /// The store has stopped: its medium failed during a write. Nothing was done, and no call will succeed
    /// before the store is opened again.
    #[error("the store is unavailable: {reason}; open the store again")]
    Stopped {
        /// What failed.
        reason: Box<str>,
    },
    /// The store cannot serve: its medium failed or cannot be reached. Nothing was done.
    #[error("the store is unavailable: {reason}")]
    Unavailable {
        /// What is wrong, and what to do.
        reason: Box<str>,
    },
}

impl Error {
    /// The stable code of this kind, which programs may match on. Each code has a page in `docs/errors/`.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Invalid(invalid) => invalid.code(),
            Error::UnknownQueue { .. } => "unknown_queue",
            Error::MessageNotFound { .. } => "message_not_found",
            Error::LeaseLost => "lease_lost",
            Error::KeyTaken { .. } => "key_taken",
            Error::Leased { .. } => "leased",
            Error::Dead { .. } => "dead",
            Error::NotDead { .. } => "not_dead",
            Error::NotLeased { .. } => "not_leased",
            Error::LeaseChanged { .. } => "lease_changed",
            Error::IdempotencyMismatch { .. } => "idempotency_mismatch",
            Error::QueueFull { .. } => "queue_full",
            Error::TooManyQueues { .. } => "too_many_queues",
            Error::TooManyLeased { .. } => "too_many_leased",
            Error::TooManyWaiting { .. } => "too_many_waiting",
            Error::SettingFixed { .. } => "setting_fixed",
            Error::QueueReserved { .. } => "queue_reserved",
            Error::OutcomeUnknown { .. } => "outcome_unknown",
            Error::DiskFull { .. } => "disk_full",
            Error::Overloaded { .. } => "overloaded",
            Error::Exhausted { .. } => "exhausted",
            Error::ForeignData { .. } => "foreign_data",
            Error::MalformedBody { .. } => "malformed_body",
            Error::Closed => "closed",
            Error::Refused { code, .. } => code,
            Error::Unreachable { .. } => "unreachable",
            Error::BadAnswer { .. } => "bad_answer",
            // A client of a server cannot open its store again: to a client the two are the same.
            Error::Stopped { .. } => "unavailable",
            Error::Unavailable { .. } => "unavailable",
        }
    }

    /// Whether the same call may succeed later, without a change by the caller: never if the store has to be
    /// opened again first ([`needs_reopen`](Error::needs_reopen)).
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Refused { is_retryable, .. } => *is_retryable,
            Error::QueueFull { .. }
            | Error::TooManyQueues { .. }
            | Error::TooManyLeased { .. }
            | Error::TooManyWaiting { .. }
            | Error::Leased { .. }
            | Error::OutcomeUnknown { needs_reopen: false, .. }
            | Error::DiskFull { .. }
            | Error::Overloaded { .. }
            | Error::Unreachable { .. }
            | Error::Unavailable { .. } => true,
            _ => false,
        }
    }

    /// Whether no call will succeed before the store is opened again: it was closed, it has stopped, or it
    /// has used up what only an opening gives.
    ///
    /// Such an error is not retryable. An answer of a server never says so: the client cannot open the
    /// server's store, and the same call may succeed once its operator has opened it again.
    pub fn needs_reopen(&self) -> bool {
        match self {
            Error::OutcomeUnknown { needs_reopen, .. } | Error::Exhausted { needs_reopen, .. } => {
                *needs_reopen
            }
            Error::Stopped { .. } | Error::Closed => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_must_be_opened_again_where_it_has_stopped_and_not_where_waiting_helps() {
        let stopped = Error::Stopped { reason: "a sync failed".into() };
        assert_eq!((stopped.code(), stopped.is_retryable()), ("unavailable", false));
        assert_eq!(stopped.to_string(), "the store is unavailable: a sync failed; open the store again");

        let unknown = |needs_reopen| Error::OutcomeUnknown { reason: "x".into(), needs_reopen };
        let exhausted = |what, needs_reopen| Error::Exhausted { what, needs_reopen };
        let ids = exhausted("message ids", true);
        assert_eq!(ids.to_string(), "message ids are used up; open the store again");
        for error in [stopped, Error::Closed, ids, unknown(true)] {
            assert!(error.needs_reopen() && !error.is_retryable(), "{error}");
        }
        assert!(unknown(false).is_retryable());
        let numbers = exhausted("message numbers", false);
        assert!(!numbers.needs_reopen() && !numbers.is_retryable());
        assert_eq!(numbers.to_string(), "message numbers are used up");
        let unavailable = Error::Unavailable { reason: "x".into() };
        for error in [unavailable, unknown(false), Error::LeaseLost, Error::Overloaded { reason: "x".into() }]
        {
            assert!(!error.needs_reopen(), "{error}");
        }
    }
}

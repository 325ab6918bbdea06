//! Converts refusals and faults of the server into the contract's errors.

use dwell_model::{Invalid, MessageId, QueueName, SettingName, Timestamp};
use dwell_store::Error;

use crate::fault::Fault;
use crate::link::Failure;

/// Converts a refusal by its code; `info` has its details, such as an id or a limit.
pub(super) fn refusal(code: &str, info: &str, queue: &QueueName) -> Error {
    let id = || info.parse::<MessageId>().ok();
    let limit = || info.parse::<usize>().unwrap_or(usize::MAX);
    let named = match code {
        "message_not_found" => Some(Error::MessageNotFound { queue: queue.clone() }),
        "unknown_queue" => Some(Error::UnknownQueue { queue: queue.clone() }),
        "lease_lost" => Some(Error::LeaseLost),
        "key_taken" => id().map(|id| Error::KeyTaken { id }),
        "leased" => id().map(|id| Error::Leased { id }),
        "dead" => id().map(|id| Error::Dead { id }),
        "not_dead" => id().map(|id| Error::NotDead { id }),
        "not_leased" => id().map(|id| Error::NotLeased { id }),
        "idempotency_mismatch" => id().map(|id| Error::IdempotencyMismatch { id }),
        "queue_full" => {
            let limit = info.parse().unwrap_or(u64::MAX);
            Some(Error::QueueFull { queue: queue.clone(), limit })
        }
        "too_many_queues" => Some(Error::TooManyQueues { limit: limit() }),
        "too_many_leased" => Some(Error::TooManyLeased { limit: limit() }),
        "setting_fixed" => {
            Some(Error::SettingFixed { queue: queue.clone(), setting: SettingName::Partitions })
        }
        "overloaded" => {
            let reason = format!("queue '{queue}' remembers {info} idempotency keys");
            Some(Error::Overloaded { reason: reason.into() })
        }
        "busy" => Some(busy()),
        "foreign_data" => Some(Error::ForeignData { reason: info.into() }),
        "due_out_of_range" => Some(Invalid::DueOutOfRange { ms: i64::MAX }.into()),
        "error_text_too_long" => {
            let limit = dwell_model::Limits::MAX_ERROR_TEXT_LEN;
            Some(Invalid::ErrorTextTooLong { len: limit + 1, limit }.into())
        }
        "invalid_setting" => {
            Some(Invalid::InvalidSetting { setting: SettingName::Lease.as_str(), reason: info.into() }.into())
        }
        _ => None,
    };
    named.unwrap_or_else(|| unreadable(&format!("a refusal '{code}' ({info})")))
}

/// An open transaction holds a lock on the key or the message.
pub(super) fn busy() -> Error {
    Error::Refused {
        code: "busy",
        reason: "an open transaction holds the key or the message; try again when it has ended".into(),
        is_retryable: true,
    }
}

/// The expiry is not after the due instant.
pub(super) fn expires_before_due(expires: Timestamp, due: &str) -> Error {
    let due = due.parse().ok().and_then(|ms| Timestamp::from_ms(ms).ok()).unwrap_or(expires);
    Invalid::ExpiresBeforeDue { expires, due }.into()
}

/// The server returned a value that this version does not know.
pub(super) fn unreadable(what: &str) -> Error {
    Error::ForeignData { reason: format!("PostgreSQL answered what this version cannot read: {what}").into() }
}

/// Converts the failure of a whole call.
pub(super) fn failed(failure: Failure, queue: Option<&QueueName>) -> Error {
    match failure {
        Failure::Refused { code, info, words } => match queue {
            Some(queue) => refusal(&code, &info, queue),
            None => unreadable(&words),
        },
        Failure::Unknown { reason } => Error::OutcomeUnknown { reason: reason.into(), needs_reopen: false },
        Failure::Fault { fault, reason } | Failure::NotSent { fault, reason } => of_fault(fault, reason),
    }
}

fn of_fault(fault: Fault, reason: String) -> Error {
    match fault {
        Fault::Busy | Fault::Repeat => busy(),
        Fault::Overloaded => Error::Overloaded { reason: reason.into() },
        Fault::DiskFull => Error::DiskFull { reason: reason.into() },
        Fault::Foreign => Error::ForeignData { reason: reason.into() },
        Fault::Exhausted => Error::Exhausted { what: "message numbers", needs_reopen: false },
        Fault::Refused | Fault::Unavailable | Fault::ReadOnly | Fault::NotGranted | Fault::Unexpected => {
            Error::Unavailable { reason: format!("PostgreSQL says: {reason}").into() }
        }
    }
}

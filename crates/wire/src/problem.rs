//! The JSON of a refusal: RFC 9457 with extension members, made from a store's error and parsed back into the same error.

use std::borrow::Cow;

use dwell_model::{Invalid, MessageId, QueueName, SettingName, Timestamp};
use dwell_store::Error;
use serde::{Deserialize, Serialize};

use crate::{Code, lookup};

/// A refusal as the server reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Problem<'a> {
    /// Where the code is explained, relative to the server.
    #[serde(rename = "type")]
    pub kind: Cow<'a, str>,
    /// The title of the code.
    pub title: Cow<'a, str>,
    /// The HTTP status.
    pub status: u16,
    /// What was refused, and what to do.
    pub detail: Cow<'a, str>,
    /// The stable code.
    #[cfg_attr(
        feature = "schema",
        schemars(extend("enum" = crate::CODES.iter().map(|code| code.code).collect::<Vec<_>>()))
    )]
    pub code: Cow<'a, str>,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// Details for programs: the members that belong to the code.
    #[serde(flatten)]
    pub facts: Facts<'a>,
}

/// Details of a refusal, for programs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Facts<'a> {
    /// The message that prevents the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<MessageId>,
    /// How often the message has been handed out so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub takes: Option<u32>,
    /// The limit that was exceeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The size that exceeded it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub len: Option<u64>,
    /// The queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
    /// The setting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setting: Option<Cow<'a, str>>,
    /// The delay level that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<u32>,
    /// The number of levels of the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub levels: Option<u32>,
    /// The instant that was asked for, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ms: Option<i64>,
    /// The expiry that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// The instant at which the message would be due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<Timestamp>,
    /// The part of the detail that differs from one occurrence to the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Cow<'a, str>>,
}

impl Facts<'static> {
    /// The details of a value that no store would accept.
    pub fn of_invalid(invalid: &Invalid) -> Facts<'static> {
        let none = Facts::default();
        match invalid {
            Invalid::DueOutOfRange { ms } => Facts { ms: Some(*ms), ..none },
            Invalid::UnknownLevel { level, levels } => {
                Facts { level: Some(*level), levels: Some(*levels), ..none }
            }
            Invalid::ExpiresBeforeDue { expires, due } => {
                Facts { expires: Some(*expires), due: Some(*due), ..none }
            }
            Invalid::InvalidKey { len, limit }
            | Invalid::HeadersTooLarge { len, limit }
            | Invalid::BodyTooLarge { len, limit }
            | Invalid::ErrorTextTooLong { len, limit }
            | Invalid::BatchTooLarge { len, limit } => {
                Facts { len: Some(*len as u64), limit: Some(*limit as u64), ..none }
            }
            Invalid::InvalidIdempotencyKey { limit, .. } | Invalid::InvalidHolder { limit, .. } => {
                Facts { limit: Some(*limit as u64), ..none }
            }
            Invalid::InvalidSetting { setting, reason } => {
                Facts { setting: Some((*setting).into()), reason: owned(reason), ..none }
            }
            // Texts that the caller sent: they are in the detail.
            _ => none,
        }
    }

    /// The details of a store's error.
    pub fn of(error: &Error) -> Facts<'static> {
        let none = Facts::default();
        match error {
            Error::Invalid(invalid) => Facts::of_invalid(invalid),
            Error::UnknownQueue { queue }
            | Error::MessageNotFound { queue }
            | Error::QueueReserved { queue } => Facts { queue: Some(queue.clone()), ..none },
            Error::KeyTaken { id }
            | Error::Leased { id }
            | Error::Dead { id }
            | Error::NotDead { id }
            | Error::NotLeased { id }
            | Error::IdempotencyMismatch { id } => Facts { id: Some(*id), ..none },
            Error::LeaseChanged { id, takes } => Facts { id: Some(*id), takes: Some(*takes), ..none },
            Error::QueueFull { queue, limit } => {
                Facts { queue: Some(queue.clone()), limit: Some(*limit), ..none }
            }
            Error::TooManyQueues { limit }
            | Error::TooManyLeased { limit }
            | Error::TooManyWaiting { limit } => Facts { limit: Some(*limit as u64), ..none },
            Error::SettingFixed { queue, setting } => {
                Facts { queue: Some(queue.clone()), setting: Some(setting.as_str().into()), ..none }
            }
            Error::OutcomeUnknown { reason, .. }
            | Error::DiskFull { reason }
            | Error::Overloaded { reason }
            | Error::ForeignData { reason }
            | Error::Stopped { reason }
            | Error::Unavailable { reason } => Facts { reason: owned(reason), ..none },
            _ => none,
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "each member may be absent")]
fn owned(text: &str) -> Option<Cow<'static, str>> {
    Some(text.to_owned().into())
}

impl From<&Error> for Problem<'static> {
    /// The refusal as a server answers it. An error that no server returns becomes `internal`.
    fn from(error: &Error) -> Problem<'static> {
        let entry = lookup(error.code()).or_else(|| lookup("internal"));
        let Code { code, status, title, retryable } = *entry.expect("the table has an entry for mistakes");
        Problem {
            kind: format!("/errors/{code}").into(),
            title: title.into(),
            status,
            detail: error.to_string().into(),
            code: code.into(),
            retryable,
            facts: Facts::of(error),
        }
    }
}

impl Problem<'_> {
    /// The error of the store behind the server at the address `server`, or of the server itself ([`Error::Refused`]).
    ///
    /// The server opens its own store, so the error never [needs a reopen](Error::needs_reopen).
    pub fn into_error(self, server: &str) -> Error {
        if let Some(error) = self.error_of_store() {
            return error;
        }
        let reason = self.detail.into_owned().into_boxed_str();
        match lookup(&self.code) {
            Some(entry) => Error::Refused { code: entry.code, reason, is_retryable: self.retryable },
            None => {
                let reason = format!(
                    "it refuses with '{:.80}', which this version does not know: {reason}",
                    self.code
                );
                Error::BadAnswer { server: server.into(), reason: reason.into() }
            }
        }
    }

    /// The error that the details describe; `None` if one of them is missing.
    fn error_of_store(&self) -> Option<Error> {
        let Facts { id, takes, limit, len, level, levels, ms, expires, due, .. } = self.facts;
        let queue = || self.facts.queue.clone();
        let reason = || self.facts.reason.as_deref().map(Box::<str>::from);
        let setting = || {
            let given = self.facts.setting.as_deref()?;
            SettingName::ALL.into_iter().find(|setting| setting.as_str() == given)
        };
        let size = |size: Option<u64>| size.and_then(|size| usize::try_from(size).ok());
        let error = match &*self.code {
            "unknown_queue" => Error::UnknownQueue { queue: queue()? },
            "message_not_found" => Error::MessageNotFound { queue: queue()? },
            "lease_lost" => Error::LeaseLost,
            "key_taken" => Error::KeyTaken { id: id? },
            "leased" => Error::Leased { id: id? },
            "dead" => Error::Dead { id: id? },
            "not_dead" => Error::NotDead { id: id? },
            "not_leased" => Error::NotLeased { id: id? },
            "lease_changed" => Error::LeaseChanged { id: id?, takes: takes? },
            "idempotency_mismatch" => Error::IdempotencyMismatch { id: id? },
            "queue_full" => Error::QueueFull { queue: queue()?, limit: limit? },
            "too_many_queues" => Error::TooManyQueues { limit: size(limit)? },
            "too_many_leased" => Error::TooManyLeased { limit: size(limit)? },
            "too_many_waiting" => Error::TooManyWaiting { limit: size(limit)? },
            "setting_fixed" => Error::SettingFixed { queue: queue()?, setting: setting()? },
            "queue_reserved" => Error::QueueReserved { queue: queue()? },
            "outcome_unknown" => {
                let reason = reason().unwrap_or_else(|| (&*self.detail).into());
                Error::OutcomeUnknown { reason, needs_reopen: false }
            }
            "disk_full" => Error::DiskFull { reason: reason()? },
            "overloaded" => Error::Overloaded { reason: reason()? },
            "foreign_data" => Error::ForeignData { reason: reason()? },
            "unavailable" => Error::Unavailable { reason: reason()? },
            "due_out_of_range" => Invalid::DueOutOfRange { ms: ms? }.into(),
            "unknown_level" => Invalid::UnknownLevel { level: level?, levels: levels? }.into(),
            "expires_before_due" => Invalid::ExpiresBeforeDue { expires: expires?, due: due? }.into(),
            "invalid_key" => Invalid::InvalidKey { len: size(len)?, limit: size(limit)? }.into(),
            "headers_too_large" => Invalid::HeadersTooLarge { len: size(len)?, limit: size(limit)? }.into(),
            "body_too_large" => Invalid::BodyTooLarge { len: size(len)?, limit: size(limit)? }.into(),
            "error_text_too_long" => {
                Invalid::ErrorTextTooLong { len: size(len)?, limit: size(limit)? }.into()
            }
            "batch_too_large" => Invalid::BatchTooLarge { len: size(len)?, limit: size(limit)? }.into(),
            "invalid_setting" => {
                Invalid::InvalidSetting { setting: setting()?.as_str(), reason: reason()? }.into()
            }
            _ => return None,
        };
        Some(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serializes the error to JSON and parses it back.
    fn sent(error: &Error) -> Error {
        let json = serde_json::to_string(&Problem::from(error)).unwrap();
        serde_json::from_str::<Problem<'static>>(&json).unwrap().into_error("http://localhost")
    }

    #[test]
    fn an_error_of_a_store_is_the_same_on_the_other_side() {
        let queue = QueueName::new("q").unwrap();
        let id = MessageId::new(Timestamp::MIN, 0, 0, 1);
        let reason = || Box::from("x");
        let errors = [
            Error::UnknownQueue { queue: queue.clone() },
            Error::MessageNotFound { queue: queue.clone() },
            Error::LeaseLost,
            Error::KeyTaken { id },
            Error::Leased { id },
            Error::Dead { id },
            Error::NotDead { id },
            Error::NotLeased { id },
            Error::LeaseChanged { id, takes: 7 },
            Error::IdempotencyMismatch { id },
            Error::QueueFull { queue: queue.clone(), limit: 1 },
            Error::TooManyQueues { limit: 1 },
            Error::TooManyLeased { limit: 2 },
            Error::TooManyWaiting { limit: 3 },
            Error::SettingFixed { queue: queue.clone(), setting: SettingName::Partitions },
            Error::QueueReserved { queue },
            Error::OutcomeUnknown { reason: reason(), needs_reopen: false },
            Error::DiskFull { reason: reason() },
            Error::Overloaded { reason: reason() },
            Error::ForeignData { reason: reason() },
            Error::Unavailable { reason: reason() },
            Invalid::DueOutOfRange { ms: i64::MAX }.into(),
            Invalid::UnknownLevel { level: 4, levels: 3 }.into(),
            Invalid::ExpiresBeforeDue { expires: Timestamp::MIN, due: Timestamp::MAX }.into(),
            Invalid::InvalidKey { len: 0, limit: 1 }.into(),
            Invalid::HeadersTooLarge { len: 2, limit: 1 }.into(),
            Invalid::BodyTooLarge { len: 2, limit: 1 }.into(),
            Invalid::ErrorTextTooLong { len: 2, limit: 1 }.into(),
            Invalid::BatchTooLarge { len: 2, limit: 1 }.into(),
            Invalid::InvalidSetting { setting: "lease", reason: reason() }.into(),
        ];
        for error in errors {
            assert_eq!(sent(&error), error);
        }
    }

    #[test]
    fn a_store_that_only_its_server_can_open_again_passes_for_its_callers() {
        let stopped = sent(&Error::Stopped { reason: "a sync failed".into() });
        assert_eq!(stopped, Error::Unavailable { reason: "a sync failed".into() });
        let unknown = sent(&Error::OutcomeUnknown { reason: "x".into(), needs_reopen: true });
        assert_eq!(unknown, Error::OutcomeUnknown { reason: "x".into(), needs_reopen: false });
        for error in [Error::Closed, Error::Exhausted { what: "message ids", needs_reopen: true }] {
            let read = sent(&error);
            assert!(matches!(read, Error::Refused { .. }) && !read.needs_reopen(), "{read:?}");
            assert_eq!((read.code(), read.to_string()), (error.code(), error.to_string()));
        }
    }

    #[test]
    fn what_a_server_refuses_of_its_own_keeps_code_text_and_whether_to_try_again() {
        let problem = |code: &'static str, retryable| Problem {
            kind: format!("/errors/{code}").into(),
            title: "t".into(),
            status: 403,
            detail: "no".into(),
            code: code.into(),
            retryable,
            facts: Facts::default(),
        };
        let forbidden = problem("forbidden", false).into_error("http://localhost");
        let expected = Error::Refused { code: "forbidden", reason: "no".into(), is_retryable: false };
        assert_eq!(forbidden, expected);
        // A server that opens its store has no further details.
        let opening = problem("unavailable", true).into_error("http://localhost");
        assert_eq!((opening.code(), opening.is_retryable()), ("unavailable", true));
        assert_eq!(opening.to_string(), "no");
        let later = problem("of_a_later_version", true).into_error("http://localhost");
        assert_eq!((later.code(), later.is_retryable()), ("bad_answer", false));
        assert!(later.to_string().contains("of_a_later_version"), "{later}");
    }
}

//! Between HTTP and the oracle: what answers mean, in the oracle's words.

use dwell_client::{Delivery, Error, Message, PutAnswer, PutOutcome, QueueStats, Settled, Swept};
use dwell_model::{Backoff, SettingName, StateKind, Timestamp};

use crate::oracle::{
    Address, Answer, Changed, Delivered, Found, Move, PAUSE, PAUSED, PutHeard, Raised, SettleHeard, Shown,
    Sight, TakenById, paused_until,
};
use crate::workload::{self, body};

/// Why there is no answer to tell the oracle.
#[derive(Debug)]
pub(super) enum Broken {
    /// The server went away; it may or may not have happened.
    Unknown,
    /// The server was away already; nothing was sent.
    Unsent,
    /// The server refused with a code that it should not have refused with, or answered oddly.
    Odd(String),
}

/// Refusals that may meet any command, and mean that nothing was done.
const OUTSIDE: [&str; 6] = [
    "too_many_leased",
    "too_many_waiting",
    "queue_full",
    "too_many_queues",
    "shutting_down",
    "expires_before_due",
];

/// What an error means for which no command has a word of its own.
fn other(error: &Error) -> Result<Answer, Broken> {
    match error {
        Error::Unreachable { .. } => Err(Broken::Unsent),
        Error::OutcomeUnknown { .. } => Err(Broken::Unknown),
        error if OUTSIDE.contains(&error.code()) => Ok(Answer::Refused),
        error => Err(Broken::Odd(format!("{}: {error}", error.code()))),
    }
}

/// The id of the message that stands in the way, in a refusal with this code.
fn in_the_way(error: &Error, code: &str) -> Option<u128> {
    let problem = error.problem().filter(|problem| problem.code == code)?;
    problem.id.map(|id| id.as_bits())
}

fn has_code(error: &Error, code: &str) -> bool {
    error.problem().is_some_and(|problem| problem.code == code)
}

/// Whether the queue or the message is not there.
fn is_nowhere(error: &Error) -> bool {
    has_code(error, "message_not_found") || has_code(error, "unknown_queue")
}

pub(super) fn put(answer: Result<PutAnswer, Error>) -> Result<Answer, Broken> {
    let heard = match answer {
        Ok(answer) => {
            let (id, due) = (answer.id.as_bits(), answer.due.as_ms());
            match (answer.outcome, answer.replaced) {
                (PutOutcome::Created, None) => PutHeard::Created { id, due },
                (PutOutcome::Kept, None) => PutHeard::Kept { id, due },
                (PutOutcome::Replaced, Some(old)) => PutHeard::Replaced { id, due, old: old.as_bits() },
                _ => return Err(Broken::Odd(format!("{answer:?}"))),
            }
        }
        Err(error) => match (in_the_way(&error, "key_taken"), in_the_way(&error, "leased")) {
            (Some(id), _) => PutHeard::KeyTaken { id },
            (_, Some(id)) => PutHeard::Leased { id },
            _ => return other(&error),
        },
    };
    Ok(Answer::Put(heard))
}

/// A message as it was shown, and where it belongs; nothing if its bytes are not ours.
pub(super) fn sight(message: &Message) -> Option<(Address, Sight)> {
    let address = address(message)?;
    let shown = match (message.state, message.lease_until) {
        (StateKind::Scheduled, _) => Shown::Scheduled,
        (StateKind::Ready, _) => Shown::Ready,
        (StateKind::Leased, Some(until)) => Shown::Leased(until.as_ms()),
        (StateKind::Dead, _) => Shown::Dead,
        (StateKind::Leased, None) => return None,
    };
    let sight = Sight {
        no: address.no,
        id: message.id.as_bits(),
        due: message.due.as_ms(),
        priority: message.priority,
        attempt: message.attempt,
        keyed: message.key.is_some(),
        shown,
    };
    Some((address, sight))
}

/// Where a message belongs, if body, queue and key agree on it.
fn address(message: &Message) -> Option<Address> {
    let address = body::read(message.body())?;
    let key = address.key.map(workload::key_name);
    let key_fits = message.key.is_none() || message.key.as_deref() == key.as_ref();
    (workload::queue_name(address.queue) == *message.queue && key_fits).then_some(address)
}

/// What was handed over; nothing if its bytes are not ours.
pub(super) fn delivered(delivery: &Delivery) -> Option<(Address, Delivered)> {
    let message = &delivery.message;
    let address = address(message)?;
    let delivered = Delivered {
        no: address.no,
        id: message.id.as_bits(),
        due: message.due.as_ms(),
        priority: message.priority,
        attempt: message.attempt,
        keyed: message.key.is_some(),
        token: delivery.receipt.token.0,
        taken_at: delivery.taken_at.as_ms(),
        lease_ms: delivery.lease_until.as_ms() - delivery.taken_at.as_ms(),
        bound: false,
        lapses: message.counts.lapses,
    };
    Some((address, delivered))
}

/// The answer to a take that brought these, or failed.
pub(super) fn took(answer: &Result<Vec<Delivery>, Error>) -> Result<Answer, Broken> {
    match answer {
        Ok(deliveries) => {
            let delivered: Option<Vec<_>> = deliveries.iter().map(delivered).collect();
            delivered.map(Answer::Took).ok_or_else(|| Broken::Odd(format!("other bytes: {deliveries:?}")))
        }
        Err(error) => other(error),
    }
}

pub(super) fn took_by_id(answer: &Result<Delivery, Error>) -> Result<Answer, Broken> {
    let heard = match answer {
        Ok(delivery) => match delivered(delivery) {
            Some((_, delivered)) => TakenById::Delivered(delivered),
            None => return Err(Broken::Odd(format!("other bytes: {delivery:?}"))),
        },
        Err(error) if has_code(error, "leased") => TakenById::Leased,
        Err(error) if is_nowhere(error) => TakenById::NotFound,
        Err(error) => match in_the_way(error, "key_taken") {
            Some(id) => TakenById::KeyTaken { id },
            None => return other(error),
        },
    };
    Ok(Answer::TookById(heard))
}

pub(super) fn settled(answer: Result<Settled, Error>) -> Result<Answer, Broken> {
    let heard = match answer {
        Ok(Settled::Gone) => SettleHeard::Gone,
        Ok(Settled::Scheduled { due }) => SettleHeard::Scheduled(due.as_ms()),
        Ok(Settled::Ready) => SettleHeard::Ready,
        Ok(Settled::Dead { .. }) => SettleHeard::Dead,
        Ok(Settled::Leased { lease_until }) => SettleHeard::Leased(lease_until.as_ms()),
        Err(error) if has_code(&error, "lease_lost") => SettleHeard::LeaseLost,
        Err(error) => return other(&error),
    };
    Ok(Answer::Settled(heard))
}

pub(super) fn cancelled(answer: Result<dwell_client::Cancelled, Error>) -> Result<Answer, Broken> {
    let heard = match answer {
        Ok(cancelled) => Changed::Cancelled(cancelled.id.as_bits()),
        Err(error) if has_code(&error, "leased") => Changed::Leased,
        Err(error) if has_code(&error, "dead") => Changed::Dead,
        Err(error) if is_nowhere(&error) => Changed::NotFound,
        Err(error) => return other(&error),
    };
    Ok(Answer::Cancelled(heard))
}

pub(super) fn moved(answer: Result<dwell_client::Moved, Error>) -> Result<Answer, Broken> {
    let heard = match answer {
        Ok(moved) => Move::Moved { id: moved.id.as_bits(), due: moved.due.as_ms() },
        Err(error) if has_code(&error, "leased") => Move::Leased,
        Err(error) if has_code(&error, "dead") => Move::Dead,
        Err(error) if has_code(&error, "expires_before_due") => Move::ExpiresBeforeDue,
        Err(error) if is_nowhere(&error) => Move::NotFound,
        Err(error) => return other(&error),
    };
    Ok(Answer::Rescheduled(heard))
}

pub(super) fn got(answer: Result<Message, Error>) -> Result<Answer, Broken> {
    match answer {
        Ok(message) => match sight(&message) {
            Some((_, sight)) => Ok(Answer::Got(Found::Message(sight))),
            None => Err(Broken::Odd(format!("other bytes: {message:?}"))),
        },
        Err(error) if is_nowhere(&error) => Ok(Answer::Got(Found::Nothing)),
        Err(error) => other(&error),
    }
}

/// The answer to a revive or discard of one message.
pub(super) fn raised(answer: Result<Swept, Error>) -> Result<Answer, Broken> {
    let refused = match answer {
        Ok(swept) if swept.done == 1 => return Ok(Answer::Raised(Raised::Done)),
        Ok(swept) => swept.refused.into_iter().next().map(|refused| refused.error),
        Err(error) if is_nowhere(&error) => return Ok(Answer::Raised(Raised::NotFound)),
        Err(error) => return other(&error),
    };
    let heard = match refused {
        Some(problem) => match (&*problem.code, problem.id) {
            ("not_dead", _) => Raised::NotDead,
            ("message_not_found", _) => Raised::NotFound,
            ("key_taken", Some(id)) => Raised::KeyTaken { id: id.as_bits() },
            _ => return Err(Broken::Odd(format!("{problem:?}"))),
        },
        None => return Err(Broken::Odd("neither done nor refused".to_owned())),
    };
    Ok(Answer::Raised(heard))
}

pub(super) fn done<T>(answer: Result<T, Error>) -> Result<Answer, Broken> {
    match answer {
        Ok(_) => Ok(Answer::Done),
        Err(error) if is_nowhere(&error) => Ok(Answer::Done),
        Err(error) => other(&error),
    }
}

/// The settings that the workload changes, as none of a queue's own.
pub(super) fn no_settings() -> Vec<(&'static str, Option<String>)> {
    let names = SettingName::ALL.into_iter().filter(|name| *name != SettingName::Spread);
    names.map(|name| (name.as_str(), None)).collect()
}

/// A queue's own settings, in the oracle's words.
pub(super) fn settings(stats: &QueueStats) -> Vec<(&'static str, Option<String>)> {
    let mut settings = no_settings();
    for (name, shown) in &mut settings {
        if stats.own.iter().any(|own| own == name) {
            *shown = shown_value(stats, name);
        }
    }
    settings
}

fn shown_value(stats: &QueueStats, name: &str) -> Option<String> {
    let settings = &stats.settings;
    let backoff = &settings.backoff;
    match name {
        PAUSE => match settings.pause.as_str() {
            "running" => None,
            "paused" => Some(PAUSED.to_owned()),
            end => Some(end.parse::<Timestamp>().map_or(end.to_owned(), |end| paused_until(end.as_ms()))),
        },
        "lease" => Some(settings.lease_ms.to_string()),
        "max_attempts" => Some(format!("{:?}", settings.max_attempts)),
        "backoff" => Some(format!(
            "{:?}",
            Backoff {
                base_ms: backoff.base_ms,
                factor_percent: backoff.factor_percent,
                cap_ms: backoff.cap_ms,
                jitter_percent: backoff.jitter_percent,
            }
        )),
        "max_pending" => settings.max_pending.map(|limit| limit.to_string()),
        "levels" => Some(format!("{:?}", settings.levels)),
        "token_ttl" => Some(settings.token_ms.to_string()),
        other => Some(format!("{other} is a setting that nobody changes")),
    }
}

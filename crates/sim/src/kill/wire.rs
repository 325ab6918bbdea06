//! Conversion between HTTP and the oracle: answers in the oracle's terms.

use dwell_model::{Message, SettingName, State};
use dwell_store::{
    BulkOutcome, Cancelled, Delivery, Error, PutAnswer, PutOutcome, QueueStats, Rescheduled, Settled,
};

use crate::oracle::{
    Address, Changed, Delivered, Ended, FoundMessage, PutHeard, Raised, RescheduleTo, SettleHeard,
    ShownMessage, Sight, StoreAnswer, TakenById, Terms,
};
use crate::workload::{self, body, words};

/// Why there is no answer to report to the oracle.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// The server was killed; the command may or may not have taken effect.
    Unknown,
    /// The server was already gone; nothing was sent.
    Unsent,
    /// The server returned an unexpected refusal or a malformed answer.
    Odd(String),
}

/// Refusals that any command may get, and that change nothing.
const OUTSIDE: [&str; 6] = [
    "too_many_leased",
    "too_many_waiting",
    "queue_full",
    "too_many_queues",
    "shutting_down",
    "expires_before_due",
];

/// The meaning of an error that no command handles itself.
fn other(error: &Error) -> Result<StoreAnswer, NoAnswer> {
    match error {
        Error::Unreachable { .. } => Err(NoAnswer::Unsent),
        Error::OutcomeUnknown { .. } => Err(NoAnswer::Unknown),
        error if OUTSIDE.contains(&error.code()) => Ok(StoreAnswer::Refused),
        error => Err(NoAnswer::Odd(format!("{}: {error}", error.code()))),
    }
}

/// Whether the queue or the message does not exist.
fn is_nowhere(error: &Error) -> bool {
    matches!(error, Error::MessageNotFound { .. } | Error::UnknownQueue { .. })
}

pub(super) fn put(answer: Result<PutAnswer, Error>) -> Result<StoreAnswer, NoAnswer> {
    let heard = match answer {
        Ok(answer) => {
            let (id, due) = (answer.id.as_bits(), answer.due.as_ms());
            match answer.outcome {
                PutOutcome::Created => PutHeard::Created { id, due },
                PutOutcome::Kept => PutHeard::Kept { id, due },
                PutOutcome::Replaced(old) => PutHeard::Replaced { id, due, old: old.as_bits() },
            }
        }
        Err(Error::KeyTaken { id }) => PutHeard::KeyTaken { id: id.as_bits() },
        Err(Error::Leased { id }) => PutHeard::Leased { id: id.as_bits() },
        Err(error) => return other(&error),
    };
    Ok(StoreAnswer::Put(heard))
}

/// A message as it was shown, with its address; `None` if its body is not one of ours.
pub(super) fn sight(message: &Message) -> Option<(Address, Sight)> {
    let address = address(message)?;
    let standing = &message.standing;
    let shown = match &standing.state {
        State::Scheduled => ShownMessage::Scheduled,
        State::Ready => ShownMessage::Ready,
        State::Leased(lease) => ShownMessage::Leased(lease.deadline.as_ms()),
        State::Dead(death) => ShownMessage::Dead(death.at.as_ms()),
    };
    let sight = Sight {
        no: address.no,
        id: message.id.as_bits(),
        due: standing.due.as_ms(),
        priority: standing.priority,
        attempt: standing.attempt(),
        takes: standing.counts.takes,
        keyed: message.key.is_some(),
        holder: words::held_by(message)?,
        shown,
    };
    Some((address, sight))
}

/// The address of a message, if body, queue and key agree on it.
fn address(message: &Message) -> Option<Address> {
    let address = body::read(&message.body)?;
    let key = address.key.map(workload::key_name);
    let key_fits = message.key.is_none() || message.key == key;
    (workload::queue_name(address.queue) == message.queue && key_fits).then_some(address)
}

/// A delivery, with the address of its message; `None` if the body is not one of ours.
pub(super) fn delivered(delivery: &Delivery) -> Option<(Address, Delivered)> {
    let message = &delivery.message;
    let address = address(message)?;
    let delivered = Delivered {
        no: address.no,
        id: message.id.as_bits(),
        due: message.standing.due.as_ms(),
        priority: message.standing.priority,
        attempt: message.standing.attempt(),
        keyed: message.key.is_some(),
        token: delivery.receipt.token.0,
        taken_at: delivery.taken_at.as_ms(),
        terms: Terms {
            lease_ms: delivery.lease_until.as_ms() - delivery.taken_at.as_ms(),
            session: false,
            holder: words::held_by(message)?,
        },
        takes: message.standing.counts.takes,
        lapses: message.standing.counts.lapses,
    };
    Some((address, delivered))
}

/// The outcome of a take.
pub(super) fn took(answer: &Result<Vec<Delivery>, Error>) -> Result<StoreAnswer, NoAnswer> {
    match answer {
        Ok(deliveries) => {
            let delivered: Option<Vec<_>> = deliveries.iter().map(delivered).collect();
            delivered
                .map(StoreAnswer::Took)
                .ok_or_else(|| NoAnswer::Odd(format!("other bytes: {deliveries:?}")))
        }
        Err(error) => other(error),
    }
}

pub(super) fn took_by_id(answer: &Result<Delivery, Error>) -> Result<StoreAnswer, NoAnswer> {
    let heard = match answer {
        Ok(delivery) => match delivered(delivery) {
            Some((_, delivered)) => TakenById::Delivered(delivered),
            None => return Err(NoAnswer::Odd(format!("other bytes: {delivery:?}"))),
        },
        Err(Error::Leased { .. }) => TakenById::Leased,
        Err(Error::KeyTaken { id }) => TakenById::KeyTaken { id: id.as_bits() },
        Err(error) if is_nowhere(error) => TakenById::NotFound,
        Err(error) => return other(error),
    };
    Ok(StoreAnswer::TookById(heard))
}

pub(super) fn settled(answer: Result<Settled, Error>) -> Result<StoreAnswer, NoAnswer> {
    let heard = match answer {
        Ok(settled) => words::became(settled),
        Err(Error::LeaseLost) => SettleHeard::LeaseLost,
        Err(error) => return other(&error),
    };
    Ok(StoreAnswer::Settled(heard))
}

/// The outcome of the end of a lease.
pub(super) fn ended(answer: &Result<Settled, Error>) -> Result<StoreAnswer, NoAnswer> {
    let heard = match answer {
        Ok(settled) => Ended::Done(words::became(*settled)),
        Err(Error::NotLeased { .. }) => Ended::NotLeased,
        Err(Error::LeaseChanged { takes, .. }) => Ended::Changed { takes: *takes },
        Err(error) if is_nowhere(error) => Ended::NotFound,
        Err(error) => return other(error),
    };
    Ok(StoreAnswer::Ended(heard))
}

pub(super) fn cancelled(answer: Result<Cancelled, Error>) -> Result<StoreAnswer, NoAnswer> {
    let heard = match answer {
        Ok(Cancelled::Cancelled(id)) => Changed::Cancelled(id.as_bits()),
        Ok(Cancelled::Leased(_)) => Changed::Leased,
        Ok(Cancelled::Dead(_)) => Changed::Dead,
        Ok(Cancelled::NotFound) => Changed::NotFound,
        Err(error) => return other(&error),
    };
    Ok(StoreAnswer::Cancelled(heard))
}

pub(super) fn moved(answer: Result<Rescheduled, Error>) -> Result<StoreAnswer, NoAnswer> {
    let heard = match answer {
        Ok(Rescheduled::Moved(id, due)) => RescheduleTo::Moved { id: id.as_bits(), due: due.as_ms() },
        Ok(Rescheduled::Leased(_)) => RescheduleTo::Leased,
        Ok(Rescheduled::Dead(_)) => RescheduleTo::Dead,
        Ok(Rescheduled::NotFound) => RescheduleTo::NotFound,
        Err(error) if error.code() == "expires_before_due" => RescheduleTo::ExpiresBeforeDue,
        Err(error) => return other(&error),
    };
    Ok(StoreAnswer::Rescheduled(heard))
}

pub(super) fn got(answer: Result<Message, Error>) -> Result<StoreAnswer, NoAnswer> {
    match answer {
        Ok(message) => match sight(&message) {
            Some((_, sight)) => Ok(StoreAnswer::Got(FoundMessage::Message(sight))),
            None => Err(NoAnswer::Odd(format!("other bytes: {message:?}"))),
        },
        Err(error) if is_nowhere(&error) => Ok(StoreAnswer::Got(FoundMessage::Nothing)),
        Err(error) => other(&error),
    }
}

/// The outcome of a revive or discard of one message.
pub(super) fn raised(answer: Result<BulkOutcome, Error>) -> Result<StoreAnswer, NoAnswer> {
    let refused = match answer {
        Ok(swept) if swept.done == 1 => return Ok(StoreAnswer::Raised(Raised::Done)),
        Ok(swept) => swept.refused.into_iter().next().map(|(_, error)| error),
        Err(error) if is_nowhere(&error) => return Ok(StoreAnswer::Raised(Raised::NotFound)),
        Err(error) => return other(&error),
    };
    let heard = match refused {
        Some(Error::NotDead { .. }) => Raised::NotDead,
        Some(Error::MessageNotFound { .. }) => Raised::NotFound,
        Some(Error::KeyTaken { id }) => Raised::KeyTaken { id: id.as_bits() },
        Some(error) => return Err(NoAnswer::Odd(format!("{error:?}"))),
        None => return Err(NoAnswer::Odd("neither done nor refused".to_owned())),
    };
    Ok(StoreAnswer::Raised(heard))
}

pub(super) fn done<T>(answer: Result<T, Error>) -> Result<StoreAnswer, NoAnswer> {
    match answer {
        Ok(_) => Ok(StoreAnswer::Done),
        Err(error) if is_nowhere(&error) => Ok(StoreAnswer::Done),
        Err(error) => other(&error),
    }
}

/// The settings that the workload changes, none of them set.
pub(super) fn no_settings() -> Vec<(&'static str, Option<String>)> {
    let names = SettingName::ALL.into_iter().filter(|name| *name != SettingName::Partitions);
    names.map(|name| (name.as_str(), None)).collect()
}

/// A queue's own settings, in the oracle's terms.
pub(super) fn settings(stats: &QueueStats) -> Vec<(&'static str, Option<String>)> {
    let mut settings = no_settings();
    for (name, shown) in &mut settings {
        *shown = stats.own.iter().find(|own| own.name().as_str() == *name).and_then(words::value);
    }
    settings
}

//! Conversion between the engine and the oracle: answers in the oracle's terms.

use bytes::Bytes;
use dwell_model::{Invalid, Message, MessageId, SettingName, State, StateKind, Timestamp};
use dwell_store::{
    BulkOutcome, Cancelled, Delivery, Error, Page, PutAnswer, PutOutcome, QueueStats, Rescheduled, Result,
    Settled,
};

use crate::oracle::{
    Address, Changed, Delivered, Ended, FoundMessage, PutHeard, Raised, RescheduleTo, SettleHeard,
    ShownMessage, Sight, StoreAnswer, TakenById, Terms,
};
use crate::workload::{body, key_name, queue_name, words};

/// The outcome of a command.
#[derive(Debug)]
pub(crate) enum CommandFate {
    /// This answer was received.
    Heard(StoreAnswer),
    /// The command has ended, and it is unknown how much of it was done.
    Part,
    /// The outcome is unknown, and the store cannot continue.
    Unknown,
    /// An answer that should not occur.
    Odd(String),
}

/// The meaning of an error that no command handles itself.
fn other(error: &Error) -> CommandFate {
    match error {
        Error::OutcomeUnknown { .. } if !is_fatal(error) => CommandFate::Part,
        Error::OutcomeUnknown { .. } => CommandFate::Unknown,
        Error::DiskFull { .. }
        | Error::Overloaded { .. }
        | Error::TooManyLeased { .. }
        | Error::TooManyWaiting { .. }
        | Error::TooManyQueues { .. }
        | Error::QueueFull { .. }
        | Error::Closed
        | Error::Stopped { .. }
        | Error::Unavailable { .. } => CommandFate::Heard(StoreAnswer::Refused),
        other => CommandFate::Odd(format!("{}: {other}", other.code())),
    }
}

/// Whether the error means that the store has to be opened again.
pub(crate) fn is_fatal(error: &Error) -> bool {
    error.needs_reopen()
}

/// Whether the error means that something could not be read, and everything else continues.
pub(crate) fn is_unread(error: &Error) -> bool {
    matches!(error, Error::Unavailable { .. })
}

/// Whether the error means that a body could not be read, whose message was leased by then.
fn is_body_unread(error: &Error) -> bool {
    matches!(error, Error::Unavailable { reason } if reason.starts_with("a body cannot be read"))
}

fn is_nowhere(error: &Error) -> bool {
    matches!(error, Error::MessageNotFound { .. } | Error::UnknownQueue { .. })
}

pub(crate) fn put(answer: &Result<PutAnswer>) -> CommandFate {
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
        Err(Error::IdempotencyMismatch { id }) => PutHeard::Mismatch { id: id.as_bits() },
        // A retry may arrive after the expiry has passed; it is then refused, or answered as before.
        Err(Error::Invalid(Invalid::ExpiresBeforeDue { .. })) => PutHeard::Refused,
        Err(error) => return other(error),
    };
    CommandFate::Heard(StoreAnswer::Put(heard))
}

/// The address of a message, if body, queue and key agree on it.
fn address(message: &Message<Bytes>) -> Option<Address> {
    let address = body::read(&message.body)?;
    let key = address.key.map(key_name);
    let key_fits = message.key.is_none() || message.key == key;
    (queue_name(address.queue) == message.queue && key_fits).then_some(address)
}

/// A delivery, with the address of its message; `None` if the body is not one of ours.
pub(crate) fn delivered(delivery: &Delivery) -> Option<(Address, Delivered)> {
    let message = &delivery.message;
    let address = address(message)?;
    let State::Leased(lease) = message.standing.state else { return None };
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
            session: lease.session,
            holder: words::held_by(message)?,
        },
        takes: message.standing.counts.takes,
        lapses: message.standing.counts.lapses,
    };
    Some((address, delivered))
}

/// `bad_reads`: whether something could not be read for this answer.
pub(crate) fn took(answer: &Result<Vec<Delivery>>, bad_reads: bool) -> CommandFate {
    match answer {
        Ok(deliveries) => match deliveries.iter().map(delivered).collect() {
            Some(delivered) if bad_reads => CommandFate::Heard(StoreAnswer::TookPart(delivered)),
            Some(delivered) => CommandFate::Heard(StoreAnswer::Took(delivered)),
            None => CommandFate::Odd(format!("other bytes: {deliveries:?}")),
        },
        Err(error) if is_body_unread(error) => CommandFate::Heard(StoreAnswer::TookPart(Vec::new())),
        Err(error) => other(error),
    }
}

/// The outcome of a take by id.
pub(crate) fn took_by_id(answer: &Result<Delivery>) -> CommandFate {
    let heard = match answer {
        Ok(delivery) => match delivered(delivery) {
            Some((_, delivered)) => TakenById::Delivered(delivered),
            None => return CommandFate::Odd(format!("other bytes: {delivery:?}")),
        },
        Err(Error::Leased { .. }) => TakenById::Leased,
        Err(Error::KeyTaken { id }) => TakenById::KeyTaken { id: id.as_bits() },
        Err(error) if is_body_unread(error) => TakenById::Unread,
        Err(error) if is_nowhere(error) => TakenById::NotFound,
        Err(error) => return other(error),
    };
    CommandFate::Heard(StoreAnswer::TookById(heard))
}

pub(crate) fn settled(answer: &Result<Settled>) -> CommandFate {
    let heard = match answer {
        Ok(settled) => words::became(*settled),
        Err(Error::LeaseLost) => SettleHeard::LeaseLost,
        Err(error) => return other(error),
    };
    CommandFate::Heard(StoreAnswer::Settled(heard))
}

/// The outcome of the end of a lease.
pub(crate) fn ended(answer: &Result<Settled>) -> CommandFate {
    let heard = match answer {
        Ok(settled) => Ended::Done(words::became(*settled)),
        Err(Error::NotLeased { .. }) => Ended::NotLeased,
        Err(Error::LeaseChanged { takes, .. }) => Ended::Changed { takes: *takes },
        Err(error) if is_nowhere(error) => Ended::NotFound,
        Err(error) => return other(error),
    };
    CommandFate::Heard(StoreAnswer::Ended(heard))
}

pub(crate) fn cancelled(answer: &Result<Cancelled>) -> CommandFate {
    let heard = match answer {
        Ok(Cancelled::Cancelled(id)) => Changed::Cancelled(id.as_bits()),
        Ok(Cancelled::Leased(_)) => Changed::Leased,
        Ok(Cancelled::Dead(_)) => Changed::Dead,
        Ok(Cancelled::NotFound) => Changed::NotFound,
        Err(error) => return other(error),
    };
    CommandFate::Heard(StoreAnswer::Cancelled(heard))
}

pub(crate) fn moved(answer: &Result<Rescheduled>) -> CommandFate {
    let heard = match answer {
        Ok(Rescheduled::Moved(id, due)) => RescheduleTo::Moved { id: id.as_bits(), due: due.as_ms() },
        Ok(Rescheduled::Leased(_)) => RescheduleTo::Leased,
        Ok(Rescheduled::Dead(_)) => RescheduleTo::Dead,
        Ok(Rescheduled::NotFound) => RescheduleTo::NotFound,
        Err(Error::Invalid(Invalid::ExpiresBeforeDue { .. })) => RescheduleTo::ExpiresBeforeDue,
        Err(error) => return other(error),
    };
    CommandFate::Heard(StoreAnswer::Rescheduled(heard))
}

pub(crate) fn got(answer: &Result<Message<Bytes>>) -> CommandFate {
    match answer {
        Ok(message) => match sight(message) {
            Some((_, sight)) => CommandFate::Heard(StoreAnswer::Got(FoundMessage::Message(sight))),
            None => CommandFate::Odd(format!("other bytes: {message:?}")),
        },
        Err(error) if is_nowhere(error) => CommandFate::Heard(StoreAnswer::Got(FoundMessage::Nothing)),
        Err(error) => other(error),
    }
}

/// The outcome of a peek at the first message of a state.
pub(crate) fn peeked(state: StateKind, answer: &Result<Option<Message<Bytes>>>) -> CommandFate {
    match answer {
        Ok(None) => CommandFate::Heard(StoreAnswer::Peeked(None)),
        Ok(Some(message)) => match sight(message) {
            Some(shown) if message.standing.state.kind() == state => {
                CommandFate::Heard(StoreAnswer::Peeked(Some(shown)))
            }
            _ => CommandFate::Odd(format!("other bytes, or not {state}: {message:?}")),
        },
        Err(error) if is_nowhere(error) => CommandFate::Heard(StoreAnswer::Peeked(None)),
        Err(error) => other(error),
    }
}

/// The sort key by which the first message of a state is the smallest.
pub(crate) fn peek_order(message: &Message<Bytes>) -> (u32, Timestamp, MessageId) {
    let standing = &message.standing;
    match standing.state {
        State::Ready => (standing.priority, standing.due, message.id),
        State::Dead(death) => (0, death.at, message.id),
        State::Scheduled | State::Leased(_) => (0, standing.due, message.id),
    }
}

/// A message as it was shown, with its address; `None` if the body is not one of ours.
fn sight(message: &Message<Bytes>) -> Option<(Address, Sight)> {
    let address = address(message)?;
    let sight = Sight {
        no: address.no,
        id: message.id.as_bits(),
        due: message.standing.due.as_ms(),
        priority: message.standing.priority,
        attempt: message.standing.attempt(),
        takes: message.standing.counts.takes,
        keyed: message.key.is_some(),
        holder: words::held_by(message)?,
        shown: match message.standing.state {
            State::Scheduled => ShownMessage::Scheduled,
            State::Ready => ShownMessage::Ready,
            State::Leased(lease) => ShownMessage::Leased(lease.deadline.as_ms()),
            State::Dead(death) => ShownMessage::Dead(death.at.as_ms()),
        },
    };
    Some((address, sight))
}

/// The messages of a page, or the reason why the page is wrong.
pub(crate) fn page(page: &Page) -> std::result::Result<Vec<(Address, Sight)>, String> {
    let place = |message: &Message<Bytes>| (message.standing.due, message.id);
    if !page.messages.is_sorted_by_key(place) {
        return Err(format!("a page out of order: {:?}", page.messages));
    }
    let sights: Option<Vec<_>> = page.messages.iter().map(sight).collect();
    sights.ok_or_else(|| format!("other bytes: {:?}", page.messages))
}

/// The outcome of a revive or discard of one message.
pub(crate) fn raised(answer: &Result<BulkOutcome>) -> CommandFate {
    let refusal = match answer {
        Ok(swept) if swept.done == 1 => return CommandFate::Heard(StoreAnswer::Raised(Raised::Done)),
        Ok(swept) => swept.refused.first().map(|(_, error)| error),
        Err(error) if is_nowhere(error) => return CommandFate::Heard(StoreAnswer::Raised(Raised::NotFound)),
        Err(error) => return other(error),
    };
    let heard = match refusal {
        Some(Error::NotDead { .. }) => Raised::NotDead,
        Some(Error::MessageNotFound { .. }) => Raised::NotFound,
        Some(Error::KeyTaken { id }) => Raised::KeyTaken { id: id.as_bits() },
        Some(error) => return other(error),
        None => return CommandFate::Odd("neither done nor refused".to_owned()),
    };
    CommandFate::Heard(StoreAnswer::Raised(heard))
}

/// The outcome of a bulk operation.
pub(crate) fn done<T>(answer: &Result<T>) -> CommandFate {
    match answer {
        Ok(_) => CommandFate::Heard(StoreAnswer::Done),
        Err(error) if is_nowhere(error) => CommandFate::Heard(StoreAnswer::Done),
        Err(error) => other(error),
    }
}

/// The number of messages that a revive of all has revived, if it has tried all. A message whose key's owner cannot be read
/// must not stay dead for that.
pub(crate) fn revived_all(swept: BulkOutcome) -> Result<u64> {
    match swept.refused.into_iter().find(|(_, error)| !matches!(error, Error::KeyTaken { .. })) {
        Some((_, error)) => {
            let reason = format!("some dead messages were not revived: {error}").into();
            Err(Error::OutcomeUnknown { reason, needs_reopen: error.needs_reopen() })
        }
        None => Ok(swept.done),
    }
}

/// A queue's own settings in the oracle's terms; none if the queue is unknown.
pub(crate) fn settings(answer: &Result<QueueStats>) -> CommandFate {
    let own = match answer {
        Ok(stats) => Some(&stats.own),
        Err(error) if is_nowhere(error) => None,
        Err(error) => return other(error),
    };
    let names = SettingName::ALL.into_iter().filter(|name| *name != SettingName::Partitions);
    let value = |name: SettingName| {
        let setting = own.and_then(|own| own.iter().find(|setting| setting.name() == name));
        (name.as_str(), setting.and_then(words::value))
    };
    CommandFate::Heard(StoreAnswer::Settings(names.map(value).collect()))
}

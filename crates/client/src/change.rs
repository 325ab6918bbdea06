//! Cancelling and rescheduling messages that nobody holds.

use dwell_model::{QueueName, format_duration_ms};
use dwell_store::{Target, When};
use dwell_wire::{Operation, Path, RescheduleItem, TargetFields};

use crate::transport::{Call, Payload};
use crate::{Cancelled, Client, Moved, Result};

/// The path of one of two operations: of a message by id, or by key.
pub(crate) fn target(queue: &QueueName, target: &Target, [by_id, by_key]: [Operation; 2]) -> Path {
    match target {
        Target::Id(id) => Path::of(by_id, &[queue.as_str(), &id.to_string()]),
        Target::Key(key) => Path::of(by_key, &[queue.as_str(), key.as_str()]),
    }
}

/// When a message is to be due, as parameters.
pub(crate) fn when(path: Path, when: When) -> Path {
    match when {
        When::Now => path.query("delay", "0s"),
        When::At(due) => path.query("due", due),
        When::AfterMs(delay_ms) => path.query("delay", format_duration_ms(delay_ms)),
        When::Level(level) => path.query("level", level),
    }
}

impl Client {
    /// Removes a scheduled or ready message.
    ///
    /// # Errors
    /// The server's refusals, such as `message_not_found`, `leased`, `dead`.
    pub fn cancel(&self, queue: &QueueName, which: &Target) -> Result<Cancelled> {
        self.send(&Call::change(target(queue, which, [Operation::Cancel, Operation::CancelKey])))
    }

    /// Moves the instant of a scheduled or ready message; the id stays.
    ///
    /// # Errors
    /// The server's refusals, such as `message_not_found`, `leased`, `dead`.
    pub fn reschedule(&self, queue: &QueueName, which: &Target, to: When) -> Result<Moved> {
        let path = target(queue, which, [Operation::Reschedule, Operation::RescheduleKey]);
        self.send(&Call::change(when(path, to)))
    }

    /// Cancels many, each of which is answered by itself, in order. See [`Client::cancel`].
    ///
    /// # Errors
    /// Per item; where the whole request failed, each fails with its error.
    pub fn cancel_many(&self, queue: &QueueName, which: &[Target]) -> Vec<Result<Cancelled>> {
        let items: Vec<TargetFields<'_>> = which.iter().map(TargetFields::from).collect();
        let call =
            Call::change(Path::of(Operation::CancelMany, &[queue.as_str()])).payload(Payload::json(&items));
        self.send_items(&call, items.len())
    }

    /// Reschedules many, each of which is answered by itself, in order. See [`Client::reschedule`].
    ///
    /// # Errors
    /// Per item; where the whole request failed, each fails with its error.
    pub fn reschedule_many(&self, queue: &QueueName, moves: &[(Target, When)]) -> Vec<Result<Moved>> {
        let items: Vec<RescheduleItem<'_>> = moves.iter().map(RescheduleItem::from).collect();
        let call = Call::change(Path::of(Operation::RescheduleMany, &[queue.as_str()]))
            .payload(Payload::json(&items));
        self.send_items(&call, items.len())
    }
}

//! Looking at messages.

use dwell_model::{Cursor, Number, QueueName, StateKind};
use dwell_store::Target;
use dwell_wire::{Found, Operation, Path, TargetFields};

use crate::change::target;
use crate::transport::{Call, Payload};
use crate::{Client, Message, Page, Result};

impl Client {
    /// Reads a message, in any state; by key the live one only.
    ///
    /// # Errors
    /// The server's refusals, such as `unknown_queue` and `message_not_found`.
    pub fn get(&self, queue: &QueueName, which: &Target) -> Result<Message> {
        self.send(&Call::read(target(queue, which, [Operation::Get, Operation::GetKey])))
    }

    /// Reads many messages of a queue, each of which is answered by itself, in order. See [`Client::get`].
    ///
    /// # Errors
    /// Per item; where the whole request failed, each fails with its error.
    pub fn get_many(&self, queue: &QueueName, which: &[Target]) -> Vec<Result<Message>> {
        let items: Vec<TargetFields<'_>> = which.iter().map(TargetFields::from).collect();
        let call = Call::read(Path::of(Operation::GetMany, &[queue.as_str()])).payload(Payload::json(&items));
        let answers = self.send_items::<Found<'static>>(&call, items.len());
        answers.into_iter().map(|answer| answer.map(|found| found.message)).collect()
    }

    /// Reads a message by its number, in whatever queue it is.
    ///
    /// # Errors
    /// The server's refusals, such as `message_not_found`.
    pub fn get_number(&self, number: Number) -> Result<Message> {
        self.send(&Call::read(Path::of(Operation::GetNumber, &[&number.to_string()])))
    }

    /// One page of the messages in a state, at most `max` (1 to 1,000), with their bodies if asked for.
    ///
    /// # Errors
    /// The server's refusals, such as `unknown_queue`.
    pub fn list(
        &self,
        queue: &QueueName,
        state: StateKind,
        after: Option<Cursor>,
        max: usize,
        bodies: bool,
    ) -> Result<Page> {
        let path = Path::of(Operation::List, &[queue.as_str()]);
        let path = path.query("state", state).query_some("cursor", after).query("max", max);
        self.send(&Call::read(path.query("body", bodies)))
    }
}

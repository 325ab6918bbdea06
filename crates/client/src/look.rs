//! Looking at messages.

use dwell_model::{Cursor, Number, QueueName, StateKind};
use dwell_store::Target;
use serde::{Deserialize, Serialize};

use crate::change::{many, target, target_item};
use crate::path::Path;
use crate::transport::{Call, Payload};
use crate::{Client, Message, RefusedOne, Result, text};

/// One page of a list, in (due, id) order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// The messages.
    pub messages: Vec<Message>,
    /// Messages of this page that are there and that the store can not read, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<RefusedOne>,
    /// Where the next page begins; `None` after the last one.
    #[serde(default, with = "text::option", skip_serializing_if = "Option::is_none")]
    pub next: Option<Cursor>,
}

#[derive(Deserialize)]
struct Got {
    message: Message,
}

impl Client {
    /// Reads a message, in any state; by key the live one only.
    ///
    /// # Errors
    /// The server's refusals, such as `unknown_queue` and `message_not_found`.
    pub fn get(&self, queue: &QueueName, which: &Target) -> Result<Message> {
        self.send(&Call::get(target(queue, which)))
    }

    /// Reads many messages of a queue, each of which is answered by itself, in order. See [`Client::get`].
    ///
    /// # Errors
    /// Per item; where the whole request failed, each fails with its error.
    pub fn get_many(&self, queue: &QueueName, which: &[Target]) -> Vec<Result<Message>> {
        let items: Vec<_> = which.iter().map(target_item).collect();
        let call = Call::query(many(queue, ":get")).payload(Payload::json(&items));
        let answers = self.send_items::<Got>(&call, items.len());
        answers.into_iter().map(|answer| answer.map(|got| got.message)).collect()
    }

    /// Reads a message by its number, in whatever queue it is.
    ///
    /// # Errors
    /// The server's refusals, such as `message_not_found`.
    pub fn get_number(&self, number: Number) -> Result<Message> {
        self.send(&Call::get(Path::v1().plus("numbers").segment(&number.to_string())))
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
        let path = Path::v1().plus("queues").segment(queue.as_str()).plus("messages");
        let path = path.query("state", state).query_some("cursor", after).query("max", max);
        self.send(&Call::get(path.query("body", bodies)))
    }
}

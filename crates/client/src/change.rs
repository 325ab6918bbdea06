//! Cancelling and rescheduling messages that nobody holds.

use dwell_model::{MessageId, QueueName, Timestamp, format_duration_ms};
use dwell_store::{Target, When};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::path::Path;
use crate::transport::{Call, Payload};
use crate::{Client, Result, text};

/// A message that was scheduled or ready, and is gone.
///
/// As JSON it has the `outcome` that the server says: `cancelled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename = "cancelled")]
pub struct Cancelled {
    /// Which one it was.
    #[serde(with = "text")]
    pub id: MessageId,
}

/// A message that has another instant now.
///
/// As JSON it has the `outcome` that the server says: `moved`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename = "moved")]
pub struct Moved {
    /// Which one it is.
    #[serde(with = "text")]
    pub id: MessageId,
    /// When it is due now.
    #[serde(with = "text")]
    pub due: Timestamp,
}

/// The path of a message by id or key.
pub(crate) fn target(queue: &QueueName, target: &Target) -> Path {
    let path = Path::v1().plus("queues").segment(queue.as_str());
    match target {
        Target::Id(id) => path.plus("messages").segment(&id.to_string()),
        Target::Key(key) => path.plus("keys").segment(key.as_str()),
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
        self.send(&Call::change("DELETE", target(queue, which)))
    }

    /// Moves the instant of a scheduled or ready message; the id stays.
    ///
    /// # Errors
    /// The server's refusals, such as `message_not_found`, `leased`, `dead`.
    pub fn reschedule(&self, queue: &QueueName, which: &Target, to: When) -> Result<Moved> {
        self.send(&Call::change("POST", when(target(queue, which).plus("reschedule"), to)))
    }

    /// Cancels many, each of which is answered by itself, in order. See [`Client::cancel`].
    ///
    /// # Errors
    /// Per item; where the whole request failed, each fails with its error.
    pub fn cancel_many(&self, queue: &QueueName, which: &[Target]) -> Vec<Result<Cancelled>> {
        let items: Vec<Value> = which.iter().map(target_item).collect();
        let call = Call::change("POST", many(queue, ":cancel")).payload(Payload::json(&items));
        self.send_items(&call, items.len())
    }

    /// Reschedules many, each of which is answered by itself, in order. See [`Client::reschedule`].
    ///
    /// # Errors
    /// Per item; where the whole request failed, each fails with its error.
    pub fn reschedule_many(&self, queue: &QueueName, moves: &[(Target, When)]) -> Vec<Result<Moved>> {
        let items: Vec<Value> = moves
            .iter()
            .map(|(which, to)| {
                let mut item = target_item(which);
                when_item(&mut item, *to);
                item
            })
            .collect();
        let call = Call::change("POST", many(queue, ":reschedule")).payload(Payload::json(&items));
        self.send_items(&call, items.len())
    }
}

/// The path of a call of many messages of a queue.
pub(crate) fn many(queue: &QueueName, what: &str) -> Path {
    Path::v1().plus("queues").segment(queue.as_str()).plus("messages").suffix(what)
}

/// A message by id or key, as an item.
pub(crate) fn target_item(which: &Target) -> Value {
    match which {
        Target::Id(id) => json!({ "id": id.to_string() }),
        Target::Key(key) => json!({ "key": key.as_str() }),
    }
}

/// When a message is to be due, as fields of an item.
pub(crate) fn when_item(item: &mut Value, when: When) {
    match when {
        When::Now => item["delay_ms"] = json!(0),
        When::At(due) => item["due"] = json!(due.to_string()),
        When::AfterMs(delay_ms) => item["delay_ms"] = json!(delay_ms),
        When::Level(level) => item["level"] = json!(level),
    }
}

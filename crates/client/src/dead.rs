//! Dead messages: reviving and discarding them.

use dwell_model::{MessageId, QueueName};
use dwell_store::{Selection, When};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::change::when_item;
use crate::path::Path;
use crate::transport::{Call, Payload};
use crate::{Client, Problem, Result, text};

/// What a revive or a discard did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swept {
    /// How many messages were revived or discarded.
    pub done: u64,
    /// How many were refused.
    pub refused_in_all: u64,
    /// Those that were refused, at most 1,000 of them.
    pub refused: Vec<RefusedOne>,
}

/// One message of many that was refused: a dead one that was left as it is, one of a list that can not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedOne {
    /// Which one.
    #[serde(with = "text")]
    pub id: MessageId,
    /// Why.
    pub error: Problem,
}

impl Client {
    /// Brings dead messages back, oldest first.
    ///
    /// # Errors
    /// The server's refusals; what is refused singly is in the answer.
    pub fn revive(&self, queue: &QueueName, which: &Selection, when: When) -> Result<Swept> {
        let mut wish = selection(which);
        if when != When::Now {
            when_item(&mut wish, when);
        }
        self.send(&Call::change("POST", dead(queue).plus("revive")).payload(Payload::json(&wish)))
    }

    /// Removes dead messages.
    ///
    /// # Errors
    /// As [`Client::revive`].
    pub fn discard(&self, queue: &QueueName, which: &Selection) -> Result<Swept> {
        let wish = selection(which);
        self.send(&Call::change("POST", dead(queue).plus("discard")).payload(Payload::json(&wish)))
    }
}

fn dead(queue: &QueueName) -> Path {
    Path::v1().plus("queues").segment(queue.as_str()).plus("dead")
}

fn selection(which: &Selection) -> serde_json::Value {
    match which {
        Selection::Ids(ids) => json!({ "ids": ids.iter().map(ToString::to_string).collect::<Vec<_>>() }),
        Selection::Oldest(count) => json!({ "oldest": count }),
        Selection::All => json!({ "all": true }),
    }
}

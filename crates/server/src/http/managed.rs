//! One line, at info, for each call that manages a queue: who did what to which one, and to how many messages.
//!
//! Where callers have tokens it is the token's name; no secret is in the line, and no key. A call that was refused before it was
//! made is not in it.

use dwell_model::QueueName;
use dwell_store::{Error, Result};

use crate::security::Caller;

/// Who is about to do something to a queue.
pub(super) struct Managed {
    caller: Caller,
    what: &'static str,
    queue: QueueName,
}

impl Managed {
    /// `what` is the operation's id in the OpenAPI document.
    pub(super) fn new(caller: Caller, what: &'static str, queue: &QueueName) -> Managed {
        Managed { caller, what, queue: queue.clone() }
    }

    /// It has been done to so many messages as `count` finds in the answer, or refused. The answer is handed on.
    pub(super) fn done<T>(self, answer: Result<T>, count: impl Fn(&T) -> Option<u64>) -> Result<T> {
        let (messages, code) = match &answer {
            Ok(answer) => (count(answer), None),
            Err(error) => (None, Some(Error::code(error))),
        };
        self.say(messages, code);
        answer
    }

    /// It has been done to so many of the messages that were named.
    pub(super) fn done_to(self, messages: usize) {
        self.say(Some(messages as u64), None);
    }

    fn say(self, messages: Option<u64>, code: Option<&'static str>) {
        let token = match &self.caller {
            Caller::Bearer(token) => Some(token.name.as_str()),
            Caller::Anybody | Caller::Nameless => None,
        };
        let (what, queue) = (self.what, self.queue.as_str());
        tracing::info!(target: "dwell::managed", token, what, queue, messages, code, "managed");
    }
}

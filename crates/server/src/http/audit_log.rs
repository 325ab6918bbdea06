//! Logs one line at info for each call that manages a queue: caller, operation, queue, and number of messages.
//!
//! Where callers have tokens the caller is the token's name; the line contains no secret and no key. A call that was
//! refused before it was made is not logged. One whose client disconnected before the answer is: it may have been
//! executed.

use std::future::Future;

use dwell_model::QueueName;
use dwell_store::{Error, Result};

use crate::security::Caller;

/// Logged of a call whose client disconnected before it was answered.
const UNKNOWN: &str = "outcome_unknown";

/// A management call.
pub(super) struct Managed {
    caller: Caller,
    what: &'static str,
    queue: QueueName,
    /// The store was called, and has not answered.
    is_under_way: bool,
}

impl Managed {
    /// With `what`, the operation's id in the OpenAPI document.
    pub(super) fn new(caller: Caller, what: &'static str, queue: &QueueName) -> Managed {
        Managed { caller, what, queue: queue.clone(), is_under_way: false }
    }

    /// Makes the call to the store, and logs its refusal or the number of messages, as `count` finds it in the answer.
    /// Returns the answer.
    pub(super) async fn done<T>(
        mut self,
        call: impl Future<Output = Result<T>>,
        count: impl Fn(&T) -> Option<u64>,
    ) -> Result<T> {
        self.is_under_way = true;
        let answer = call.await;
        let (messages, code) = match &answer {
            Ok(answer) => (count(answer), None),
            Err(error) => (None, Some(Error::code(error))),
        };
        self.say(messages, code);
        answer
    }

    /// The same for a call about named messages, each of which has an answer. If all were refused, the code is that of
    /// the first.
    pub(super) async fn each_done<T>(mut self, call: impl Future<Output = Vec<Result<T>>>) -> Vec<Result<T>> {
        self.is_under_way = true;
        let answers = call.await;
        let done = answers.iter().filter(|answer| answer.is_ok()).count();
        let first = answers.first().and_then(|answer| answer.as_ref().err());
        self.say(Some(done as u64), first.filter(|_| done == 0).map(Error::code));
        answers
    }

    fn say(&mut self, messages: Option<u64>, code: Option<&'static str>) {
        self.is_under_way = false;
        let token = match &self.caller {
            Caller::Bearer(token) => Some(token.name.as_str()),
            Caller::Anybody | Caller::Nameless => None,
        };
        let (what, queue) = (self.what, self.queue.as_str());
        tracing::info!(target: "dwell::managed", token, what, queue, messages, code, "managed");
    }
}

/// The same line for a sink or a schedule, which is named in place of a queue.
pub(super) fn say_of(caller: &Caller, what: &'static str, name: &str, code: Option<&'static str>) {
    let token = match caller {
        Caller::Bearer(token) => Some(token.name.as_str()),
        Caller::Anybody | Caller::Nameless => None,
    };
    // A text is written quoted and escaped, so that a name of a caller's choice cannot end the line.
    let name = format!("{name:.200}");
    tracing::info!(target: "dwell::managed", token, what, name, code, "managed");
}

impl Drop for Managed {
    fn drop(&mut self) {
        if self.is_under_way {
            self.say(None, Some(UNKNOWN));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;
    use std::sync::{Arc, Mutex};

    use futures_util::FutureExt as _;
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;

    /// The logged lines: names and values, in order.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>);

    struct Line(String);

    impl Visit for Line {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            self.0 += &format!("{}={value:?} ", field.name());
        }
    }

    impl Subscriber for Lines {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "dwell::managed"
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            let mut line = Line(String::new());
            event.record(&mut line);
            self.0.lock().unwrap().push(line.0);
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    /// The name in a path is any text, and is logged before it is known to be no schedule's.
    #[test]
    fn a_name_cannot_end_its_line() {
        let lines = Lines::default();
        let name = format!("x\n{}", "y".repeat(300));
        tracing::subscriber::with_default(lines.clone(), || {
            say_of(&Caller::Anybody, "delete_schedule", &name, None);
        });
        let said = lines.0.lock().unwrap();
        assert_eq!(said.len(), 1);
        assert!(
            said[0].contains("name=\"x\\ny") && !said[0].contains('\n') && said[0].len() < 300,
            "{said:?}"
        );
    }

    fn managed() -> Managed {
        Managed::new(Caller::Anybody, "purge", &QueueName::new("q").unwrap())
    }

    #[test]
    fn a_call_is_one_line_also_where_its_client_goes_before_it_is_answered() {
        let lines = Lines::default();
        tracing::subscriber::with_default(lines.clone(), || {
            // It is refused before the store is called.
            drop(managed());
            let done = managed().done(async { Ok::<u64, Error>(3) }, |done| Some(*done)).now_or_never();
            assert_eq!(done, Some(Ok(3)));
            // Its client disconnects.
            let under_way = managed().done(std::future::pending::<Result<u64>>(), |done| Some(*done));
            assert_eq!(under_way.now_or_never(), None);
            let answers = vec![Err::<(), _>(Error::LeaseLost), Err(Error::Closed)];
            let each = managed().each_done(async { answers.clone() }).now_or_never();
            assert_eq!(each, Some(answers));
        });
        let said = lines.0.lock().unwrap();
        let expected: [&[&str]; 3] =
            [&["messages=3"], &["code=\"outcome_unknown\""], &["messages=0", "code=\"lease_lost\""]];
        assert_eq!(said.len(), expected.len(), "{said:?}");
        for (line, parts) in said.iter().zip(expected) {
            let parts = parts.iter().chain(&["what=\"purge\"", "queue=\"q\""]);
            assert!(parts.clone().all(|part| line.contains(part)), "{line}: {parts:?}");
        }
    }
}

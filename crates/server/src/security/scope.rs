//! Scopes: what a token allows, and in which queues.

use std::fmt;
use std::str::FromStr;

use dwell_model::QueueName;
use dwell_wire::Verb;
use thiserror::Error;

/// The queues of a scope.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Queues {
    One(QueueName),
    /// All queues with this prefix; all queues, if it is empty.
    Prefix(String),
}

/// A verb, and the queues that it is allowed in: `put:orders`, `take:orders-*`, `manage:*`, `metrics`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    verb: Verb,
    queues: Queues,
}

/// A text that is not a scope.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "'{text}' is no scope: write put:QUEUE, take:QUEUE, manage:QUEUE or look:QUEUE, where QUEUE is a name, a beginning \
     of names and '*', or '*' for all; or metrics"
)]
pub struct MalformedScope {
    text: String,
}

impl Scope {
    /// Whether it allows `verb` in `queue`.
    pub fn allows(&self, verb: Verb, queue: &QueueName) -> bool {
        self.verb == verb && self.covers(queue)
    }

    /// Whether it allows `verb` in every possible queue.
    pub fn allows_everywhere(&self, verb: Verb) -> bool {
        self.verb == verb && matches!(&self.queues, Queues::Prefix(prefix) if prefix.is_empty())
    }

    /// Whether it allows anything in `queue`.
    pub(super) fn allows_something(&self, queue: &QueueName) -> bool {
        self.verb != Verb::Metrics && self.covers(queue)
    }

    /// The name or prefix of its queues, and which of the two it is; `None` if it has no queues.
    pub(super) fn begins(&self) -> Option<(&str, bool)> {
        match &self.queues {
            _ if self.verb == Verb::Metrics => None,
            Queues::One(name) => Some((name.as_str(), false)),
            Queues::Prefix(prefix) => Some((prefix, true)),
        }
    }

    fn covers(&self, queue: &QueueName) -> bool {
        match &self.queues {
            Queues::One(name) => name == queue,
            Queues::Prefix(prefix) => queue.as_str().starts_with(prefix.as_str()),
        }
    }
}

impl FromStr for Scope {
    type Err = MalformedScope;

    fn from_str(text: &str) -> Result<Scope, MalformedScope> {
        let malformed = || MalformedScope { text: text.chars().take(250).collect() };
        if text == Verb::Metrics.as_str() {
            return Ok(Scope { verb: Verb::Metrics, queues: Queues::Prefix(String::new()) });
        }
        let (verb, queues) = text.split_once(':').ok_or_else(malformed)?;
        let verb = Verb::OF_QUEUES.into_iter().find(|known| known.as_str() == verb);
        let queues = match queues.strip_suffix('*') {
            Some("") => Queues::Prefix(String::new()),
            // A prefix has to be a valid name itself.
            Some(prefix) => {
                Queues::Prefix(QueueName::new(prefix).map_err(|_| malformed())?.as_str().to_owned())
            }
            None => Queues::One(QueueName::new(queues).map_err(|_| malformed())?),
        };
        Ok(Scope { verb: verb.ok_or_else(malformed)?, queues })
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.verb.as_str())?;
        match &self.queues {
            _ if self.verb == Verb::Metrics => Ok(()),
            Queues::One(name) => write!(f, ":{name}"),
            Queues::Prefix(prefix) => write!(f, ":{prefix}*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(text: &str) -> Scope {
        text.parse().unwrap()
    }

    fn queue(name: &str) -> QueueName {
        name.parse().unwrap()
    }

    #[test]
    fn a_scope_is_for_one_queue_or_for_a_beginning_of_names() {
        for (text, name, allowed) in [
            ("put:orders", "orders", true),
            ("put:orders", "orders-eu", false),
            ("put:orders", "order", false),
            ("put:orders-*", "orders-eu", true),
            ("put:orders-*", "orders-", true),
            ("put:orders-*", "orders", false),
            ("put:*", "anything", true),
        ] {
            assert_eq!(scope(text).allows(Verb::Put, &queue(name)), allowed, "{text} {name}");
            assert!(!scope(text).allows(Verb::Take, &queue(name)), "{text}");
        }
        assert!(scope("manage:*").allows_everywhere(Verb::Manage));
        assert!(!scope("manage:a*").allows_everywhere(Verb::Manage));
        assert!(scope("metrics").allows_everywhere(Verb::Metrics));
        assert!(!scope("metrics").allows_something(&queue("q")));
    }

    #[test]
    fn reads_what_it_writes_and_refuses_the_rest() {
        for text in ["put:orders", "take:orders-*", "manage:*", "look:a-*", "metrics", "put:a:b/c(d)@e*"] {
            assert_eq!(scope(text).to_string(), text);
        }
        for bad in [
            "",
            "put",
            "put:",
            "put:**",
            "put:a*b",
            "read:a",
            "PUT:a",
            "put:-a",
            "put:a b",
            "metrics:*",
            "look",
            "*",
            "*:*",
        ] {
            assert!(bad.parse::<Scope>().unwrap_err().to_string().contains("no scope"), "{bad}");
        }
    }
}

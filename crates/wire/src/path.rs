//! A route's path with its names filled in, each as one percent-encoded segment, and a query.

use std::fmt::{Display, Write as _};

use crate::Operation;

/// A path with a query, built up in place.
///
/// ```
/// use dwell_wire::{Operation, Path};
/// let path = Path::of(Operation::List, &["a/b"]).query("state", "dead").query_some("cursor", None::<&str>);
/// assert_eq!(path.as_str(), "/v1/queues/a%2Fb/messages?state=dead");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    operation: Operation,
    text: String,
    has_query: bool,
}

impl Path {
    /// The path of `operation`, with `names` in place of its parameters, in order.
    ///
    /// # Panics
    /// If the number of names differs from the number of the route's parameters.
    pub fn of(operation: Operation, names: &[&str]) -> Path {
        let mut pieces = operation.route().path.split('{');
        let mut text = pieces.next().unwrap_or_default().to_owned();
        let mut names = names.iter();
        for piece in pieces {
            let (_, literal) = piece.split_once('}').expect("a place in a path is closed");
            encode(&mut text, names.next().expect("each place of the route has a name"));
            text.push_str(literal);
        }
        assert!(names.next().is_none(), "the route has a place for each name");
        Path { operation, text, has_query: false }
    }

    /// Adds a parameter.
    #[must_use]
    pub fn query(mut self, name: &str, value: impl Display) -> Path {
        self.text.push(if self.has_query { '&' } else { '?' });
        self.has_query = true;
        self.text.push_str(name);
        self.text.push('=');
        encode(&mut self.text, &value.to_string());
        self
    }

    /// Adds a parameter if it has a value.
    #[must_use]
    pub fn query_some(self, name: &str, value: Option<impl Display>) -> Path {
        match value {
            Some(value) => self.query(name, value),
            None => self,
        }
    }

    /// The operation of the path.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// The path and query as a request has them.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Percent-encodes all but RFC 3986's unreserved characters.
fn encode(out: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("a string takes all");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_one_segment() {
        let path = Path::of(Operation::GetKey, &["a/b;c+d", "заказ 7?&#%"]).query("body", false);
        assert_eq!(
            path.as_str(),
            "/v1/queues/a%2Fb%3Bc%2Bd/keys/%D0%B7%D0%B0%D0%BA%D0%B0%D0%B7%207%3F%26%23%25?body=false"
        );
        assert_eq!(Path::of(Operation::Queues, &[]).query("max", 3).as_str(), "/v1/queues?max=3");
        assert_eq!(Path::of(Operation::GetMany, &["q"]).as_str(), "/v1/queues/q/messages:get");
    }
}

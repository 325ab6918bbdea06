//! Paths and queries of requests: one percent-encoded segment a name.

use std::fmt::Write as _;

/// A path with a query, built up in place.
pub(crate) struct Path {
    text: String,
    has_query: bool,
}

impl Path {
    /// The empty path.
    pub(crate) fn root() -> Path {
        Path { text: String::new(), has_query: false }
    }

    /// `/v1`.
    pub(crate) fn v1() -> Path {
        Path::root().plus("v1")
    }

    /// Adds `/` and a literal that needs no encoding.
    pub(crate) fn plus(mut self, literal: &str) -> Path {
        self.text.push('/');
        self.text.push_str(literal);
        self
    }

    /// Adds `/` and `segment`, encoded.
    pub(crate) fn segment(mut self, segment: &str) -> Path {
        self.text.push('/');
        encode(&mut self.text, segment);
        self
    }

    /// Adds what stands directly behind the last segment, such as `:batch`.
    pub(crate) fn suffix(mut self, literal: &str) -> Path {
        self.text.push_str(literal);
        self
    }

    /// Adds a parameter.
    pub(crate) fn query(mut self, name: &str, value: impl std::fmt::Display) -> Path {
        self.text.push(if self.has_query { '&' } else { '?' });
        self.has_query = true;
        self.text.push_str(name);
        self.text.push('=');
        encode(&mut self.text, &value.to_string());
        self
    }

    /// Adds a parameter if there is one.
    pub(crate) fn query_some(self, name: &str, value: Option<impl std::fmt::Display>) -> Path {
        match value {
            Some(value) => self.query(name, value),
            None => self,
        }
    }

    pub(crate) fn as_str(&self) -> &str {
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
        let path = Path::v1().plus("queues").segment("a/b;c+d").plus("keys").segment("заказ 7?&#%");
        let path = path.query("state", "dead").query_some("cursor", None::<&str>).query("max", 3);
        assert_eq!(
            path.as_str(),
            "/v1/queues/a%2Fb%3Bc%2Bd/keys/%D0%B7%D0%B0%D0%BA%D0%B0%D0%B7%207%3F%26%23%25?state=dead&max=3"
        );
    }
}

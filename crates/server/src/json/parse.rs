//! Reading JSON strictly, and saying which kind of mistake was found.

use dwell_model::parse_duration_ms;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::error::Category;

use crate::http::{Problem, Refusal};

/// Reads one JSON value of type `T`.
pub(crate) fn object<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Problem> {
    serde_json::from_str(text).map_err(|error| {
        let detail = error.to_string();
        // serde_json tells syntax from data by category, and kinds of data errors by their text alone.
        let refusal = match error.classify() {
            Category::Data if detail.starts_with("unknown field") => Refusal::UnknownField,
            Category::Data if detail.starts_with("missing field") => Refusal::MissingField,
            Category::Data => Refusal::InvalidField,
            Category::Io | Category::Syntax | Category::Eof => Refusal::MalformedJson,
        };
        Problem::new(refusal, shorten(detail))
    })
}

/// serde quotes foreign text in its messages, however long.
fn shorten(detail: String) -> String {
    if detail.len() <= 500 {
        return detail;
    }
    let mut short: String = detail.chars().take(400).collect();
    short.push('…');
    short
}

/// A field that may be absent, null, or hold a value: `None`, `Some(None)`, `Some(Some(…))`.
pub(crate) fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// One duration of the pair `name` (text with a unit) and `name_ms` (a number), in milliseconds.
pub(crate) fn either_ms(
    name: &'static str,
    text: Option<&str>,
    ms: Option<u64>,
) -> Result<Option<u64>, Problem> {
    match (text, ms) {
        (Some(_), Some(_)) => Err(Problem::new(
            Refusal::ConflictingFields,
            format!("give one of {name} and {name}_ms, not both"),
        )),
        (Some(text), None) => Ok(Some(parse_duration_ms(text)?)),
        (None, ms) => Ok(ms),
    }
}

/// Standard base64 with padding (RFC 4648 §4).
pub(crate) fn base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u8>>, D::Error> {
    use base64::Engine as _;
    let Some(text) = Option::<std::borrow::Cow<'de, str>>::deserialize(deserializer)? else {
        return Ok(None);
    };
    base64::engine::general_purpose::STANDARD
        .decode(text.as_bytes())
        .map(Some)
        .map_err(|error| D::Error::custom(format!("body_base64 is not base64 (RFC 4648 §4): {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::PutIn;

    fn code(text: &str) -> String {
        let problem = object::<PutIn>(text).unwrap_err();
        serde_json::to_value(problem).unwrap()["code"].as_str().unwrap().to_owned()
    }

    #[test]
    fn tells_kinds_of_mistakes_apart() {
        assert_eq!(code(r#"{"body":"x","dely":"5s"}"#), "unknown_field");
        assert_eq!(code(r#"{"body":"x""#), "malformed_json");
        assert_eq!(code(r#"{"body":"x"} {"#), "malformed_json");
        assert_eq!(code(r#"{"body":5}"#), "invalid_field");
        assert_eq!(code(r#"{"body":"x","body":"y"}"#), "invalid_field");
        assert_eq!(code(r#"{"body":"x","priority":-1}"#), "invalid_field");
        assert_eq!(code(r#"{"body":"x","max_attempts":0}"#), "invalid_field");
        assert_eq!(code(r#"{"body":"x","max_attempts":"5"}"#), "invalid_field");
        assert_eq!(code(r#"{"body":"x","delay":30}"#), "invalid_field");
        assert_eq!(code(r#"{"body_base64":"a"}"#), "invalid_field");
    }
}

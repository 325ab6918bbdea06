//! Strict JSON parsing, with the kind of each error.

use std::fmt;
use std::marker::PhantomData;

use dwell_model::{Invalid, parse_duration_ms};
use serde::de::{DeserializeSeed, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::error::Category;

use crate::http::{HttpRefusal, Problem};

/// Reads one JSON value of type `T`.
pub(crate) fn object<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Problem> {
    serde_json::from_str(text).map_err(|error| refused(&error))
}

/// Reads a batch: an array of at most `limit` values. A longer one is counted without being held in memory.
pub(crate) fn items<'a, T: Deserialize<'a>>(text: &'a str, limit: usize) -> Result<Vec<T>, Problem> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let read = AtMost(limit, PhantomData).deserialize(&mut deserializer);
    let (items, len) =
        read.and_then(|read| deserializer.end().map(|()| read)).map_err(|error| refused(&error))?;
    if len > limit { Err(Invalid::BatchTooLarge { len, limit }.into()) } else { Ok(items) }
}

fn refused(error: &serde_json::Error) -> Problem {
    let detail = error.to_string();
    // serde_json separates syntax from data by category, and kinds of data errors by their text alone.
    let refusal = match error.classify() {
        Category::Data if detail.starts_with("unknown field") => HttpRefusal::UnknownField,
        Category::Data if detail.starts_with("missing field") => HttpRefusal::MissingField,
        Category::Data => HttpRefusal::InvalidField,
        Category::Io | Category::Syntax | Category::Eof => HttpRefusal::MalformedJson,
    };
    Problem::new(refusal, shorten(detail))
}

/// An array of which the first values are held, up to a maximum, and all are counted.
pub(super) struct AtMost<T>(pub(super) usize, pub(super) PhantomData<T>);

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for AtMost<T> {
    type Value = (Vec<T>, usize);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for AtMost<T> {
    type Value = (Vec<T>, usize);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let AtMost(most, _) = self;
        let mut held = Vec::new();
        while held.len() < most
            && let Some(value) = array.next_element()?
        {
            held.push(value);
        }
        let mut len = held.len();
        while len >= most && array.next_element::<IgnoredAny>()?.is_some() {
            len += 1;
        }
        Ok((held, len))
    }
}

/// serde quotes foreign text of any length in its messages.
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
            HttpRefusal::ConflictingFields,
            format!("give one of {name} and {name}_ms, not both"),
        )),
        (Some(text), None) => Ok(Some(parse_duration_ms(text)?)),
        (None, ms) => Ok(ms),
    }
}

#[cfg(test)]
mod tests {
    use dwell_wire::PutItem;

    use super::*;

    fn code(text: &str) -> String {
        let problem = object::<PutItem<'_>>(text).unwrap_err();
        serde_json::to_value(problem).unwrap()["code"].as_str().unwrap().to_owned()
    }

    #[test]
    fn an_array_is_held_up_to_the_limit_and_counted_to_its_end() {
        assert_eq!(items::<u64>("[1,2]", 2).unwrap(), [1, 2]);
        assert!(items::<u64>(" [ ] ", 0).unwrap().is_empty());
        let text = format!("[{}0]", "0,".repeat(99_999));
        let read = AtMost::<u64>(7, PhantomData).deserialize(&mut serde_json::Deserializer::from_str(&text));
        let (held, len) = read.unwrap();
        assert!(held.len() == 7 && held.capacity() <= 16 && len == 100_000);
        let problem = serde_json::to_value(items::<u64>(&text, 7).unwrap_err()).unwrap();
        assert_eq!(problem["code"], "batch_too_large");
        assert_eq!(problem["limit"], 7);
        assert!(problem["detail"].as_str().unwrap().contains("100000"), "{problem}");
        // Text that is not JSON is refused, wherever that shows.
        for bad in ["", "[1", "[1,2,3,4", "[1] 2", "[1,]", "5", "{}", "null"] {
            let problem = serde_json::to_value(items::<u64>(bad, 1).unwrap_err()).unwrap();
            let code = problem["code"].as_str().unwrap();
            assert!(["malformed_json", "invalid_field"].contains(&code), "{bad}: {problem}");
        }
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

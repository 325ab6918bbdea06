//! A line as the server accepts it: checked for its form, with its queue and its idempotency key.
//!
//! Values are passed on unchanged, so that the server alone checks them, once.

use dwell_model::QueueName;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::ledger::Reason;
use super::lines::InputLine;
use crate::exit::Own;

/// A line that may be sent.
pub(crate) struct LoadItem {
    /// Its queue, which determines its lane.
    pub(crate) queue: QueueName,
    /// The item of a batch, with a line end.
    pub(crate) json: Vec<u8>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Fields<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    body: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    body_base64: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    delay: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    delay_ms: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    due: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    level: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    key: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    on_conflict: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    headers: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    priority: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    expires: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    lease: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    lease_ms: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    max_attempts: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<String>,
}

impl LoadItem {
    /// The item of `line`; a line without a queue goes to `queue`, a line without an idempotency key gets one.
    pub(crate) fn new(line: &InputLine, queue: Option<&QueueName>) -> Result<LoadItem, Reason> {
        let text = line.text.as_deref().ok_or_else(|| {
            let limit = super::lines::MAX_LINE_LEN;
            Reason::new(Own::LineTooLong.code(), format!("the line has more than {limit} bytes"))
        })?;
        let text = std::str::from_utf8(text)
            .map_err(|error| Reason::new("malformed_json", format!("the line is not UTF-8: {error}")))?;
        let mut fields: Fields<'_> = serde_json::from_str(text).map_err(|error| {
            let unknown = error.to_string().starts_with("unknown field");
            // For the parser, the line is line 1.
            let detail = error.to_string().replace(" at line 1 column", " at column");
            Reason::new(if unknown { "unknown_field" } else { "malformed_json" }, detail)
        })?;
        let queue = match (&fields.queue, queue) {
            (Some(name), _) => {
                QueueName::new(name).map_err(|invalid| Reason::new(invalid.code(), invalid))?
            }
            (None, Some(queue)) => queue.clone(),
            (None, None) => {
                let detail = "the line names no queue, and the command line neither";
                return Err(Reason::new("missing_field", detail));
            }
        };
        fields.queue = Some(queue.as_str().to_owned());
        fields.idempotency_key.get_or_insert_with(|| format!("{}-{}", line.digest, line.number));
        let mut json =
            serde_json::to_vec(&fields).map_err(|error| Reason::new("malformed_json", error.to_string()))?;
        json.push(b'\n');
        Ok(LoadItem { queue, json })
    }
}

#[cfg(test)]
mod tests {
    use super::super::lines::Lines;
    use super::*;

    fn item(text: &str, queue: Option<&str>) -> Result<(String, String), String> {
        let line = Lines::new(text.as_bytes(), "").next().unwrap().unwrap();
        let queue = queue.map(|name| name.parse().unwrap());
        LoadItem::new(&line, queue.as_ref())
            .map(|item| (item.queue.to_string(), String::from_utf8(item.json).unwrap()))
            .map_err(|reason| reason.code)
    }

    #[test]
    fn a_line_gets_its_queue_and_idempotency_key_and_keeps_its_text() {
        let text = r#"{"body":"\u00e4 é","delay":"5m","headers":{"a":"b"}}"#;
        let (queue, json) = item(text, Some("q")).unwrap();
        assert_eq!(queue, "q");
        let head = r#"{"queue":"q","body":"\u00e4 é","delay":"5m","headers":{"a":"b"},"idempotency_key":""#;
        assert!(json.starts_with(head), "{json}");
        assert!(json.ends_with("-1\"}\n"), "{json}");
    }

    #[test]
    fn its_own_queue_and_idempotency_key_count() {
        let (queue, json) = item(r#"{"queue":"own","body":"","idempotency_key":"t"}"#, Some("q")).unwrap();
        assert_eq!(queue, "own");
        assert!(json.contains(r#""idempotency_key":"t""#), "{json}");
    }

    #[test]
    fn what_is_no_item_is_refused() {
        for (text, code) in [
            ("{", "malformed_json"),
            ("[]", "malformed_json"),
            ("\"text\"", "malformed_json"),
            (r#"{"body":"x"} y"#, "malformed_json"),
            (r#"{"body":"x","boddy":"y"}"#, "unknown_field"),
            (r#"{"body":"x","body":"y"}"#, "malformed_json"),
            (r#"{"body":"x"}"#, "missing_field"),
            (r#"{"queue":"a b","body":"x"}"#, "invalid_queue_name"),
        ] {
            assert_eq!(item(text, None).unwrap_err(), code, "{text}");
        }
        let line = Lines::new(&b"{\"queue\":\"q\",\"body\":\"\xff\"}"[..], "").next().unwrap().unwrap();
        assert_eq!(LoadItem::new(&line, None).err().unwrap().code, "malformed_json");
    }
}

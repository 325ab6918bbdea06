//! JSON as Jackson writes it through Redisson's codecs, byte for byte.
//!
//! `JsonJacksonCodec` sets NON_NULL and SORT_PROPERTIES_ALPHABETICALLY. From its source and Jackson's
//! `UTF8JsonGenerator`, and compared with real Java by `tests/java`:
//! - no white space; properties in the order of their UTF-16 code units, `@class` first
//! - null properties are omitted (nulls inside an array stay)
//! - doubles as Java prints them
//! - `"`, `\` and control characters escaped: `\b \t \n \f \r` in short form, the rest as `\u00XX` in capitals
//! - characters outside the basic plane as an escaped surrogate pair, all others as UTF-8

use serde_json::{Map, Number, Value};

use super::java_double;

/// The property with the class, the first one of its object.
pub(super) const CLASS: &str = "@class";

/// Writes a value.
pub(super) fn write(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(number) => write_number(number, out),
        Value::String(text) => write_text(text, out),
        Value::Array(items) => write_array(items, out),
        Value::Object(fields) => write_object(fields, out),
    }
}

fn write_number(number: &Number, out: &mut Vec<u8>) {
    match number.as_f64() {
        Some(double) if number.is_f64() => out.extend_from_slice(java_double::text(double).as_bytes()),
        _ => out.extend_from_slice(number.to_string().as_bytes()),
    }
}

fn write_array(items: &[Value], out: &mut Vec<u8>) {
    out.push(b'[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(item, out);
    }
    out.push(b']');
}

fn write_object(fields: &Map<String, Value>, out: &mut Vec<u8>) {
    let mut sorted: Vec<_> = fields.iter().filter(|(_, value)| !value.is_null()).collect();
    sorted.sort_by(|(a, _), (b, _)| {
        (*a != CLASS).cmp(&(*b != CLASS)).then_with(|| a.encode_utf16().cmp(b.encode_utf16()))
    });
    out.push(b'{');
    for (index, (name, value)) in sorted.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_text(name, out);
        out.push(b':');
        write(value, out);
    }
    out.push(b'}');
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for c in text.chars() {
        match c {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\u{8}' => out.extend_from_slice(b"\\b"),
            '\t' => out.extend_from_slice(b"\\t"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\u{c}' => out.extend_from_slice(b"\\f"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\0'..='\u{1f}' | '\u{10000}'.. => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.extend_from_slice(format!("\\u{unit:04X}").as_bytes());
                }
            }
            _ => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(value: Value) -> String {
        let mut out = Vec::new();
        write(&value, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn properties_are_sorted_and_nulls_left_out() {
        let value = json!({"b": 1, "a": [null, 1.0], "@class": "x.Y", "B": true, "n": null, "$": {}});
        assert_eq!(text(value), r#"{"@class":"x.Y","$":{},"B":true,"a":[null,1.0],"b":1}"#);
    }

    #[test]
    fn characters_are_escaped_as_jackson_does() {
        let value = json!("ü\n\u{8}😀\u{7f}\u{2028}/\"\\\u{1}\u{1f}");
        assert_eq!(text(value), "\"ü\\n\\b\\uD83D\\uDE00\u{7f}\u{2028}/\\\"\\\\\\u0001\\u001F\"");
    }
}

//! Schemas of values that JSON carries as text and that have no type of their own.
//!
//! The types here are never constructed: they only describe the text of a field in its schema.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

macro_rules! text {
    ($($(#[doc = $doc:literal])* $name:ident = $schema:tt;)*) => {
        $(
            $(#[doc = $doc])*
            #[derive(Debug)]
            pub struct $name;

            impl JsonSchema for $name {
                fn schema_name() -> Cow<'static, str> {
                    stringify!($name).into()
                }

                fn json_schema(_: &mut SchemaGenerator) -> Schema {
                    json_schema!($schema)
                }
            }
        )*
    };
}

text! {
    /// A length of time.
    Duration = {
        "description": "A length of time with units: 250ms, 30m, 1h30m, 7d",
        "type": "string",
        "pattern": "^([0-9]{1,6}d)?([0-9]{1,6}h)?([0-9]{1,6}m)?([0-9]{1,9}s)?([0-9]{1,9}ms)?$",
        "minLength": 2
    };
    /// What a settlement does.
    Action = { "type": "string", "enum": ["ack", "retry", "release", "bury", "extend"] };
    /// What a put does on a conflict of keys.
    OnConflict = { "type": "string", "enum": ["reject", "replace", "keep"] };
    /// Bytes.
    Base64 = { "description": "RFC 4648 section 4, with padding", "type": "string", "contentEncoding": "base64" };
    /// Whether a queue hands messages out.
    Pause = {
        "description": "`running`, `paused`, or the instant at which the pause ends",
        "anyOf": [
            { "type": "string", "enum": ["running", "paused"] },
            { "type": "string", "format": "date-time" }
        ]
    };
}

//! Schemas of what goes over the wire as text: instants, durations, names.
//!
//! The types here are never made: they say in a field's schema what its text has to look like.

use dwell_model::{Cursor, MessageId, Timestamp};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

macro_rules! text {
    ($($(#[doc = $doc:literal])* $name:ident = $schema:tt;)*) => {
        $(
            $(#[doc = $doc])*
            pub(crate) struct $name;

            impl JsonSchema for $name {
                fn schema_name() -> std::borrow::Cow<'static, str> {
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
    /// An instant.
    Instant = {
        "description": "An instant, RFC 3339 with an offset and at most milliseconds; answers are in UTC",
        "type": "string",
        "format": "date-time"
    };
    /// A message's identity.
    Id = {
        "description": "A message's id: a UUID of version 8",
        "type": "string",
        "pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"
    };
    /// The name of a queue.
    QueueName = {
        "description": "A queue's name; not `.` or `..`",
        "type": "string",
        "pattern": "^[A-Za-z0-9+/;.$_():@][-A-Za-z0-9+/;.$_():@]*$",
        "minLength": 1,
        "maxLength": 200
    };
    /// The caller's own name for a message.
    Key = { "description": "1 to 512 bytes of UTF-8", "type": "string", "minLength": 1, "maxLength": 512 };
    /// What makes a repeated put harmless.
    Token = { "type": "string", "pattern": "^[!-~]+$", "minLength": 1, "maxLength": 256 };
    /// The proof of a lease.
    Receipt = { "description": "Opaque: it comes with a taken message", "type": "string", "pattern": "^[A-Za-z0-9_-]+$" };
    /// What a settlement does.
    Action = { "type": "string", "enum": ["ack", "retry", "release", "bury", "extend"] };
    /// Where the next page begins.
    Next = { "description": "Opaque: pass it back as `cursor`", "type": "string" };
    /// Bytes.
    Base64 = { "description": "RFC 4648 section 4, with padding", "type": "string", "contentEncoding": "base64" };
    /// Why a message is dead.
    DeadReason = { "type": "string", "enum": ["attempts_spent", "buried", "expired"] };
    /// Whether a queue hands out.
    Pause = {
        "description": "`running`, `paused`, or the instant at which the pause ends",
        "anyOf": [
            { "type": "string", "enum": ["running", "paused"] },
            { "type": "string", "format": "date-time" }
        ]
    };
    /// How often a message may be handed out.
    Attempts = {
        "anyOf": [
            { "type": "integer", "minimum": 1, "maximum": 4294967295_u32 },
            { "type": "string", "enum": ["unlimited"] }
        ]
    };
}

/// A type that goes over the wire as its own text.
pub(crate) trait Shown {
    /// What that text looks like.
    type Schema: JsonSchema;
}

impl<T: Shown> Shown for &T {
    type Schema = T::Schema;
}

impl Shown for MessageId {
    type Schema = Id;
}

impl Shown for Timestamp {
    type Schema = Instant;
}

impl Shown for dwell_model::QueueName {
    type Schema = QueueName;
}

impl Shown for dwell_model::Key {
    type Schema = Key;
}

impl Shown for dwell_model::Receipt {
    type Schema = Receipt;
}

impl Shown for Cursor {
    type Schema = Next;
}

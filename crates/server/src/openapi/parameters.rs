//! Parameters: those of paths, queries and headers, each described once.

use serde_json::{Value, json};

use super::{Schema, Schemas, read};
use crate::json::schema;

/// A parameter.
#[derive(Clone, Copy)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) text: &'static str,
    pub(super) schema: Schema,
}

const fn parameter(name: &'static str, text: &'static str, schema: Schema) -> Parameter {
    Parameter { name, text, schema }
}

fn text(_: &mut Schemas) -> Value {
    json!({ "type": "string" })
}

fn flag(_: &mut Schemas) -> Value {
    json!({ "type": "boolean" })
}

fn u32(_: &mut Schemas) -> Value {
    json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX })
}

fn u64(_: &mut Schemas) -> Value {
    json!({ "type": "integer", "minimum": 0, "maximum": u64::MAX })
}

fn number(_: &mut Schemas) -> Value {
    json!({ "type": "integer", "minimum": 1, "maximum": (1_u64 << 53) - 1 })
}

fn page(_: &mut Schemas) -> Value {
    json!({ "type": "integer", "minimum": 1, "maximum": 1_000, "default": 100 })
}

fn items(_: &mut Schemas) -> Value {
    json!({ "type": "integer", "minimum": 1, "default": 1 })
}

fn bytes(_: &mut Schemas) -> Value {
    json!({ "type": "integer", "minimum": 1, "maximum": 67_108_864, "default": 8_388_608 })
}

fn state(_: &mut Schemas) -> Value {
    json!({ "type": "string", "enum": ["scheduled", "ready", "leased", "dead"], "default": "scheduled" })
}

fn on_conflict(_: &mut Schemas) -> Value {
    json!({ "type": "string", "enum": ["reject", "replace", "keep"] })
}

fn queues(schemas: &mut Schemas) -> Value {
    json!({ "type": "array", "minItems": 1, "items": read::<schema::Queue>(schemas) })
}

fn code(_: &mut Schemas) -> Value {
    json!({ "type": "string", "pattern": "^[a-z_]+$" })
}

/// In paths, by their names.
pub(super) const PATH: &[Parameter] = &[
    parameter("queue", "The queue, percent-encoded", read::<schema::Queue>),
    parameter("id", "The message", read::<schema::Id>),
    parameter("key", "The message's key, percent-encoded", read::<schema::Key>),
    parameter("number", "The message's number", number),
    parameter("receipt", "The proof of the lease", read::<schema::Receipt>),
    parameter("action", "What to do with the message", read::<schema::Action>),
    parameter("code", "An error code", code),
];

pub(super) const DELAY: Parameter = parameter("delay", "Due so long after now", read::<schema::Duration>);
pub(super) const DUE: Parameter = parameter("due", "Due at this instant", read::<schema::Instant>);
pub(super) const LEVEL: Parameter =
    parameter("level", "Due after this delay level of the queue, counted from 1", u32);
pub(super) const KEY: Parameter =
    parameter("key", "The caller's own name, unique among live messages", read::<schema::Key>);
pub(super) const ON_CONFLICT: Parameter =
    parameter("on_conflict", "What to do when a live message has the key", on_conflict);
pub(super) const PRIORITY: Parameter = parameter("priority", "Smaller first, among due messages", u32);
pub(super) const EXPIRES: Parameter =
    parameter("expires", "Past this instant an untaken message is dead", read::<schema::Instant>);
pub(super) const MAX_ATTEMPTS: Parameter =
    parameter("max_attempts", "How often it may be handed out", read::<schema::Attempts>);
pub(super) const LEASE: Parameter = parameter("lease", "How long it is leased", read::<schema::Duration>);
pub(super) const MAX: Parameter = parameter("max", "At most so many; `limits.batch` is the most", items);
pub(super) const MAX_BYTES: Parameter = parameter("max_bytes", "At most so many bytes of bodies", bytes);
pub(super) const WAIT: Parameter = parameter(
    "wait",
    "How long to wait for the first; `limits.wait` is the longest",
    read::<schema::Duration>,
);
pub(super) const QUEUES: Parameter = parameter("queue", "From these queues", queues);
pub(super) const BODY: Parameter = parameter("body", "Whether bodies are shown", flag);
pub(super) const STATE: Parameter = parameter("state", "Messages in this state", state);
pub(super) const CURSOR: Parameter = parameter("cursor", "`next` of the page before", text);
pub(super) const QUEUE_CURSOR: Parameter =
    parameter("cursor", "`next` of the page before", read::<schema::Queue>);
pub(super) const PAGE: Parameter = parameter("max", "At most so many", page);
pub(super) const AFTER: Parameter = parameter("after", "Due so long from now", read::<schema::Duration>);
pub(super) const ERROR: Parameter = parameter("error", "What went wrong, at most 4 KiB", text);
pub(super) const REASON: Parameter = parameter("reason", "Why, at most 4 KiB", text);
pub(super) const OLDEST: Parameter = parameter("oldest", "So many of those dead longest", u64);
pub(super) const ALL: Parameter = parameter("all", "All of them", flag);
pub(super) const FOR: Parameter = parameter("for", "For so long", read::<schema::Duration>);
pub(super) const UNTIL: Parameter = parameter("until", "Until then", read::<schema::Instant>);
pub(super) const IDEMPOTENCY_KEY: Parameter =
    parameter("Idempotency-Key", "The same one puts nothing twice", read::<schema::Token>);

//! Parameters: those of paths, queries and headers, each described once.

/// A parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// What it means, in a few words. This is its description in the OpenAPI document.
    pub text: &'static str,
    /// Its JSON Schema, in JSON. References point into the OpenAPI document.
    pub schema: &'static str,
}

const fn parameter(name: &'static str, text: &'static str, schema: &'static str) -> Parameter {
    Parameter { name, text, schema }
}

/// A reference to the schema of this name in the OpenAPI document.
macro_rules! named {
    ($name:literal) => {
        concat!(r##"{"$ref":"#/components/schemas/"##, $name, r#""}"#)
    };
}

const QUEUE_NAME: &str = named!("QueueName");
const ANY_KEY: &str = named!("Key");
const DURATION: &str = named!("Duration");
const INSTANT: &str = named!("Instant");
const ATTEMPTS: &str = named!("Attempts");
const TEXT: &str = r#"{"type":"string"}"#;
const FLAG: &str = r#"{"type":"boolean"}"#;
const U32: &str = r#"{"type":"integer","minimum":0,"maximum":4294967295}"#;
const U64: &str = r#"{"type":"integer","minimum":0,"maximum":18446744073709551615}"#;

/// The parameters in paths, by name.
pub const PATH_PARAMETERS: &[Parameter] = &[
    parameter("queue", "The queue, percent-encoded", QUEUE_NAME),
    parameter("id", "The message", named!("Id")),
    parameter("key", "The message's key, percent-encoded", ANY_KEY),
    parameter(
        "number",
        "The message's number",
        r#"{"type":"integer","minimum":1,"maximum":9007199254740991}"#,
    ),
    parameter("receipt", "The proof of the lease", named!("Receipt")),
    parameter("action", "What to do with the message", named!("Action")),
    parameter("name", "The name of the sink or the schedule, percent-encoded", QUEUE_NAME),
    parameter("digest", "The version of the page, as `GET /` names it", TEXT),
    parameter("file", "One of the page's files", TEXT),
    parameter("code", "An error code", r#"{"type":"string","pattern":"^[a-z_]+$"}"#),
];

pub(crate) const DELAY: Parameter = parameter("delay", "Due so long after now", DURATION);
pub(crate) const DUE: Parameter = parameter("due", "Due at this instant", INSTANT);
pub(crate) const LEVEL: Parameter =
    parameter("level", "Due after this delay level of the queue, counted from 1", U32);
pub(crate) const KEY: Parameter =
    parameter("key", "The caller's own name, unique among live messages", ANY_KEY);
pub(crate) const ON_CONFLICT: Parameter = parameter(
    "on_conflict",
    "What to do when a live message has the key",
    r#"{"type":"string","enum":["reject","replace","keep"]}"#,
);
pub(crate) const PRIORITY: Parameter = parameter("priority", "Smaller first, among due messages", U32);
pub(crate) const EXPIRES: Parameter =
    parameter("expires", "Past this instant an untaken message is dead", INSTANT);
pub(crate) const MAX_ATTEMPTS: Parameter =
    parameter("max_attempts", "How often it may be handed out", ATTEMPTS);
pub(crate) const LEASE: Parameter = parameter("lease", "How long it is leased", DURATION);
pub(crate) const HOLDER: Parameter =
    parameter("holder", "Who takes, for people to see with the lease", named!("Holder"));
pub(crate) const MAX: Parameter = parameter(
    "max",
    "At most so many; `limits.batch` is the most",
    r#"{"type":"integer","minimum":1,"default":1}"#,
);
pub(crate) const MAX_BYTES: Parameter = parameter(
    "max_bytes",
    "At most so many bytes of bodies",
    r#"{"type":"integer","minimum":0,"maximum":67108864,"default":8388608}"#,
);
pub(crate) const WAIT: Parameter =
    parameter("wait", "How long to wait for the first; `limits.wait` is the longest", DURATION);
pub(crate) const QUEUES: Parameter = parameter(
    "queue",
    "From these queues",
    concat!(r#"{"type":"array","minItems":1,"items":"#, named!("QueueName"), "}"),
);
pub(crate) const BODY: Parameter = parameter("body", "Whether bodies are shown", FLAG);
pub(crate) const WITH_DEAD: Parameter =
    parameter("dead", "Where no live message has the key, the youngest of the dead that had it", FLAG);
pub(crate) const STATE: Parameter = parameter(
    "state",
    "Messages in this state",
    r#"{"type":"string","enum":["scheduled","ready","leased","dead"],"default":"scheduled"}"#,
);
pub(crate) const CURSOR: Parameter = parameter("cursor", "`next` of the page before", TEXT);
pub(crate) const QUEUE_CURSOR: Parameter = parameter("cursor", "`next` of the page before", QUEUE_NAME);
pub(crate) const FROM: Parameter =
    parameter("from", "Begin with the first that is due at this instant or later", INSTANT);
pub(crate) const PREVIEW: Parameter = parameter(
    "preview",
    "In place of the body, so many of its first characters, or bytes where it is not UTF-8",
    r#"{"type":"integer","minimum":0,"maximum":256}"#,
);
pub(crate) const EDGES: Parameter =
    parameter("edges", "Instants with commas between them, rising, at most 200", TEXT);
pub(crate) const SPAN: Parameter = parameter(
    "span",
    "In place of `edges`: 60 x 1 s, 60 x 1 min, 24 x 1 h or 30 x 1 d, at whole steps of UTC",
    r#"{"type":"string","enum":["minute","hour","day","month"],"default":"hour"}"#,
);
pub(crate) const PREFIX: Parameter = parameter("prefix", "Queues whose names begin so", TEXT);
pub(crate) const PAGE: Parameter =
    parameter("max", "At most so many", r#"{"type":"integer","minimum":1,"maximum":1000,"default":100}"#);
pub(crate) const COUNT: Parameter =
    parameter("count", "How many", r#"{"type":"integer","minimum":1,"maximum":1000,"default":10}"#);
pub(crate) const AFTER: Parameter = parameter("after", "Due so long from now", DURATION);
pub(crate) const ERROR: Parameter = parameter("error", "What went wrong, at most 4 KiB", TEXT);
pub(crate) const REASON: Parameter = parameter("reason", "Why, at most 4 KiB", TEXT);
pub(crate) const OLDEST: Parameter =
    parameter("oldest", "The number of messages, from the one dead longest on", U64);
pub(crate) const ALL: Parameter = parameter("all", "All of them", FLAG);
pub(crate) const FOR: Parameter = parameter("for", "For so long", DURATION);
pub(crate) const UNTIL: Parameter = parameter("until", "Until then", INSTANT);
pub(crate) const IDEMPOTENCY_KEY: Parameter =
    parameter("Idempotency-Key", "The same one puts nothing twice", named!("IdempotencyKey"));

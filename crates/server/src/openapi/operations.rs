//! What each route takes and answers. Tests hold this table against the router's own, against what queries the
//! handlers understand, and every answer of the other tests against it.

use super::parameters::*;
use super::{Schema, read, written};
use crate::http::{Done, HealthOut};
use crate::json::{
    CancelledOut, DeliveryOut, FoundSchema, LeaseIn, LimitsOut, MessageOut, MessagesOut, MovedOut,
    NoFieldsIn, PauseIn, PutIn, PutOut, QueueOut, QueuesOut, RemovedOut, RescheduleIn, ReviveIn, SelectIn,
    SettingsIn, SettleFieldsIn, SettleIn, SettledOut, SweptOut, TakenOut, TargetIn, WhenIn,
};

/// What a request carries.
#[derive(Clone, Copy)]
pub(super) enum Request {
    /// No body.
    Nothing,
    /// A message's body.
    Raw,
    /// A JSON object.
    Json(Schema),
    /// A JSON object, or its fields in the query.
    JsonOrQuery(Schema),
    /// A JSON array, or lines.
    Items(Schema),
}

/// What comes back when it went well.
#[derive(Clone, Copy)]
pub(super) enum Answer {
    Json(Schema),
    /// With `Location`.
    Created(Schema),
    JsonOrRaw(Schema),
    /// One answer an item; the schema is of one that was done.
    Each(Schema),
    Nothing,
    Text(&'static str),
    Document,
}

/// A method and a path.
pub(super) struct Operation {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) id: &'static str,
    pub(super) tag: &'static str,
    pub(super) summary: &'static str,
    pub(super) query: &'static [Parameter],
    /// Names of those parameters of the query that have to be there.
    pub(super) requires: &'static [&'static str],
    pub(super) headers: &'static [Parameter],
    pub(super) request: Request,
    pub(super) answers: &'static [(u16, Answer)],
    /// Groups of codes that it may refuse with, beside [`ANY`].
    pub(super) errors: &'static [&'static [&'static str]],
}

impl Operation {
    /// All codes that it may refuse with.
    pub(super) fn codes(&self) -> impl Iterator<Item = &'static str> {
        [ANY].into_iter().chain(self.errors.iter().copied()).flatten().copied()
    }
}

const NONE: Operation = Operation {
    method: "",
    path: "",
    id: "",
    tag: "",
    summary: "",
    query: &[],
    requires: &[],
    headers: &[],
    request: Request::Nothing,
    answers: &[],
    errors: &[],
};

/// Whatever is asked.
const ANY: &[&str] = &[
    "malformed_request",
    "unknown_parameter",
    "invalid_parameter",
    "token_unknown",
    "foreign_host",
    "foreign_origin",
    "too_many_connections",
    "internal",
];
/// Where a token may be asked for.
const SCOPED: &[&str] = &["token_required", "forbidden"];
/// Where a store is asked.
const STORE: &[&str] = &["closed", "unavailable", "foreign_data"];
/// Where something may change.
const CHANGE: &[&str] = &["outcome_unknown", "disk_full"];
const QUEUE: &[&str] = &["invalid_queue_name"];
const ID: &[&str] = &["malformed_id"];
const WITH_KEY: &[&str] = &["invalid_key"];
/// Where a body is read.
const SENT: &[&str] = &["request_timeout", "request_too_large", "overloaded"];
/// Where JSON is read.
const JSON: &[&str] = &[
    "malformed_json",
    "unknown_field",
    "invalid_field",
    "missing_field",
    "conflicting_fields",
    "unsupported_media_type",
];
/// Where a message gets an instant.
const WHEN: &[&str] = &[
    "conflicting_fields",
    "malformed_delay",
    "negative_delay",
    "malformed_instant",
    "due_out_of_range",
    "unknown_level",
    "expires_before_due",
];
const DURATIONS: &[&str] = &["malformed_delay", "negative_delay", "due_out_of_range"];
const INSTANTS: &[&str] = &["malformed_instant", "due_out_of_range"];
const FOUND: &[&str] = &["unknown_queue", "message_not_found", "overloaded"];
const STANDING: &[&str] = &["unknown_queue", "message_not_found", "leased", "dead"];
const PUT: &[&str] = &[
    "invalid_token",
    "invalid_header",
    "invalid_key",
    "invalid_setting",
    "headers_too_large",
    "body_too_large",
    "key_taken",
    "leased",
    "queue_full",
    "too_many_queues",
    "exhausted",
    "shutting_down",
];
const TAKE: &[&str] =
    &["overloaded", "too_many_leased", "too_many_waiting", "too_many_queues", "invalid_setting"];
const DEAD: &[&str] = &["unknown_queue", "message_not_found", "not_dead", "key_taken"];
const BATCH: &[&str] = &["batch_too_large", "conflicting_fields"];

const WHEN_QUERY: &[Parameter] = &[DELAY, DUE, LEVEL];

/// All operations, in the order of the router.
pub(super) const OPERATIONS: &[Operation] = &[
    Operation {
        method: "POST",
        path: "/v1/queues/{queue}/messages",
        id: "put",
        tag: "put",
        summary: "Put a message",
        query: &[DELAY, DUE, LEVEL, KEY, ON_CONFLICT, PRIORITY, EXPIRES, MAX_ATTEMPTS, LEASE],
        headers: &[IDEMPOTENCY_KEY],
        request: Request::Raw,
        answers: &[(200, Answer::Json(written::<PutOut>)), (201, Answer::Created(written::<PutOut>))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, SENT, WHEN, PUT],
        ..NONE
    },
    Operation {
        method: "GET",
        path: "/v1/queues/{queue}/messages",
        id: "list",
        tag: "look",
        summary: "A page of messages in a state",
        query: &[STATE, CURSOR, PAGE, BODY],
        answers: &[(200, Answer::Json(written::<MessagesOut<'static>>))],
        errors: &[SCOPED, STORE, QUEUE, &["malformed_cursor", "unknown_queue", "overloaded"]],
        ..NONE
    },
    Operation {
        method: "POST",
        path: "/v1/queues/{queue}/messages:batch",
        id: "put_many",
        tag: "put",
        summary: "Put many messages into one queue",
        request: Request::Items(read::<PutIn>),
        answers: &[(200, Answer::Each(written::<Done<'static, PutOut>>))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, SENT, JSON, BATCH],
        ..NONE
    },
    Operation {
        method: "POST",
        path: "/v1/messages:batch",
        id: "put_many_anywhere",
        tag: "put",
        summary: "Put many messages, each into the queue that it names",
        request: Request::Items(read::<PutIn>),
        answers: &[(200, Answer::Each(written::<Done<'static, PutOut>>))],
        errors: &[SCOPED, STORE, CHANGE, SENT, JSON, BATCH],
        ..NONE
    },
    Operation {
        method: "POST",
        path: "/v1/queues/{queue}/messages:get",
        id: "get_many",
        tag: "look",
        summary: "Get many messages; changes nothing",
        request: Request::Items(read::<TargetIn>),
        answers: &[(200, Answer::Each(written::<Done<'static, FoundSchema<'static>>>))],
        errors: &[SCOPED, STORE, QUEUE, SENT, JSON, BATCH],
        ..NONE
    },
    Operation {
        method: "POST",
        path: "/v1/queues/{queue}/messages:cancel",
        id: "cancel_many",
        tag: "change",
        summary: "Cancel many messages",
        request: Request::Items(read::<TargetIn>),
        answers: &[(200, Answer::Each(written::<Done<'static, CancelledOut>>))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, SENT, JSON, BATCH],
        ..NONE
    },
    Operation {
        method: "POST",
        path: "/v1/queues/{queue}/messages:reschedule",
        id: "reschedule_many",
        tag: "change",
        summary: "Reschedule many messages",
        request: Request::Items(read::<RescheduleIn>),
        answers: &[(200, Answer::Each(written::<Done<'static, MovedOut>>))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, SENT, JSON, BATCH],
        ..NONE
    },
    Operation {
        method: "GET",
        path: "/v1/queues/{queue}/messages/{id}",
        id: "get",
        tag: "look",
        summary: "A message",
        query: &[BODY],
        answers: &[(200, Answer::JsonOrRaw(written::<MessageOut<'static>>))],
        errors: &[SCOPED, STORE, QUEUE, ID, FOUND],
        ..NONE
    },
    Operation {
        method: "DELETE",
        path: "/v1/queues/{queue}/messages/{id}",
        id: "cancel",
        tag: "change",
        summary: "Cancel a message",
        request: Request::JsonOrQuery(read::<NoFieldsIn>),
        answers: &[(200, Answer::Json(written::<CancelledOut>))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, ID, SENT, JSON, STANDING],
        ..NONE
    },
    Operation {
        method: "POST",
        path: "/v1/queues/{queue}/messages/{id}/take",
        id: "take_one",
        tag: "take",
        summary: "Take this very message",
        query: &[LEASE],
        request: Request::JsonOrQuery(read::<LeaseIn>),
        answers: &[(200, Answer::JsonOrRaw(written::<DeliveryOut<'static>>))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, ID, SENT, JSON, DURATIONS, TAKE, STANDING, &["key_taken"]],
        ..NONE
    },
    Operation {
        method: "POST",
        path: "/v1/queues/{queue}/messages/{id}/reschedule",
        id: "reschedule",
        tag: "change",
        summary: "Move a message's instant",
        query: WHEN_QUERY,
        request: Request::JsonOrQuery(read::<WhenIn>),
        answers: &[(200, Answer::Json(written::<MovedOut>))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, ID, SENT, JSON, WHEN, STANDING],
        ..NONE
    },
    Operation {
        method: "POST",
        path: "/v1/queues/{queue}/messages/{id}/revive",
        id: "revive",
        tag: "dead",
        summary: "Bring a dead message back",
        query: WHEN_QUERY,
        request: Request::JsonOrQuery(read::<WhenIn>),
        answers: &[(200, Answer::Json(written::<SweptOut>))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, ID, SENT, JSON, WHEN, DEAD],
        ..NONE
    },
    Operation {
        method: "POST",
        path: "/v1/queues/{queue}/messages/{id}/discard",
        id: "discard",
        tag: "dead",
        summary: "Remove a dead message",
        request: Request::JsonOrQuery(read::<NoFieldsIn>),
        answers: &[(200, Answer::Json(written::<SweptOut>))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, ID, SENT, JSON, DEAD],
        ..NONE
    },
    Operation {
        method: "PUT",
        path: "/v1/queues/{queue}/keys/{key}",
        id: "put_key",
        tag: "put",
        summary: "Put a message under its key, in place of the one that has it",
        query: &[DELAY, DUE, LEVEL, ON_CONFLICT, PRIORITY, EXPIRES, MAX_ATTEMPTS, LEASE],
        headers: &[IDEMPOTENCY_KEY],
        request: Request::Raw,
        answers: &[(200, Answer::Json(written::<PutOut>)), (201, Answer::Created(written::<PutOut>))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, SENT, WHEN, PUT],
        ..NONE
    },
    Operation {
        method: "GET",
        path: "/v1/queues/{queue}/keys/{key}",
        id: "get_key",
        tag: "look",
        summary: "The live message that has the key",
        query: &[BODY],
        answers: &[(200, Answer::JsonOrRaw(written::<MessageOut<'static>>))],
        errors: &[SCOPED, STORE, QUEUE, WITH_KEY, FOUND],
        ..NONE
    },
    Operation {
        method: "DELETE",
        path: "/v1/queues/{queue}/keys/{key}",
        id: "cancel_key",
        tag: "change",
        summary: "Cancel the message that has the key",
        request: Request::JsonOrQuery(read::<NoFieldsIn>),
        answers: &[(200, Answer::Json(written::<CancelledOut>))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, WITH_KEY, SENT, JSON, STANDING],
        ..NONE
    },
    Operation {
        method: "POST",
        path: "/v1/queues/{queue}/keys/{key}/reschedule",
        id: "reschedule_key",
        tag: "change",
        summary: "Move the instant of the message that has the key",
        query: WHEN_QUERY,
        request: Request::JsonOrQuery(read::<WhenIn>),
        answers: &[(200, Answer::Json(written::<MovedOut>))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, WITH_KEY, SENT, JSON, WHEN, STANDING],
        ..NONE
    },
    Operation {
        method: "GET",
        path: "/v1/numbers/{number}",
        id: "get_number",
        tag: "look",
        summary: "The message with the number",
        query: &[BODY],
        answers: &[(200, Answer::JsonOrRaw(written::<MessageOut<'static>>))],
        errors: &[SCOPED, STORE, FOUND, &["malformed_number"]],
        ..NONE
    },
    Operation {
        method: "POST",
        path: "/v1/queues/{queue}/take",
        id: "take",
        tag: "take",
        summary: "Take due messages of a queue",
        query: &[MAX, MAX_BYTES, WAIT, LEASE],
        answers: &[(200, Answer::JsonOrRaw(written::<TakenOut<'static>>)), (204, Answer::Nothing)],
        errors: &[
            SCOPED,
            STORE,
            CHANGE,
            QUEUE,
            SENT,
            DURATIONS,
            TAKE,
            &["wait_too_long", "conflicting_fields", "malformed_json"],
        ],
        ..NONE
    },
    Operation {
        method: "POST",
        path: "/v1/take",
        id: "take_from",
        tag: "take",
        summary: "Take due messages of several queues",
        query: &[QUEUES, MAX, MAX_BYTES, WAIT, LEASE],
        requires: &["queue"],
        answers: &[(200, Answer::JsonOrRaw(written::<TakenOut<'static>>)), (204, Answer::Nothing)],
        errors: &[
            SCOPED,
            STORE,
            CHANGE,
            QUEUE,
            SENT,
            DURATIONS,
            TAKE,
            &["wait_too_long", "too_many_names", "conflicting_fields", "malformed_json", "missing_field"],
        ],
        ..NONE
    },
    Operation {
        method: "POST",
        path: "/v1/receipts/{receipt}/{action}",
        id: "settle",
        tag: "settle",
        summary: "Ack, retry, release, bury or extend",
        query: &[AFTER, ERROR, REASON, PRIORITY, LEASE],
        request: Request::JsonOrQuery(read::<SettleFieldsIn>),
        answers: &[(200, Answer::Json(written::<SettledOut>))],
        errors: &[
            SCOPED,
            STORE,
            CHANGE,
            SENT,
            JSON,
            DURATIONS,
            &["malformed_receipt", "error_text_too_long", "invalid_setting", "lease_lost", "unknown_route"],
        ],
        ..NONE
    },
    Operation {
        method: "POST",
        path: "/v1/settle",
        id: "settle_many",
        tag: "settle",
        summary: "Settle many messages",
        request: Request::Items(read::<SettleIn>),
        answers: &[(200, Answer::Each(written::<Done<'static, SettledOut>>))],
        errors: &[SCOPED, STORE, CHANGE, SENT, JSON, BATCH],
        ..NONE
    },
    Operation {
        method: "POST",
        path: "/v1/queues/{queue}/dead/revive",
        id: "revive_many",
        tag: "dead",
        summary: "Bring dead messages back",
        query: &[OLDEST, ALL, DELAY, DUE, LEVEL],
        request: Request::JsonOrQuery(read::<ReviveIn>),
        answers: &[(200, Answer::Json(written::<SweptOut>))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, SENT, JSON, WHEN, ID, BATCH, &["unknown_queue"]],
        ..NONE
    },
    Operation {
        method: "POST",
        path: "/v1/queues/{queue}/dead/discard",
        id: "discard_many",
        tag: "dead",
        summary: "Remove dead messages",
        query: &[OLDEST, ALL],
        request: Request::JsonOrQuery(read::<SelectIn>),
        answers: &[(200, Answer::Json(written::<SweptOut>))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, SENT, JSON, ID, BATCH, &["unknown_queue"]],
        ..NONE
    },
    Operation {
        method: "GET",
        path: "/v1/queues",
        id: "queues",
        tag: "queues",
        summary: "A page of queues",
        query: &[QUEUE_CURSOR, PAGE],
        answers: &[(200, Answer::Json(written::<QueuesOut>))],
        errors: &[SCOPED, STORE, QUEUE, &["overloaded"]],
        ..NONE
    },
    Operation {
        method: "GET",
        path: "/v1/queues/{queue}",
        id: "queue",
        tag: "queues",
        summary: "A queue: counts and settings",
        answers: &[(200, Answer::Json(written::<QueueOut>))],
        errors: &[SCOPED, STORE, QUEUE, &["unknown_queue"]],
        ..NONE
    },
    Operation {
        method: "DELETE",
        path: "/v1/queues/{queue}",
        id: "delete_queue",
        tag: "queues",
        summary: "Remove all messages but the leased, and the queue's settings",
        request: Request::JsonOrQuery(read::<NoFieldsIn>),
        answers: &[(200, Answer::Json(written::<RemovedOut>))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, SENT, JSON, &["unknown_queue"]],
        ..NONE
    },
    Operation {
        method: "PATCH",
        path: "/v1/queues/{queue}/settings",
        id: "configure",
        tag: "queues",
        summary: "Change settings; null takes the queue's own value back",
        request: Request::Json(read::<SettingsIn>),
        answers: &[(200, Answer::Json(written::<QueueOut>))],
        errors: &[
            SCOPED,
            STORE,
            CHANGE,
            QUEUE,
            SENT,
            JSON,
            DURATIONS,
            INSTANTS,
            &["invalid_setting", "setting_fixed", "too_many_queues"],
        ],
        ..NONE
    },
    Operation {
        method: "POST",
        path: "/v1/queues/{queue}/pause",
        id: "pause",
        tag: "queues",
        summary: "Hand nothing out for a while",
        query: &[FOR, UNTIL],
        request: Request::JsonOrQuery(read::<PauseIn>),
        answers: &[(200, Answer::Json(written::<QueueOut>))],
        errors: &[
            SCOPED,
            STORE,
            CHANGE,
            QUEUE,
            SENT,
            JSON,
            DURATIONS,
            INSTANTS,
            &["invalid_setting", "too_many_queues"],
        ],
        ..NONE
    },
    Operation {
        method: "POST",
        path: "/v1/queues/{queue}/resume",
        id: "resume",
        tag: "queues",
        summary: "Hand out again",
        request: Request::JsonOrQuery(read::<NoFieldsIn>),
        answers: &[(200, Answer::Json(written::<QueueOut>))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, SENT, JSON, &["too_many_queues"]],
        ..NONE
    },
    Operation {
        method: "POST",
        path: "/v1/queues/{queue}/purge",
        id: "purge",
        tag: "queues",
        summary: "Remove all scheduled and ready messages",
        request: Request::JsonOrQuery(read::<NoFieldsIn>),
        answers: &[(200, Answer::Json(written::<RemovedOut>))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, SENT, JSON, &["unknown_queue"]],
        ..NONE
    },
    Operation {
        method: "GET",
        path: "/v1/limits",
        id: "limits",
        tag: "server",
        summary: "Version, limits and default settings",
        answers: &[(200, Answer::Json(written::<LimitsOut>))],
        errors: &[SCOPED],
        ..NONE
    },
    Operation {
        method: "GET",
        path: "/health/live",
        id: "live",
        tag: "server",
        summary: "Whether the process answers",
        answers: &[(200, Answer::Json(written::<HealthOut>))],
        ..NONE
    },
    Operation {
        method: "GET",
        path: "/health/ready",
        id: "ready",
        tag: "server",
        summary: "Whether the store answers",
        answers: &[(200, Answer::Json(written::<HealthOut>))],
        errors: &[STORE, CHANGE, &["shutting_down"]],
        ..NONE
    },
    Operation {
        method: "GET",
        path: "/metrics",
        id: "metrics",
        tag: "server",
        summary: "What the server counts, for Prometheus",
        answers: &[(200, Answer::Text("application/openmetrics-text"))],
        errors: &[SCOPED],
        ..NONE
    },
    Operation {
        method: "GET",
        path: "/openapi.json",
        id: "openapi",
        tag: "server",
        summary: "This document",
        answers: &[(200, Answer::Document)],
        ..NONE
    },
    Operation {
        method: "GET",
        path: "/errors/{code}",
        id: "error",
        tag: "server",
        summary: "What an error code means",
        answers: &[(200, Answer::Text("text/plain"))],
        errors: &[&["unknown_route"]],
        ..NONE
    },
    Operation {
        method: "GET",
        path: "/",
        id: "root",
        tag: "server",
        summary: "Version, and where the documentation is",
        answers: &[(200, Answer::Text("text/plain"))],
        ..NONE
    },
];

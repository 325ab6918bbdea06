//! The table of routes: each operation, what it requires of its caller, its request and its answers.
//!
//! A server's router, authorisation and OpenAPI document are made from it, and so are the paths of a client's requests.
//! To add an operation, add a row to [`ROUTES`] and fix what no longer compiles; then `docs/http.md` and
//! `docs/security.md`, which tests compare with the table.

use crate::asks::{
    MAY_ANYTHING, MAY_COUNT, MAY_COUNT_ALL, MAY_LOOK, MAY_LOOK_ALL, MAY_MANAGE, MAY_MOVE, MAY_PUT, MAY_TAKE,
};
use crate::parameters::*;
use crate::refusals::*;
use crate::{Asks, Asks::*, Verb};

/// What a request carries. Schemas are named as in the OpenAPI document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// No body.
    Nothing,
    /// A message's body.
    Raw,
    /// A JSON object of this schema.
    Json(&'static str),
    /// A JSON object, or its fields in the query.
    JsonOrQuery(&'static str),
    /// A JSON array, or lines; the schema is that of an item.
    Items(&'static str),
}

/// What a successful answer carries. Schemas are named as in the OpenAPI document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A JSON object of this schema.
    Json(&'static str),
    /// A JSON object, with `Location`.
    Created(&'static str),
    /// A JSON object, or the body alone.
    JsonOrRaw(&'static str),
    /// One answer per item; the schema is that of a successful one.
    Each(&'static str),
    /// No body.
    Nothing,
    /// Text of this media type.
    Text(&'static str),
    /// Text of one of these media types.
    Texts(&'static [&'static str]),
    /// The OpenAPI document.
    Document,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The operation.
    pub operation: Operation,
    /// Its name in the OpenAPI document.
    pub id: &'static str,
    /// Its method, in upper case.
    pub method: &'static str,
    /// Its path, with `{name}` for a segment that varies.
    pub path: &'static str,
    /// What it requires of its caller.
    pub asks: Asks,
    /// What it does, in a few words.
    pub summary: &'static str,
    /// The tag that groups it.
    pub tag: &'static str,
    /// Parameters of its query.
    pub query: &'static [Parameter],
    /// Names of the query parameters that are required.
    pub requires: &'static [&'static str],
    /// The headers that it reads.
    pub headers: &'static [Parameter],
    /// What the request carries.
    pub request: Request,
    /// The answers, by status.
    pub answers: &'static [(u16, Answer)],
    /// Groups of codes that it may be refused with, besides those of every operation.
    pub errors: &'static [&'static [&'static str]],
}

impl Route {
    /// All codes that it may be refused with.
    pub fn codes(&self) -> impl Iterator<Item = &'static str> {
        [ANY].into_iter().chain(self.errors.iter().copied()).flatten().copied()
    }
}

/// The default values of a row.
const NONE: Route = Route {
    operation: Operation::Root,
    id: "",
    method: "",
    path: "",
    asks: Nothing,
    summary: "",
    tag: "",
    query: &[],
    requires: &[],
    headers: &[],
    request: Request::Nothing,
    answers: &[],
    errors: &[],
};

/// A row is the name of the operation, its id, method and path, what it requires, and the other columns by name. The doc
/// comment of an operation is its summary.
macro_rules! routes {
    ($(
        #[doc = $summary:literal]
        $name:ident $id:literal: $method:ident $path:literal, $asks:expr => { $($column:ident: $value:expr,)* }
    )*) => {
        /// All operations of a server over HTTP.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Operation {
            $(#[doc = $summary] $name,)*
        }

        /// Every route, in the order of [`Operation`].
        pub static ROUTES: &[Route] = &[$(
            Route {
                operation: Operation::$name,
                id: $id,
                method: stringify!($method),
                path: $path,
                asks: $asks,
                summary: $summary.trim_ascii_start(),
                $($column: $value,)*
                ..NONE
            },
        )*];
    };
}

impl Operation {
    /// Its row of the table.
    pub fn route(self) -> &'static Route {
        &ROUTES[self as usize]
    }
}

routes! {
    /// Put a message
    Put "put": POST "/v1/queues/{queue}/messages", InQueue(MAY_PUT) => {
        tag: "put",
        query: &[DELAY, DUE, LEVEL, KEY, ON_CONFLICT, PRIORITY, EXPIRES, MAX_ATTEMPTS, LEASE],
        headers: &[IDEMPOTENCY_KEY],
        request: Request::Raw,
        answers: &[(200, Answer::Json("PutAnswer")), (201, Answer::Created("PutAnswer"))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, SENT, WHEN, PUT],
    }
    /// A page of messages in a state
    List "list": GET "/v1/queues/{queue}/messages", InQueue(MAY_LOOK) => {
        tag: "look",
        query: &[STATE, FROM, CURSOR, PAGE, BODY, PREVIEW],
        answers: &[(200, Answer::Json("MessagePage"))],
        errors: &[
            SCOPED, STORE, QUEUE, INSTANTS,
            &["malformed_cursor", "conflicting_fields", "unknown_queue", "overloaded"],
        ],
    }
    /// Put many messages into one queue
    PutMany "put_many": POST "/v1/queues/{queue}/messages:batch", InQueue(MAY_PUT) => {
        tag: "put",
        request: Request::Items("PutItem"),
        answers: &[(200, Answer::Each("PutAnswer"))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, SENT, JSON, BATCH],
    }
    /// Put many messages, each into the queue that it names
    PutManyAnywhere "put_many_anywhere": POST "/v1/messages:batch", InEach(MAY_PUT) => {
        tag: "put",
        request: Request::Items("PutItem"),
        answers: &[(200, Answer::Each("PutAnswer"))],
        errors: &[SCOPED, STORE, CHANGE, SENT, JSON, BATCH],
    }
    /// Get many messages; changes nothing
    GetMany "get_many": POST "/v1/queues/{queue}/messages:get", InQueue(MAY_LOOK) => {
        tag: "look",
        query: &[WITH_DEAD],
        request: Request::Items("Target"),
        answers: &[(200, Answer::Each("Found"))],
        errors: &[SCOPED, STORE, QUEUE, SENT, JSON, BATCH],
    }
    /// Cancel many messages
    CancelMany "cancel_many": POST "/v1/queues/{queue}/messages:cancel", InQueue(MAY_MOVE) => {
        tag: "change",
        request: Request::Items("Target"),
        answers: &[(200, Answer::Each("Cancelled"))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, SENT, JSON, BATCH],
    }
    /// Reschedule many messages
    RescheduleMany "reschedule_many": POST "/v1/queues/{queue}/messages:reschedule", InQueue(MAY_MOVE) => {
        tag: "change",
        request: Request::Items("RescheduleItem"),
        answers: &[(200, Answer::Each("Moved"))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, SENT, JSON, BATCH],
    }
    /// A message
    Get "get": GET "/v1/queues/{queue}/messages/{id}", InQueue(MAY_LOOK) => {
        tag: "look",
        query: &[BODY],
        answers: &[(200, Answer::JsonOrRaw("Message"))],
        errors: &[SCOPED, STORE, QUEUE, ID, FOUND],
    }
    /// Cancel a message
    Cancel "cancel": DELETE "/v1/queues/{queue}/messages/{id}", InQueue(MAY_MOVE) => {
        tag: "change",
        request: Request::JsonOrQuery("NoFields"),
        answers: &[(200, Answer::Json("Cancelled"))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, ID, SENT, JSON, STANDING],
    }
    /// Take this very message
    TakeOne "take_one": POST "/v1/queues/{queue}/messages/{id}/take", InQueue(MAY_TAKE) => {
        tag: "take",
        query: &[LEASE, HOLDER],
        request: Request::JsonOrQuery("LeaseFields"),
        answers: &[(200, Answer::JsonOrRaw("Delivery"))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, ID, SENT, JSON, DURATIONS, TAKE, STANDING, &["key_taken"]],
    }
    /// Move a message's instant
    Reschedule "reschedule": POST "/v1/queues/{queue}/messages/{id}/reschedule", InQueue(MAY_MOVE) => {
        tag: "change",
        query: &[DELAY, DUE, LEVEL],
        request: Request::JsonOrQuery("When"),
        answers: &[(200, Answer::Json("Moved"))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, ID, SENT, JSON, WHEN, STANDING],
    }
    /// Bring a dead message back
    Revive "revive": POST "/v1/queues/{queue}/messages/{id}/revive", InQueue(MAY_MANAGE) => {
        tag: "dead",
        query: &[DELAY, DUE, LEVEL],
        request: Request::JsonOrQuery("When"),
        answers: &[(200, Answer::Json("Swept"))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, ID, SENT, JSON, WHEN, DEAD],
    }
    /// Remove a dead message
    Discard "discard": POST "/v1/queues/{queue}/messages/{id}/discard", InQueue(MAY_MANAGE) => {
        tag: "dead",
        request: Request::JsonOrQuery("NoFields"),
        answers: &[(200, Answer::Json("Swept"))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, ID, SENT, JSON, DEAD],
    }
    /// Put a message under its key, in place of the one that has it
    PutKey "put_key": PUT "/v1/queues/{queue}/keys/{key}", InQueue(MAY_PUT) => {
        tag: "put",
        query: &[DELAY, DUE, LEVEL, ON_CONFLICT, PRIORITY, EXPIRES, MAX_ATTEMPTS, LEASE],
        headers: &[IDEMPOTENCY_KEY],
        request: Request::Raw,
        answers: &[(200, Answer::Json("PutAnswer")), (201, Answer::Created("PutAnswer"))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, SENT, WHEN, PUT],
    }
    /// The live message that has the key
    GetKey "get_key": GET "/v1/queues/{queue}/keys/{key}", InQueue(MAY_LOOK) => {
        tag: "look",
        query: &[WITH_DEAD, BODY],
        answers: &[(200, Answer::JsonOrRaw("Message"))],
        errors: &[SCOPED, STORE, QUEUE, WITH_KEY, FOUND],
    }
    /// Cancel the message that has the key
    CancelKey "cancel_key": DELETE "/v1/queues/{queue}/keys/{key}", InQueue(MAY_MOVE) => {
        tag: "change",
        request: Request::JsonOrQuery("NoFields"),
        answers: &[(200, Answer::Json("Cancelled"))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, WITH_KEY, SENT, JSON, STANDING],
    }
    /// Move the instant of the message that has the key
    RescheduleKey "reschedule_key": POST "/v1/queues/{queue}/keys/{key}/reschedule", InQueue(MAY_MOVE) => {
        tag: "change",
        query: &[DELAY, DUE, LEVEL],
        request: Request::JsonOrQuery("When"),
        answers: &[(200, Answer::Json("Moved"))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, WITH_KEY, SENT, JSON, WHEN, STANDING],
    }
    /// The message with the number
    GetNumber "get_number": GET "/v1/numbers/{number}", InEach(MAY_LOOK) => {
        tag: "look",
        query: &[BODY],
        answers: &[(200, Answer::JsonOrRaw("Message"))],
        errors: &[SCOPED, STORE, FOUND, &["malformed_number"]],
    }
    /// Take due messages of a queue
    Take "take": POST "/v1/queues/{queue}/take", InQueue(MAY_TAKE) => {
        tag: "take",
        query: &[MAX, MAX_BYTES, WAIT, LEASE, HOLDER],
        answers: &[(200, Answer::JsonOrRaw("Taken")), (204, Answer::Nothing)],
        errors: &[
            SCOPED, STORE, CHANGE, QUEUE, SENT, DURATIONS, TAKE,
            &["wait_too_long", "conflicting_fields", "malformed_json"],
        ],
    }
    /// Take due messages of several queues
    TakeFrom "take_from": POST "/v1/take", InEach(MAY_TAKE) => {
        tag: "take",
        query: &[QUEUES, MAX, MAX_BYTES, WAIT, LEASE, HOLDER],
        requires: &["queue"],
        answers: &[(200, Answer::JsonOrRaw("Taken")), (204, Answer::Nothing)],
        errors: &[
            SCOPED, STORE, CHANGE, QUEUE, SENT, DURATIONS, TAKE,
            &["wait_too_long", "too_many_names", "conflicting_fields", "malformed_json", "missing_field"],
        ],
    }
    /// Ack, retry, release, bury or extend
    Settle "settle": POST "/v1/receipts/{receipt}/{action}", InReceipt(MAY_TAKE) => {
        tag: "settle",
        query: &[AFTER, ERROR, REASON, PRIORITY, LEASE],
        request: Request::JsonOrQuery("SettleFields"),
        answers: &[(200, Answer::Json("Settled"))],
        errors: &[
            SCOPED, STORE, CHANGE, SENT, JSON, DURATIONS,
            &["malformed_receipt", "error_text_too_long", "invalid_setting", "lease_lost", "unknown_route"],
        ],
    }
    /// The message that a receipt is for
    GetReceipt "get_receipt": GET "/v1/receipts/{receipt}", InReceipt(MAY_LOOK) => {
        tag: "look",
        query: &[BODY],
        answers: &[(200, Answer::JsonOrRaw("Message"))],
        errors: &[SCOPED, STORE, FOUND, &["malformed_receipt"]],
    }
    /// Settle many messages
    SettleMany "settle_many": POST "/v1/settle", InEach(MAY_TAKE) => {
        tag: "settle",
        request: Request::Items("SettleItem"),
        answers: &[(200, Answer::Each("Settled"))],
        errors: &[SCOPED, STORE, CHANGE, SENT, JSON, BATCH],
    }
    /// End leases as if their deadlines were now
    ExpireLeases "expire_leases": POST "/v1/queues/{queue}/leases:expire", InQueue(MAY_MANAGE) => {
        tag: "settle",
        request: Request::Items("LeaseItem"),
        answers: &[(200, Answer::Each("Settled"))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, SENT, JSON, BATCH, &["not_leased", "lease_changed"]],
    }
    /// Bring dead messages back
    ReviveMany "revive_many": POST "/v1/queues/{queue}/dead/revive", InQueue(MAY_MANAGE) => {
        tag: "dead",
        query: &[OLDEST, ALL, DELAY, DUE, LEVEL],
        request: Request::JsonOrQuery("ReviveFields"),
        answers: &[(200, Answer::Json("Swept"))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, SENT, JSON, WHEN, ID, BATCH, &["unknown_queue"]],
    }
    /// Remove dead messages
    DiscardMany "discard_many": POST "/v1/queues/{queue}/dead/discard", InQueue(MAY_MANAGE) => {
        tag: "dead",
        query: &[OLDEST, ALL],
        request: Request::JsonOrQuery("Selection"),
        answers: &[(200, Answer::Json("Swept"))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, SENT, JSON, ID, BATCH, &["unknown_queue"]],
    }
    /// A page of queues
    Queues "queues": GET "/v1/queues", InEach(MAY_ANYTHING) => {
        tag: "queues",
        query: &[PREFIX, QUEUE_CURSOR, PAGE],
        answers: &[(200, Answer::Json("QueuePage"))],
        errors: &[SCOPED, STORE, QUEUE, &["overloaded"]],
    }
    /// A queue: counts and settings
    Queue "queue": GET "/v1/queues/{queue}", InQueue(MAY_ANYTHING) => {
        tag: "queues",
        answers: &[(200, Answer::Json("Queue"))],
        errors: &[SCOPED, STORE, QUEUE, &["unknown_queue"]],
    }
    /// Remove all messages but the leased, and the queue's settings
    DeleteQueue "delete_queue": DELETE "/v1/queues/{queue}", InQueue(MAY_MANAGE) => {
        tag: "queues",
        request: Request::JsonOrQuery("NoFields"),
        answers: &[(200, Answer::Json("Removed"))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, SENT, JSON, &["unknown_queue"]],
    }
    /// Change settings; null takes the queue's own value back
    Configure "configure": PATCH "/v1/queues/{queue}/settings", InQueue(MAY_MANAGE) => {
        tag: "queues",
        request: Request::Json("SettingsChange"),
        answers: &[(200, Answer::Json("Queue"))],
        errors: &[
            SCOPED, STORE, CHANGE, QUEUE, SENT, JSON, DURATIONS, INSTANTS,
            &["invalid_setting", "setting_fixed", "too_many_queues"],
        ],
    }
    /// Hand nothing out for a while
    Pause "pause": POST "/v1/queues/{queue}/pause", InQueue(MAY_MANAGE) => {
        tag: "queues",
        query: &[FOR, UNTIL],
        request: Request::JsonOrQuery("PauseFields"),
        answers: &[(200, Answer::Json("Queue"))],
        errors: &[
            SCOPED, STORE, CHANGE, QUEUE, SENT, JSON, DURATIONS, INSTANTS,
            &["invalid_setting", "too_many_queues"],
        ],
    }
    /// Hand out again
    Resume "resume": POST "/v1/queues/{queue}/resume", InQueue(MAY_MANAGE) => {
        tag: "queues",
        request: Request::JsonOrQuery("NoFields"),
        answers: &[(200, Answer::Json("Queue"))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, SENT, JSON, &["too_many_queues"]],
    }
    /// Remove all scheduled and ready messages
    Purge "purge": POST "/v1/queues/{queue}/purge", InQueue(MAY_MANAGE) => {
        tag: "queues",
        request: Request::JsonOrQuery("NoFields"),
        answers: &[(200, Answer::Json("Removed"))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, SENT, JSON, &["unknown_queue"]],
    }
    /// How many scheduled messages of a queue are due by some instants
    Forecast "forecast": GET "/v1/queues/{queue}/forecast", InQueue(MAY_COUNT) => {
        tag: "queues",
        query: &[EDGES, SPAN],
        answers: &[(200, Answer::Json("Forecast"))],
        errors: &[SCOPED, STORE, QUEUE, INSTANTS, &["unknown_queue", "conflicting_fields", "overloaded"]],
    }
    /// What has happened to a queue lately
    Recent "recent": GET "/v1/queues/{queue}/recent", InQueue(MAY_COUNT) => {
        tag: "queues",
        answers: &[(200, Answer::Json("Recent"))],
        errors: &[SCOPED, QUEUE],
    }
    /// How many scheduled messages of all queues are due by some instants
    ForecastAll "forecast_all": GET "/v1/forecast", Everywhere(MAY_COUNT_ALL) => {
        tag: "queues",
        query: &[EDGES, SPAN],
        answers: &[(200, Answer::Json("Forecast"))],
        errors: &[SCOPED, STORE, INSTANTS, &["conflicting_fields", "overloaded"]],
    }
    /// All queues at a glance
    Overview "overview": GET "/v1/overview", Everywhere(MAY_COUNT_ALL) => {
        tag: "queues",
        answers: &[(200, Answer::Json("Overview"))],
        errors: &[SCOPED, STORE],
    }
    /// What has died and was discarded since the server started, by queue and reason
    Deaths "deaths": GET "/v1/deaths", Everywhere(MAY_COUNT_ALL) => {
        tag: "queues",
        answers: &[(200, Answer::Json("Deaths"))],
        errors: &[SCOPED, STORE],
    }
    /// The sinks that the server runs
    Sinks "sinks": GET "/v1/sinks", Everywhere(MAY_LOOK_ALL) => {
        tag: "delivery",
        answers: &[(200, Answer::Json("Sinks"))],
        errors: &[SCOPED],
    }
    /// A sink: its state and counters
    Sink "sink": GET "/v1/sinks/{name}", Everywhere(MAY_LOOK_ALL) => {
        tag: "delivery",
        answers: &[(200, Answer::Json("Sink"))],
        errors: &[SCOPED, &["unknown_sink"]],
    }
    /// Connect to a sink's destination, without a message
    TestSink "test_sink": POST "/v1/sinks/{name}/test", Everywhere(MAY_MANAGE) => {
        tag: "delivery",
        request: Request::JsonOrQuery("NoFields"),
        answers: &[(200, Answer::Json("SinkTested"))],
        errors: &[SCOPED, SENT, JSON, &["unknown_sink"]],
    }
    /// Pause a sink until it is resumed, or the server is restarted
    PauseSink "pause_sink": POST "/v1/sinks/{name}/pause", Everywhere(MAY_MANAGE) => {
        tag: "delivery",
        request: Request::JsonOrQuery("NoFields"),
        answers: &[(200, Answer::Json("Sink"))],
        errors: &[SCOPED, SENT, JSON, &["unknown_sink"]],
    }
    /// Resume a sink
    ResumeSink "resume_sink": POST "/v1/sinks/{name}/resume", Everywhere(MAY_MANAGE) => {
        tag: "delivery",
        request: Request::JsonOrQuery("NoFields"),
        answers: &[(200, Answer::Json("Sink"))],
        errors: &[SCOPED, SENT, JSON, &["unknown_sink"]],
    }
    /// The schedules of the store
    Schedules "schedules": GET "/v1/schedules", Everywhere(MAY_LOOK_ALL) => {
        tag: "delivery",
        answers: &[(200, Answer::Json("Schedules"))],
        errors: &[SCOPED, STORE, &["overloaded"]],
    }
    /// A schedule
    Schedule "schedule": GET "/v1/schedules/{name}", Everywhere(MAY_LOOK_ALL) => {
        tag: "delivery",
        answers: &[(200, Answer::Json("Schedule"))],
        errors: &[SCOPED, STORE, SCHEDULE, &["overloaded"]],
    }
    /// Define a schedule; it replaces the one of the same name
    PutSchedule "put_schedule": PUT "/v1/schedules/{name}", Everywhere(MAY_MANAGE) => {
        tag: "delivery",
        request: Request::Json("ScheduleFields"),
        answers: &[(200, Answer::Json("ScheduleDefined")), (201, Answer::Json("ScheduleDefined"))],
        errors: &[SCOPED, STORE, CHANGE, QUEUE, SENT, JSON, DURATIONS, PUT, TAKE, SCHEDULE, DEFINITION],
    }
    /// Remove a schedule; runs that were put stay
    DeleteSchedule "delete_schedule": DELETE "/v1/schedules/{name}", Everywhere(MAY_MANAGE) => {
        tag: "delivery",
        request: Request::JsonOrQuery("NoFields"),
        answers: &[(200, Answer::Json("Removed"))],
        errors: &[SCOPED, STORE, CHANGE, SENT, JSON, SCHEDULE],
    }
    /// The next instants of a schedule
    NextRuns "next_runs": GET "/v1/schedules/{name}/next", Everywhere(MAY_LOOK_ALL) => {
        tag: "delivery",
        query: &[COUNT],
        answers: &[(200, Answer::Json("Instants"))],
        errors: &[SCOPED, STORE, SCHEDULE, &["overloaded"]],
    }
    /// Put a run of a schedule now, in addition to the runs at its instants
    RunSchedule "run_schedule": POST "/v1/schedules/{name}/run", Everywhere(MAY_MANAGE) => {
        tag: "delivery",
        request: Request::JsonOrQuery("NoFields"),
        answers: &[(200, Answer::Json("PutAnswer")), (201, Answer::Json("PutAnswer"))],
        errors: &[SCOPED, STORE, CHANGE, SENT, JSON, PUT, TAKE, SCHEDULE],
    }
    /// Pause a schedule until it is resumed
    PauseSchedule "pause_schedule": POST "/v1/schedules/{name}/pause", Everywhere(MAY_MANAGE) => {
        tag: "delivery",
        request: Request::JsonOrQuery("NoFields"),
        answers: &[(200, Answer::Json("Schedule"))],
        errors: &[SCOPED, STORE, CHANGE, SENT, JSON, PUT, TAKE, SCHEDULE],
    }
    /// Resume a schedule, from its next instant on
    ResumeSchedule "resume_schedule": POST "/v1/schedules/{name}/resume", Everywhere(MAY_MANAGE) => {
        tag: "delivery",
        request: Request::JsonOrQuery("NoFields"),
        answers: &[(200, Answer::Json("Schedule"))],
        errors: &[SCOPED, STORE, CHANGE, SENT, JSON, PUT, TAKE, SCHEDULE],
    }
    /// Version, limits and default settings
    Limits "limits": GET "/v1/limits", AnyToken => {
        tag: "server",
        answers: &[(200, Answer::Json("Limits"))],
        errors: &[SCOPED],
    }
    /// What the token is good for
    Me "me": GET "/v1/me", AnyToken => {
        tag: "server",
        answers: &[(200, Answer::Json("Me"))],
        errors: &[SCOPED],
    }
    /// Whether the process answers
    Live "live": GET "/health/live", Nothing => {
        tag: "server",
        answers: &[(200, Answer::Json("Health"))],
    }
    /// Whether the store answers
    Ready "ready": GET "/health/ready", Nothing => {
        tag: "server",
        answers: &[(200, Answer::Json("Health"))],
        errors: &[STORE, &["outcome_unknown", "disk_full", "shutting_down"]],
    }
    /// What the server counts, for Prometheus
    Metrics "metrics": GET "/metrics", Everywhere(&[Verb::Metrics, Verb::Manage]) => {
        tag: "server",
        answers: &[(200, Answer::Text("application/openmetrics-text"))],
        errors: &[SCOPED],
    }
    /// This document
    OpenApi "openapi": GET "/openapi.json", Nothing => {
        tag: "server",
        answers: &[(200, Answer::Document)],
    }
    /// What an error code means
    Error "error": GET "/errors/{code}", Nothing => {
        tag: "server",
        answers: &[(200, Answer::Text("text/plain"))],
        errors: &[&["unknown_route"]],
    }
    /// The web page for a browser; version, and where the documentation is, for others
    Root "root": GET "/", Nothing => {
        tag: "server",
        answers: &[(200, Answer::Texts(&["text/plain", "text/html"]))],
    }
    /// A file of the web page
    PageFile "page_file": GET "/page/{digest}/{file}", Nothing => {
        tag: "server",
        answers: &[(200, Answer::Texts(&["text/javascript", "text/css", "image/svg+xml"]))],
        errors: &[&["unknown_route"]],
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::CODES;

    fn page(name: &str) -> String {
        let path = format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    #[test]
    fn ids_and_routes_are_unique() {
        let ids: BTreeSet<&str> = ROUTES.iter().map(|route| route.id).collect();
        let routes: BTreeSet<(&str, &str)> = ROUTES.iter().map(|route| (route.method, route.path)).collect();
        assert_eq!((ids.len(), routes.len()), (ROUTES.len(), ROUTES.len()));
        assert!(ROUTES.iter().all(|route| route.operation.route().id == route.id));
    }

    #[test]
    fn every_part_of_a_path_is_described() {
        for route in ROUTES {
            for part in route.path.split('{').skip(1).filter_map(|rest| rest.split('}').next()) {
                assert!(PATH_PARAMETERS.iter().any(|parameter| parameter.name == part), "{part}");
            }
        }
    }

    #[test]
    fn every_code_belongs_to_a_route_and_every_route_s_codes_are_there() {
        let described: BTreeSet<&str> = ROUTES.iter().flat_map(Route::codes).collect();
        let all: BTreeSet<&str> = CODES.iter().map(|code| code.code).collect();
        let of_no_route = BTreeSet::from(["method_not_allowed"]);
        assert_eq!(described.union(&of_no_route).copied().collect::<BTreeSet<_>>(), all);
    }

    /// The rows of the table in the documentation, each as a method with all its paths: `POST /a/b` `/c` is two.
    fn documented() -> BTreeSet<String> {
        let page = page("http.md");
        let methods = ["GET", "POST", "PUT", "PATCH", "DELETE"];
        let cells = page.lines().filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
        let mut routes = BTreeSet::new();
        for cell in cells.filter(|cell| methods.iter().any(|method| cell.starts_with(method))) {
            let mut full = ("", "");
            for word in cell.split('`').map(str::trim).filter(|word| word.contains('/')) {
                if let Some((method, path)) = word.split_once(' ') {
                    full = (method, path.split('?').next().unwrap_or_default());
                    routes.insert(format!("{} {}", full.0, full.1));
                } else {
                    // A path that begins in the middle replaces as many segments at the end of the full one.
                    let base: Vec<&str> = full.1.split('/').collect();
                    let kept = base.len() - word.matches('/').count();
                    routes.insert(format!("{} {}{word}", full.0, base[..kept].join("/")));
                }
            }
        }
        routes
    }

    #[test]
    fn the_documentation_has_the_same_routes() {
        let actions = ["ack", "retry", "release", "bury", "extend"];
        let mut ours = BTreeSet::new();
        for Route { method, path, .. } in ROUTES {
            match path.strip_suffix("{action}") {
                Some(stem) => ours.extend(actions.map(|action| format!("{method} {stem}{action}"))),
                None => drop(ours.insert(format!("{method} {path}"))),
            }
        }
        assert_eq!(ours, documented());
    }

    #[test]
    fn the_documentation_has_the_same_scopes() {
        let page = page("security.md");
        let table = page.split("## Which scope for which route").nth(1).unwrap();
        let words = |verbs: &[Verb]| verbs.iter().map(|verb| verb.as_str()).collect::<Vec<_>>().join(", ");
        for Route { method, path, asks, .. } in ROUTES {
            let asks = match asks {
                Nothing => "no token".to_owned(),
                AnyToken => "any token".to_owned(),
                InQueue(verbs) | InReceipt(verbs) | InEach(verbs) => words(verbs),
                Everywhere(verbs) => format!("{}, for all queues", words(verbs)),
            };
            let row = format!("| `{method} {path}` | {asks} |");
            assert!(table.contains(&row), "docs/security.md lacks {row}");
        }
        let rows = table.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(rows, ROUTES.len(), "docs/security.md has routes that are not there");
    }
}

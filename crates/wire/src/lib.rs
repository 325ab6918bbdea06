//! The JSON and the routes of the HTTP interface, shared by both sides: a server writes and a client reads the same
//! types, and both find a route in the same table.
//!
//! `docs/http.md` describes the same for readers; tests compare it with this crate.
//!
//! What is written borrows, what is read owns its texts, and both are the same JSON. A request with an unknown field is
//! refused; in an answer an unknown field is ignored, so that a client can speak to a later server. The doc comments of
//! types and fields are the descriptions in `/openapi.json`, so they describe the JSON.
//!
//! # Layout
//! - [`Operation`], [`ROUTES`]: each method and path, what it requires of its caller, its request and answers;
//!   [`Parameter`], `refusals`: parts of the table; [`Path`]: a route's path with its names filled in
//! - [`Verb`], [`Asks`]: scopes
//! - [`CODES`]: each code of a refusal, with its status; [`Problem`]: the JSON of a refusal
//! - `message`, `put`, `settle`, `change`, `queue`, `forecast`, `deaths`, `delivery`, `server`: the JSON of requests and
//!   answers, one kind of operations each; `text`: durations and bytes in it; [`Unreadable`]: an answer that cannot be
//!   converted into a store's value
//! - `schema` (feature of that name): its JSON Schemas, for OpenAPI

mod asks;
mod change;
mod codes;
mod deaths;
mod delivery;
mod forecast;
mod message;
mod parameters;
mod path;
mod problem;
mod put;
mod queue;
mod refusals;
mod routes;
#[cfg(feature = "schema")]
pub mod schema;
mod server;
mod settle;
mod text;
mod unreadable;

pub use asks::{Asks, MAY_LOOK, Verb};
pub use change::{
    Cancelled, Moved, RefusedOne, Removed, RescheduleItem, ReviveFields, SelectFields, Swept, TargetFields,
    WhenFields,
};
pub use codes::{CODES, Code, lookup};
pub use deaths::{DeathCounts, Deaths, DiscardCounts, QueueDeaths};
pub use delivery::{
    Instants, Schedule, ScheduleDefined, ScheduleFields, ScheduleOutcome, Schedules, Sink, SinkQueue,
    SinkTested, Sinks, shown_body,
};
pub use forecast::{Census, Forecast, Overview, Recent, Series, Span, TopQueue};
pub use message::{Counts, Delivery, Found, Message, Page, Taken, lease_until};
pub use parameters::{PATH_PARAMETERS, Parameter};
pub use path::Path;
pub use problem::{Facts, Problem};
pub use put::{HeaderFields, ON_CONFLICT, PutAnswer, PutItem, PutOutcome};
pub use queue::{
    BackoffSettings, QueuePage, QueueSettings, QueueStats, StateCounts, UnreadQueue, pause_text,
};
pub use routes::{Answer, Operation, ROUTES, Request, Route};
pub use server::{Limits, Me, ServerInfo};
pub use settle::{LeaseItem, SettleItem, Settled};
pub use text::Base64;
pub use unreadable::Unreadable;

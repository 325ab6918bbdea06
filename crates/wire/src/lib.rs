//! What the HTTP interface carries, said once for both sides: a server writes what a client reads by the same types, and both
//! find a route in the same table.
//!
//! `docs/http.md` is the same for people; tests hold it against this.
//!
//! What is written borrows, what is read owns its texts, and both are the same JSON. A request with a field that is not known is
//! refused; in an answer such a field is passed over, so that a client can speak to a later server. What is said of a type or
//! a field here stands in `/openapi.json` too, so it is said of the JSON.
//!
//! # Layout
//! - [`Operation`], [`ROUTES`]: each method and path, what it asks of its caller, what it takes and answers; [`Parameter`],
//!   `refusals`: what the table is made of; [`Path`]: a route's path with its names filled in
//! - [`Verb`], [`Asks`]: scopes
//! - [`CODES`]: each code that a refusal may have, with its status; [`Problem`]: a refusal on its way
//! - `message`, `put`, `settle`, `change`, `queue`, `forecast`, `deaths`, `delivery`, `server`: what is asked and answered in JSON, a kind of operations each;
//!   `text`: durations and bytes in it; [`Unreadable`]: an answer of which no value of a store can be made
//! - `schema` (feature of that name): what all of that looks like, for OpenAPI

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

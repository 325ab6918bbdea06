//! What the HTTP interface carries, said once for both sides: a server answers, and a client asks, by the same table.
//!
//! `docs/http.md` is the same for people; tests hold it against this.
//!
//! # Layout
//! - [`Operation`], [`ROUTES`]: each method and path, what it asks of its caller, what it takes and answers; [`Parameter`],
//!   `refusals`: what the table is made of
//! - [`Verb`], [`Asks`]: scopes
//! - [`CODES`]: each code that a refusal may have, with its status

mod asks;
mod codes;
mod parameters;
mod refusals;
mod routes;

pub use asks::{Asks, MAY_LOOK, Verb};
pub use codes::{CODES, Code, lookup};
pub use parameters::{PATH_PARAMETERS, Parameter};
pub use routes::{Answer, Operation, ROUTES, Request, Route};

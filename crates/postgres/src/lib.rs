//! dwell over PostgreSQL: a store that many machines share, whose messages commit with the caller's own data.
//!
//! # Layout
//! - [`PostgresStore`]: the store; `sql/` has its tables and functions, and `docs/postgres.md` what each is for
//! - [`Address`]: where PostgreSQL is and how to reach it, as a URL
//! - [`OpenError`]: why a PostgreSQL cannot be used
//! - [`schema`]: the schema's files; [`fault`]: what an error of the server means; [`floor`]: where takes begin
//! - `link`: connections, and one statement a call

mod address;
mod error;
pub mod fault;
pub mod floor;
mod link;
pub mod schema;
mod store;
mod values;

pub use address::Address;
pub use error::OpenError;
pub use store::PostgresStore;

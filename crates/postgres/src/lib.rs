//! A store on PostgreSQL that many machines share, and whose messages commit with the caller's own data.
//!
//! # Layout
//! - [`PostgresStore`]: the store; `sql/` has its tables and functions, and `docs/postgres.md` describes them
//! - [`Administration`]: migration, rights of other roles, and removal of the schema
//! - [`Address`]: the address and options of a PostgreSQL, as a URL
//! - [`OpenError`]: why a PostgreSQL cannot be used
//! - [`schema`]: the SQL files; [`fault`]: the classes of the server's errors; [`floor`]: where takes begin
//! - `link`: the connection pool, and one statement per call; `tls`: its encryption
//! - `direct`: statements outside the pool; `install`: whether the schema is there, its installation and migration

mod address;
mod administration;
mod direct;
mod error;
pub mod fault;
pub mod floor;
mod install;
mod link;
pub mod schema;
mod store;
mod tls;
mod values;

pub use address::Address;
pub use administration::{Administration, Contents, Grant};
pub use error::OpenError;
pub use install::Migrated;
pub use store::PostgresStore;

//! What a PostgreSQL store is built on: the schema as SQL, where takes begin, and what the server's refusals mean.
//!
//! The store itself, with its connections, is not here yet. `docs/decisions/2026-11-26-postgres.md` has the design.

pub mod fault;
pub mod floor;
pub mod schema;

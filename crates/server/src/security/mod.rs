//! Access control: tokens and their scopes, and the server's certificate.
//!
//! - `scope`: what a token allows
//! - `token`: tokens as they are stored, and how a sent one is found among them
//! - `tls`: certificate, key, and the authority for clients
//! - `live`: the parts that can change while the server runs
//!
//! The scopes that routes require are in `dwell_wire`'s table of routes. The threat model is in `docs/security.md`.

mod live;
mod scope;
mod tls;
mod token;

pub(crate) use live::Live;
pub use scope::{MalformedScope, Scope};
pub use tls::{Tls, TlsError, TlsFiles};
pub use token::{Caller, MalformedDigest, Token, TokenDigest, Tokens};
pub(crate) use token::{KnownQueues, just_before};

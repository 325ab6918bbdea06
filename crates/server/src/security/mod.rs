//! Who may do what: tokens and their scopes, and the server's certificate.
//!
//! - `scope`: what a token is good for
//! - `token`: tokens as they are stored, and how one that is shown is found among them
//! - `tls`: certificate, key, and whom else to trust
//! - `live`: what of all that can change while the server runs
//!
//! Which route asks for which scope stands in `dwell_wire`'s table of routes. What is defended against, and what is not, is
//! said in `docs/security.md`.

mod live;
mod scope;
mod tls;
mod token;

pub(crate) use live::Live;
pub use scope::{MalformedScope, Scope};
pub use tls::{Tls, TlsError, TlsFiles};
pub use token::{Caller, MalformedDigest, Token, TokenDigest, Tokens};
pub(crate) use token::{Known, just_before};

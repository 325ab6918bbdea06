//! Sealed files: written once, from front to back, synced, and then only read, by position, until they are removed.
//!
//! What due files and runs have in common: name, header, footer, and how they are written and opened. Between
//! header and footer lie blocks with checksums of their own, and then the index, which is held in memory.
//!
//! # Ground rules
//! 1. Every byte is under a checksum that is salted with the file's [`Name`], so that bytes of another file,
//!    directory or shard never pass for its own.
//! 2. A sealed file counts from the moment that something durable names it. Until then it may be torn in any
//!    way; after that it may not, and damage in it is damage. It never judges which is which.
//! 3. A read that meets damage says where: [`ReadError`]. It gives no part of an answer.

mod error;
#[cfg(test)]
mod fixtures;
mod frame;
mod name;
mod open;
mod several;
mod writer;

pub(crate) use error::{ReadError, Result};
pub(crate) use frame::{FORMAT_VERSION, HEADER_LEN, is_header_of};
pub(crate) use name::{Kind, Name};
pub(crate) use open::Opened;
pub(crate) use several::open_all;
pub(crate) use writer::Appender;

/// So many bytes are written or read at once where one piece follows another.
pub(crate) const PIECE: usize = 256 * 1024;

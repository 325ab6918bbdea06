//! Sealed files: written once, from front to back, synced, and then only read, by position, until they are removed.
//!
//! What tables and runs have in common: name, header, footer, and how they are written and opened. Between header
//! and footer lie blocks with their own checksums, and then the index, which is held in memory.
//!
//! # Ground rules
//! 1. Every byte is under a checksum that is salted with the file's [`FileId`], so that bytes of another file,
//!    directory or shard never pass.
//! 2. A sealed file counts from the moment that something durable names it. Until then it may be torn in any way;
//!    after that it may not, and is damaged if it is. This module never decides which is the case.
//! 3. A read of damaged bytes returns their offset: [`ReadError`]. It returns no partial result.

mod error;
mod file_id;
#[cfg(test)]
mod fixtures;
mod header_footer;
mod open;
mod open_all;
mod writer;

pub(crate) use error::{ReadError, Result};
pub(crate) use file_id::{FileId, FileKind};
pub(crate) use header_footer::{FORMAT_VERSION, HEADER_LEN, is_header_of};
pub(crate) use open::OpenedFile;
pub(crate) use open_all::open_all;
pub(crate) use writer::Appender;

/// The size in bytes of sequential reads and writes.
pub(crate) const PIECE: usize = 256 * 1024;

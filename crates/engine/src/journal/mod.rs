//! The journal: batches of records, appended to segments.
//!
//! # Layout
//! - `format`: names, headers, checksums, [`FORMAT_VERSION`]
//! - `encoding`, `record`, `setting`: the encoding of records
//! - `batch`: a batch while it is built; `segment`: an open segment, and the place of a body in it
//! - `writer`: appending, syncing, rolling over to the next segment, removing the oldest
//! - `reader`: reading a segment batch by batch, and searching for marks behind damage

pub(crate) mod batch;
pub(crate) mod encoding;
pub(crate) mod format;
pub(crate) mod reader;
pub(crate) mod record;
pub(crate) mod segment;
mod setting;
pub(crate) mod writer;

pub use format::FORMAT_VERSION;

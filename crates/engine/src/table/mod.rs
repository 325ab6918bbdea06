//! Tables: messages that outlived the journal, in the order in which they are wanted, each with its body.
//!
//! A table is a [sealed](crate::sealed) file. Its entries are in the order of (queue, state, priority, due, id).
//! Those of one queue, state and priority are a [`Section`]: the messages that a take hands out first are at the
//! beginning of one, a purge is a range of them. An entry's index in the file is its *ordinal*, from 0. Later changes
//! of a message are not recorded here: its settlement is a bit in [`DeletionBitmap`], any other change makes it a
//! message of the journal again.
//!
//! # Layout
//! - [`Entry`], `order`: what a file keeps of a message, and the order of a file
//! - `entry_head`: the stored form of an entry without its body; `block`: heads and bodies that are read together
//! - `section`, `expiry_chunk`, `index`: the parts of the index, in memory and stored
//! - `writer`, `reader`, `block_reader`, `scan`: writing, reading by ordinal, a block kept in memory, sequential
//!   reading
//! - `deletion_bitmap`: which ordinals are settled
//! - `check`: all checks of a file; `salvage`: reading a damaged file

mod block;
mod block_reader;
mod check;
mod deletion_bitmap;
mod entry;
mod entry_head;
mod expiry_chunk;
mod index;
mod order;
mod reader;
mod salvage;
mod scan;
mod section;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod transcript;
mod writer;

pub(crate) use block::{BodyPlace, TableEntry};
pub(crate) use block_reader::BlockReader;
pub(crate) use deletion_bitmap::DeletionBitmap;
#[cfg(test)]
pub(crate) use deletion_bitmap::pages_changed;
pub(crate) use entry::Entry;
pub(crate) use order::{SectionState, SortKey};
pub(crate) use reader::{Between, Table};
pub(crate) use salvage::{Salvaged, salvage};
pub(crate) use section::Section;
pub(crate) use writer::TableWriter;

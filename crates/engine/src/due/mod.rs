//! Due files: messages that outlived the journal, in the order in which they are wanted, each with its body.
//!
//! A due file is a [sealed](crate::sealed) file. Its entries are in the order of (queue, state, priority, due, id).
//! Those of one queue, state and priority are a [`Lane`]: the messages that a take hands out first are at the beginning
//! of one, a purge is a range of them. An entry's index in the file is its *ordinal*, from 0. Later changes of a
//! message are not recorded here: its settlement is a bit in [`Settled`], any other change makes it a message of the
//! journal again.
//!
//! # Layout
//! - [`Entry`], `order`: what a file keeps of a message, and the order of a file
//! - `head`: the stored form of an entry without its body; `block`: heads and bodies that are read together
//! - `lane`, `expiry`, `index`: the parts of the index, in memory and stored
//! - `writer`, `file`, `reading`, `scan`: writing, reading by ordinal, a block kept in memory, sequential reading
//! - `settled`: which ordinals are settled
//! - `verify`: all checks of a file; `salvage`: reading a damaged file

mod block;
mod entry;
mod expiry;
mod file;
mod head;
mod index;
mod lane;
mod order;
mod reading;
mod salvage;
mod scan;
mod settled;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod transcript;
mod verify;
mod writer;

pub(crate) use block::{BodyPlace, Found};
pub(crate) use entry::Entry;
pub(crate) use file::{Between, File};
pub(crate) use lane::Lane;
pub(crate) use order::{LaneState, SortKey};
pub(crate) use reading::Reading;
pub(crate) use salvage::{Salvaged, salvage};
pub(crate) use settled::Settled;
#[cfg(test)]
pub(crate) use settled::pages_changed;
pub(crate) use writer::Writer;

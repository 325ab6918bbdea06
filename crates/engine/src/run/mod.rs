//! Runs: sorted from keys to values, to find a message that lies in a due file by its number or its key.
//!
//! A run is a [sealed](crate::sealed) file of (key, value) pairs in rising order, of one of two kinds:
//!
//! | kind | key | value | of a key |
//! |---|---|---|---|
//! | numbers | a message's number | [`Home`]: the due file and the ordinal where it lies | one value |
//! | keys | [`key_hash`] of queue and key | the number of a message with such a key | any number of values |
//!
//! A lookup asks the range of the run, its filter, its sparse index, all in memory, and then reads one block. What a
//! run says may be outdated: of several runs the newest that knows a number is right, and whoever is found by a
//! hash has to be looked at. Nothing is ever removed from a run; [`merge`] makes one out of several, and its caller
//! leaves out what is of no use any more.
//!
//! # Layout
//! - `value`, `hash`: what is in a run
//! - `block`, `filter`, `index`: its parts, in memory and as bytes
//! - `writer`, `parts`: writing one, and as many as it takes; `file`, `merge`: looking up and reading through, making one of
//!   several; `number_set`: of which messages; `lost`: keys that damage hides

mod block;
mod file;
mod filter;
mod hash;
mod index;
mod lost;
mod merge;
mod number_set;
mod parts;
#[cfg(test)]
mod tests;
mod value;
mod writer;

pub(crate) use file::Run;
pub(crate) use hash::{key_hash, key_hash_of, may_be_of_dead};
pub(crate) use lost::Lost;
pub(crate) use merge::{Merge, Merged, merge};
pub(crate) use number_set::NumberSet;
pub(crate) use parts::Parts;
pub(crate) use value::{Home, Value};
pub(crate) use writer::Writer;

//! Runs: sorted maps of keys to values, to find a message in a table by its number or its key.
//!
//! An index run is a [sealed](crate::sealed) file of (key, value) pairs in rising order, of one of two kinds:
//!
//! | kind | key | value | values per key |
//! |---|---|---|---|
//! | numbers | a message's number | [`TableRef`]: its table and ordinal | one |
//! | keys | [`key_hash`] of queue and key | the number of a message with such a key | any number |
//!
//! A lookup checks the range of the index run, its filter and its sparse index, all in memory, and then reads one
//! block. What a run has may be outdated: of several index runs the newest that has a number is right, and a message
//! that is found by a hash has to be checked. Nothing is ever removed from a run; [`merge`] makes one out of several,
//! and its caller leaves out what is no longer needed.
//!
//! # Layout
//! - `value`, `key_hash`: the content of a run
//! - `block`, `filter`, `index`: its parts, in memory and stored
//! - `writer`, `split_writer`: writing one, and one after another; `reader`, `merge`: lookups and sequential reading,
//!   making one of several; `number_set`: sets of messages; `unreadable_keys`: keys that damage hides

mod block;
mod filter;
mod index;
mod key_hash;
mod merge;
mod number_set;
mod reader;
mod split_writer;
#[cfg(test)]
mod tests;
mod unreadable_keys;
mod value;
mod writer;

pub(crate) use key_hash::{key_hash, key_hash_of, may_be_of_dead};
pub(crate) use merge::{MergedPair, RunMerge, merge};
pub(crate) use number_set::NumberSet;
pub(crate) use reader::IndexRun;
pub(crate) use split_writer::SplitWriter;
pub(crate) use unreadable_keys::UnreadableKeys;
pub(crate) use value::{IndexValue, TableRef};
pub(crate) use writer::RunWriter;

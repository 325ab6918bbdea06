//! Errors of an answer that is JSON of the right form but cannot be converted into a store's value.

use std::fmt;

/// A value in an answer that is missing or impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable(pub(crate) &'static str);

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Unreadable {}

//! An answer that is JSON of the right form, and of which no value of a store can be made.

use std::fmt;

/// What is missing in an answer, or cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable(pub(crate) &'static str);

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Unreadable {}

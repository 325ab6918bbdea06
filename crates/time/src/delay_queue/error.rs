//! The errors of a [`DelayQueue`](super::DelayQueue).

use std::error::Error;
use std::fmt;

/// The queue was closed, and every due item has been taken.
///
/// The remaining items, due or not, can be taken with [`DelayQueue::drain`](super::DelayQueue::drain).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the delay queue is closed; drain() hands over what is left in it")
    }
}

impl Error for Closed {}

/// A refused put. Carries the value that was not put.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PutError<T> {
    /// The queue was closed, before the put or while it waited for room.
    Closed(T),
    /// The queue has reached its capacity limit. Returned by `try_put` alone; the other puts wait.
    Full(T),
    /// The instant is more than 292 years after the start of the program: instants are 64-bit nanoseconds.
    TooFar(T),
}

impl<T> PutError<T> {
    /// Returns the value that was not put.
    pub fn into_value(self) -> T {
        match self {
            PutError::Closed(value) | PutError::Full(value) | PutError::TooFar(value) => value,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            PutError::Closed(_) => "the delay queue is closed and takes no more items",
            PutError::Full(_) => {
                "the delay queue is full; try again when an item has left, or use put, which waits"
            }
            PutError::TooFar(_) => "the instant is more than 292 years away; choose an earlier one",
        }
    }
}

impl<T> fmt::Debug for PutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PutError::Closed(_) => "Closed(..)",
            PutError::Full(_) => "Full(..)",
            PutError::TooFar(_) => "TooFar(..)",
        })
    }
}

impl<T> fmt::Display for PutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl<T> Error for PutError<T> {}

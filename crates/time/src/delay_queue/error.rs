//! Why a [`DelayQueue`](super::DelayQueue) refuses.

use std::error::Error;
use std::fmt;

/// The queue was closed, and what is due in it has been handed over.
///
/// What is left, due or not, can be had with [`DelayQueue::drain`](super::DelayQueue::drain).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the delay queue is closed; drain() hands over what is left in it")
    }
}

impl Error for Closed {}

/// A value that was not put. It comes back in the error.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PutError<T> {
    /// The queue was closed, before the put or while it waited for room.
    Closed(T),
    /// The queue holds as many items as its capacity limit allows. Only `try_put` says so; the others wait.
    Full(T),
    /// The instant lies more than 292 years from the start of the program: nanoseconds are counted in 64 bits.
    TooFar(T),
}

impl<T> PutError<T> {
    /// The value that was not put.
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

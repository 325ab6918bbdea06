//! Calls of code that belongs to somebody else, such as a task's waker: what it panics with ends here.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs what belongs to somebody else; nothing if it panicked, of which the panic hook has told already.
///
/// A store answers many callers one after the other. Without this the waker of one takes the answers of the others along,
/// and the thread that gives them.
pub fn contained<T>(call: impl FnOnce() -> T) -> Option<T> {
    let payload = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(done) => return Some(done),
        Err(payload) => payload,
    };
    // What was thrown belongs to somebody else too.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        mem::forget(payload);
    }
    None
}

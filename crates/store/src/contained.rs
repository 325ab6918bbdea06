//! Calls of foreign code, such as a task's waker: a panic in it ends here.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs foreign code. Returns `None` if it panicked, which the panic hook has already reported.
///
/// A store answers many callers one after the other. Without this, a panic in one caller's waker would take
/// down the thread that sends the answers, and with it the answers of the other callers.
pub fn contained<T>(call: impl FnOnce() -> T) -> Option<T> {
    let payload = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(done) => return Some(done),
        Err(payload) => payload,
    };
    // The panic payload is foreign too.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        mem::forget(payload);
    }
    None
}

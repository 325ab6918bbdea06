//! Counts the present members of a group, such as a line of waiters.

use std::sync::atomic::{AtomicUsize, Ordering};

/// One member, until it is dropped.
pub(crate) struct Present<'a>(&'a AtomicUsize);

impl<'a> Present<'a> {
    pub(crate) fn among(count: &'a AtomicUsize) -> Present<'a> {
        count.fetch_add(1, Ordering::SeqCst);
        Present(count)
    }
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

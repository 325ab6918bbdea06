//! Counts those who are somewhere at present: in a line, among those who ask.

use std::sync::atomic::{AtomicUsize, Ordering};

/// One of those, for as long as this lives.
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

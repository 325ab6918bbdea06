//! Counts, in tests, the entries that a call has looked at or moved, so that a slow worst case shows as a number.

#[cfg(test)]
thread_local! {
    static TOUCHED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Adds entries that were looked at or moved, in addition to the one that was asked for.
#[inline]
pub(super) fn touched(entries: usize) {
    #[cfg(test)]
    TOUCHED.set(TOUCHED.get() + entries);
    #[cfg(not(test))]
    let _ = entries;
}

/// The count since the last call of this function.
#[cfg(test)]
pub(super) fn take() -> usize {
    TOUCHED.take()
}

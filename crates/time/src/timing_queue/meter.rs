//! Counts, in tests, how many entries a call has looked at or moved: a slow worst case shows as a number, not as time.

#[cfg(test)]
thread_local! {
    static TOUCHED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// So many entries were looked at or moved, beyond the one that was asked for.
#[inline]
pub(super) fn touched(entries: usize) {
    #[cfg(test)]
    TOUCHED.set(TOUCHED.get() + entries);
    #[cfg(not(test))]
    let _ = entries;
}

/// How many since the last call of this.
#[cfg(test)]
pub(super) fn take() -> usize {
    TOUCHED.take()
}

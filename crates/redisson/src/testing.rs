//! For tests: calls that are made twice, as happens where an answer is lost.

use std::cell::Cell;

thread_local! {
    /// Whether scripts that change something are called twice on this thread, with the same arguments.
    pub(crate) static REPEATS: Cell<bool> = const { Cell::new(false) };
}

/// From now on, each script of this thread that changes something is called twice with the same arguments, and its
/// second answer is the one that counts.
pub fn repeat_calls(repeat: bool) {
    REPEATS.set(repeat);
}

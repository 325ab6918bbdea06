//! For tests: makes every call twice, as happens when a reply is lost.

use std::cell::Cell;

thread_local! {
    /// Whether scripts that change something are called twice on this thread, with the same arguments.
    pub(crate) static REPEATS: Cell<bool> = const { Cell::new(false) };
}

/// Sets whether each script of this thread that changes something is called twice with the same arguments.
///
/// The second reply is then the one that counts.
pub fn repeat_calls(repeat: bool) {
    REPEATS.set(repeat);
}

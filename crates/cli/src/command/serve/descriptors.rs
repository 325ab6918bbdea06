//! File descriptors: a connection needs one, and many systems allow 1,024 unless a process asks for more.

/// Asks for as many as it may have.
#[cfg(unix)]
pub(super) fn raise() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Refused, there are as many as there were; the listeners wait when they are used up.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// Elsewhere there is no such limit.
#[cfg(not(unix))]
pub(super) fn raise() {}

//! File descriptors: a connection needs one, and many systems allow 1,024 unless a process asks for more.

/// So many files the store may have open at a time, and whoever is told that there is no place for a connection.
#[cfg(unix)]
const KEPT_BACK: usize = 512;

/// Asks for as many as it may have; so many connections there may be then, with enough left for the store. None of its files
/// is to be refused because idle clients have them all.
#[cfg(unix)]
pub(super) fn raise() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Refused, there are as many as there were.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    connections(getrlimit(Resource::Nofile).current)
}

/// Elsewhere there is no such limit.
#[cfg(not(unix))]
pub(super) fn raise() -> usize {
    usize::MAX
}

/// With so many files, or any number of them.
#[cfg(unix)]
fn connections(files: Option<u64>) -> usize {
    let Some(files) = files else { return usize::MAX };
    let files = usize::try_from(files).unwrap_or(usize::MAX);
    files - KEPT_BACK.min(files / 2)
}

#[cfg(all(test, unix))]
mod tests {
    use super::connections;

    #[test]
    fn the_store_keeps_its_files() {
        assert_eq!(connections(None), usize::MAX);
        assert_eq!(connections(Some(u64::MAX)), usize::MAX - 512);
        assert_eq!((connections(Some(4_096)), connections(Some(64))), (3_584, 32));
    }
}

//! File descriptors: a connection needs one, and many systems allow 1,024 unless a process raises its limit.

/// The number of files reserved for the store and for connections that are being refused.
#[cfg(unix)]
const KEPT_BACK: usize = 512;

/// Raises the limit as far as it can; returns the number of connections that then leave enough for the store. None of
/// its files may fail to open because idle clients have them all.
#[cfg(unix)]
pub(super) fn raise() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // If it is refused, the limit stays.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    connections(getrlimit(Resource::Nofile).current)
}

/// Other systems have no such limit.
#[cfg(not(unix))]
pub(super) fn raise() -> usize {
    usize::MAX
}

/// With this limit on files, or none.
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

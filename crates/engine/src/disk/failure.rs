//! Classification of disk errors: full, temporary, or a damaged medium.

use std::io;

use rustix::io::Errno;

/// Whether there is no room, or no quota.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether the process or the system has reached its limit of open files.
pub(crate) fn has_no_file_left(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// Whether the call failed for lack of a resource of the process: this says nothing about the file.
pub(crate) fn is_passing(error: &io::Error) -> bool {
    has_no_file_left(error)
        || matches!(error.kind(), io::ErrorKind::OutOfMemory | io::ErrorKind::Interrupted)
        || matches!(error.kind(), io::ErrorKind::WouldBlock)
}

/// Whether the medium could not be read at that place, like a bad sector. A file that is missing, or may not be
/// opened, is a different error: it can be corrected.
pub(crate) fn is_of_medium(error: &io::Error) -> bool {
    match Errno::from_io_error(error) {
        // The last two: the errors of XFS and ext4 for a wrong checksum of their own, and of btrfs for compressed
        // data.
        Some(errno) => matches!(errno, Errno::IO | Errno::NODATA | Errno::BADMSG | Errno::ILSEQ),
        None => matches!(
            error.kind(),
            io::ErrorKind::Other | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
        ),
    }
}

/// A copy of the error for another caller.
pub(crate) fn copied(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_process_is_short_of_is_told_from_a_bad_medium() {
        let of = |errno: Errno| io::Error::from_raw_os_error(errno.raw_os_error());
        for short in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::INTR, Errno::AGAIN] {
            assert!(is_passing(&of(short)) && !is_of_medium(&of(short)), "{short}");
            assert!(is_passing(&copied(&of(short))), "{short}");
        }
        for bad in [Errno::IO, Errno::BADMSG, Errno::NODATA] {
            assert!(is_of_medium(&of(bad)) && !is_passing(&of(bad)), "{bad}");
        }
        for mended in [Errno::NOENT, Errno::ACCESS, Errno::STALE] {
            assert!(!is_of_medium(&of(mended)) && !is_passing(&of(mended)), "{mended}");
        }
        assert!(is_of_medium(&io::Error::other("a disk in memory")));
        for full in [Errno::NOSPC, Errno::DQUOT] {
            assert!(is_full(&of(full)) && !is_of_medium(&of(full)), "{full}");
        }
    }
}

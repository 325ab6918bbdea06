//! Opening many files, several at a time, since each mostly waits for the disk.
//!
//! Each thread announces what it will read of a group of files before it reads any: so the disk has more requests
//! than there are threads.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::open::{OpenedFile, UnreadFile};
use super::{FileId, Result};
use crate::disk::Disk;

/// The maximum number of threads that open files,
const AT_A_TIME: usize = 8;
/// and the number of files that each has under way. Fewer files than this are not worth another thread.
const EACH: usize = 16;

/// Opens files; the results of `make` are in the order of the names. Without threads the files are opened one after
/// the other. After an error no more are begun; of several errors it returns that of the first name.
pub(crate) fn open_all<T: Send>(
    disk: &dyn Disk,
    dir: &Path,
    names: &[FileId],
    with_threads: bool,
    make: impl Fn(OpenedFile) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    if !with_threads {
        return names.iter().map(|name| make(OpenedFile::open(disk, dir, *name)?)).collect();
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut opened = Vec::new();
        loop {
            let at = next.fetch_add(EACH, Ordering::Relaxed);
            let Some(names) = names.get(at..).filter(|names| !names.is_empty()) else { return opened };
            let names = &names[..names.len().min(EACH)];
            let found: Vec<_> = names.iter().map(|name| UnreadFile::open(disk, dir, *name)).collect();
            for (at, found) in (at..).zip(found) {
                let one = found.and_then(OpenedFile::read).and_then(&make);
                if one.is_err() {
                    next.store(ENDED, Ordering::Relaxed);
                }
                opened.push((at, one));
            }
        }
    };
    let mut opened = thread::scope(|scope| {
        // If no thread can be started, the others do its work, and at least the current one does.
        let spawn = |_| thread::Builder::new().name("dwell-open".to_owned()).spawn_scoped(scope, work).ok();
        let helpers = (names.len() / EACH).min(AT_A_TIME);
        let spawned: Vec<_> = (1..helpers).filter_map(spawn).collect();
        let mut opened = work();
        for helper in spawned {
            opened.extend(helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        opened
    });
    opened.sort_unstable_by_key(|(at, _)| *at);
    opened.into_iter().map(|(_, one)| one).collect()
}

/// An index beyond any list of names; arithmetic above it cannot overflow.
const ENDED: usize = usize::MAX / 2;

#[cfg(test)]
mod tests {
    use super::super::{Appender, FileKind, ReadError};
    use super::*;
    use crate::disk::MemoryDisk;

    #[test]
    fn gives_files_in_the_order_of_their_names_or_the_first_error() {
        let (disk, dir) = (MemoryDisk::new(), Path::new("/d"));
        disk.create_dir(dir).unwrap();
        let name = |number| FileId { directory: 7, shard: 0, kind: FileKind::Table, number };
        let names: Vec<FileId> = (0..100).map(name).collect();
        for name in &names {
            Appender::create(&disk, dir, *name).unwrap().finish(Vec::new()).unwrap();
        }
        for with_threads in [false, true] {
            let opened = open_all(&disk, dir, &names, with_threads, |opened| Ok(opened.name.number)).unwrap();
            assert!(opened.into_iter().eq(0..100));
            let fails = |opened: OpenedFile| match opened.name.number % 40 {
                39 => Err(ReadError::damaged(&opened.path, 0, "torn")),
                _ => Ok(()),
            };
            let error = open_all(&disk, dir, &names, with_threads, fails).unwrap_err();
            assert!(error.to_string().contains(&name(39).file_name()), "{error}");
        }
        disk.remove(&dir.join(name(70).file_name())).unwrap();
        for with_threads in [false, true] {
            let error = open_all(&disk, dir, &names, with_threads, Ok).unwrap_err();
            assert!(error.to_string().contains(&name(70).file_name()), "{error}");
        }
    }
}

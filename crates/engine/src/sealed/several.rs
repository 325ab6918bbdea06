//! Opening many files: several at a time, since each waits for the disk most of the while.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::{Name, Result};

/// So many are opened at a time.
const AT_A_TIME: usize = 8;
/// Fewer files than this are no work for another thread.
const EACH: usize = 4;

/// Opens files; what it gives is in the order of their names. Without threads one is opened after the other. After an error
/// no more are begun; of several errors it gives that of the first name.
pub(crate) fn open_all<T: Send>(
    names: &[Name],
    with_threads: bool,
    open: impl Fn(Name) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let helpers = if with_threads { (names.len() / EACH).min(AT_A_TIME) } else { 0 };
    if helpers < 2 {
        return names.iter().map(|name| open(*name)).collect();
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut opened = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(name) = names.get(at) else { return opened };
            let one = open(*name);
            if one.is_err() {
                next.store(names.len(), Ordering::Relaxed);
            }
            opened.push((at, one));
        }
    };
    let mut opened = thread::scope(|scope| {
        // Without a thread the others do its work, and at the least this one does.
        let spawn = |_| thread::Builder::new().name("dwell-open".to_owned()).spawn_scoped(scope, work).ok();
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{Kind, ReadError};
    use super::*;

    #[test]
    fn gives_files_in_the_order_of_their_names_or_the_first_error() {
        let name = |number| Name { directory: 7, shard: 0, kind: Kind::Due, number };
        let names: Vec<Name> = (0..100).map(name).collect();
        for with_threads in [false, true] {
            let opened = open_all(&names, with_threads, |name| Ok(name.number)).unwrap();
            assert!(opened.into_iter().eq(0..100));
            let fails = |name: Name| match name.number % 40 {
                39 => Err(ReadError::damaged(Path::new(&name.file_name()), 0, "torn")),
                _ => Ok(()),
            };
            let error = open_all(&names, with_threads, fails).unwrap_err();
            assert!(error.to_string().contains(&name(39).file_name()), "{error}");
        }
    }
}

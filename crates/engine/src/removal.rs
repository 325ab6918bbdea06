//! Files go that nothing needs any more.
//!
//! A large file takes milliseconds to remove, and its room is freed when the last who holds it open lets go of it. So
//! where there may be threads one does that, and gives way to whoever serves.
//!
//! # Ground rules
//! 1. Whoever hands a file over has made durable, before, what makes do without it.
//! 2. Nothing depends on its going: what can not be removed now is removed when the store is next opened.
//! 3. All that was handed over is removed before the directory is let go.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use crate::background::{Spawner as _, SystemThreads};
use crate::disk::Disk;

/// A file, and what holds it open, if anything does.
type Gone = (PathBuf, Option<Box<dyn Any + Send>>);

/// Removes files, in order.
#[derive(Debug)]
pub(crate) struct Removal {
    disk: Arc<dyn Disk>,
    thread: OnceLock<(Sender<Gone>, JoinHandle<()>)>,
}

impl Removal {
    /// Removes them at once, until there may be threads.
    pub(crate) fn new(disk: Arc<dyn Disk>) -> Arc<Removal> {
        Arc::new(Removal { disk, thread: OnceLock::new() })
    }

    /// From now on a thread does it, if the system has one left.
    pub(crate) fn use_threads(&self) {
        let disk = Arc::clone(&self.disk);
        let (send, gone) = mpsc::channel::<Gone>();
        let work = move || gone.into_iter().for_each(|(path, holder)| remove(&*disk, &path, holder));
        if let Ok(handle) = SystemThreads.spawn("dwell-remove", Box::new(work)) {
            // Asked for once more, the thread that is there stays.
            let _ = self.thread.set((send, handle));
        }
    }

    /// A file goes that nobody holds open.
    pub(crate) fn remove(&self, path: PathBuf) {
        self.take((path, None));
    }

    /// A file goes that `holder` holds open.
    pub(crate) fn remove_held(&self, path: PathBuf, holder: impl Any + Send) {
        self.take((path, Some(Box::new(holder))));
    }

    fn take(&self, gone: Gone) {
        let left = match self.thread.get() {
            // A thread that has panicked takes nothing.
            Some((send, _)) => send.send(gone).err().map(|unsent| unsent.0),
            None => Some(gone),
        };
        if let Some((path, holder)) = left {
            remove(&*self.disk, &path, holder);
        }
    }
}

fn remove(disk: &dyn Disk, path: &Path, holder: Option<Box<dyn Any + Send>>) {
    let _ = disk.remove(path);
    drop(holder);
}

impl Drop for Removal {
    fn drop(&mut self) {
        if let Some((send, thread)) = self.thread.take() {
            drop(send);
            // What it has not removed goes when the store is next opened.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::MemoryDisk;

    #[test]
    fn all_that_was_handed_over_is_gone_when_it_is_dropped() {
        for threads in [false, true] {
            let disk = MemoryDisk::new();
            let dir = Path::new("/d");
            disk.create_dir(dir).unwrap();
            let removal = Removal::new(Arc::new(disk.clone()));
            if threads {
                removal.use_threads();
                removal.use_threads();
            }
            for number in 0..100 {
                let path = dir.join(number.to_string());
                let file = disk.create(&path).unwrap();
                if number % 2 == 0 { removal.remove(path) } else { removal.remove_held(path, file) }
            }
            removal.remove(dir.join("never made"));
            drop(removal);
            assert_eq!(disk.list(dir).unwrap(), Vec::<String>::new(), "threads: {threads}");
        }
    }
}

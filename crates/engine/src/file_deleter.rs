//! Deletion of files that are no longer needed.
//!
//! Removing a large file takes milliseconds, and its room is freed when its last handle is closed. So the executor
//! does both.
//!
//! # Ground rules
//! 1. Before a file is handed over, the state that does not need it is durable.
//! 2. Nothing depends on a deletion, nor on the order of deletions: a file that cannot be removed now is removed when
//!    the store is next opened.
//! 3. All files that were handed over are removed before the directory's lock is released: see [`Executor::close`].

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;

use crate::disk::Disk;
use crate::executor::{Class, Executor, Task, spawn_detached};

/// Removes files.
#[derive(Clone, Debug)]
pub(crate) struct FileDeleter {
    disk: Arc<dyn Disk>,
    executor: Arc<Executor>,
}

/// The deletion of a file.
struct Deletion {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// The handle that holds the file open, if there is one.
    holder: Option<Box<dyn Any + Send>>,
}

impl FileDeleter {
    /// Removes files of `disk` on `executor`.
    pub(crate) fn new(disk: Arc<dyn Disk>, executor: Arc<Executor>) -> FileDeleter {
        FileDeleter { disk, executor }
    }

    /// Removes a file that is not open.
    pub(crate) fn remove(&self, path: PathBuf) {
        self.begin(path, None);
    }

    /// Removes a file, and drops `holder`, its open handle.
    pub(crate) fn remove_held(&self, path: PathBuf, holder: impl Any + Send) {
        self.begin(path, Some(Box::new(holder)));
    }

    fn begin(&self, path: PathBuf, holder: Option<Box<dyn Any + Send>>) {
        let deletion = Deletion { disk: Arc::clone(&self.disk), path, holder };
        // Without a thread the deletion was done by the call.
        let _ = spawn_detached(&self.executor, Class::Deletion, deletion);
    }
}

impl Task for Deletion {
    type Output = ();

    fn slice(&mut self, _: usize) -> Option<()> {
        let _ = self.disk.remove(&self.path);
        self.holder = None;
        Some(())
    }

    fn panicked(self) {}
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::disk::MemoryDisk;
    use crate::executor;

    #[test]
    fn all_that_was_handed_over_is_gone_when_the_executor_is_closed() {
        for executor in [executor::tests::threads(), Executor::without_threads()] {
            let (disk, dir) = (MemoryDisk::new(), Path::new("/d"));
            disk.create_dir(dir).unwrap();
            let deleter = FileDeleter::new(Arc::new(disk.clone()), Arc::clone(&executor));
            for number in 0..100 {
                let path = dir.join(number.to_string());
                let file = disk.create(&path).unwrap();
                if number % 2 == 0 { deleter.remove(path) } else { deleter.remove_held(path, file) }
            }
            deleter.remove(dir.join("never made"));
            executor.close();
            assert_eq!(disk.list(dir).unwrap(), Vec::<String>::new(), "{executor:?}");
        }
    }
}

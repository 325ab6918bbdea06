//! Writing runs of a bounded length: pairs in rising order become one run after another.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::reader::IndexRun;
use super::value::IndexValue;
use super::writer::RunWriter;
use crate::disk::Disk;
use crate::sealed::FileId;

/// Runs that are being written, from the lowest key of the first to the highest of the last. Each ends at the bound, so
/// none reaches the [maximum length](RunWriter::MOST) of a run.
#[derive(Debug)]
pub(crate) struct SplitWriter<V> {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    most: u64,
    filter_for: u64,
    open: Option<RunWriter<V>>,
    done: Vec<Arc<IndexRun<V>>>,
}

impl<V: IndexValue> SplitWriter<V> {
    /// Nothing is written yet. An index run takes no more pairs when it has `most` bytes, and has a filter for
    /// `filter_for` pairs.
    pub(crate) fn new(disk: Arc<dyn Disk>, dir: PathBuf, most: u64, filter_for: u64) -> SplitWriter<V> {
        SplitWriter { disk, dir, most, filter_for, open: None, done: Vec::new() }
    }

    /// Adds a pair, which comes after the previous one. `new_name` names the next run when one begins.
    ///
    /// # Errors
    /// Those of the disk, and of `new_name`. After one the files are unusable.
    pub(crate) fn push(
        &mut self,
        key: u64,
        value: V,
        new_name: impl FnOnce() -> io::Result<FileId>,
    ) -> io::Result<()> {
        if let Some(full) = self.open.take_if(|open| open.bytes() + open.pending() >= self.most) {
            self.done.push(Arc::new(full.finish()?));
        }
        let open = match &mut self.open {
            Some(open) => open,
            none => {
                let name = new_name()?;
                none.insert(RunWriter::create(&*self.disk, &self.dir, name, self.filter_for)?)
            }
        };
        open.push(key, value)
    }

    /// All index runs, in the order of their keys: none if there was no pair.
    pub(crate) fn finish(mut self) -> io::Result<Vec<Arc<IndexRun<V>>>> {
        if let Some(open) = self.open.take() {
            self.done.push(Arc::new(open.finish()?));
        }
        Ok(self.done)
    }
}

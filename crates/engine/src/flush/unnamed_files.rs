//! Files that are being made: nothing names them yet, so they are removed if nothing ever will.

use std::io;

use super::job::FlushContext;
use crate::sealed::{FileId, FileKind};

/// The files that a job has begun. On drop, however the job ended, they are removed, unless they [are
/// kept](UnnamedFiles::keep).
#[derive(Debug)]
pub(super) struct UnnamedFiles {
    context: FlushContext,
    names: Vec<FileId>,
}

impl UnnamedFiles {
    pub(super) fn new(context: FlushContext) -> UnnamedFiles {
        UnnamedFiles { context, names: Vec::new() }
    }

    /// The name of the next file, which is about to be made.
    pub(super) fn new_name(&mut self, kind: FileKind) -> io::Result<FileId> {
        let name = self.context.new_name(kind)?;
        self.names.push(name);
        Ok(name)
    }

    /// Keeps the files: the manifest names them now, or may.
    pub(super) fn keep(&mut self) {
        self.names.clear();
    }
}

impl Drop for UnnamedFiles {
    fn drop(&mut self) {
        for name in self.names.drain(..) {
            self.context.deleter.remove(self.context.dir.join(name.file_name()));
        }
    }
}

//! The size of an engine's files.

use std::io;
use std::path::Path;

use crate::disk::Disk;
use crate::journal::format::SegmentName;
use crate::sealed::FileId;

/// The sizes of the files in a data directory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FileBytes {
    /// Segments of the journal, including the preallocated part of the newest one.
    pub journal: u64,
    /// Tables, and the runs of keys and numbers that locate their messages.
    pub due: u64,
}

impl FileBytes {
    /// Lists all files of `dir`. A file that is removed meanwhile may or may not be counted.
    pub(crate) fn of(disk: &dyn Disk, dir: &Path) -> io::Result<FileBytes> {
        let mut bytes = FileBytes::default();
        for name in disk.list(dir)? {
            let is_segment = SegmentName::parse(&name).is_some();
            if !is_segment && FileId::parse(&name).is_none() {
                continue;
            }
            let size = match disk.open(&dir.join(&name)).and_then(|file| file.size()) {
                Ok(size) => size,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            *(if is_segment { &mut bytes.journal } else { &mut bytes.due }) += size;
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::MemoryDisk;

    #[test]
    fn each_file_counts_where_it_belongs() {
        let (disk, dir) = (MemoryDisk::new(), Path::new("data"));
        disk.create_dir(dir).unwrap();
        for (name, len) in [
            ("journal-000-000000000001", 10),
            ("journal-000-000000000002", 200),
            ("table-000-0000000001", 3_000),
            ("keys-000-0000000001", 40_000),
            ("numbers-000-0000000001", 500_000),
            ("MANIFEST", 7),
            ("journal-0-1", 7),
        ] {
            disk.create(&dir.join(name)).unwrap().write_at(&vec![1; len], 0).unwrap();
        }
        assert_eq!(FileBytes::of(&disk, dir).unwrap(), FileBytes { journal: 210, due: 543_000 });
        assert!(FileBytes::of(&disk, Path::new("elsewhere")).is_err());
    }
}

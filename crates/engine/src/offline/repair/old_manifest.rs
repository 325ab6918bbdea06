//! The old directory's manifest, or what is known without it.

use std::path::Path;

use dwell_model::Timestamp;

use super::{RepairReport, damage, manifest_path};
use crate::OpenError;
use crate::disk::Disk;
use crate::journal::format::{SegmentHeader, SegmentName, u32_at, u64_at};
use crate::manifest::Manifest;
use crate::offline::segments::segments;
use crate::sealed::{FileId, HEADER_LEN, is_header_of};

/// What is known of the old directory as a whole.
pub(super) struct OldDirectory {
    pub(super) directory: u64,
    /// The highest known incarnation.
    pub(super) incarnation: u32,
    /// A lower bound.
    pub(super) next_number: u64,
    pub(super) manifest: Option<Manifest>,
}

impl OldDirectory {
    /// Reads the manifest; without it, examines all other files.
    pub(super) fn find(
        disk: &dyn Disk,
        dir: &Path,
        names: &[String],
        report: &mut RepairReport,
    ) -> Result<OldDirectory, OpenError> {
        let mut origin = match Manifest::read(disk, dir) {
            Ok(manifest) => OldDirectory {
                directory: manifest.directory,
                incarnation: manifest.incarnation,
                next_number: manifest.next_number,
                manifest: Some(manifest),
            },
            Err(error) => OldDirectory::without_manifest(disk, dir, names, damage(error)?, report)?,
        };
        // Many more numbers may have been given since the manifest was written.
        for header in segments(disk, dir, origin.directory)?.iter().filter_map(|found| found.header.ok()) {
            origin.incarnation = origin.incarnation.max(header.incarnation);
            origin.next_number = origin.next_number.max(header.next_number);
        }
        Ok(origin)
    }

    fn without_manifest(
        disk: &dyn Disk,
        dir: &Path,
        names: &[String],
        damage: String,
        report: &mut RepairReport,
    ) -> Result<OldDirectory, OpenError> {
        let path = manifest_path(dir);
        report.lose(&path, None, None, damage);
        report.without_manifest = true;
        let bytes = first(disk, &path, 64).unwrap_or_default();
        // The first part is valid if its own checksum is, whatever the state of the second.
        let is_whole = bytes.len() == 64 && crc32fast::hash(&bytes[..60]) == u32_at(&bytes, 60);
        let (incarnation, next_number) =
            if is_whole { (u32_at(&bytes, 12), u64_at(&bytes, 40)) } else { (0, 1) };
        let directory = is_whole.then(|| u64_at(&bytes, 16));
        let directory = directory.or_else(|| names.iter().find_map(|name| directory_of(disk, dir, name)));
        let directory = directory.ok_or_else(|| {
            let reason = "neither the manifest nor the head of any file says which directory this is";
            OpenError::damaged(&path, 0, reason)
        })?;
        Ok(OldDirectory { directory, incarnation, next_number, manifest: None })
    }

    /// The last reading of the wall clock before the journal that is replayed.
    pub(super) fn seen(&self) -> Timestamp {
        self.manifest.as_ref().map_or(Timestamp::MIN, |manifest| manifest.checkpoint.seen)
    }
}

/// The directory number in the header of a file, if the header is whole.
fn directory_of(disk: &dyn Disk, dir: &Path, name: &str) -> Option<u64> {
    let path = dir.join(name);
    if let Some((kind, shard, number)) = FileId::parse(name) {
        let bytes = first(disk, &path, HEADER_LEN)?;
        let directory = u64_at(&bytes, 16);
        return is_header_of(&bytes, FileId { directory, shard, kind, number }).then_some(directory);
    }
    let (shard, segment) = SegmentName::parse(name)?;
    let bytes = first(disk, &path, SegmentHeader::LEN)?;
    let name = SegmentName { directory: u64_at(&bytes, 24), shard, segment };
    SegmentHeader::decode(bytes.first_chunk()?, name).ok().map(|_| name.directory)
}

fn first(disk: &dyn Disk, path: &Path, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    disk.open(path).and_then(|file| file.read_at(&mut bytes, 0)).ok()?;
    Some(bytes)
}

//! The segments of a directory: those that are there, those that have to be, and those that nothing needs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::OpenError;
use crate::disk::{Disk, DiskFile};
use crate::journal::format::{BadHeader, SEGMENT_VERSION, SegmentHeader, SegmentName};
use crate::journal::reader::SegmentReader;
use crate::manifest::{self, Manifest};
use crate::report::Cut;

/// The maximum number of missing segments before the checkpoint that are listed: a damaged number may promise any
/// length of a journal.
pub(super) const MOST_MISSING: u64 = 100_000;

/// A segment's file and its header.
pub(super) struct OpenedSegment {
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) path: PathBuf,
    pub(super) name: SegmentName,
    pub(super) header: Result<SegmentHeader, &'static str>,
    pub(super) len: u64,
}

pub(super) fn open_all(
    disk: &dyn Disk,
    dir: &Path,
    manifest: &Manifest,
) -> Result<BTreeMap<u64, OpenedSegment>, OpenError> {
    let names = disk.list(dir).map_err(|error| OpenError::io(dir, error))?;
    let mut segments = BTreeMap::new();
    for file_name in names {
        let Some((shard, segment)) = SegmentName::parse(&file_name) else { continue };
        let path = dir.join(&file_name);
        if shard != 0 {
            return Err(OpenError::damaged(&path, 0, "the manifest knows of no such shard"));
        }
        let io = |error| OpenError::io(&path, error);
        let file = disk.open(&path).map_err(io)?;
        let name = SegmentName { directory: manifest.directory, shard, segment };
        let mut bytes = [0; SegmentHeader::LEN];
        let len = file.size().map_err(io)?;
        let header = if len >= bytes.len() as u64 {
            file.read_at(&mut bytes, 0).map_err(io)?;
            match SegmentHeader::decode(&bytes, name) {
                Err(BadHeader::Newer(found)) => {
                    return Err(OpenError::NewerFormat { file: path, found, known: SEGMENT_VERSION });
                }
                Err(BadHeader::Damaged(reason)) => Err(reason),
                Ok(header) => Ok(header),
            }
        } else {
            Err("the segment is shorter than its header")
        };
        segments.insert(segment, OpenedSegment { file, path, name, header, len });
    }
    Ok(segments)
}

/// Removes from `segments` those that the newest one says are not needed: they were to be deleted.
pub(super) fn drop_stale(segments: &mut BTreeMap<u64, OpenedSegment>) -> Vec<PathBuf> {
    let newest = segments.values().rev().find_map(|opened| opened.header.as_ref().ok());
    let oldest = newest.map_or(0, |header| header.oldest);
    let needed = segments.split_off(&oldest);
    std::mem::replace(segments, needed).into_values().map(|opened| opened.path).collect()
}

/// Removes segments without a header that are needed for the idempotency keys of their puts alone, and reports them.
pub(super) fn drop_forgotten(manifest: &Manifest, segments: &mut BTreeMap<u64, OpenedSegment>) -> Vec<Cut> {
    let start = manifest.checkpoint.start;
    // After the last whole one it may be the one that was being created.
    let newest = segments.iter().rev().find_map(|(number, opened)| opened.header.ok().map(|_| *number));
    let is_old = |number: u64| number < start && newest.is_some_and(|newest| number < newest);
    let damaged = segments.iter().filter(|(number, opened)| opened.header.is_err() && is_old(**number));
    let damaged: Vec<u64> = damaged.map(|(number, _)| *number).collect();
    let taken_out = damaged.into_iter().filter_map(|number| segments.remove(&number));
    let told = taken_out.map(|OpenedSegment { path, len, header, .. }| Cut {
        file: path,
        offset: 0,
        bytes: len,
        reason: header.err().unwrap_or_default(),
    });
    told.collect()
}

/// Checks that every required segment is there, with a header, except for those that are `forgotten`; a missing one
/// of which only idempotency keys are needed is added to these. Removes the one that was being created.
pub(super) fn check_presence(
    dir: &Path,
    manifest: &Manifest,
    segments: &mut BTreeMap<u64, OpenedSegment>,
    forgotten: &mut Vec<Cut>,
) -> Result<Option<OpenedSegment>, OpenError> {
    let Manifest { directory, newest: promised, checkpoint, .. } = manifest;
    let start = checkpoint.start;
    if start > *promised {
        let reason = "the checkpoint begins with a segment that the manifest does not know of";
        return Err(OpenError::damaged(&dir.join(manifest::FILE), 0, reason));
    }
    let newest = segments.values().rev().find_map(|opened| opened.header.as_ref().ok()).copied();
    let (oldest, newest) = newest.map_or((1, 0), |header| (header.oldest, header.name.segment));
    let torn = match segments.last_entry() {
        Some(last) if last.get().header.is_err() && *last.key() == newest + 1 => Some(last.remove()),
        _ => None,
    };
    let at_least = newest.max(*promised);
    let path = |segment| dir.join(SegmentName { directory: *directory, shard: 0, segment }.file_name());
    let header = |segments: &BTreeMap<u64, OpenedSegment>, segment: u64| {
        let found = segments.get(&segment).or(torn.as_ref().filter(|torn| torn.name.segment == segment));
        found.map(|opened| opened.header)
    };
    // These first: where the journal is missing it is refused for the first of them, however many there were.
    for segment in oldest.max(start)..=at_least {
        match header(segments, segment) {
            Some(Ok(_)) => {}
            Some(Err(reason)) => return Err(OpenError::damaged(&path(segment), 0, reason)),
            None => return Err(OpenError::damaged(&path(segment), 0, "the segment is missing")),
        }
    }
    let told: BTreeSet<PathBuf> = forgotten.iter().map(|cut| cut.file.clone()).collect();
    let mut missing = 0;
    for segment in oldest..start {
        match header(segments, segment) {
            Some(Ok(_)) => {}
            Some(Err(reason)) => return Err(OpenError::damaged(&path(segment), 0, reason)),
            None if told.contains(&path(segment)) => {}
            // A backup of a directory that does without this segment does not have it.
            None => {
                missing += 1;
                let reason = "the segment is missing";
                forgotten.push(Cut { file: path(segment), offset: 0, bytes: 0, reason });
            }
        }
        if missing == MOST_MISSING {
            break;
        }
    }
    match segments.values().find_map(|opened| Some((opened, opened.header.err()?))) {
        Some((opened, reason)) => Err(OpenError::damaged(&opened.path, 0, reason)),
        None => Ok(torn),
    }
}

pub(super) fn highest_mark(torn: &OpenedSegment) -> Result<u64, OpenError> {
    let io = |error| OpenError::io(&torn.path, error);
    let mut reader = SegmentReader::new(Arc::clone(&torn.file), torn.name.salt(), None).map_err(io)?;
    Ok(reader.rest(0).map_err(io)?.mark)
}

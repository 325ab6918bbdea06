//! Messages that tables have lost, by their numbers: the journal may still have them.
//!
//! Segments from before the checkpoint are kept for the idempotency keys of their puts, or because a backup or a read
//! holds them. Their messages lie in tables, or were deleted. The old index runs of numbers distinguish these cases: a
//! number whose entry could neither be saved nor was settled is lost.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use dwell_model::Number;

use super::old_manifest::OldDirectory;
use crate::checkpoint::file_name;
use crate::disk::Disk;
use crate::index_run::{IndexRun, TableRef};
use crate::sealed::FileKind;
use crate::table::DeletionBitmap;

/// The numbers of all messages that are not in `unlost`, as far as the old index runs can be read. Uses about 16 bytes
/// of memory for each.
pub(super) fn lost(
    disk: &dyn Disk,
    dir: &Path,
    origin: &OldDirectory,
    unlost: &BTreeMap<u32, DeletionBitmap>,
) -> HashSet<Number> {
    let mut lost = HashSet::new();
    let Some(manifest) = origin.manifest.as_ref().filter(|_| !unlost.is_empty()) else { return lost };
    for number in &manifest.checkpoint.numbers {
        let name = file_name(origin.directory, FileKind::Numbers, *number);
        let Ok(run) = IndexRun::<TableRef>::open(disk, dir, name) else { continue };
        let is_lost = |home: &TableRef| {
            let unlost = unlost.get(&home.file).filter(|unlost| home.ordinal < unlost.len());
            unlost.is_some_and(|unlost| !unlost.has(home.ordinal))
        };
        // The other blocks of a run are valid where one cannot be read.
        let pairs = Arc::new(run).iter_readable().map_while(Result::ok);
        lost.extend(
            pairs.filter(|(_, home)| is_lost(home)).filter_map(|(number, _)| Number::new(number).ok()),
        );
    }
    lost
}

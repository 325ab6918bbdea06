//! The content of tables, by queue: from their indexes alone.

use std::collections::BTreeMap;

use dwell_model::{QueueName, Timestamp};

use crate::table::{DeletionBitmap, SectionState, Table};

/// The entries of a queue in tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct TableQueueStats {
    /// Unsettled entries: scheduled when the files were written, and due or not by now,
    pub(crate) scheduled: u64,
    /// ready then,
    pub(crate) ready: u64,
    /// and dead.
    pub(crate) dead: u64,
    /// Settled entries, whose room is freed when their files are removed.
    pub(crate) settled: u64,
    /// Bytes of all bodies, settled or not.
    pub(crate) body_bytes: u64,
    /// The earliest and the latest due of any entry, settled or not.
    pub(crate) dues: Option<(Timestamp, Timestamp)>,
    /// The number of files that it is in.
    pub(crate) files: u64,
}

/// Counts the entries of `files`, each with its set of settlements.
pub(crate) fn stats<'a>(
    files: impl IntoIterator<Item = (&'a Table, &'a DeletionBitmap)>,
) -> BTreeMap<QueueName, TableQueueStats> {
    let mut stats: BTreeMap<QueueName, TableQueueStats> = BTreeMap::new();
    for (file, settled) in files {
        let mut before = None;
        for section in file.sections() {
            let queue = stats.entry(section.queue.clone()).or_default();
            let live = u64::from(settled.live(section.range()));
            match section.state {
                SectionState::Ready => queue.ready += live,
                SectionState::Scheduled => queue.scheduled += live,
                SectionState::Dead => queue.dead += live,
            }
            queue.settled += u64::from(section.count) - live;
            queue.body_bytes += section.body_bytes;
            let (earliest, latest) = queue.dues.unwrap_or((section.min_due, section.max_due));
            queue.dues = Some((earliest.min(section.min_due), latest.max(section.max_due)));
            queue.files += u64::from(before != Some(&section.queue));
            before = Some(&section.queue);
        }
    }
    stats
}

//! Settling of the cold messages that recovery finds to be gone: together, in the order of files.
//!
//! If their due is known, they are searched for there: messages are acked in the order of due, and so lie side by side
//! in the few blocks that were drained last, however much else is pending. Scattered messages are searched for by
//! number, and so are those that are not found by due: they were rescheduled, or were gone already.

use std::collections::BTreeMap;
use std::ops::Range;

use dwell_model::{Number, QueueName, Timestamp};

use super::ColdSet;
use crate::index_run::{NumberSet, TableRef};
use crate::sealed;
use crate::table::{SectionState, TableEntry};

/// The maximum number of entries in memory at a time.
const AT_A_TIME: u32 = 2048;

/// The number of places that are prefetched from the disk ahead of the one being read.
const AHEAD: usize = 64;

/// The number of messages that are gone, by queue: pending ones, and dead ones.
pub(crate) type GoneByQueue = BTreeMap<QueueName, (u64, u64)>;

/// Ranges of entries of files.
#[derive(Debug, Default)]
struct EntryRanges {
    ordinals: Vec<(u32, Range<u32>)>,
    /// The number of bytes to read for them.
    bytes: u64,
}

impl ColdSet {
    /// Settles those of these messages that are cold. Returns how many were, pending and dead ones, by queue.
    pub(crate) fn settle(&mut self, gone: &NumberSet) -> sealed::Result<GoneByQueue> {
        let mut counts = GoneByQueue::new();
        let files = &mut self.files;
        for run in &self.numbers {
            run.find_all(gone, |TableRef { file, ordinal }| {
                let Some(file) = files.get_mut(&file).filter(|file| file.is_cold(ordinal)) else {
                    return;
                };
                let is_over = file.take_out(ordinal);
                let section = &file.file.sections()[file.file.section_of(ordinal)];
                let (pending, dead) = counts.entry(section.queue.clone()).or_default();
                *(if is_over || section.state == SectionState::Dead { dead } else { pending }) += 1;
            })?;
        }
        Ok(counts)
    }

    /// The same for messages that are known to have been due at these instants. Those that were not found are left in
    /// `gone`, to be searched for by number.
    pub(crate) fn settle_due(&mut self, gone: &mut Vec<(Timestamp, Number)>) -> sealed::Result<GoneByQueue> {
        let mut counts = GoneByQueue::new();
        gone.sort_unstable();
        let Some(EntryRanges { ordinals, bytes }) = self.due_at(gone) else { return Ok(counts) };
        if bytes > self.numbers.iter().map(|run| run.size()).sum() {
            return Ok(counts);
        }
        let (mut is_found, mut entries) = (vec![false; gone.len()], Vec::new());
        let mut by_number: Vec<(Number, u32)> =
            gone.iter().zip(0..).map(|((_, gone), at)| (*gone, at)).collect();
        by_number.sort_unstable();
        let mut said = 0;
        for (at, (number, range)) in ordinals.iter().enumerate() {
            while said < ordinals.len().min(at + AHEAD) {
                let (number, ordinals) = &ordinals[said];
                self.files[number].file.will_read(ordinals.clone());
                said += 1;
            }
            let file = self.files.get_mut(number).expect("it was there a moment ago");
            // Most files have the messages of one flush: few of those that are gone, and close to each other.
            let (lowest, highest) = file.file.number_range();
            let first = by_number.partition_point(|(number, _)| *number < lowest);
            let count = by_number[first..].partition_point(|(number, _)| *number <= highest);
            let (here, ordinals) = (&by_number[first..first + count], range);
            let mut from = ordinals.start;
            while from < ordinals.end {
                let to = ordinals.end.min(from + AT_A_TIME);
                entries.clear();
                file.file.read(from..to, &mut entries)?;
                for TableEntry { ordinal, entry, .. } in &entries {
                    let Ok(at) = here.binary_search_by_key(&entry.number, |(number, _)| *number) else {
                        continue;
                    };
                    let at = here[at].1 as usize;
                    if gone[at].0 != entry.standing.due || file.out.has(*ordinal) {
                        continue;
                    }
                    file.take_out(*ordinal);
                    is_found[at] = true;
                    match counts.get_mut(&entry.queue) {
                        Some((pending, _)) => *pending += 1,
                        None => drop(counts.insert(entry.queue.clone(), (1, 0))),
                    }
                }
                from = to;
            }
        }
        let mut found = is_found.into_iter();
        gone.retain(|_| found.next() == Some(false));
        Ok(counts)
    }

    /// The entries among which those lie that are due at these instants, which rise. Nothing is read.
    fn due_at(&self, dues: &[(Timestamp, Number)]) -> Option<EntryRanges> {
        let ((first, _), (last, _)) = (*dues.first()?, *dues.last()?);
        let mut places = EntryRanges::default();
        for (number, file) in &self.files {
            for (section, state) in file.file.sections().iter().zip(&file.sections) {
                let is_beside = section.max_due < first || last < section.min_due;
                if section.state == SectionState::Dead || state.live == 0 || is_beside {
                    continue;
                }
                let has_any = |from, to| {
                    if to < first || last < from {
                        return false;
                    }
                    let at = dues.partition_point(|(due, _)| *due < from);
                    dues.get(at).is_some_and(|(due, _)| *due <= to)
                };
                for (ordinals, len) in file.file.blocks_with(section, has_any) {
                    places.bytes += len;
                    places.ordinals.push((*number, ordinals));
                }
            }
        }
        Some(places)
    }
}

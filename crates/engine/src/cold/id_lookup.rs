//! Where a message lies that has not moved since it was put: by its id, without a lookup in the runs.
//!
//! An id has the due of its message at the put, and its number rises with the puts. Messages that were put one after
//! the other are flushed together, into the files of one flush: one of these covers the due, and no file of an earlier
//! or later flush covers the number. So the index of one file gives the block. Files into which messages were moved
//! from many others are left out: they cover every number.

use dwell_model::{MessageId, Number, QueueName};

use super::{ColdSet, ColdTable, EntryRef};
use crate::sealed;
use crate::table::{SectionState, Table};

/// Only files are considered whose range of numbers is at most this multiple of their entries: those of one flush,
/// which makes at most 8.
const MAX_SPARSENESS: u64 = 16;
/// The maximum number of files looked at. At most 8 are of one flush.
const LOOKED_AT: usize = 16;

/// The range of numbers of a file's messages, and the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NumberSpan {
    lowest: Number,
    highest: Number,
    file: u32,
}

/// Files whose messages were put one soon after the other, by their numbers.
#[derive(Debug, Default)]
pub(super) struct IdLookup(Vec<NumberSpan>);

impl IdLookup {
    fn span(file: &Table) -> Option<NumberSpan> {
        let (lowest, highest) = file.number_range();
        let is_narrow = highest.get() - lowest.get() < MAX_SPARSENESS * u64::from(file.len());
        is_narrow.then_some(NumberSpan { lowest, highest, file: file.name().number })
    }

    pub(super) fn add(&mut self, file: &Table) {
        if let Some(span) = IdLookup::span(file) {
            let at = self.0.partition_point(|other| *other < span);
            self.0.insert(at, span);
        }
    }

    pub(super) fn remove(&mut self, file: &Table) {
        if let Some(span) = IdLookup::span(file)
            && let Ok(at) = self.0.binary_search(&span)
        {
            self.0.remove(at);
        }
    }

    /// The files that may have a message of this number, those with the highest first number first.
    fn of(&self, number: Number) -> impl Iterator<Item = u32> {
        let behind = self.0.partition_point(|span| span.lowest <= number);
        let before = self.0[..behind].iter().rev().take(LOOKED_AT);
        before.filter(move |span| span.highest >= number).map(|span| span.file)
    }

    pub(super) fn memory(&self) -> usize {
        self.0.capacity() * size_of::<NumberSpan>()
    }
}

impl ColdSet {
    /// The place of the cold message with this id, if it has not moved since it was put. At most one read.
    pub(super) fn find_by_id(
        &mut self,
        queue: &QueueName,
        id: MessageId,
        number: Number,
    ) -> sealed::Result<Option<EntryRef>> {
        let due = id.due_at_put();
        let files: Vec<u32> = self.id_lookup.of(number).collect();
        for file in files {
            let cold: &ColdTable = &self.files[&file];
            let mut sections = cold.file.sections_of(queue).iter().filter(|section| {
                section.state != SectionState::Dead && section.min_due <= due && due <= section.max_due
            });
            let (Some(section), None) = (sections.next(), sections.next()) else { continue };
            let key = (due, id.as_bits());
            let found = self.blocks.find(cold, cold.file.holding(section, key), key)?;
            let is_cold = |ordinal: &u32| section.range().contains(ordinal) && cold.is_cold(*ordinal);
            // There is one place where it can lie, and if it is not there, it was moved.
            return Ok(found.filter(is_cold).map(|ordinal| EntryRef { file, ordinal }));
        }
        Ok(None)
    }
}

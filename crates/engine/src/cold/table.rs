//! A table as the shard holds it: which of its entries are cold, and where its sections go on.

use std::sync::Arc;

use dwell_model::{MessageId, Timestamp};

use super::expiry::{ExpiryProgress, SetAside};
use super::section_order::SECTION_BYTES;
use crate::journal::segment::Segment;
use crate::table::{self, DeletionBitmap, Table};

/// A file is coarse if it has scheduled messages that are due further apart than this, in ms.
pub(crate) const FINE_MS: u64 = 3 * 24 * 3_600 * 1_000;

/// The maximum number of times the body of an unchanged message is written: to the journal, to a coarse file, and to a
/// fine one. A body written this often is moved again only to free space: see `flush::compaction_source`.
pub(crate) const MAX_BODY_WRITES: u32 = 3;

/// If a file is coarse: the range of the due instants of its scheduled messages. What is overdue counts as due now.
fn coarse(file: &Table, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
    if file.writes() >= MAX_BODY_WRITES {
        return None;
    }
    let scheduled =
        || file.sections().iter().filter(|section| section.state == table::SectionState::Scheduled);
    let first = scheduled().map(|section| section.min_due).min()?;
    let last = scheduled().map(|section| section.max_due).max()?;
    (last > now && last.ms_since(first.max(now)) > FINE_MS).then_some((first, last))
}

/// The first cold entry of a section.
#[derive(Clone, Copy, Debug)]
pub(super) struct SectionHead {
    pub(super) ordinal: u32,
    pub(super) due: Timestamp,
    pub(super) id: MessageId,
}

/// The mutable state of a section.
#[derive(Clone, Debug)]
pub(super) struct SectionCursor {
    /// The number of its entries that are cold and not over.
    pub(super) live: u32,
    /// The number of its entries that are over.
    pub(super) over: u32,
    /// No cold entry of it lies before this ordinal.
    pub(super) from: u32,
    /// The cold entry there, if it was looked at.
    pub(super) head: Option<SectionHead>,
    /// Its bound in its queue's [order](super::section_order), if it is listed there.
    pub(super) bound: Option<Timestamp>,
    /// Where the ready part ends, if the section has both a ready and an unready part and that was searched for.
    pub(super) edge: Option<Box<ReadyEdge>>,
    /// Whether entries of it have expired that are to be handed over, and may not have been.
    pub(super) waits: bool,
}

/// Where the entries begin that are not ready in a section.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadyEdge {
    /// Valid from this instant on, and before `to`, at which the first entry behind it is due.
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
    pub(super) ordinal: u32,
    /// The first cold entry behind it, and its due, if that was read.
    pub(super) next: Option<(u32, Timestamp)>,
}

/// An open table, and the state of its entries.
#[derive(Debug)]
pub(crate) struct ColdTable {
    pub(crate) file: Arc<Table>,
    /// The segment that places of its bodies refer to.
    pub(crate) segment: Arc<Segment>,
    /// Entries that are not cold, their messages being gone or resident, and those that are over.
    pub(crate) out: DeletionBitmap,
    /// Cold entries of sections that are not dead, which have [expired](super::expiry): their messages are dead.
    pub(super) over: DeletionBitmap,
    /// Scheduled entries that are due by this instant are ready, and what expires by it is dead.
    pub(crate) ready_until: Timestamp,
    pub(super) sections: Vec<SectionCursor>,
    /// Its expiries were processed up to here.
    pub(super) expired_to: ExpiryProgress,
    /// No cold entry expires before this, apart from those set aside.
    pub(super) next_expiry: Option<Timestamp>,
    /// Its expiries were looked at up to here: an entry before this is cold only if it waits to be handed over.
    pub(super) ahead_to: ExpiryProgress,
    /// The next expiry that was not looked at is not before this.
    pub(super) ahead_expiry: Option<Timestamp>,
    /// Whether entries have expired that a replay has left where they are.
    pub(super) has_left: bool,
    /// Its expired chunks that could not be read.
    pub(super) aside: Option<Box<SetAside>>,
    /// If it is coarse, and its bodies may be written again: the range of the due instants of its scheduled entries
    /// that have not been moved out of it.
    coarse: Option<(Timestamp, Timestamp)>,
}

impl ColdTable {
    /// A file whose entries are cold unless they are in `out`.
    pub(crate) fn new(
        file: Arc<Table>,
        segment: Arc<Segment>,
        out: DeletionBitmap,
        ready_until: Timestamp,
        now: Timestamp,
    ) -> ColdTable {
        let sections = file.sections().iter().map(|section| {
            let range = section.range();
            SectionCursor {
                live: out.live(range.clone()),
                over: 0,
                from: range.start,
                head: None,
                bound: None,
                edge: None,
                waits: false,
            }
        });
        let (sections, over, coarse) =
            (sections.collect(), DeletionBitmap::none(file.len()), coarse(&file, now));
        let mut file = ColdTable {
            file,
            segment,
            out,
            over,
            ready_until,
            sections,
            expired_to: ExpiryProgress::default(),
            next_expiry: None,
            ahead_to: ExpiryProgress::default(),
            ahead_expiry: None,
            has_left: false,
            aside: None,
            coarse,
        };
        file.begin_expiries();
        file
    }

    /// Whether an entry is cold, over or not.
    pub(crate) fn is_cold(&self, ordinal: u32) -> bool {
        !self.out.has(ordinal) || self.over.has(ordinal)
    }

    /// Whether an entry was dead when it was written.
    pub(crate) fn was_dead(&self, ordinal: u32) -> bool {
        self.file.sections()[self.file.section_of(ordinal)].state == table::SectionState::Dead
    }

    /// The entries that are settled in the manifest: all that are not cold.
    pub(crate) fn settled(&self) -> DeletionBitmap {
        self.out.without(&self.over)
    }

    /// Marks a cold entry as expired. Returns the index of its section; `None` if it was dead or is not cold.
    pub(super) fn die(&mut self, ordinal: u32) -> Option<usize> {
        let section = self.file.section_of(ordinal);
        if self.file.sections()[section].state == table::SectionState::Dead || !self.out.set(ordinal) {
            return None;
        }
        self.sections[section].live -= 1;
        self.set_over(section, ordinal);
        Some(section)
    }

    /// Marks an entry that is out as cold and expired.
    pub(crate) fn be_over(&mut self, ordinal: u32) {
        assert!(self.out.has(ordinal), "entry {ordinal} of {} was not cold", self.file.path().display());
        let section = self.file.section_of(ordinal);
        self.set_over(section, ordinal);
    }

    fn set_over(&mut self, section: usize, ordinal: u32) {
        let is_news = self.over.set(ordinal);
        assert!(is_news, "entry {ordinal} of {} was not over", self.file.path().display());
        self.sections[section].over += 1;
    }

    /// If it is coarse: no scheduled entry that could be moved out of it is due before this.
    pub(crate) fn split_from(&self) -> Option<Timestamp> {
        self.coarse.map(|(from, _)| from)
    }

    /// Records that entries due by `until` have been moved out of it.
    pub(super) fn set_split(&mut self, until: Timestamp) {
        let (from, to) = (until.saturating_after(1), self.coarse.map_or(Timestamp::MIN, |(_, to)| to));
        self.coarse = (from <= to).then_some((from, to));
    }

    /// About how many entries that could be moved out of it are due by `until`, if they are spread evenly.
    pub(crate) fn due_about(&self, until: Timestamp) -> u64 {
        let Some((from, to)) = self.coarse else { return 0 };
        if until < from {
            return 0;
        }
        let scheduled = self.file.sections().iter().zip(&self.sections);
        let scheduled = scheduled.filter(|(section, _)| section.state == table::SectionState::Scheduled);
        let live: u64 = scheduled.map(|(_, state)| u64::from(state.live)).sum();
        let (part, whole) = (until.min(to).ms_since(from), to.ms_since(from));
        (u128::from(live) * (u128::from(part) + 1) / (u128::from(whole) + 1)) as u64
    }

    /// Its memory in bytes.
    pub(super) fn memory(&self) -> usize {
        // Each section is also in the list of its queue, and in its order.
        let sections =
            self.sections.capacity() * (size_of::<SectionCursor>() + 2 * size_of::<u64>() + SECTION_BYTES);
        let edges =
            self.sections.iter().filter(|section| section.edge.is_some()).count() * size_of::<ReadyEdge>();
        let aside = self.aside.as_ref().map_or(0, |aside| aside.memory());
        let bits = self.out.memory() + self.over.memory();
        size_of::<ColdTable>() + sections + edges + bits + self.file.memory() + aside
    }

    /// The first cold entry of a section from `ordinal` on.
    pub(super) fn next_live(&self, section: usize, ordinal: u32) -> Option<u32> {
        let end = self.file.sections()[section].range().end;
        self.out.next_live(ordinal).filter(|next| *next < end)
    }

    /// The first entry of a section from `ordinal` on that is over.
    pub(super) fn next_over(&self, section: usize, ordinal: u32) -> Option<u32> {
        let end = self.file.sections()[section].range().end;
        self.over.next_settled(ordinal).filter(|next| *next < end)
    }

    /// Makes an entry no longer cold. Returns whether it was over.
    pub(super) fn take_out(&mut self, ordinal: u32) -> bool {
        let section = self.file.section_of(ordinal);
        if self.over.clear(ordinal) {
            self.sections[section].over -= 1;
            return true;
        }
        self.take_out_of(section, ordinal);
        false
    }

    /// The same for an entry whose section is known, and which is not over.
    pub(super) fn take_out_of(&mut self, section: usize, ordinal: u32) {
        let is_news = self.out.set(ordinal);
        assert!(is_news, "entry {ordinal} of {} was cold", self.file.path().display());
        self.sections[section].live -= 1;
    }

    /// Makes an entry cold again, and not over. Returns the index of its section.
    pub(super) fn put_back(&mut self, ordinal: u32) -> usize {
        let is_news = self.out.clear(ordinal);
        assert!(is_news, "entry {ordinal} of {} was not cold", self.file.path().display());
        let at = self.file.section_of(ordinal);
        let section = &mut self.sections[at];
        section.live += 1;
        section.from = section.from.min(ordinal);
        at
    }

    /// Removes all entries of a section, except those that are over.
    pub(super) fn clear_section(&mut self, section: usize) {
        self.out.set_range(self.file.sections()[section].range());
        self.sections[section].live = 0;
    }

    /// Removes all entries of a section that are over.
    pub(super) fn clear_over(&mut self, section: usize) {
        if self.sections[section].over > 0 {
            self.over.clear_range(self.file.sections()[section].range());
            self.sections[section].over = 0;
        }
    }
}

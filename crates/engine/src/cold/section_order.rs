//! The sections of each queue by when their next entries may be ready, so that a take looks at none whose time has not
//! come.
//!
//! A queue has a section in most files: with messages for a year ahead, thousands. Nearly all of them begin later than
//! now. And it has one for each priority: if each message has a different priority, as many as messages. So a take
//! proceeds from priority to priority, and looks at no section of priorities behind the last one that it hands out of.
//!
//! # Ground rules
//! 1. A section that is not dead is listed here under a lower bound of the due of its first cold entry, or of the
//!    beginning of time if all of it is ready. It may be missing if it has no cold entry.
//! 2. Bounds are raised by lookups, and lowered when an entry becomes cold again that is due before.

use std::collections::BTreeSet;
use std::ops::Bound;

use dwell_model::{QueueName, Timestamp};

use super::{ColdSet, QueueSections, SectionRef};
use crate::table::SectionState;

/// The sections of a queue, by their priorities and bounds.
#[derive(Debug)]
pub(super) struct SectionOrder {
    sections: BTreeSet<(u32, Timestamp, SectionRef)>,
    /// The priorities whose first bound is at or before `to`.
    ready_until: BTreeSet<u32>,
    /// The other priorities, by their first bounds.
    later: BTreeSet<(Timestamp, u32)>,
    /// Never decreases.
    to: Timestamp,
}

/// The memory of a section in these trees in bytes, with nodes about two thirds full: 24 for the section, and as many
/// more if it is the only one of its priority.
pub(super) const SECTION_BYTES: usize = 64;

/// The maximum number of priorities without ready messages whose bounds are compared.
const LOOKED_AT: usize = 64;

/// Sorts before all sections.
const FIRST_SECTION: SectionRef = SectionRef { file: 0, section: 0 };

impl Default for SectionOrder {
    fn default() -> SectionOrder {
        let (sections, ready_until, later) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        SectionOrder { sections, ready_until, later, to: Timestamp::MIN }
    }
}

impl SectionOrder {
    fn insert(&mut self, rank: u32, bound: Timestamp, at: SectionRef) {
        let before = self.first_of(rank);
        self.sections.insert((rank, bound, at));
        self.file_rank(rank, before.map(|(bound, _)| bound));
    }

    fn remove(&mut self, rank: u32, bound: Timestamp, at: SectionRef) {
        let before = self.first_of(rank);
        self.sections.remove(&(rank, bound, at));
        self.file_rank(rank, before.map(|(bound, _)| bound));
    }

    /// The first section of a priority whose bound is at or after `from`.
    fn first_from(&self, rank: u32, from: Timestamp) -> Option<(Timestamp, SectionRef)> {
        let next = self.sections.range((rank, from, FIRST_SECTION)..).next();
        next.filter(|(of, ..)| *of == rank).map(|(_, bound, at)| (*bound, *at))
    }

    fn first_of(&self, rank: u32) -> Option<(Timestamp, SectionRef)> {
        self.first_from(rank, Timestamp::MIN)
    }

    /// Updates the place of a priority whose first bound was `before`, and may have changed.
    fn file_rank(&mut self, rank: u32, before: Option<Timestamp>) {
        let bound = self.first_of(rank).map(|(bound, _)| bound);
        if before == bound {
            return;
        }
        match before {
            Some(before) if before <= self.to => drop(self.ready_until.remove(&rank)),
            Some(before) => drop(self.later.remove(&(before, rank))),
            None => {}
        }
        match bound {
            Some(bound) if bound <= self.to => drop(self.ready_until.insert(rank)),
            Some(bound) => drop(self.later.insert((bound, rank))),
            None => {}
        }
    }

    /// Records that entries due by `to` may be ready.
    fn promote(&mut self, to: Timestamp) {
        self.to = self.to.max(to);
        while self.later.first().is_some_and(|(bound, _)| *bound <= self.to) {
            self.ready_until.extend(self.later.pop_first().map(|(_, rank)| rank));
        }
    }

    /// The sections of a priority whose bound is at or before `until`.
    fn by(&self, rank: u32, until: Timestamp) -> impl Iterator<Item = SectionRef> {
        let sections = self.sections.range((rank, Timestamp::MIN, FIRST_SECTION)..);
        sections.take_while(move |(of, bound, _)| *of == rank && *bound <= until).map(|(.., at)| *at)
    }
}

/// The earliest section among priorities that have nothing ready.
pub(super) enum NextPriority {
    /// There is none.
    None,
    /// This section is the first that may be ready, not before this instant.
    Lane(Timestamp, SectionRef),
    /// Nothing is ready before this instant; to find the section, many would have to be searched.
    NotBefore(Timestamp),
}

impl ColdSet {
    /// Everything that is ready was due by this instant, except what became ready otherwise.
    fn horizon(&self, ready_until: Timestamp) -> Timestamp {
        ready_until.max(self.promoted_to)
    }

    /// The next priority of a queue behind `after` that may have something ready.
    pub(super) fn next_rank(
        &mut self,
        queue: &QueueName,
        ready_until: Timestamp,
        after: Option<u32>,
    ) -> Option<u32> {
        let horizon = self.horizon(ready_until);
        let order = &mut self.by_queue.get_mut(queue)?.order;
        order.promote(horizon);
        let behind = after.map_or(Bound::Unbounded, Bound::Excluded);
        order.ready_until.range((behind, Bound::Unbounded)).next().copied()
    }

    /// The number of priorities of a queue that may have something ready, as of the last lookup.
    pub(super) fn ready_priorities(&self, queue: &QueueName) -> usize {
        self.by_queue.get(queue).map_or(0, |queued| queued.order.ready_until.len())
    }

    /// The sections of a queue and a priority that may have something ready, and perhaps some more.
    pub(super) fn sections_by(
        &self,
        queue: &QueueName,
        rank: u32,
        ready_until: Timestamp,
    ) -> Vec<SectionRef> {
        let horizon = self.horizon(ready_until);
        self.by_queue.get(queue).map_or_else(Vec::new, |queued| queued.order.by(rank, horizon).collect())
    }

    /// The earliest section among the priorities `below` this one, or of all, that have nothing ready.
    pub(super) fn first_later(&self, queue: &QueueName, below: Option<u32>) -> NextPriority {
        let Some(QueueSections { order, .. }) = self.by_queue.get(queue) else { return NextPriority::None };
        let is_below = |rank: u32| below.is_none_or(|below| rank < below);
        if order.sections.first().is_none_or(|(least, ..)| !is_below(*least)) {
            return NextPriority::None;
        }
        let mut later = order.later.iter();
        if let Some((_, rank)) = later.by_ref().take(LOOKED_AT).find(|(_, rank)| is_below(*rank)) {
            let (bound, at) = order.first_of(*rank).expect("a priority has sections");
            return NextPriority::Lane(bound, at);
        }
        later.next().map_or(NextPriority::None, |(bound, _)| NextPriority::NotBefore(*bound))
    }

    /// The first section of a queue and a priority that certainly has nothing ready, and its bound.
    pub(super) fn first_behind(
        &self,
        queue: &QueueName,
        rank: u32,
        ready_until: Timestamp,
    ) -> Option<(Timestamp, SectionRef)> {
        let order = &self.by_queue.get(queue)?.order;
        order.first_from(rank, self.horizon(ready_until).saturating_after(1))
    }

    /// Whether all messages of a queue that are not dead have the same priority.
    pub(super) fn has_one_rank(&self, queue: &QueueName) -> bool {
        let Some(queued) = self.by_queue.get(queue) else { return true };
        let is_live = |at: SectionRef| self.files[&at.file].sections[at.section as usize].live > 0;
        let live = |from: (u32, Timestamp, SectionRef)| {
            queued.order.sections.range(from..).find(|(.., at)| is_live(*at)).map(|(rank, ..)| *rank)
        };
        let Some(first) = live((0, Timestamp::MIN, FIRST_SECTION)) else { return true };
        first.checked_add(1).and_then(|next| live((next, Timestamp::MIN, FIRST_SECTION))).is_none()
    }

    /// Lists a section of whose entries nothing is known yet.
    pub(super) fn enlist(&mut self, at: SectionRef) {
        let section = self.section(at);
        match section.state {
            SectionState::Dead => {}
            SectionState::Ready => self.list(at, Some(Timestamp::MIN)),
            SectionState::Scheduled => self.list(at, Some(section.min_due)),
        }
    }

    /// Moves a section to another bound, or removes it.
    pub(super) fn list(&mut self, at: SectionRef, bound: Option<Timestamp>) {
        let file = self.files.get_mut(&at.file).expect("sections are those of files");
        let section = &file.file.sections()[at.section as usize];
        let before = std::mem::replace(&mut file.sections[at.section as usize].bound, bound);
        if before == bound {
            return;
        }
        let Some(QueueSections { order, .. }) = self.by_queue.get_mut(&section.queue) else { return };
        if let Some(before) = before {
            order.remove(section.priority, before, at);
        }
        if let Some(bound) = bound {
            order.insert(section.priority, bound, at);
        }
    }

    /// Raises the bound of a section whose first cold entry is not due before `due`.
    pub(super) fn raise(&mut self, at: SectionRef, due: Timestamp) {
        let bound = self.files[&at.file].sections[at.section as usize].bound;
        if self.section(at).state == SectionState::Scheduled && bound.is_some_and(|bound| bound < due) {
            self.list(at, Some(due));
        }
    }

    /// Lowers the bound of a section of which an entry is cold again.
    pub(super) fn lower(&mut self, at: SectionRef, ordinal: u32) {
        let (file, section) = (&self.files[&at.file], self.section(at));
        match file.sections[at.section as usize].bound {
            // The bound is before the whole section.
            Some(bound) if bound <= section.min_due => {}
            None => self.enlist(at),
            Some(bound) => {
                let ((due, _), _) = file.file.bound(section, ordinal);
                if due < bound {
                    self.list(at, Some(due));
                }
            }
        }
    }
}

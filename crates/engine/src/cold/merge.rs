//! The cold messages of a queue in the requested order, merged over all sections of all files.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;

use dwell_model::{DEFAULT_PRIORITY, MessageId, QueueName, StateKind, Timestamp};
use dwell_store::core::{ColdCounts, ColdHead};

use super::ready_stream::{ReadyKey, SectionReader};
use super::section_order::NextPriority;
use super::table::{ReadyEdge, SectionCursor as FileSection, SectionHead};
use super::{ColdSet, EntryRef, SectionRef};
use crate::sealed;
use crate::table::{Section, SectionState, TableEntry};

/// The maximum number of priorities that are read ahead at a time.
const MAX_PRIORITIES: usize = 64;
/// The maximum number of sections looked at to find the exact due of the next entry.
const MAX_SECTIONS_READ: usize = 64;

/// The position of a section in a merge. Sorts in the order of the merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct MergeHead {
    /// The key of the entry, or a lower bound of it.
    key: ReadyKey,
    /// Whether the key is exact. A bound sorts first, so that it is resolved before any other message comes out.
    is_exact: bool,
    at: SectionRef,
    ordinal: u32,
    /// The end of its part of the section.
    end: u32,
    /// Entries that are due later do not belong to it.
    until: Timestamp,
    /// Whether it covers the entries of the section that are over, instead of those that are not.
    is_over: bool,
}

impl ColdSet {
    pub(super) fn sections_of(&self, queue: &QueueName) -> Vec<SectionRef> {
        let sections = self.by_queue.get(queue).map_or(&[][..], |queued| &queued.sections);
        let has_cold = |at: &&SectionRef| {
            let section = &self.files[&at.file].sections[at.section as usize];
            section.live > 0 || section.over > 0
        };
        sections.iter().filter(has_cold).copied().collect()
    }

    pub(super) fn section(&self, at: SectionRef) -> &Section {
        &self.files[&at.file].file.sections()[at.section as usize]
    }

    /// Entries of a section that is not dead are ready if they are due by this instant.
    pub(super) fn ready_until(&self, at: SectionRef, ready_until: Timestamp) -> Timestamp {
        match self.section(at).state {
            SectionState::Ready => Timestamp::MAX,
            SectionState::Scheduled | SectionState::Dead => ready_until.max(self.files[&at.file].ready_until),
        }
    }

    /// The due and id of an entry.
    fn place(&mut self, at: SectionRef, ordinal: u32) -> sealed::Result<(Timestamp, MessageId)> {
        let found = self.blocks.entry(&self.files[&at.file], ordinal)?;
        Ok((found.entry.standing.due, found.entry.id))
    }

    /// The position of the first cold entry of a section, or the first of `range`, with what is known of its key
    /// without reading.
    fn lead(
        &self,
        at: SectionRef,
        rank: u32,
        range: Range<u32>,
        until: Timestamp,
        is_over: bool,
    ) -> Option<MergeHead> {
        let (file, section) = (&self.files[&at.file], at.section as usize);
        let next =
            if is_over { file.next_over(section, range.start) } else { file.next_live(section, range.start) };
        let ordinal = next.filter(|next| *next < range.end)?;
        let known = file.sections[at.section as usize].head.filter(|head| head.ordinal == ordinal);
        let ((due, id), is_exact) = match known {
            Some(head) => ((head.due, head.id.as_bits()), true),
            None => file.file.bound(self.section(at), ordinal),
        };
        let lead = MergeHead { key: (rank, due, id), is_exact, at, ordinal, end: range.end, until, is_over };
        (due <= until).then_some(lead)
    }

    /// The same of the first cold entry of a section that is not dead. A section that has none leaves the order of its
    /// queue.
    fn first(&mut self, at: SectionRef) -> Option<MergeHead> {
        #[cfg(test)]
        {
            self.looked += 1;
        }
        let (rank, end) = (self.section(at).priority, self.section(at).range().end);
        let file = self.files.get_mut(&at.file).expect("sections are those of files");
        let Some(from) = file.next_live(at.section as usize, file.sections[at.section as usize].from) else {
            self.list(at, None);
            return None;
        };
        file.sections[at.section as usize].from = from;
        self.lead(at, rank, from..end, Timestamp::MAX, false)
    }

    /// The same, if it may be ready. If it is not, its section is not looked at again before it may be.
    fn first_by(&mut self, at: SectionRef, ready_until: Timestamp) -> Option<MergeHead> {
        let (lead, until) = (self.first(at)?, self.ready_until(at, ready_until));
        if lead.key.1 > until {
            self.raise(at, lead.key.1);
            return None;
        }
        Some(MergeHead { until, ..lead })
    }

    /// Reads the entry that a lead stands at.
    fn read_lead(&mut self, lead: MergeHead) -> sealed::Result<(MergeHead, SectionHead)> {
        let (due, id) = self.place(lead.at, lead.ordinal)?;
        let head = SectionHead { ordinal: lead.ordinal, due, id };
        let file = self.files.get_mut(&lead.at.file).expect("it was just read");
        file.sections[lead.at.section as usize].head = Some(head);
        self.raise(lead.at, due);
        Ok((MergeHead { key: (lead.key.0, due, id.as_bits()), is_exact: true, ..lead }, head))
    }

    /// The ordinal from which on entries of a scheduled section are not ready. At most two reads, and none until the
    /// first of them is due.
    pub(super) fn not_ready_from(&mut self, at: SectionRef, ready_until: Timestamp) -> sealed::Result<u32> {
        let (section, ready_until) = (self.section(at), self.ready_until(at, ready_until));
        if section.max_due <= ready_until {
            return Ok(section.range().end);
        }
        if ready_until < section.min_due {
            return Ok(section.first);
        }
        let file = &self.files[&at.file];
        let edge = file.sections[at.section as usize].edge.as_deref().filter(|edge| edge.from <= ready_until);
        if let Some(edge) = edge.filter(|edge| ready_until < edge.to) {
            return Ok(edge.ordinal);
        }
        // It is not before the last known one.
        let start = edge.map_or(0, |edge| edge.ordinal);
        let section = &file.file.sections()[at.section as usize];
        let ordinal = self.blocks.lower_bound(file, section, start, (ready_until.saturating_after(1), 0))?;
        let to = self.blocks.entry(file, ordinal)?.entry.standing.due;
        let edge = ReadyEdge { from: ready_until, to, ordinal, next: None };
        self.section_state(at).edge = Some(Box::new(edge));
        Ok(ordinal)
    }

    fn section_state(&mut self, at: SectionRef) -> &mut FileSection {
        &mut self.files.get_mut(&at.file).expect("sections are those of files").sections[at.section as usize]
    }

    /// The part of a section whose entries are in a state.
    fn part(
        &mut self,
        at: SectionRef,
        state: StateKind,
        ready_until: Timestamp,
    ) -> sealed::Result<Range<u32>> {
        let section = self.section(at);
        let (all, none) = (section.range(), section.first..section.first);
        Ok(match (self.section(at).state, state) {
            (SectionState::Ready, StateKind::Ready) | (SectionState::Dead, StateKind::Dead) => all,
            (SectionState::Scheduled, StateKind::Ready) => all.start..self.not_ready_from(at, ready_until)?,
            (SectionState::Scheduled, StateKind::Scheduled) => self.not_ready_from(at, ready_until)?..all.end,
            // Those of it that are over.
            (SectionState::Ready | SectionState::Scheduled, StateKind::Dead) => all,
            _ => none,
        })
    }

    /// The first ready entries, by (priority, due, id). Sections of lower priorities are not looked at, and of other
    /// sections that contribute none nothing is read, except where a section begins in the middle of a block.
    pub(super) fn first_ready(
        &mut self,
        queue: &QueueName,
        ready_until: Timestamp,
        most: usize,
    ) -> sealed::Result<Vec<(EntryRef, TableEntry)>> {
        let (mut taken, mut after) = (Vec::new(), None);
        while taken.len() < most
            && let Some(rank) = self.next_rank(queue, ready_until, after)
        {
            let mut heap = BinaryHeap::new();
            for at in self.sections_by(queue, rank, ready_until) {
                heap.extend(self.first_by(at, ready_until).map(Reverse));
            }
            taken.extend(self.merge(heap, most - taken.len())?);
            after = Some(rank);
        }
        Ok(taken)
    }

    /// The positions of the ready messages of a queue, section by section. Nothing is read. Empty if they have many
    /// priorities: to look at all of these each time would cost more than it gains.
    pub(super) fn cursors(&mut self, queue: &QueueName, ready_until: Timestamp) -> Vec<SectionReader> {
        let (mut cursors, mut after) = (Vec::new(), None);
        while let Some(rank) = self.next_rank(queue, ready_until, after) {
            if after.is_none() && self.ready_priorities(queue) > MAX_PRIORITIES {
                return Vec::new();
            }
            after = Some(rank);
            for at in self.sections_by(queue, rank, ready_until) {
                let Some(lead) = self.first_by(at, ready_until) else { continue };
                let file = Arc::clone(&self.files[&at.file].file);
                let MergeHead { ordinal, end, until, .. } = lead;
                cursors.push(SectionReader { file, at, next: ordinal, end, until, block: None });
            }
        }
        cursors
    }

    /// The key of the next message, if that was read ahead; and whether all of the queue has one priority.
    fn read_next(&mut self, queue: &QueueName, ready_until: Timestamp) -> Option<(ReadyKey, bool)> {
        let prefetch = self.prefetches.iter_mut().find(|prefetch| prefetch.queue == *queue)?;
        if !prefetch.is_right(ready_until) {
            return None;
        }
        while let Some(next) = prefetch.peek(ready_until) {
            let EntryRef { file, ordinal } = next.spot;
            if self.files.get(&file).is_some_and(|file| !file.out.has(ordinal)) {
                return Some((next.key, prefetch.has_one_rank));
            }
            prefetch.pop();
        }
        None
    }

    /// The next message, and the earliest due of those that would come before it.
    pub(super) fn next_ready(
        &mut self,
        queue: &QueueName,
        ready_until: Timestamp,
    ) -> sealed::Result<ColdHead> {
        let id = |bits: u128| MessageId::from_bits(bits).ok();
        let read = self.read_next(queue, ready_until);
        if let Some(((rank, due, bits), true)) = read
            && due <= ready_until
        {
            // Messages that are not ready are due later, and of no higher priority.
            return Ok(ColdHead { first: id(bits).map(|id| (rank, due, id)), next: None });
        }
        let mut first = read.and_then(|((rank, due, bits), _)| Some((rank, due, id(bits)?)));
        let (mut later, mut ranks, mut after) = (Vec::new(), Vec::new(), None);
        while let Some(rank) = self.next_rank(queue, ready_until, after) {
            // Priorities lower than that of the next message are not looked at.
            if first.is_some_and(|(first, ..)| first < rank) {
                break;
            }
            after = Some(rank);
            ranks.push(rank);
            let mut ready = BinaryHeap::new();
            for at in self.sections_by(queue, rank, ready_until) {
                let until = self.ready_until(at, ready_until);
                if read.is_some() && self.section(at).max_due <= until {
                    // All of it is ready, and none of it comes before what was read.
                    continue;
                }
                match self.first(at) {
                    Some(lead) if lead.key.1 <= until && read.is_some() && lead.is_exact => {}
                    Some(lead) if lead.key.1 <= until && read.is_some() => {
                        // Only a bound is known: it may not be ready.
                        let (lead, head) = self.read_lead(lead)?;
                        later.extend((head.due > until).then_some(lead));
                    }
                    Some(lead) if lead.key.1 <= until => ready.push(Reverse(MergeHead { until, ..lead })),
                    Some(lead) => {
                        self.raise(at, lead.key.1);
                        later.push(lead);
                    }
                    None => {}
                }
            }
            while let Some(Reverse(lead)) = ready.pop() {
                let (rank, due, bits) = lead.key;
                let id = MessageId::from_bits(bits).ok().filter(|_| lead.is_exact);
                if let Some(id) = id {
                    first = Some((rank, due, id));
                    break;
                }
                let (read, head) = self.read_lead(lead)?;
                if head.due > lead.until {
                    later.push(read);
                } else if ready.peek().is_none_or(|Reverse(next)| read.key < next.key) {
                    first = Some((rank, head.due, head.id));
                    break;
                } else {
                    ready.push(Reverse(read));
                }
            }
        }
        // Messages that become due later come after the first of their own priority: except for one that has stayed
        // ready after the clock stepped back, which may be due later still.
        let matters =
            |lead: &MergeHead| first.is_none_or(|(rank, due, id)| lead.key < (rank, due, id.as_bits()));
        let by_due = |lead: MergeHead| Reverse((lead.key.1, lead));
        let mut later: BinaryHeap<_> = later.into_iter().filter(matters).map(by_due).collect();
        let mut next = None;
        while let Some(Reverse((due, lead))) = later.pop() {
            if lead.is_exact {
                next = Some(due);
                break;
            }
            later.push(by_due(self.read_lead(lead)?.0));
        }
        let latest = first.map(|(first, due, _)| (first, due));
        for rank in ranks {
            next = next.into_iter().chain(self.next_behind(queue, rank, ready_until, (latest, next))?).min();
        }
        let below = first.map(|(first, ..)| first);
        next = next.into_iter().chain(self.next_of_later(queue, below, next)?).min();
        Ok(ColdHead { first, next })
    }

    /// The due of the first entry among the priorities `below` this one, or of all, that have nothing ready, or an
    /// earlier instant; if it is before `next`.
    fn next_of_later(
        &mut self,
        queue: &QueueName,
        below: Option<u32>,
        next: Option<Timestamp>,
    ) -> sealed::Result<Option<Timestamp>> {
        for _ in 0..MAX_SECTIONS_READ {
            let (bound, at) = match self.first_later(queue, below) {
                NextPriority::None => return Ok(None),
                NextPriority::NotBefore(bound) => return Ok(Some(bound)),
                NextPriority::Lane(bound, at) => (bound, at),
            };
            if next.is_some_and(|next| next <= bound) {
                return Ok(None);
            }
            match self.first(at) {
                None => {}
                Some(lead) if lead.key.1 > bound => self.raise(at, lead.key.1),
                Some(lead) if lead.is_exact => return Ok(Some(lead.key.1)),
                Some(lead) => drop(self.read_lead(lead)?),
            }
        }
        Ok(match self.first_later(queue, below) {
            NextPriority::None => None,
            NextPriority::NotBefore(bound) | NextPriority::Lane(bound, _) => Some(bound),
        })
    }

    /// The due of the first entry of the sections of a priority that have nothing ready, if it comes before the key
    /// `latest`, and is due before `next`.
    fn next_behind(
        &mut self,
        queue: &QueueName,
        rank: u32,
        ready_until: Timestamp,
        (latest, next): (Option<(u32, Timestamp)>, Option<Timestamp>),
    ) -> sealed::Result<Option<Timestamp>> {
        while let Some((bound, at)) = self.first_behind(queue, rank, ready_until) {
            if latest.is_some_and(|latest| latest < (rank, bound)) || next.is_some_and(|next| next <= bound) {
                break;
            }
            match self.first(at) {
                None => {}
                Some(lead) if lead.key.1 > bound => self.raise(at, lead.key.1),
                Some(lead) if lead.is_exact => return Ok(Some(lead.key.1)),
                Some(lead) => drop(self.read_lead(lead)?),
            }
        }
        Ok(None)
    }

    /// The due of an entry of a scheduled section, or an earlier instant, as far as it is known without reading, and
    /// whether it is exact.
    pub(super) fn due_known(&self, at: SectionRef, ordinal: u32) -> (Timestamp, bool) {
        let (file, section) = (&self.files[&at.file], self.section(at));
        let state = &file.sections[at.section as usize];
        let head = state.head.filter(|head| head.ordinal == ordinal).map(|head| head.due);
        let edge = state.edge.as_deref();
        let edge = edge.and_then(|edge| {
            let next = edge.next.filter(|(next, _)| *next == ordinal).map(|(_, due)| due);
            next.or_else(|| (edge.ordinal == ordinal).then_some(edge.to))
        });
        let first = (ordinal == section.first).then_some(section.min_due);
        match head.or(edge).or(first) {
            Some(due) => (due, true),
            None => {
                let ((due, _), is_exact) = file.file.bound(section, ordinal);
                (due, is_exact)
            }
        }
    }

    /// The earliest due of these entries, each the first of a section that is not ready. Those that are certainly later
    /// are not read.
    fn earliest_due(&mut self, not_ready: Vec<(SectionRef, u32)>) -> sealed::Result<Option<Timestamp>> {
        let known = not_ready.into_iter().map(|(at, ordinal)| {
            let (due, is_exact) = self.due_known(at, ordinal);
            Reverse((due, !is_exact, at, ordinal))
        });
        let mut known: BinaryHeap<_> = known.collect();
        while let Some(Reverse((due, is_bound, at, ordinal))) = known.pop() {
            if !is_bound {
                return Ok(Some(due));
            }
            let (due, id) = self.place(at, ordinal)?;
            match self.section_state(at) {
                FileSection { edge: Some(edge), .. } => edge.next = Some((ordinal, due)),
                state => state.head = Some(SectionHead { ordinal, due, id }),
            }
            known.push(Reverse((due, false, at, ordinal)));
        }
        Ok(None)
    }

    /// The first entries in a state after `after`, by (due, id).
    pub(super) fn first_after(
        &mut self,
        queue: &QueueName,
        state: StateKind,
        ready_until: Timestamp,
        after: Option<(Timestamp, MessageId)>,
        most: usize,
    ) -> sealed::Result<Vec<(EntryRef, TableEntry)>> {
        let mut heap = BinaryHeap::new();
        for at in self.sections_of(queue) {
            let mut part = self.part(at, state, ready_until)?;
            if let Some((due, id)) = after {
                let behind = (due, id.as_bits().saturating_add(1));
                let file = &self.files[&at.file];
                let section = &file.file.sections()[at.section as usize];
                part.start = part.start.max(self.blocks.lower_bound(file, section, 0, behind)?);
            }
            let is_over = state == StateKind::Dead && self.section(at).state != SectionState::Dead;
            heap.extend(self.lead(at, 0, part, Timestamp::MAX, is_over).map(Reverse));
        }
        self.merge(heap, most)
    }

    /// Takes `most` entries off a heap of sections.
    fn merge(
        &mut self,
        mut heap: BinaryHeap<Reverse<MergeHead>>,
        most: usize,
    ) -> sealed::Result<Vec<(EntryRef, TableEntry)>> {
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some(Reverse(lead)) = heap.pop()
        {
            let MergeHead { at, ordinal, end, until, is_over, key: (rank, ..), .. } = lead;
            let file = &self.files[&at.file];
            let found = self.blocks.entry(file, ordinal)?;
            let key = (rank, found.entry.standing.due, found.entry.id.as_bits());
            if key.1 > until {
                continue;
            }
            if !lead.is_exact && heap.peek().is_some_and(|Reverse(next)| next.key < key) {
                heap.push(Reverse(MergeHead { key, is_exact: true, ..lead }));
                continue;
            }
            taken.push((EntryRef { file: at.file, ordinal }, found.clone()));
            let Some(mut next) = self.lead(at, rank, ordinal + 1..end, until, is_over) else { continue };
            let file = &self.files[&at.file];
            if next.ordinal < file.file.block_end(ordinal) {
                // The block is cached.
                let found = self.blocks.entry(file, next.ordinal)?;
                next.key = (rank, found.entry.standing.due, found.entry.id.as_bits());
                next.is_exact = true;
            }
            if next.key.1 <= until {
                heap.push(Reverse(next));
            }
        }
        Ok(taken)
    }

    /// The number of cold messages by state. Reads only the end of the ready part in sections that have both, and that
    /// once until more becomes ready.
    pub(super) fn count(&mut self, queue: &QueueName, ready_until: Timestamp) -> sealed::Result<ColdCounts> {
        let (mut cold, mut not_ready) = (ColdCounts::default(), Vec::new());
        for at in self.sections_of(queue) {
            let section = &self.files[&at.file].sections[at.section as usize];
            let live = u64::from(section.live);
            cold.counts.dead += u64::from(section.over);
            let is_urgent = self.section(at).priority < DEFAULT_PRIORITY;
            let ready = match self.section(at).state {
                SectionState::Dead => {
                    cold.counts.dead += live;
                    continue;
                }
                SectionState::Ready => live,
                SectionState::Scheduled => {
                    let until = self.not_ready_from(at, ready_until)?;
                    let range = self.section(at).first..until;
                    let file = &self.files[&at.file];
                    let due = u64::from(file.out.live(range));
                    not_ready.extend(file.next_live(at.section as usize, until).map(|ordinal| (at, ordinal)));
                    cold.counts.scheduled += live - due;
                    due
                }
            };
            cold.counts.ready += ready;
            cold.counts.ready_urgent += if is_urgent { ready } else { 0 };
        }
        cold.next_due = self.earliest_due(not_ready)?;
        Ok(cold)
    }
}

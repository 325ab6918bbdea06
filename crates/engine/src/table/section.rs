//! Sections: the entries of one queue, state and priority, side by side in a file.

use std::ops::Range;

use dwell_model::{QueueName, Timestamp};

use super::entry::Entry;
use super::order::SectionState;
use crate::journal::encoding::{ByteCursor, Read, Unreadable, put_text, put_varint};

/// A section of a file. Its entries are in (due, id) order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) queue: QueueName,
    pub(crate) state: SectionState,
    pub(crate) priority: u32,
    /// The ordinal of its first entry.
    pub(crate) first: u32,
    /// The number of its entries, at least one.
    pub(crate) count: u32,
    /// The due of its first entry.
    pub(crate) min_due: Timestamp,
    /// The due of its last entry.
    pub(crate) max_due: Timestamp,
    /// The length of all its bodies in bytes.
    pub(crate) body_bytes: u64,
}

impl Section {
    /// The section that begins with `entry`.
    pub(super) fn beginning_with(entry: &Entry, first: u32, body_len: usize) -> Section {
        Section {
            queue: entry.queue.clone(),
            state: entry.section_state(),
            priority: entry.standing.priority,
            first,
            count: 1,
            min_due: entry.standing.due,
            max_due: entry.standing.due,
            body_bytes: body_len as u64,
        }
    }

    /// Whether `entry` belongs here.
    pub(crate) fn takes(&self, entry: &Entry) -> bool {
        self.queue == entry.queue
            && self.state == entry.section_state()
            && self.priority == entry.standing.priority
    }

    /// Adds the next entry.
    pub(super) fn add(&mut self, entry: &Entry, body_len: usize) {
        self.count += 1;
        self.max_due = entry.standing.due;
        self.body_bytes += body_len as u64;
    }

    /// The ordinals of its entries.
    pub(crate) fn range(&self) -> Range<u32> {
        self.first..self.first + self.count
    }

    /// Whether it comes before `other` in a file.
    pub(super) fn is_before(&self, other: &Section) -> bool {
        self.order() < other.order()
    }

    fn order(&self) -> (&QueueName, SectionState, u32) {
        (&self.queue, self.state, self.priority)
    }
}

/// Writes sections: their number, then for each: queue (text; of length 0 for that of the previous section), state (one
/// byte: 0 ready, 1 scheduled, 2 dead), and as varints priority, count, first due, last due − first due, length of
/// bodies.
pub(super) fn put(out: &mut Vec<u8>, sections: &[Section]) {
    put_varint(out, sections.len() as u64);
    let mut before = None;
    for section in sections {
        let is_new = before != Some(&section.queue);
        put_text(out, if is_new { section.queue.as_str().as_bytes() } else { b"" });
        before = Some(&section.queue);
        out.push(section.state as u8);
        put_varint(out, u64::from(section.priority));
        put_varint(out, u64::from(section.count));
        put_varint(out, section.min_due.as_ms() as u64);
        put_varint(out, section.max_due.ms_since(section.min_due));
        put_varint(out, section.body_bytes);
    }
}

/// Reads sections; the sum of their counts is the number of entries of the file.
pub(super) fn read(cursor: &mut ByteCursor<'_>) -> Read<(Vec<Section>, u32)> {
    let malformed = Unreadable::Malformed;
    let int = |value: u64| u32::try_from(value).map_err(|_| malformed("a section's number is out of range"));
    let count = cursor.varint()?;
    let mut sections: Vec<Section> = Vec::new();
    let mut first: u32 = 0;
    for _ in 0..count {
        let name = std::str::from_utf8(cursor.text()?).map_err(|_| malformed("a queue's name is none"))?;
        let queue = match sections.last() {
            Some(before) if name.is_empty() => before.queue.clone(),
            _ => QueueName::new(name).map_err(|_| malformed("a queue's name is none"))?,
        };
        let state = SectionState::from_byte(cursor.byte()?).ok_or(malformed("a section of no state"))?;
        let priority = int(cursor.varint()?)?;
        let count = int(cursor.varint()?)?;
        let min_due = cursor.varint()?;
        let max_due = min_due.checked_add(cursor.varint()?);
        let instant = |ms: Option<u64>| Timestamp::from_ms(i64::try_from(ms?).ok()?).ok();
        let dues = instant(Some(min_due)).zip(instant(max_due));
        let (min_due, max_due) = dues.ok_or(malformed("a section's instant is out of range"))?;
        let body_bytes = cursor.varint()?;
        let section = Section { queue, state, priority, first, count, min_due, max_due, body_bytes };
        if count == 0 || sections.last().is_some_and(|before| !before.is_before(&section)) {
            return Err(malformed("sections are empty or out of order"));
        }
        first = first.checked_add(count).ok_or(malformed("a file has too many entries"))?;
        sections.push(section);
    }
    Ok((sections, first))
}

/// The part of a section that is in a block.
#[derive(Clone, Debug)]
pub(super) struct SectionShare {
    queue: QueueName,
    state: SectionState,
    priority: u32,
    pub(super) count: u32,
}

impl SectionShare {
    /// The maximum length of one in bytes, without its queue's name, but with its part of the number of shares.
    pub(super) const MOST: usize = 16;

    pub(super) fn beginning_with(entry: &Entry) -> SectionShare {
        let (queue, state) = (entry.queue.clone(), entry.section_state());
        SectionShare { queue, state, priority: entry.standing.priority, count: 1 }
    }

    /// Whether `entry` is of the same section.
    pub(super) fn takes(&self, entry: &Entry) -> bool {
        self.queue == entry.queue
            && self.state == entry.section_state()
            && self.priority == entry.standing.priority
    }
}

/// Writes the shares of a block: their number (varint), then for each queue (a text; of length 0 for that of the
/// previous one), state (one byte), priority and number of entries (varints).
pub(super) fn put_shares(out: &mut Vec<u8>, shares: &[SectionShare]) {
    put_varint(out, shares.len() as u64);
    let mut before = None;
    for share in shares {
        let is_new = before != Some(&share.queue);
        put_text(out, if is_new { share.queue.as_str().as_bytes() } else { b"" });
        before = Some(&share.queue);
        out.push(share.state as u8);
        put_varint(out, u64::from(share.priority));
        put_varint(out, u64::from(share.count));
    }
}

/// Reads and checks the shares of a block with these ordinals; `sections` are those of the file from the block's first
/// on.
pub(super) fn check_shares(
    cursor: &mut ByteCursor<'_>,
    ordinals: Range<u32>,
    sections: &[Section],
) -> Read<()> {
    let other = || Unreadable::Malformed("a block has other sections than the index says");
    let mut ours = sections.iter().take_while(|section| section.first < ordinals.end);
    let mut before = None;
    for _ in 0..cursor.varint()? {
        let share = (cursor.text()?, cursor.byte()?, cursor.varint()?, cursor.varint()?);
        let section = ours.next().ok_or_else(other)?;
        let name = if before == Some(&section.queue) { "" } else { section.queue.as_str() };
        let count = section.range().end.min(ordinals.end) - section.first.max(ordinals.start);
        if share != (name.as_bytes(), section.state as u8, u64::from(section.priority), u64::from(count)) {
            return Err(other());
        }
        before = Some(&section.queue);
    }
    if ours.next().is_some() { Err(other()) } else { Ok(()) }
}

/// Reads the shares of a block without an index: as sections that have only the block's entries, of which the first
/// begins with the ordinal `first`.
pub(super) fn read_shares(cursor: &mut ByteCursor<'_>, first: u32) -> Read<Vec<Section>> {
    let malformed = Unreadable::Malformed;
    let int = |value: u64| u32::try_from(value).map_err(|_| malformed("a section's number is out of range"));
    let mut sections: Vec<Section> = Vec::new();
    let mut first = first;
    for _ in 0..cursor.varint()? {
        let name = std::str::from_utf8(cursor.text()?).map_err(|_| malformed("a queue's name is none"))?;
        let queue = match sections.last() {
            Some(before) if name.is_empty() => before.queue.clone(),
            _ => QueueName::new(name).map_err(|_| malformed("a queue's name is none"))?,
        };
        let state = SectionState::from_byte(cursor.byte()?).ok_or(malformed("a section of no state"))?;
        let (priority, count) = (int(cursor.varint()?)?, int(cursor.varint()?)?);
        let end = first.checked_add(count).filter(|_| count > 0);
        let end = end.ok_or(malformed("a section has no entries, or too many"))?;
        let (min_due, max_due, body_bytes) = (Timestamp::MIN, Timestamp::MAX, 0);
        sections.push(Section { queue, state, priority, first, count, min_due, max_due, body_bytes });
        first = end;
    }
    Ok(sections)
}

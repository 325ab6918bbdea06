//! The ready messages of a queue one after the other, out of the files they lie in: a merge that can be continued on
//! any thread.
//!
//! It uses the sections as they were when it began. The caller checks what has become of each entry since.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use dwell_model::{Number, Timestamp};

use super::{EntryRef, SectionRef};
use crate::sealed;
use crate::table::{self, BlockReader, TableEntry};

/// Rank, due, and the bits of the id.
pub(super) type ReadyKey = (u32, Timestamp, u128);

/// The maximum length of a body that is read with its message, in bytes.
const SMALL_BODY: u32 = 4 * 1024;
/// The maximum number of bytes that such bodies share: a caller that keeps one keeps no more than this.
const SHARED: usize = 16 * 1024;

/// A section of a stream, and the position in it.
#[derive(Debug)]
pub(super) struct SectionReader {
    pub(super) file: Arc<table::Table>,
    pub(super) at: SectionRef,
    /// The ordinals that are left.
    pub(super) next: u32,
    pub(super) end: u32,
    /// Entries that are due later do not belong to it.
    pub(super) until: Timestamp,
    /// The block that `next` lies in, once it was read.
    pub(super) block: Option<BlockReader>,
}

/// A message that was read, if it is still cold.
///
/// It holds no reference count that other threads use at the same time: taking it over on another processor would wait
/// for each such count to come from here. So it has no segment, which is set from its file, and its queue's name is
/// shared only with the messages that were read with it.
#[derive(Debug)]
pub(super) struct PrefetchedMessage {
    pub(super) spot: EntryRef,
    pub(super) section: u32,
    pub(super) key: ReadyKey,
    pub(super) found: TableEntry,
    /// Its body, if it was read too, and its checksum was right.
    pub(super) body: Option<Bytes>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct ReadyStream {
    cursors: Vec<Option<SectionReader>>,
    /// The key of each cursor, or a lower bound of it; whether the key is exact; and the cursor. A bound sorts first,
    /// so that it is resolved before any other message comes out.
    heap: BinaryHeap<Reverse<(ReadyKey, bool, u32)>>,
}

impl SectionReader {
    fn rank(&self) -> u32 {
        self.file.sections()[self.at.section as usize].priority
    }

    /// The key of the next entry, or a lower bound, and whether it is exact; `None` if it is due too late. Nothing is
    /// read.
    fn bound(&self) -> Option<(ReadyKey, bool)> {
        let section = &self.file.sections()[self.at.section as usize];
        let ((due, id), is_exact) = self.file.bound(section, self.next);
        (due <= self.until).then_some(((section.priority, due, id), is_exact))
    }

    /// The block of the next entry. Reads it if it is not loaded, and then prefetches the one behind it.
    fn block(&mut self) -> sealed::Result<&mut BlockReader> {
        if self.block.is_none() {
            self.block = Some(self.file.open_block(self.file.block_of(self.next))?);
            let behind = self.file.block_end(self.next);
            if behind < self.end {
                self.file.will_read(behind..behind + 1);
            }
        }
        Ok(self.block.as_mut().expect("it was just made sure of"))
    }

    fn key(&mut self) -> sealed::Result<ReadyKey> {
        let (rank, next, file) = (self.rank(), self.next, Arc::clone(&self.file));
        let entry = &self.block()?.entry(&file, next)?.entry;
        Ok((rank, entry.standing.due, entry.id.as_bits()))
    }

    /// Moves behind the next entry; returns the new key as [`SectionReader::bound`] does.
    fn advance(&mut self) -> sealed::Result<Option<(ReadyKey, bool)>> {
        let is_at_hand = self.next + 1 < self.file.block_end(self.next);
        self.next += 1;
        if self.next >= self.end {
            return Ok(None);
        }
        if is_at_hand {
            let key = self.key()?;
            return Ok((key.1 <= self.until).then_some((key, true)));
        }
        self.block = None;
        Ok(self.bound())
    }
}

/// The maximum number of these cursors that have a block in memory at a time: each is read from its first entry to its
/// last.
pub(super) fn open_at_once(cursors: &[SectionReader]) -> usize {
    let span = |cursor: &SectionReader| {
        let ((rank, from, _), _) = cursor.bound()?;
        let to = cursor.file.sections()[cursor.at.section as usize].max_due.min(cursor.until);
        Some(((rank, from), (rank, to)))
    };
    let mut spans: Vec<_> = cursors.iter().filter_map(span).collect();
    spans.sort_unstable();
    let (mut open, mut most) = (BinaryHeap::new(), 0);
    for (from, to) in spans {
        while open.peek().is_some_and(|Reverse(end)| *end < from) {
            open.pop();
        }
        open.push(Reverse(to));
        most = most.max(open.len());
    }
    most
}

impl ReadyStream {
    pub(super) fn new(cursors: Vec<SectionReader>) -> ReadyStream {
        let bounds = cursors.iter().zip(0..);
        let heap = bounds.filter_map(|(cursor, at)| cursor.bound().map(|(key, own)| Reverse((key, own, at))));
        ReadyStream { heap: heap.collect(), cursors: cursors.into_iter().map(Some).collect() }
    }

    /// Drops the cursors of a file whose entries are no longer needed.
    pub(super) fn forget(&mut self, file: u32) {
        for slot in &mut self.cursors {
            slot.take_if(|cursor| cursor.at.file == file);
        }
        let cursors = &self.cursors;
        self.heap.retain(|Reverse((_, _, at))| cursors[*at as usize].is_some());
    }

    /// Appends up to `most` next entries; false if there are no more, or one cannot be read: the error is left to the
    /// caller that reads it again.
    pub(super) fn more(&mut self, most: usize, out: &mut Vec<PrefetchedMessage>) -> bool {
        let from = out.len();
        let (mut bodies, mut places) = (Vec::new(), Vec::new());
        let mut has_more = true;
        while has_more && out.len() - from < most && bodies.len() + SMALL_BODY as usize <= SHARED {
            match self.next(&mut bodies, &mut places) {
                Ok(Some(prepared)) => out.push(prepared),
                Ok(None) | Err(_) => has_more = false,
            }
        }
        share(bodies, places, &mut out[from..]);
        name_apart(&mut out[from..]);
        has_more
    }

    /// The next entry; its body is appended to `bodies`, and its range there to `places`.
    fn next(
        &mut self,
        bodies: &mut Vec<u8>,
        places: &mut Vec<Option<Range<usize>>>,
    ) -> sealed::Result<Option<PrefetchedMessage>> {
        loop {
            let Some(mut top) = self.heap.peek_mut() else { return Ok(None) };
            let Reverse((key, is_exact, at)) = *top;
            let slot = &mut self.cursors[at as usize];
            let cursor = slot.as_mut().expect("a cursor on the heap is there");
            if !is_exact {
                let key = cursor.key()?;
                if key.1 <= cursor.until {
                    *top = Reverse((key, true, at));
                } else {
                    *slot = None;
                    PeekMut::pop(top);
                }
                continue;
            }
            let (next, file) = (cursor.next, Arc::clone(&cursor.file));
            let block = cursor.block()?;
            let found = block.take(&file, next)?;
            places.push(body(block, &file, &found, bodies));
            let prepared = PrefetchedMessage {
                spot: EntryRef { file: cursor.at.file, ordinal: next },
                section: cursor.at.section,
                key,
                found,
                body: None,
            };
            match cursor.advance() {
                Ok(Some((key, is_exact))) => *top = Reverse((key, is_exact, at)),
                Ok(None) => {
                    *slot = None;
                    PeekMut::pop(top);
                }
                // This entry is good, and the last one.
                Err(_) => {
                    drop(top);
                    self.heap.clear();
                }
            }
            return Ok(Some(prepared));
        }
    }
}

/// Copies the body of an entry out of its block, if it is small and its checksum is right.
fn body(
    block: &BlockReader,
    file: &table::Table,
    found: &TableEntry,
    bodies: &mut Vec<u8>,
) -> Option<Range<usize>> {
    if found.body.len > SMALL_BODY {
        return None;
    }
    let body = block.body(file, found.body, found.entry.number)?;
    let start = bodies.len();
    bodies.extend_from_slice(&body);
    Some(start..bodies.len())
}

/// Gives entries their bodies.
fn share(bodies: Vec<u8>, places: Vec<Option<Range<usize>>>, prepared: &mut [PrefetchedMessage]) {
    let bodies = Bytes::from(bodies);
    for (one, place) in prepared.iter_mut().zip(places) {
        one.body = place.map(|place| bodies.slice(place));
    }
}

/// Gives entries of one queue a copy of its name that they alone share.
fn name_apart(prepared: &mut [PrefetchedMessage]) {
    let Some(name) = prepared.first().map(|one| one.found.entry.queue.to_unshared()) else { return };
    prepared.iter_mut().for_each(|one| one.found.entry.queue = name.clone());
}

impl PrefetchedMessage {
    pub(super) fn number(&self) -> Number {
        self.found.entry.number
    }
}

//! The cold dead messages of a queue, the oldest first.
//!
//! Files have them in the order of their due; those that have [expired](super::expiry) in place are among others.
//! Therefore all sections of the queue that have any are scanned, and the messages that died first are remembered in a
//! window, sorted by death, id and place. When all of the window was handed over, the sections are scanned again for
//! the next ones; but only those sections that can have any, since by then the range of the times of death is known of
//! each. Messages that die within an hour are mostly flushed together, so that few files are read twice.
//!
//! A scan takes long, so each call reads about half a megabyte, and reports whether there is more to read before
//! anything can be handed over.
//!
//! For [retention](DeadReader::Retention) an unreadable place does not block the rest: its messages are passed over,
//! and the next window tries them again. A caller that asks for messages by name or in order gets the error instead.
//!
//! # Ground rules
//! 1. Every cold dead message of the queue that died between the position of the last request and the window's end is
//!    in the window, or was put back since and is remembered beside it; except those that have expired since the window
//!    was begun.
//! 2. The number of messages remembered beside the window is bounded by the window's own size. If more are put back,
//!    the window is cut short before them, and the next window finds them.
//! 3. A full window is dropped when a file with cold dead messages of its queue is added, because these messages were
//!    in other files before. A scan that is filling a window goes on and reads the new file too. A file that is removed
//!    has no cold messages, and a file whose messages are all in memory has nothing to read, so neither changes
//!    anything.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashSet};
use std::ops::Range;

use dwell_model::{QueueName, State, Timestamp};
use dwell_store::core::{ColdMessage, CopyAt, DeadProgress, DeadReader, Died};

use super::{ColdSet, ColdTable, EntryRef, SectionRef};
use crate::journal::segment::BodyRef;
use crate::sealed::{self, ReadError};
use crate::table::{Entry, SectionState, TableEntry};

/// The approximate number of pieces of 256 KiB that a call reads to fill a window.
const PIECES: usize = 2;
/// The maximum number of blocks out of which a call hands messages over.
const BLOCKS: usize = 48;
/// The number of unreadable blocks of a piece after which the rest of it is passed over untried.
const FAILURES: usize = 4;
/// The number of windows kept for sweeps: one for the oldest sweep, which the others do not evict, one for all others,
/// and one for messages past their retention.
const BULK_WINDOWS: usize = 3;
/// The number of windows kept for peeks.
const PEEK_WINDOWS: usize = 1;

/// A message in the order of deaths.
type DeadEntry = (Died, EntryRef);

/// A scan over the dead messages of a queue, with the window of those that come next.
#[derive(Debug)]
pub(super) struct DeadWindow {
    queue: QueueName,
    reader: DeadReader,
    /// The position of the last request.
    from: Option<Died>,
    /// The messages of the window that were not handed over, the oldest on top. A heap, since sorting all of them would
    /// take long.
    window: BinaryHeap<Reverse<DeadEntry>>,
    /// The window is complete up to here.
    to: DeadProgress,
    /// Messages that were put back since the window was begun, up to the window's end.
    back: BTreeMap<Died, EntryRef>,
    /// The scan that fills the next window.
    scan: Option<DeadScan>,
    /// Whether messages have died since it was begun that it may lack.
    is_stale: bool,
}

/// A scan that fills a window.
#[derive(Debug)]
struct DeadScan {
    /// Messages that died after this are searched for.
    after: Option<Died>,
    /// Sections that are still to be read, the last one first.
    sections: Vec<SectionRef>,
    /// The ordinal at which the current section goes on.
    at: u32,
    /// The range of the times of death that were read of the current section.
    died: Option<(Timestamp, Timestamp)>,
    /// The oldest messages that were found, the youngest of them on top.
    oldest: BinaryHeap<DeadEntry>,
    /// Whether messages of the current section have died since it was begun: the range of its times of death is then
    /// not known.
    has_missed: bool,
    /// Whether some of that section could not be read.
    has_failed: bool,
    /// Whether there are others behind them.
    has_more: bool,
    /// The window may not reach beyond this: messages that were put back behind it are not remembered.
    to: DeadProgress,
    /// Whether unreadable places are passed over.
    passes_over: bool,
}

impl DeadScan {
    /// Drops found messages that are elsewhere now, which would keep their new places out. Messages behind the last one
    /// found may have been passed over, and are not behind what is found in the room made here: so the window ends at
    /// the last one found.
    fn forget(&mut self, is_cold: impl Fn(&EntryRef) -> bool) {
        if self.has_more {
            let last = self.oldest.peek().map(|(died, _)| *died);
            self.to = within(self.to, DeadProgress::To(last));
        }
        self.oldest.retain(|(_, spot)| is_cold(spot));
    }
}

impl DeadWindow {
    fn new(queue: QueueName, reader: DeadReader, from: Option<Died>) -> DeadWindow {
        // An empty window is complete up to the position where it begins.
        let to = DeadProgress::To(from);
        DeadWindow {
            queue,
            reader,
            from,
            window: BinaryHeap::new(),
            to,
            back: BTreeMap::new(),
            scan: None,
            is_stale: false,
        }
    }

    pub(super) fn is_of(&self, queue: &QueueName) -> bool {
        self.queue == *queue
    }

    /// Whether it has, or will have, all messages that died after `after`.
    fn is_right(&self, queue: &QueueName, reader: DeadReader, after: Option<Died>) -> bool {
        self.is_of(queue) && self.reader == reader && self.from <= after
    }

    /// Messages that died up to `after` were handed over, or are not asked for.
    fn go_to(&mut self, after: Option<Died>) {
        self.from = after;
        let Some(after) = after else { return };
        while self.window.peek().is_some_and(|Reverse((died, _))| *died <= after) {
            self.window.pop();
        }
        while self.back.first_entry().is_some_and(|first| *first.key() <= after) {
            self.back.pop_first();
        }
    }

    /// Remembers a message that was put back; `most` are remembered at most.
    fn put_back(&mut self, died: Died, spot: EntryRef, most: usize) {
        let to = self.scan.as_mut().map_or(&mut self.to, |scan| &mut scan.to);
        if !reaches(*to, died) {
            return;
        }
        self.back.insert(died, spot);
        if self.back.len() > most {
            self.back.pop_last();
            // Messages put back while the window was filled may be behind its end, which then stays.
            let last = DeadProgress::To(self.back.last_key_value().map(|(died, _)| *died));
            *to = within(*to, last);
        }
    }

    /// Whether the window ends at `after` or before.
    fn ends_at(&self, after: Option<Died>) -> bool {
        matches!(self.to, DeadProgress::To(to) if to <= after)
    }

    /// The next message, within the range that is complete.
    fn next(&self) -> Option<DeadEntry> {
        let back = self.back.first_key_value().map(|(died, spot)| (*died, *spot));
        let next = self.window.peek().map(|next| next.0).into_iter().chain(back).min();
        next.filter(|(died, _)| reaches(self.to, *died))
    }

    /// Removes the [next](DeadWindow::next) message, which was handled. A message that has been rewritten since is
    /// present twice, and the other place is the right one.
    fn pop(&mut self, dead_entry: DeadEntry) {
        if self.window.peek().is_some_and(|Reverse(next)| *next == dead_entry) {
            self.window.pop();
        }
        let (died, spot) = dead_entry;
        if self.back.get(&died) == Some(&spot) {
            self.back.remove(&died);
        }
    }

    /// The number of put-back messages that are remembered.
    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.back.len()
    }

    pub(super) fn memory(&self) -> usize {
        let scanned = self.scan.as_ref().map_or(0, |scan| scan.oldest.capacity());
        (self.window.capacity() + scanned + 2 * self.back.len()) * size_of::<DeadEntry>()
    }
}

/// Whether a message that died then is within what was handed over, or will be.
fn reaches(to: DeadProgress, died: Died) -> bool {
    match to {
        DeadProgress::All => true,
        DeadProgress::To(to) => Some(died) <= to,
    }
}

/// The range within both.
fn within(one: DeadProgress, other: DeadProgress) -> DeadProgress {
    match (one, other) {
        (DeadProgress::To(one), DeadProgress::To(other)) => DeadProgress::To(one.min(other)),
        (DeadProgress::All, to) | (to, DeadProgress::All) => to,
    }
}

/// The sections of a queue in which a file has messages that are cold and dead.
fn dead_sections(file: &ColdTable, queue: &QueueName) -> Vec<SectionRef> {
    let sections = (0..).zip(file.file.sections().iter().zip(&file.sections));
    let of_queue = sections.filter(|(_, (section, _))| section.queue == *queue);
    let dead = of_queue.filter(|(_, (section, state))| {
        section.state == SectionState::Dead && state.live > 0 || state.over > 0
    });
    dead.map(|(section, _)| SectionRef { file: file.file.name().number, section }).collect()
}

/// Reads the blocks of a piece one by one, as far as they can be; says where it stopped.
fn read_singly(file: &ColdTable, piece: Range<u32>, found: &mut Vec<TableEntry>) -> sealed::Result<u32> {
    let (mut next, mut failures) = (piece.start, 0);
    while next < piece.end && failures < FAILURES {
        let end = file.file.ordinals_of(file.file.block_of(next)).end.min(piece.end);
        let before = found.len();
        match file.file.read(next..end, found) {
            Ok(()) => {}
            Err(error) if error.is_of_the_place() => {
                found.truncate(before);
                failures += 1;
            }
            Err(error) => return Err(error),
        }
        next = end;
    }
    Ok(next)
}

/// When an entry died that is dead, or over.
pub(super) fn died(found: &TableEntry) -> Option<Died> {
    died_at(&found.entry)
}

/// The same of the entry alone.
pub(super) fn died_at(entry: &Entry) -> Option<Died> {
    let at = match entry.standing.state {
        State::Dead(death) => Some(death.at),
        State::Scheduled | State::Ready | State::Leased(_) => entry.standing.expires,
    };
    at.map(|at| (at, entry.id))
}

impl ColdSet {
    /// See [`Cold::dead`](dwell_store::core::Cold::dead).
    pub(super) fn hand_over_dead(
        &mut self,
        queue: &QueueName,
        reader: DeadReader,
        after: Option<Died>,
        most: usize,
        into: &mut Vec<ColdMessage<BodyRef>>,
    ) -> sealed::Result<DeadProgress> {
        let known = self.walks.iter().position(|walk| walk.is_right(queue, reader, after));
        let mut walk = match known {
            Some(at) => self.walks.remove(at),
            None => {
                self.walks.retain(|walk| walk.queue != *queue || walk.reader != reader);
                DeadWindow::new(queue.clone(), reader, after)
            }
        };
        walk.go_to(after);
        if walk.ends_at(after) && !self.fill(&mut walk)? {
            self.keep_window(walk);
            return Ok(DeadProgress::To(after));
        }
        let mut dead_entries: Vec<DeadEntry> = Vec::new();
        let mut blocks = HashSet::new();
        let mut to = walk.to;
        while let Some((died, spot)) = walk.next() {
            // A message that was handed over by another call may have been put back, or not.
            if let Some(file) = self.files.get(&spot.file).filter(|file| file.is_cold(spot.ordinal)) {
                let block = (spot.file, file.file.block_of(spot.ordinal));
                let is_full = blocks.len() >= BLOCKS && !blocks.contains(&block);
                if dead_entries.len() >= most || is_full {
                    to = DeadProgress::To(dead_entries.last().map(|(died, _)| *died).or(after));
                    break;
                }
                blocks.insert(block);
                dead_entries.push((died, spot));
            }
            walk.pop((died, spot));
        }
        // In the order of the places, each block is read once.
        let mut spots: Vec<EntryRef> = dead_entries.iter().map(|(_, spot)| *spot).collect();
        spots.sort_unstable();
        match self.read_all(&spots) {
            Ok(found) => self.hand_over(found, into),
            Err(error) if reader == DeadReader::Retention && error.is_of_the_place() => {
                // Nothing is handed over before it is known that the rest can be read, or is to be passed over.
                let mut found = Vec::new();
                for spot in spots {
                    match self.read_all(&[spot]) {
                        Ok(one) => found.extend(one),
                        Err(error) if error.is_of_the_place() => self.pass_over(queue, error, 1),
                        Err(error) => return Err(error),
                    }
                }
                self.hand_over(found, into);
            }
            // Unreadable messages have to be found again, so the walk is dropped.
            Err(error) => return Err(error),
        }
        self.keep_window(walk);
        Ok(to)
    }

    /// Messages were passed over for retention, since they cannot be read. A walk that begins anew may count them twice.
    fn pass_over(&mut self, queue: &QueueName, error: ReadError, count: u64) {
        self.failed = Some(error);
        *self.passed_over.entry(queue.clone()).or_default() += count;
    }

    /// What was passed over for retention is tried again when that comes to the queue next.
    pub(super) fn forget_passed_over(&mut self, queue: &QueueName) {
        if self.passed_over.remove(queue).is_none() {
            return;
        }
        self.walks.retain(|walk| walk.queue != *queue || walk.reader != DeadReader::Retention);
        for at in self.sections_of(queue) {
            self.readable.remove(&at);
        }
    }

    /// From when to when all died that count in this section, if that is known: for retention none does that was passed
    /// over.
    fn died_in(&self, at: SectionRef, passes_over: bool) -> Option<Option<(Timestamp, Timestamp)>> {
        let readable = || self.readable.get(&at).filter(|_| passes_over).copied();
        self.deaths.get(&at).map(|died| Some(*died)).or_else(readable)
    }

    /// Drops walks that may lack messages that are dead now.
    pub(super) fn end_stale_windows(&mut self, queue: &QueueName, reader: DeadReader) {
        self.walks.retain(|walk| walk.queue != *queue || walk.reader != reader || !walk.is_stale);
    }

    fn keep_window(&mut self, walk: DeadWindow) {
        let reader = walk.reader;
        self.walks.push(walk);
        let is_peek = |walk: &DeadWindow| walk.reader == DeadReader::Peek;
        let most = if reader == DeadReader::Peek { PEEK_WINDOWS } else { BULK_WINDOWS };
        let alike =
            || (0..self.walks.len()).filter(|at| is_peek(&self.walks[*at]) == (reader == DeadReader::Peek));
        if alike().count() <= most {
            return;
        }
        // A younger sweep replaces another younger sweep first, and retention of many queues does not evict the window
        // of a sweep, but another one of retention. Several windows may be left by sweeps that each were the oldest
        // once: that of the current oldest sweep was used last among these.
        let other_of =
            |reader| alike().find(|at| self.walks[*at].reader == reader && *at + 1 < self.walks.len());
        let order = match reader {
            DeadReader::Retention => [DeadReader::Retention, DeadReader::Younger],
            DeadReader::Sweep | DeadReader::Younger | DeadReader::Peek => {
                [DeadReader::Younger, DeadReader::Retention]
            }
        };
        let goes = order.into_iter().find_map(other_of).or_else(|| alike().next());
        goes.into_iter().for_each(|at| drop(self.walks.remove(at)));
    }

    /// Continues to fill the window; false if there is more to read.
    fn fill(&mut self, walk: &mut DeadWindow) -> sealed::Result<bool> {
        let mut scan = match walk.scan.take() {
            Some(scan) => scan,
            None => self.begin_scan(walk),
        };
        for _ in 0..PIECES {
            if !self.read_piece(&walk.queue, &mut scan)? {
                let DeadScan { oldest, has_more, to, .. } = scan;
                let last = oldest.peek().map(|(died, _)| *died);
                let found = if has_more { DeadProgress::To(last) } else { DeadProgress::All };
                walk.to = within(found, to);
                walk.window = oldest.into_iter().map(Reverse).collect();
                return Ok(true);
            }
        }
        walk.scan = Some(scan);
        Ok(false)
    }

    fn begin_scan(&mut self, walk: &mut DeadWindow) -> DeadScan {
        // Messages that were put back before are found by the scan itself.
        walk.back.clear();
        walk.window = BinaryHeap::new();
        let passes_over = walk.reader == DeadReader::Retention;
        let mut sections = self.sections_of(&walk.queue);
        sections.retain(|at| self.has_dead_in(*at));
        // Many queues have the same retention, and in each a few messages pass it every minute: not all sections are
        // read for these.
        let until = self.retain_until.filter(|_| walk.reader == DeadReader::Retention);
        let is_later = |at: &SectionRef| {
            let first = self.died_in(*at, passes_over).flatten().map(|(first, _)| first);
            until.zip(first).is_some_and(|((until, _), first)| first > until)
        };
        let all = sections.len();
        sections.retain(|at| !is_later(at));
        let to = if sections.len() < all { DeadProgress::To(until) } else { DeadProgress::All };
        // Those that may have the oldest are read first; of some that is not known.
        sections.sort_by_key(|at| Reverse(self.died_in(*at, passes_over).flatten().map(|(first, _)| first)));
        DeadScan {
            after: walk.from,
            sections,
            at: 0,
            died: None,
            has_missed: false,
            has_failed: false,
            oldest: BinaryHeap::new(),
            has_more: false,
            to,
            passes_over,
        }
    }

    /// Reads one more piece; false if nothing is left to read.
    fn read_piece(&mut self, queue: &QueueName, scan: &mut DeadScan) -> sealed::Result<bool> {
        let is_full = scan.oldest.len() >= self.dead_entries;
        // Sections that need not be read cost nothing.
        let at = loop {
            let Some(at) = scan.sections.last().copied() else { return Ok(false) };
            let Some(died) = self.died_in(at, scan.passes_over) else { break at };
            let is_past = died.is_none_or(|(_, last)| scan.after.is_some_and(|(after, _)| last < after));
            let is_behind = |first| scan.oldest.peek().is_some_and(|((latest, _), _)| first > *latest);
            let is_later = is_full && died.is_some_and(|(first, _)| is_behind(first));
            if !is_past && !is_later {
                break at;
            }
            scan.has_more |= is_later;
            // It may have been read in part.
            (scan.at, scan.died, scan.has_missed, scan.has_failed) = (0, None, false, false);
            scan.sections.pop();
        };
        let (range, file) = (self.section(at).range(), &self.files[&at.file]);
        let (from, section) = (scan.at.max(range.start), at.section as usize);
        let is_dead = self.section(at).state == SectionState::Dead;
        let next = if is_dead { file.next_live(section, from) } else { file.next_over(section, from) };
        let Some(from) = next else {
            let (died, has_failed) = (scan.died.take(), std::mem::take(&mut scan.has_failed));
            let is_known = !std::mem::take(&mut scan.has_missed);
            if is_known && has_failed {
                self.readable.insert(at, died);
            } else if let Some(died) = died.filter(|_| is_known) {
                self.deaths.insert(at, died);
            }
            scan.at = 0;
            scan.sections.pop();
            return Ok(true);
        };
        let mut to = file.file.piece_end(from).min(range.end);
        let (mut found, mut failed) = (Vec::new(), None);
        match file.file.read(from..to, &mut found) {
            Ok(()) => {}
            Err(error) if scan.passes_over && error.is_of_the_place() => {
                found.clear();
                failed = Some(error);
                to = read_singly(file, from..to, &mut found)?;
                // When all of the section have died is not known then.
                scan.has_failed = true;
            }
            Err(error) => return Err(error),
        }
        scan.at = to;
        let is_meant = |ordinal: u32| if is_dead { !file.out.has(ordinal) } else { file.over.has(ordinal) };
        let missed = if failed.is_some() {
            let meant = (from..to).filter(|ordinal| is_meant(*ordinal)).count();
            meant - found.iter().filter(|found| is_meant(found.ordinal)).count()
        } else {
            0
        };
        let live = found.iter().filter(|found| is_meant(found.ordinal));
        for (died, ordinal) in live.filter_map(|found| Some((died(found)?, found.ordinal))) {
            let (first, last) = scan.died.get_or_insert((died.0, died.0));
            (*first, *last) = (died.0.min(*first), died.0.max(*last));
            if Some(died) <= scan.after {
                continue;
            }
            scan.oldest.push((died, EntryRef { file: at.file, ordinal }));
            if scan.oldest.len() > self.dead_entries {
                scan.oldest.pop();
                scan.has_more = true;
            }
        }
        if let Some(error) = failed {
            self.pass_over(queue, error, missed as u64);
        }
        Ok(true)
    }

    fn has_dead_in(&self, at: SectionRef) -> bool {
        self.section(at).state == SectionState::Dead
            || self.files[&at.file].sections[at.section as usize].over > 0
    }

    /// Cold messages of a section have expired. Windows of its queue that were begun before lack them: a sweep in
    /// progress does not need them, and everything else begins anew.
    pub(super) fn have_died(&mut self, queue: &QueueName, file: u32, section: usize) {
        let section = u32::try_from(section).expect("sections are counted in 32 bits");
        let at = SectionRef { file, section };
        self.deaths.remove(&at);
        self.readable.remove(&at);
        let scans = self.walks.iter_mut().filter_map(|walk| walk.scan.as_mut());
        scans.filter(|scan| scan.sections.last() == Some(&at)).for_each(|scan| scan.has_missed = true);
        self.walks.iter_mut().filter(|walk| walk.queue == *queue).for_each(|walk| walk.is_stale = true);
    }

    /// A dead message that had been handed over is back in its file.
    pub(super) fn dead_is_back(&mut self, copy: CopyAt, died: Died) {
        let (file, ordinal) = (copy.file.get(), copy.ordinal);
        let found = &self.files[&file].file;
        let section = found.section_of(ordinal);
        let queue = &found.sections()[section].queue;
        let at =
            SectionRef { file, section: u32::try_from(section).expect("sections are counted in 32 bits") };
        let readable = self.readable.get_mut(&at).map(|known| known.get_or_insert((died.0, died.0)));
        for (first, last) in self.deaths.get_mut(&at).into_iter().chain(readable) {
            (*first, *last) = (died.0.min(*first), died.0.max(*last));
        }
        // A scan of its section may be past it, and has to know the full range of the section's times of death.
        let scans = self.walks.iter_mut().filter_map(|walk| walk.scan.as_mut());
        for scan in scans.filter(|scan| scan.sections.last() == Some(&at)) {
            let (first, last) = scan.died.get_or_insert((died.0, died.0));
            (*first, *last) = (died.0.min(*first), died.0.max(*last));
        }
        let most = self.dead_entries;
        for walk in self.walks.iter_mut().filter(|walk| walk.queue == *queue && walk.from < Some(died)) {
            walk.put_back(died, EntryRef { file, ordinal }, most);
        }
    }

    /// A file was added: messages that are cold and dead in it were elsewhere before.
    pub(super) fn dead_come(&mut self, file: &ColdTable) {
        let files = &self.files;
        let is_cold = |spot: &EntryRef| files.get(&spot.file).is_some_and(|file| file.is_cold(spot.ordinal));
        self.walks.retain_mut(|walk| {
            let sections = dead_sections(file, &walk.queue);
            if sections.is_empty() {
                return true;
            }
            let Some(scan) = walk.scan.as_mut() else { return false };
            scan.forget(is_cold);
            scan.sections.splice(0..0, sections);
            true
        });
    }

    /// A file was removed, of which nothing is cold: there is nothing to read in it.
    pub(super) fn dead_go(&mut self, number: u32) {
        for scan in self.walks.iter_mut().filter_map(|walk| walk.scan.as_mut()) {
            if scan.sections.last().is_some_and(|at| at.file == number) {
                (scan.at, scan.died, scan.has_missed, scan.has_failed) = (0, None, false, false);
            }
            scan.sections.retain(|at| at.file != number);
        }
    }
}

#[cfg(test)]
mod tests {
    use dwell_model::MessageId;

    use super::*;

    /// Crash story: 1. A window has a message. 2. The message becomes resident by another call, is written to another
    /// file, and put back there; the file adds nothing cold, so the window stays. 3. The old place was passed over, and
    /// with it the new one.
    #[test]
    fn a_message_that_was_written_anew_beside_a_window_is_found_where_it_lies() {
        let at = Timestamp::from_ms(5).unwrap();
        let died = (at, MessageId::new(at, 0, 1, 7));
        for (old, new) in [(1, 2), (2, 1)] {
            let mut walk = DeadWindow::new("q".parse().unwrap(), DeadReader::Sweep, None);
            walk.to = DeadProgress::All;
            let [old, new] = [old, new].map(|file| EntryRef { file, ordinal: 3 });
            walk.window.push(Reverse((died, old)));
            walk.put_back(died, new, 10);
            let mut seen = Vec::new();
            while let Some((died, spot)) = walk.next() {
                seen.push(spot);
                walk.pop((died, spot));
            }
            assert!(seen.contains(&new), "{seen:?}");
        }
    }

    /// A window has the next messages of one queue, for one reader, and from one position on.
    #[test]
    fn a_window_serves_whom_it_was_made_for_and_nobody_else() {
        let died = |ms: i64| {
            let at = Timestamp::from_ms(ms).unwrap();
            Some((at, MessageId::new(at, 0, 1, 7)))
        };
        let (queue, other): (QueueName, QueueName) = ("q".parse().unwrap(), "other".parse().unwrap());
        let walk = DeadWindow::new(queue.clone(), DeadReader::Sweep, died(5));
        for (queue, reader, after, is_right) in [
            (&queue, DeadReader::Sweep, died(5), true),
            (&queue, DeadReader::Sweep, died(6), true),
            (&queue, DeadReader::Sweep, died(4), false),
            (&queue, DeadReader::Sweep, None, false),
            (&other, DeadReader::Sweep, died(5), false),
            (&queue, DeadReader::Peek, died(5), false),
            (&other, DeadReader::Peek, died(5), false),
        ] {
            assert_eq!(walk.is_right(queue, reader, after), is_right, "{queue} {reader:?} {after:?}");
        }
    }

    /// Crash story: 1. A revive of many messages reads the dead of its queue, which takes many calls. 2. In between,
    /// messages past their retention are searched for in a few other queues. 3. The window of the revive was evicted
    /// each time, and it never ended.
    #[test]
    fn what_is_past_its_retention_in_many_queues_displaces_no_sweep() {
        let mut cold = ColdSet::new(7, 1, (1, usize::MAX), 1);
        let mut kept = |walks: &[(&str, DeadReader)]| {
            for (name, reader) in walks {
                cold.keep_window(DeadWindow::new(name.parse().unwrap(), *reader, None));
            }
            cold.walks.iter().map(|walk| walk.queue.as_str().to_owned()).collect::<Vec<String>>()
        };
        let of_retention = ["a", "b", "c", "d"].map(|name| (name, DeadReader::Retention));
        assert_eq!(kept(&[("swept", DeadReader::Sweep)]), ["swept"]);
        assert_eq!(kept(&of_retention), ["swept", "c", "d"]);
        assert_eq!(kept(&[("younger", DeadReader::Younger)]), ["swept", "d", "younger"]);
        assert_eq!(kept(&of_retention), ["swept", "younger", "d"]);
    }

    /// Crash story: 1. A message that a scan had found was written to another file. 2. Its new place was found too, and
    /// left out: the scan has room for a few, and the old place, which has the same time of death, took it. 3. The
    /// window was taken to be complete up to there.
    #[test]
    fn a_scan_makes_room_for_the_new_place_of_what_it_had_found() {
        let dead_entry = |ms: i64, file: u32| {
            let at = Timestamp::from_ms(ms).unwrap();
            ((at, MessageId::new(at, 0, 1, 7)), EntryRef { file, ordinal: 3 })
        };
        for has_more in [false, true] {
            let oldest = [dead_entry(1, 1), dead_entry(5, 1), dead_entry(9, 1)].into();
            let (at, to) = (0, DeadProgress::All);
            let mut scan = DeadScan {
                after: None,
                sections: Vec::new(),
                at,
                died: None,
                has_missed: false,
                has_failed: false,
                oldest,
                has_more,
                to,
                passes_over: false,
            };
            scan.forget(|spot| spot.file != 1);
            assert!(scan.oldest.is_empty());
            // Messages behind the last one that was found may have been passed over.
            assert!(reaches(scan.to, dead_entry(9, 2).0));
            assert_eq!(reaches(scan.to, dead_entry(12, 2).0), !has_more);
        }
    }
}

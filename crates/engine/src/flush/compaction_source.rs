//! Out of which files a flush moves messages into new ones, in addition to writing what it has captured.
//!
//! 1. **Sparse** files, of which less than half is in use, while all files together have more than twice the entries
//!    that are in use: those with the smallest part in use first. Each is given up, so that no more is copied than the
//!    space that is freed.
//! 2. **Small** files, if there are more than [`MAX_SMALL_TABLES`]: those that were written with fewer messages than
//!    share a file, and have few bytes. They are given up, and so become one.
//! 3. **Coarse** files whose time comes near: those whose messages are due over more than three days. What is due
//!    within [`AHEAD_MS`] is moved out of all of them together, and is in few files when it is wanted.
//!
//! So a body is written at most [`MAX_BODY_WRITES`] times while its message does not change: to the journal, to its
//! first file, and when it is moved out of that, once. Files whose bodies have been moved are *spent*: none of these is
//! coarse, and none is given up except to keep a bound: a sparse one if there is no other, a small one if there are
//! more than [`MAX_SPENT_TABLES`]. Then their bodies are written once more.
//!
//! The number of messages that one flush moves is bounded; the rest is moved by the next one.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use dwell_model::{QueueName, State, Timestamp};
use dwell_store::core::{CopyAt, QueueNames, SnapshotEntry};

use super::job::FlushContext;
use crate::checkpoint::TableState;
use crate::cold::{ColdSet, MAX_BODY_WRITES};
use crate::journal::segment::{BodyRef, Segment};
use crate::sealed;
use crate::table::{DeletionBitmap, SectionState, Table, TableEntry};

/// The maximum number of small files that stay.
const MAX_SMALL_TABLES: usize = 32;
/// The maximum number of small files that stay and whose bodies have been moved.
const MAX_SPENT_TABLES: usize = 8 * MAX_SMALL_TABLES;
/// A file with this number of bytes per message that shares a file is not small, however few messages it has.
const SMALL_BYTES: u64 = 1024;
/// Messages that are due within this time, in ms, are moved out of coarse files; the next ones when half of it is over.
pub(crate) const AHEAD_MS: u64 = 2 * 24 * 3_600 * 1_000;

/// A file out of which messages are moved, as it was at the moment of the capture.
pub(super) struct CompactionSource {
    pub(super) file: Arc<Table>,
    segment: Arc<Segment>,
    pub(super) settled: DeletionBitmap,
    ready_until: Timestamp,
    /// What expires by this instant is dead.
    over_by: Timestamp,
    /// If set, only what is scheduled and due by this instant is moved; otherwise everything, and the file is given up.
    pub(super) until: Option<Timestamp>,
}

impl CompactionSource {
    /// The ordinals of the entries to move, apart from settled ones.
    pub(super) fn ranges(&self) -> sealed::Result<Vec<Range<u32>>> {
        let Some(until) = self.until else { return Ok(std::iter::once(0..self.file.len()).collect()) };
        let scheduled =
            self.file.sections().iter().filter(|section| section.state == SectionState::Scheduled);
        let near = scheduled.map(|section| {
            let end = self.file.lower_bound(section, (until.saturating_after(1), 0))?;
            Ok(section.first..end)
        });
        near.collect()
    }

    /// The state of the file if nothing is moved.
    pub(super) fn state(&self) -> TableState {
        TableState {
            number: self.file.name().number,
            ready_until: self.ready_until,
            settled: self.settled.clone(),
        }
    }

    /// An entry as a message to be copied, and whether it dies by expiry. An expired message of a queue that `drops` it
    /// is gone as soon as its expiry is processed, and is not dead before, so not here either.
    pub(super) fn captured(
        &self,
        found: TableEntry,
        file: NonZeroU32,
        drops: &BTreeSet<QueueName>,
        names: &mut QueueNames,
    ) -> (SnapshotEntry<BodyRef>, bool) {
        let copy = CopyAt { file, ordinal: found.ordinal };
        let ready_since = found.entry.ready_since;
        let mut message = crate::cold::message(found, &self.segment);
        let is_pending = matches!(message.standing.state, State::Scheduled | State::Ready);
        // What had expired when the file was promoted died by that.
        let over_by = if drops.contains(&message.queue) { self.ready_until } else { self.over_by };
        let dies = is_pending && message.standing.expires.is_some_and(|expires| expires <= over_by);
        if dies {
            message.standing = crate::cold::expired(&message.standing);
        } else if message.standing.state == State::Scheduled && message.standing.due <= self.ready_until {
            message.standing.state = State::Ready;
        }
        (SnapshotEntry::of(message, ready_since, Some(copy), names), dies)
    }
}

/// How much of a file is in use.
struct TableUse {
    number: u32,
    live: u32,
    len: u32,
    size: u64,
    /// Whether its bodies have been written as often as they should be.
    is_spent: bool,
}

impl TableUse {
    fn is_sparse(&self) -> bool {
        u64::from(self.live) * 2 < u64::from(self.len)
    }

    /// Whether it was written with few messages, and not because these are long.
    fn is_small(&self, least: usize) -> bool {
        (self.len as usize) < least && self.size < least as u64 * SMALL_BYTES
    }

    /// The part that is in use, in thousandths.
    fn fullness(&self) -> u64 {
        u64::from(self.live) * 1_000 / u64::from(self.len)
    }
}

/// The choice of files that are given up.
struct CompactionChoice {
    /// The number of messages that may still be moved.
    left: u64,
    given_up: BTreeSet<u32>,
}

impl CompactionChoice {
    /// Gives a file up, if its messages may still be moved. A file with more messages than may be moved at all is given
    /// up only if it is the first one and may be `alone`.
    fn take(&mut self, used: &TableUse, alone: bool) -> bool {
        let fits = u64::from(used.live) <= self.left || (self.given_up.is_empty() && alone);
        if fits && self.given_up.insert(used.number) {
            self.left = self.left.saturating_sub(u64::from(used.live));
        }
        fits
    }
}

/// Copies of leased messages in files of which less than half is in use, while all files have more than twice what is
/// in use: at most `most`. The file of such a copy cannot be removed, so the message is rewritten.
pub(super) fn left_by_held(
    states: &BTreeMap<u32, (DeletionBitmap, Timestamp)>,
    captured: &[SnapshotEntry<BodyRef>],
    unreadable: &BTreeSet<u32>,
    most: usize,
) -> BTreeSet<CopyAt> {
    let mut held: BTreeMap<u32, Vec<CopyAt>> = BTreeMap::new();
    for copy in
        captured.iter().filter(|one| matches!(one.state(), State::Leased(_))).filter_map(|one| one.copy)
    {
        held.entry(copy.file.get()).or_default().push(copy);
    }
    if held.is_empty() {
        return BTreeSet::new();
    }
    let files = states.iter().map(|(number, (settled, _))| {
        let of_file = held.get(number).map_or(0, |held| held.len() as u64);
        let live = u64::from(settled.live(0..settled.len()));
        Holding { number: *number, held: of_file, used: live + of_file, len: u64::from(settled.len()) }
    });
    let mut sparse = sparse_holding(&files.collect::<Vec<_>>());
    sparse.retain(|number| !unreadable.contains(number));
    sparse.iter().flat_map(|number| held[number].iter().copied()).take(most).collect()
}

/// A file, with the number of its entries that leased messages hold, that are in use, and that it has in all.
struct Holding {
    number: u32,
    held: u64,
    used: u64,
    len: u64,
}

/// The files less than half in use that leased messages keep, those with the least in use first; none while all files
/// together are at least half in use.
fn sparse_holding(files: &[Holding]) -> Vec<u32> {
    let (used, len) = files.iter().fold((0, 0), |(used, len), file| (used + file.used, len + file.len));
    if len <= 2 * used {
        return Vec::new();
    }
    let sparse = files.iter().filter(|file| file.held > 0 && 2 * file.used < file.len);
    let mut sparse: Vec<(u64, u32)> = sparse.map(|file| (file.used, file.number)).collect();
    sparse.sort_unstable();
    sparse.into_iter().map(|(_, number)| number).collect()
}

/// Chooses the files, with about as many messages to be moved out of all of them together as `context` allows. A file
/// that a held message needs stays, and so does one that cannot be read.
pub(super) fn choose(
    cold: &ColdSet,
    states: &BTreeMap<u32, (DeletionBitmap, Timestamp)>,
    needed: &BTreeSet<u32>,
    now: Timestamp,
    context: &FlushContext,
) -> Vec<CompactionSource> {
    let (least, most, unreadable) = (context.least, context.moved, &context.unreadable());
    let source = |number: u32, until: Option<Timestamp>| {
        let file = &cold.files()[&number];
        CompactionSource {
            file: Arc::clone(&file.file),
            segment: Arc::clone(&file.segment),
            settled: states[&number].0.clone(),
            ready_until: states[&number].1,
            over_by: now.max(states[&number].1),
            until,
        }
    };
    let mut files: Vec<TableUse> = states
        .iter()
        .map(|(number, (settled, _))| TableUse {
            number: *number,
            live: settled.live(0..settled.len()),
            len: settled.len(),
            size: cold.files()[number].file.size(),
            is_spent: cold.files()[number].file.writes() >= MAX_BODY_WRITES,
        })
        .filter(|used| used.live > 0 || needed.contains(&used.number))
        .collect();
    let mut giving = CompactionChoice { left: most as u64, given_up: BTreeSet::new() };
    let live: u64 = files.iter().map(|used| u64::from(used.live)).sum();
    let mut entries: u64 = files.iter().map(|used| u64::from(used.len)).sum();
    files
        .retain(|used| used.live > 0 && !needed.contains(&used.number) && !unreadable.contains(&used.number));
    files.sort_unstable_by_key(|used| (used.is_spent, used.fullness(), used.number));
    for used in files.iter().filter(|used| used.is_sparse()) {
        let may_be = if used.is_spent { 2 * live + context.spare(cold) } else { 2 * live };
        if entries <= may_be || !giving.take(used, true) {
            break;
        }
        entries -= u64::from(used.len - used.live);
    }
    for (is_spent, may_stay) in [(false, MAX_SMALL_TABLES), (true, MAX_SPENT_TABLES)] {
        let small = files.iter().filter(|used| used.is_spent == is_spent && used.is_small(least));
        let mut small: Vec<&TableUse> = small.collect();
        if small.len() > may_stay {
            small.sort_unstable_by_key(|used| used.live);
            small.into_iter().take_while(|used| giving.take(used, false)).for_each(drop);
        }
    }
    let CompactionChoice { left, given_up } = giving;
    let mut sources: Vec<CompactionSource> = given_up.iter().map(|number| source(*number, None)).collect();
    if let Some(until) = near_end(cold, unreadable, now, least, left) {
        let near = cold.files().iter().filter(|(number, file)| {
            !given_up.contains(number)
                && !unreadable.contains(number)
                && states.get(number).is_some_and(|(settled, _)| !settled.is_full())
                && file.split_from().is_some_and(|from| from <= until)
        });
        sources.extend(near.map(|(number, _)| source(*number, Some(until))));
    }
    sources
}

/// The instant by which messages are moved out of coarse files now, about `most` of them; `None` if few are due soon,
/// as far as is known without reading: fewer than `least` would only get into another coarse file.
pub(super) fn near_end(
    cold: &ColdSet,
    unreadable: &BTreeSet<u32>,
    now: Timestamp,
    least: usize,
    most: u64,
) -> Option<Timestamp> {
    let from = cold.split_from()?;
    if most == 0 || from > now.saturating_after(AHEAD_MS / 2) {
        return None;
    }
    let readable = || cold.files().iter().filter(|(number, _)| !unreadable.contains(number));
    let in_all = |until: Timestamp| readable().map(|(_, file)| file.due_about(until)).sum::<u64>();
    end_by_counts(from.max(now), least as u64, most, in_all)
}

/// The same, from the number of messages that are due by an instant. The distance is halved each time, until few enough
/// are due by then if they are spread evenly.
fn end_by_counts(
    from: Timestamp,
    least: u64,
    most: u64,
    due_until: impl Fn(Timestamp) -> u64,
) -> Option<Timestamp> {
    if due_until(from.saturating_after(AHEAD_MS)) < least {
        return None;
    }
    let mut ahead_ms = AHEAD_MS;
    loop {
        let until = from.saturating_after(ahead_ms);
        if due_until(until) <= most || ahead_ms <= 60_000 {
            return Some(until);
        }
        ahead_ms /= 2;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use dwell_model::{Headers, MessageId, Now, Number, Standing};

    use super::*;
    use crate::cold::ColdTable;
    use crate::disk::{Disk, MemoryDisk};
    use crate::executor::Executor;
    use crate::flush::MemoryBudget;
    use crate::sealed::{FileId, FileKind};
    use crate::table::{Entry, TableWriter};

    fn used(number: u32, live: u32) -> TableUse {
        TableUse { number, live, len: 100, size: 1_000, is_spent: false }
    }

    #[test]
    fn as_many_messages_are_moved_as_may_be_unless_the_first_file_alone_has_more() {
        let giving = || CompactionChoice { left: 30, given_up: BTreeSet::new() };
        let mut some = giving();
        let given = [(1, 20), (2, 11), (3, 4), (3, 4), (4, 6), (5, 1)];
        let fits = given.map(|(number, live)| some.take(&used(number, live), true));
        // What was given up already is moved once.
        assert_eq!(fits, [true, false, true, true, true, false]);
        assert_eq!((some.left, some.given_up.into_iter().collect::<Vec<_>>()), (0, vec![1, 3, 4]));
        let mut large = giving();
        assert!(!large.take(&used(1, 31), false), "it must not be alone");
        assert!(large.take(&used(1, 31), true), "it would never be moved");
        assert!(!large.take(&used(2, 1), true) && !large.take(&used(2, 1), false), "no more beside it");
        assert_eq!((large.left, large.given_up.len()), (0, 1));
    }

    const DAY_MS: i64 = 24 * 3_600 * 1_000;

    /// The files that are given up, and those that are split, out of files of ten entries each with the given number of
    /// live entries; the bodies of a spent one were written as often as they may be. `needed` are those that leased
    /// messages keep.
    fn chosen(files: &[(u32, bool)], needed: &[u32], moved: usize) -> (Vec<u32>, Vec<u32>) {
        let (disk, dir) = (MemoryDisk::new(), Path::new("/d"));
        disk.create_dir(dir).unwrap();
        let mut cold = ColdSet::new(7, 1, (1, usize::MAX), 1);
        let (at, now) = (|ms: i64| Timestamp::from_ms(1_795_000_000_000 + ms).unwrap(), 0);
        for (number, (live, is_spent)) in (1..).zip(files) {
            let name = FileId { directory: 7, shard: 0, kind: FileKind::Table, number };
            let mut writer = TableWriter::create(&disk, dir, name).unwrap();
            if *is_spent {
                writer.note_writes(MAX_BODY_WRITES);
            }
            for of_file in 0..10 {
                let (due, message) = (at(i64::from(of_file) * DAY_MS), u64::from(number * 10 + of_file));
                let id = MessageId::new(due, 0, 1, message);
                let now = Now { wall: at(now), mono_ms: 0 };
                let entry = Entry {
                    id,
                    number: Number::new(message).unwrap(),
                    queue: "q".parse().unwrap(),
                    created: at(0),
                    key: None,
                    headers: Headers::default(),
                    lease_ms: None,
                    max_attempts: None,
                    standing: Standing { state: State::Scheduled, ..Standing::put(due, 0, None, now) },
                    ready_since: Timestamp::MIN,
                };
                // So long that no file is small.
                writer.push(&entry, &[7; 4_096]).unwrap();
            }
            let file = Arc::new(writer.finish().unwrap());
            let (segment, mut out) = (Arc::new(Segment::of_table(&file)), DeletionBitmap::none(10));
            out.set_range(0..10 - live);
            cold.add(ColdTable::new(file, segment, out, Timestamp::MIN, at(now)));
        }
        // The spare bytes are fewer messages than are spare in any case.
        let (budget, executor) = (MemoryBudget::of(4_096, 4_096), Executor::without_threads());
        let mut context = FlushContext::new(Arc::new(disk), dir.into(), 7, &budget, 100, executor);
        (context.least, context.moved) = (2, moved);
        let sources = choose(&cold, &cold.states(), &needed.iter().copied().collect(), at(now), &context);
        let numbers = |is_given_up: bool| {
            let of_kind = sources.iter().filter(|source| source.until.is_none() == is_given_up);
            of_kind.map(|source| source.file.name().number).collect()
        };
        (numbers(true), numbers(false))
    }

    /// The first reason for moving messages.
    #[test]
    fn sparse_files_are_given_up_while_all_have_more_than_twice_what_is_in_use() {
        let given_up = |files: &[(u32, bool)], needed: &[u32]| chosen(files, needed, 1_000).0;
        let [none, fresh] = [Vec::<u32>::new(), vec![1]];
        assert_eq!(given_up(&[(1, false), (3, false), (10, false)], &[]), fresh, "that is enough");
        assert_eq!(given_up(&[(1, false), (4, false), (10, false)], &[]), none, "half is in use");
        assert_eq!(given_up(&[(1, false), (1, false), (4, false)], &[]), [1, 2]);
        assert_eq!(given_up(&[(3, false), (3, false), (3, false)], &[]), [1, 2]);
        // A file that a leased message keeps counts, and stays.
        assert_eq!(given_up(&[(1, false), (3, false), (10, false)], &[1]), [2]);
        assert_eq!(
            given_up(&[(0, false), (3, false), (10, false), (1, false)], &[]),
            [4],
            "nothing is left of it"
        );
        assert_eq!(given_up(&[(0, false), (3, false), (10, false), (1, false)], &[1]), [2, 4]);
    }

    #[test]
    fn files_whose_bodies_were_moved_before_are_given_up_last_and_leave_some_room() {
        let given_up = |files: &[(u32, bool)]| chosen(files, &[], 1_000).0;
        assert_eq!(given_up(&[(1, true), (4, false), (8, false)]), [2], "first those that were not moved");
        // Eight settled ones are spare.
        assert_eq!(given_up(&[(1, true), (1, true), (10, true)]), Vec::<u32>::new());
        assert_eq!(given_up(&[(1, true), (1, true), (8, true)]), [1]);
    }

    /// The third one: what is due soon is moved out of all coarse files together, as far as there is room beside what
    /// is given up.
    #[test]
    fn what_is_due_soon_is_moved_out_of_coarse_files_that_are_left() {
        let parted = |files: &[(u32, bool)], moved| chosen(files, &[], moved).1;
        assert_eq!(parted(&[(10, false), (10, false)], 1_000), [1, 2]);
        assert_eq!(parted(&[(10, false), (10, true)], 1_000), [1], "bodies are moved once");
        assert_eq!(chosen(&[(10, false), (1, false), (3, false)], &[], 1_000), (vec![2], vec![1, 3]));
        assert_eq!(chosen(&[(10, false), (1, false), (3, false)], &[], 1), (vec![2], Vec::new()));
    }

    /// An expired message is dead in its new file. If its queue drops it, it has to be gone, and waits for that in the
    /// new file too, unless it died when its file was promoted.
    #[test]
    fn what_a_queue_drops_is_not_dead_for_being_moved() {
        let (disk, dir) = (MemoryDisk::new(), Path::new("/d"));
        disk.create_dir(dir).unwrap();
        let at = |ms: i64| Timestamp::from_ms(1_795_000_000_000 + ms).unwrap();
        let name = FileId { directory: 7, shard: 0, kind: FileKind::Table, number: 1 };
        let mut writer = TableWriter::create(&disk, dir, name).unwrap();
        let entry = Entry {
            id: MessageId::new(at(10), 0, 1, 1),
            number: Number::new(1).unwrap(),
            queue: "q".parse().unwrap(),
            created: at(0),
            key: None,
            headers: Headers::default(),
            lease_ms: None,
            max_attempts: None,
            standing: Standing::put(at(10), 0, Some(at(50)), Now { wall: at(0), mono_ms: 0 }),
            ready_since: Timestamp::MIN,
        };
        writer.push(&entry, &[7; 10]).unwrap();
        let file = Arc::new(writer.finish().unwrap());
        let segment = Arc::new(Segment::of_table(&file));
        let is_dead = |ready_until: Timestamp, drops: &BTreeSet<QueueName>| {
            let (file, segment) = (Arc::clone(&file), Arc::clone(&segment));
            let (settled, over_by) = (DeletionBitmap::none(1), at(60));
            let source = CompactionSource { file, segment, settled, ready_until, over_by, until: None };
            let mut found = Vec::new();
            source.file.read(0..1, &mut found).unwrap();
            let number = NonZeroU32::new(1).unwrap();
            let (captured, _) = source.captured(found.remove(0), number, drops, &mut QueueNames::default());
            matches!(captured.state(), State::Dead(_))
        };
        let (none, drops) = (BTreeSet::new(), BTreeSet::from(["q".parse().unwrap()]));
        assert!(is_dead(at(20), &none) && !is_dead(at(20), &drops) && is_dead(at(50), &drops));
    }

    #[test]
    fn a_file_is_sparse_when_less_than_half_of_it_is_left() {
        assert_eq!(
            [0, 49, 50, 51, 100].map(|live| used(1, live).is_sparse()),
            [true, true, false, false, false]
        );
    }

    /// In pairs of the entries held and in use, of files of a hundred entries.
    fn sparse_of<const N: usize>(files: [(u64, u64); N]) -> Vec<u32> {
        let holding = |(number, (held, used))| Holding { number, held, used, len: 100 };
        sparse_holding(&(1..).zip(files).map(holding).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_leased_leaves_files_that_are_sparse_while_all_of_them_are() {
        assert_eq!(sparse_of([(1, 30), (2, 10), (0, 5), (1, 60)]), [2, 1], "the third has none to leave it");
        assert_eq!(sparse_of([(1, 49), (1, 50), (1, 50)]), [1], "half is not less than half");
        assert_eq!(sparse_of([(1, 20), (0, 79)]), [1]);
        // The type of the empty list has to be given if crates compare numbers with types they define.
        const NONE: [u32; 0] = [];
        assert_eq!(sparse_of([(1, 20), (0, 80)]), NONE, "half of all is in use");
        assert_eq!(sparse_of([(1, 20), (0, 100)]), NONE);
        assert_eq!(sparse_of([]), NONE);
    }

    #[test]
    fn messages_are_moved_for_as_long_ahead_as_there_is_room_for() {
        let now = Timestamp::MIN;
        // A message per second.
        let end = |least, most| {
            let a_second = |until: Timestamp| until.ms_since(now) / 1_000;
            end_by_counts(now, least, most, a_second).map(|end| end.ms_since(now))
        };
        let in_all = AHEAD_MS / 1_000;
        assert_eq!(end(1, in_all), Some(AHEAD_MS));
        assert_eq!(end(1, in_all - 1), Some(AHEAD_MS / 2));
        assert_eq!(end(1, in_all / 4), Some(AHEAD_MS / 4));
        assert_eq!(end(in_all, in_all), Some(AHEAD_MS), "as many as may share a file");
        assert_eq!(end(in_all + 1, in_all), None, "fewer than may share a file");
        let least = end(1, 1).expect("a minute's messages are moved however many they are");
        assert!((30_000..=60_000).contains(&least), "{least}");
    }
}

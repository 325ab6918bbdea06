//! Tests of the order in which messages are handed over, with and without read-ahead, against a sorted list.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dwell_model::{
    Counts, Death, DeathReason, Headers, MessageId, Number, QueueName, Standing, State, Timestamp,
};
use dwell_store::core::{
    Cold, ColdHead, CopyAt, DeadProgress, DeadReader, DeadSearch, Died, Expired, Expiring, QueuePart,
};
use proptest::prelude::*;

use super::*;
use crate::disk::{Calls, Disk, Fault, MemoryDisk};
use crate::executor;
use crate::sealed::{FileId, FileKind};
use crate::table::{self, Entry, TableWriter};

const DIRECTORY: u64 = 7;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_ms(1_795_000_000_000 + ms).unwrap()
}

fn queue() -> QueueName {
    "q".parse().unwrap()
}

/// A message of a file: its state is 0 for scheduled, 1 for ready, 2 for dead.
#[derive(Clone, Copy, Debug)]
struct Drawn {
    state: u8,
    priority: u32,
    due: i64,
    body_len: usize,
}

fn drawn(priorities: u32) -> impl Strategy<Value = Drawn> {
    let state = prop_oneof![8 => Just(0u8), 1 => Just(1), 1 => Just(2)];
    let len = prop_oneof![8 => 0..900usize, 1 => 3_000..6_000usize];
    let of = |(state, priority, due, body_len)| Drawn { state, priority, due, body_len };
    (state, 0..priorities, 0..500i64, len).prop_map(of)
}

#[derive(Clone, Debug)]
enum Step {
    /// A number of calls that hand over what is due.
    Due(u8),
    Head,
    /// A cold message is taken out by another call.
    TakeOut(prop::sample::Index),
    /// A message that was handed over is put back.
    PutBack(prop::sample::Index),
    Add(Vec<Drawn>),
    /// The same of messages that are in memory.
    AddResident(Vec<Drawn>),
    Remove(prop::sample::Index),
    /// The clock advances.
    Later(i64),
    /// The clock steps back; what was due stays ready.
    Back(i64),
    Forget,
    /// Up to `most` dead messages are handed over: from the oldest on, or continuing behind the last ones.
    Dead {
        most: usize,
        anew: bool,
    },
    ForgetDead,
}

fn died(entry: &Entry) -> Option<Died> {
    match entry.standing.state {
        State::Dead(death) => Some((death.at, entry.id)),
        _ => None,
    }
}

/// Mostly dead ones.
fn dead() -> impl Strategy<Value = Drawn> {
    let state = prop_oneof![1 => Just(0u8), 9 => Just(2)];
    let len = prop_oneof![20 => 0..300usize, 1 => 3_000..6_000usize];
    (state, 0..500i64, len).prop_map(|(state, due, body_len)| Drawn { state, priority: 0, due, body_len })
}

fn steps_of_a_sweep() -> impl Strategy<Value = Vec<Step>> {
    let index = any::<prop::sample::Index>;
    let step = prop_oneof![
        20 => (1..40usize, prop::bool::weighted(0.05)).prop_map(|(most, anew)| Step::Dead { most, anew }),
        4 => index().prop_map(Step::TakeOut),
        6 => index().prop_map(Step::PutBack),
        1 => prop::collection::vec(dead(), 1..150).prop_map(Step::Add),
        1 => prop::collection::vec(dead(), 1..150).prop_map(Step::AddResident),
        1 => index().prop_map(Step::Remove),
        1 => (1..12u8).prop_map(Step::Due),
        1 => Just(Step::ForgetDead),
    ];
    prop::collection::vec(step, 1..80)
}

fn steps(priorities: u32) -> impl Strategy<Value = Vec<Step>> {
    let index = any::<prop::sample::Index>;
    let step = prop_oneof![
        20 => (1..12u8).prop_map(Step::Due),
        6 => Just(Step::Head),
        3 => index().prop_map(Step::TakeOut),
        2 => index().prop_map(Step::PutBack),
        2 => prop::collection::vec(drawn(priorities), 1..150).prop_map(Step::Add),
        1 => index().prop_map(Step::Remove),
        4 => (0..200i64).prop_map(Step::Later),
        1 => (0..100i64).prop_map(Step::Back),
        1 => Just(Step::Forget),
    ];
    prop::collection::vec(step, 1..60)
}

/// A message in the sorted list.
#[derive(Clone, Debug)]
struct ModelMessage {
    copy: CopyAt,
    entry: Entry,
    body: Bytes,
    is_cold: bool,
}

struct Beside {
    disk: MemoryDisk,
    cold: ColdSet,
    known: Vec<ModelMessage>,
    /// By file.
    ready_until: BTreeMap<u32, Timestamp>,
    now: Timestamp,
    /// The position up to which dead messages were handed over.
    swept: Option<Died>,
    /// The expiry of all messages that are added.
    expires: Option<Timestamp>,
    /// The key of all messages that are added.
    key: Option<Key>,
}

impl Beside {
    fn new(window: usize, blocks: usize, dead_entries: usize) -> Beside {
        let disk = MemoryDisk::new();
        disk.create_dir(Path::new("/d")).unwrap();
        let cold = ColdSet::new(DIRECTORY, window, (blocks, usize::MAX), dead_entries);
        let (known, ready_until, swept) = (Vec::new(), BTreeMap::new(), None);
        Beside { disk, cold, known, ready_until, now: at(100), swept, expires: None, key: None }
    }

    fn add(&mut self, drawn: &[Drawn]) {
        self.add_file(drawn, true);
    }

    /// Adds a file with messages that are all cold, or all in memory.
    fn add_file(&mut self, drawn: &[Drawn], is_cold: bool) {
        let number = self.ready_until.len() as u32 + 1;
        let first = self.known.len() as u64 + 1;
        let (expires, its_key) = (self.expires, self.key.clone());
        let entry = |(one, number): (&Drawn, u64)| {
            let due = at(one.due);
            let state = match one.state {
                0 => State::Scheduled,
                1 => State::Ready,
                // In another order than that of their due.
                _ => State::Dead(Death { reason: DeathReason::Buried, at: at(one.due * 7 % 61) }),
            };
            let standing = Standing {
                state,
                due,
                priority: one.priority,
                attempts: 0,
                expires,
                keyless: false,
                counts: Counts::default(),
                last_error: None,
                holder: None,
            };
            let entry = Entry {
                id: MessageId::new(due, 0, 1, number),
                number: Number::new(number).unwrap(),
                queue: queue(),
                created: at(0),
                key: its_key.clone(),
                headers: Headers::default(),
                lease_ms: None,
                max_attempts: None,
                standing,
                ready_since: Timestamp::MIN,
            };
            (entry, Bytes::from(vec![number as u8; one.body_len]))
        };
        let mut entries: Vec<(Entry, Bytes)> = drawn.iter().zip(first..).map(entry).collect();
        entries.sort_by_key(|(entry, _)| entry.sort_key());
        let name = FileId { directory: DIRECTORY, shard: 0, kind: FileKind::Table, number };
        let mut writer = TableWriter::create(&self.disk, Path::new("/d"), name).unwrap();
        for (entry, body) in &entries {
            writer.push(entry, body).unwrap();
        }
        let file = Arc::new(writer.finish().unwrap());
        let segment = Arc::new(Segment::of_table(&file));
        let mut out = DeletionBitmap::none(file.len());
        if !is_cold {
            out.set_range(0..file.len());
        }
        self.cold.add(ColdTable::new(file, segment, out, Timestamp::MIN, self.now));
        self.ready_until.insert(number, Timestamp::MIN);
        let file = NonZeroU32::new(number).unwrap();
        self.known.extend((0..).zip(entries).map(|(ordinal, (entry, body))| ModelMessage {
            copy: CopyAt { file, ordinal },
            entry,
            body,
            is_cold,
        }));
    }

    fn is_ready(&self, known: &ModelMessage) -> bool {
        match known.entry.standing.state {
            State::Ready => true,
            State::Scheduled => {
                known.entry.standing.due <= self.now.max(self.ready_until[&known.copy.file.get()])
            }
            _ => false,
        }
    }

    fn key(known: &ModelMessage) -> (u32, Timestamp, MessageId) {
        (known.entry.standing.priority, known.entry.standing.due, known.entry.id)
    }

    /// The indexes in `known` of the ready messages, in order.
    fn ready(&self) -> Vec<usize> {
        let is_ready = |at: &usize| self.known[*at].is_cold && self.is_ready(&self.known[*at]);
        let mut ready: Vec<usize> = (0..self.known.len()).filter(is_ready).collect();
        ready.sort_by_key(|at| Beside::key(&self.known[*at]));
        ready
    }

    fn due(&mut self) {
        let (ready, mut handed) = (self.ready(), Vec::new());
        self.cold.due(&queue(), self.now, &mut handed).unwrap();
        assert_eq!(handed.is_empty(), ready.is_empty(), "at least one if there is any");
        let bodies = self.cold.bodies_of(handed.iter().map(|one| &one.message));
        let mut bodies = bodies.into_iter().peekable();
        for (one, at) in handed.into_iter().zip(ready) {
            let known = &mut self.known[at];
            assert_eq!((one.message.number, one.copy), (known.entry.number, known.copy));
            let place = (one.message.number, &one.message.body);
            assert_eq!(BodyRef::read_all(&[place]).pop().unwrap().unwrap(), known.body);
            if let Some((_, body)) = bodies.next_if(|(number, _)| *number == known.entry.number) {
                assert_eq!(body, known.body);
            }
            known.is_cold = false;
        }
        assert_eq!(bodies.next(), None, "bodies are those of what was handed over");
    }

    /// Hands over the next dead messages; false if there are no more.
    fn dead(&mut self, most: usize) -> bool {
        let mut handed = Vec::new();
        let to = self
            .cold
            .dead(&queue(), DeadReader::Sweep, self.swept, self.swept.is_none(), most, &mut handed)
            .unwrap();
        assert!(handed.len() <= most);
        let mut next: Vec<(Died, usize)> = Vec::new();
        for (at, known) in self.known.iter().enumerate().filter(|(_, known)| known.is_cold) {
            let is_up_to = |died: &Died| match to {
                DeadProgress::All => true,
                DeadProgress::To(to) => Some(*died) <= to,
            };
            let died = died(&known.entry).filter(|died| Some(*died) > self.swept && is_up_to(died));
            next.extend(died.map(|died| (died, at)));
        }
        next.sort_unstable();
        let expected: BTreeSet<CopyAt> = next.iter().map(|(_, at)| self.known[*at].copy).collect();
        assert_eq!(handed.iter().map(|one| one.copy).collect::<BTreeSet<_>>(), expected);
        next.iter().for_each(|(_, at)| self.known[*at].is_cold = false);
        match to {
            DeadProgress::All => self.swept = next.last().map(|(died, _)| *died).or(self.swept),
            DeadProgress::To(to) => self.swept = self.swept.max(to),
        }
        to != DeadProgress::All
    }

    fn head(&mut self) {
        let ColdHead { first, next } = self.cold.head(&queue(), self.now).unwrap();
        let expected = self.ready().first().map(|at| Beside::key(&self.known[*at]));
        assert_eq!(first, expected);
        let later = self.known.iter().filter(|known| {
            let is_scheduled = known.entry.standing.state == State::Scheduled;
            let matters = expected.is_none_or(|first| Beside::key(known) < first);
            known.is_cold && is_scheduled && !self.is_ready(known) && matters
        });
        match (later.map(|known| known.entry.standing.due).min(), next) {
            (Some(due), Some(next)) => assert!(self.now < next && next <= due, "{next:?} for {due:?}"),
            (Some(due), None) => panic!("{due:?} is next, and nobody says so"),
            (None, next) => assert!(next.is_none_or(|next| self.now < next)),
        }
    }

    /// Checks that a section with cold entries is listed in the order of its queue, before them.
    fn check_order(&self) {
        for ModelMessage { copy, entry, .. } in self.known.iter().filter(|known| known.is_cold) {
            let (file, due) = (&self.cold.files()[&copy.file.get()], entry.standing.due);
            let section = file.file.section_of(copy.ordinal);
            match (file.file.sections()[section].state, file.sections[section].bound) {
                (SectionState::Dead, bound) => assert_eq!(bound, None),
                (SectionState::Ready, bound) => assert_eq!(bound, Some(Timestamp::MIN)),
                (SectionState::Scheduled, bound) => {
                    assert!(bound.is_some_and(|bound| bound <= due), "{bound:?} {due:?}")
                }
            }
        }
    }

    /// Checks forecasts for instants on and between those of messages, in any order.
    fn check_forecast(&mut self) {
        let edges: Vec<Timestamp> = (-1..75).rev().map(|n| at(n * 7)).chain([Timestamp::MAX]).collect();
        let forecast = self.cold.forecast(&queue(), self.now, &edges).unwrap();
        let scheduled = self.known.iter().filter(|known| {
            known.is_cold && known.entry.standing.state == State::Scheduled && !self.is_ready(known)
        });
        let dues: Vec<Timestamp> = scheduled.map(|known| known.entry.standing.due).collect();
        assert_eq!(forecast.scheduled, dues.len() as u64);
        for (edge, said) in edges.iter().zip(&forecast.due_by) {
            let due = dues.iter().filter(|due| *due <= edge).count() as u64;
            assert!(due.abs_diff(*said) <= forecast.within, "{due} by {edge}, and not {said}: {forecast:?}");
        }
        assert_eq!(forecast.due_by.last(), Some(&forecast.scheduled));
        assert!(forecast.due_by[..76].is_sorted_by(|later, earlier| later >= earlier));
        // Less than a block of each section.
        let sections = self.cold.sections_of(&queue()).into_iter().filter(|at| {
            let section = self.cold.section(*at);
            section.state == SectionState::Scheduled && section.max_due > self.now
        });
        let largest = |at: SectionRef| {
            let file = &self.cold.files()[&at.file].file;
            let range = self.cold.section(at).range();
            let blocks = file.block_of(range.start)..file.block_of(range.end - 1) + 1;
            blocks.map(|block| file.ordinals_of(block).len() as u64 - 1).max().unwrap()
        };
        let most: u64 = sections.map(largest).sum();
        assert!(forecast.within <= most, "{} is more than {most}", forecast.within);
    }

    fn step(&mut self, step: Step) {
        self.do_step(step);
        self.check_order();
        self.check_forecast();
    }

    fn do_step(&mut self, step: Step) {
        let some = |known: &[ModelMessage], is_cold: bool, which: prop::sample::Index| {
            let fits: Vec<usize> = (0..known.len()).filter(|at| known[*at].is_cold == is_cold).collect();
            (!fits.is_empty()).then(|| *which.get(&fits))
        };
        match step {
            Step::Due(times) => (0..times).for_each(|_| self.due()),
            Step::Head => self.head(),
            Step::TakeOut(which) => {
                if let Some(at) = some(&self.known, true, which) {
                    self.cold.take_out(self.known[at].copy);
                    self.known[at].is_cold = false;
                }
            }
            Step::PutBack(which) => {
                let Some(at) = some(&self.known, false, which) else { return };
                let file = self.known[at].copy.file.get();
                if self.cold.files().contains_key(&file) {
                    let known = &self.known[at];
                    self.cold.put_back(known.copy, died(&known.entry));
                    self.known[at].is_cold = true;
                }
            }
            Step::Add(drawn) => self.add(&drawn),
            Step::AddResident(drawn) => self.add_file(&drawn, false),
            Step::Dead { most, anew } => {
                self.swept = self.swept.filter(|_| !anew);
                self.dead(most);
            }
            Step::ForgetDead => {
                self.cold.forget(&queue(), QueuePart::Dead);
                let is_dead = |known: &&mut ModelMessage| died(&known.entry).is_some();
                self.known.iter_mut().filter(is_dead).for_each(|known| known.is_cold = false);
            }
            Step::Remove(which) => {
                let number = 1 + which.index(self.ready_until.len()) as u32;
                let is_needed = |known: &&ModelMessage| known.is_cold && known.copy.file.get() == number;
                if !self.known.iter().any(|known| is_needed(&known)) {
                    self.cold.remove(number);
                }
            }
            Step::Later(ms) => self.now = self.now.saturating_after(ms as u64),
            Step::Back(ms) => {
                self.cold.promote(self.now);
                self.ready_until
                    .values_mut()
                    .for_each(|ready_until| *ready_until = self.now.max(*ready_until));
                self.now = Timestamp::from_ms(self.now.as_ms() - ms).unwrap();
            }
            Step::Forget => {
                self.cold.forget(&queue(), QueuePart::Pending);
                let is_pending =
                    |known: &&mut ModelMessage| !matches!(known.entry.standing.state, State::Dead(_));
                self.known.iter_mut().filter(is_pending).for_each(|known| known.is_cold = false);
            }
        }
    }
}

fn hands_over_in_order(with_thread: bool, files: Vec<Vec<Drawn>>, steps: Vec<Step>, window: usize) {
    let mut beside = Beside::new(window, 64, 16);
    if with_thread {
        beside.cold.use_executor(executor::tests::threads());
    }
    files.iter().for_each(|file| beside.add(file));
    // Until much is handed over at a time.
    (0..3).for_each(|_| beside.due());
    steps.into_iter().for_each(|step| beside.step(step));
    while !beside.ready().is_empty() {
        beside.due();
        beside.head();
    }
}

/// Files, the steps, and the size of a hand-over.
fn cases(priorities: u32) -> impl Strategy<Value = (Vec<Vec<Drawn>>, Vec<Step>, usize)> {
    let file = prop::collection::vec(drawn(priorities), 1..150);
    (prop::collection::vec(file, 1..6), steps(priorities), 1..20usize)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn what_is_read_by_and_by_is_handed_over_in_order((files, steps, window) in cases(1)) {
        hands_over_in_order(false, files, steps, window);
    }

    #[test]
    fn so_it_is_with_several_priorities((files, steps, window) in cases(3)) {
        hands_over_in_order(false, files, steps, window);
    }

    #[test]
    fn so_it_is_with_nearly_as_many_priorities_as_messages((files, steps, window) in cases(400)) {
        hands_over_in_order(false, files, steps, window);
    }

    #[test]
    fn what_a_thread_reads_is_handed_over_in_order((files, steps, window) in cases(1)) {
        hands_over_in_order(true, files, steps, window);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]
    #[test]
    fn the_dead_are_handed_over_oldest_first(
        files in prop::collection::vec(prop::collection::vec(dead(), 1..150), 1..6),
        steps in steps_of_a_sweep(),
        dead_entries in 1..60usize,
    ) {
        let mut beside = Beside::new(8, 64, dead_entries);
        files.iter().for_each(|file| beside.add(file));
        steps.into_iter().for_each(|step| beside.step(step));
        let mut calls = 0;
        while beside.dead(50) {
            calls += 1;
            assert!(calls < 10_000, "it comes to an end");
        }
        beside.swept = None;
        while beside.dead(50) {}
        assert!(beside.known.iter().all(|known| !known.is_cold || died(&known.entry).is_none()));
    }
}

#[test]
fn what_follows_is_read_ahead_once_much_is_asked_for() {
    let mut beside = Beside::new(16, 64, 16);
    let drawn = |due| Drawn { state: 0, priority: 1, due, body_len: 100 };
    let every = |from: i64| (0..80).map(|at| drawn(at * 3 + from)).collect::<Vec<_>>();
    (0..3).for_each(|from| beside.add(&every(from)));
    beside.now = at(1_000);
    (0..8).for_each(|_| beside.due());
    assert_eq!(beside.cold.prefetches.len(), 1, "it reads ahead");
    assert!(!beside.cold.blocks.can_spare(1_000), "a few sections at a time");
    let gone = beside.known.iter().position(|known| !known.is_cold).unwrap();
    beside.cold.put_back(beside.known[gone].copy, None);
    beside.known[gone].is_cold = true;
    assert!(beside.cold.prefetches.is_empty(), "what was read may not be what comes next");
    beside.due();
    beside.cold.forget(&queue(), QueuePart::Pending);
    assert!(beside.cold.prefetches.is_empty(), "nor is there any left");
}

#[test]
fn a_file_that_goes_is_held_no_longer_and_what_was_read_ahead_stays() {
    lets_a_file_go(false);
}

#[test]
fn a_file_that_goes_while_a_thread_reads_ahead_is_held_until_it_has() {
    lets_a_file_go(true);
}

/// Removes one of three files of which something was read ahead, optionally while a thread is reading.
fn lets_a_file_go(while_it_is_read: bool) {
    let mut beside = Beside::new(16, 64, 16);
    let drawn = |due| Drawn { state: 0, priority: 1, due, body_len: 100 };
    let every = |from: i64| (0..400).map(|at| drawn(at * 3 + from)).collect::<Vec<_>>();
    (0..3).for_each(|from| beside.add(&every(from)));
    beside.now = at(2_000);
    (0..8).for_each(|_| beside.due());
    assert_eq!(beside.cold.prefetches.len(), 1, "it reads ahead");
    let file = Arc::downgrade(&beside.cold.files()[&2].file);
    let left = beside.known.iter_mut().filter(|known| known.is_cold && known.copy.file.get() == 2);
    for known in left {
        beside.cold.take_out(known.copy);
        known.is_cold = false;
    }
    if while_it_is_read {
        let stream = beside.cold.prefetches[0].lend().expect("not all of it was read");
        beside.cold.remove(2);
        assert_ne!(file.strong_count(), 0, "it is read");
        beside.cold.prefetches[0].give_back(stream);
    } else {
        beside.cold.remove(2);
    }
    assert_eq!((file.strong_count(), beside.cold.prefetches.len()), (0, 1));
    while !beside.ready().is_empty() {
        beside.due();
    }
}

#[test]
fn a_take_looks_at_no_section_whose_time_has_not_come() {
    let mut beside = Beside::new(16, 64, 16);
    let drawn = |due| Drawn { state: 0, priority: 1, due, body_len: 100 };
    // Each section begins with a message that is due soon, and ends with one that is due later.
    (0..50).for_each(|section| beside.add(&[drawn(50), drawn(1_000 + section)]));
    beside.now = at(60);
    while !beside.ready().is_empty() {
        beside.due();
        beside.head();
    }
    assert_eq!(beside.cold.sections_by(&queue(), 1, at(999)), []);
    assert_eq!(beside.cold.sections_by(&queue(), 1, at(1_000)).len(), 1);
    let first = beside.known[0].copy;
    beside.cold.put_back(first, None);
    beside.known[0].is_cold = true;
    assert_eq!(beside.cold.sections_by(&queue(), 1, at(60)).len(), 1, "it may be ready again");
    beside.head();
    beside.due();
}

/// A file has messages of many queues. When it is removed, each of them keeps only its other files, and a queue without
/// other files costs nothing.
#[test]
fn a_file_that_goes_is_forgotten_by_all_of_its_queues() {
    let mut beside = Beside::new(16, 64, 16);
    let names = ["a", "b", "c"].map(|name| name.parse::<QueueName>().unwrap());
    let write = |beside: &Beside, number: u32, queues: &[QueueName]| {
        let name = FileId { directory: DIRECTORY, shard: 0, kind: FileKind::Table, number };
        let mut writer = TableWriter::create(&beside.disk, Path::new("/d"), name).unwrap();
        let entries = queues.iter().flat_map(|queue| [(queue, State::Ready), (queue, State::Scheduled)]);
        for ((queue, state), message) in entries.zip(u64::from(number) * 10..) {
            let entry = Entry {
                id: MessageId::new(at(5), 0, 1, message),
                number: Number::new(message).unwrap(),
                queue: queue.clone(),
                created: at(0),
                key: None,
                headers: Headers::default(),
                lease_ms: None,
                max_attempts: None,
                standing: Standing {
                    state,
                    due: at(5),
                    priority: 0,
                    attempts: 0,
                    expires: None,
                    keyless: false,
                    counts: Counts::default(),
                    last_error: None,
                    holder: None,
                },
                ready_since: Timestamp::MIN,
            };
            writer.push(&entry, b"").unwrap();
        }
        let file = Arc::new(writer.finish().unwrap());
        let (segment, none) = (Arc::new(Segment::of_table(&file)), DeletionBitmap::none(file.len()));
        ColdTable::new(file, segment, none, Timestamp::MIN, at(0))
    };
    for (number, queues) in [(1, &names[..]), (2, &names[1..])] {
        let file = write(&beside, number, queues);
        beside.cold.add(file);
    }
    let take_all_out = |beside: &mut Beside, number: u32| {
        let file = NonZeroU32::new(number).unwrap();
        for ordinal in 0..beside.cold.files()[&number].file.len() {
            beside.cold.take_out(CopyAt { file, ordinal });
        }
        assert!(beside.cold.remove(number).is_some());
    };
    take_all_out(&mut beside, 1);
    let left = |beside: &Beside| {
        let totals = beside.cold.totals().into_iter().map(|(queue, (pending, _))| (queue, pending));
        (totals.collect::<Vec<_>>(), beside.cold.by_queue.len())
    };
    assert_eq!(left(&beside), (vec![(names[1].clone(), 2), (names[2].clone(), 2)], 2));
    for (queue, count) in names.iter().zip([0, 2, 2]) {
        let mut copies = Vec::new();
        for _ in 0..3 {
            let mut handed = Vec::new();
            beside.cold.due(queue, at(10), &mut handed).unwrap();
            copies.extend(handed.into_iter().map(|one| one.copy));
        }
        assert_eq!(copies.len(), count, "{queue}");
        copies.into_iter().for_each(|copy| beside.cold.put_back(copy, None));
    }
    take_all_out(&mut beside, 2);
    assert_eq!(left(&beside), (Vec::new(), 0));
}

/// Hands over ready messages once; returns how many.
fn hand_over(beside: &mut Beside) -> usize {
    let mut handed = Vec::new();
    beside.cold.due(&queue(), beside.now, &mut handed).unwrap();
    handed.len()
}

/// Crash story: each message has a different priority, and so a section. 1. Each call for a few looked at all sections, those
/// of lower priorities too. 2. With a million of them the shard stood still for a second a call.
#[test]
fn a_take_looks_at_few_sections_however_many_priorities_there_are() {
    let mut beside = Beside::new(16, 64, 16);
    // Every second one is due later.
    let drawn =
        |priority: u32| Drawn { state: 0, priority, due: 50 + i64::from(priority % 2) * 1_000, body_len: 10 };
    beside.add(&(0..4_000).map(drawn).collect::<Vec<_>>());
    beside.now = at(60);
    let mut handed = 0;
    for _ in 0..50 {
        beside.cold.begin_turn(false);
        handed += hand_over(&mut beside) as u64;
        beside.cold.head(&queue(), beside.now).unwrap();
    }
    assert!(handed > 500, "{handed}");
    let looked = beside.cold.looked;
    assert!(looked < 4 * handed + 50 * 70, "{looked} sections for {handed} messages");
}

/// Crash story: a take names many queues with a backlog each. 1. Of each as many messages were made resident as of one,
/// and so memory had no bound but the number of queues that a take may name.
#[test]
fn a_turn_makes_few_messages_resident_however_many_queues_have_some() {
    let mut beside = Beside::new(64, 64, 16);
    let drawn = |due: i64| Drawn { state: 0, priority: 1, due, body_len: 10 };
    beside.add(&(0..4_000).map(drawn).collect::<Vec<_>>());
    beside.now = at(100_000);
    // Enough calls until many are handed over at a time.
    let handed: usize = (0..40).map(|_| hand_over(&mut beside)).sum();
    assert!(handed < 4 * 64 + 64 + 40 * 4, "{handed} in one turn");
    beside.cold.begin_turn(false);
    assert_eq!(hand_over(&mut beside), 64, "another turn may again");
}

/// Later calls in the same turn get a sixteenth of what is handed over at a time, and at least one.
#[test]
fn of_what_is_due_besides_a_turn_hands_over_few() {
    for window in [8, 24, 100, 512] {
        let mut beside = Beside::new(window, 64, 16);
        let drawn = |due: i64| Drawn { state: 0, priority: 1, due, body_len: 10 };
        beside.add(&(0..8 * window as i64).map(drawn).collect::<Vec<_>>());
        beside.now = at(100_000);
        while !beside.cold.has_handed_enough() {
            assert_ne!(hand_over(&mut beside), 0);
        }
        let handed = hand_over(&mut beside);
        assert!((1..=(window / 16).max(1)).contains(&handed), "{handed} where there are {window} at a time");
    }
}

/// Sections of which each begins where the one before ends are read one after the other, whatever their number.
#[test]
fn sections_count_as_far_as_they_are_read_at_a_time() {
    let read_ahead = |apart: i64| {
        let mut beside = Beside::new(16, 12, 16);
        let drawn = |due| Drawn { state: 0, priority: 1, due, body_len: 100 };
        let section = |section: i64| (0..30).map(|at| drawn(section * apart + at)).collect::<Vec<_>>();
        (0..12).for_each(|at| beside.add(&section(at)));
        beside.now = at(1_000);
        (0..8).for_each(|_| beside.due());
        beside.cold.prefetches.len()
    };
    assert_eq!(read_ahead(20), 1, "of twelve sections no more than two at a time");
    assert_eq!(read_ahead(0), 0, "of twelve sections more than blocks can be spared");
}

/// Messages that are due at one instant are ordered by id, so a section may have to be read on where another begins.
#[test]
fn sections_that_meet_at_one_instant_are_read_at_a_time() {
    for (apart, open) in [(29, 2), (30, 1)] {
        let mut beside = Beside::new(16, 64, 16);
        let drawn = |due| Drawn { state: 0, priority: 1, due, body_len: 100 };
        (0..5).for_each(|section| {
            beside.add(&(0..30).map(|at| drawn(section * apart + at)).collect::<Vec<_>>())
        });
        let cursors = beside.cold.cursors(&queue(), at(1_000));
        assert_eq!((cursors.len(), open_at_once(&cursors)), (5, open), "{apart} apart");
    }
}

/// The memory for sections and for places that could not be read is counted, each with the overhead of a half empty tree.
#[test]
fn what_is_remembered_of_files_counts_for_memory() {
    let mut beside = Beside::new(8, 64, 16);
    (0..50).for_each(|_| beside.add(&dead_ones(2)));
    peek(&mut beside, |_, _| {});
    let (with, count) = (beside.cold.memory(), beside.cold.deaths.len());
    assert_eq!(count, 50, "the deaths of all sections were read");
    beside.cold.deaths.clear();
    let each = (with - beside.cold.memory()) / count;
    let entry = size_of::<SectionRef>() + 2 * size_of::<Timestamp>();
    assert!((2 * entry..4 * entry).contains(&each), "{each} bytes for {entry}");

    let mut beside = expiring(&[8]);
    let path = beside.cold.files()[&1].file.path().to_owned();
    beside.disk.unreadable_at(&path, 0, beside.cold.files()[&1].file.size());
    let before = beside.cold.files()[&1].memory();
    assert_eq!(expire(&mut beside, 0, usize::MAX), (0, true));
    let aside = beside.cold.files()[&1].memory() - before;
    assert!(aside >= 8 * 2 * (size_of::<u32>() + size_of::<Timestamp>()), "{aside} bytes");
}

/// Messages that were acked in the order of due are found by due; only those that are not there are searched for by
/// number.
#[test]
fn what_is_gone_is_found_where_it_was_due_and_the_rest_is_left_to_be_found_by_number() {
    let mut beside = Beside::new(16, 64, 16);
    let drawn = |state, due| Drawn { state, priority: 1, due, body_len: 1_000 };
    for first in [0, 200, 400] {
        let live = (0..200).map(|due| drawn(0, first + due));
        beside.add(&live.chain((0..20).map(|due| drawn(2, first + due))).collect::<Vec<_>>());
    }
    let name = FileId { directory: DIRECTORY, shard: 0, kind: FileKind::Numbers, number: 1 };
    let mut writer = crate::index_run::RunWriter::create(&beside.disk, Path::new("/d"), name, 0).unwrap();
    // So long that reading it costs more than the blocks in which they were due.
    (1..60_000).for_each(|number| writer.push(number, TableRef { file: 99, ordinal: 0 }).unwrap());
    beside.cold.set_runs(vec![Arc::new(writer.finish().unwrap())], Vec::new());
    let of = |known: &ModelMessage| (known.entry.standing.due, known.entry.number);
    let is_between = |known: &&ModelMessage, from, to| (at(from)..at(to)).contains(&known.entry.standing.due);
    let (dead, live): (Vec<&ModelMessage>, Vec<&ModelMessage>) =
        beside.known.iter().partition(|known| died(&known.entry).is_some());
    let mut gone: Vec<(Timestamp, Number)> =
        live.iter().filter(|known| is_between(known, 190, 230)).map(|known| of(known)).collect();
    let found: Vec<CopyAt> =
        live.iter().filter(|known| is_between(known, 190, 230)).map(|known| known.copy).collect();
    assert_eq!(found.len(), 40);
    // Due at another instant, dead, already gone, or never there.
    let moved = (at(200), live[0].entry.number);
    let already =
        (at(210), live.iter().find(|known| known.entry.standing.due == at(229)).unwrap().entry.number);
    let died_there = dead.iter().find(|known| is_between(known, 200, 230)).map(|known| of(known)).unwrap();
    let never = (at(205), Number::new(50_000).unwrap());
    let mut rest = vec![moved, already, died_there, never];
    rest.sort_unstable();
    gone.extend(&rest);
    let counts = beside.cold.settle_due(&mut gone).unwrap();
    assert_eq!(counts, BTreeMap::from([(queue(), (40, 0))]));
    gone.sort_unstable();
    assert_eq!(gone, rest);
    for known in &beside.known {
        let file = &beside.cold.files()[&known.copy.file.get()];
        assert_eq!(file.out.has(known.copy.ordinal), found.contains(&known.copy), "{known:?}");
    }
    let mut none = Vec::new();
    assert!(beside.cold.settle_due(&mut none).unwrap().is_empty());
}

/// Dead messages, the oldest of them last, with almost no bodies.
fn dead_ones(count: i64) -> Vec<Drawn> {
    (0..count).map(|due| Drawn { state: 2, priority: 0, due, body_len: 300 }).collect()
}

/// The number of calls that a peek at the oldest dead message takes, and the message that it finds, if `between` runs
/// after each call.
fn peek(beside: &mut Beside, mut between: impl FnMut(&mut Beside, u32)) -> (u32, MessageId) {
    for calls in 1..100 {
        let mut handed = Vec::new();
        let is_new = calls == 1;
        beside.cold.dead(&queue(), DeadReader::Peek, None, is_new, 1, &mut handed).unwrap();
        if let Some(found) = handed.pop() {
            return (calls, found.message.id);
        }
        between(beside, calls);
    }
    panic!("the peek does not come to an end");
}

/// Crash story: a peek reads files for longer than it takes until the next flush. 1. Each new file with a dead message
/// of the queue ended what it had read so far. 2. It began anew forever, and all other peeks waited for it.
#[test]
fn a_peek_comes_to_an_end_though_files_with_dead_messages_come_and_go() {
    let many = dead_ones(10_000);
    let mut alone = Beside::new(8, 64, 16);
    alone.add(&many);
    let (calls, oldest) = peek(&mut alone, |_, _| {});
    assert!(calls > 5, "{calls} calls read it");
    let mut beside = Beside::new(8, 64, 16);
    beside.add(&many);
    let found = peek(&mut beside, |beside, _| {
        beside.add_file(&dead_ones(1), false);
        let newest = beside.ready_until.len() as u32;
        beside.cold.remove(newest - newest % 2);
    });
    assert_eq!(found, (calls, oldest), "of a file whose messages are in memory nothing is read");
    // The messages of a file that is compacted are in another one.
    let mut beside = Beside::new(8, 64, 16);
    beside.add(&many);
    let (found, _) = peek(&mut beside, |beside, calls| {
        if calls % 3 == 0 {
            beside.add(&dead_ones(1));
        }
    });
    assert!(found <= calls + calls / 2 + 2, "{found} calls, and {calls} without these files");
}

/// Crash story: a peek of many dead messages remembers all that are put back. 1. A list of all dead messages was run.
/// 2. Each page was put back, and was remembered: sixty bytes a message, beyond the limit of memory.
#[test]
fn few_of_the_dead_that_are_put_back_are_remembered() {
    let mut beside = Beside::new(8, 64, 4);
    beside.add(&dead_ones(200));
    peek(&mut beside, |_, _| {});
    assert_eq!(beside.cold.walks.len(), 1);
    let file = &beside.cold.files()[&1];
    let out: Vec<bool> = beside.known.iter().map(|known| file.out.has(known.copy.ordinal)).collect();
    for (at, is_out) in out.into_iter().enumerate() {
        let (copy, died) = (beside.known[at].copy, died(&beside.known[at].entry));
        if !is_out {
            beside.cold.take_out(copy);
        }
        beside.cold.put_back(copy, died);
    }
    let remembered = beside.cold.walks[0].remembered();
    assert!(remembered <= 4, "{remembered} of 200");
    while beside.dead(3) {}
    assert!(beside.known.iter().all(|known| !known.is_cold), "and all are found");
}

/// Crash story: 1. Dead messages are put back while a window is filled, which ends before they died. 2. Others are put
/// back that died within it, until one more than may be remembered is. 3. The window was taken to reach as far as the
/// last of those remembered, and dead messages in between were passed over.
#[test]
fn what_is_put_back_moves_the_end_of_a_window_no_further() {
    let mut beside = Beside::new(8, 64, 2);
    let dead = |due| Drawn { state: 2, priority: 0, due, body_len: 0 };
    [0, 0, 35].into_iter().for_each(|due| beside.add(&[dead(due)]));
    beside.add_file(&[dead(1), dead(1), dead(1)], false);
    let put_back = |beside: &mut Beside, at: usize| {
        beside.cold.put_back(beside.known[at].copy, died(&beside.known[at].entry));
        beside.known[at].is_cold = true;
    };
    (0..2).for_each(|_| assert!(beside.dead(1)));
    assert!(beside.swept.is_none() && beside.cold.walks.len() == 1, "it is filled still");
    put_back(&mut beside, 3);
    put_back(&mut beside, 4);
    while beside.swept.is_none() {
        beside.dead(32);
    }
    let is_cold = |beside: &Beside| beside.known.iter().map(|known| known.is_cold).collect::<Vec<_>>();
    assert_eq!(is_cold(&beside), [false, false, true, true, true, false], "the oldest two were handed over");
    put_back(&mut beside, 0);
    // Each call is compared with what it has to hand over.
    while beside.dead(1) {}
    assert_eq!(is_cold(&beside), [true, false, false, false, false, false]);
}

/// A set of files with the given numbers of chunks of expiries, all of which have expired.
fn expiring(chunks: &[i64]) -> Beside {
    let mut beside = Beside::new(8, 64, 16);
    beside.expires = Some(at(1_000));
    for count in chunks {
        beside.add(
            &(0..count * 1_024)
                .map(|due| Drawn { state: 0, priority: 0, due, body_len: 0 })
                .collect::<Vec<_>>(),
        );
    }
    beside
}

/// The number of messages that die in a call that looks at `most` expiries, `mono_ms` after their time, and whether
/// these were all.
fn expire(beside: &mut Beside, mono_ms: u64, most: usize) -> (u64, bool) {
    let mut expired = Expired::default();
    let now = Now { wall: at(1_000), mono_ms };
    let is_done = beside.cold.expire(now, most, &|_| Expiring::Die, &mut expired);
    (expired.died.into_iter().map(|(_, count)| count).sum(), is_done)
}

/// Crash story: 1. Sixteen places of a file are unreadable. 2. Expiries in other files were set aside untried. 3. Each
/// retry tried these sixteen, and never the others.
#[test]
fn what_can_be_read_expires_though_many_places_before_it_are_rotten() {
    let mut beside = expiring(&[16, 1]);
    let path = beside.cold.files()[&1].file.path().to_owned();
    beside.disk.unreadable_at(&path, 0, beside.cold.files()[&1].file.size());
    assert_eq!(expire(&mut beside, 0, usize::MAX), (0, true));
    let died: u64 = (1..=4).map(|seconds| expire(&mut beside, seconds * 1_000, usize::MAX).0).sum();
    assert_eq!(died, 1_024, "of the other file, within seconds");
    beside.disk.heal_rot(|_| true);
    assert_eq!(expire(&mut beside, 60_000, usize::MAX), (16 * 1_024, true));
}

/// An unreadable chunk concerns a queue as long as some of its messages may have expired there.
#[test]
fn a_queue_that_has_nothing_left_in_a_file_needs_none_of_its_expiries() {
    let mut beside = expiring(&[1]);
    let path = beside.cold.files()[&1].file.path().to_owned();
    beside.disk.unreadable_at(&path, 0, beside.cold.files()[&1].file.size());
    let expire_unread = |beside: &mut Beside, queue: &str, wall: i64| {
        let now = Now { wall: at(wall), mono_ms: 0 };
        beside.cold.expire_unread(&queue.parse().unwrap(), now, &|_| Expiring::Die, &mut Expired::default())
    };
    assert_eq!(expire_unread(&mut beside, "q", 999), Ok(()), "its time has not come");
    assert_eq!(expire(&mut beside, 0, usize::MAX), (0, true));
    assert!(matches!(expire_unread(&mut beside, "q", 1_000), Err(Error::Unavailable { .. })));
    assert_eq!(expire_unread(&mut beside, "other", 1_000), Ok(()), "nothing there is of that queue");
    for known in &beside.known {
        beside.cold.take_out(known.copy);
    }
    assert_eq!(expire_unread(&mut beside, "q", 1_000), Ok(()));
}

#[test]
fn what_can_be_read_again_is_looked_at_a_few_at_a_time() {
    let mut beside = expiring(&[20, 20]);
    let fault = Fault { calls: Calls::Reads, after: 0, times: 16, error: std::io::ErrorKind::Other };
    beside.disk.fail(fault);
    assert_eq!(expire(&mut beside, 0, usize::MAX), (0, true));
    let (mut died, mut calls) = (0, 0);
    loop {
        let (some, is_done) = expire(&mut beside, 1_000, 2 * 1_024);
        (died, calls) = (died + some, calls + 1);
        if is_done {
            break;
        }
        assert!(some <= 2 * 1_024 && calls < 100, "{some} in call {calls}");
        // Chunks that were not tried yet are retried at once.
        let again = beside.cold.again_ms;
        assert!(if calls == 1 { again == Some(1_000) } else { again.is_none_or(|again| again <= 1_000) });
    }
    assert_eq!(died, 40 * 1_024);
    assert!(calls >= 20, "{calls} calls");
}

/// Crash story: 1. Each message has a separate section, and many have expired in their file. 2. All that are dead are
/// discarded. 3. For each section all of the file was scanned, in one turn.
#[test]
fn to_forget_the_dead_of_a_section_looks_at_no_more_of_a_file_than_the_lane() {
    let mut beside = Beside::new(16, 64, 16);
    let sections = 20_000;
    beside.add(
        &(0..sections).map(|priority| Drawn { state: 0, priority, due: 50, body_len: 0 }).collect::<Vec<_>>(),
    );
    let file = beside.cold.files.get_mut(&1).unwrap();
    assert!((0..sections).step_by(2).all(|ordinal| file.die(ordinal).is_some()));
    let before = table::pages_changed();
    beside.cold.forget(&queue(), QueuePart::Dead);
    let looked = table::pages_changed() - before;
    assert!(looked <= 2 * u64::from(sections) / 2, "{looked} pages for {} sections", sections / 2);
    let file = &beside.cold.files[&1];
    assert!(file.over.is_empty() && file.sections.iter().all(|section| section.over == 0));
    assert!((0..sections).all(|ordinal| file.is_cold(ordinal) == (ordinal % 2 == 1)));
}

/// A run of these pairs.
fn run<V: crate::index_run::IndexValue>(
    beside: &Beside,
    number: u32,
    pairs: &[(u64, V)],
) -> Arc<IndexRun<V>> {
    let name = FileId { directory: DIRECTORY, shard: 0, kind: V::KIND, number };
    let mut writer = crate::index_run::RunWriter::create(&beside.disk, Path::new("/d"), name, 100).unwrap();
    pairs.iter().for_each(|(key, value)| writer.push(*key, *value).unwrap());
    Arc::new(writer.finish().unwrap())
}

/// The place of a message, as runs of the number index have it.
fn home_of(known: &ModelMessage) -> (u64, TableRef) {
    let CopyAt { file, ordinal } = known.copy;
    (known.entry.number.get(), TableRef { file: file.get(), ordinal })
}

#[test]
fn all_runs_count_for_memory_and_the_bad_ones_are_counted() {
    let mut beside = Beside::new(8, 64, 16);
    beside.add(&dead_ones(2));
    let bare = beside.cold.memory();
    let homes: Vec<_> = (1..3_000).map(|number| (number * 5, TableRef { file: 1, ordinal: 0 })).collect();
    let numbers = vec![run(&beside, 1, &homes), run(&beside, 2, &homes)];
    let keys = vec![run(&beside, 3, &[(1, Number::new(1).unwrap())])];
    let of_runs = numbers.iter().map(|run| run.memory()).chain(keys.iter().map(|run| run.memory()));
    let of_runs = of_runs.collect::<Vec<_>>();
    assert!(of_runs.iter().all(|bytes| *bytes > 0));
    beside.cold.set_runs(numbers.clone(), keys.clone());
    assert_eq!(beside.cold.memory(), bare + of_runs.iter().sum::<usize>());
    assert_eq!(beside.cold.damaged_runs(), 0);
    let paths = numbers.iter().map(|run| run.path()).chain(keys.iter().map(|run| run.path()));
    // Behind the header of each.
    paths.for_each(|path| beside.disk.rot_at(path, 32 + 9));
    numbers.iter().for_each(|run| run.iter_readable().for_each(drop));
    assert_eq!(beside.cold.damaged_runs(), 2);
    keys.iter().for_each(|run| run.iter_readable().for_each(drop));
    assert_eq!(beside.cold.damaged_runs(), 3);
}

#[test]
fn a_message_that_stands_as_it_was_put_is_found_without_a_run() {
    let mut beside = Beside::new(8, 64, 16);
    for first in [0, 10, 20] {
        let put = (0..10).map(|due| Drawn { state: 0, priority: 0, due: first + due, body_len: 10 });
        beside.add(&put.collect::<Vec<_>>());
    }
    for known in beside.known.clone() {
        let Entry { id, number, .. } = known.entry;
        let (_, TableRef { file, ordinal }) = home_of(&known);
        let found = beside.cold.find_by_id(&queue(), id, number).unwrap();
        assert_eq!(found, Some(EntryRef { file, ordinal }), "{known:?}");
    }
    let last = &beside.known[29].entry;
    let never = MessageId::new(last.standing.due, 0, 1, 9_999);
    assert_eq!(beside.cold.find_by_id(&queue(), never, last.number).unwrap(), None);
}

#[test]
fn a_message_is_found_by_its_number_and_by_its_own_key() {
    let mut beside = Beside::new(8, 64, 16);
    let put = |due| Drawn { state: 0, priority: 0, due, body_len: 10 };
    beside.add(&[put(1), put(2)]);
    beside.add_file(&[put(3)], false);
    let key: Key = "its".parse().unwrap();
    let hash = crate::index_run::key_hash(DIRECTORY, &queue(), &key, false);
    let mut homes: Vec<_> = beside.known.iter().map(home_of).collect();
    homes.sort_unstable();
    let numbers = vec![run(&beside, 1, &homes)];
    // Another key has the same hash.
    let keys = vec![run(&beside, 2, &[(hash, beside.known[0].entry.number)])];
    beside.cold.set_runs(numbers, keys);
    let spot = |at: usize| EntryRef { file: homes[at].1.file, ordinal: homes[at].1.ordinal };
    let home = |number| beside.cold.home(Number::new(number).unwrap()).unwrap();
    assert_eq!([home(1), home(2), home(3)], [Some(spot(0)), Some(spot(1)), None], "the third is in memory");
    assert_eq!(home(4), None);
    assert_eq!(beside.cold.key_home(&queue(), &key).unwrap(), None);
}

#[test]
fn of_blocks_the_one_goes_that_was_used_longest_ago() {
    let mut beside = Beside::new(8, 2, 16);
    let put = |due| Drawn { state: 0, priority: 0, due, body_len: 900 };
    beside.add(&(0..300).map(put).collect::<Vec<_>>());
    let file = Arc::clone(&beside.cold.files()[&1].file);
    let second = file.block_end(0);
    let third = file.block_end(second);
    assert!(third < file.len());
    let mut blocks = block_cache::BlockCache::keeping(2, usize::MAX);
    let read = |blocks: &mut block_cache::BlockCache, ordinal| {
        blocks.entry(&beside.cold.files()[&1], ordinal).is_ok()
    };
    for ordinal in [0, second, 1, third] {
        assert!(read(&mut blocks, ordinal));
    }
    beside.disk.unreadable_at(file.path(), 0, file.size());
    assert!(read(&mut blocks, 0) && read(&mut blocks, third), "they are at hand");
    assert!(!read(&mut blocks, second));
}

#[test]
fn a_read_that_failed_is_told_until_it_was_asked_for() {
    let mut beside = Beside::new(8, 64, 16);
    beside.add(&[Drawn { state: 0, priority: 0, due: 1, body_len: 10 }]);
    let known = beside.known[0].clone();
    let numbers = vec![run(&beside, 1, &[home_of(&known)])];
    beside.cold.set_runs(numbers, Vec::new());
    assert!(!beside.cold.has_failure());
    let file = Arc::clone(&beside.cold.files()[&1].file);
    beside.disk.unreadable_at(file.path(), 0, file.size());
    assert!(beside.cold.by_number(known.entry.number).is_err());
    assert!(beside.cold.has_failure());
    assert!(beside.cold.take_failure().is_some());
    assert!(!beside.cold.has_failure() && beside.cold.take_failure().is_none());
}

/// A queue of one file whose messages are due at intervals of a millisecond, ten of them by now.
fn by_and_by() -> Beside {
    let mut beside = Beside::new(64, 64, 16);
    let put = |due: i64| Drawn { state: 0, priority: 0, due: 91 + due, body_len: 300 };
    beside.add(&(0..2_000).map(put).collect::<Vec<_>>());
    beside
}

/// From now on nothing of the file can be read.
fn without_reading(beside: &mut Beside) {
    beside.cold.blocks.forget(1);
    let file = Arc::clone(&beside.cold.files()[&1].file);
    beside.disk.unreadable_at(file.path(), 0, file.size());
}

#[test]
fn a_forecast_reads_nothing_while_takes_keep_up() {
    let mut beside = by_and_by();
    while !beside.ready().is_empty() {
        beside.due();
        beside.head();
    }
    without_reading(&mut beside);
    let edges = [at(100), at(101), at(1_000), at(1_001), at(2_090), at(2_091)];
    let forecast = beside.cold.forecast(&queue(), beside.now, &edges).unwrap();
    assert_eq!(forecast.scheduled, 1_990);
    // A body alone takes 300 bytes of a block's 32 KiB.
    assert!((1..110).contains(&forecast.within), "{forecast:?}");
    for (said, due) in forecast.due_by.iter().zip([0, 1, 900, 901, 1_990, 1_990]) {
        assert!(said.abs_diff(due) <= 1, "they are spread evenly: {forecast:?}");
    }
    // At the ends of the section the forecast is exact.
    let ends = beside.cold.forecast(&queue(), beside.now, &[at(100), at(2_090)]).unwrap();
    assert_eq!((ends.due_by, ends.within), (vec![0, 1_990], 0));
}

#[test]
fn of_ready_messages_that_wait_a_forecast_reads_where_they_end_and_that_once() {
    let mut beside = by_and_by();
    let edges = [at(1_000)];
    let first = beside.cold.forecast(&queue(), beside.now, &edges).unwrap();
    assert_eq!(first.scheduled, 1_990);
    without_reading(&mut beside);
    assert_eq!(beside.cold.forecast(&queue(), beside.now, &edges), Ok(first));
    let refused = beside.cold.forecast(&queue(), at(500), &edges);
    assert!(matches!(refused, Err(Error::Unavailable { .. })), "{refused:?}");
    assert!(beside.cold.take_failure().is_some());
    // A file all of which is ready need not be read.
    let late = beside.cold.forecast(&queue(), at(2_090), &edges).unwrap();
    assert_eq!((late.scheduled, late.due_by, late.within), (0, vec![0], 0));
}

/// Crash story: 1. Of many dead messages a few are past their retention each minute. 2. To find them, all were read.
#[test]
fn what_is_known_to_have_died_later_is_not_read_for_retention() {
    let mut beside = Beside::new(8, 64, 16);
    // `add_file` derives times of death from dues.
    let died_at = |ms: i64| Drawn { state: 2, priority: 0, due: 35 * ms % 61, body_len: 300 };
    beside.add(&[0, 1, 2].map(died_at));
    beside.add(&[50, 51, 52].map(died_at));
    let last = MessageId::new(
        Timestamp::MAX,
        MessageId::MAX_SHARD,
        MessageId::MAX_INCARNATION,
        MessageId::MAX_COUNTER,
    );
    let ask = |beside: &mut Beside, until: i64, most: usize| -> dwell_store::Result<(usize, DeadProgress)> {
        beside.cold.walks.clear();
        beside.cold.retain_until(Some((at(until), last)));
        let mut handed = Vec::new();
        for _ in 0..10 {
            let to = beside.cold.dead(&queue(), DeadReader::Retention, None, false, most, &mut handed)?;
            if to != DeadProgress::To(None) {
                return Ok((handed.len(), to));
            }
        }
        panic!("it comes to no end");
    };
    // Nothing is known yet, and all is read.
    assert_eq!(ask(&mut beside, 2, 3).unwrap().0, 3);
    let file = Arc::clone(&beside.cold.files()[&2].file);
    beside.cold.blocks.forget(2);
    beside.disk.unreadable_at(file.path(), 0, file.size());
    assert_eq!(ask(&mut beside, 49, 3).unwrap(), (0, DeadProgress::To(Some((at(49), last)))));
    assert!(beside.cold.passed_over(&queue()).is_none(), "it was not read");
    assert_eq!(ask(&mut beside, 50, 3).unwrap(), (0, DeadProgress::All));
    assert!(beside.cold.passed_over(&queue()).is_some(), "it was read, and cannot be");
}

/// Crash story: 1. One block cannot be read. 2. Two hundred messages expire together in a queue that drops expired
/// messages, one of them there. 3. All of them died, since they were to be read together.
#[test]
fn what_can_be_read_is_gone_though_others_that_expire_with_it_cannot() {
    let mut beside = Beside::new(8, 64, 16);
    beside.expires = Some(at(150));
    let put = |due: i64| Drawn { state: 0, priority: 0, due: due % 40, body_len: 300 };
    beside.add(&(0..400).map(put).collect::<Vec<_>>());
    let file = Arc::clone(&beside.cold.files()[&1].file);
    // A place in the second 32 KiB or so, of four times as many.
    beside.disk.unreadable_at(file.path(), 40_000, 1);
    let (now, mut expired) = (Now { wall: at(150), mono_ms: 0 }, Expired::default());
    while !beside.cold.expire(now, 10_000, &|_| Expiring::Go, &mut expired) {}
    let (gone, died) = (expired.gone.len() as u64, expired.died.iter().map(|(_, count)| count).sum::<u64>());
    assert_eq!(gone + died, 400);
    assert!(gone > 200 && died > 0, "{gone} are gone, {died} have died");
}

/// A search looks at few messages a call, continues from its position, and begins anew if another call has removed the
/// message that it had found.
#[test]
fn the_youngest_of_many_dead_that_had_a_key_is_found_a_few_a_call() {
    let mut beside = Beside::new(8, 64, 16);
    let key: Key = "its".parse().unwrap();
    beside.key = Some(key.clone());
    let count = 5_000;
    // Each file has some of them, and each run of keys some of each file.
    for _ in 0..2 {
        beside.add(
            &(0..count / 2).map(|due| Drawn { state: 2, priority: 0, due, body_len: 10 }).collect::<Vec<_>>(),
        );
    }
    let mut homes: Vec<_> = beside.known.iter().map(home_of).collect();
    homes.sort_unstable();
    let hash = crate::index_run::key_hash(DIRECTORY, &queue(), &key, true);
    let pairs = |odd: u64| {
        let numbers = homes.iter().map(|(number, _)| *number).filter(|number| number % 2 == odd);
        numbers.map(|number| (hash, Number::new(number).unwrap())).collect::<Vec<_>>()
    };
    let keys = vec![run(&beside, 1, &pairs(0)), run(&beside, 2, &pairs(1))];
    let numbers = vec![run(&beside, 3, &homes)];
    beside.cold.set_runs(numbers, keys);
    let mut deaths: Vec<_> =
        beside.known.iter().map(|known| (died(&known.entry).unwrap(), known.copy)).collect();
    deaths.sort_unstable();
    let mut search = DeadSearch::default();
    let mut ask = |beside: &mut Beside, after: Option<Died>| {
        let (before, mut found) = (search.looked_at, Vec::new());
        let is_over = beside.cold.dead_by_key(&queue(), &key, after, 64, &mut search, &mut found).unwrap();
        assert!(search.looked_at - before <= 64, "{search:?}");
        if is_over {
            search = DeadSearch::default();
        }
        assert!(is_over || found.is_empty());
        is_over.then(|| found.pop().map(|found| (found.message.id, found.copy)))
    };
    let mut calls = 0;
    let mut found_after = |beside: &mut Beside, after: Option<Died>, mut between: Option<CopyAt>| {
        for call in 1..1_000 {
            if let Some(found) = ask(beside, after) {
                calls = call;
                return found;
            }
            // Almost at the end.
            if call == 70
                && let Some(copy) = between.take()
            {
                beside.cold.take_out(copy);
            }
        }
        panic!("it comes to no end");
    };
    let last = |back: usize| deaths[deaths.len() - back];
    let youngest = |back: usize| Some((last(back).0.1, last(back).1));
    assert_eq!(found_after(&mut beside, None, None), youngest(1));
    assert_eq!(found_after(&mut beside, Some(last(2).0), None), None, "the youngest is in memory");
    assert_eq!(found_after(&mut beside, None, Some(last(2).1)), youngest(3), "the second has gone meanwhile");
    assert!(calls > 79, "{calls} calls");
    // A damaged place is reported, and the search continues from its position when the place can be read again.
    let file = Arc::clone(&beside.cold.files()[&1].file);
    beside.cold.blocks.forget(1);
    beside.disk.unreadable_at(file.path(), 0, file.size());
    let mut found = Vec::new();
    let read = beside.cold.dead_by_key(&queue(), &key, None, 64, &mut DeadSearch::default(), &mut found);
    assert!(matches!(read, Err(Error::Unavailable { .. })) && found.is_empty());
}

/// Crash story: 1. A block among the oldest dead of a queue cannot be read. 2. Retention of the queue stopped there
/// until it could be read.
#[test]
fn what_cannot_be_read_keeps_none_of_the_others_from_their_end() {
    let mut beside = Beside::new(8, 64, 1_000);
    beside.add(&(0..400).map(|due| Drawn { state: 2, priority: 0, due, body_len: 300 }).collect::<Vec<_>>());
    let file = Arc::clone(&beside.cold.files()[&1].file);
    beside.disk.unreadable_at(file.path(), 40_000, 1);
    let ask = |beside: &mut Beside, reader: DeadReader| -> dwell_store::Result<usize> {
        let mut handed = Vec::new();
        for _ in 0..100 {
            let after =
                handed.iter().filter_map(|one: &ColdMessage<BodyRef>| match one.message.standing.state {
                    State::Dead(death) => Some((death.at, one.message.id)),
                    _ => None,
                });
            let (after, anew) = (after.max(), handed.is_empty());
            if beside.cold.dead(&queue(), reader, after, anew, 64, &mut handed)? == DeadProgress::All {
                return Ok(handed.len());
            }
        }
        panic!("it comes to no end");
    };
    assert!(
        matches!(ask(&mut beside, DeadReader::Sweep), Err(Error::Unavailable { .. })),
        "a sweep gets the error"
    );
    assert!(beside.cold.take_failure().is_some());
    let some = ask(&mut beside, DeadReader::Retention).unwrap();
    assert!((200..400).contains(&some), "{some} of 400");
    assert!(beside.cold.passed_over(&queue()).is_some() && beside.cold.take_failure().is_some());
    assert!(beside.cold.deaths.is_empty(), "when all of them died is not known");
    // That nothing else is left is found once.
    assert_eq!(ask(&mut beside, DeadReader::Retention).unwrap(), 0);
    beside.cold.take_failure();
    assert_eq!(ask(&mut beside, DeadReader::Retention).unwrap(), 0);
    assert!(beside.cold.take_failure().is_none() && beside.cold.passed_over(&queue()).is_some());
    beside.disk.heal_rot(|_| true);
    assert_eq!(ask(&mut beside, DeadReader::Retention).unwrap(), 0, "it is not tried yet");
    beside.cold.try_passed_over(&queue());
    assert_eq!(
        ask(&mut beside, DeadReader::Retention).unwrap(),
        400 - some,
        "and the rest when it can be read again"
    );
    assert!(beside.cold.passed_over(&queue()).is_none());
}

/// All that retention is handed until it comes to the end, and how often a read has failed.
fn retained(beside: &mut Beside) -> (BTreeSet<CopyAt>, usize) {
    let (mut copies, mut after, mut failures) = (BTreeSet::new(), None, 0);
    for _ in 0..200 {
        let mut handed = Vec::new();
        match beside.cold.dead(&queue(), DeadReader::Retention, after, false, 64, &mut handed) {
            Ok(to) => {
                copies.extend(handed.iter().map(|one| one.copy));
                match to {
                    DeadProgress::All => return (copies, failures),
                    DeadProgress::To(to) => after = after.max(to),
                }
            }
            Err(_) => {
                failures += 1;
                assert!(handed.is_empty());
            }
        }
    }
    panic!("it comes to no end");
}

/// Those that can be read, each by itself.
fn readable(beside: &Beside) -> BTreeSet<CopyAt> {
    let is_readable = |known: &&ModelMessage| {
        let (file, at) = (&beside.cold.files()[&known.copy.file.get()].file, known.copy.ordinal);
        let block = file.ordinals_of(file.block_of(at));
        file.read(block, &mut Vec::new()).is_ok()
    };
    beside.known.iter().filter(is_readable).map(|known| known.copy).collect()
}

/// Crash story: 1. Four blocks side by side cannot be read. 2. What lies behind them in the same piece is passed over with them, at each
/// try alike.
#[test]
fn what_lies_behind_many_bad_blocks_of_a_piece_is_read() {
    let mut beside = Beside::new(8, 64, 1_000);
    beside.add(&(0..600).map(|due| Drawn { state: 2, priority: 0, due, body_len: 300 }).collect::<Vec<_>>());
    let file = Arc::clone(&beside.cold.files()[&1].file);
    // Four blocks of 32 KiB or so, of seven.
    beside.disk.unreadable_at(file.path(), 0, 128_000);
    let readable = readable(&beside);
    assert!((50..300).contains(&readable.len()) && file.piece_end(0) == file.len(), "{}", readable.len());
    assert_eq!(retained(&mut beside), (readable, 0));
}

/// Crash story: 1. Of what retention is to be handed a block cannot be read. 2. The others are read one by one, and the process has no
/// descriptor, or is interrupted. 3. They are passed over as if they were damaged.
#[test]
fn what_cannot_be_read_just_now_is_not_passed_over() {
    let mut most = 0;
    for after in 0..40 {
        let mut beside = Beside::new(8, 64, 1_000);
        beside.add(
            &(0..400).map(|due| Drawn { state: 2, priority: 0, due, body_len: 300 }).collect::<Vec<_>>(),
        );
        let file = Arc::clone(&beside.cold.files()[&1].file);
        // The window is there before the block is bad.
        let mut handed = Vec::new();
        while handed.is_empty() {
            beside.cold.dead(&queue(), DeadReader::Retention, None, false, 1, &mut handed).unwrap();
        }
        beside.cold.blocks.forget(1);
        beside.disk.unreadable_at(file.path(), 40_000, 1);
        let mut expected = readable(&beside);
        expected.remove(&handed[0].copy);
        assert!(expected.len() < 399);
        let error = std::io::ErrorKind::WouldBlock;
        beside.disk.fail(Fault { calls: Calls::Reads, after, times: 1, error });
        let (copies, failures) = retained(&mut beside);
        assert_eq!(copies, expected, "a read fails after {after}");
        most = most.max(failures);
    }
    assert_eq!(most, 1);
}

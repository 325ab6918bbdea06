//! Tests of the order in which messages are handed over, with and without read-ahead, against a sorted list.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dwell_model::{
    Counts, Death, DeathReason, Headers, Key, MessageId, Now, Number, QueueName, Standing, State, Timestamp,
};
use dwell_store::core::{
    Cold, ColdHead, CopyAt, DeadProgress, DeadReader, DeadSearch, Died, Expired, Expiring, QueuePart,
};
use proptest::prelude::*;

use super::*;
use crate::disk::{Calls, Disk, Fault, MemoryDisk};
use crate::executor;
use crate::journal::segment::Segment;
use crate::sealed::{FileId, FileKind};
use crate::table::{self, Entry, TableWriter};

mod dead;
mod expiry;
mod forecast;
mod lookup;
mod memory;
mod prefetch;
mod sections;

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

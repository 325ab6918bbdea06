//! A core with mostly cold messages answers like one that has all of them in memory; and it can be rebuilt
//! from the copies of some moment and the log after it.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use dwell_model::{
    DEFAULT_PRIORITY, Key, Message, MessageId, Number, Rules, Settings, Standing, State, StateKind, as_of,
};
use proptest::collection::vec;
use proptest::prelude::*;

use super::random::{Call, Walk, any_call_without_retention, config};
use super::*;
use crate::core::{
    Cold, ColdCounts, ColdHead, ColdMessage, CopyAt, CopyOutcome, DeadProgress, DeadReader, DeadSearch, Died,
    Expired, Expiring, QueuePart, Snapshot, WaiterId,
};
use crate::{Error, Forecast, Selection, StateCounts, When};

mod lists;
mod replay;
mod takes;
mod unreadable;

#[derive(Clone, Debug)]
struct Copy {
    cold: ColdMessage<Bytes>,
    is_cold: bool,
    /// Whether it has expired while it was cold.
    is_over: bool,
    ready_until: Timestamp,
}

impl Copy {
    fn state(&self, ready_until: Timestamp) -> StateKind {
        let standing = &self.cold.message.standing;
        match standing.state {
            _ if self.is_over => StateKind::Dead,
            State::Scheduled if standing.due <= ready_until.max(self.ready_until) => StateKind::Ready,
            state => state.kind(),
        }
    }

    fn is_dead(&self) -> bool {
        self.died().is_some()
    }

    fn died(&self) -> Option<Died> {
        let Message { id, standing, .. } = &self.cold.message;
        match standing.state {
            State::Dead(death) => Some((death.at, *id)),
            _ => standing.expires.filter(|_| self.is_over).map(|at| (at, *id)),
        }
    }

    /// How it is handled when it expires. One that had expired when it was promoted has died by that.
    fn expiring(&self, expiring: &dyn Fn(&QueueName) -> Expiring) -> Expiring {
        let Message { queue, standing, .. } = &self.cold.message;
        if standing.expires.is_some_and(|at| at <= self.ready_until) {
            Expiring::Die
        } else {
            expiring(queue)
        }
    }

    fn order(&self) -> (u32, Timestamp, MessageId) {
        let message = &self.cold.message;
        (message.standing.priority, message.standing.due, message.id)
    }
}

/// Copies in a list; every query scans it.
#[derive(Clone, Debug, Default)]
pub(super) struct Toy {
    copies: BTreeMap<CopyAt, Copy>,
    files: u32,
    /// The number of queries for dead messages.
    asked: usize,
    /// Copies that cannot be read when they expire.
    unreadable: BTreeSet<CopyAt>,
    /// Copies that die where they are to be handed over, since they cannot be read for that.
    pub(super) not_handed_over: BTreeSet<MessageId>,
    /// Whether reading a page of a list fails.
    is_rotten: bool,
    /// Reads of the due messages of this queue fail.
    pub(super) barred: Option<QueueName>,
    /// The number of calls that reading the dead messages of a queue takes; what was read is kept for one
    /// position of each reader.
    pub(super) pieces: usize,
    reading: Vec<Reading>,
    /// How often such a reading was begun.
    pub(super) begun: usize,
    /// These dead messages are passed over for retention, and in these queues some were.
    pub(super) unread: BTreeSet<MessageId>,
    passed_over: BTreeMap<QueueName, u64>,
    /// How many messages were looked at for their keys, and how often for a live one.
    pub(super) looked_at: usize,
    pub(super) looked_for_live: usize,
}

/// The progress of a reading of dead messages: reader, queue, position, and number of calls.
#[derive(Clone, Debug)]
struct Reading {
    reader: DeadReader,
    queue: QueueName,
    from: Option<Died>,
    calls: usize,
}

impl Toy {
    fn cold(&self) -> impl Iterator<Item = &Copy> {
        self.copies.values().filter(|copy| copy.is_cold)
    }

    fn of<'a>(&'a self, queue: &'a QueueName) -> impl Iterator<Item = &'a Copy> {
        self.cold().filter(move |copy| copy.cold.message.queue == *queue)
    }

    /// The messages that have to expire.
    fn over(&self, now: Now) -> impl Iterator<Item = &Copy> {
        let is_over = move |copy: &&Copy| {
            copy.cold.message.standing.expires.is_some_and(|at| at <= now.wall.max(copy.ready_until))
        };
        self.cold().filter(|copy| !copy.is_dead()).filter(is_over)
    }

    /// Expires the first `most` that can be read; returns whether these were all.
    fn let_expire(
        &mut self,
        now: Now,
        most: usize,
        expiring: &dyn Fn(&QueueName) -> Expiring,
        into: &mut Expired<Bytes>,
    ) -> bool {
        let goes = |copy: &&Copy| {
            let is_readable = !self.unreadable.contains(&copy.cold.copy);
            is_readable && copy.expiring(expiring) != Expiring::Stay
        };
        let going: Vec<CopyAt> = self.over(now).filter(goes).map(|copy| copy.cold.copy).collect();
        for at in going.iter().take(most) {
            let copy = self.copies.get_mut(at).unwrap();
            let Message { queue, id, .. } = &copy.cold.message;
            let cannot_go = self.not_handed_over.contains(id);
            match copy.expiring(expiring) {
                rule if rule == Expiring::Die || cannot_go => {
                    copy.is_over = true;
                    into.died.push((queue.clone(), 1));
                    into.died_unread |= rule == Expiring::Go;
                }
                Expiring::Die | Expiring::Go => {
                    copy.is_cold = false;
                    into.gone.push(copy.cold.clone());
                }
                Expiring::Stay => unreachable!("those were left out"),
            }
        }
        going.len() <= most
    }

    /// Rewrites expired messages as dead ones, while the core keeps running: returns the number of each, its
    /// expiry, and the time to which its file was promoted. This includes the copies of messages in memory.
    pub(super) fn move_expired(&mut self, by: Timestamp) -> Vec<(QueueName, Number, Timestamp, Timestamp)> {
        let mut moved = Vec::new();
        for copy in self.copies.values_mut() {
            let Message { number, queue, standing, .. } = &mut copy.cold.message;
            let Some(expires) = standing.expires.filter(|at| *at <= by) else { continue };
            if matches!(standing.state, State::Dead(_)) {
                continue;
            }
            *standing = expired(standing, expires);
            copy.is_over = false;
            if copy.is_cold {
                moved.push((queue.clone(), *number, expires, copy.ready_until));
            }
        }
        moved
    }

    /// Continues a reading; false if more has to be read before anything can be handed over.
    fn read_on(&mut self, reader: DeadReader, queue: &QueueName, from: Option<Died>) -> bool {
        let is_right = |one: &Reading| one.reader == reader && one.queue == *queue && one.from <= from;
        if !self.reading.iter().any(is_right) {
            self.reading.retain(|one| one.reader != reader);
            self.reading.push(Reading { reader, queue: queue.clone(), from, calls: 0 });
            self.begun += 1;
        }
        let reading = self.reading.iter_mut().find(|one| is_right(one)).unwrap();
        reading.calls += 1;
        reading.from = from;
        reading.calls >= self.pieces
    }

    /// No copy can be read when it expires.
    pub(super) fn make_all_unreadable(&mut self) {
        self.unreadable = self.copies.keys().copied().collect();
    }

    /// The cold dead messages of a queue.
    pub(super) fn dead_ids(&self, queue: &QueueName) -> Vec<MessageId> {
        self.of(queue).filter(|copy| copy.is_dead()).map(|copy| copy.cold.message.id).collect()
    }

    fn hand_over(&mut self, copies: Vec<CopyAt>, into: &mut Vec<ColdMessage<Bytes>>) {
        for at in copies {
            let copy = self.copies.get_mut(&at).unwrap();
            assert!(std::mem::replace(&mut copy.is_cold, false));
            let mut cold = copy.cold.clone();
            let standing = &mut cold.message.standing;
            let has_expired = standing.expires.is_some_and(|at| at <= copy.ready_until);
            cold.died_unread = !copy.is_over && has_expired && !matches!(standing.state, State::Dead(_));
            if std::mem::take(&mut copy.is_over) || cold.died_unread {
                cold.over_by = Some(copy.ready_until);
                *standing = expired(standing, standing.expires.unwrap());
            } else if copy.state(Timestamp::MIN) == StateKind::Ready {
                cold.message.standing.state = State::Ready;
            }
            into.push(cold);
        }
    }

    fn one(&mut self, at: Option<CopyAt>) -> Result<Option<ColdMessage<Bytes>>> {
        let mut found = Vec::new();
        self.hand_over(at.into_iter().collect(), &mut found);
        Ok(found.pop())
    }
}

impl Cold<Bytes> for Toy {
    fn by_number(&mut self, number: Number) -> Result<Option<ColdMessage<Bytes>>> {
        let at = self.cold().find(|copy| copy.cold.message.number == number).map(|copy| copy.cold.copy);
        self.one(at)
    }

    fn by_key(&mut self, queue: &QueueName, key: &Key) -> Result<Option<ColdMessage<Bytes>>> {
        self.looked_for_live += 1;
        let mut found =
            self.of(queue).filter(|copy| !copy.is_dead() && copy.cold.message.key.as_ref() == Some(key));
        let at = found.next().map(|copy| copy.cold.copy);
        assert!(found.next().is_none(), "two live messages with one key");
        drop(found);
        self.one(at)
    }

    fn due(
        &mut self,
        queue: &QueueName,
        ready_until: Timestamp,
        into: &mut Vec<ColdMessage<Bytes>>,
    ) -> Result<()> {
        if self.barred.as_ref() == Some(queue) {
            return Err(Error::Unavailable { reason: "it is rotten".into() });
        }
        let ready = self.of(queue).filter(|copy| copy.state(ready_until) == StateKind::Ready);
        let mut ready: Vec<_> = ready.map(|copy| (copy.order(), copy.cold.copy)).collect();
        ready.sort();
        self.hand_over(ready.into_iter().take(2).map(|(_, at)| at).collect(), into);
        Ok(())
    }

    fn head(&mut self, queue: &QueueName, ready_until: Timestamp) -> Result<ColdHead> {
        let state = |state| self.of(queue).filter(move |copy| copy.state(ready_until) == state);
        let first = state(StateKind::Ready).map(Copy::order).min();
        // The least that may be reported.
        let matters = |copy: &&Copy| first.is_none_or(|first| copy.order() < first);
        let later = state(StateKind::Scheduled).filter(matters);
        Ok(ColdHead { first, next: later.map(|copy| copy.cold.message.standing.due).min() })
    }

    fn dead_by_key(
        &mut self,
        queue: &QueueName,
        key: &Key,
        after: Option<Died>,
        _: usize,
        search: &mut DeadSearch,
        into: &mut Vec<ColdMessage<Bytes>>,
    ) -> Result<bool> {
        let had_it = |copy: &&Copy| copy.cold.message.key.as_ref() == Some(key);
        let found =
            self.of(queue).filter(had_it).filter_map(|copy| Some((copy.cold.message.number, copy.died()?)));
        let mut found: Vec<_> = found.filter(|(number, _)| Some(*number) > search.to).collect();
        found.sort();
        // The fewest that may be handed over.
        if let Some((number, died)) = found.first().copied() {
            (search.to, search.looked_at) = (Some(number), search.looked_at + 1);
            self.looked_at += 1;
            if Some(died) > after {
                search.youngest = search.youngest.max(Some((died, number)));
            }
        }
        if found.len() > 1 {
            return Ok(false);
        }
        let Some((_, number)) = search.youngest.filter(|(died, _)| Some(*died) > after) else {
            return Ok(true);
        };
        let youngest = self.of(queue).find(|copy| copy.is_dead() && copy.cold.message.number == number);
        let Some(at) = youngest.map(|copy| copy.cold.copy) else {
            // It no longer exists.
            *search = DeadSearch { looked_at: search.looked_at, ..DeadSearch::default() };
            return Ok(false);
        };
        into.extend(self.one(Some(at))?);
        Ok(true)
    }

    fn expire(
        &mut self,
        now: Now,
        most: usize,
        expiring: &dyn Fn(&QueueName) -> Expiring,
        into: &mut Expired<Bytes>,
    ) -> bool {
        // The least that may be done.
        self.let_expire(now, most.min(2), expiring, into)
    }

    fn is_behind_in(&self, queue: &QueueName, now: Now) -> bool {
        let is_readable = |copy: &&Copy| !self.unreadable.contains(&copy.cold.copy);
        self.over(now).filter(is_readable).any(|copy| copy.cold.message.queue == *queue)
    }

    fn expire_unread(
        &mut self,
        queue: &QueueName,
        now: Now,
        expiring: &dyn Fn(&QueueName) -> Expiring,
        _: &mut Expired<Bytes>,
    ) -> Result<()> {
        if expiring(queue) == Expiring::Stay {
            return Ok(());
        }
        if !self.over(now).any(|copy| self.unreadable.contains(&copy.cold.copy)) {
            return Ok(());
        }
        let is_left = self.over(now).any(|copy| copy.cold.message.queue == *queue);
        if is_left { Err(rotten()) } else { Ok(()) }
    }

    fn page(
        &mut self,
        queue: &QueueName,
        state: StateKind,
        ready_until: Timestamp,
        after: Option<(Timestamp, MessageId)>,
        count: usize,
        into: &mut Vec<ColdMessage<Bytes>>,
    ) -> Result<()> {
        if self.is_rotten {
            return Err(rotten());
        }
        let of_state = self.of(queue).filter(|copy| copy.state(ready_until) == state);
        let mut page: Vec<_> = of_state
            .map(|copy| ((copy.cold.message.standing.due, copy.cold.message.id), copy.cold.copy))
            .filter(|(place, _)| after.is_none_or(|after| *place > after))
            .collect();
        page.sort();
        self.hand_over(page.into_iter().take(count).map(|(_, at)| at).collect(), into);
        Ok(())
    }

    fn dead(
        &mut self,
        queue: &QueueName,
        reader: DeadReader,
        after: Option<Died>,
        _: bool,
        most: usize,
        into: &mut Vec<ColdMessage<Bytes>>,
    ) -> Result<DeadProgress> {
        if !self.read_on(reader, queue, after) {
            return Ok(DeadProgress::To(after));
        }
        let dead = self.of(queue).filter_map(|copy| Some((copy.died()?, copy.cold.copy)));
        let mut dead: Vec<(Died, CopyAt)> = dead.filter(|(died, _)| Some(*died) > after).collect();
        dead.sort();
        if reader == DeadReader::Retention {
            let before = dead.len();
            dead.retain(|((_, id), _)| !self.unread.contains(id));
            if dead.len() < before {
                self.passed_over.insert(queue.clone(), (before - dead.len()) as u64);
            }
        }
        // Now and then it is busy reading, and hands over nothing or little.
        self.asked += 1;
        let page = [0, 1, 3][self.asked % 3].min(most);
        let all = dead.len() <= page;
        dead.truncate(page);
        let last = dead.last().map_or(after, |(died, _)| Some(*died));
        self.hand_over(dead.into_iter().map(|(_, at)| at).collect(), into);
        Ok(if all { DeadProgress::All } else { DeadProgress::To(last) })
    }

    fn passed_over(&self, queue: &QueueName) -> Option<u64> {
        self.passed_over.get(queue).copied()
    }

    fn try_passed_over(&mut self, queue: &QueueName) {
        self.passed_over.remove(queue);
        self.reading.retain(|one| one.queue != *queue || one.reader != DeadReader::Retention);
    }

    fn counts(&mut self, queue: &QueueName, ready_until: Timestamp) -> Result<ColdCounts> {
        let mut counts = StateCounts::default();
        let mut next_due: Option<Timestamp> = None;
        for copy in self.of(queue) {
            let standing = &copy.cold.message.standing;
            match copy.state(ready_until) {
                StateKind::Scheduled => {
                    counts.scheduled += 1;
                    next_due = Some(next_due.map_or(standing.due, |next| next.min(standing.due)));
                }
                StateKind::Ready => {
                    counts.ready += 1;
                    counts.ready_urgent += u64::from(standing.priority < DEFAULT_PRIORITY);
                }
                StateKind::Dead => counts.dead += 1,
                StateKind::Leased => unreachable!("no copy is leased"),
            }
        }
        Ok(ColdCounts { counts, next_due })
    }

    fn forecast(
        &mut self,
        queue: &QueueName,
        ready_until: Timestamp,
        edges: &[Timestamp],
    ) -> Result<Forecast> {
        let scheduled = self.of(queue).filter(|copy| copy.state(ready_until) == StateKind::Scheduled);
        let dues: Vec<_> = scheduled.map(|copy| copy.cold.message.standing.due).collect();
        let due_by = |edge: &Timestamp| dues.iter().filter(|due| *due <= edge).count() as u64;
        Ok(Forecast { scheduled: dues.len() as u64, due_by: edges.iter().map(due_by).collect(), within: 0 })
    }

    fn forget(&mut self, queue: &QueueName, which: QueuePart) {
        for copy in self.copies.values_mut().filter(|copy| copy.cold.message.queue == *queue) {
            if copy.is_dead() == (which == QueuePart::Dead) {
                (copy.is_cold, copy.is_over) = (false, false);
            }
        }
    }

    fn promote(&mut self, wall: Timestamp) {
        for copy in self.copies.values_mut() {
            copy.ready_until = copy.ready_until.max(wall);
        }
    }

    fn put_back(&mut self, copy: CopyAt, died: Option<Died>) {
        let copy = self.copies.get_mut(&copy).unwrap();
        assert!(!std::mem::replace(&mut copy.is_cold, true));
        copy.is_over = died.is_some() && !copy.is_dead();
        assert_eq!(died, copy.died());
    }

    fn promoted_to(&self) -> Timestamp {
        self.copies.values().map(|copy| copy.ready_until).max().unwrap_or(Timestamp::MIN)
    }
}

/// The standing of a message that has expired by then.
fn expired(standing: &Standing, wall: Timestamp) -> Standing {
    let (id, settings) = (MessageId::new(wall, 0, 0, 0), Settings::default());
    as_of(standing, Now { wall, mono_ms: 0 }, Rules::of(id, None, &settings)).unwrap()
}

fn rotten() -> Error {
    Error::Unavailable { reason: "it is rotten".into() }
}

/// The whole state at some moment, to which the log from there on is added.
pub(super) struct Checkpoint {
    toy: Toy,
    held: Vec<(Message, CopyAt)>,
    /// The number of records before it.
    told: usize,
    next_number: u64,
    numbering: Vec<(u32, u64)>,
}

/// A capture in progress, and the state when it was begun.
pub(super) struct Begun {
    now: Toy,
    told: usize,
    next_number: u64,
    numbering: Vec<(u32, u64)>,
}

fn begin(rig: &mut Rig) -> Begun {
    rig.core.begin_snapshot();
    Begun {
        now: rig.log.1.clone().unwrap_or_default(),
        told: rig.log.0.len(),
        next_number: rig.core.next_number,
        numbering: rig.core.numbering().collect(),
    }
}

/// Copies everything that had changed when the capture began.
fn finish(rig: &mut Rig, begun: Begun) -> Checkpoint {
    let snapshot = loop {
        if let Some(snapshot) = rig.core.snapshot_some(3) {
            break snapshot;
        }
        rig.core.check();
    };
    let Begun { mut now, told, next_number, numbering } = begun;
    let mut toy = rig.log.1.take().unwrap_or_default();
    let Snapshot { changed, names, clean } = snapshot;
    // Nothing is kept about expired messages except the time in the log.
    now.copies.values_mut().for_each(|copy| copy.is_over = false);
    clean.iter().for_each(|clean| now.copies.get_mut(clean).unwrap().is_cold = true);
    toy.files += 1;
    now.files = toy.files;
    let mut held = Vec::new();
    for (ordinal, mut snapshot) in changed.into_iter().enumerate() {
        let (message, ready_since) = snapshot.take(&names);
        let (message, copy) = (message.with_body(snapshot.body), snapshot.copy);
        let file = NonZeroU32::new(toy.files).unwrap();
        let at = CopyAt { file, ordinal: ordinal as u32 };
        let is_held = matches!(message.standing.state, State::Leased(_));
        if let (true, Some(copy)) = (is_held, copy) {
            held.push((message, copy));
            continue;
        }
        let number = message.number;
        let placed = rig.core.placed(number, message.body.clone(), at);
        assert!(
            !is_held || placed != CopyOutcome::Clean,
            "what was leased has changed since, or is leased still"
        );
        let cold = ColdMessage {
            message: message.clone(),
            ready_since,
            copy: at,
            over_by: None,
            died_unread: false,
        };
        toy.copies.insert(
            at,
            Copy { cold: cold.clone(), is_cold: false, is_over: false, ready_until: Timestamp::MIN },
        );
        now.copies.insert(at, Copy { cold, is_cold: !is_held, is_over: false, ready_until: Timestamp::MIN });
        if is_held {
            held.push((message, at));
        }
    }
    rig.log.1 = Some(toy);
    rig.core.check();
    Checkpoint { toy: now, held, told, next_number, numbering }
}

pub(super) fn snapshot(rig: &mut Rig) -> Checkpoint {
    let begun = begin(rig);
    finish(rig, begun)
}

/// Begins a capture, or continues the one in progress; returns its result, if that was the last slice.
pub(super) fn capture_in_slices(rig: &mut Rig, bulk_in_progress: &mut Option<Begun>) -> Option<Checkpoint> {
    match bulk_in_progress.take() {
        Some(begun) => Some(finish(rig, begun)),
        None => {
            *bulk_in_progress = Some(begin(rig));
            rig.core.check();
            None
        }
    }
}

pub(super) fn evict(rig: &mut Rig, keep: usize) {
    if let Some(mut toy) = rig.log.1.take() {
        rig.core.evict(keep, 100, &mut toy);
        rig.log.1 = Some(toy);
        rig.core.check();
    }
}

/// The same core again, from the copies and the log after them.
pub(super) fn recovered(rig: &Rig, checkpoint: &Checkpoint) -> Rig {
    let incarnation = rig.config.incarnation + 1;
    let mut again = Rig::configured(CoreConfig { incarnation, ..rig.config.clone() });
    let mut toy = checkpoint.toy.clone();
    for told in &rig.log.0[..checkpoint.told] {
        match told.clone() {
            LoggedFact::Put(record, _) => {
                if let Some(idempotency_key) = record.idempotency_key.clone() {
                    let (answer, queue) = (record.answer(), record.queue);
                    again.core.replay(Record::Answered { queue, idempotency_key, answer }).unwrap();
                }
            }
            LoggedFact::Record(
                record @ (Record::Configured { .. } | Record::Deleted { .. } | Record::Answered { .. }),
                _,
            ) => again.core.replay(record).unwrap(),
            LoggedFact::Record(..) => {}
            LoggedFact::Time(wall) => again.core.replay_time(wall),
        }
    }
    checkpoint
        .numbering
        .iter()
        .for_each(|(incarnation, start)| again.core.set_numbering(*incarnation, *start));
    again.core.skip_numbers(checkpoint.next_number);
    let mut counts: BTreeMap<QueueName, (u64, u64)> = BTreeMap::new();
    for copy in toy.cold() {
        let (pending, dead) = counts.entry(copy.cold.message.queue.clone()).or_default();
        *if copy.is_dead() { dead } else { pending } += 1;
    }
    counts.into_iter().for_each(|(queue, (pending, dead))| again.core.set_cold(&queue, pending, dead));
    for (message, at) in &checkpoint.held {
        again.core.hold(message.clone(), *at);
    }
    for (at, told) in rig.log.0.iter().enumerate().skip(checkpoint.told) {
        let ends = rig.log.0[at..].iter().find_map(|told| match told {
            LoggedFact::Time(wall) => Some(*wall),
            LoggedFact::Put(..) | LoggedFact::Record(..) => None,
        });
        ends.into_iter().for_each(|wall| again.core.replay_begins(wall));
        match told.clone() {
            LoggedFact::Put(record, body) => again.core.replay_put(record, body).unwrap(),
            LoggedFact::Record(record, _) => again.core.replay_with(record, Some(&mut toy)).unwrap(),
            LoggedFact::Time(wall) => again.core.replay_time(wall),
        }
    }
    again.log.0 = rig.log.0.clone();
    again.log.1 = Some(toy);
    again.core.check();
    again
}

/// A core whose messages are all cold: in `q` one that expires at 50 and cannot be read, one that expires and
/// can be read, and one that does not expire; in `other` one that expires.
fn with_one_unreadable() -> (Rig, CopyAt) {
    let mut rig = Rig::new();
    for (name, expires) in [("q", Some(50)), ("q", Some(50)), ("q", None), ("other", Some(50))] {
        let put = Put { expires: expires.map(at), ..put_to(name) };
        rig.put(put.after_ms(10), now(0)).unwrap();
    }
    snapshot(&mut rig);
    evict(&mut rig, 0);
    assert_eq!(rig.core.cold_len(), 4);
    let toy = rig.log.1.as_mut().unwrap();
    let first = *toy.copies.keys().next().unwrap();
    toy.unreadable.insert(first);
    (rig, first)
}

fn count(rig: &mut Rig, name: &str, at: u64) -> (u64, u64) {
    rig.catch_up(now(at));
    let counts = rig.call(|core, log| core.stats(&queue(name), now(at), log)).unwrap().counts;
    (counts.scheduled + counts.ready, counts.dead)
}

/// A core in which all is cold except the messages of `other`: in `q` many that expire at 50, and after them
/// one that does not. Some of them have been processed, and more have not.
fn behind() -> Rig {
    let mut rig = Rig::new();
    for expires in [Some(50); 40].into_iter().chain([None]) {
        let put = Put { expires: expires.map(at), ..put_to("q") };
        rig.put(put.after_ms(10), now(0)).unwrap();
    }
    snapshot(&mut rig);
    evict(&mut rig, 0);
    rig.put(put_to("other").priority(u32::MAX), now(0)).unwrap();
    assert!(!rig.call(|core, log| core.catch_up(now(60), log)));
    rig
}

/// A gate admits as many more as the capture has room for.
#[test]
fn a_capture_says_how_many_it_has_captured() {
    let mut rig = Rig::new();
    for _ in 0..5 {
        rig.put(put_to("q").after_ms(10), now(0)).unwrap();
    }
    assert_eq!(rig.core.snapshot_len(), 0);
    rig.core.begin_snapshot();
    assert_eq!(rig.core.snapshot_len(), 0);
    assert!(rig.core.snapshot_some(3).is_none());
    assert_eq!(rig.core.snapshot_len(), 3);
    let snapshot = rig.core.snapshot_some(3).expect("all has been looked at");
    assert_eq!((snapshot.changed.len(), rig.core.snapshot_len()), (5, 0));
}

#[derive(Clone, Debug)]
enum Move {
    Call(Call),
    Capture,
    Evict(usize),
}

fn any_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        6 => any_call_without_retention().prop_map(Move::Call),
        1 => Just(Move::Capture),
        2 => (0..4_usize).prop_map(Move::Evict),
    ]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_core_with_cold_messages_answers_as_one_without(moves in vec(any_move(), 1..90)) {
        let (mut all, mut some) = (Walk::random(), Walk::random());
        let mut bulk_in_progress = None;
        for one in &moves {
            match one {
                Move::Call(call) => {
                    all.make(call);
                    some.make(call);
                    prop_assert_eq!(all.rig.said.last(), some.rig.said.last(), "{:?}", call);
                }
                Move::Capture => drop(capture_in_slices(&mut some.rig, &mut bulk_in_progress)),
                Move::Evict(keep) => evict(&mut some.rig, *keep),
            }
        }
        prop_assert_eq!(all.see(), some.see());
        prop_assert_eq!(&all.receipts, &some.receipts);
    }

    #[test]
    fn copies_and_the_log_behind_them_are_enough(moves in vec(any_move(), 1..90), down_ms in 0..3_000_u64) {
        let (mut walk, mut never) = (Walk::random(), Walk::random());
        let mut checkpoint = snapshot(&mut walk.rig);
        let mut bulk_in_progress = None;
        for one in &moves {
            match one {
                Move::Call(call) => {
                    walk.make(call);
                    never.make(call);
                }
                Move::Capture => {
                    if let Some(finished) = capture_in_slices(&mut walk.rig, &mut bulk_in_progress) {
                        checkpoint = finished;
                    }
                }
                Move::Evict(keep) => evict(&mut walk.rig, *keep),
            }
        }
        let rig = recovered(&walk.rig, &checkpoint);
        let mut again = walk.again(rig);
        let seen = walk.see();
        prop_assert_eq!(&seen, &again.see());
        // And it continues like one that never had copies. Both have recorded all changes by time so far.
        prop_assert_eq!(seen, never.see());
        let now = Now { wall: walk.now.wall.after(down_ms).unwrap(), mono_ms: 5 };
        let mut reopened = recovered(&walk.rig, &checkpoint);
        reopened.call(|core, log| core.opened(now, log));
        while reopened.call(|core, log| core.release_session_leases(now, log)) {}
        let mut cold = walk.again(reopened);
        // Not from the log of the other, which does not record what has expired while it was cold.
        let mut plain = never.again(never.rig.reopened(now));
        (cold.now, plain.now) = (now, now);
        prop_assert_eq!(cold.see(), plain.see());
    }
}

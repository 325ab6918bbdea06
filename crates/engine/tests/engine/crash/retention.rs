//! Crashes at each change of the disk while the store itself removes messages: dead ones past their retention, and
//! expired ones of a queue that drops them; and while an operator ends leases.
//!
//! One script runs until the power fails, and what was answered is recorded. The matrix of [`super`] cannot be used for
//! it: a discard that a crash takes back is done again, so that many states are right after it. What must hold in all
//! of them is checked instead: nothing is lost that no retention covers, what is past its time is seen by no call, what
//! is too much is removed, and a lease whose end was answered does not come back.

use std::num::NonZeroU32;

use dwell_model::{
    AttemptLimit, DeathReason, Key, LapseBackoff, Message, MessageId, OnExpiry, Receipt, Setting,
    SettingChange, SettingName, State, StateKind, Timestamp,
};
use dwell_store::{Action, Error, LeaseRef, Put, Selection, Settle, Settled, Store, Take, Target, When};
use dwell_time::{Clock, ManualClock};

use super::{AMPLE, Crash, MemoryDisk, TINY, crashes, open, small};
use crate::support::{Driven, queue, start};

/// Its dead messages are removed when their time is over.
const TIMED: &str = "timed";
/// Each death beyond the maximum discards the oldest.
const MOST: &str = "most";
/// Gets a maximum when it has more dead messages than that.
const LOWERED: &str = "lowered";
/// Expired messages are removed without a trace.
const DROPPED: &str = "dropped";
/// Leases are ended; the messages are ready then.
const ENDED: &str = "ended";
/// Leases are ended; the messages wait for the backoff then.
const BACKED: &str = "backed";
/// Other messages, so that segments and tables are written.
const FILLER: &str = "filler";

const TTL_MS: u64 = 10_000;
const EXPIRES_MS: u64 = 5_000;
const KEPT: usize = 3;
const LOWERED_TO: usize = 2;
const HOUR_MS: u64 = 3_600_000;

/// What is known of a message whose put was answered.
struct KnownMessage {
    queue: &'static str,
    id: MessageId,
    key: Key,
    expires: Option<Timestamp>,
    fate: Fate,
}

enum Fate {
    /// Nothing was requested for it.
    Pending,
    /// It may be dead, or its lease may have been ended: the answer never came.
    Asked,
    /// Its bury was answered at this instant.
    Buried(Timestamp),
    /// Its lease was ended, with this result.
    Ended(Receipt, Settled),
}

/// The answers of a run until the power failed.
#[derive(Default)]
struct RunAnswers {
    messages: Vec<KnownMessage>,
    /// Whether the lowered maximum was requested, and whether that was answered.
    asked_lower: bool,
    lowered: bool,
    /// The number of changes of the disk, and whether the script came to its end.
    changes: u64,
    is_through: bool,
}

impl RunAnswers {
    fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a KnownMessage> {
        self.messages.iter().filter(move |known| known.queue == name)
    }

    fn ids(&self, name: &str) -> Vec<MessageId> {
        self.of(name).map(|known| known.id).collect()
    }
}

/// A deliberate fault, for the checks to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Nothing,
    /// The disk reports that it has synced, and has not.
    SyncsLie,
    /// One dead message is removed that the maximum would keep.
    OneTooMany,
    /// The retention time of the dead is forgotten.
    TimeForgotten,
    /// The lowered maximum is forgotten.
    MostForgotten,
}

fn set(store: &mut Driven, name: &str, setting: Setting) -> Option<()> {
    let engine = store.engine.clone();
    store.run(engine.configure(queue(name), vec![SettingChange::Set(setting)])).ok().map(drop)
}

/// Puts one after the other, so that the ids are in the order of the puts. `None` once the disk has failed.
fn put(
    store: &mut Driven,
    seen: &mut RunAnswers,
    queue_name: &'static str,
    count: usize,
    like: &Put,
) -> Option<()> {
    for _ in 0..count {
        let key: Key = format!("{queue_name} {}", seen.messages.len()).parse().unwrap();
        let one = Put { queue: queue(queue_name), ..like.clone() }.key(key.clone());
        let id = store.put(one).ok()?.id;
        seen.messages.push(KnownMessage {
            queue: queue_name,
            id,
            key,
            expires: like.expires,
            fate: Fate::Pending,
        });
    }
    Some(())
}

/// Takes all of a queue and buries them, one after the other.
fn bury_all(store: &mut Driven, seen: &mut RunAnswers, name: &str) -> Option<()> {
    for taken in store.take(Take::from(queue(name)).max(100).lease_ms(HOUR_MS)).ok()? {
        store.advance(100);
        let at = store.now();
        let known = seen.messages.iter_mut().find(|known| known.id == taken.message.id).unwrap();
        known.fate = Fate::Asked;
        let action = Action::Bury { reason: Some("x".into()), priority: None };
        let answer = store.settle(Settle { receipt: taken.receipt, action });
        if answer.ok()? == Settled::Dead(DeathReason::Buried) {
            known.fate = Fate::Buried(at);
        }
    }
    Some(())
}

/// Takes all of a queue and ends each lease separately.
fn end_all(store: &mut Driven, seen: &mut RunAnswers, name: &str) -> Option<()> {
    for taken in store.take(Take::from(queue(name)).max(100).lease_ms(HOUR_MS)).ok()? {
        let known = seen.messages.iter_mut().find(|known| known.id == taken.message.id).unwrap();
        known.fate = Fate::Asked;
        let lease = LeaseRef { id: known.id, takes: taken.message.standing.counts.takes };
        let engine = store.engine.clone();
        let answer = store.run(engine.expire_lease(queue(name), vec![lease])).pop().unwrap();
        known.fate = Fate::Ended(taken.receipt, answer.ok()?);
    }
    Some(())
}

/// Puts enough other messages that segments are closed, and with little memory tables written.
fn fill(store: &mut Driven) -> Option<()> {
    let puts = (0..30).map(|_| Put::new(queue(FILLER), vec![b'x'; 600]).after_ms(HOUR_MS)).collect();
    let engine = store.engine.clone();
    store.run(engine.put(puts)).into_iter().all(|answer| answer.is_ok()).then_some(())
}

/// A minute without calls.
fn let_a_minute_pass(store: &mut Driven) {
    for _ in 0..6 {
        store.advance(10_000);
    }
}

/// The whole script, until the disk fails.
fn script(store: &mut Driven, seen: &mut RunAnswers) -> Option<()> {
    set(store, TIMED, Setting::DeadTtlMs(TTL_MS))?;
    set(store, MOST, Setting::DeadMax(KEPT as u64))?;
    set(store, DROPPED, Setting::OnExpiry(OnExpiry::Drop))?;
    set(store, BACKED, Setting::LapseBackoff(LapseBackoff::First))?;
    let plain = Put::new(queue(TIMED), "m");
    put(store, seen, TIMED, 5, &plain)?;
    put(store, seen, MOST, 7, &plain)?;
    put(store, seen, LOWERED, 9, &plain)?;
    put(store, seen, ENDED, 2, &plain)?;
    let last = Put { max_attempts: Some(AttemptLimit::At(NonZeroU32::MIN)), ..plain.clone() };
    put(store, seen, ENDED, 2, &last)?;
    put(store, seen, BACKED, 2, &plain)?;
    bury_all(store, seen, LOWERED)?;
    fill(store)?;
    bury_all(store, seen, TIMED)?;
    bury_all(store, seen, MOST)?;
    end_all(store, seen, ENDED)?;
    end_all(store, seen, BACKED)?;
    fill(store)?;
    let expires = Some(store.now().saturating_after(EXPIRES_MS));
    put(store, seen, DROPPED, 5, &Put { expires, ..plain })?;
    fill(store)?;
    seen.asked_lower = true;
    set(store, LOWERED, Setting::DeadMax(LOWERED_TO as u64))?;
    seen.lowered = true;
    // First slices of a few within other calls, and then those without any call.
    fill(store)?;
    store.advance(EXPIRES_MS);
    fill(store)?;
    store.advance(TTL_MS);
    fill(store)?;
    let_a_minute_pass(store);
    fill(store)
}

fn run_until(change: Option<u64>, memory_limit: u64, fault: Fault) -> (MemoryDisk, ManualClock, RunAnswers) {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    if fault == Fault::SyncsLie {
        disk.lie_about_syncs();
    }
    if let Some(change) = change {
        disk.power_off_at(change);
    }
    let mut seen = RunAnswers::default();
    let options = small(&disk, &clock, memory_limit);
    if let Ok(mut store) = Driven::open(disk.clone(), clock.clone(), options) {
        seen.is_through = script(&mut store, &mut seen).is_some();
        if change.is_none() && memory_limit == TINY {
            let counters = store.engine.counters();
            assert!(counters.flushes > 4 && counters.tables > 0, "{counters:?}");
        }
    }
    seen.changes = disk.changes();
    (disk, clock, seen)
}

/// Runs until the power fails, and checks the state afterwards; and again after another failure.
fn crash_at(change: u64, memory_limit: u64, crash: Crash, fault: Fault) -> Result<(), String> {
    let (disk, clock, seen) = run_until(Some(change), memory_limit, fault);
    disk.power_on(crash);
    let mut store = open(&disk, &clock, memory_limit);
    break_on_purpose(&mut store, &seen, fault);
    check_at_once(&mut store, &seen)?;
    let_a_minute_pass(&mut store);
    check_later(&mut store, &seen)?;
    // What is past its time may come back, and is removed again.
    disk.power_off();
    disk.power_on(Crash::Drop);
    let mut store = open(&disk, &clock, memory_limit);
    check_at_once(&mut store, &seen)?;
    let_a_minute_pass(&mut store);
    check_later(&mut store, &seen)
}

fn break_on_purpose(store: &mut Driven, seen: &RunAnswers, fault: Fault) {
    let engine = store.engine.clone();
    let reset = |name| vec![SettingChange::Reset(name)];
    match fault {
        Fault::Nothing | Fault::SyncsLie => {}
        Fault::OneTooMany => {
            let Some(youngest) = seen.of(MOST).filter(|known| matches!(known.fate, Fate::Buried(_))).last()
            else {
                return;
            };
            store.run(engine.discard(queue(MOST), Selection::Ids(vec![youngest.id]))).unwrap();
        }
        Fault::TimeForgotten => {
            store.run(engine.configure(queue(TIMED), reset(SettingName::DeadTtl))).unwrap();
        }
        Fault::MostForgotten => {
            store.run(engine.configure(queue(LOWERED), reset(SettingName::DeadMax))).unwrap();
        }
    }
}

/// All messages of a queue that were put, as one call finds them.
fn found(store: &mut Driven, seen: &RunAnswers, name: &str) -> Result<Vec<Option<Message>>, String> {
    let engine = store.engine.clone();
    let targets = seen.ids(name).into_iter().map(Target::Id).collect();
    let found = store.run(engine.get(queue(name), targets, false));
    let found = found.into_iter().map(|found| match found {
        Ok(message) => Ok(Some(message)),
        Err(Error::MessageNotFound { .. } | Error::UnknownQueue { .. }) => Ok(None),
        Err(error) => Err(error.to_string()),
    });
    found.collect()
}

fn is_dead(found: Option<&Message>) -> bool {
    found.is_some_and(|message| matches!(message.standing.state, State::Dead(_)))
}

/// What holds at any moment, from the first call on.
fn check_at_once(store: &mut Driven, seen: &RunAnswers) -> Result<(), String> {
    check_timed(store, seen)?;
    for (name, most) in [(MOST, Some(KEPT)), (LOWERED, seen.asked_lower.then_some(LOWERED_TO))] {
        check_most(store, seen, name, most)?;
    }
    check_dropped(store, seen)?;
    check_ended(store, seen)
}

fn check_timed(store: &mut Driven, seen: &RunAnswers) -> Result<(), String> {
    let now = store.now();
    for (known, found) in seen.of(TIMED).zip(found(store, seen, TIMED)?) {
        match known.fate {
            Fate::Buried(at) if at.saturating_after(TTL_MS) <= now => {
                if found.is_some() {
                    return Err(format!("{} is shown past its time", known.key));
                }
                check_hidden(store, known)?;
            }
            // The bury may have taken effect, and its time may be over at a later check. At the first check it is not:
            // the clock has stood still since the request.
            Fate::Asked if found.is_none() && now >= start().saturating_after(TTL_MS) => {}
            Fate::Buried(_) if !is_dead(found.as_ref()) => {
                return Err(format!("{} is dead and was lost or came back: {found:?}", known.key));
            }
            Fate::Pending if found.is_none() || is_dead(found.as_ref()) => {
                return Err(format!("{} was lost: {found:?}", known.key));
            }
            Fate::Asked if found.is_none() => return Err(format!("{} was lost", known.key)),
            _ => {}
        }
    }
    Ok(())
}

/// No call finds a message whose time is over.
fn check_hidden(store: &mut Driven, known: &KnownMessage) -> Result<(), String> {
    let engine = store.engine.clone();
    let name = queue(known.queue);
    let by_key =
        store.run(engine.get(name.clone(), vec![Target::Key(known.key.clone())], true)).pop().unwrap();
    if !matches!(by_key, Err(Error::MessageNotFound { .. })) {
        return Err(format!("{} is shown by its key past its time: {by_key:?}", known.key));
    }
    let revived = store.run(engine.revive(name.clone(), Selection::Ids(vec![known.id]), When::Now));
    if revived.as_ref().map(|swept| swept.done) != Ok(0) {
        return Err(format!("{} is revived past its time: {revived:?}", known.key));
    }
    let taken = store.run(engine.take_id(name, known.id, dwell_store::LeaseTerms::default()));
    if !matches!(taken, Err(Error::MessageNotFound { .. })) {
        return Err(format!("{} is taken past its time: {taken:?}", known.key));
    }
    Ok(())
}

/// The messages of a queue that may be missing are the oldest of the dead, and the youngest are there, as many as are
/// kept.
fn check_most(store: &mut Driven, seen: &RunAnswers, name: &str, most: Option<usize>) -> Result<(), String> {
    let found = found(store, seen, name)?;
    let asked = seen.of(name).filter(|known| matches!(known.fate, Fate::Asked)).count();
    let buried = seen.of(name).filter(|known| matches!(known.fate, Fate::Buried(_))).count();
    // One whose bury was not answered may be the youngest.
    let may_go = most.map_or(0, |most| (buried + asked).saturating_sub(most));
    let mut kept_before: Option<&Key> = None;
    for (number, (known, found)) in seen.of(name).zip(found).enumerate() {
        if let Some(before) = kept_before.filter(|_| found.is_none()) {
            return Err(format!("{} is missing, and the older {before} is not", known.key));
        }
        match (&known.fate, &found) {
            (_, None) if number >= may_go => return Err(format!("{} was lost: {may_go} may go", known.key)),
            (Fate::Buried(_), Some(_)) if !is_dead(found.as_ref()) => {
                return Err(format!("{} was dead and came back: {found:?}", known.key));
            }
            (Fate::Pending, Some(_)) if is_dead(found.as_ref()) => {
                return Err(format!("{} died: {found:?}", known.key));
            }
            _ => {}
        }
        kept_before = kept_before.or_else(|| found.is_some().then_some(&known.key));
    }
    Ok(())
}

fn check_dropped(store: &mut Driven, seen: &RunAnswers) -> Result<(), String> {
    let now = store.now();
    for (known, found) in seen.of(DROPPED).zip(found(store, seen, DROPPED)?) {
        let has_expired = known.expires.is_some_and(|expires| expires <= now);
        if has_expired && found.is_some() {
            return Err(format!("{} was dropped and is shown: {found:?}", known.key));
        }
        if !has_expired && (found.is_none() || is_dead(found.as_ref())) {
            return Err(format!("{} was lost before it expired: {found:?}", known.key));
        }
        if has_expired {
            let engine = store.engine.clone();
            let by_key = Target::Key(known.key.clone());
            let by_key = store.run(engine.get(queue(DROPPED), vec![by_key], true)).pop().unwrap();
            if !matches!(by_key, Err(Error::MessageNotFound { .. })) {
                return Err(format!("{} was dropped and its key is not free: {by_key:?}", known.key));
            }
        }
    }
    Ok(())
}

/// A lease whose end was answered stays ended: an attempt is spent, and its receipt is invalid.
fn check_ended(store: &mut Driven, seen: &RunAnswers) -> Result<(), String> {
    for name in [ENDED, BACKED] {
        for (known, found) in seen.of(name).zip(found(store, seen, name)?) {
            let Some(message) = found else { return Err(format!("{} was lost", known.key)) };
            let Fate::Ended(receipt, settled) = &known.fate else { continue };
            let standing = &message.standing;
            let is_as_answered = match (settled, standing.state.kind()) {
                (Settled::Dead(_), kind) => kind == StateKind::Dead,
                (_, kind) => matches!(kind, StateKind::Scheduled | StateKind::Ready),
            };
            if !is_as_answered || (standing.attempts, standing.counts.lapses) != (1, 1) {
                return Err(format!("the lease of {} was ended and is not: {message:?}", known.key));
            }
            let acked = store.settle(Settle { receipt: receipt.clone(), action: Action::Ack });
            if acked != Err(Error::LeaseLost) {
                return Err(format!("the lease of {} was ended and its receipt works: {acked:?}", known.key));
            }
        }
    }
    Ok(())
}

/// A minute later, without a call meanwhile: what is past its retention is in no count and no list.
fn check_later(store: &mut Driven, seen: &RunAnswers) -> Result<(), String> {
    let kept = |store: &mut Driven, name: &str| -> Result<usize, String> {
        let engine = store.engine.clone();
        let listed = store.run(engine.list(queue(name), StateKind::Dead, None, 100));
        let listed = match listed {
            Ok(page) => page.messages.len(),
            // Nothing that was answered keeps the queue.
            Err(Error::UnknownQueue { .. }) => return Ok(0),
            Err(error) => return Err(error.to_string()),
        };
        let counted = store.run(engine.stats(queue(name))).map_err(|error| error.to_string())?.counts.dead;
        if counted == listed as u64 {
            Ok(listed)
        } else {
            Err(format!("{name}: {counted} and {listed} dead"))
        }
    };
    let dead = [TIMED, DROPPED, MOST, LOWERED].map(|name| kept(store, name));
    let [timed, dropped, in_most, in_lowered] = dead;
    let (timed, dropped, in_most, in_lowered) = (timed?, dropped?, in_most?, in_lowered?);
    if timed > 0 || dropped > 0 || in_most > KEPT {
        return Err(format!(
            "{timed} dead past their time, {dropped} that expired, {in_most} of {KEPT} stay"
        ));
    }
    if seen.lowered && in_lowered > LOWERED_TO {
        return Err(format!("{in_lowered} stay after {LOWERED_TO} was answered"));
    }
    let pending = seen.of(DROPPED).count();
    let engine = store.engine.clone();
    let counts = store.run(engine.stats(queue(DROPPED))).map(|stats| stats.counts);
    if pending > 0 && counts.as_ref().is_ok_and(|counts| counts.ready + counts.scheduled > 0) {
        return Err(format!("what expired is counted still: {counts:?}"));
    }
    Ok(())
}

#[test]
fn retention_and_ended_leases_survive_a_crash_at_every_change_of_the_disk() {
    crash_everywhere(AMPLE, (1, 1));
}

// With messages in tables there are ten times as many changes: four tests, which run side by side, share them.

#[test]
fn retention_and_ended_leases_survive_a_crash_at_every_change_with_little_memory_part_1_of_4() {
    crash_everywhere(TINY, (1, 4));
}

#[test]
fn retention_and_ended_leases_survive_a_crash_at_every_change_with_little_memory_part_2_of_4() {
    crash_everywhere(TINY, (2, 4));
}

#[test]
fn retention_and_ended_leases_survive_a_crash_at_every_change_with_little_memory_part_3_of_4() {
    crash_everywhere(TINY, (3, 4));
}

#[test]
fn retention_and_ended_leases_survive_a_crash_at_every_change_with_little_memory_part_4_of_4() {
    crash_everywhere(TINY, (4, 4));
}

/// Crashes at one part of the changes: each that leaves `part` modulo `parts`.
fn crash_everywhere(memory_limit: u64, (part, parts): (u64, u64)) {
    let (_, clock, seen) = run_until(None, memory_limit, Fault::Nothing);
    assert!(seen.is_through && seen.lowered, "nothing fails without a crash");
    assert!(clock.now().wall > start().saturating_after(TTL_MS + EXPIRES_MS));
    assert!(seen.changes > 100, "{} changes are too few to mean anything", seen.changes);
    let mut through = 0;
    for change in (part..=seen.changes).step_by(parts as usize) {
        for crash in crashes(1, change) {
            if let Err(violation) = crash_at(change, memory_limit, crash, Fault::Nothing) {
                panic!("crash at change {change} of {}, {crash:?}: {violation}", seen.changes);
            }
            through += 1;
        }
    }
    assert!(through > 100, "{through} crashes");
}

/// The violations that a fault causes, over all changes of the disk.
fn caught(fault: Fault) -> Vec<String> {
    let (_, _, seen) = run_until(None, AMPLE, Fault::Nothing);
    // If no sync is real, a prefix of all that was written is kept: otherwise nothing at all would be there.
    let crash = |change| if fault == Fault::SyncsLie { Crash::Prefix(change) } else { Crash::Drop };
    (1..=seen.changes).filter_map(|change| crash_at(change, AMPLE, crash(change), fault).err()).collect()
}

#[test]
fn what_breaks_retention_or_an_ended_lease_is_caught() {
    for (fault, words) in [
        (Fault::SyncsLie, "was lost"),
        (Fault::SyncsLie, "was ended and"),
        (Fault::OneTooMany, "is missing, and the older"),
        (Fault::TimeForgotten, "is shown past its time"),
        (Fault::MostForgotten, "was answered"),
    ] {
        let violations = caught(fault);
        let found = violations.iter().filter(|violation| violation.contains(words)).count();
        assert!(found > 0, "{fault:?}: none of {} says {words:?}", violations.len());
    }
}

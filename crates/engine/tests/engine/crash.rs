//! The crash matrix: a mixed run, crashed at each change of the disk, with unsynced data dropped, torn or kept. What
//! was answered holds; nothing is early; no message has two receipts.
//!
//! The same run is made without a crash first, and its state after each step is recorded. After a crash in step *f*,
//! all messages and settings must be together in the state after one step since the last sync that was answered, with
//! the time that has passed; after the death of the process alone, in the state after the last step that was answered,
//! or after *f*. Together, since a batch is kept whole or not at all: of a message that replaces another, never one
//! half.

mod retention;
mod workload;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use dwell_engine::Options;
use dwell_engine::disk::{Crash, MemoryDisk};
use dwell_model::{
    Command, Message, MessageId, Now, Number, OwnSettings, Pause, QueueName, Rules, Setting, SettingChange,
    Settings, State,
};
use dwell_store::{Action, Put, Settle, Store, Take};
use dwell_testkit::Random;
use dwell_time::{Clock, ManualClock};

use self::workload::Workload;
use crate::support::{Driven, options, queue, start};

/// The state of a store at some moment: its messages, and the settings that queues have.
#[derive(Clone, Default, PartialEq)]
struct StoreContent {
    messages: BTreeMap<Number, Message>,
    settings: BTreeMap<QueueName, OwnSettings>,
}

fn show(store: &mut Driven) -> StoreContent {
    let engine = store.engine.clone();
    let messages = store.dump().into_iter().map(|message| (message.number, message)).collect();
    let stats = store.run(engine.queues(None, 10_000)).unwrap();
    let own = stats.into_iter().map(|stats| (stats.name, stats.own));
    let settings = own.filter(|(_, own)| !own.is_empty()).collect();
    StoreContent { messages, settings }
}

/// A run without a crash.
struct Reference {
    shown: Vec<StoreContent>,
    /// Whether a step changed something and was answered with the promise that it is durable. Everything before it is
    /// then durable as well.
    promised: Vec<bool>,
    /// Messages that replaced another: the step, the other, and the new one.
    replaced: Vec<(usize, MessageId, Number)>,
    /// Changes of the disk up to the end.
    changes: u64,
    memory_limit: u64,
}

const STEPS: usize = 120;

/// A deliberate fault, for the checks to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Nothing,
    /// The disk reports that it has synced, and has not.
    SyncsLie,
    /// Of a message that replaced another, one half is kept.
    TornReplace(Torn),
}

/// The half that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Torn {
    /// The old message is gone and the new one is not there.
    Neither,
    /// Both are there.
    Both,
}

/// So much memory that nothing is flushed, and so little that most of it is.
const AMPLE: u64 = u64::MAX;
const TINY: u64 = Options::MIN_MEMORY_LIMIT;

/// Options for a store with short segments and this memory limit.
fn small(disk: &MemoryDisk, clock: &ManualClock, memory_limit: u64) -> Options {
    Options { segment_bytes: 4 * 1024, memory_limit, ..options(disk, clock) }
}

fn open(disk: &MemoryDisk, clock: &ManualClock, memory_limit: u64) -> Driven {
    Driven::open(disk.clone(), clock.clone(), small(disk, clock, memory_limit)).unwrap()
}

fn reference(seed: u64, memory_limit: u64) -> Reference {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let mut store = open(&disk, &clock, memory_limit);
    let mut work = Workload::new(seed);
    let mut before = show(&mut store);
    let (mut shown, mut promised) = (Vec::new(), Vec::new());
    for _ in 0..STEPS {
        let outcome = work.step(&mut store);
        assert!(outcome.answered, "nothing fails without a crash");
        let after = show(&mut store);
        promised.push(outcome.promises && after != before);
        before = after.clone();
        shown.push(after);
    }
    let counters = store.engine.counters();
    if memory_limit == TINY {
        assert!(counters.flushes > 4 && counters.tables > 0, "{counters:?}");
    } else {
        assert!(counters.segments > 4, "{counters:?}");
    }
    Reference { shown, promised, replaced: work.replaced, changes: disk.changes(), memory_limit }
}

/// Runs until the power fails at a change of the disk, and checks the state afterwards.
fn crash_at(
    reference: &Reference,
    seed: u64,
    change: u64,
    crash: Crash,
    again: Option<(u64, Crash)>,
    fault: Fault,
) -> Result<(), String> {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    if fault == Fault::SyncsLie {
        disk.lie_about_syncs();
    }
    disk.power_off_at(change);
    let opening = small(&disk, &clock, reference.memory_limit);
    let mut work = Workload::new(seed);
    // The last step that was answered, and the last one that was begun, counted from 1.
    let (mut answered, mut begun) = (0, 0);
    if let Ok(mut store) = Driven::open(disk.clone(), clock.clone(), opening) {
        while !disk.is_off() && begun < STEPS {
            begun += 1;
            if work.step(&mut store).answered {
                answered = begun;
            }
            if !disk.is_off() {
                store.look();
            }
        }
    }
    disk.power_on(crash);
    if let Some((change, crash)) = again {
        disk.power_off_at(change);
        let opening = small(&disk, &clock, reference.memory_limit);
        drop(Driven::open(disk.clone(), clock.clone(), opening));
        disk.power_off();
        disk.power_on(crash);
    }
    let options = small(&disk, &clock, reference.memory_limit);
    let mut store = Driven::open(disk.clone(), clock.clone(), options).map_err(|error| error.to_string())?;
    let mut found = show(&mut store);

    let safe = match (crash, again) {
        (Crash::Keep, None) => answered,
        _ => (1..=answered).rev().find(|step| reference.promised[step - 1]).unwrap_or(0),
    };
    if let Fault::TornReplace(torn) = fault
        && !tear(reference, safe..=begun, &mut found, torn)
    {
        return Ok(());
    }
    check_shown(reference, safe..=begun, &found, clock.now())?;
    check_idempotency_keys(&work, safe, &mut store)?;
    check_service(&work, &found, &mut store)
}

/// Tears the state at a message that replaced another in one of the steps that may have been lost; false if there is
/// none.
fn tear(reference: &Reference, steps: RangeInclusive<usize>, found: &mut StoreContent, torn: Torn) -> bool {
    let lost = reference.replaced.iter().find(|(step, ..)| steps.contains(step) && step > steps.start());
    let Some((step, old, new)) = lost else { return false };
    let before = after(reference, step - 1);
    let old = before.and_then(|shown| shown.messages.values().find(|message| message.id == *old));
    match (torn, old) {
        (Torn::Neither, Some(old)) if !matches!(old.standing.state, State::Leased(_)) => {
            found.messages.remove(&old.number);
            found.messages.remove(new);
            true
        }
        (Torn::Both, Some(old)) if found.messages.contains_key(new) => {
            found.messages.insert(old.number, old.clone());
            true
        }
        _ => false,
    }
}

/// The state after a step, counted from 1; the initial state for 0.
fn after(reference: &Reference, step: usize) -> Option<&StoreContent> {
    Some(&reference.shown[step.checked_sub(1)?])
}

/// Checks that the state is that after a single one of `steps`.
fn check_shown(
    reference: &Reference,
    steps: RangeInclusive<usize>,
    found: &StoreContent,
    now: Now,
) -> Result<(), String> {
    let found = as_of(found, now);
    let expected = || steps.clone().map(|step| opened(after(reference, step), now));
    if expected().any(|expected| expected == found) {
        return Ok(());
    }
    let expected: Vec<StoreContent> = expected().collect();
    let numbers: BTreeSet<Number> =
        [&found].into_iter().chain(&expected).flat_map(|shown| shown.messages.keys().copied()).collect();
    let ways = |number: &Number| expected.iter().map(|shown| shown.messages.get(number)).collect::<Vec<_>>();
    for number in &numbers {
        let (found, ways) = (found.messages.get(number), ways(number));
        if !ways.contains(&found) {
            let text = format!("message {number} after steps {steps:?}");
            return Err(format!("{text}\n found {found:#?}\n expected one of {ways:#?}"));
        }
    }
    for name in Workload::queues() {
        let found = found.settings.get(&name);
        if !expected.iter().any(|shown| shown.settings.get(&name) == found) {
            return Err(format!("settings of {name} after steps {steps:?}: {found:?}"));
        }
    }
    let torn = numbers.iter().filter(|number| ways(number).iter().any(|way| *way != ways(number)[0]));
    let there = |number: &Number| (*number, found.messages.get(number).map(|message| message.standing.state));
    let torn: Vec<_> = torn.map(there).collect();
    Err(format!("each by itself, but not together, as after one of the steps {steps:?}: {torn:#?}"))
}

/// The state of a store that is opened at `now` on a recorded state.
fn opened(shown: Option<&StoreContent>, now: Now) -> StoreContent {
    let Some(StoreContent { messages, settings }) = shown else { return StoreContent::default() };
    let reopened = messages.iter().map(|(number, message)| (*number, reopened(message, now)));
    as_of(&StoreContent { messages: reopened.collect(), settings: settings.clone() }, now)
}

/// The state without what a restart changes, and without pauses that have ended.
fn as_of(shown: &StoreContent, now: Now) -> StoreContent {
    let messages = shown.messages.iter().map(|(number, message)| (*number, normal(message, now)));
    let settings = shown.settings.iter().map(|(name, own)| {
        let mut own = own.clone();
        if let Some(end) = own.pause_end() {
            own.change(SettingChange::Set(Setting::Pause(Pause::Until(end))).as_of(now.wall, Pause::Running));
        }
        (name.clone(), own)
    });
    StoreContent {
        messages: messages.collect(),
        settings: settings.filter(|(_, own)| !own.is_empty()).collect(),
    }
}

/// A message after the process that it was bound to has ended, and time has passed.
fn reopened(message: &Message, now: Now) -> Message {
    let settings = Settings::default();
    let rules = Rules::of(message.id, message.max_attempts, &settings);
    let unbound =
        dwell_model::apply(&message.standing, &Command::EndSession, now, rules).unwrap().next.unwrap();
    Message { standing: unbound, ..message.clone() }
}

/// Without what a restart changes: the monotonic deadline, and the time of a death, which may be noticed later.
fn normal(message: &Message, now: Now) -> Message {
    let mut message = message.clone();
    match &mut message.standing.state {
        State::Leased(lease) => lease.deadline_mono_ms = 0,
        State::Dead(death) => death.at = now.wall,
        State::Scheduled | State::Ready => {}
    }
    message
}

/// A put that was answered gives the same answer under its idempotency key.
fn check_idempotency_keys(work: &Workload, safe: usize, store: &mut Driven) -> Result<(), String> {
    for (step, put, answer) in &work.idempotency_keys {
        if *step <= safe && store.put(put.clone()) != Ok(*answer) {
            return Err(format!("the idempotency key of step {step} gives another answer than {answer:?}"));
        }
    }
    Ok(())
}

/// Nothing is early, no message has two receipts, no lease idempotency key and no number is reused.
fn check_service(work: &Workload, found: &StoreContent, store: &mut Driven) -> Result<(), String> {
    let mut valid: BTreeMap<_, u32> = BTreeMap::new();
    for receipt in &work.receipts {
        let extend = Settle { receipt: receipt.clone(), action: Action::Extend { lease_ms: None } };
        if store.settle(extend).is_ok() {
            *valid.entry(receipt.id).or_default() += 1;
        }
    }
    if let Some((id, count)) = valid.into_iter().find(|(_, count)| *count > 1) {
        return Err(format!("message {id} has {count} valid receipts"));
    }
    for name in Workload::queues() {
        for taken in store.take(Take::from(name).max(1_000)).map_err(|error| error.to_string())? {
            if taken.message.standing.due > taken.taken_at {
                return Err(format!("message {} was early", taken.message.number));
            }
            if work.receipts.iter().any(|receipt| receipt.token == taken.receipt.token) {
                return Err(format!("the receipt of message {} was issued before", taken.message.number));
            }
        }
    }
    let new = store.put(Put::new(queue("new"), "new")).map_err(|error| error.to_string())?;
    let highest = work.ids.iter().map(|(_, _, number)| *number).max();
    if highest.is_some_and(|highest| new.number <= highest) || found.messages.contains_key(&new.number) {
        return Err(format!("number {} was given before", new.number));
    }
    Ok(())
}

/// All ways in which the power may fail at a change.
fn crashes(seed: u64, change: u64) -> [Crash; 5] {
    let one = seed.wrapping_mul(1_000_003) + change;
    [Crash::Drop, Crash::Keep, Crash::Prefix(one), Crash::Holes(one), Crash::Holes(!one)]
}

#[test]
fn what_was_answered_survives_a_crash_at_every_change_of_the_disk() {
    crash_everywhere(AMPLE, 4, 1);
}

#[test]
fn what_was_answered_survives_a_crash_at_many_changes_of_the_disk_with_little_memory() {
    crash_everywhere(TINY, 4, stride(23));
}

/// With little memory there are many more changes, and each takes longer: only every `changes`th one is tested, unless
/// `DWELL_EVERY_CHANGE` is set.
fn stride(changes: u64) -> u64 {
    if std::env::var_os("DWELL_EVERY_CHANGE").is_some() { 1 } else { changes }
}

fn crash_everywhere(memory_limit: u64, count: u64, stride: u64) {
    for seed in seeds(count) {
        let reference = reference(seed, memory_limit);
        assert!(reference.changes > 150, "{} changes are too few to mean anything", reference.changes);
        for change in (1 + seed % stride..=reference.changes).step_by(stride as usize) {
            for crash in crashes(seed, change) {
                if let Err(violation) = crash_at(&reference, seed, change, crash, None, Fault::Nothing) {
                    panic!(
                        "seed {seed}, crash at change {change}, {crash:?}: {violation}\n\nTo replay it:\n  \
                         DWELL_SEED={seed} cargo test -p dwell-engine --test engine crash::what_was"
                    );
                }
            }
        }
    }
}

#[test]
fn a_crash_while_recovering_from_a_crash_loses_nothing_either() {
    crash_twice(AMPLE, 2, 1);
}

#[test]
fn a_crash_while_recovering_from_a_crash_loses_nothing_either_with_little_memory() {
    crash_twice(TINY, 2, stride(41));
}

fn crash_twice(memory_limit: u64, count: u64, stride: u64) {
    /// More changes than an opening makes.
    const OPENING: u64 = 16;
    for seed in seeds(count) {
        let reference = reference(seed, memory_limit);
        for change in (1 + seed % stride..=reference.changes).step_by(stride as usize) {
            for again in 1..=OPENING {
                let moment = change * OPENING + again;
                let mut chance = Random::new(seed ^ (moment << 8));
                let all = crashes(seed, moment);
                let (first, second) = (*chance.pick(&all), *chance.pick(&all));
                let both = Some((again, second));
                if let Err(violation) = crash_at(&reference, seed, change, first, both, Fault::Nothing) {
                    panic!(
                        "seed {seed}, crash at change {change}, {first:?}, then at {again}, {second:?}: {violation}\n\n\
                         To replay it:\n  DWELL_SEED={seed} cargo test -p dwell-engine --test engine crash::a_crash"
                    );
                }
            }
        }
    }
}

#[test]
fn an_engine_whose_syncs_do_nothing_is_caught() {
    let reference = reference(1, AMPLE);
    let is_caught = |change: &u64| {
        let crashed = crash_at(&reference, 1, *change, Crash::Drop, None, Fault::SyncsLie);
        crashed.is_err_and(|violation| violation.contains("expected one of"))
    };
    let caught = (1..=reference.changes).filter(is_caught).count() as u64;
    assert!(caught > reference.changes / 2, "{caught} of {} crashes", reference.changes);
}

#[test]
fn one_half_of_a_replaced_pair_is_caught() {
    for torn in [Torn::Neither, Torn::Both] {
        let mut caught = 0;
        for seed in 1..=4 {
            let reference = reference(seed, AMPLE);
            for change in 1..=reference.changes {
                for crash in [Crash::Drop, Crash::Keep] {
                    let crashed = crash_at(&reference, seed, change, crash, None, Fault::TornReplace(torn));
                    let together = |violation: &String| violation.contains("but not together");
                    caught += u32::from(crashed.is_err_and(|violation| together(&violation)));
                }
            }
        }
        assert!(caught > 0, "{torn:?}: where each message was judged by itself, none was found");
    }
}

fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("DWELL_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (1..=count).collect(),
    }
}

#[test]
fn the_workload_does_all_there_is_to_do() {
    let mut done = BTreeMap::new();
    for seed in 1..=4 {
        let mut store = open(&MemoryDisk::new(), &ManualClock::new(start()), AMPLE);
        let mut work = Workload::new(seed);
        for _ in 0..STEPS {
            work.step(&mut store);
        }
        for (name, count) in work.done {
            *done.entry(name).or_insert(0) += count;
        }
    }
    for name in [
        "put",
        "take",
        "take by id",
        "ack",
        "retry",
        "release",
        "bury",
        "extend",
        "expire lease",
        "cancel",
        "reschedule",
        "configure",
        "revive",
        "discard",
        "purge",
        "delete queue",
        "advance",
        "give back",
    ] {
        assert!(done.get(name).is_some_and(|count| *count > 0), "{name} in {done:?}");
    }
}

//! Revive and discard of many, slice by slice, with all other calls in between.

use std::collections::BTreeSet;

use dwell_model::{Key, MessageId};
use proptest::collection::vec;
use proptest::prelude::*;

use super::cold::{Checkpoint, capture_in_slices, evict, recovered, snapshot};
use super::random::{Call, Walk, any_call_without_retention, config, name};
use super::*;
use crate::core::{BulkOperation, BulkProgress};
use crate::{Error, LeaseTerms};

const QUEUES: u8 = 3;

/// A core that looks at two messages per slice.
fn slow() -> Rig {
    Rig::configured(CoreConfig { bulk_per_call: 2, ..CoreConfig::new(Limits::default(), 7) })
}

/// Buries a message, with a key if there is one.
fn bury(rig: &mut Rig, key: Option<&str>, at: u64) -> MessageId {
    bury_in("q", rig, key, at)
}

fn bury_in(name: &str, rig: &mut Rig, key: Option<&str>, at: u64) -> MessageId {
    let put = put_to(name).priority(0);
    let put = Put { key: key.map(|key| Key::new(key).unwrap()), ..put };
    let id = rig.put(put, now(at)).unwrap().id;
    let taken =
        rig.call(|core, log| core.take_id(&queue(name), id, LeaseTerms::default(), now(at), log)).unwrap();
    rig.settle(&taken.receipt, Action::Bury { reason: None, priority: None }, now(at)).unwrap();
    id
}

fn bury_many(rig: &mut Rig, count: u64) {
    for at in 0..count {
        bury(rig, None, at);
    }
}

fn begin_revive(rig: &mut Rig, at: u64) -> Box<BulkOperation> {
    let began =
        rig.call(|core, log| core.revive(&queue("q"), Selection::All, When::AfterMs(500), now(at), log));
    let BulkProgress::Unfinished(bulk) = began.unwrap() else { panic!("more than a slice") };
    bulk
}

fn finish(rig: &mut Rig, bulk: Box<BulkOperation>, at: u64) -> BulkOutcome {
    rig.call(|core, log| core.finish(BulkProgress::Unfinished(bulk), now(at), log)).unwrap()
}

fn dead_len(rig: &mut Rig, at: u64) -> u64 {
    rig.call(|core, log| core.stats(&queue("q"), now(at), log)).map_or(0, |stats| stats.counts.dead)
}

/// Rewrites messages that have expired by then as dead ones.
fn move_expired(rig: &mut Rig, by: i64) {
    let moved = rig.log.1.as_mut().unwrap().move_expired(at(by));
    let moved =
        moved.iter().map(|(queue, number, expires, ready_until)| (queue, *number, *expires, *ready_until));
    rig.core.moved_to_dead(moved);
}

#[test]
fn what_dies_between_two_slices_stays_dead() {
    let mut rig = slow();
    bury_many(&mut rig, 5);
    let bulk = begin_revive(&mut rig, 10);
    assert_eq!(dead_len(&mut rig, 10), 3);
    bury(&mut rig, None, 11);
    // By a clock that was stepped back it is the oldest of all.
    let before = Now { wall: at(-1_000), mono_ms: 12 };
    let taken = rig.take(Take::from(queue("q")), before).unwrap();
    assert_eq!(taken.len(), 0, "what was revived is not due");
    let put = rig.put(put_to("q"), before).unwrap().id;
    let taken =
        rig.call(|core, log| core.take_id(&queue("q"), put, LeaseTerms::default(), before, log)).unwrap();
    rig.settle(&taken.receipt, Action::Bury { reason: None, priority: None }, before).unwrap();
    assert_eq!(finish(&mut rig, bulk, 20).done, 5);
    assert_eq!(dead_len(&mut rig, 20), 2);
}

/// Of two sweeps the second includes what expired between them, and the first does not, whichever of them
/// makes it resident.
#[test]
fn what_expires_in_a_file_between_two_sweeps_belongs_to_the_second() {
    for pages_in in ["the first sweep", "a get", "a list"] {
        let mut rig = slow();
        bury_many(&mut rig, 5);
        let id = rig.put(Put { expires: Some(at(2_015)), ..put_to("q").after_ms(1_000) }, now(9)).unwrap().id;
        snapshot(&mut rig);
        evict(&mut rig, 0);
        let first = begin_revive(&mut rig, 2_010);
        rig.call(|core, log| while !core.catch_up(now(2_020), log) {});
        let second = begin_revive(&mut rig, 2_021);
        let get = |core: &mut Core<Bytes>, log: &mut Recorder| {
            core.get(&queue("q"), vec![crate::Target::Id(id)], false, now(2_022), log)
        };
        match pages_in {
            "a get" => drop(rig.call(get)),
            "a list" => {
                let dead = dwell_model::StateKind::Dead;
                let page = rig.call(|core, log| core.list(&queue("q"), dead, None, 10, now(2_022), log));
                assert!(page.unwrap().messages.iter().any(|message| message.id == id));
            }
            _ => {}
        }
        let done = finish(&mut rig, first, 2_022).done;
        assert_eq!(done, 3, "{pages_in}: two in its first slice, and one that the second has left");
        assert_eq!(dead_len(&mut rig, 2_022), 1);
        assert_eq!(finish(&mut rig, second, 2_023).done, 3, "{pages_in}");
        assert_eq!(rig.call(get)[0].as_ref().unwrap().standing.state, dwell_model::State::Scheduled);
    }
}

#[test]
fn a_key_that_is_taken_between_two_slices_is_not_given_back() {
    let mut rig = slow();
    let ids: Vec<MessageId> =
        ["a", "b", "c", "d"].iter().zip(0..).map(|(key, at)| bury(&mut rig, Some(key), at)).collect();
    let bulk = begin_revive(&mut rig, 10);
    let put = Put { key: Some(Key::new("c").unwrap()), ..put_to("q") };
    let owner = rig.put(put, now(11)).unwrap().id;
    let swept = finish(&mut rig, bulk, 12);
    assert_eq!((swept.done, swept.refused), (3, vec![(ids[2], Error::KeyTaken { id: owner })]));
}

#[test]
fn what_is_gone_between_two_slices_is_not_missed() {
    for away in ["discard", "delete"] {
        let mut rig = slow();
        bury_many(&mut rig, 7);
        let bulk = begin_revive(&mut rig, 10);
        if away == "discard" {
            assert_eq!(rig.discard(&queue("q"), Selection::All, now(11)).unwrap().done, 5);
        } else {
            assert_eq!(rig.call(|core, log| core.delete_queue(&queue("q"), now(11), log)), 7);
        }
        assert_eq!(finish(&mut rig, bulk, 12).done, 2, "{away}");
    }
}

#[test]
fn a_sweep_that_is_over_is_forgotten() {
    let mut rig = slow();
    for _ in 0..10 {
        bury_many(&mut rig, 5);
        let bulk = begin_revive(&mut rig, 10);
        assert_eq!(rig.core.bulk_in_progress.len(), 1);
        finish(&mut rig, bulk, 11);
    }
    assert_eq!(rig.core.oldest_bulk(), None);
}

#[test]
fn who_is_interrupted_hears_how_far_it_came() {
    let mut rig = slow();
    bury_many(&mut rig, 5);
    let bulk = begin_revive(&mut rig, 10);
    let said = bulk.interrupted(Error::Closed);
    assert_eq!(said.code(), "outcome_unknown");
    assert!(said.to_string().contains("2 of 5 dead messages were revived"), "{said}");
    // The same call continues with the rest.
    assert_eq!(rig.revive(&queue("q"), Selection::All, When::Now, now(11)).unwrap().done, 3);
}

#[test]
fn the_oldest_of_many_are_discarded_slice_by_slice() {
    let mut rig = slow();
    let ids: Vec<MessageId> = (0..7).map(|at| bury(&mut rig, None, at)).collect();
    let began = rig.call(|core, log| core.discard(&queue("q"), Selection::Oldest(5), now(9), log)).unwrap();
    assert!(matches!(began, BulkProgress::Unfinished(_)));
    let swept = rig.call(|core, log| core.finish(began, now(9), log)).unwrap();
    assert_eq!((swept.done, swept.refused_in_all), (5, 0));
    let found = ids.iter().filter(|id| {
        let target = vec![crate::Target::Id(**id)];
        rig.call(|core, log| core.get(&queue("q"), target, false, now(9), log)).remove(0).is_ok()
    });
    assert_eq!(found.copied().collect::<Vec<_>>(), ids[5..]);
}

#[test]
fn a_sweep_of_the_oldest_is_of_no_more_though_others_leave_memory() {
    let mut rig = slow();
    bury_many(&mut rig, 1);
    // Messages that die after a sweep has begun are known to have.
    rig.revive(&queue("q"), Selection::Oldest(0), When::Now, now(1)).unwrap();
    bury_many(&mut rig, 6);
    let began =
        rig.call(|core, log| core.revive(&queue("q"), Selection::Oldest(3), When::AfterMs(500), now(9), log));
    let Ok(BulkProgress::Unfinished(bulk)) = began else { panic!("two slices") };
    snapshot(&mut rig);
    evict(&mut rig, 0);
    assert_eq!(finish(&mut rig, bulk, 10).done, 3);
}

#[test]
fn a_sweep_that_misses_one_it_meant_goes_on_in_whole_slices() {
    let mut rig = Rig::configured(CoreConfig { bulk_per_call: 10, ..CoreConfig::new(Limits::default(), 7) });
    let ids: Vec<MessageId> = (0..11).map(|at| bury(&mut rig, None, at)).collect();
    let mut bulk = begin_revive(&mut rig, 20);
    assert_eq!(rig.discard(&queue("q"), Selection::Ids(vec![ids[10]]), now(21)).unwrap().done, 1);
    for at in 0..100 {
        bury(&mut rig, None, 30 + at);
    }
    let mut slices = 0;
    let swept = loop {
        slices += 1;
        match rig.call(|core, log| core.go_on(bulk, now(200), log)).unwrap() {
            BulkProgress::Unfinished(rest) => bulk = rest,
            BulkProgress::Done(swept) => break swept,
        }
    };
    assert_eq!((swept.done, dead_len(&mut rig, 200)), (10, 100), "those that died since stay dead");
    assert!(slices <= 11, "{slices} slices look at a hundred messages");
}

/// Crash story: a sweep of many continues for minutes. 1. All messages that died meanwhile had to stay in
/// memory until its end. 2. That was many times what memory may hold.
#[test]
fn what_dies_while_a_sweep_goes_on_leaves_memory_and_is_not_swept() {
    let mut rig = Rig::configured(CoreConfig { bulk_per_call: 1, ..CoreConfig::new(Limits::default(), 7) });
    bury_many(&mut rig, 20);
    let mut bulk = begin_revive(&mut rig, 20);
    for round in 1..5 {
        (0..250).for_each(|at| _ = bury(&mut rig, None, 100 * round + at / 5));
        snapshot(&mut rig);
        (0..20).for_each(|_| evict(&mut rig, 8));
        assert!(rig.core.len() <= 8, "{} in memory", rig.core.len());
        assert!(rig.core.late_deaths_memory() < 1_000, "{} bytes are kept", rig.core.late_deaths_memory());
        match rig.call(|core, log| core.go_on(bulk, now(100 * round + 90), log)).unwrap() {
            BulkProgress::Unfinished(rest) => bulk = rest,
            BulkProgress::Done(swept) => panic!("{swept:?}"),
        }
    }
    // One that died before the next sweep began is included in that one, and in no other.
    let began =
        rig.call(|core, log| core.revive(&queue("q"), Selection::All, When::AfterMs(500), now(600), log));
    let Ok(BulkProgress::Unfinished(next)) = began else { panic!("more than a slice") };
    bury(&mut rig, None, 601);
    snapshot(&mut rig);
    (0..20).for_each(|_| evict(&mut rig, 0));
    let first = finish(&mut rig, bulk, 610).done;
    // Its first slice may have reached one that both include.
    assert!((19..=20).contains(&first), "{first}");
    assert_eq!(first + finish(&mut rig, next, 620).done, 20 + 1_000);
    assert_eq!(dead_len(&mut rig, 620), 1);
    assert_eq!(
        (rig.core.oldest_bulk(), rig.core.late_deaths_memory()),
        (None, 0),
        "and nothing is kept for long"
    );
}

/// Crash story: 1. A sweep continues for minutes. 2. Thousands of others begin and end meanwhile. 3. Each
/// message that came into memory was looked up under each of those.
#[test]
fn sweeps_that_come_and_go_beside_another_leave_nothing_behind() {
    let mut rig = slow();
    bury_many(&mut rig, 5);
    let bulk = begin_revive(&mut rig, 10);
    rig.put(put_to("empty"), now(10)).unwrap();
    for at in 0..100 {
        rig.revive(&queue("empty"), Selection::Oldest(1), When::Now, now(11)).unwrap();
        bury(&mut rig, None, 20 + at);
        snapshot(&mut rig);
        evict(&mut rig, 0);
    }
    assert_eq!((rig.core.late.sweeps(), rig.core.bulk_in_progress.len()), (1, 1));
    assert_eq!(finish(&mut rig, bulk, 200).done, 5);
    assert_eq!(dead_len(&mut rig, 200), 100);
}

/// Crash story: 1. A sweep reads dead messages, which takes several calls. 2. Before each of them another
/// begins, of the same queue or another one, and reads from its first message on. 3. What the older one had
/// read was dropped, and none of them ever ended.
#[test]
fn no_sweep_keeps_an_older_one_from_going_on() {
    for name in ["q", "r"] {
        let mut rig = slow();
        bury_many(&mut rig, 7);
        (0..7).for_each(|at| _ = bury_in("r", &mut rig, None, at));
        snapshot(&mut rig);
        evict(&mut rig, 0);
        rig.log.1.as_mut().unwrap().pieces = 5;
        let mut progress = BulkProgress::Unfinished(begin_revive(&mut rig, 20));
        let (mut younger, mut rounds) = (Vec::new(), 0);
        let (which, when) = (Selection::Oldest(1), When::AfterMs(500));
        let mut done = loop {
            match progress {
                BulkProgress::Done(swept) => break swept.done,
                BulkProgress::Unfinished(bulk) => {
                    let began = rig.call(|core, log| {
                        core.revive(&queue(name), which.clone(), when, now(20 + rounds), log)
                    });
                    younger.push(began.unwrap());
                    progress = rig.call(|core, log| core.go_on(bulk, now(20 + rounds), log)).unwrap();
                    rounds += 1;
                    assert!(rounds < 40, "it does not end");
                }
            }
        };
        // Nor does one wait for another that is not continued.
        let last = younger.pop().unwrap();
        done += rig.call(|core, log| core.finish(last, now(60), log)).unwrap().done;
        for progress in younger {
            done += rig.call(|core, log| core.finish(progress, now(60), log)).unwrap().done;
        }
        // Of its own queue all are swept, and of the other one as many as were asked for.
        let left = rig.call(|core, log| core.stats(&queue("r"), now(60), log)).unwrap().counts.dead;
        assert_eq!((dead_len(&mut rig, 60), done + left), (0, 14), "{name}");
    }
}

/// Crash story: 1. A sweep is in progress. 2. A message expires in a file. 3. The file is compacted away, and
/// the message is written into another one as a dead message. 4. Its time of death was no longer known, and
/// it was swept in place of a message that was included and had been removed.
#[test]
fn what_expires_during_a_sweep_is_not_meant_though_it_is_written_anew_since() {
    for is_resident in [false, true] {
        let mut rig = slow();
        let ids: Vec<MessageId> = (0..6).map(|at| bury(&mut rig, None, at)).collect();
        let put = Put { expires: Some(at(2_015)), ..put_to("q").after_ms(1_000) };
        let mortal = rig.put(put, now(9)).unwrap().id;
        snapshot(&mut rig);
        evict(&mut rig, 0);
        let bulk = begin_revive(&mut rig, 2_010);
        let target = vec![crate::Target::Id(mortal)];
        let get = |core: &mut Core<Bytes>, log: &mut Recorder, at| {
            core.get(&queue("q"), target.clone(), false, now(at), log)
        };
        if is_resident {
            // It is in memory then, and no call touches its queue before it leaves.
            rig.call(|core, log| get(core, log, 2_011)).pop().unwrap().unwrap();
            rig.put(put_to("other"), now(2_020)).unwrap();
        } else {
            rig.call(|core, log| while !core.catch_up(now(2_020), log) {});
        }
        move_expired(&mut rig, 2_020);
        evict(&mut rig, 0);
        let gone = rig.discard(&queue("q"), Selection::Ids(ids[4..].to_vec()), now(2_021)).unwrap();
        assert_eq!(gone.done, 2);
        assert_eq!(finish(&mut rig, bulk, 2_022).done, 4, "resident: {is_resident}");
        assert_eq!(dead_len(&mut rig, 2_022), 1);
        // The next one includes it.
        let next = rig.revive(&queue("q"), Selection::All, When::AfterMs(500), now(2_023)).unwrap();
        assert_eq!(next.done, 1, "resident: {is_resident}");
    }
}

/// Crash story: 1. A message expires in a file, and a flush moves it. 2. Its death during a sweep was kept,
/// although that sweep had ended, or was of another queue. 3. Each flush left much that was never used.
#[test]
fn what_expires_is_kept_for_sweeps_of_its_queue_that_go_on_and_for_no_others() {
    for (swept, is_over) in [("q", false), ("q", true), ("r", false)] {
        let mut rig = slow();
        (0..6).for_each(|at| _ = bury_in(swept, &mut rig, None, at));
        rig.put(Put { expires: Some(at(2_015)), ..put_to("q").after_ms(1_000) }, now(9)).unwrap();
        snapshot(&mut rig);
        evict(&mut rig, 0);
        let name = queue(swept);
        let began =
            rig.call(|core, log| core.revive(&name, Selection::All, When::AfterMs(500), now(2_010), log));
        let Ok(BulkProgress::Unfinished(bulk)) = began else { panic!("more than a slice") };
        rig.call(|core, log| while !core.catch_up(now(2_020), log) {});
        let bulk = (!is_over).then_some(bulk);
        move_expired(&mut rig, 2_020);
        let is_kept = rig.core.late_deaths_memory() > 0;
        assert_eq!(is_kept, swept == "q" && !is_over, "a sweep of {swept} that is over: {is_over}");
        drop(bulk);
    }
}

/// The same for messages in memory: one dies while a sweep of another queue is in progress.
#[test]
fn what_dies_in_memory_is_kept_for_sweeps_of_its_queue_and_for_no_others() {
    let mut rig = slow();
    (0..6).for_each(|at| _ = bury_in("r", &mut rig, None, at));
    let began =
        rig.call(|core, log| core.revive(&queue("r"), Selection::All, When::AfterMs(500), now(10), log));
    let Ok(BulkProgress::Unfinished(_sweep)) = began else { panic!("more than a slice") };
    bury(&mut rig, None, 11);
    snapshot(&mut rig);
    evict(&mut rig, 0);
    assert_eq!(rig.core.late_deaths_memory(), 0);
}

/// Crash story: 1. A message expires in a file while a sweep is in progress. 2. The clock is stepped back. 3.
/// From then on it appeared to have been dead at any time, and the sweep included it.
#[test]
fn what_expires_in_a_file_during_a_sweep_is_not_meant_though_the_clock_is_stepped_back_since() {
    let mut rig = slow();
    bury_many(&mut rig, 7);
    let put = Put { expires: Some(at(2_015)), ..put_to("q").after_ms(1_000) };
    let mortal = rig.put(put, now(9)).unwrap().id;
    snapshot(&mut rig);
    evict(&mut rig, 0);
    let bulk = begin_revive(&mut rig, 2_010);
    rig.call(|core, log| while !core.catch_up(now(2_020), log) {});
    let back = Now { wall: at(2_012), mono_ms: 2_021 };
    assert_eq!(rig.discard(&queue("q"), Selection::Ids(vec![mortal]), back).unwrap().done, 1);
    let swept = rig.call(|core, log| core.finish(BulkProgress::Unfinished(bulk), back, log)).unwrap();
    assert_eq!(swept.done, 7, "none that it meant is gone");
}

/// The same if the clock had stepped back before the sweep began: messages that had expired by then were
/// dead.
#[test]
fn what_had_expired_in_a_file_when_the_clock_was_stepped_back_is_meant_by_a_sweep_after_that() {
    let mut rig = slow();
    bury_many(&mut rig, 3);
    rig.put(Put { expires: Some(at(2_015)), ..put_to("q").after_ms(1_000) }, now(9)).unwrap();
    snapshot(&mut rig);
    evict(&mut rig, 0);
    rig.call(|core, log| while !core.catch_up(now(2_020), log) {});
    let back = Now { wall: at(2_012), mono_ms: 2_021 };
    let swept = rig.revive(&queue("q"), Selection::All, When::AfterMs(500), back).unwrap();
    assert_eq!(swept.done, 4);
}

/// A step back of the clock between the beginnings of two sweeps does not make the first one miss anything.
#[test]
fn what_had_expired_in_a_file_before_a_sweep_is_meant_by_it_though_another_begins_at_an_earlier_time() {
    let mut rig = slow();
    bury_many(&mut rig, 5);
    rig.put(Put { expires: Some(at(2_015)), ..put_to("q").after_ms(1_000) }, now(9)).unwrap();
    snapshot(&mut rig);
    evict(&mut rig, 0);
    rig.call(|core, log| while !core.catch_up(now(2_020), log) {});
    let first = begin_revive(&mut rig, 2_020);
    let back = |mono_ms| Now { wall: at(2_000), mono_ms };
    let due = When::AfterMs(500);
    let second =
        rig.call(|core, log| core.revive(&queue("q"), Selection::All, due, back(2_021), log)).unwrap();
    rig.call(|core, log| core.finish(BulkProgress::Unfinished(first), back(2_022), log)).unwrap();
    assert_eq!(dead_len(&mut rig, 2_022), 0);
    drop(second);
}

/// Crash story: 1. A message that a sweep includes is discarded by its id. 2. Others die faster than a slice
/// skips them. 3. The sweep had one more to look for, and never ended.
#[test]
fn a_sweep_ends_however_many_die_where_one_that_it_meant_is_gone() {
    for away in ["discard", "revive", "take", "another sweep", "cold", "delete"] {
        let mut rig =
            Rig::configured(CoreConfig { bulk_per_call: 10, ..CoreConfig::new(Limits::default(), 7) });
        let ids: Vec<MessageId> = (0..11).map(|at| bury(&mut rig, None, at)).collect();
        let mut bulk = begin_revive(&mut rig, 20);
        let last = Selection::Ids(vec![ids[10]]);
        match away {
            "discard" => drop(rig.discard(&queue("q"), last, now(21)).unwrap()),
            "revive" => drop(rig.revive(&queue("q"), last, When::AfterMs(500), now(21)).unwrap()),
            "another sweep" => {
                drop(rig.revive(&queue("q"), Selection::Oldest(1), When::AfterMs(500), now(21)).unwrap());
            }
            "take" => {
                rig.call(|core, log| core.take_id(&queue("q"), ids[10], LeaseTerms::default(), now(21), log))
                    .unwrap();
            }
            "delete" => drop(rig.call(|core, log| core.delete_queue(&queue("q"), now(21), log))),
            _ => {
                snapshot(&mut rig);
                evict(&mut rig, 0);
                drop(rig.discard(&queue("q"), last, now(21)).unwrap());
            }
        }
        let mut slices = 0;
        let swept = loop {
            (0..10).for_each(|_| _ = bury(&mut rig, None, 30 + slices));
            slices += 1;
            assert!(slices <= 3, "{away}: it does not end");
            match rig.call(|core, log| core.go_on(bulk, now(30 + slices), log)).unwrap() {
                BulkProgress::Unfinished(rest) => bulk = rest,
                BulkProgress::Done(swept) => break swept,
            }
        };
        assert_eq!((swept.done, dead_len(&mut rig, 60)), (10, 10 * slices), "{away}");
    }
}

#[derive(Clone, Debug)]
enum Move {
    Call(Call),
    /// Begins a sweep, if none is in progress.
    Begin {
        queue: u8,
        oldest: Option<u64>,
        discard: bool,
    },
    GoOn,
    Capture,
    Evict(usize),
}

fn any_move(evicts: bool) -> impl Strategy<Value = Move> {
    let oldest = prop_oneof![3 => Just(None), 1 => (1..6_u64).prop_map(Some)];
    let begin = (0..QUEUES, oldest, prop::bool::weighted(0.2));
    prop_oneof![
        12 => any_call_without_retention().prop_map(Move::Call),
        2 => begin.prop_map(|(queue, oldest, discard)| Move::Begin { queue, oldest, discard }),
        5 => Just(Move::GoOn),
        1 => Just(Move::Capture),
        3 => (0..4_usize).prop_map(move |keep| if evicts { Move::Evict(keep) } else { Move::GoOn }),
    ]
}

/// A sweep in progress, and what was observed of the dead meanwhile.
struct BulkObservation {
    bulk: Box<BulkOperation>,
    queue: QueueName,
    all: bool,
    /// Those that were dead when it began.
    meant: BTreeSet<MessageId>,
    /// Those of them that were dead at every observation.
    always: BTreeSet<MessageId>,
    /// The number observed to be swept.
    done: u64,
}

fn dead(rig: &Rig, queue: &QueueName) -> BTreeSet<MessageId> {
    let found = rig.core.queues.find(queue).map(|queue| rig.core.queues.get(queue));
    let resident = found.into_iter().flat_map(|found| found.dead.by_death.keys().map(|(_, id)| *id));
    resident.chain(rig.log.1.iter().flat_map(|toy| toy.dead_ids(queue))).collect()
}

/// Checks what a step sweeps, and that nothing is swept that is not included, if the time of each death is
/// known.
fn step(
    rig: &mut Rig,
    seen: Option<BulkObservation>,
    (queue, all): (&QueueName, bool),
    make: impl FnOnce(&mut Core<Bytes>, &mut Recorder, Option<Box<BulkOperation>>) -> Result<BulkProgress>,
) -> Option<BulkObservation> {
    let before = dead(rig, queue);
    let (mut bulk, mut seen) = match seen {
        Some(BulkObservation { bulk, queue, all, meant, always, done }) => {
            (Some(bulk), Some((queue, all, meant, always, done)))
        }
        None => (None, None),
    };
    let answer = rig.call(|core, log| make(core, log, bulk.take()));
    let after = dead(rig, queue);
    let (queue, all, meant, mut always, mut done) =
        seen.take().unwrap_or_else(|| (queue.clone(), all, before.clone(), before.clone(), 0));
    let gone: BTreeSet<MessageId> = before.difference(&after).copied().collect();
    assert!(gone.is_subset(&meant), "{gone:?} of {meant:?}");
    done += gone.len() as u64;
    always.retain(|id| after.contains(id));
    match answer {
        Ok(BulkProgress::Unfinished(bulk)) => Some(BulkObservation { bulk, queue, all, meant, always, done }),
        Ok(BulkProgress::Done(swept)) => {
            assert_eq!(swept.done, done, "what was swept is counted");
            let refused: BTreeSet<MessageId> = swept.refused.iter().map(|(id, _)| *id).collect();
            assert_eq!(refused.len() as u64, swept.refused_in_all, "nobody is refused twice");
            assert!(!all || always.is_subset(&refused), "{always:?} were passed over");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn walk(moves: &[Move]) {
    let mut walk = Walk::random();
    walk.rig.core.config.bulk_per_call = 2;
    let mut checkpoint: Checkpoint = snapshot(&mut walk.rig);
    let (mut bulk_in_progress, mut seen): (_, Option<BulkObservation>) = (None, None);
    for one in moves {
        let now = walk.now;
        match one {
            Move::Call(call) => walk.make(call),
            Move::Capture => {
                if let Some(finished) = capture_in_slices(&mut walk.rig, &mut bulk_in_progress) {
                    checkpoint = finished;
                }
            }
            Move::Evict(keep) => evict(&mut walk.rig, *keep),
            Move::GoOn => {
                if let Some(going) = seen.take() {
                    let queue = going.queue.clone();
                    seen = step(&mut walk.rig, Some(going), (&queue, true), |core, log, bulk| {
                        core.go_on(bulk.unwrap(), now, log)
                    });
                }
            }
            Move::Begin { .. } if seen.is_some() => {}
            Move::Begin { queue, oldest, discard } => {
                let queue = name(*queue);
                // Time acts first, and some of the messages that it kills are included.
                walk.rig.catch_up(now);
                drop(walk.rig.call(|core, log| core.stats(&queue, now, log)));
                let which = oldest.map_or(Selection::All, Selection::Oldest);
                let all = which == Selection::All;
                seen = step(&mut walk.rig, None, (&queue, all), |core, log, _| match discard {
                    true => core.discard(&queue, which, now, log),
                    false => core.revive(&queue, which, When::AfterMs(300), now, log),
                });
            }
        }
        if let Some(seen) = &mut seen {
            let dead = dead(&walk.rig, &seen.queue);
            seen.always.retain(|id| dead.contains(id));
        }
    }
    let mut again = walk.again(recovered(&walk.rig, &checkpoint));
    assert_eq!(walk.see(), again.see(), "what was recorded of a sweep is all of it");
    for _ in 0..1_000 {
        let Some(going) = seen.take() else { return };
        let (queue, now) = (going.queue.clone(), walk.now);
        seen = step(&mut walk.rig, Some(going), (&queue, true), |core, log, bulk| {
            core.go_on(bulk.unwrap(), now, log)
        });
    }
    panic!("a sweep does not end");
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_sweep_misses_nobody_and_sweeps_nobody_else(moves in vec(any_move(false), 1..120)) {
        walk(&moves);
    }

    #[test]
    fn a_sweep_misses_nobody_while_messages_come_and_leave_memory(moves in vec(any_move(true), 1..120)) {
        walk(&moves);
    }
}

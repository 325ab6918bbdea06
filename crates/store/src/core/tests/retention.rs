//! Retention of dead messages: in slices, including cold ones, and never found past their time.

use dwell_model::{AttemptLimit, MessageId, OnExpiry, Setting, SettingChange, SettingName, StateKind};

use super::cold::{evict, recovered, snapshot};
use super::*;
use crate::core::Getting;
use crate::{Error, LeaseTerms, Target};

/// A rig that discards this many at a time.
fn with_slices_of(bulk_per_call: usize) -> Rig {
    Rig::configured(CoreConfig { bulk_per_call, ..CoreConfig::new(Limits::default(), 7) })
}

fn set(rig: &mut Rig, setting: Setting, at_ms: u64) {
    let changes = vec![SettingChange::Set(setting)];
    rig.call(|core, log| core.configure(&queue("q"), changes, now(at_ms), log)).unwrap();
}

/// Makes `count` messages die, one each ten milliseconds from then on.
fn dead(rig: &mut Rig, count: u64, from_ms: u64) -> Vec<MessageId> {
    let limit = Some(AttemptLimit::At(1.try_into().unwrap()));
    let put = |rig: &mut Rig, n| {
        let put = Put { max_attempts: limit, ..put_to("q").key(format!("key-{n}").parse().unwrap()) };
        rig.put(put, now(from_ms)).unwrap().id
    };
    let ids: Vec<MessageId> = (0..count).map(|n| put(rig, n)).collect();
    for n in 0..count {
        let at_ms = from_ms + 10 * n;
        let taken = rig.take(Take::from(queue("q")), now(at_ms)).unwrap().remove(0);
        let bury = Action::Bury { reason: None, priority: None };
        rig.settle(&taken.receipt, bury, now(at_ms)).unwrap();
    }
    ids
}

/// The number that is kept, read without a call.
fn kept(rig: &Rig) -> u64 {
    rig.core.queues.find(&queue("q")).map_or(0, |queue| rig.core.queues.get(queue).dead())
}

fn is_gone(rig: &mut Rig, id: MessageId, at_ms: u64) -> bool {
    let target = vec![Target::Id(id)];
    let got = rig.call(|core, log| core.get(&queue("q"), target, false, now(at_ms), log)).remove(0);
    matches!(got, Err(Error::MessageNotFound { .. } | Error::UnknownQueue { .. }))
}

fn gone_records(rig: &Rig) -> usize {
    let is_gone =
        |told: &&LoggedFact| matches!(told, LoggedFact::Record(Record::Gone { .. }, Durability::Written));
    rig.log.0.iter().filter(is_gone).count()
}

#[test]
fn no_call_discards_more_than_a_slice_and_none_is_forgotten() {
    let mut rig = with_slices_of(3);
    let ids = dead(&mut rig, 11, 0);
    set(&mut rig, Setting::DeadMax(2), 1_000);
    let mut left = vec![kept(&rig)];
    while rig.call(|core, log| core.retain_some(now(1_000), log)) {
        left.push(kept(&rig));
    }
    assert_eq!((left, kept(&rig)), (vec![8, 5], 2), "the last slice ends with the two that stay");
    assert_eq!(gone_records(&rig), 9);
    assert!(ids[..9].iter().all(|id| is_gone(&mut rig, *id, 1_000)));
    assert!(ids[9..].iter().all(|id| !is_gone(&mut rig, *id, 1_000)), "the youngest stay");
    let again = rig.replayed();
    assert_eq!(kept(&again), 2);
    assert_eq!(rig.core.next_retention(), None, "nothing more is to come");
}

#[test]
fn nobody_finds_one_past_its_time_though_it_is_there() {
    let mut rig = with_slices_of(1);
    let ids = dead(&mut rig, 8, 0);
    set(&mut rig, Setting::DeadTtlMs(1_000), 100);
    assert_eq!(rig.core.next_retention(), Some(at(1_000)));
    // Seven are past their retention, and each call discards one.
    let at_ms = 1_065;
    assert!(ids[..7].iter().all(|id| is_gone(&mut rig, *id, at_ms)));
    assert!(!is_gone(&mut rig, ids[7], at_ms));
    let mut rig = with_slices_of(1);
    let ids = dead(&mut rig, 8, 0);
    set(&mut rig, Setting::DeadTtlMs(1_000), 100);
    let first = rig.call(|core, log| {
        let peeking = core.peek(&queue("q"), StateKind::Dead, now(at_ms), log).unwrap();
        core.finish_peek(peeking, now(at_ms), log).unwrap().map(|message| message.id)
    });
    assert_eq!(first, Some(ids[7]));
    assert_eq!(kept(&rig), 7, "the others are there");
    let page =
        rig.call(|core, log| core.list(&queue("q"), StateKind::Dead, None, 3, now(at_ms), log)).unwrap();
    assert!(page.messages.is_empty() && page.next.is_some(), "a page that is empty, and not the last");
    let (mut after, mut shown) = (None, Vec::new());
    loop {
        let list = |core: &mut Core<Bytes>, log: &mut Recorder| {
            core.list(&queue("q"), StateKind::Dead, after, 3, now(at_ms), log)
        };
        let page = rig.call(list).unwrap();
        shown.extend(page.messages.into_iter().map(|message| message.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(shown, [ids[7]]);
}

#[test]
fn a_discard_of_all_counts_none_past_its_time_as_its_own() {
    let mut rig = with_slices_of(1);
    dead(&mut rig, 8, 0);
    set(&mut rig, Setting::DeadTtlMs(1_000), 100);
    let swept = rig.discard(&queue("q"), Selection::All, now(1_055)).unwrap();
    assert_eq!((swept.done, swept.refused_in_all, kept(&rig)), (2, 0, 0));
    let discarded = rig.core.deaths().remove(0).discarded;
    assert_eq!((discarded.dead_ttl, discarded.asked), (6, 2));
}

#[test]
fn a_sweep_means_none_past_its_time_and_comes_to_its_end() {
    let mut rig = with_slices_of(2);
    let ids = dead(&mut rig, 9, 0);
    set(&mut rig, Setting::DeadTtlMs(1_000), 100);
    // Six are past their retention; two are discarded as the call begins, two by each slice.
    let swept = rig.revive(&queue("q"), Selection::Oldest(2), When::AfterMs(9_000), now(1_055)).unwrap();
    assert_eq!(swept, BulkOutcome { done: 2, ..BulkOutcome::default() });
    let state = |rig: &mut Rig, id| {
        let target = vec![Target::Id(id)];
        let got = rig.call(|core, log| core.get(&queue("q"), target, false, now(1_055), log)).remove(0);
        got.ok().map(|message| message.standing.state.kind())
    };
    let states: Vec<_> = ids.iter().map(|id| state(&mut rig, *id)).collect();
    let scheduled = Some(StateKind::Scheduled);
    assert_eq!(states[..6], [None; 6]);
    assert_eq!(states[6..], [scheduled, scheduled, Some(StateKind::Dead)]);
}

#[test]
fn cold_dead_messages_go_in_slices_however_long_it_takes_to_read_them() {
    for pieces in [0, 1, 4] {
        let mut rig = with_slices_of(3);
        let ids = dead(&mut rig, 20, 0);
        rig.put(put_to("q").after_ms(3_600_000), now(300)).unwrap();
        let checkpoint = snapshot(&mut rig);
        evict(&mut rig, 0);
        assert_eq!(rig.core.cold_len(), 21);
        rig.log.1.as_mut().unwrap().pieces = pieces;
        set(&mut rig, Setting::DeadTtlMs(1_000), 400);
        set(&mut rig, Setting::DeadMax(15), 400);
        let mut calls = 0;
        while rig.call(|core, log| core.retain_some(now(400), log)) {
            calls += 1;
            assert!(calls < 200, "{pieces}: it does not come to an end, {} are left", kept(&rig));
        }
        assert_eq!(kept(&rig), 15, "{pieces}");
        // One more dies while others are cold: the oldest of them is discarded.
        let more = dead(&mut rig, 1, 500);
        while rig.call(|core, log| core.retain_some(now(510), log)) {}
        assert_eq!(kept(&rig), 15, "{pieces}");
        assert!(is_gone(&mut rig, ids[5], 510) && !is_gone(&mut rig, ids[6], 510));
        // By their retention.
        let mut again = recovered(&rig, &checkpoint);
        assert_eq!(kept(&again), 15, "{pieces}: a crash loses nothing of it");
        for rig in [&mut rig, &mut again] {
            let mut calls = 0;
            while rig.call(|core, log| core.retain_some(now(1_155), log)) {
                calls += 1;
                assert!(calls < 200, "{pieces}: {} are left", kept(rig));
            }
            assert_eq!(kept(rig), 5, "{pieces}");
            assert!(
                is_gone(rig, ids[15], 1_155)
                    && !is_gone(rig, ids[16], 1_155)
                    && !is_gone(rig, more[0], 1_155)
            );
        }
    }
}

#[test]
fn a_cold_message_that_expires_is_gone_where_its_queue_drops_it_and_a_replay_knows() {
    let mut rig = with_slices_of(100);
    set(&mut rig, Setting::OnExpiry(OnExpiry::Drop), 0);
    let put = |rig: &mut Rig, expires| {
        let put =
            Put { expires: Some(at(expires)), ..put_to("q").key(format!("k{expires}").parse().unwrap()) };
        rig.put(put.after_ms(10), now(0)).unwrap().id
    };
    let ids = [50, 60, 2_000].map(|expires| put(&mut rig, expires));
    let checkpoint = snapshot(&mut rig);
    evict(&mut rig, 0);
    rig.catch_up(now(55));
    assert_eq!((rig.core.cold_len(), kept(&rig)), (2, 0));
    assert!(is_gone(&mut rig, ids[0], 55));
    // Messages that expire before the change of the queue's setting were removed as it was then; those that
    // expire later are dead.
    let changes = vec![SettingChange::Reset(SettingName::OnExpiry)];
    rig.call(|core, log| core.configure(&queue("q"), changes, now(70), log)).unwrap();
    assert_eq!((rig.core.cold_len(), kept(&rig)), (1, 0));
    rig.catch_up(now(2_000));
    assert_eq!(kept(&rig), 1);
    set(&mut rig, Setting::OnExpiry(OnExpiry::Drop), 2_010);
    rig.catch_up(now(2_020));
    assert!(!is_gone(&mut rig, ids[2], 2_020), "what is dead stays dead");
    let mut again = recovered(&rig, &checkpoint);
    for rig in [&mut rig, &mut again] {
        let gone = ids.map(|id| is_gone(rig, id, 2_020));
        assert_eq!(gone, [true, true, false]);
        assert_eq!(kept(rig), 1);
    }
    let counted = rig.core.deaths().remove(0);
    assert_eq!((counted.deaths.expiry, counted.discarded.on_expiry), (1, 2));
}

/// Crash story: 1. A message of a queue that drops what expires cannot be read when its time has come, and dies.
/// 2. After a restart it can be read: it was dropped, though it had been dead.
#[test]
fn what_could_not_be_dropped_stays_dead_after_a_restart() {
    for purges in [false, true] {
        let mut rig = with_slices_of(100);
        set(&mut rig, Setting::OnExpiry(OnExpiry::Drop), 0);
        let put = |rig: &mut Rig, expires| {
            let put = Put { expires: Some(at(expires)), ..put_to("q") };
            rig.put(put.after_ms(10), now(0)).unwrap().id
        };
        // More than a slice, and one that expires later.
        let ids = [50, 51, 52, 53, 2_000].map(|expires| put(&mut rig, expires));
        let checkpoint = snapshot(&mut rig);
        evict(&mut rig, 0);
        rig.log.1.as_mut().unwrap().not_handed_over.insert(ids[1]);
        rig.catch_up(now(60));
        assert_eq!((kept(&rig), rig.core.cold_len()), (1, 2));
        if purges {
            assert_eq!(rig.call(|core, log| core.purge(&queue("q"), now(61), log)), Ok(1));
        }
        let mut again = recovered(&rig, &checkpoint);
        for rig in [&mut rig, &mut again] {
            rig.catch_up(now(70));
            assert_eq!(kept(rig), 1);
            rig.catch_up(now(2_000));
            assert_eq!(ids.map(|id| is_gone(rig, id, 2_000)), [true, false, true, true, true]);
        }
        let counted = rig.core.deaths().remove(0);
        assert_eq!(counted.deaths.expiry, 1);
    }
}

#[test]
fn a_queue_whose_last_message_expires_is_gone_with_it() {
    let defaults = dwell_model::Settings { on_expiry: OnExpiry::Drop, ..Default::default() };
    let mut rig = Rig::with(Limits { defaults, queues: 1, ..Limits::default() });
    rig.put(Put { expires: Some(at(50)), ..put_to("q") }, now(0)).unwrap();
    let stats = rig.call(|core, log| core.stats(&queue("q"), now(50), log));
    assert_eq!(stats.map(|stats| stats.name), Err(Error::UnknownQueue { queue: queue("q") }));
    let queues = rig.call(|core, log| core.queues(None, 9, now(50), log));
    assert!(queues.is_empty());
    assert!(rig.put(put_to("other"), now(50)).is_ok(), "there is room for another");
}

/// Crash story: 1. A message that expires is taken with a session lease, in a queue that drops what expires.
/// 2. The process is killed. 3. The store is opened when lease and expiry have passed: freeing the lease
/// finds no message, and the opening panics.
#[test]
fn a_session_lease_that_ran_out_while_nobody_served_frees_nothing_where_its_message_is_gone() {
    let mut rig = Rig::new();
    set(&mut rig, Setting::OnExpiry(OnExpiry::Drop), 0);
    rig.put(Put { expires: Some(at(500)), ..put_to("q") }, now(0)).unwrap();
    assert_eq!(rig.take(Take::from(queue("q")).lease_ms(100).session(), now(0)).unwrap().len(), 1);
    let again = rig.reopened(now(1_000));
    assert!(again.core.is_empty());
    assert_eq!(again.core.deaths().remove(0).discarded.on_expiry, 1);
    assert!(again.replayed().core.is_empty(), "and that is recorded");
}

/// Crash story: 1. A dead message is named by its id, and the call looks up the present owner of its key. 2.
/// The owner is in a file and has expired, which no call has noticed yet: it dies. 3. The queue keeps one
/// dead message, so the named one is discarded. 4. The call continues with it.
#[test]
fn a_message_that_goes_for_what_dies_when_its_key_is_asked_for_is_not_found() {
    for revives in [false, true] {
        let mut rig = with_slices_of(10);
        let id = dead(&mut rig, 1, 0)[0];
        set(&mut rig, Setting::DeadMax(1), 10);
        let put = Put { expires: Some(at(500)), ..put_to("q").key("key-0".parse().unwrap()) };
        let later = rig.put(put.after_ms(100), now(20)).unwrap().id;
        snapshot(&mut rig);
        evict(&mut rig, 0);
        assert!(!is_gone(&mut rig, id, 30), "it is in memory again");
        assert_eq!(rig.core.cold_len(), 1);
        let refused = if revives {
            let which = Selection::Ids(vec![id]);
            let swept = rig.revive(&queue("q"), which, When::Now, now(600)).unwrap();
            assert_eq!((swept.done, swept.refused_in_all), (0, 1));
            swept.refused.into_iter().map(|(_, why)| why).next()
        } else {
            let terms = LeaseTerms::default();
            rig.call(|core, log| core.take_id(&queue("q"), id, terms, now(600), log)).err()
        };
        assert_eq!(refused, Some(Error::MessageNotFound { queue: queue("q") }));
        assert!(is_gone(&mut rig, id, 600) && !is_gone(&mut rig, later, 600));
        assert_eq!(kept(&rig), 1);
    }
}

/// Crash story: 1. A message expires in a queue that drops it; a copy is in a file. 2. Before a call touches
/// the queue, the `on_expiry` of another one is changed, and all files are promoted. 3. Everything that has
/// expired by that is dead: at once where it is cold, and for a replay where it was in memory.
#[test]
fn what_other_queues_drop_is_gone_before_a_change_ripens_all_files() {
    for is_cold in [false, true] {
        let defaults = dwell_model::Settings { on_expiry: OnExpiry::Drop, ..Default::default() };
        let mut rig = Rig::configured(CoreConfig::new(Limits { defaults, ..Limits::default() }, 7));
        let expiring = Put { expires: Some(at(50)), ..put_to("other") };
        let id = rig.put(expiring.after_ms(10), now(0)).unwrap().id;
        let lasts = rig.put(put_to("q").after_ms(10_000), now(0)).unwrap().id;
        let checkpoint = snapshot(&mut rig);
        evict(&mut rig, 0);
        let (name, drawn) = if is_cold { ("q", lasts) } else { ("other", id) };
        let targets = vec![Target::Id(drawn)];
        let got = rig.call(|core, log| core.get(&queue(name), targets, false, now(20), log)).remove(0);
        assert_eq!((got.unwrap().id, rig.core.cold_len()), (drawn, 1));
        set(&mut rig, Setting::OnExpiry(OnExpiry::Dead), 60);
        let mut again = recovered(&rig, &checkpoint);
        for rig in [&mut rig, &mut again] {
            rig.catch_up(now(70));
            let queues = rig.call(|core, log| core.queues(None, 9, now(70), log));
            let names: Vec<QueueName> = queues.into_iter().map(|stats| stats.name).collect();
            assert_eq!(names, [queue("q")], "cold: {is_cold}");
        }
    }
}

#[test]
fn what_has_expired_elsewhere_goes_in_slices_before_a_change_of_expiry() {
    let mut rig = Rig::configured(CoreConfig { lapsed_a_call: 3, ..CoreConfig::new(Limits::default(), 7) });
    rig.put(put_to("q").after_ms(10_000), now(0)).unwrap();
    for name in ["a", "b"] {
        for _ in 0..10 {
            rig.put(Put { expires: Some(at(50)), ..put_to(name) }, now(0)).unwrap();
        }
    }
    let (mut slices, mut most) = (0, 0);
    loop {
        let before = rig.log.0.len();
        let has_more = rig.call(|core, log| core.lapse_some_everywhere(now(60), log));
        most = most.max(rig.log.0.len() - before);
        slices += 1;
        if !has_more {
            break;
        }
        assert!(slices < 20, "it comes to an end");
        rig.call(|core, log| core.serve(now(60), log));
    }
    assert!(slices == 7 && most <= 4, "three of twenty in each: {slices} slices, {most} records");
    let before = rig.log.0.len();
    set(&mut rig, Setting::OnExpiry(OnExpiry::Drop), 60);
    assert!(rig.log.0.len() - before <= 2, "nothing is left for the call itself");
}

#[test]
fn a_default_that_keeps_fewer_than_before_is_heeded_after_an_opening() {
    let mut rig = with_slices_of(3);
    let ids = dead(&mut rig, 8, 0);
    rig.config.limits.defaults.dead_max = Some(2);
    let mut again = rig.reopened(now(1_000));
    while again.call(|core, log| core.retain_some(now(1_000), log)) {}
    assert_eq!(kept(&again), 2);
    assert!(is_gone(&mut again, ids[5], 1_000) && !is_gone(&mut again, ids[6], 1_000));
}

#[test]
fn what_time_has_removed_is_not_located_though_nobody_touches_its_queue() {
    let mut rig = with_slices_of(1);
    let buried = rig.put(put_to("q"), now(0)).unwrap().number;
    let taken = rig.take(Take::from(queue("q")), now(0)).unwrap().remove(0);
    rig.settle(&taken.receipt, Action::Bury { reason: None, priority: None }, now(0)).unwrap();
    set(&mut rig, Setting::OnExpiry(OnExpiry::Drop), 0);
    set(&mut rig, Setting::DeadTtlMs(100), 0);
    let expires = rig.put(Put { expires: Some(at(50)), ..put_to("q") }, now(0)).unwrap().number;
    let mut located = |number, at_ms| {
        let found = rig.call(|core, log| core.locate(vec![number], now(at_ms), log)).remove(0);
        found.unwrap().is_some()
    };
    assert!(located(expires, 49) && !located(expires, 50));
    assert!(located(buried, 99) && !located(buried, 100));
}

/// Crash story: 1. Dead messages of several queues are in files, and all queues get a retention. 2. Reaching
/// the oldest of a queue takes several reads, and after each of them another queue has its turn. 3. What was
/// read is kept for one queue: each starts again, and none finishes.
#[test]
fn the_dead_of_several_queues_go_however_long_it_takes_to_read_those_of_one() {
    let names = ["a", "b", "c", "d", "e"];
    let mut rig = with_slices_of(3);
    for name in names {
        for _ in 0..5 {
            rig.put(put_to(name), now(0)).unwrap();
            let taken = rig.take(Take::from(queue(name)), now(0)).unwrap().remove(0);
            rig.settle(&taken.receipt, Action::Bury { reason: None, priority: None }, now(0)).unwrap();
        }
    }
    snapshot(&mut rig);
    evict(&mut rig, 0);
    assert_eq!(rig.core.cold_len(), 25);
    rig.log.1.as_mut().unwrap().pieces = 4;
    for name in names {
        let change = vec![SettingChange::Set(Setting::DeadTtlMs(1_000))];
        rig.call(|core, log| core.configure(&queue(name), change, now(100), log)).unwrap();
    }
    let mut calls = 0;
    while rig.call(|core, log| core.retain_some(now(2_000), log)) {
        calls += 1;
        assert!(calls < 500, "{} are left", rig.core.cold_len());
    }
    assert!(rig.core.is_empty());
}

/// Crash story: 1. Messages expire in queues that drop them, and no call touches these queues any more. 2.
/// They count towards the limit of queues, and their messages stay in memory: permanently.
#[test]
fn what_expires_goes_though_nobody_comes_to_the_queue_that_drops_it() {
    let defaults = dwell_model::Settings { on_expiry: OnExpiry::Drop, ..Default::default() };
    let limits = Limits { defaults, queues: 2, ..Limits::default() };
    let mut rig = Rig::configured(CoreConfig { bulk_per_call: 2, ..CoreConfig::new(limits, 7) });
    for (name, expires) in [("a", 50), ("a", 50), ("a", 50), ("b", 60)] {
        rig.put(Put { expires: Some(at(expires)), ..put_to(name) }, now(0)).unwrap();
    }
    assert_eq!(rig.core.next_retention(), Some(at(50)));
    let refused = rig.put(put_to("c"), now(50)).unwrap_err();
    assert_eq!((refused.code(), rig.core.len()), ("too_many_queues", 2), "a call lets two of them go");
    while rig.call(|core, log| core.retain_some(now(60), log)) {}
    assert_eq!((rig.core.others_len().1, rig.core.next_retention()), (0, None));
    assert!(rig.put(put_to("c"), now(60)).is_ok());
    assert_eq!(gone_records(&rig), 4);
}

#[test]
fn what_died_while_it_was_cold_stays_dead_though_it_is_resident_when_its_queue_comes_to_drop() {
    let mut rig = with_slices_of(100);
    let id = rig.put(Put { expires: Some(at(50)), ..put_to("q") }.after_ms(10), now(0)).unwrap().id;
    let checkpoint = snapshot(&mut rig);
    evict(&mut rig, 0);
    rig.catch_up(now(60));
    let dead = rig.call(|core, log| core.list(&queue("q"), StateKind::Dead, None, 9, now(60), log)).unwrap();
    assert_eq!((dead.messages.len(), rig.core.cold_len()), (1, 0));
    set(&mut rig, Setting::OnExpiry(OnExpiry::Drop), 70);
    let mut again = recovered(&rig, &checkpoint);
    for rig in [&mut rig, &mut again] {
        rig.catch_up(now(80));
        assert!(!is_gone(rig, id, 80));
        assert_eq!(kept(rig), 1);
    }
}

#[test]
fn a_lease_of_a_process_that_is_gone_ends_though_its_message_has_expired_and_is_dropped() {
    // It would continue, or it ran out while the store was closed.
    for reopened_at in [1_500, 60_000] {
        let mut rig = Rig::new();
        set(&mut rig, Setting::OnExpiry(OnExpiry::Drop), 0);
        let id = rig.put(Put { expires: Some(at(1_000)), ..put_to("q") }, now(0)).unwrap().id;
        let take = Take::from(queue("q")).lease_ms(30_000).session();
        assert_eq!(rig.take(take, now(0)).unwrap().len(), 1);
        let mut rig = rig.reopened(now(reopened_at));
        assert!(is_gone(&mut rig, id, reopened_at));
        let counted = rig.core.deaths().remove(0);
        assert_eq!((counted.deaths.expiry, counted.discarded.on_expiry), (0, 1));
    }
}

/// Story: 1. Two queues have cold dead messages past their retention, and finding the next one takes several
/// calls. 2. Each call reads for one queue, and then for the other: what was read for the first is dropped.
/// 3. The shard never becomes idle.
#[test]
fn two_queues_whose_dead_are_to_be_read_do_not_keep_each_other_from_their_ends() {
    for (pieces, slice) in [(1, 1), (4, 1), (4, 3)] {
        let mut rig = with_slices_of(slice);
        for name in ["q", "r"] {
            for _ in 0..6 {
                let put = Put { max_attempts: Some(AttemptLimit::At(1.try_into().unwrap())), ..put_to(name) };
                rig.put(put, now(0)).unwrap();
                let taken = rig.take(Take::from(queue(name)), now(0)).unwrap().remove(0);
                rig.settle(&taken.receipt, Action::Bury { reason: None, priority: None }, now(0)).unwrap();
            }
        }
        snapshot(&mut rig);
        evict(&mut rig, 0);
        assert_eq!(rig.core.cold_len(), 12);
        rig.log.1.as_mut().unwrap().pieces = pieces;
        for name in ["q", "r"] {
            let changes = vec![SettingChange::Set(Setting::DeadTtlMs(1_000))];
            rig.call(|core, log| core.configure(&queue(name), changes, now(10), log)).unwrap();
        }
        let mut calls = 0;
        while rig.call(|core, log| core.retain_some(now(2_000), log)) {
            calls += 1;
            assert!(calls < 500, "{pieces} {slice}: {} cold messages are left", rig.core.cold_len());
        }
        assert_eq!((rig.core.cold_len(), rig.core.queues.len()), (0, 2));
        assert!(rig.core.queues.all().all(|queue| rig.core.queues.get(queue).dead() == 0));
    }
}

/// Crash story: 1. A block of a queue's dead messages cannot be read, and is passed over. 2. At each end of the others' time all are read
/// again, from the first on.
#[test]
fn what_was_passed_over_is_tried_again_after_ten_minutes_and_nothing_is_begun_anew_before() {
    let mut rig = with_slices_of(10);
    let ids = dead(&mut rig, 20, 0);
    snapshot(&mut rig);
    evict(&mut rig, 0);
    rig.log.1.as_mut().unwrap().unread.insert(ids[3]);
    set(&mut rig, Setting::DeadTtlMs(1_000), 400);
    let retain = |rig: &mut Rig, at_ms| {
        let mut calls = 0;
        while rig.call(|core, log| core.retain_some(now(at_ms), log)) {
            calls += 1;
            assert!(calls < 200, "{at_ms}: it does not come to an end, {} are left", kept(rig));
        }
    };
    for at_ms in (1_000..1_200).step_by(10) {
        retain(&mut rig, at_ms);
    }
    let begun = |rig: &Rig| rig.log.1.as_ref().unwrap().begun;
    assert_eq!((kept(&rig), begun(&rig)), (1, 1), "one reading sees to all that can be read");
    // One dies later: it is behind all that was read.
    let later = dead(&mut rig, 1, 2_000);
    retain(&mut rig, 3_000);
    assert!(is_gone(&mut rig, later[0], 3_000));
    assert_eq!((kept(&rig), begun(&rig)), (1, 1));
    rig.log.1.as_mut().unwrap().unread.clear();
    retain(&mut rig, 600_000);
    assert_eq!((kept(&rig), begun(&rig)), (1, 1), "it is not tried before");
    assert!(rig.core.next_retention().is_some_and(|next| next <= at(602_000)));
    retain(&mut rig, 602_000);
    assert_eq!((kept(&rig), begun(&rig)), (0, 2));
}

/// Crash story: 1. The oldest dead message of a queue cannot be read, and is passed over. 2. More are dead than the queue keeps. 3. The
/// next oldest goes in its place, and is lost.
#[test]
fn nothing_is_discarded_in_place_of_what_was_passed_over() {
    let mut rig = with_slices_of(10);
    let ids = dead(&mut rig, 3, 0);
    snapshot(&mut rig);
    evict(&mut rig, 0);
    rig.log.1.as_mut().unwrap().unread.insert(ids[0]);
    set(&mut rig, Setting::DeadMax(2), 400);
    let retain = |rig: &mut Rig, at_ms| {
        let mut calls = 0;
        while rig.call(|core, log| core.retain_some(now(at_ms), log)) {
            calls += 1;
            assert!(calls < 200, "{at_ms}: it does not come to an end, {} are left", kept(rig));
        }
    };
    retain(&mut rig, 500);
    assert_eq!(kept(&rig), 3);
    // Of those that can be read no more are kept than may be.
    let later = dead(&mut rig, 1, 1_000);
    retain(&mut rig, 1_000);
    assert!(is_gone(&mut rig, ids[1], 1_000) && !is_gone(&mut rig, ids[2], 1_000));
    assert_eq!(kept(&rig), 3);
    rig.log.1.as_mut().unwrap().unread.clear();
    retain(&mut rig, 602_000);
    assert!(is_gone(&mut rig, ids[0], 602_000) && !is_gone(&mut rig, later[0], 602_000));
    assert_eq!(kept(&rig), 2);
}

/// All that retention has to do at this reading of the wall clock.
fn look(rig: &mut Rig, wall: i64) {
    let now = Now { wall: at(wall), mono_ms: 10_000_000 };
    let mut slices = 0;
    while rig.call(|core, log| core.retain_some(now, log)) {
        slices += 1;
        assert!(slices < 200, "{wall}: it does not come to an end, {} are left", kept(rig));
    }
}

/// A cold message that has expired at 50, which no call has noticed by 5,000,000; then the clock steps back to 20.
/// With the same after a restart.
fn expired_by_a_step_back(setting: Setting) -> [Rig; 2] {
    let mut rig = with_slices_of(10);
    set(&mut rig, setting, 0);
    rig.put(Put { expires: Some(at(50)), ..put_to("q") }.after_ms(10), now(0)).unwrap();
    let checkpoint = snapshot(&mut rig);
    evict(&mut rig, 0);
    look(&mut rig, 5_000_000);
    look(&mut rig, 20);
    let again = recovered(&rig, &checkpoint);
    [rig, again]
}

/// Crash story: 1. A cold message has expired, and no call has noticed. 2. The clock steps back; the message dies by
/// that. 3. The alarm by which it was to be discarded was of the time before the step: it counted as dead until the
/// clock had come there again.
#[test]
fn what_dies_by_a_step_back_is_discarded_by_the_clock_after_it() {
    for mut rig in expired_by_a_step_back(Setting::DeadMax(0)) {
        look(&mut rig, 21);
        assert_eq!(kept(&rig), 0);
    }
    for mut rig in expired_by_a_step_back(Setting::DeadTtlMs(100_000)) {
        look(&mut rig, 99_000);
        assert_eq!(kept(&rig), 1);
        // Counts show it within a minute.
        for at_ms in (100_050..=160_050).step_by(10_000) {
            look(&mut rig, at_ms);
        }
        assert_eq!(kept(&rig), 0);
    }
}

#[test]
fn what_was_passed_over_is_tried_again_after_ten_minutes_though_the_clock_steps_back() {
    let mut rig = with_slices_of(10);
    let ids = dead(&mut rig, 3, 0);
    snapshot(&mut rig);
    evict(&mut rig, 0);
    rig.log.1.as_mut().unwrap().unread.insert(ids[0]);
    set(&mut rig, Setting::DeadTtlMs(1_000), 100);
    look(&mut rig, 5_000_000);
    rig.log.1.as_mut().unwrap().unread.clear();
    look(&mut rig, 10_000);
    assert_eq!(kept(&rig), 1, "it is not tried before");
    look(&mut rig, 610_000);
    assert_eq!(kept(&rig), 0);
}

/// The message was to die by a step back of the clock, and its expiry could not be read then.
#[test]
fn what_died_unread_is_discarded_as_it_is_drawn() {
    let mut rig = with_slices_of(10);
    set(&mut rig, Setting::DeadMax(0), 0);
    rig.put(Put { expires: Some(at(50)), ..put_to("q") }.after_ms(10), now(0)).unwrap();
    let checkpoint = snapshot(&mut rig);
    evict(&mut rig, 0);
    rig.log.1.as_mut().unwrap().make_all_unreadable();
    look(&mut rig, 60);
    look(&mut rig, 20);
    let before = Now { wall: at(21), mono_ms: 10_000_000 };
    for state in [StateKind::Ready, StateKind::Dead] {
        let page = rig.call(|core, log| core.list(&queue("q"), state, None, 9, before, log));
        assert_eq!(page.map(|page| page.messages.len()).unwrap_or(0), 0, "{state}");
        assert_eq!((kept(&rig), rig.core.cold_len()), (0, 0));
    }
    let counted = rig.core.deaths().remove(0);
    assert_eq!((counted.deaths.expiry, counted.discarded.dead_max), (1, 1));
    let again = recovered(&rig, &checkpoint);
    assert_eq!((kept(&again), again.core.cold_len()), (0, 0));
}

/// A message with this key, taken and buried then.
fn buried_with_key(rig: &mut Rig, key: &str, at_ms: u64) -> MessageId {
    let id = rig.put(put_to("q").key(key.parse().unwrap()), now(at_ms)).unwrap().id;
    bury_next(rig, at_ms);
    id
}

fn bury_next(rig: &mut Rig, at_ms: u64) {
    let taken = rig.take(Take::from(queue("q")), now(at_ms)).unwrap().remove(0);
    rig.settle(&taken.receipt, Action::Bury { reason: None, priority: None }, now(at_ms)).unwrap();
}

/// Crash story: 1. A get looks for the youngest of the dead that had a key, a few a slice, and passes those that died before the one in
/// memory. 2. That one goes. 3. The get answers with an older one than is there, since the youngest was passed.
#[test]
fn a_search_by_key_passes_nothing_for_a_message_that_goes_meanwhile() {
    for goes in [false, true] {
        let mut rig = with_slices_of(10);
        let first = buried_with_key(&mut rig, "k", 10);
        buried_with_key(&mut rig, "k", 20);
        // The first one dies again, as the younger of the two.
        rig.revive(&queue("q"), Selection::Ids(vec![first]), When::Now, now(30)).unwrap();
        bury_next(&mut rig, 100);
        snapshot(&mut rig);
        evict(&mut rig, 0);
        let last = buried_with_key(&mut rig, "k", 120);
        let targets = vec![Target::Key("k".parse().unwrap())];
        let mut getting = rig.call(|core, log| core.begin_get(&queue("q"), targets, true, now(130), log));
        assert!(matches!(getting, Getting::Unfinished(_)));
        if goes {
            rig.discard(&queue("q"), Selection::Ids(vec![last]), now(140)).unwrap();
        }
        let mut calls = 0;
        let mut answers = loop {
            match getting {
                Getting::Done(answers) => break answers,
                Getting::Unfinished(get) => {
                    getting = rig.call(|core, log| core.go_on_getting(get, now(150), log));
                }
            }
            calls += 1;
            assert!(calls < 10, "it does not come to an end");
        };
        assert_eq!(answers.remove(0).unwrap().id, if goes { first } else { last });
    }
}

/// Crash story: 1. One get names thousands of keys, each of which a few dead messages had. 2. Each key is looked up though
/// the turn's share is used up. 3. Everybody waits for this turn.
#[test]
fn a_get_of_many_keys_looks_at_no_more_than_a_slice() {
    let mut rig = with_slices_of(10);
    let key = |n: u64| Target::Key(format!("k{n}").parse().unwrap());
    let dead = (0..200).map(|n| buried_with_key(&mut rig, &format!("k{n}"), n)).collect::<Vec<_>>();
    snapshot(&mut rig);
    evict(&mut rig, 0);
    let looked_at = |rig: &Rig| rig.log.1.as_ref().unwrap().looked_at;
    let (mut before, mut turns) = (looked_at(&rig), 0);
    let targets = (0..200).map(key).collect();
    let mut getting = rig.core.begin_get(&queue("q"), targets, true, now(300), &mut rig.log);
    let answers = loop {
        assert!(looked_at(&rig) - before <= 64 + 4, "{} in turn {turns}", looked_at(&rig) - before);
        (before, turns) = (looked_at(&rig), turns + 1);
        match getting {
            Getting::Done(answers) => break answers,
            Getting::Unfinished(get) => {
                rig.core.serve(now(300), &mut rig.log);
                getting = rig.core.go_on_getting(get, now(300), &mut rig.log);
            }
        }
    };
    assert!(answers.into_iter().map(|answer| answer.unwrap().id).eq(dead));
    assert!(turns > 1, "{turns}");
}

/// Crash story: 1. Many gets look for the youngest of many dead that had a key. 2. Each of them reads a few messages in each turn, and
/// looks for a live one in all runs, though the turn's share is used up. 3. Everybody waits for these turns.
#[test]
fn gets_that_go_on_look_at_no_more_than_a_slice_together() {
    let mut rig = with_slices_of(10);
    let dead = (0..150).map(|n| buried_with_key(&mut rig, "k", n)).collect::<Vec<_>>();
    snapshot(&mut rig);
    evict(&mut rig, 0);
    let begin = |rig: &mut Rig| {
        let targets = vec![Target::Key("k".parse().unwrap())];
        rig.core.begin_get(&queue("q"), targets, true, now(200), &mut rig.log)
    };
    let mut getting: Vec<_> = (0..3).map(|_| begin(&mut rig)).collect();
    let mut found = Vec::new();
    for turn in 0.. {
        assert!(turn < 20, "they do not come to their ends");
        let before = rig.log.1.as_ref().unwrap().looked_at;
        // More often than the slice has messages.
        for _ in 0..100 {
            for one in std::mem::take(&mut getting) {
                match one {
                    Getting::Unfinished(get) => {
                        getting.push(rig.core.go_on_getting(get, now(200), &mut rig.log));
                    }
                    Getting::Done(mut answers) => found.push(answers.remove(0).unwrap().id),
                }
            }
        }
        let looked_at = rig.log.1.as_ref().unwrap().looked_at - before;
        assert!(looked_at <= 64, "{looked_at} in turn {turn}");
        if getting.is_empty() {
            break;
        }
        rig.core.serve(now(200), &mut rig.log);
    }
    assert_eq!(found, [dead[149]; 3]);
    assert!(rig.log.1.as_ref().unwrap().looked_for_live <= 3 + 1, "in the first slice of each");
}

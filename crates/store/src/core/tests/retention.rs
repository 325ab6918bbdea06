//! How long and how many messages stay dead: in slices, cold ones too, and never to be found past their time.

use dwell_model::{AttemptLimit, MessageId, OnExpiry, Setting, SettingChange, SettingName, StateKind};

use super::cold::{capture, evict, recovered};
use super::*;
use crate::{Error, Target};

/// A rig that discards so many at a time.
fn with_slices_of(swept_a_call: usize) -> Rig {
    Rig::configured(CoreConfig { swept_a_call, ..CoreConfig::new(Limits::default(), 7) })
}

fn set(rig: &mut Rig, setting: Setting, at_ms: u64) {
    let changes = vec![SettingChange::Set(setting)];
    rig.call(|core, log| core.configure(&queue("q"), changes, now(at_ms), log)).unwrap();
}

/// So many messages die, one each ten milliseconds from then on.
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

/// As it is kept, without a call.
fn kept(rig: &Rig) -> u64 {
    rig.core.queues.find(&queue("q")).map_or(0, |queue| rig.core.queues.get(queue).dead())
}

fn is_gone(rig: &mut Rig, id: MessageId, at_ms: u64) -> bool {
    let target = vec![Target::Id(id)];
    let got = rig.call(|core, log| core.get(&queue("q"), target, false, now(at_ms), log)).remove(0);
    matches!(got, Err(Error::MessageNotFound { .. } | Error::UnknownQueue { .. }))
}

fn gone_records(rig: &Rig) -> usize {
    let is_gone = |told: &&Told| matches!(told, Told::Record(Record::Gone { .. }, Durability::Written));
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
    // Seven are past their time, and each call discards one.
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
fn a_sweep_means_none_past_its_time_and_comes_to_its_end() {
    let mut rig = with_slices_of(2);
    let ids = dead(&mut rig, 9, 0);
    set(&mut rig, Setting::DeadTtlMs(1_000), 100);
    // Six are past their time; two go as the call begins, two by each slice.
    let swept = rig.revive(&queue("q"), Selection::Oldest(2), When::AfterMs(9_000), now(1_055)).unwrap();
    assert_eq!(swept, Swept { done: 2, ..Swept::default() });
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
        let checkpoint = capture(&mut rig);
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
        // One more dies while others are cold: the oldest of them goes.
        let more = dead(&mut rig, 1, 500);
        while rig.call(|core, log| core.retain_some(now(510), log)) {}
        assert_eq!(kept(&rig), 15, "{pieces}");
        assert!(is_gone(&mut rig, ids[5], 510) && !is_gone(&mut rig, ids[6], 510));
        // By their time.
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
    let checkpoint = capture(&mut rig);
    evict(&mut rig, 0);
    rig.catch_up(now(55));
    assert_eq!((rig.core.cold_len(), kept(&rig)), (2, 0));
    assert!(is_gone(&mut rig, ids[0], 55));
    // What dies before the queue changes its mind is gone as it was then, and what dies later is dead.
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

#[test]
fn what_died_while_it_was_cold_stays_dead_though_it_is_resident_when_its_queue_comes_to_drop() {
    let mut rig = with_slices_of(100);
    let id = rig.put(Put { expires: Some(at(50)), ..put_to("q") }.after_ms(10), now(0)).unwrap().id;
    let checkpoint = capture(&mut rig);
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
    // It would run on, or it ran out while nobody was there.
    for reopened_at in [1_500, 60_000] {
        let mut rig = Rig::new();
        set(&mut rig, Setting::OnExpiry(OnExpiry::Drop), 0);
        let id = rig.put(Put { expires: Some(at(1_000)), ..put_to("q") }, now(0)).unwrap().id;
        let take = Take::from(queue("q")).lease_ms(30_000).bound();
        assert_eq!(rig.take(take, now(0)).unwrap().len(), 1);
        let mut rig = rig.reopened(now(reopened_at));
        assert!(is_gone(&mut rig, id, reopened_at));
        let counted = rig.core.deaths().remove(0);
        assert_eq!((counted.deaths.expiry, counted.discarded.on_expiry), (0, 1));
    }
}

/// Story: 1. two queues have dead messages that are cold and past their time, and to find the next one takes several calls. 2. Each call
/// reads for one queue, and then for the other: what was read for the first is gone. 3. The shard never rests.
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
        capture(&mut rig);
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

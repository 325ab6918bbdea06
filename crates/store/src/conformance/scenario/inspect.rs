//! Get, locate, list, stats, forecasts, queues.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use dwell_model::{MessageId, Number, Pause, QueueName, Setting, SettingChange, State, StateKind, Timestamp};

use super::super::stage::*;
use crate::{Action, Cancelled, Error, Forecast, LeaseTerms, Put, Selection, Take, Target, When};

pub fn get_answers_as_of_now(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let id = stage.put(keyed("k", "m").after_ms(100)).id;
    assert_eq!(stage.state(id), StateKind::Scheduled);
    stage.advance(100);
    assert_eq!(stage.state(id), StateKind::Ready, "though nobody took");
    let taken = stage.taken_for(1_000);
    let State::Leased(lease) = stage.get(id).standing.state else { panic!("it is leased") };
    assert_eq!(lease.deadline, taken.lease_until);
    assert!(!stage.shows_leases() || lease.token == taken.receipt.token);
    stage.advance(1_000);
    assert_eq!(stage.try_get(by_key("k")).unwrap().standing.state, State::Ready);
}

pub fn get_by_key_finds_the_live_message_only(factory: &Factory) {
    let stage = Stage::open(factory);
    let id = stage.put(keyed("k", "m")).id;
    assert_eq!(stage.try_get(by_key("k")).unwrap().id, id);
    let receipt = stage.taken().receipt;
    assert_eq!(stage.try_get(by_key("k")).unwrap().id, id, "leased is live");
    stage.settle(&receipt, bury("x")).unwrap();
    assert_eq!(stage.try_get(by_key("k")), Err(Error::MessageNotFound { queue: q() }));
    assert_eq!(stage.try_get(Target::Id(id)).unwrap().id, id);
}

pub fn get_and_settle_see_an_expiry_at_its_instant(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let id = stage.put(Put { expires: Some(stage.at(500)), ..keyed("k", "m").after_ms(100) }).id;
    let scheduled = stage.put(Put { expires: Some(stage.at(500)), ..message("n").after_ms(499) }).id;
    stage.advance(499);
    assert_eq!(stage.state(id), StateKind::Ready);
    let expires = stage.at(1);
    stage.advance(400_000);
    for id in [id, scheduled] {
        let State::Dead(death) = stage.get(id).standing.state else { panic!("it is dead") };
        assert_eq!((death.reason.as_str(), death.at), ("expired", expires));
        assert_eq!(stage.cancel(Target::Id(id)), crate::Cancelled::Dead(id));
    }
    assert_eq!(code(stage.try_get(by_key("k"))), "message_not_found");
    assert_eq!(stage.store().revive(q(), Selection::All, When::Now).unwrap().done, 2);
    assert_eq!(stage.get(id).standing.expires, None, "an expiry that has passed would kill it again");
    assert_eq!(stage.drain().len(), 2);
}

pub fn peek_shows_what_goes_out_next_and_what_died_first(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let peek = |stage: &Stage, state| stage.store().peek(q(), state).map(|first| first.map(|first| first.id));
    assert_eq!(code(peek(&stage, StateKind::Ready)), "unknown_queue");
    let put =
        |stage: &Stage, priority, after_ms| stage.put(Put { priority, ..message("m").after_ms(after_ms) }).id;
    let later: Vec<_> = (0..20).map(|_| put(&stage, 9, 0)).collect();
    let urgent = put(&stage, 1, 0);
    let (soon, sooner) = (put(&stage, 1, 2_000), put(&stage, 5, 1_000));
    for _ in 0..2 {
        assert_eq!(peek(&stage, StateKind::Ready), Ok(Some(urgent)), "it is looked at and not taken");
    }
    assert_eq!(peek(&stage, StateKind::Scheduled), Ok(Some(sooner)));
    assert_eq!((peek(&stage, StateKind::Leased), peek(&stage, StateKind::Dead)), (Ok(None), Ok(None)));
    assert_eq!(stage.taken().message.id, urgent);
    assert_eq!(peek(&stage, StateKind::Ready), Ok(Some(later[0])));
    assert_eq!(peek(&stage, StateKind::Leased), Ok(Some(urgent)));
    // The last of all by due and id is the first to die.
    for id in [later[19], later[0]] {
        let taken = stage.store().take_id(q(), id, LeaseTerms::default()).unwrap();
        stage.settle(&taken.receipt, bury("x")).unwrap();
        stage.advance(1);
        assert_eq!(peek(&stage, StateKind::Dead), Ok(Some(later[19])));
    }
    stage.advance(2_000);
    assert_eq!(peek(&stage, StateKind::Ready), Ok(Some(soon)));
    stage.store().configure(q(), vec![SettingChange::Set(Setting::Pause(Pause::Indefinite))]).unwrap();
    assert_eq!(peek(&stage, StateKind::Ready), Ok(Some(soon)), "a pause hides nothing");
}

fn locate(stage: &Stage, number: Number) -> Option<(QueueName, MessageId)> {
    stage.store().locate(vec![number]).pop().expect("one answer an item").unwrap()
}

pub fn locate_finds_queue_and_id_of_a_number(factory: &Factory) {
    let stage = Stage::open(factory);
    let names = ["a", "b", "a", "c"].map(queue);
    let puts = names.clone().map(|name| stage.put(Put::new(name, "m").after_ms(7)));
    let mut numbers: Vec<_> = puts.iter().map(|put| put.number).collect();
    numbers.push(Number::MAX);
    let mut expected: Vec<_> =
        names.into_iter().zip(puts).map(|(name, put)| Ok(Some((name, put.id)))).collect();
    expected.push(Ok(None));
    assert_eq!(stage.store().locate(numbers), expected);
    assert_eq!(stage.store().locate(vec![]), []);
}

pub fn locate_finds_a_message_that_was_rescheduled_and_one_that_is_dead(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let put = stage.put(message("m").after_ms(7));
    stage.reschedule(Target::Id(put.id), When::AfterMs(400 * 86_400_000));
    assert_eq!(locate(&stage, put.number), Some((q(), put.id)));
    stage.reschedule(Target::Id(put.id), When::Now);
    let receipt = stage.taken().receipt;
    assert_eq!(locate(&stage, put.number), Some((q(), put.id)), "leased");
    stage.settle(&receipt, bury("x")).unwrap();
    stage.advance(1);
    assert_eq!(locate(&stage, put.number), Some((q(), put.id)), "dead");
}

pub fn locate_finds_nothing_once_the_message_is_gone(factory: &Factory) {
    let stage = Stage::open(factory);
    let acked = stage.put(message("m")).number;
    let receipt = stage.taken().receipt;
    stage.settle(&receipt, Action::Ack).unwrap();
    let replaced = stage.put(keyed("k", "old")).number;
    stage.put(replacing("k", "new"));
    let purged = stage.put(message("m")).number;
    stage.store().purge(q()).unwrap();
    let dead = stage.put(message("m")).number;
    stage.bury_head();
    stage.store().discard(q(), Selection::All).unwrap();
    assert_eq!(stage.store().locate(vec![acked, replaced, purged, dead]), vec![Ok(None); 4]);
}

pub fn locate_finds_a_message_after_a_restart(factory: &Factory) {
    let Some(mut stage) = Stage::durable(factory) else { return };
    let [gone, moved, held] = [0, 5_000, 0].map(|ms| stage.put(message("m").after_ms(ms)));
    stage.reschedule(Target::Id(moved.id), When::AfterMs(86_400_000));
    stage.cancel(Target::Id(gone.id));
    stage.taken_for(60_000);
    stage.restart();
    let found = stage.store().locate(vec![gone.number, moved.number, held.number]);
    assert_eq!(found, [Ok(None), Ok(Some((q(), moved.id))), Ok(Some((q(), held.id)))]);
}

pub fn list_pages_in_due_and_id_order_and_shows_each_message_once(factory: &Factory) {
    let stage = Stage::open(factory);
    let mut expected: Vec<_> = (0..23u64)
        .map(|n| stage.put(message("m").priority(n as u32 % 4).after_ms(1_000 + n * 7 % 5)))
        .map(|put| (put.due, put.id))
        .collect();
    expected.sort();
    stage.put(message("ready"));
    stage.put(Put::new(queue("other"), "m").after_ms(1_000));
    for max in [1, 4, 22, 23, 24, 1_000] {
        let mut seen = Vec::new();
        let mut after = None;
        loop {
            let page = stage.store().list(q(), StateKind::Scheduled, after, max).unwrap();
            assert!(page.messages.len() <= max);
            seen.extend(page.messages.iter().map(|message| (message.standing.due, message.id)));
            assert!(seen.len() <= expected.len(), "a message appears twice, or the walk never ends");
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        assert_eq!(seen, expected, "{max} a page");
    }
    let ready = stage.store().list(q(), StateKind::Ready, None, 9).unwrap();
    assert_eq!((ready.messages.len(), ready.next), (1, None));
    assert!(stage.store().list(q(), StateKind::Dead, None, 9).unwrap().messages.is_empty());
}

pub fn a_list_continues_from_a_cursor_whose_message_is_gone(factory: &Factory) {
    let stage = Stage::open(factory);
    let ids = [1, 2, 3, 4].map(|ms| stage.put(message("m").after_ms(ms)).id);
    let page = stage.store().list(q(), StateKind::Scheduled, None, 2).unwrap();
    assert_eq!(page.messages.iter().map(|message| message.id).collect::<Vec<_>>(), ids[..2]);
    stage.cancel(Target::Id(ids[1]));
    stage.cancel(Target::Id(ids[2]));
    let page = stage.store().list(q(), StateKind::Scheduled, page.next, 2).unwrap();
    assert_eq!(page.messages.iter().map(|message| message.id).collect::<Vec<_>>(), ids[3..]);
}

pub fn get_list_and_stats_of_an_unknown_queue_say_so(factory: &Factory) {
    let stage = Stage::open(factory);
    let unknown = Error::UnknownQueue { queue: q() };
    assert_eq!(stage.try_get(by_key("k")), Err(unknown.clone()));
    assert_eq!(stage.store().list(q(), StateKind::Ready, None, 9), Err(unknown.clone()));
    assert_eq!(stage.store().stats(q()), Err(unknown.clone()));
    let id = stage.put(message("m")).id;
    assert_eq!(stage.stats().counts.ready, 1);
    stage.cancel(Target::Id(id));
    assert_eq!(stage.try_get(Target::Id(id)), Err(unknown.clone()), "known no more");
    stage.set(Setting::LeaseMs(9_000));
    assert_eq!(stage.try_get(Target::Id(id)), Err(Error::MessageNotFound { queue: q() }));
}

pub fn counts_are_exact_as_of_now(factory: &Factory) {
    let mut stage = Stage::open(factory);
    for ms in [0, 0, 0, 0, 100, 100, 200] {
        stage.put(message("m").after_ms(ms));
    }
    let counts = |stage: &Stage| {
        let counts = stage.stats().counts;
        (counts.scheduled, counts.ready, counts.leased, counts.dead)
    };
    assert_eq!(counts(&stage), (3, 4, 0, 0));
    let held = stage.take(Take::from(q()).max(3).lease_ms(150));
    assert_eq!(counts(&stage), (3, 1, 3, 0));
    stage.settle(&held[0].receipt, bury("x")).unwrap();
    stage.settle(&held[1].receipt, Action::Ack).unwrap();
    assert_eq!(counts(&stage), (3, 1, 1, 1));
    stage.advance(100);
    assert_eq!(counts(&stage), (1, 3, 1, 1), "two became due");
    stage.advance(50);
    assert_eq!(counts(&stage), (1, 4, 0, 1), "a lease ran out");
    stage.put(Put { expires: Some(stage.at(10)), ..message("m") });
    assert_eq!(counts(&stage), (1, 5, 0, 1));
    stage.advance(if stage.shows_expiry_at_once() { 10 } else { 60_010 });
    let (scheduled, ready, leased, dead) = counts(&stage);
    assert_eq!((scheduled + ready, leased, dead), (5, 0, 2), "one expired");
    assert_eq!(stage.store().queues(None, 9).unwrap(), [stage.stats()]);
}

pub fn urgent_ready_messages_are_counted_by_themselves(factory: &Factory) {
    let mut stage = Stage::open(factory);
    for priority in [0, 1_023, 1_024, u32::MAX] {
        stage.put(message("m").priority(priority));
        stage.put(message("m").priority(priority).after_ms(100));
    }
    let urgent = |stage: &Stage| stage.stats().counts.ready_urgent;
    assert_eq!(urgent(&stage), 2);
    stage.advance(100);
    assert_eq!(urgent(&stage), 4);
    let taken = stage.taken();
    assert_eq!(urgent(&stage), 3);
    let release = Action::Release { after_ms: None, priority: Some(5_000) };
    stage.settle(&taken.receipt, release).unwrap();
    assert_eq!((urgent(&stage), stage.stats().counts.ready), (3, 8));
    stage.store().purge(q()).unwrap();
    stage.put(message("m").after_ms(5));
    assert_eq!(urgent(&stage), 0);
}

/// Compares a forecast, at the given offsets from now in ms, with the expected counts.
#[track_caller]
fn expect_due(stage: &Stage, queues: Option<Vec<QueueName>>, known: &[(i64, u64)], scheduled: u64) {
    let edges = known.iter().map(|(ms, _)| stage.at(*ms)).collect();
    let forecast = stage.store().forecast(queues, edges).unwrap();
    assert_eq!(forecast.scheduled, scheduled);
    assert_eq!(forecast.due_by.len(), known.len());
    for ((ms, due), said) in known.iter().zip(&forecast.due_by) {
        assert!(due.abs_diff(*said) <= forecast.within, "{due} are due in {ms} ms: {forecast:?}");
    }
    assert!(forecast.within <= scheduled, "{forecast:?}");
}

pub fn a_forecast_counts_what_is_due_by_each_instant(factory: &Factory) {
    let mut stage = Stage::open(factory);
    stage.put(message("ready"));
    for ms in [100, 100, 200, 3_600_000, 86_400_000_000] {
        stage.put(message("m").after_ms(ms));
    }
    // In lanes by priority, and beside them.
    for priority in 0..12 {
        stage.put(message("m").priority(priority).after_ms(150));
    }
    let known = [
        (-5, 0),
        (0, 0),
        (99, 0),
        (100, 2),
        (149, 2),
        (150, 14),
        (200, 15),
        (3_600_000, 16),
        (86_400_000_000, 17),
    ];
    expect_due(&stage, Some(vec![q()]), &known, 17);
    // In any order.
    expect_due(&stage, Some(vec![q()]), &[(200, 15), (100, 2), (200, 15)], 17);
    expect_due(&stage, Some(vec![q()]), &[], 17);
    stage.advance(150);
    expect_due(&stage, Some(vec![q()]), &[(0, 0), (49, 0), (50, 1), (86_400_000_000, 3)], 3);
    let latest = stage.store().forecast(Some(vec![q()]), vec![Timestamp::MIN, Timestamp::MAX]).unwrap();
    assert_eq!((latest.due_by[0], latest.scheduled), (0, 3));
}

pub fn a_forecast_follows_what_is_cancelled_rescheduled_purged_and_taken(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let [first, second, third] = [100, 200, 300].map(|ms| stage.put(message("m").after_ms(ms)).id);
    stage.cancel(Target::Id(first));
    expect_due(&stage, Some(vec![q()]), &[(100, 0), (200, 1), (300, 2)], 2);
    stage.reschedule(Target::Id(second), When::AfterMs(1_000));
    expect_due(&stage, Some(vec![q()]), &[(200, 0), (300, 1), (999, 1), (1_000, 2)], 2);
    stage.store().take_id(q(), third, LeaseTerms::of_ms(50)).unwrap();
    expect_due(&stage, Some(vec![q()]), &[(999, 0), (1_000, 1)], 1);
    stage.advance(50);
    expect_due(&stage, Some(vec![q()]), &[(949, 0), (950, 1)], 1);
    let taken = stage.taken();
    stage.settle(&taken.receipt, retry(500)).unwrap();
    expect_due(&stage, Some(vec![q()]), &[(499, 0), (500, 1), (950, 2)], 2);
    stage.store().purge(q()).unwrap();
    stage.put(message("m").after_ms(10));
    expect_due(&stage, Some(vec![q()]), &[(9, 0), (10, 1), (10_000, 1)], 1);
}

pub fn a_forecast_of_several_queues_or_of_all_is_their_sum(factory: &Factory) {
    let stage = Stage::open(factory);
    expect_due(&stage, None, &[(1_000, 0)], 0);
    for n in 1..=5 {
        for ms in 1..=n {
            stage.put(Put::new(queue(&format!("q{n}")), "m").after_ms(ms * 100));
        }
    }
    expect_due(&stage, None, &[(99, 0), (100, 5), (200, 9), (300, 12), (400, 14), (500, 15)], 15);
    expect_due(&stage, Some(vec![queue("q2"), queue("q5")]), &[(100, 2), (200, 4), (500, 7)], 7);
    expect_due(&stage, Some(vec![]), &[(500, 0)], 0);
    // More queues than any store counts at a time.
    let many = (0..300).map(|n| Put::new(queue(&format!("many{n}")), "m").after_ms(1_000));
    for put in stage.store().put(many.collect()) {
        put.unwrap();
    }
    expect_due(&stage, None, &[(100, 5), (999, 15), (1_000, 315)], 315);
}

pub fn a_forecast_of_an_unknown_queue_says_so(factory: &Factory) {
    let stage = Stage::open(factory);
    stage.put(message("m").after_ms(100));
    let forecast = |names: Vec<QueueName>| stage.store().forecast(Some(names), vec![stage.at(1_000)]);
    assert_eq!(code(forecast(vec![queue("other")])), "unknown_queue");
    assert_eq!(code(forecast(vec![q(), queue("other")])), "unknown_queue");
    assert_eq!(forecast(vec![q()]).unwrap().scheduled, 1);
}

pub fn a_forecast_of_too_many_instants_is_refused(factory: &Factory) {
    let stage = Stage::open(factory);
    stage.put(message("m").after_ms(100));
    let forecast = |len: usize| stage.store().forecast(Some(vec![q()]), vec![stage.at(1_000); len]);
    assert_eq!(code(forecast(Forecast::MAX_EDGES + 1)), "batch_too_large");
    assert_eq!(forecast(Forecast::MAX_EDGES).unwrap().due_by.len(), Forecast::MAX_EDGES);
}

/// Compares a forecast of a queue, and one of all queues if there are no others, with all of its scheduled
/// messages.
#[track_caller]
fn expect_forecast_as_listed(stage: &Stage, queue: &QueueName, is_only: bool) {
    let (mut dues, mut after) = (Vec::new(), None);
    loop {
        let page = stage.store().list(queue.clone(), StateKind::Scheduled, after, 50).unwrap();
        dues.extend(page.messages.iter().map(|message| message.standing.due));
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    let partitions = (0..80).map(|n| stage.at(n * 125 - 125));
    let edges: Vec<Timestamp> =
        dues.iter().step_by(4).copied().chain(partitions).chain([Timestamp::MIN, Timestamp::MAX]).collect();
    let of_one = stage.store().forecast(Some(vec![queue.clone()]), edges.clone()).unwrap();
    let of_all = is_only.then(|| stage.store().forecast(None, edges.clone()).unwrap());
    for forecast in [Some(of_one), of_all].into_iter().flatten() {
        assert_eq!(forecast.scheduled, dues.len() as u64);
        assert_eq!(stage.store().stats(queue.clone()).unwrap().counts.scheduled, forecast.scheduled);
        for (edge, said) in edges.iter().zip(&forecast.due_by) {
            let listed = dues.iter().filter(|due| *due <= edge).count() as u64;
            assert!(listed.abs_diff(*said) <= forecast.within, "{listed} are due by {edge}: {forecast:?}");
        }
        assert_eq!(forecast.due_by.last(), Some(&forecast.scheduled), "there is nothing later");
    }
}

pub fn a_forecast_agrees_with_a_full_listing_after_every_change(factory: &Factory) {
    for partitions in [1, 3] {
        let mut stage = Stage::open(factory);
        stage.set(Setting::Partitions(partitions));
        let put = |n: u32| message("m").priority(n % 3).after_ms(u64::from(n * 67 % 8_000));
        let ids: Vec<MessageId> =
            stage.store().put((0..120).map(put).collect()).into_iter().map(|put| put.unwrap().id).collect();
        let expect_as_listed = |stage: &Stage| expect_forecast_as_listed(stage, &q(), true);
        expect_as_listed(&stage);
        for (n, chunk) in (0..).zip(ids.chunks(12)) {
            let targets = || chunk.iter().map(|id| Target::Id(*id));
            match n % 5 {
                0 => drop(stage.store().cancel(q(), targets().step_by(2).collect())),
                1 => {
                    let after = |(target, ms)| (target, When::AfterMs(ms * 500));
                    drop(stage.store().reschedule(q(), targets().zip(1_u64..).map(after).collect()));
                }
                2 => {
                    for taken in stage.take(Take::from(q()).max(8).lease_ms(60_000)) {
                        stage.settle(&taken.receipt, retry(700)).unwrap();
                    }
                }
                3 => {
                    for id in chunk.iter().take(5) {
                        drop(stage.store().take_id(q(), *id, LeaseTerms::of_ms(60_000)));
                    }
                }
                _ => {
                    for taken in stage.take(Take::from(q()).max(8).lease_ms(60_000)) {
                        stage.settle(&taken.receipt, bury("set aside")).unwrap();
                    }
                    stage.store().revive(q(), Selection::All, When::AfterMs(3_000)).unwrap();
                }
            }
            expect_as_listed(&stage);
            stage.advance(400);
            expect_as_listed(&stage);
        }
        if stage.is_durable() {
            stage.restart();
            expect_as_listed(&stage);
        }
        stage.store().purge(q()).unwrap();
        stage.put(message("m").after_ms(50));
        expect_as_listed(&stage);
    }
}

pub fn a_forecast_is_of_one_moment_while_messages_are_cancelled_and_rescheduled(factory: &Factory) {
    const MESSAGES: u64 = 200;
    let stage = Stage::open(factory);
    let put = |n: u64| message("m").after_ms(1_000_000 + n * 1_000);
    let ids: Vec<MessageId> =
        stage.store().put((0..MESSAGES).map(put).collect()).into_iter().map(|put| put.unwrap().id).collect();
    // The number of cancels that have begun, and of those that were answered.
    let (begun, answered) = (AtomicU64::new(0), AtomicU64::new(0));
    let store = stage.store();
    let edges: Vec<Timestamp> =
        (0..40).map(|n| stage.at(1_000_000 + n * 10_000)).chain([Timestamp::MAX]).collect();
    thread::scope(|scope| {
        let changes = scope.spawn(|| {
            for (n, id) in (0_u64..).zip(&ids) {
                let target = Target::Id(*id);
                if n.is_multiple_of(4) {
                    begun.fetch_add(1, Ordering::SeqCst);
                    assert_eq!(store.cancel(q(), vec![target]), [Ok(Cancelled::Cancelled(*id))]);
                    answered.fetch_add(1, Ordering::SeqCst);
                } else {
                    let when = When::AfterMs(1_000_000 + n * 7_919 % 400_000);
                    store.reschedule(q(), vec![(target, when)]).pop().unwrap().unwrap();
                }
            }
        });
        let mut is_last = false;
        while !is_last {
            // Once more at the end.
            is_last = changes.is_finished();
            let most = MESSAGES - answered.load(Ordering::SeqCst);
            let forecast = stage.store().forecast(Some(vec![q()]), edges.clone()).unwrap();
            let least = MESSAGES - begun.load(Ordering::SeqCst);
            assert!((least..=most).contains(&forecast.scheduled), "{least} to {most}: {forecast:?}");
            assert!(forecast.due_by.is_sorted(), "{forecast:?}");
            assert_eq!(forecast.due_by.last(), Some(&forecast.scheduled));
        }
    });
    expect_forecast_as_listed(&stage, &q(), true);
}

pub fn stats_name_the_earliest_instant(factory: &Factory) {
    let mut stage = Stage::open(factory);
    stage.put(message("ready"));
    assert_eq!(stage.stats().next_due, None);
    let [first, second] = [100, 200].map(|ms| stage.put(message("m").after_ms(ms)));
    assert_eq!(stage.stats().next_due, Some(first.due));
    stage.cancel(Target::Id(first.id));
    assert_eq!(stage.stats().next_due, Some(second.due));
    stage.reschedule(Target::Id(second.id), When::AfterMs(50));
    assert_eq!(stage.stats().next_due, Some(stage.at(50)));
    stage.advance(50);
    assert_eq!(stage.stats().next_due, None);
}

pub fn a_queue_without_messages_waiters_and_settings_leaves_the_listing(factory: &Factory) {
    let stage = Stage::open(factory);
    let listed = || stage.store().queues(None, 100).unwrap().len();
    assert_eq!(listed(), 0);
    stage.put(message("m"));
    let receipt = stage.taken().receipt;
    assert_eq!(listed(), 1);
    stage.settle(&receipt, Action::Ack).unwrap();
    assert_eq!(listed(), 0);
    stage.put(message("m"));
    stage.bury_head();
    assert_eq!(listed(), 1, "the dead count");
    stage.store().discard(q(), Selection::All).unwrap();
    assert_eq!(listed(), 0);
    stage.set(Setting::LeaseMs(5));
    assert_eq!(listed(), 1, "settings of its own count");
    stage
        .store()
        .configure(q(), vec![dwell_model::SettingChange::Reset(dwell_model::SettingName::Lease)])
        .unwrap();
    assert_eq!(listed(), 0);
    stage.take_one();
    stage.cancel(by_key("k"));
    assert_eq!(listed(), 0, "asking makes no queue");
}

pub fn a_store_that_serves_is_ready(factory: &Factory) {
    let stage = Stage::open(factory);
    assert_eq!(stage.store().ready(), Ok(()), "there is no queue yet");
    stage.put(message("m"));
    assert_eq!(stage.store().ready(), Ok(()));
}

pub fn queues_page_by_name(factory: &Factory) {
    let stage = Stage::open(factory);
    let mut names: Vec<_> = (0..25).map(|n| queue(&format!("q{n}"))).collect();
    for name in &names {
        stage.put(Put::new(name.clone(), "m"));
    }
    names.sort();
    let mut seen: Vec<QueueName> = Vec::new();
    loop {
        let page = stage.store().queues(seen.last().cloned(), 7).unwrap();
        assert!(page.len() <= 7);
        if page.is_empty() {
            break;
        }
        for stats in page {
            assert_eq!((stats.counts.ready, stats.waiting), (1, 0));
            seen.push(stats.name);
        }
        assert!(seen.len() <= names.len(), "a queue appears twice");
    }
    assert_eq!(seen, names);
    let from_between = stage.store().queues(Some(queue("q19x")), 1).unwrap();
    assert_eq!(from_between[0].name, queue("q2"), "the name given need not exist");
}

/// Puts a message with a key, and buries it a second later.
fn bury_keyed(stage: &mut Stage, name: &str) -> MessageId {
    let id = stage.put(keyed(name, "m")).id;
    stage.advance(1_000);
    let taken = stage.store().take_id(q(), id, LeaseTerms::default()).unwrap();
    stage.settle(&taken.receipt, bury("x")).unwrap();
    id
}

pub fn get_with_dead_finds_the_youngest_of_the_dead_that_had_the_key_where_none_is_live(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let not_found = Err(Error::MessageNotFound { queue: q() });
    assert_eq!(code(stage.try_get_dead("k")), "unknown_queue");
    let first = bury_keyed(&mut stage, "k");
    let other = bury_keyed(&mut stage, "other");
    assert_eq!(stage.try_get_dead("k").unwrap().id, first);
    assert_eq!(stage.try_get(by_key("k")), not_found, "without it, none");
    let second = bury_keyed(&mut stage, "k");
    assert_eq!(stage.try_get_dead("k").unwrap().id, second);
    assert_eq!(stage.try_get_dead("other").unwrap().id, other);
    assert_eq!(stage.try_get_dead("never"), not_found);
    // It died later, although it was put first.
    let taken = stage.store().take_id(q(), first, LeaseTerms::default()).unwrap();
    assert_eq!(stage.try_get_dead("k").unwrap().id, first, "the live one comes first");
    stage.advance(1);
    stage.settle(&taken.receipt, bury("again")).unwrap();
    assert_eq!(stage.try_get_dead("k").unwrap().id, first);
    let live = stage.put(keyed("k", "live").after_ms(500)).id;
    assert_eq!(stage.try_get_dead("k").unwrap().id, live);
    let targets = vec![Target::Id(second), by_key("other"), by_key("never"), Target::Id(live)];
    let found = stage.store().get(q(), targets, true);
    let ids: Vec<_> = found.into_iter().map(|found| found.map(|message| message.id)).collect();
    assert_eq!(ids, [Ok(second), Ok(other), Err(Error::MessageNotFound { queue: q() }), Ok(live)]);
    // Other calls find live messages by key, and no older one after the younger.
    stage.cancel(Target::Id(live));
    assert_eq!(stage.cancel(by_key("k")), crate::Cancelled::NotFound);
    // Of one instant the higher id is the younger. An expiry is a death too.
    let expires = Some(stage.at(500));
    let expired = ["k", "twin"].map(|name| stage.put(Put { expires, ..keyed(name, "m") }).id);
    stage.advance(500);
    assert_eq!(["k", "twin"].map(|name| stage.try_get_dead(name).unwrap().id), expired);
}

pub fn get_with_dead_finds_none_that_gave_its_key_up_or_was_discarded(factory: &Factory) {
    let mut stage = Stage::open(factory);
    stage.put(keyed("k", "old"));
    let held = stage.taken_for(60_000);
    let new = stage.put(replacing("k", "new").after_ms(60_000)).id;
    stage.settle(&held.receipt, bury("keyless")).unwrap();
    assert_eq!(stage.try_get_dead("k").unwrap().id, new);
    stage.cancel(Target::Id(new));
    assert_eq!(code(stage.try_get_dead("k")), "message_not_found");
    let [older, younger] = [0; 2].map(|_| bury_keyed(&mut stage, "k"));
    assert_eq!(stage.try_get_dead("k").unwrap().id, younger);
    stage.store().discard(q(), Selection::Ids(vec![younger])).unwrap();
    assert_eq!(stage.try_get_dead("k").unwrap().id, older);
    stage.store().discard(q(), Selection::All).unwrap();
    stage.put(message("m").after_ms(60_000));
    assert_eq!(code(stage.try_get_dead("k")), "message_not_found");
    let revived = bury_keyed(&mut stage, "k");
    stage.store().revive(q(), Selection::Ids(vec![revived]), When::AfterMs(60_000)).unwrap();
    stage.cancel(Target::Id(revived));
    assert_eq!(code(stage.try_get_dead("k")), "message_not_found");
}

pub fn get_with_dead_finds_the_same_after_a_restart(factory: &Factory) {
    let Some(mut stage) = Stage::durable(factory) else { return };
    let _older = bury_keyed(&mut stage, "k");
    let younger = bury_keyed(&mut stage, "k");
    let expired = stage.put(Put { expires: Some(stage.at(500)), ..keyed("expired", "m") }).id;
    stage.restart();
    stage.advance(500);
    assert_eq!(["k", "expired"].map(|name| stage.try_get_dead(name).unwrap().id), [younger, expired]);
    stage.restart();
    assert_eq!(["k", "expired"].map(|name| stage.try_get_dead(name).unwrap().id), [younger, expired]);
}

//! What a restart keeps, and what the journal drops.

use dwell_engine::disk::{Crash, Disk, MemoryDisk};
use dwell_engine::{Durability, Options};
use dwell_model::{Headers, Number, Setting, SettingChange, State, StateKind};
use dwell_store::{Action, Error, Put, Selection, Settle, Store, Take, When};
use dwell_testkit::Random;
use dwell_time::ManualClock;

use crate::support::{Driven, dir, options, queue, start};

fn ack(store: &mut Driven, take: Take) -> usize {
    let taken = store.take(take).unwrap();
    for delivery in &taken {
        let receipt = delivery.receipt.clone();
        store.settle(Settle { receipt, action: Action::Ack }).unwrap();
    }
    taken.len()
}

fn segments(disk: &MemoryDisk) -> usize {
    disk.list(dir()).unwrap().iter().filter(|name| name.starts_with("journal-")).count()
}

#[test]
fn every_state_is_the_same_after_a_restart() {
    let mut store = Driven::new();
    let engine = store.engine.clone();
    let q = queue("q");
    for (i, key) in ["a", "b", "c", "d"].into_iter().enumerate() {
        let put = Put::new(q.clone(), format!("body {i}")).key(key.parse().unwrap()).priority(i as u32);
        store.put(put).unwrap();
    }
    store.put(Put::new(q.clone(), "").after_ms(60_000)).unwrap();
    let taken = store.take(Take::from(q.clone()).max(2).lease_ms(5_000)).unwrap();
    let bury = Action::Bury { reason: Some("no luck".into()), priority: None };
    store.settle(Settle { receipt: taken[0].receipt.clone(), action: bury }).unwrap();
    let change = SettingChange::Set(Setting::LeaseMs(1_234));
    store.run(engine.configure(q.clone(), vec![change])).unwrap();
    let before = store.dump();
    let settings = store.run(engine.stats(q.clone())).unwrap().own;
    drop(engine);

    let mut store = store.reopen();
    let mut after = store.dump();
    let mono = |message: &mut dwell_model::Message| {
        if let State::Leased(lease) = &mut message.standing.state {
            lease.deadline_mono_ms = 0;
        }
    };
    let mut before = before;
    before.iter_mut().for_each(mono);
    after.iter_mut().for_each(mono);
    assert_eq!(before, after);
    let engine = store.engine.clone();
    assert_eq!(store.run(engine.stats(q)).unwrap().own, settings);
    // The lease survived with its receipt.
    store.settle(Settle { receipt: taken[1].receipt.clone(), action: Action::Ack }).unwrap();
}

/// Crash story: 1. A queue with its own spread and a leased message is deleted; the spread stays while the message
/// does. 2. A segment begins with the settings of all queues. 3. The segments before it are removed: it has to have
/// that spread.
#[test]
fn a_deleted_queue_keeps_the_spread_of_its_leased_messages_in_later_segments() {
    let mut store = Driven::new();
    let engine = store.engine.clone();
    let q = queue("deleted");
    let change = SettingChange::Set(Setting::Partitions(2));
    store.run(engine.configure(q.clone(), vec![change])).unwrap();
    store.put(Put::new(q.clone(), "held")).unwrap();
    let taken = store.take(Take::from(q.clone()).lease_ms(10_000_000)).unwrap().remove(0);
    store.run(engine.delete_queue(q)).unwrap();
    let partitions = |store: &mut Driven| {
        let engine = store.engine.clone();
        store.run(engine.stats(queue("deleted"))).unwrap().settings.partitions
    };
    assert_eq!(partitions(&mut store), 2);
    drop(engine);
    // Each opening begins a segment.
    for _ in 0..3 {
        store = store.reopen();
        assert_eq!(partitions(&mut store), 2);
    }
    store.settle(Settle { receipt: taken.receipt, action: Action::Ack }).unwrap();
}

#[test]
fn session_leases_are_given_back_by_a_close_and_cost_an_attempt_after_a_kill() {
    let mut store = Driven::new();
    store.put(Put::new(queue("q"), "body")).unwrap();
    let taken = store.take(Take::from(queue("q")).session()).unwrap().remove(0);
    let mut store = store.reopen();
    let stale = Settle { receipt: taken.receipt, action: Action::Ack };
    assert_eq!(store.settle(stale), Err(Error::LeaseLost));
    let message = store.dump().remove(0);
    assert_eq!((message.standing.state.kind(), message.standing.attempts), (StateKind::Ready, 0));
    assert_eq!((message.standing.counts.takes, message.standing.counts.releases), (1, 1));

    store.take(Take::from(queue("q")).session()).unwrap();
    let (disk, clock) = store.kill();
    disk.power_on(Crash::Keep);
    let mut store = Driven::on(disk, clock);
    let message = store.dump().remove(0);
    assert_eq!((message.standing.state.kind(), message.standing.attempts), (StateKind::Ready, 1));
}

#[test]
fn space_comes_back_when_messages_are_gone_and_settings_and_idempotency_keys_stay() {
    let mut store = Driven::new();
    let engine = store.engine.clone();
    let change = SettingChange::Set(Setting::LeaseMs(1_234));
    store.run(engine.configure(queue("kept"), vec![change])).unwrap();
    let idempotency_key = || Put::new(queue("q"), "once").idempotency_key("t".parse().unwrap());
    let first = store.put(idempotency_key()).unwrap();
    let mut last = first.number;
    let mut most = 0;
    for _ in 0..200 {
        for _ in 0..10 {
            last = store.put(Put::new(queue("q"), vec![7; 1_000])).unwrap().number;
        }
        ack(&mut store, Take::from(queue("q")).max(100));
        most = most.max(segments(&store.disk));
    }
    assert!(most > 40, "the idempotency key keeps what came after it for ten minutes");
    assert_eq!(store.put(idempotency_key()).unwrap(), first);
    store.advance(600_001);
    for _ in 0..40 {
        store.put(Put::new(queue("q"), vec![7; 1_000])).unwrap();
        ack(&mut store, Take::from(queue("q")));
    }
    assert!(segments(&store.disk) <= 6, "{} segments of an empty store", segments(&store.disk));

    drop(engine);
    let mut store = store.reopen();
    let engine = store.engine.clone();
    assert_eq!(store.run(engine.stats(queue("kept"))).unwrap().settings.lease_ms, 1_234);
    let next = store.put(Put::new(queue("q"), "next")).unwrap();
    assert_eq!(next.number.get(), last.get() + 41, "numbers are never used again");
}

#[test]
fn a_flush_that_is_due_at_the_opening_begins_no_segment_of_its_own() {
    let newest = |disk: &MemoryDisk| {
        let names = disk.list(dir()).unwrap();
        names.into_iter().rfind(|name| name.starts_with("journal-")).unwrap()
    };
    let mut store = Driven::new();
    for number in 0..400 {
        store.put(Put::new(queue("q"), format!("body {number}")).after_ms(86_400_000)).unwrap();
    }
    let before = store.numbers();
    let (disk, clock) = store.kill();
    disk.power_on(Crash::Keep);
    let small =
        |disk: &MemoryDisk, clock: &ManualClock| Options { memory_limit: 64 * 1024, ..options(disk, clock) };
    let narrow = small(&disk, &clock);
    let mut store = Driven::open(disk, clock, narrow).unwrap();
    let begun = newest(&store.disk);
    for _ in 0..10_000 {
        if store.engine.counters().flushes > 0 {
            break;
        }
        store.driver.turn();
    }
    assert_eq!(store.engine.counters().flushes, 1, "what there was is flushed at once");
    assert_eq!(newest(&store.disk), begun, "the segment that the opening began will do");
    // What is written behind it counts as always.
    store.put(Put::new(queue("q"), "later").after_ms(86_400_000)).unwrap();
    let (disk, clock) = store.kill();
    disk.power_on(Crash::Keep);
    let narrow = small(&disk, &clock);
    let mut store = Driven::open(disk, clock, narrow).unwrap();
    let after = store.numbers();
    assert_eq!(after.len(), before.len() + 1);
    assert!(before.iter().all(|number| after.contains(number)));
}

#[test]
fn one_far_message_keeps_what_came_later_and_nothing_before() {
    let mut store = Driven::new();
    let fill = |store: &mut Driven, count: usize| {
        for _ in 0..count {
            store.put(Put::new(queue("q"), vec![7; 1_000])).unwrap();
            ack(store, Take::from(queue("q")));
        }
    };
    fill(&mut store, 300);
    let before = segments(&store.disk);
    store.put(Put::new(queue("far"), "far").after_ms(86_400_000)).unwrap();
    fill(&mut store, 300);
    let pinned = segments(&store.disk);
    assert!(before <= 6 && pinned > 9, "{before} then {pinned}");
    let engine = store.engine.clone();
    store.run(engine.purge(queue("far"))).unwrap();
    drop(engine);
    fill(&mut store, 40);
    assert!(segments(&store.disk) <= 6);
}

#[test]
fn records_of_messages_whose_segment_is_gone_mean_nothing() {
    // Many messages are put, then settled much later, so that settlements outlive the segments of the puts.
    let mut store = Driven::new();
    for round in 0..6 {
        for _ in 0..100 {
            store.put(Put::new(queue("q"), vec![round; 900])).unwrap();
        }
        ack(&mut store, Take::from(queue("q")).max(60));
        store = store.reopen();
        store.advance(60_000);
    }
    let before = store.dump();
    assert!(!before.is_empty());
    let mut store = store.reopen();
    assert_eq!(store.dump(), before);
}

#[test]
fn a_revival_meets_the_same_messages_though_old_segments_might_go() {
    let mut store = Driven::new();
    let q = queue("q");
    let keyed = |store: &mut Driven, body: &str| {
        store.put(Put::new(queue("q"), body.to_owned()).key("k".parse().unwrap())).unwrap();
        let taken = store.take(Take::from(queue("q"))).unwrap().remove(0);
        let bury = Action::Bury { reason: None, priority: None };
        store.settle(Settle { receipt: taken.receipt, action: bury }).unwrap();
    };
    let fill = |store: &mut Driven| {
        for _ in 0..100 {
            store.put(Put::new(queue("other"), vec![7; 1_000])).unwrap();
            ack(store, Take::from(queue("other")));
        }
    };
    // Two dead messages of one key, in different segments; the elder gets the key back, and is acked.
    keyed(&mut store, "elder");
    fill(&mut store);
    keyed(&mut store, "younger");
    store.advance(1_000);
    let engine = store.engine.clone();
    let swept = store.run(engine.revive(q.clone(), Selection::All, When::Now)).unwrap();
    assert_eq!((swept.done, swept.refused_in_all), (1, 1));
    drop(engine);
    assert_eq!(ack(&mut store, Take::from(q.clone())), 1);
    fill(&mut store);
    let before = store.dump();
    assert_eq!(before.len(), 1);
    for _ in 0..3 {
        store = store.reopen();
        assert_eq!(store.dump(), before, "the younger one stays dead");
        fill(&mut store);
    }
}

#[test]
fn what_became_ready_stays_ready_though_the_clock_is_set_back_while_it_was_down() {
    let mut store = Driven::new();
    store.put(Put::new(queue("q"), "body").after_ms(1_000)).unwrap();
    store.advance(2_000);
    assert_eq!(store.dump()[0].standing.state, State::Ready);
    let (disk, clock) = store.close();
    clock.step_wall(start());
    let mut store = Driven::on(disk, clock);
    assert_eq!(store.dump()[0].standing.state, State::Ready);
}

#[test]
fn numbers_that_a_power_failure_took_back_are_not_given_again() {
    for durability in [Durability::Os, Durability::IntervalMs(1_000)] {
        let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
        let options = || Options { durability, ..options(&disk, &clock) };
        let mut store = Driven::open(disk.clone(), clock.clone(), options()).unwrap();
        let lost = store.put(Put::new(queue("q"), "answered, not synced")).unwrap().number;
        drop(store.kill());
        disk.power_on(Crash::Drop);
        let mut store = Driven::open(disk.clone(), clock.clone(), options()).unwrap();
        assert_eq!(store.numbers(), Vec::<Number>::new());
        let next = store.put(Put::new(queue("q"), "next")).unwrap().number;
        assert!(next > lost);
        store.close();
        let mut store = Driven::open(disk.clone(), clock.clone(), options()).unwrap();
        let after = store.put(Put::new(queue("q"), "after a proper close")).unwrap().number;
        assert_eq!(after.get(), next.get() + 1);
    }
}

#[test]
fn an_interval_syncs_when_it_has_passed_and_not_before() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let options = Options { durability: Durability::IntervalMs(50), ..options(&disk, &clock) };
    let mut store = Driven::open(disk, clock, options).unwrap();
    let syncs = store.engine.counters().syncs;
    store.put(Put::new(queue("q"), "body")).unwrap();
    store.advance(49);
    assert_eq!(store.engine.counters().syncs, syncs);
    store.advance(1);
    assert_eq!(store.engine.counters().syncs, syncs + 1);
    store.advance(1_000);
    assert_eq!(store.engine.counters().syncs, syncs + 1, "nothing new to sync");
}

#[test]
fn a_power_failure_takes_what_was_answered_within_the_interval_at_most_and_the_last_of_it_first() {
    const INTERVAL_MS: u64 = 50;
    let mut lost = 0;
    for seed in 0..100 {
        let mut chance = Random::new(seed);
        let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
        let small = Options {
            durability: Durability::IntervalMs(INTERVAL_MS),
            memory_limit: 16 * 1024,
            segment_bytes: 4096,
            ..options(&disk, &clock)
        };
        let mut store = Driven::open(disk, clock, small.clone()).unwrap();
        let (mut answered, mut now) = (Vec::new(), 0);
        for _ in 0..10 + chance.below(100) {
            let body = vec![7; chance.below(400) as usize];
            let put = store.put(Put::new(queue("q"), body).after_ms(86_400_000)).unwrap();
            answered.push((put.number, now));
            let passes = chance.below(30);
            store.advance(passes);
            now += passes;
        }
        let (disk, clock) = store.kill();
        let chosen = chance.next();
        disk.power_on(*chance.pick(&[Crash::Drop, Crash::Prefix(chosen), Crash::Holes(chosen)]));
        let found = Driven::open(disk, clock, small).unwrap().numbers();
        let safe = answered.iter().take_while(|(_, at)| at + INTERVAL_MS <= now).count();
        assert!(found.len() >= safe, "seed {seed}: {} of {safe} are left", found.len());
        assert!(found.iter().eq(answered.iter().map(|(number, _)| number).take(found.len())), "seed {seed}");
        lost += answered.len() - found.len();
    }
    assert!(lost > 0, "nothing is synced before its time");
}

#[test]
fn a_batch_of_many_large_bodies_goes_through_in_parts() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let options = Options { segment_bytes: 1 << 20, ..options(&disk, &clock) };
    let mut store = Driven::open(disk, clock, options).unwrap();
    let engine = store.engine.clone();
    let puts: Vec<Put> = (0..40).map(|i| Put::new(queue("q"), vec![i; 1 << 20])).collect();
    let answers = store.run(engine.put(puts));
    assert_eq!(answers.len(), 40);
    let numbers: Vec<u64> = answers.iter().map(|answer| answer.as_ref().unwrap().number.get()).collect();
    assert_eq!(numbers, (1..=40).collect::<Vec<u64>>(), "in their order");
    assert!(store.engine.counters().batches >= 3);
    let taken = store.take(Take::from(queue("q")).max(40)).unwrap();
    assert!(taken.iter().enumerate().all(|(i, taken)| taken.message.body == vec![i as u8; 1 << 20]));
}

#[test]
fn a_damaged_body_is_handed_to_nobody() {
    let mut store = Driven::new();
    store.put(Put::new(queue("q"), "a body that will rot")).unwrap();
    store.put(Put::new(queue("q"), "another")).unwrap();
    let path = crate::support::segment(1);
    let bytes = store.disk.read_file(&path).unwrap();
    let at = bytes.windows(4).position(|four| four == b"rot\x00" || four == b" rot").unwrap();
    let file = store.disk.open(&path).unwrap();
    file.write_at(b"R", at as u64 + 1).unwrap();
    let taken = store.take(Take::from(queue("q")).max(2)).unwrap();
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].message.body, "another");
    store.advance(30_000);
    let error = store.take(Take::from(queue("q"))).unwrap_err();
    assert!(error.to_string().contains("journal-000-000000000001 is damaged at byte"), "{error}");
}

/// Messages that are leased while all others are flushed are read again when the store is opened: each block of their
/// files once, whatever the order in which they came into memory.
#[test]
fn messages_that_are_leased_are_read_block_by_block() {
    const COUNT: u64 = 1_000;
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let opened = Options { memory_limit: 8 << 20, segment_bytes: 64 * 1024, ..options(&disk, &clock) };
    let mut store = Driven::open(disk, clock, opened.clone()).unwrap();
    let engine = store.engine.clone();
    let long = "x".repeat(1_000);
    // What came side by side into memory is due far apart, and is in blocks of a few messages.
    for i in 0..COUNT {
        let mut put = Put::new(queue("q"), "body").after_ms(1 + i * 7_919 % COUNT);
        put.headers = Headers::new([("long", long.as_str())]).unwrap();
        store.put(put).unwrap();
    }
    store.clock.advance(COUNT + 1);
    let taken = store.take(Take::from(queue("q")).max(COUNT as usize).lease_ms(86_400_000)).unwrap();
    assert_eq!(taken.len() as u64, COUNT);
    let before = engine.counters().flushes;
    while engine.counters().flushes < before + 2 {
        for _ in 0..100 {
            store.put(Put::new(queue("far"), vec![7; 1_000]).after_ms(86_400_000)).unwrap();
        }
    }
    drop(engine);
    let (disk, clock) = store.close();
    // Few blocks are cached.
    let store = Driven::open(disk, clock, Options { memory_limit: 16 * 1024, ..opened }).unwrap();
    let reads = store.engine.counters().disk.reads;
    assert!(reads < COUNT / 2, "{reads} reads for {COUNT} messages");
}

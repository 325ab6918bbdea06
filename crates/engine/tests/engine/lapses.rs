//! Leases that run out together: their records come in batches that are no longer than usual.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use dwell_engine::Options;
use dwell_engine::disk::MemoryDisk;
use dwell_model::{Limits, QueueName};
use dwell_store::{Action, Put, Settle, Store, Take};
use dwell_time::ManualClock;

use crate::support::{Driven, options, queue, start};

const LEASED: usize = 3_000;
/// What all those records take, in batches of a slice of leases each and one besides.
const BATCHES: u64 = 11;

/// A store in which all messages of these queues are leased for so long, [`LEASED`] in all, each with an error text that a
/// record of its standing repeats.
fn with_leased(queues: &[QueueName], lease_ms: u64) -> Driven {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let options = Options { segment_bytes: 64 * 1024 * 1024, ..options(&disk, &clock) };
    let mut store = Driven::open(disk, clock, options).unwrap();
    let engine = store.engine.clone();
    let puts = (0..LEASED).map(|at| Put::new(queues[at % queues.len()].clone(), "x")).collect();
    assert!(store.run(engine.put(puts)).into_iter().all(|answer| answer.is_ok()));
    let all = || Take::from_all(queues.iter().cloned()).max(LEASED).lease_ms(lease_ms);
    for taken in store.take(all()).unwrap().chunks(100) {
        let error = Some("x".repeat(4_000).into());
        let retry = Action::Retry { after_ms: Some(0), error, priority: None };
        let retries = taken.iter().map(|one| Settle { receipt: one.receipt.clone(), action: retry.clone() });
        assert!(store.run(engine.settle(retries.collect())).iter().all(Result::is_ok));
    }
    assert_eq!(store.take(all()).unwrap().len(), LEASED);
    store
}

#[test]
fn leases_of_another_queue_of_a_take_that_waits_are_many_batches_too() {
    let mut store = with_leased(&[queue("b")], 60_000);
    let engine = store.engine.clone();
    let both = Take::from_all([queue("a"), queue("b")]).wait_ms(600_000);
    let mut waits = pin!(engine.take(both));
    let mut context = Context::from_waker(Waker::noop());
    assert!(waits.as_mut().poll(&mut context).is_pending());
    store.driver.turn();
    assert!(waits.as_mut().poll(&mut context).is_pending());
    store.clock.advance(60_000);
    let before = engine.counters().batches;
    store.put(Put::new(queue("a"), "x")).unwrap();
    let answered = store.run(waits).unwrap();
    assert_eq!((answered.len(), &answered[0].message.queue), (1, &queue("b")), "it is due first");
    let batches = engine.counters().batches - before;
    assert!(batches >= BATCHES, "12 MB of records are in {batches} batches");
    assert_eq!(store.take(Take::from(queue("a"))).unwrap().len(), 1);
}

#[test]
fn leases_of_many_queues_that_one_command_names_are_many_batches_too() {
    let queues: Vec<QueueName> = (0..250).map(|at| queue(&format!("q{at}"))).collect();
    let mut store = with_leased(&queues, 60_000);
    let engine = store.engine.clone();
    store.clock.advance(60_000);
    let before = engine.counters().batches;
    assert_eq!(store.take(Take::from_all(queues).max(1)).unwrap().len(), 1);
    let batches = engine.counters().batches - before;
    assert!(batches >= BATCHES, "12 MB of records are in {batches} batches");
}

#[test]
fn a_page_of_queues_lets_leases_of_its_queues_run_out_and_of_no_others() {
    const QUEUES: usize = 3_000;
    const PAGE: usize = 10;
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let limits = Limits { batch: PAGE, ..Limits::default() };
    let mut store =
        Driven::open(disk.clone(), clock.clone(), Options { limits, ..options(&disk, &clock) }).unwrap();
    let engine = store.engine.clone();
    for at in 0..QUEUES {
        let name = queue(&format!("q{at}"));
        store.put(Put::new(name.clone(), "x")).unwrap();
        assert_eq!(store.take(Take::from(name).lease_ms(600_000)).unwrap().len(), 1);
    }
    store.clock.advance(600_000);
    let before = engine.counters().disk.written_bytes;
    let page = store.run(engine.queues(None, usize::MAX)).unwrap();
    assert_eq!(page.len(), PAGE);
    assert!(page.iter().all(|stats| (stats.counts.ready, stats.counts.leased) == (1, 0)), "{page:?}");
    let written = engine.counters().disk.written_bytes - before;
    assert!(written < QUEUES as u64, "{written} bytes are the records of more than {PAGE} leases");
}

#[test]
fn thousands_of_leases_that_run_out_together_are_many_batches_and_not_one() {
    let mut store = with_leased(&[queue("q")], 60_000);
    let engine = store.engine.clone();
    let all = || Take::from(queue("q")).max(LEASED).lease_ms(60_000);
    store.clock.advance(60_000);
    let before = engine.counters().batches;
    let mut queues = pin!(engine.queues(None, 10));
    let mut take = pin!(engine.take(all()));
    let mut other = pin!(engine.put(vec![Put::new(queue("other"), "y")]));
    let mut context = Context::from_waker(Waker::noop());
    assert!(queues.as_mut().poll(&mut context).is_pending());
    assert!(take.as_mut().poll(&mut context).is_pending());
    assert!(other.as_mut().poll(&mut context).is_pending());
    store.driver.turn();
    let batches = engine.counters().batches - before;
    assert!(batches >= BATCHES, "12 MB of records are in {batches} batches");
    let Poll::Ready(other) = other.as_mut().poll(&mut context) else { panic!("it was not answered") };
    assert!(other[0].is_ok());
    let Poll::Ready(queues) = queues.as_mut().poll(&mut context) else { panic!("it was not answered") };
    let counts = queues.unwrap().into_iter().find(|stats| stats.name == queue("q")).unwrap().counts;
    assert_eq!((counts.ready, counts.leased), (LEASED as u64, 0), "all at once to whoever asks");
    let taken = store.run(take).unwrap();
    assert!(taken.iter().all(|one| one.message.standing.attempt() == 3));
    assert_eq!(taken.len(), LEASED);
}

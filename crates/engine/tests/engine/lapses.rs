//! Leases that run out together: their records come in batches that are no longer than usual.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use dwell_engine::Options;
use dwell_engine::disk::MemoryDisk;
use dwell_store::{Action, Put, Settle, Store, Take};
use dwell_time::ManualClock;

use crate::support::{Driven, options, queue, start};

const LEASED: usize = 3_000;

#[test]
fn thousands_of_leases_that_run_out_together_are_many_batches_and_not_one() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let options = Options { segment_bytes: 64 * 1024 * 1024, ..options(&disk, &clock) };
    let mut store = Driven::open(disk, clock, options).unwrap();
    let engine = store.engine.clone();
    let puts = (0..LEASED).map(|_| Put::new(queue("q"), "x")).collect();
    assert!(store.run(engine.put(puts)).into_iter().all(|answer| answer.is_ok()));
    let all = || Take::from(queue("q")).max(LEASED).lease_ms(60_000);
    // Each has an error text that a record of its standing repeats.
    for taken in store.take(all()).unwrap().chunks(100) {
        let error = Some("x".repeat(4_000).into());
        let retry = Action::Retry { after_ms: Some(0), error, priority: None };
        let retries = taken.iter().map(|one| Settle { receipt: one.receipt.clone(), action: retry.clone() });
        assert!(store.run(engine.settle(retries.collect())).iter().all(Result::is_ok));
    }
    assert_eq!(store.take(all()).unwrap().len(), LEASED);
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
    assert!(batches >= 11, "12 MB of records are in {batches} batches");
    let Poll::Ready(other) = other.as_mut().poll(&mut context) else { panic!("it was not answered") };
    assert!(other[0].is_ok());
    let Poll::Ready(queues) = queues.as_mut().poll(&mut context) else { panic!("it was not answered") };
    let counts = queues.unwrap().into_iter().find(|stats| stats.name == queue("q")).unwrap().counts;
    assert_eq!((counts.ready, counts.leased), (LEASED as u64, 0), "all at once to whoever asks");
    let taken = store.run(take).unwrap();
    assert!(taken.iter().all(|one| one.message.standing.attempt() == 3));
    assert_eq!(taken.len(), LEASED);
}

//! Leased messages: however often a lease is extended the journal stays within its bound, and what has run out stays
//! so.

use dwell_engine::disk::MemoryDisk;
use dwell_engine::{Counters, Options};
use dwell_model::Timestamp;
use dwell_store::{Action, Put, Settle, Settled, Store, Take};
use dwell_time::ManualClock;

use crate::support::{Driven, options, queue, start};

const SEGMENT: u64 = 32 * 1024;
const LEASED: usize = 50;

#[test]
fn a_storm_of_extensions_does_not_lengthen_the_journal() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let options = Options { segment_bytes: SEGMENT, memory_limit: 64 * 1024, ..options(&disk, &clock) };
    let mut store = Driven::open(disk, clock, options.clone()).unwrap();
    let puts = (0..LEASED).map(|_| Put::new(queue("q"), vec![b'x'; 200])).collect();
    let engine = store.engine.clone();
    assert!(store.run(engine.put(puts)).into_iter().all(|answer| answer.is_ok()));
    let taken = store.take(Take::from(queue("q")).max(LEASED).lease_ms(60_000)).unwrap();
    assert_eq!(taken.len(), LEASED);
    let mut most = 0;
    for _ in 0..2_000 {
        store.clock.advance(1_000);
        let extend = |receipt| Settle { receipt, action: Action::Extend { lease_ms: None } };
        let extends = taken.iter().map(|taken| extend(taken.receipt.clone())).collect();
        let settled = store.run(engine.settle(extends));
        assert!(settled.into_iter().all(|settled| matches!(settled, Ok(Settled::Leased(_)))));
        most = most.max(store.disk.used());
    }
    let Counters { segments, flushes, disk, .. } = engine.counters();
    assert!(disk.written_bytes > 40 * SEGMENT, "{} bytes were written", disk.written_bytes);
    assert!(flushes > 10 && segments <= 6, "{flushes} checkpoints, {segments} segments");
    assert!(most <= 8 * SEGMENT, "{most} bytes");
    // The leases are still in force, also after a crash.
    let (disk, clock) = store.kill();
    disk.power_on(dwell_engine::disk::Crash::Keep);
    drop(engine);
    let mut store = Driven::open(disk, clock, options).unwrap();
    let engine = store.engine.clone();
    let acks = taken.into_iter().map(|taken| Settle { receipt: taken.receipt, action: Action::Ack });
    let settled = store.run(engine.settle(acks.collect()));
    assert!(settled.into_iter().all(|settled| settled == Ok(Settled::Gone)));
    assert_eq!(store.dump(), []);
}

/// Crash story: 1. A lease runs out, and no call touches its queue. 2. The wall clock steps back by a day. 3. The store
/// is closed and opened: an opening uses the wall clock, by which the lease would last for a day more.
#[test]
fn a_lease_that_ran_out_before_a_close_is_over_though_the_clock_stepped_back() {
    let mut store = Driven::new();
    store.put(Put::new(queue("q"), "body")).unwrap();
    assert_eq!(store.take(Take::from(queue("q")).lease_ms(1_000)).unwrap().len(), 1);
    store.clock.advance(2_000);
    store.clock.step_wall(Timestamp::from_ms(store.now().as_ms() - 86_400_000).unwrap());
    let mut store = store.reopen();
    let taken = store.take(Take::from(queue("q"))).unwrap();
    assert_eq!(taken.len(), 1, "the lease goes on after it had run out");
    assert_eq!(taken[0].message.standing.attempts, 1);
}

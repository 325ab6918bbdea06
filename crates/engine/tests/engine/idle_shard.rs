//! An engine that has nothing to do reports that: the tests' own [`Driven::advance`] finds one that does not.

use dwell_engine::disk::MemoryDisk;
use dwell_engine::{Durability, Options};
use dwell_store::{Put, Store};
use dwell_time::ManualClock;

use crate::support::{Driven, options, queue, start};

const HOUR_MS: u64 = 3_600_000;

#[test]
fn what_has_expired_in_files_and_is_all_gone_is_nothing_to_do() {
    for is_purged in [true, false] {
        let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
        // Too many for memory; or few enough, but with copies in files all the same, since the journal has many
        // segments.
        let (count, len, memory_limit) =
            if is_purged { (400, 10, 64 * 1024) } else { (200, 4_000, 512 * 1024) };
        let segment_bytes = 4096;
        let small = Options { memory_limit, segment_bytes, ..options(&disk, &clock) };
        let mut store = Driven::open(disk, clock, small).unwrap();
        let expires = Some(start().after(2 * HOUR_MS).unwrap());
        for _ in 0..count {
            let put = Put { expires, ..Put::new(queue("q"), vec![7; len]).after_ms(HOUR_MS) };
            store.put(put).unwrap();
        }
        let engine = store.engine.clone();
        assert!(engine.counters().tables > 0);
        assert_eq!(engine.counters().cold > 0, is_purged);
        if is_purged {
            assert_eq!(store.run(engine.purge(queue("q"))), Ok(count));
        }
        store.advance(2 * HOUR_MS + 10_001);
        store.advance(HOUR_MS);
    }
}

#[test]
fn an_interval_that_ends_with_a_new_segment_and_nothing_in_it_is_nothing_to_do() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let (durability, segment_bytes) = (Durability::IntervalMs(50), 4096);
    let options = Options { durability, segment_bytes, ..options(&disk, &clock) };
    let mut store = Driven::open(disk, clock, options).unwrap();
    store.put(Put::new(queue("q"), vec![7; 5_000]).after_ms(HOUR_MS)).unwrap();
    store.advance(50);
    store.advance(50);
}

//! Runs that grow longer than one file may be: with a small bound, so that it happens in a small store.

use dwell_engine::disk::{Disk as _, MemoryDisk};
use dwell_engine::{OpenError, Options, offline};
use dwell_model::Key;
use dwell_store::{Action, Put, Settle, Store, Take, Target};
use dwell_time::ManualClock;

use crate::support::{Driven, dir, options, queue, start};

const COUNT: usize = 3_000;

fn open(disk: MemoryDisk, clock: ManualClock) -> Driven {
    let options = Options { memory_limit: 16 * 1024, run_bytes: 4 * 1024, ..options(&disk, &clock) };
    Driven::open(disk, clock, options).unwrap()
}

fn key(number: usize) -> Key {
    Key::new(&format!("key-{number}")).unwrap()
}

fn assert_all_there(store: &mut Driven) {
    let engine = store.engine.clone();
    for number in 0..COUNT {
        let found = store.run(engine.get(queue("far"), vec![Target::Key(key(number))], false)).pop().unwrap();
        assert_eq!(found.unwrap().body, format!("body {number}"));
    }
}

fn runs(disk: &MemoryDisk) -> Vec<usize> {
    let names = disk.list(dir()).unwrap().into_iter();
    let names = names.filter(|name| name.starts_with("numbers-") || name.starts_with("keys-"));
    names.map(|name| disk.read_file(&dir().join(name)).unwrap().len()).collect()
}

#[test]
fn messages_without_a_key_are_flushed_beside_more_keys_than_filters_have_room_for() {
    let mut store = open(MemoryDisk::new(), ManualClock::new(start()));
    for number in 0..COUNT {
        let put = Put::new(queue("far"), format!("body {number}")).after_ms(86_400_000).key(key(number));
        store.put(put).unwrap();
    }
    let before = store.engine.counters();
    for number in 0..COUNT {
        store.put(Put::new(queue("plain"), format!("{number}")).after_ms(86_400_000)).unwrap();
    }
    let after = store.engine.counters();
    assert!(after.cold > before.cold + COUNT as u64 / 2, "{after:?}");
    assert_all_there(&mut store);
}

#[test]
fn runs_are_split_where_they_grow_too_long_and_merged_as_one() {
    let mut store = open(MemoryDisk::new(), ManualClock::new(start()));
    for number in 0..COUNT {
        let put = Put::new(queue("far"), format!("body {number}")).after_ms(86_400_000).key(key(number));
        store.put(put).unwrap();
        let longest = runs(&store.disk).into_iter().max().unwrap_or(0);
        assert!(longest < 16 * 1024, "a run of {longest} bytes");
    }
    assert_all_there(&mut store);
    (0..100).for_each(|_| store.advance(1_000));
    let before = store.engine.counters();
    (0..100).for_each(|_| store.advance(1_000));
    let after = store.engine.counters();
    assert_eq!(after.disk.writes, before.disk.writes, "what is merged is not merged again");
    // 3,000 pairs of either kind are a dozen full runs, and there are those that are not merged yet.
    assert!((10..50).contains(&after.runs), "{after:?}");
    let (disk, clock) = store.close();
    let report = offline::check(&disk, dir()).unwrap();
    assert!(report.is_sound(), "{:?}", report.flaws);
    let mut store = open(disk, clock);
    assert_all_there(&mut store);
    // Under another bound they are runs like any others.
    let (disk, clock) = store.close();
    let options = Options { memory_limit: 16 * 1024, ..options(&disk, &clock) };
    let mut store = Driven::open(disk, clock, options).unwrap();
    assert_all_there(&mut store);
}

/// Crash story: 1. Messages with keys are dead and in tables. 2. Runs of keys are merged, the oldest among them. 3.
/// The merge leaves out pairs that no live message has, and the dead can no longer be found by their keys.
#[test]
fn the_dead_are_found_by_their_keys_after_runs_of_keys_were_merged() {
    const DEAD: usize = 50;
    let mut store = open(MemoryDisk::new(), ManualClock::new(start()));
    for number in 0..DEAD {
        store.put(Put::new(queue("dead"), format!("dead {number}")).key(key(number))).unwrap();
        let taken = store.take(Take::from(queue("dead"))).unwrap().remove(0);
        let action = Action::Bury { reason: None, priority: None };
        store.settle(Settle { receipt: taken.receipt, action }).unwrap();
    }
    for number in 0..COUNT {
        let put = Put::new(queue("far"), format!("body {number}")).after_ms(86_400_000).key(key(number));
        store.put(put).unwrap();
    }
    (0..100).for_each(|_| store.advance(1_000));
    let assert_found = |store: &mut Driven| {
        let engine = store.engine.clone();
        for number in 0..DEAD {
            let get = engine.get(queue("dead"), vec![Target::Key(key(number))], true);
            assert_eq!(store.run(get).pop().unwrap().unwrap().body, format!("dead {number}"));
        }
    };
    assert_found(&mut store);
    let (disk, clock) = store.close();
    let report = offline::check(&disk, dir()).unwrap();
    assert!(report.is_sound(), "{:?}", report.flaws);
    assert_found(&mut open(disk, clock));
}

#[test]
fn a_bound_that_a_run_cannot_have_is_refused() {
    for run_bytes in [0, Options::MIN_RUN_BYTES - 1, (3 << 30) + 1] {
        let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
        let options = Options { run_bytes, ..options(&disk, &clock) };
        let refused = Driven::open(disk, clock, options).err().unwrap();
        assert!(matches!(refused, OpenError::InvalidOption { option: "run_bytes", .. }), "{refused}");
    }
}

//! Burials in one millisecond: deaths are kept to the millisecond, and so the lower id is the older death.

use dwell_engine::Options;
use dwell_engine::disk::MemoryDisk;
use dwell_model::{MessageId, StateKind};
use dwell_store::{Action, Put, Selection, Settle, Store, Take, When};
use dwell_time::ManualClock;

use crate::support::{Driven, options, queue, start};

/// Buries messages in another order than that of their ids, all at one instant and others a millisecond later; returns
/// the ids in the order of deaths.
fn bury(store: &mut Driven) -> Vec<MessageId> {
    for at in 0..12 {
        store.put(Put::new(queue("q"), format!("body {at}"))).unwrap();
    }
    let mut taken = store.take(Take::from(queue("q")).max(12)).unwrap();
    let later = taken.split_off(8);
    let mut expected = Vec::new();
    for mut group in [later, taken] {
        let mut ids: Vec<MessageId> = group.iter().map(|one| one.message.id).collect();
        ids.sort_unstable();
        expected.extend(ids);
        group.reverse();
        group.swap(1, 3);
        for one in group {
            let action = Action::Bury { reason: None, priority: None };
            store.settle(Settle { receipt: one.receipt, action }).unwrap();
        }
        store.clock.advance(1);
    }
    expected
}

fn assert_oldest_first(store: &mut Driven, mut expected: Vec<MessageId>) {
    let engine = store.engine.clone();
    while !expected.is_empty() {
        let first = store.run(engine.peek(queue("q"), StateKind::Dead)).unwrap().unwrap();
        assert_eq!(first.id, expected[0]);
        let revived =
            store.run(engine.revive(queue("q"), Selection::Oldest(3), When::AfterMs(1_000))).unwrap();
        assert_eq!(revived.done, 3);
        for (at, id) in expected.drain(..3).enumerate().collect::<Vec<_>>() {
            let is_dead = store
                .dump()
                .iter()
                .any(|message| message.id == id && message.standing.state.kind() == StateKind::Dead);
            assert!(!is_dead, "{at} of three");
        }
    }
}

#[test]
fn burials_of_one_millisecond_are_in_the_order_of_ids_in_memory() {
    let mut store = Driven::new();
    let expected = bury(&mut store);
    assert_eq!(store.engine.counters().cold, 0);
    assert_oldest_first(&mut store, expected);
}

#[test]
fn burials_of_one_millisecond_are_in_the_order_of_ids_in_tables_and_after_a_restart() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let small = Options { memory_limit: 16 * 1024, ..options(&disk, &clock) };
    let mut store = Driven::open(disk, clock, small.clone()).unwrap();
    let expected = bury(&mut store);
    for at in 0..200 {
        store.put(Put::new(queue("far"), format!("far {at}")).after_ms(86_400_000)).unwrap();
    }
    let counters = store.engine.counters();
    assert!(counters.cold > 150, "{counters:?}");
    let (disk, clock) = store.close();
    let mut store = Driven::open(disk, clock, small).unwrap();
    assert_oldest_first(&mut store, expected);
}

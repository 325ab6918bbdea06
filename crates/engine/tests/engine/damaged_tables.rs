//! Tables that cannot be read: moving messages out of other files continues.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use dwell_engine::Options;
use dwell_engine::disk::{Calls, Disk as _, Fault, MemoryDisk};
use dwell_model::MessageId;
use dwell_store::{Action, Put, Settle, Store, Take, Target};
use dwell_time::ManualClock;

use crate::support::{Driven, dir, options, queue, start};

fn put(store: &mut Driven, count: u64) -> Vec<MessageId> {
    let put = |number| Put::new(queue("far"), format!("body {number}")).after_ms(86_400_000);
    (0..count).map(|number| store.put(put(number)).unwrap().id).collect()
}

/// Cancels nine of ten.
fn cancel(store: &mut Driven, ids: &[MessageId]) {
    let engine = store.engine.clone();
    for (_, id) in ids.iter().enumerate().filter(|(at, _)| at % 10 != 0) {
        store.run(engine.cancel(queue("far"), vec![Target::Id(*id)])).pop().unwrap().unwrap();
    }
}

fn files(disk: &MemoryDisk) -> BTreeSet<String> {
    disk.list(dir()).unwrap().into_iter().filter(|name| name.starts_with("table-")).collect()
}

/// Crash story: 1. The files with the least in use cannot be read. 2. Each flush chooses them to be given up, moves
/// nothing out of them, and reaches no others: the space of settled messages is never freed.
#[test]
fn files_that_cannot_be_read_keep_no_others_from_being_given_up() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let options = Options { memory_limit: 256 * 1024, ..options(&disk, &clock) };
    let mut store = Driven::open(disk, clock, options).unwrap();
    let first = put(&mut store, 2_000);
    let bad = files(&store.disk);
    let second = put(&mut store, 2_000);
    cancel(&mut store, &first[..1_800]);
    assert!(bad.len() > 5 && bad.is_subset(&files(&store.disk)), "nothing was given up yet");
    bad.iter().for_each(|name| store.disk.rot_at(&dir().join(name), 100));
    let sparse: BTreeSet<String> = files(&store.disk).difference(&bad).cloned().collect();
    cancel(&mut store, &second[..1_800]);
    put(&mut store, 2_000);
    for _ in 0..100 {
        store.advance(1_000);
    }
    let left = files(&store.disk);
    assert!(bad.is_subset(&left), "what cannot be read stays");
    let stay = sparse.intersection(&left).count();
    assert!(stay * 3 <= sparse.len(), "{stay} of {} sparse files stay", sparse.len());
}

#[test]
fn a_queue_that_cannot_be_counted_is_nothing_to_the_listing_of_the_others() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let options = Options { memory_limit: 64 * 1024, ..options(&disk, &clock) };
    let mut store = Driven::open(disk, clock, options).unwrap();
    let engine = store.engine.clone();
    for at in 0..1_000 {
        for name in ["bad", "worse"] {
            store.put(Put::new(queue(name), format!("body {at}")).after_ms(60_000 + at * 1_000)).unwrap();
        }
    }
    store.put(Put::new(queue("good"), "x")).unwrap();
    let good = store.take(Take::from(queue("good")).lease_ms(86_400_000)).unwrap().remove(0);
    store.rest();
    store.advance(610_000);
    store.disk.fail(Fault { calls: Calls::Reads, after: 0, times: u64::MAX, error: ErrorKind::Other });
    // At the end of a block, and in a cached block, nothing is read.
    let is_counted =
        |store: &mut Driven| ["bad", "worse"].iter().any(|name| store.run(engine.stats(queue(name))).is_ok());
    for seconds in 0.. {
        if !is_counted(&mut store) {
            break;
        }
        assert!(seconds < 100, "no read is needed");
        store.advance(1_000);
    }
    for name in ["bad", "worse"] {
        assert_eq!(store.run(engine.stats(queue(name))).unwrap_err().code(), "unavailable", "{name}");
    }
    let list = |store: &mut Driven, after: Option<&str>, max| -> Vec<(String, Option<&str>)> {
        let page = store.run(engine.queues(after.map(queue), max)).unwrap();
        let shown =
            |stats: dwell_store::QueueStats| (stats.name.to_string(), stats.unread.map(|why| why.code()));
        page.into_iter().map(shown).collect()
    };
    let named = |name: &str, why| (name.to_owned(), why);
    let [bad, worse] = ["bad", "worse"].map(|name| named(name, Some("unavailable")));
    let all = [bad.clone(), named("good", None), worse.clone()];
    assert_eq!(list(&mut store, None, 10), all);
    assert_eq!(list(&mut store, None, 1), all[..1]);
    assert_eq!(list(&mut store, Some("bad"), 1), [named("good", None)]);
    let ready = store.engine.clone();
    assert_eq!(store.run(ready.ready()), Ok(()));
    store.settle(Settle { receipt: good.receipt, action: Action::Ack }).unwrap();
    assert_eq!(list(&mut store, None, 10), [bad, worse]);
    assert_eq!(store.run(ready.ready()), Ok(()), "a store that serves is ready");
    store.disk.heal_reads();
    assert_eq!(list(&mut store, None, 10), ["bad", "worse"].map(|name| named(name, None)));
}

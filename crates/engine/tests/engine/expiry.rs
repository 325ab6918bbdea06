//! Messages that expire while they lie in due files alone, where some of it can not be read.

use std::path::PathBuf;

use dwell_engine::Options;
use dwell_engine::disk::{Disk as _, MemoryDisk};
use dwell_model::Key;
use dwell_store::{Put, Selection, Store, When};
use dwell_time::ManualClock;

use crate::support::{Driven, dir, options, queue, start};

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;
/// So many of a queue expire.
const COUNT: u64 = 60;
const KEY: &str = "a key like no other";

/// A store that keeps about sixty messages in memory. In `q` and in `other` some expire after two hours, one of those in
/// `q` has a key; they lie in due files alone.
fn filled() -> Driven {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let options = Options { memory_limit: 16 * 1024, ..options(&disk, &clock) };
    let mut store = Driven::open(disk, clock, options).unwrap();
    for name in ["q", "other"] {
        for i in 0..COUNT {
            let expires = start().after(2 * HOUR_MS).unwrap();
            let put = Put { expires: Some(expires), ..Put::new(queue(name), format!("{name} {i}")) };
            let key = (name == "q" && i == 7).then(|| Key::new(KEY).unwrap());
            store.put(Put { key, ..put.after_ms(HOUR_MS) }).unwrap();
        }
        for i in 0..300 {
            store.put(Put::new(queue("far"), format!("far {i}")).after_ms(30 * DAY_MS)).unwrap();
        }
    }
    let counters = store.engine.counters();
    assert!(counters.resident < 100 && counters.cold > 2 * COUNT, "{counters:?}");
    store
}

/// The due file that has the message with the key, and where the key lies in it.
fn keyed(disk: &MemoryDisk) -> (PathBuf, u64) {
    let names = disk.list(dir()).unwrap().into_iter().filter(|name| name.starts_with("due-"));
    let mut found = names.filter_map(|name| {
        let path = dir().join(name);
        let bytes = disk.read_file(&path)?;
        let at = bytes.windows(KEY.len()).position(|window| window == KEY.as_bytes())?;
        Some((path, at as u64))
    });
    found.next().expect("the message was retired")
}

fn counts(store: &mut Driven, name: &str) -> (u64, u64) {
    let engine = store.engine.clone();
    let counts = store.run(engine.stats(queue(name))).unwrap().counts;
    (counts.scheduled + counts.ready, counts.dead)
}

/// The codes of what all calls say that sweep `q`.
fn sweeps(store: &mut Driven) -> Vec<&'static str> {
    let engine = store.engine.clone();
    let mut said = vec![store.run(engine.purge(queue("q"))).map(drop)];
    for which in [Selection::All, Selection::Oldest(1)] {
        said.push(store.run(engine.revive(queue("q"), which.clone(), When::AfterMs(DAY_MS))).map(drop));
        said.push(store.run(engine.discard(queue("q"), which)).map(drop));
    }
    said.into_iter().map(|said| said.map_or_else(|refusal| refusal.code(), |()| "done")).collect()
}

#[test]
fn a_rotten_block_keeps_nothing_else_from_expiring_and_is_not_read_by_each_call() {
    let mut store = filled();
    let (path, at) = keyed(&store.disk);
    store.disk.rot_at(&path, at);
    store.advance(2 * HOUR_MS);
    assert_eq!(counts(&mut store, "other"), (0, COUNT));
    let (pending, dead) = counts(&mut store, "q");
    assert!(pending > 0 && pending + dead == COUNT, "{pending} {dead}");
    let call = |store: &mut Driven| {
        let engine = store.engine.clone();
        store.run(engine.stats(queue("none"))).unwrap_err();
        store.engine.counters().disk.reads
    };
    // What has expired is retired again meanwhile.
    (0..200).for_each(|_| _ = call(&mut store));
    let before = call(&mut store);
    (0..50).for_each(|_| _ = call(&mut store));
    assert_eq!(call(&mut store), before);
    for _ in 0..600 {
        store.advance(1_000);
        call(&mut store);
    }
    // After 1, 2, 4, … seconds, and then each minute.
    let tried = call(&mut store) - before;
    assert!((8..=20).contains(&tried), "{tried} reads");
}

#[test]
fn a_queue_is_swept_again_as_soon_as_all_of_it_can_be_read() {
    let mut store = filled();
    let engine = store.engine.clone();
    let (path, at) = keyed(&store.disk);
    store.disk.rot_at(&path, at);
    store.advance(2 * HOUR_MS);
    let before = counts(&mut store, "q");
    assert_eq!(sweeps(&mut store), ["unavailable"; 5]);
    assert_eq!(counts(&mut store, "q"), before);
    let refused = store.run(engine.purge(queue("q"))).unwrap_err();
    assert!(refused.to_string().contains("have expired that can not be read"), "{refused}");
    assert!(refused.to_string().contains("checksum"), "{refused}");
    assert_eq!(
        store.run(engine.purge(queue("far"))),
        Ok(600),
        "another queue's messages may lie beside them"
    );
    assert_eq!(store.run(engine.purge(queue("other"))), Ok(0));
    store.disk.heal_rot(|_| true);
    let swept = store.run(engine.discard(queue("q"), Selection::All)).unwrap();
    assert_eq!((swept.done, swept.refused_in_all), (COUNT, 0));
}

#[test]
fn what_can_be_read_again_expires_though_nobody_asks_for_it() {
    let mut store = filled();
    let (path, at) = keyed(&store.disk);
    store.disk.rot_at(&path, at);
    store.advance(2 * HOUR_MS);
    assert_ne!(counts(&mut store, "q"), (0, COUNT));
    store.disk.heal_rot(|_| true);
    store.advance(1_000);
    assert_eq!(counts(&mut store, "q"), (0, COUNT));
}

#[test]
fn a_queue_that_can_not_be_swept_can_be_deleted() {
    let mut store = filled();
    let engine = store.engine.clone();
    let (path, at) = keyed(&store.disk);
    store.disk.rot_at(&path, at);
    store.advance(2 * HOUR_MS);
    assert_eq!(store.run(engine.purge(queue("q"))).unwrap_err().code(), "unavailable");
    assert_eq!(store.run(engine.delete_queue(queue("q"))), Ok(COUNT));
    assert_eq!(store.run(engine.purge(queue("q"))), Ok(0));
}

/// Each byte of a file in turn, or nearly: blocks, expiries, and what is in memory while the file is open.
#[test]
fn wherever_a_file_is_rotten_all_expire_or_the_queue_is_not_swept() {
    let mut refused = 0;
    let len = {
        let store = filled();
        store.disk.read_file(&keyed(&store.disk).0).unwrap().len() as u64
    };
    for offset in (0..len).step_by(1 + len as usize / 60) {
        let mut store = filled();
        let path = keyed(&store.disk).0;
        store.disk.rot_at(&path, offset);
        store.advance(2 * HOUR_MS);
        let (pending, dead) = counts(&mut store, "q");
        assert_eq!((pending + dead, counts(&mut store, "other")), (COUNT, (0, COUNT)), "byte {offset}");
        let all_expired = pending == 0;
        let engine = store.engine.clone();
        let purged = store.run(engine.purge(queue("q")));
        assert_eq!(purged.is_ok(), all_expired, "byte {offset}: {purged:?}");
        refused += u64::from(!all_expired);
        store.disk.heal_rot(|_| true);
        assert_eq!(store.run(engine.purge(queue("q"))), Ok(0), "byte {offset}");
        assert_eq!(counts(&mut store, "q"), (0, COUNT), "byte {offset}");
    }
    assert!(refused > 5, "{refused}");
}

//! Runs that cannot be read: they are rebuilt from tables, while all other calls continue.

use std::ops::Range;
use std::path::PathBuf;

use dwell_engine::disk::{Disk as _, MemoryDisk};
use dwell_engine::{BackgroundWork, Options};
use dwell_model::{Key, Message, Number};
use dwell_store::{Put, Store, Target};
use dwell_time::ManualClock;

use crate::support::{Driven, dir, options, queue, start};

const DAY_MS: u64 = 86_400_000;

/// A store that keeps about sixty messages in memory.
fn tiny() -> Driven {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let options = Options { memory_limit: 16 * 1024, ..options(&disk, &clock) };
    Driven::open(disk, clock, options).unwrap()
}

fn key(number: usize) -> Key {
    Key::new(&format!("key-{number}")).unwrap()
}

fn put(number: usize) -> Put {
    Put::new(queue("far"), format!("body {number}")).after_ms(DAY_MS).key(key(number))
}

fn put_all(store: &mut Driven, numbers: Range<usize>) {
    for number in numbers {
        if let Err(error) = store.put(put(number)) {
            panic!("put {number} is refused: {error}, {:?}", store.engine.counters());
        }
    }
}

/// The longest file whose name begins with `kind`.
fn longest(disk: &MemoryDisk, kind: &str) -> PathBuf {
    let files = disk.list(dir()).unwrap().into_iter().filter(|name| name.starts_with(kind));
    let files = files.map(|name| dir().join(name));
    files.max_by_key(|path| disk.read_file(path).unwrap().len()).unwrap()
}

fn by_key(store: &mut Driven, number: usize) -> dwell_store::Result<Message> {
    let engine = store.engine.clone();
    store.run(engine.get(queue("far"), vec![Target::Key(key(number))], false)).pop().unwrap()
}

/// Checks that all messages are found by key, by number and by id, and that no message gets the key of another.
fn assert_all_there(store: &mut Driven, count: usize) {
    let engine = store.engine.clone();
    for number in 0..count {
        let message = by_key(store, number).unwrap();
        assert_eq!(message.body, format!("body {number}"));
        let located = store.run(engine.locate(vec![message.number]));
        assert_eq!(located, [Ok(Some((queue("far"), message.id)))]);
    }
}

#[test]
fn a_run_with_a_bad_block_is_made_anew_from_tables_and_puts_go_on() {
    for kind in ["numbers-", "keys-"] {
        let (mut store, mut whole) = (tiny(), tiny());
        put_all(&mut store, 0..400);
        let path = longest(&store.disk, kind);
        store.disk.rot_at(&path, 60);
        let before = store.engine.counters();
        for hundred in 4..30 {
            put_all(&mut store, hundred * 100..hundred * 100 + 100);
            store.advance(1_000);
        }
        put_all(&mut whole, 0..3_000);
        let after = store.engine.counters();
        assert!(after.flushes - before.flushes > 50, "{kind}: {after:?}");
        let written = after.disk.written_bytes as f64 / whole.engine.counters().disk.written_bytes as f64;
        assert!(written < 1.1, "{kind}: {written} times what one writes whose disk is sound");
        assert!(after.runs < 30, "{kind}: {after:?}");
        assert!(store.disk.read_file(&path).is_none(), "{kind}: it was rebuilt");
        assert_eq!((after.runs_damaged, after.runs_rebuilt), (0, 1), "{kind}");
        assert_eq!(store.engine.background_failures(), []);
        assert_all_there(&mut store, 3_000);
        let mut store = store.reopen();
        assert_all_there(&mut store, 3_000);
    }
}

/// Crash story: a block of a run of keys cannot be read, nor a block of a table with messages whose keys it has. 1.
/// The run is merged without the block. 2. A caller puts a message with one of these keys, and now two have it.
#[test]
fn a_run_that_cannot_be_made_anew_stays_and_hides_no_key_while_all_else_goes_on() {
    for kind in ["numbers-", "keys-"] {
        let mut store = tiny();
        put_all(&mut store, 0..400);
        let path = longest(&store.disk, kind);
        let file = path.file_name().unwrap().to_str().unwrap().to_owned();
        store.disk.rot_at(&path, 60);
        // One in each table: the hidden pairs may be of any file.
        for name in store.disk.list(dir()).unwrap().into_iter().filter(|name| name.starts_with("table-")) {
            store.disk.rot_at(&dir().join(name), 100);
        }
        (0..400).for_each(|number| drop(by_key(&mut store, number)));
        for at in 0..20 {
            for number in 0..100 {
                let plain = format!("plain {at} {number}");
                store.put(Put::new(queue("far"), plain).after_ms(DAY_MS)).unwrap();
            }
            store.advance(1_000);
        }
        let counters = store.engine.counters();
        assert!(counters.flushes > 400 && counters.runs < 40, "{kind}: {counters:?}");
        assert_eq!((counters.runs_damaged, counters.runs_rebuilt), (1, 0), "{kind}");
        assert!(store.disk.read_file(&path).is_some(), "{kind}: it stays");
        let background_failures = store.engine.background_failures();
        let work = if kind == "keys-" { BackgroundWork::MergeKeys } else { BackgroundWork::MergeNumbers };
        let told = background_failures.iter().find(|trouble| trouble.work == work).unwrap();
        for part in [&*file, "byte 32", "table-000-", "cannot be rebuilt", "dwell engine repair"] {
            assert!(told.reason.contains(part), "{kind}: {part} is not in {told:?}");
        }
        assert!((2..12).contains(&told.times), "it rests longer and longer: {told:?}");
        for number in 0..400 {
            // Every message keeps its key.
            let refused = store.put(put(number)).unwrap_err();
            assert!(["key_taken", "unavailable"].contains(&refused.code()), "{kind}: {number}: {refused}");
        }
        store.disk.heal_rot(|name| name.starts_with("table-"));
        for _ in 0..700 {
            store.advance(1_000);
            let engine = store.engine.clone();
            let _ = store.run(engine.queues(None, 1));
        }
        let counters = store.engine.counters();
        assert_eq!((counters.runs_damaged, counters.runs_rebuilt), (0, 1), "{kind}");
        assert_eq!(store.engine.background_failures(), []);
        assert_all_there(&mut store, 400);
    }
}

/// A call that finds damage is refused, and the next one is not: the damaged run was rebuilt meanwhile.
#[test]
fn a_lookup_that_meets_a_bad_block_has_it_made_anew() {
    for kind in ["numbers-", "keys-"] {
        let mut store = tiny();
        put_all(&mut store, 0..400);
        let path = longest(&store.disk, kind);
        store.disk.rot_at(&path, 60);
        let refused = (0..400).filter(|number| by_key(&mut store, *number).is_err()).count();
        assert!((1..20).contains(&refused), "{kind}: {refused}");
        assert_all_there(&mut store, 400);
        assert_eq!(store.engine.counters().runs_rebuilt, 1, "{kind}");
    }
}

#[test]
fn a_bad_block_fails_those_numbers_alone_that_may_lie_there() {
    let mut store = tiny();
    put_all(&mut store, 0..400);
    let numbers: Vec<Number> = (1..=400).map(|number| Number::new(number).unwrap()).collect();
    store.disk.rot_at(&longest(&store.disk, "numbers-"), 60);
    let engine = store.engine.clone();
    let located = store.run(engine.locate(numbers));
    let refused = located.iter().filter(|located| located.is_err()).count();
    assert!((1..400).contains(&refused), "{refused} of 400");
    assert!(located.iter().flatten().all(Option::is_some));
}

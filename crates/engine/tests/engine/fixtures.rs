//! Data directories that released versions wrote stay readable forever.
//!
//! When a format is released, or a record is written with new fields, its name is added to `FIXTURES`, and
//! `DWELL_WRITE_FIXTURE=1 cargo test -p dwell-engine --test engine -- --ignored fixtures::write` writes
//! `tests/fixtures/<name>`; it never overwrites one. `expected.txt` is the output of this test: it changes when
//! messages get a new attribute, the data beside it never.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use dwell_engine::disk::{Disk, MemoryDisk};
use dwell_engine::{FORMAT_VERSION, Options};
use dwell_model::{AttemptLimit, Headers, Pause, Setting, SettingChange, State};
use dwell_store::{Action, OnConflict, Put, Selection, Settle, Store, Take, When};
use dwell_time::ManualClock;

use crate::support::{Driven, dir, options, queue, start};

/// Each format, and each addition to it without a new version, the newest last.
const FIXTURES: [&str; 1] = ["v1"];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// The contents of a directory, as text.
fn describe(store: &mut Driven) -> String {
    let engine = store.engine.clone();
    let mut text = String::new();
    for stats in store.run(engine.queues(None, 100)).unwrap() {
        let own: Vec<_> = stats.own.iter().collect();
        writeln!(text, "{} {:?} own {own:?}", stats.name, stats.counts).unwrap();
    }
    for mut message in store.dump() {
        if let State::Leased(lease) = &mut message.standing.state {
            lease.deadline_mono_ms = 0;
        }
        let body = String::from_utf8_lossy(&message.body).into_owned();
        let message = message.with_body(body);
        writeln!(text, "{message:?}").unwrap();
    }
    text
}

/// Records of every kind that a journal may have, over several segments and two incarnations.
fn write_all_kinds() -> (MemoryDisk, ManualClock) {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let open = |disk: &MemoryDisk| {
        // So little memory that much of it is in tables.
        let memory_limit = Options::MIN_MEMORY_LIMIT;
        let options = Options { segment_bytes: 4096, memory_limit, ..options(disk, &clock) };
        Driven::open(disk.clone(), clock.clone(), options).unwrap()
    };
    let mut store = open(&disk);
    let engine = store.engine.clone();
    let q = queue("orders");
    store.put(Put::new(q.clone(), "plain")).unwrap();
    let mut full = Put::new(q.clone(), "all attributes, ünïcode").after_ms(86_400_000);
    full = full.key("заказ 7".parse().unwrap()).priority(5).idempotency_key("token-1".parse().unwrap());
    full.headers = Headers::new([("content-type", "text/plain"), ("x-note", "é")]).unwrap();
    full.lease_ms = Some(12_345);
    full.max_attempts = Some(AttemptLimit::Unlimited);
    full.expires = Some(start().after(200_000_000).unwrap());
    store.put(full).unwrap();
    let keep = Put::new(q.clone(), "kept out").key("заказ 7".parse().unwrap());
    store
        .put(keep.on_conflict(OnConflict::Keep).idempotency_key("token-2".parse().unwrap()).after_ms(9_000))
        .unwrap();
    let keyed = |body: &'static str| Put::new(queue("orders"), body).key("k".parse().unwrap());
    store.put(keyed("replaced")).unwrap();
    store.put(keyed("replacing").on_conflict(OnConflict::Replace)).unwrap();
    for i in 0..30 {
        store.put(Put::new(queue("many"), format!("{i} ").repeat(100))).unwrap();
    }
    let taken = store.take(Take::from(queue("many")).max(8)).unwrap();
    let actions = [
        Action::Ack,
        Action::Retry { after_ms: Some(5_000), error: Some("no luck".into()), priority: Some(3) },
        Action::Release { after_ms: None, priority: None },
        Action::Bury { reason: Some("poison".into()), priority: None },
        Action::Bury { reason: None, priority: Some(0) },
        Action::Extend { lease_ms: Some(3_600_000) },
    ];
    for (taken, action) in taken.into_iter().zip(actions) {
        store.settle(Settle { receipt: taken.receipt, action }).unwrap();
    }
    let changes = vec![
        SettingChange::Set(Setting::LeaseMs(77_000)),
        SettingChange::Set(Setting::Levels(vec![1_000, 5_000, 10_000])),
        SettingChange::Set(Setting::Pause(Pause::Until(start().after(60_000).unwrap()))),
    ];
    store.run(engine.configure(q.clone(), changes)).unwrap();
    for name in ["purged", "discarded", "revived", "deleted"] {
        store.put(Put::new(queue(name), name)).unwrap();
        let taken = store.take(Take::from(queue(name))).unwrap().remove(0);
        if name != "purged" {
            let action = Action::Bury { reason: None, priority: None };
            store.settle(Settle { receipt: taken.receipt, action }).unwrap();
        }
        store.put(Put::new(queue(name), "another")).unwrap();
    }
    store.run(engine.purge(queue("purged"))).unwrap();
    store.run(engine.discard(queue("discarded"), Selection::All)).unwrap();
    store.run(engine.revive(queue("revived"), Selection::All, When::AfterMs(1_000))).unwrap();
    store.run(engine.delete_queue(queue("deleted"))).unwrap();
    clock.step_wall(start().after(10_000).unwrap());
    store.driver.turn();
    store.dump();
    clock.step_wall(start().after(2_000).unwrap());
    store.dump();
    drop(engine);
    store.close();
    let mut store = open(&disk);
    store.take(Take::from(queue("many")).lease_ms(1_000_000)).unwrap();
    store.put(Put::new(q, "by the second incarnation")).unwrap();
    store.close();
    (disk, clock)
}

/// A clock with the time at which the fixture was written.
fn clock() -> ManualClock {
    ManualClock::new(start().after(2_000).unwrap())
}

#[test]
#[ignore = "writes a fixture; see the top of this file"]
fn write() {
    let to = fixture(FIXTURES[FIXTURES.len() - 1]);
    if std::env::var_os("DWELL_WRITE_FIXTURE").is_none() {
        return;
    }
    assert!(!to.exists(), "{} is there already; a released format does not change", to.display());
    fs::create_dir_all(&to).unwrap();
    let (disk, _) = write_all_kinds();
    for name in disk.list(dir()).unwrap() {
        if name != "LOCK" {
            fs::write(to.join(&name), disk.read_file(&dir().join(&name)).unwrap()).unwrap();
        }
    }
    let mut store = Driven::on(disk, clock());
    fs::write(to.join("expected.txt"), describe(&mut store)).unwrap();
}

#[test]
fn every_format_that_was_released_is_read_as_it_was_meant() {
    assert!(FIXTURES.contains(&format!("v{FORMAT_VERSION}").as_str()));
    for name in FIXTURES {
        let from = fixture(name);
        let disk = MemoryDisk::new();
        for entry in fs::read_dir(&from).unwrap() {
            let entry = entry.unwrap();
            let file = entry.file_name().into_string().unwrap();
            if file != "expected.txt" {
                disk.put_file(&dir().join(file), fs::read(entry.path()).unwrap());
            }
        }
        let mut store = Driven::on(disk, clock());
        assert!(store.engine.report().was_closed && store.engine.report().cuts.is_empty());
        let expected = fs::read_to_string(from.join("expected.txt")).unwrap();
        assert_eq!(describe(&mut store), expected, "{name}");
        // Other state: idempotency keys, and which numbers were given.
        let put = Put::new(queue("orders"), "all attributes, ünïcode").key("заказ 7".parse().unwrap());
        let put = put.idempotency_key("token-1".parse().unwrap());
        let highest = store.numbers().into_iter().max().unwrap();
        assert!(store.put(put).unwrap().number < highest);
        assert!(store.put(Put::new(queue("orders"), "new")).unwrap().number > highest);
    }
}

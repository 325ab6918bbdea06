//! `dwell engine` in a process that may open far fewer files than the directory has.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]
#![cfg(unix)]

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use common::{Ran, dwell, run};
use dwell_engine::{Engine, Options};
use dwell_model::Timestamp;
use dwell_store::{Blocking, Put};
use dwell_time::ManualClock;

/// The limit of a tool on open files, including its output.
const ALLOWED: usize = 64;
const MESSAGES: u64 = 600;
const DAY_MS: u64 = 24 * 3_600_000;

/// `dwell engine ARGS` as a process with that limit.
fn engine(args: &[&str]) -> Ran {
    let plain = dwell();
    let mut command = Command::new("sh");
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.arg("-c").arg(format!("ulimit -n {ALLOWED} && exec \"$0\" \"$@\""));
    command.arg(plain.get_program()).arg("engine").args(args);
    run(command)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn files(dir: &Path, kind: &str) -> usize {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(kind)).count()
}

/// Messages of many days: some in tables, and others in a journal of more short segments than the limit.
fn directory(dir: &Path) {
    let clock = ManualClock::new(Timestamp::from_ms(1_795_000_000_000).unwrap());
    let options = |memory_limit| Options {
        clock: Arc::new(clock.clone()),
        memory_limit,
        segment_bytes: Options::MIN_SEGMENT_BYTES,
        ..Options::default()
    };
    let body = vec![b'x'; 2_000];
    for (memory_limit, numbers) in [(64 << 10, 0..MESSAGES / 2), (u64::MAX, MESSAGES / 2..MESSAGES)] {
        let engine = Engine::open(dir, options(memory_limit)).unwrap();
        let store = Blocking::new(Arc::new(engine.clone()));
        for number in numbers {
            let put = Put::new("q".parse().unwrap(), body.clone()).after_ms((number % 300 + 1) * DAY_MS);
            store.put_one(put).unwrap();
        }
        drop(store);
        engine.close().unwrap();
    }
}

#[test]
fn the_tools_need_few_files_however_many_there_are() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    directory(&data);
    println!("{} tables, {} segments", files(&data, "table-"), files(&data, "journal-"));
    assert!(files(&data, "journal-") > 2 * ALLOWED);

    let checked = engine(&["check", text(&data)]).ok().json();
    assert_eq!((checked["sound"].as_bool(), checked["messages"].as_u64()), (Some(true), Some(MESSAGES)));
    let stats = engine(&["stats", text(&data)]).ok().json();
    let count = |state: &str| stats["queues"][0][state].as_u64().unwrap();
    // Some may have fallen due since then.
    assert_eq!(count("scheduled") + count("ready"), MESSAGES);
    assert_eq!(engine(&["dump", text(&data)]).ok().lines().len() as u64, MESSAGES);
    for copies in [&[][..], &["--copy"]] {
        let backup = home.path().join(format!("backup{}", copies.len()));
        let made = engine(&[&["backup", text(&data), text(&backup)], copies].concat()).ok().json();
        assert_eq!(made["check"]["messages"], MESSAGES);
    }
    let mended = home.path().join("mended");
    let report = engine(&["repair", text(&data), text(&mended)]).ok().json();
    assert_eq!((report["messages"].as_u64(), report["sound"].as_bool()), (Some(MESSAGES), Some(true)));
    assert_eq!(report["lost"].as_array().unwrap().len(), 0, "{report}");
}

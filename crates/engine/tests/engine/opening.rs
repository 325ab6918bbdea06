//! Directories that cannot be opened: each a typed error that says what to do, and nothing in them changed.

use std::path::Path;

use dwell_engine::disk::MemoryDisk;
use dwell_engine::{Engine, FORMAT_VERSION, OpenError, Options};
use dwell_model::MessageId;
use dwell_store::{Put, Store as _};
use dwell_time::ManualClock;

use crate::support::{Driven, TempDir, dir, options, queue, start};

fn small() -> Options {
    Options { segment_bytes: 64 * 1024, ..Options::default() }
}

fn code(opened: Result<Engine, OpenError>) -> &'static str {
    opened.map(drop).unwrap_err().code()
}

#[test]
fn a_second_engine_in_this_process_is_kept_out_until_the_first_is_closed() {
    let dir = TempDir::new("second");
    let engine = Engine::open(dir.path().join("deep/er"), small()).unwrap();
    let error = Engine::open(dir.path().join("deep/er"), small()).map(drop).unwrap_err();
    assert_eq!(error.code(), "locked");
    assert!(error.is_retryable());
    engine.close().unwrap();
    drop(Engine::open(dir.path().join("deep/er"), small()).unwrap());
}

#[test]
fn a_directory_of_something_else_is_left_alone() {
    let dir = TempDir::new("foreign");
    std::fs::create_dir_all(dir.path()).unwrap();
    std::fs::write(dir.path().join("thesis.txt"), "years of work").unwrap();
    let error = Engine::open(dir.path(), small()).map(drop).unwrap_err();
    assert_eq!(error.code(), "foreign_directory");
    assert!(error.to_string().contains("thesis.txt"), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing was added");
}

#[test]
fn a_directory_that_has_lost_its_manifest_is_damaged_whatever_lies_beside() {
    let dir = TempDir::new("lost");
    Engine::open(dir.path(), small()).unwrap().close().unwrap();
    std::fs::write(dir.path().join("CONTROL"), "").unwrap();
    std::fs::remove_file(dir.path().join("MANIFEST")).unwrap();
    let error = Engine::open(dir.path(), small()).map(drop).unwrap_err();
    assert_eq!(error.code(), "damaged");
    assert!(error.to_string().contains("MANIFEST") && error.to_string().contains("repair"), "{error}");
}

#[test]
fn a_path_that_is_a_file_or_lies_below_one_is_no_directory() {
    let dir = TempDir::new("file");
    std::fs::create_dir_all(dir.path()).unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert_eq!(code(Engine::open(&file, small())), "not_a_directory");
    assert_eq!(code(Engine::open(file.join("below"), small())), "not_a_directory");
}

/// Names the directory to a process that may not write it.
const UNWRITABLE: &str = "DWELL_TEST_UNWRITABLE";

#[cfg(unix)]
#[test]
fn an_unwritable_directory_is_refused() {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    use std::process::Command;

    let place = TempDir::new("unwritable");
    let closed = place.path().join("closed");
    fs::create_dir_all(&closed).unwrap();
    for (dir, mode) in [(place.path(), 0o755), (&closed, 0o555)] {
        fs::set_permissions(dir, Permissions::from_mode(mode)).unwrap();
    }
    let is_root = fs::metadata(&closed).unwrap().uid() == 0;
    if !is_root {
        return refused_as_unwritable(&closed);
    }
    // No permission binds root: the same is tried as user `nobody`, with a copy of this program where that user can run
    // it.
    let program = place.path().join("program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let ran = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&program)
        .args(["--exact", "opening::as_somebody_who_may_not_write", "--ignored"])
        .env(UNWRITABLE, &closed)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("1 passed"), "{ran:?}");
}

#[test]
#[ignore = "run by an_unwritable_directory_is_refused, as another user"]
fn as_somebody_who_may_not_write() {
    refused_as_unwritable(std::env::var_os(UNWRITABLE).unwrap().as_ref());
}

fn refused_as_unwritable(closed: &Path) {
    for dir in [closed.to_owned(), closed.join("below")] {
        assert_eq!(code(Engine::open(&dir, small())), "unwritable", "{}", dir.display());
    }
    assert_eq!(std::fs::read_dir(closed).unwrap().count(), 0, "nothing was added");
}

#[test]
fn what_a_later_version_wrote_is_told_from_damage() {
    let mut store = Driven::new();
    store.put(Put::new(queue("q"), "x")).unwrap();
    let (disk, clock) = store.close();
    let path = dir().join("MANIFEST");
    let mut bytes = disk.read_file(&path).unwrap();
    bytes[8..10].copy_from_slice(&(FORMAT_VERSION + 1).to_le_bytes());
    let checksum = crc32fast::hash(&bytes[..60]);
    bytes[60..64].copy_from_slice(&checksum.to_le_bytes());
    disk.put_file(&path, bytes);
    let error = Driven::open(disk.clone(), clock.clone(), options(&disk, &clock)).map(drop).unwrap_err();
    assert!(matches!(error, OpenError::NewerFormat { found, known, .. }
        if (found, known) == (FORMAT_VERSION + 1, FORMAT_VERSION)));
    assert!(!error.is_retryable());
}

#[test]
fn a_directory_that_was_opened_too_often_is_refused() {
    let store = Driven::new();
    let (disk, clock) = store.close();
    let path = dir().join("MANIFEST");
    let mut bytes = disk.read_file(&path).unwrap();
    bytes[12..16].copy_from_slice(&MessageId::MAX_INCARNATION.to_le_bytes());
    let checksum = crc32fast::hash(&bytes[..60]);
    bytes[60..64].copy_from_slice(&checksum.to_le_bytes());
    disk.put_file(&path, bytes);
    let error = Driven::open(disk.clone(), clock.clone(), options(&disk, &clock)).map(drop).unwrap_err();
    assert_eq!(error.code(), "exhausted");
}

#[test]
fn options_out_of_bounds_are_refused_before_anything_is_made() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let good = || options(&disk, &clock);
    let mut large = good();
    large.limits.body_len = 65 << 20;
    for bad in [
        Options { segment_bytes: 4_095, ..good() },
        Options { segment_bytes: (1 << 30) + 1, ..good() },
        Options { durability: dwell_engine::Durability::IntervalMs(0), ..good() },
        Options { memory_limit: 4_095, ..good() },
        Options { open_files: 3, ..good() },
        large,
    ] {
        let error = Driven::open(disk.clone(), clock.clone(), bad).map(drop).unwrap_err();
        assert_eq!(error.code(), "invalid_option");
    }
    assert_eq!(disk.used(), 0);
}

#[test]
fn an_opening_that_was_cut_short_before_its_manifest_is_begun_anew() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    for name in ["LOCK", "MANIFEST.new"] {
        disk.put_file(&dir().join(name), b"half".to_vec());
    }
    let mut store = Driven::on(disk, clock);
    let engine = store.engine.clone();
    assert!(store.run(engine.queues(None, 10)).unwrap().is_empty());
}

/// Crash story: 1. A program opens `data` in its working directory, and changes to another directory, as daemons do. 2.
/// The next segment is begun there, where there is no `data`.
#[test]
fn a_directory_is_where_it_was_when_it_was_opened_though_the_program_goes_elsewhere() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new(start()));
    let (engine, driver) = Engine::open_driven("some/data", options(&disk, &clock)).unwrap();
    let whole = std::env::current_dir().unwrap().join("some/data");
    assert!(disk.read_file(&whole.join("MANIFEST")).is_some());
    assert!(disk.read_file(Path::new("some/data/MANIFEST")).is_none());
    drop((engine, driver));
    assert_eq!(code(Engine::open("", small())), "io");
}

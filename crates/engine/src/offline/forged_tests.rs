//! Invalid files with valid checksums: they are refused, and repaired, without a panic.

use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use dwell_model::Timestamp;
use dwell_store::{Put, Store as _, Take};
use dwell_time::{Clock as _, ManualClock};

use super::{Filter, RepairReport, check, dump, repair, stats};
use crate::disk::{Disk, MemoryDisk};
use crate::journal::format::{SegmentHeader, SegmentName};
use crate::manifest::Manifest;
use crate::{Driver, Engine, OpenError, Options};

fn dir() -> &'static Path {
    Path::new("/data")
}

fn clock() -> ManualClock {
    ManualClock::new(Timestamp::from_ms(1_795_000_000_000).unwrap())
}

fn open(disk: &MemoryDisk, clock: &ManualClock) -> Result<(Engine, Driver), OpenError> {
    let options = Options {
        disk: Arc::new(disk.clone()),
        clock: Arc::new(clock.clone()),
        segment_bytes: 8 * 1024,
        memory_limit: 16 * 1024,
        low_water_bytes: Some(0),
        seed: Some(3),
        ..Options::default()
    };
    Engine::open_driven(dir(), options)
}

fn run<T>(driver: &mut Driver, call: impl Future<Output = T>) -> T {
    let mut call = pin!(call);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..64 {
        if let Poll::Ready(answer) = call.as_mut().poll(&mut context) {
            return answer;
        }
        driver.turn();
    }
    panic!("the call waits");
}

fn mended(disk: &MemoryDisk) -> RepairReport {
    let new: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
    let report = repair(disk, dir(), &new, Path::new("/new"), clock().now(), 9).unwrap();
    assert!(report.check.is_sound(), "{:?}", report.check);
    report
}

#[test]
fn a_segment_whose_header_counts_as_nobody_does_is_told_and_its_batches_are_saved() {
    let (disk, clock) = (MemoryDisk::new(), clock());
    // The last batch could pass for a torn tail.
    for _ in 0..3 {
        let (engine, mut driver) = open(&disk, &clock).unwrap();
        run(&mut driver, engine.put(vec![Put::new("q".parse().unwrap(), "x")])).remove(0).unwrap();
    }
    for segment in [1, 2] {
        let name = SegmentName { directory: 3, shard: 0, segment };
        let path = dir().join(name.file_name());
        let sound = disk.read_file(&path).unwrap();
        let header = SegmentHeader::decode(sound.first_chunk().unwrap(), name).unwrap();
        for forged in [
            SegmentHeader { first: 0, ..header },
            SegmentHeader { oldest: segment + 1, ..header },
            SegmentHeader { first: u64::MAX - 1, ..header },
        ] {
            let disk = disk.copied();
            let mut bytes = sound.clone();
            bytes[..SegmentHeader::LEN].copy_from_slice(&forged.encode());
            disk.put_file(&path, bytes);
            let checked = check(&disk, dir()).unwrap();
            assert!(checked.flaws.iter().any(|flaw| flaw.file == path), "{forged:?}: {checked:?}");
            assert_eq!(mended(&disk).messages, 3, "{forged:?}");
        }
    }
}

/// A directory with tables, and leased messages in them.
fn with_held() -> (MemoryDisk, Manifest) {
    let (disk, clock) = (MemoryDisk::new(), clock());
    let (engine, mut driver) = open(&disk, &clock).unwrap();
    let put = |driver: &mut Driver, count: u64| {
        for at in 0..count {
            let put = Put::new("q".parse().unwrap(), format!("body {at}")).after_ms(1 + at * 1_000);
            run(driver, engine.put(vec![put])).remove(0).unwrap();
        }
    };
    put(&mut driver, 300);
    clock.advance(250_000);
    let taken = run(&mut driver, engine.take(Take::from("q".parse().unwrap()).max(5))).unwrap();
    assert_eq!(taken.len(), 5);
    put(&mut driver, 300);
    drop((engine, driver));
    let manifest = Manifest::read(&disk, dir()).unwrap();
    assert!(manifest.checkpoint.files.len() > 1 && manifest.checkpoint.held.len() > 1, "{manifest:?}");
    assert!(check(&disk, dir()).unwrap().is_sound());
    (disk, manifest)
}

#[test]
fn a_manifest_that_names_a_file_or_a_leased_message_twice_is_damaged() {
    let (disk, sound) = with_held();
    let messages = mended(&disk).messages;
    for doubles_held in [true, false] {
        let disk = disk.copied();
        let mut forged = sound.clone();
        let checkpoint = &mut forged.checkpoint;
        match doubles_held {
            true => checkpoint.held.push(checkpoint.held[0].clone()),
            false => checkpoint.files.push(checkpoint.files[0].clone()),
        }
        forged.write(&disk, dir()).unwrap();
        let now = clock().now();
        assert_eq!(open(&disk, &clock()).map(drop).unwrap_err().code(), "damaged");
        assert_eq!(stats(&disk, dir(), now).map(drop).unwrap_err().code(), "damaged");
        let dumped = dump(&disk, dir(), now, &Filter::default(), &mut |_| true);
        assert_eq!(dumped.map(drop).unwrap_err().code(), "damaged");
        let checked = check(&disk, dir()).unwrap();
        assert!(!checked.is_sound() && checked.messages.is_none(), "{checked:?}");
        let report = mended(&disk);
        assert!(report.messages == messages && report.lost.is_empty(), "{report:?}");
    }
}

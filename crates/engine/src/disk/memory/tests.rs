//! The disk in memory loses what it should, and no more.

use std::io;
use std::path::{Path, PathBuf};

use super::{Calls, Crash, Fault, MemoryDisk};
use crate::disk::Disk;

fn disk_with(bytes: &[u8]) -> (MemoryDisk, PathBuf) {
    let disk = MemoryDisk::new();
    let path = PathBuf::from("/d/f");
    disk.create_dir(Path::new("/d")).unwrap();
    let file = disk.create(&path).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync().unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    (disk, path)
}

#[test]
fn what_was_synced_stays_and_the_rest_goes() {
    let (disk, path) = disk_with(b"synced");
    let file = disk.open(&path).unwrap();
    file.write_at(b"later", 6).unwrap();
    assert_eq!(disk.read_file(&path).unwrap(), b"syncedlater");
    disk.create(Path::new("/d/new")).unwrap();
    disk.power_on(Crash::Drop);
    assert_eq!(disk.read_file(&path).unwrap(), b"synced");
    assert_eq!(disk.list(Path::new("/d")).unwrap(), ["f"]);
    assert!(file.write_at(b"x", 0).is_err(), "opened in an earlier life");
}

#[test]
fn what_a_process_left_unsynced_is_there_until_the_power_fails() {
    let (disk, path) = disk_with(b"synced");
    disk.open(&path).unwrap().write_at(b"later", 6).unwrap();
    disk.power_on(Crash::Keep);
    assert_eq!(disk.read_file(&path).unwrap(), b"syncedlater");
    disk.power_on(Crash::Drop);
    assert_eq!(disk.read_file(&path).unwrap(), b"synced");
    disk.open(&path).unwrap().write_at(b"later", 6).unwrap();
    disk.power_on(Crash::Keep);
    disk.open(&path).unwrap().sync().unwrap();
    disk.power_on(Crash::Drop);
    assert_eq!(disk.read_file(&path).unwrap(), b"syncedlater");
}

#[test]
fn a_file_whose_directory_was_not_synced_has_no_name() {
    let disk = MemoryDisk::new();
    disk.create_dir(Path::new("/d")).unwrap();
    disk.create(Path::new("/d/f")).unwrap().sync().unwrap();
    disk.power_on(Crash::Drop);
    assert!(disk.list(Path::new("/d")).unwrap().is_empty());
}

#[test]
fn a_rename_is_whole_or_not_at_all() {
    for seed in 0..64 {
        let (disk, path) = disk_with(b"old");
        let new = Path::new("/d/new");
        let file = disk.create(new).unwrap();
        file.write_at(b"new", 0).unwrap();
        file.sync().unwrap();
        disk.rename(new, &path).unwrap();
        disk.power_on(Crash::Holes(seed));
        let bytes = disk.read_file(&path).unwrap();
        assert!(bytes == b"old" || bytes == b"new");
    }
}

#[test]
fn torn_writes_keep_sectors_and_prefixes() {
    let (mut saw_hole, mut saw_prefix) = (false, false);
    for seed in 0..64 {
        for crash in [Crash::Holes(seed), Crash::Prefix(seed)] {
            let (disk, path) = disk_with(&[1; 2048]);
            let file = disk.open(&path).unwrap();
            file.write_at(&[2; 2048], 0).unwrap();
            disk.power_on(crash);
            let bytes = disk.read_file(&path).unwrap();
            let changes = bytes.windows(2).filter(|pair| pair[0] != pair[1]).count();
            match crash {
                Crash::Holes(_) => {
                    assert!(bytes.chunks(512).all(|sector| sector.iter().all(|b| *b == sector[0])));
                    saw_hole |= changes > 1;
                }
                _ => {
                    assert!(changes <= 1 && (changes == 0 || bytes[0] == 2));
                    saw_prefix |= changes == 1;
                }
            }
        }
    }
    assert!(saw_hole && saw_prefix);
}

#[test]
fn fails_at_the_call_that_was_named_and_runs_full() {
    let (disk, path) = disk_with(b"0123");
    let file = disk.open(&path).unwrap();
    disk.fail(Fault { calls: Calls::Syncs, after: 1, times: 1, error: io::ErrorKind::Other });
    assert!(file.sync().is_ok() && file.sync().is_err() && file.sync().is_ok());
    disk.set_capacity(Some(6));
    assert_eq!(file.write_at(b"4567", 4).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(disk.read_file(&path).unwrap(), b"012345", "as much as there was room for");
    assert!(file.write_at(b"9876", 0).is_ok(), "no growth");
    disk.power_off_at(disk.changes() + 2);
    file.write_at(b"a", 0).unwrap();
    assert!(file.write_at(b"b", 1).is_err() && file.sync().is_err() && disk.is_off());
    disk.power_on(Crash::Keep);
    assert_eq!(disk.read_file(&path).unwrap(), b"ab7645");
}

#[test]
fn a_lock_keeps_the_second_out_until_it_ends() {
    let (disk, _) = disk_with(b"");
    let lock = disk.lock(Path::new("/d/LOCK")).unwrap();
    assert!(lock.is_some());
    assert!(disk.lock(Path::new("/d/LOCK")).unwrap().is_none());
    drop(lock);
    assert!(disk.lock(Path::new("/d/LOCK")).unwrap().is_some());
    disk.power_on(Crash::Drop);
    assert!(disk.lock(Path::new("/d/LOCK")).unwrap().is_some());
}

#[test]
fn what_a_lost_sync_should_have_written_reads_well_and_is_not_there() {
    let (disk, path) = disk_with(b"synced");
    let file = disk.open(&path).unwrap();
    disk.lose_syncs(0, 1, None);
    file.write_at(b"later", 6).unwrap();
    assert!(file.sync().is_err());
    disk.power_on(Crash::Keep);
    let file = disk.open(&path).unwrap();
    assert!(file.sync().is_ok(), "there is nothing left to write");
    assert_eq!(disk.read_file(&path).unwrap(), b"syncedlater");
    file.write_at(b"!", 11).unwrap();
    disk.evict();
    assert_eq!(disk.read_file(&path).unwrap(), b"synced\0\0\0\0\0!", "what is dirty stays");
    file.write_at(b"later", 6).unwrap();
    file.sync().unwrap();
    disk.power_on(Crash::Drop);
    assert_eq!(disk.read_file(&path).unwrap(), b"syncedlater!");
}

#[test]
fn a_lost_sync_may_have_written_some_sectors() {
    let mut kept = Vec::new();
    for seed in 0..32 {
        let (disk, path) = disk_with(&[1; 2048]);
        let file = disk.open(&path).unwrap();
        disk.lose_syncs(0, 1, Some(seed));
        file.write_at(&[2; 2048], 0).unwrap();
        assert!(file.sync().is_err());
        disk.power_on(Crash::Drop);
        let bytes = disk.read_file(&path).unwrap();
        assert!(bytes.chunks(512).all(|sector| sector.iter().all(|b| *b == sector[0])));
        kept.push(bytes.iter().filter(|byte| **byte == 2).count());
    }
    assert!(kept.iter().any(|kept| (1..2048).contains(kept)), "{kept:?}");
}

#[test]
fn a_place_that_cannot_be_read_fails_until_it_is_written_anew() {
    let (disk, path) = disk_with(&[1; 2048]);
    let file = disk.open(&path).unwrap();
    disk.unreadable_at(&path, 512, 512);
    let read = |at: u64, len: usize| file.read_at(&mut vec![0; len], at);
    assert!(read(0, 512).is_ok() && read(1024, 1024).is_ok());
    assert_eq!(read(511, 2).unwrap_err().raw_os_error(), Some(5));
    assert!(read(1023, 1).is_err() && read(0, 2048).is_err() && disk.is_rotten());
    file.write_at(&[2; 100], 512).unwrap();
    assert!(read(512, 100).is_err(), "a part of a sector needs the rest of it");
    file.write_at(&[2; 512], 512).unwrap();
    assert!(read(0, 2048).is_ok() && !disk.is_rotten());
}

#[test]
fn a_process_without_a_file_left_and_a_disk_without_an_inode_are_told_apart() {
    let (disk, path) = disk_with(b"");
    let file = disk.open(&path).unwrap();
    disk.run_out_of_files(0, 2);
    assert_eq!(disk.open(&path).unwrap_err().raw_os_error(), Some(24));
    assert!(disk.create(Path::new("/d/new")).is_err() && disk.open(&path).is_ok());
    let creates = Fault { calls: Calls::Creates, after: 0, times: 1, error: io::ErrorKind::StorageFull };
    disk.fail(creates);
    assert!(disk.open(&path).is_ok() && file.write_at(b"x", 0).is_ok());
    assert_eq!(disk.create(Path::new("/d/new")).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert!(disk.create(Path::new("/d/new")).is_ok());
}

#[test]
fn copies_are_told_by_whether_they_can_be_read() {
    let (disk, path) = (MemoryDisk::new(), Path::new("/d/file"));
    disk.create_dir(Path::new("/d")).unwrap();
    let file = disk.create(path).unwrap();
    file.write_at(b"....12 a body....112 a body....12 a body", 0).unwrap();
    assert_eq!(disk.copies(b"12 a body", 4), (2, 0), "112 is another");
    disk.unreadable_at(path, 2, 1);
    assert_eq!(disk.copies(b"12 a body", 4), (1, 1), "what stands in front of it cannot be read");
    disk.rot_at(path, 39);
    assert_eq!(disk.copies(b"12 a body", 4), (0, 2));
    disk.heal_rot(|_| true);
    assert_eq!(disk.copies(b"12 a body", 0), (2, 0));
}

//! Tests of tables on a disk in memory: what is read back, with how many calls, and the effects of damage and
//! crashes.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dwell_model::{
    AttemptLimit, Counts, Death, DeathReason, Headers, MessageId, Number, Standing, State, Timestamp,
};

use super::transcript::{assert_no_lies, transcript};
use super::*;
use crate::disk::{Calls, CountedDisk, Crash, Disk, DiskCounts, Fault, LenientDisk, MemoryDisk};
use crate::sealed::{FileId, FileKind, ReadError};

const NAME: FileId = FileId { directory: 77, shard: 3, kind: FileKind::Table, number: 12 };

pub(crate) fn dir() -> &'static Path {
    Path::new("/d")
}

fn disk() -> MemoryDisk {
    let disk = MemoryDisk::new();
    disk.create_dir(dir()).unwrap();
    disk
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_ms(1_795_000_000_000 + ms).unwrap()
}

fn standing(state: State, due: Timestamp, priority: u32) -> Standing {
    Standing {
        state,
        due,
        priority,
        attempts: 0,
        expires: None,
        keyless: false,
        counts: Counts::default(),
        last_error: None,
        holder: None,
    }
}

/// A plain scheduled message of queue `q`.
fn plain(number: u64, due: i64) -> Entry {
    Entry {
        id: MessageId::new(at(due), NAME.shard, 5, number + 100),
        number: Number::new(number).unwrap(),
        queue: "q".parse().unwrap(),
        created: at(-1_000 + number as i64),
        key: None,
        headers: Headers::default(),
        lease_ms: None,
        max_attempts: None,
        standing: standing(State::Scheduled, at(due), 1_024),
        ready_since: Timestamp::MIN,
    }
}

/// Entries of all kinds, in the order of a file.
pub(crate) fn of_all_kinds() -> Vec<(Entry, Bytes)> {
    let mut full = plain(1, 500);
    full.key = Some("заказ 7".parse().unwrap());
    full.headers = Headers::new([("content-type", "text/plain"), ("x-note", "é")]).unwrap();
    full.lease_ms = Some(12_345);
    full.max_attempts = Some(AttemptLimit::Unlimited);
    full.standing.expires = Some(at(90_000));
    full.standing.attempts = 3;
    full.standing.keyless = true;
    full.standing.counts = Counts { takes: 7, lapses: 1, releases: 2, buries: 3, revives: 4 };
    full.standing.last_error = Some("no luck".into());
    full.ready_since = at(250);
    let mut dead = plain(2, 700);
    dead.standing.state = State::Dead(Death { reason: DeathReason::Expired, at: at(800) });
    dead.standing.expires = Some(at(750));
    let mut moved = plain(3, 900);
    moved.standing.due = at(60_000);
    let mut of_another_life = plain(4, 900);
    of_another_life.id = MessageId::new(at(900), NAME.shard + 1, 6, 1 << 39);
    let mut ready = plain(5, 10);
    ready.standing.state = State::Ready;
    let mut urgent = plain(6, 20);
    urgent.standing.priority = 0;
    let mut elsewhere = plain(7, 30);
    elsewhere.queue = "another".parse().unwrap();
    elsewhere.standing.expires = Some(at(90_000));
    let more = (8..12).map(|number| plain(number, 1_000));
    let mut entries: Vec<Entry> =
        [full, dead, moved, of_another_life, ready, urgent, elsewhere].into_iter().chain(more).collect();
    entries.sort_by_key(Entry::sort_key);
    entries.into_iter().map(|entry| (entry.clone(), Bytes::from(format!("body {}", entry.number)))).collect()
}

fn write(disk: &dyn Disk, entries: &[(Entry, Bytes)]) -> Arc<Table> {
    let mut writer = TableWriter::create(disk, dir(), NAME).unwrap();
    for (ordinal, (entry, body)) in (0..).zip(entries) {
        assert_eq!(writer.push(entry, body).unwrap(), ordinal);
    }
    Arc::new(writer.finish().unwrap())
}

fn read_all(file: &Arc<Table>) -> Vec<(Entry, Bytes)> {
    file.scan(0..file.len()).map(|read| read.unwrap()).map(|(found, body)| (found.entry, body)).collect()
}

#[test]
fn a_file_knows_how_often_its_bodies_were_written() {
    let disk = disk();
    assert_eq!(write(&disk, &[plain_with_body(1)]).writes(), 2, "to the journal and to it");
    for (noted, known) in [(3, 3), (0, 2)] {
        let mut writer = TableWriter::create(&disk, dir(), NAME).unwrap();
        for number in 1..4 {
            let (entry, body) = plain_with_body(number);
            writer.push(&entry, &body).unwrap();
            if number == 2 {
                writer.note_writes(noted);
            }
        }
        assert_eq!(writer.finish().unwrap().writes(), known);
        assert_eq!(Table::open(&disk, dir(), NAME).unwrap().writes(), known);
    }
}

/// This length decides when the next file is begun, long before the range of offsets is exhausted.
#[test]
fn a_writer_knows_how_long_its_file_is_so_far() {
    let disk = disk();
    let mut writer = TableWriter::create(&disk, dir(), NAME).unwrap();
    let (mut bodies, mut before) = (0, writer.bytes());
    for number in 1..=300 {
        let body = vec![7; if number % 50 == 0 { 90_000 } else { 700 }];
        writer.push(&plain(number, number as i64), &body).unwrap();
        bodies += body.len() as u64;
        let bytes = writer.bytes();
        assert!(
            (bodies..bodies + 100 * number).contains(&bytes),
            "{bytes} after {number}, {bodies} of bodies"
        );
        assert!(bytes >= before + body.len() as u64);
        before = bytes;
    }
    let size = writer.finish().unwrap().size();
    assert!((before - 1_000..before + 4_096).contains(&size), "{size}, and {before} without the index");
}

/// As the doc of [`Table`] has it.
#[test]
fn sections_blocks_and_expiries_are_what_a_file_has_in_memory() {
    let disk = disk();
    for (expire, sections) in [(0, 1), (1, 1), (1_024, 1), (1_025, 2), (5_000, 40)] {
        let mut entries: Vec<Entry> = (1..=6_000).map(|number| plain(number, number as i64)).collect();
        for (entry, at_most) in entries.iter_mut().zip(0..) {
            entry.standing.expires = (at_most < expire).then(|| at(90_000));
            entry.standing.priority = at_most % sections;
        }
        entries.sort_by_key(Entry::sort_key);
        let entries: Vec<_> =
            entries.into_iter().map(|entry| (entry, Bytes::from_static(&[7; 128]))).collect();
        let written = write(&disk, &entries);
        let file = Table::open(&disk, dir(), NAME).unwrap();
        assert_eq!((file.sections().len(), file.expiry_count()), (sections as usize, expire));
        let chunks = (expire as usize).div_ceil(1_024);
        let parts = 56 * sections as usize + 32 * file.index.blocks.len() + 24 * chunks;
        assert_eq!(file.memory(), size_of::<Table>() + parts, "{expire} expire, {sections} sections");
        assert_eq!(written.memory(), file.memory());
    }
}

fn plain_with_body(number: u64) -> (Entry, Bytes) {
    (plain(number, 1_000), Bytes::from("a body"))
}

#[test]
fn everything_is_read_as_it_was_written() {
    let disk = disk();
    let entries = of_all_kinds();
    let written = write(&disk, &entries);
    let opened = Arc::new(Table::open(&disk, dir(), NAME).unwrap());
    assert_eq!(written.index, opened.index);
    assert_eq!(read_all(&opened), entries);
    opened.verify(&mut |_| ()).unwrap();
    let sections: Vec<_> = opened
        .sections()
        .iter()
        .map(|section| (section.queue.as_str(), section.state, section.priority, section.count))
        .collect();
    let expected = [
        ("another", SectionState::Scheduled, 1_024, 1),
        ("q", SectionState::Ready, 1_024, 1),
        ("q", SectionState::Scheduled, 0, 1),
        ("q", SectionState::Scheduled, 1_024, 7),
        ("q", SectionState::Dead, 1_024, 1),
    ];
    assert_eq!(sections, expected);
    let expiries = opened.expiries(None, Timestamp::MAX, 10).unwrap();
    let numbers = expiries.iter().map(|(_, ordinal)| entries[*ordinal as usize].0.number.get());
    assert_eq!(numbers.collect::<Vec<_>>(), [2, 7, 1]);
    assert_eq!(opened.expiries(Some(expiries[0]), at(90_000), 1).unwrap(), expiries[1..2]);
    assert_eq!(opened.expiries(None, at(80_000), 10).unwrap(), expiries[..1]);
    assert_eq!(opened.first_expiry(), Some(at(750)));
}

/// 3,000 messages of two queues, several hundred at one instant, with bodies of 10 to 200 bytes.
pub(crate) fn many() -> Vec<(Entry, Bytes)> {
    let entry = |number: u64| {
        let due = if number.is_multiple_of(3) { 5_000 } else { (number * 7919 % 10_007) as i64 };
        let mut entry = plain(number, due);
        entry.standing.priority = (number % 2) as u32;
        entry.standing.expires = number.is_multiple_of(2).then(|| at((number * 31 % 997) as i64));
        entry
    };
    let mut entries: Vec<Entry> = (1..=3_000).map(entry).collect();
    entries.sort_by_key(Entry::sort_key);
    let body = |entry: &Entry| Bytes::from("x".repeat((entry.number.get() % 191 + 10) as usize));
    entries.into_iter().map(|entry| (entry.clone(), body(&entry))).collect()
}

#[test]
fn a_search_reads_one_block_and_a_get_too() {
    let disk = CountedDisk::new(Arc::new(disk()));
    let entries = many();
    let file = write(&disk, &entries);
    assert!(file.index.blocks.len() > 10 && file.sections().len() == 2);
    let reads = |what: &mut dyn FnMut()| {
        let before = disk.counts().reads;
        what();
        disk.counts().reads - before
    };
    for (section, key) in file.sections().iter().flat_map(|section| {
        let keys = entries[section.range().start as usize..section.range().end as usize].iter();
        keys.step_by(7).map(move |(entry, _)| (section, (entry.standing.due, entry.id.as_bits())))
    }) {
        for from in [key, (key.0, key.1 + 1), (key.0, 0), (at(-1), 0), (at(20_000), 0)] {
            let sorted = &entries[section.range().start as usize..section.range().end as usize];
            let right =
                sorted.partition_point(|(entry, _)| (entry.standing.due, entry.id.as_bits()) < from) as u32;
            let needed = reads(&mut || {
                assert_eq!(file.lower_bound(section, from).unwrap(), section.first + right);
            });
            assert!(needed <= 1);
        }
    }
    for ordinal in (0..file.len()).step_by(13) {
        let (entry, body) = &entries[ordinal as usize];
        let needed = reads(&mut || {
            let (found, read) = file.get(ordinal).unwrap();
            assert_eq!((&found.entry, &read), (entry, body));
            assert_eq!(file.body(entry.number, found.body).unwrap(), body, "a second read");
        });
        assert_eq!(needed, 2);
    }
    let mut found = Vec::new();
    let needed = reads(&mut || file.read(10..2_990, &mut found).unwrap());
    assert!(found.iter().map(|found| &found.entry).eq(entries[10..2_990].iter().map(|(entry, _)| entry)));
    assert_eq!(needed, file.size().div_ceil(crate::sealed::PIECE as u64 - 32 * 1024), "large reads");
    assert_eq!(
        reads(&mut || drop(Table::open(&disk, dir(), NAME).unwrap())),
        2,
        "header, and end with index"
    );
    let most = file.index.blocks.len() * 32 + size_of_val(file.sections()) + 1_024;
    assert!(file.memory() <= most, "{} bytes in memory", file.memory());
}

/// Ids of one instant rise by one from put to put, across sections: a search for what comes after a message of one
/// section may name the first message of another, and that one may begin a block.
#[test]
fn the_first_message_of_a_block_is_not_looked_for_in_another_lane() {
    let disk = disk();
    let mut numbers = 1..;
    let mut of_section = |priority: u32, count: usize| -> Vec<(Entry, Bytes)> {
        let numbers: Vec<u64> = numbers.by_ref().take(count).collect();
        let entry = |number: u64| {
            let mut entry = plain(number, 5_000);
            entry.standing.priority = priority;
            (entry, Bytes::from("x".repeat(1_000)))
        };
        numbers.into_iter().map(entry).collect()
    };
    let mut entries = of_section(0, 50);
    entries.extend(of_section(1, 200));
    // Put last, and yet at the end of the first section.
    entries.extend(of_section(0, 1));
    entries.sort_by_key(|(entry, _)| entry.sort_key());
    let file = write(&disk, &entries);
    let blocks = &file.index.blocks;
    let mut begins_with_next = 0;
    for section in file.sections() {
        let own = section.range();
        for (entry, _) in &entries {
            let key = (entry.standing.due, entry.id.as_bits());
            let spot = blocks.spot(file.holding(section, key) as usize);
            let is_of_section = spot.first < own.end && own.start < spot.first + spot.count;
            assert!(is_of_section, "{:?} leads to {spot:?}, and section {own:?} is elsewhere", entry.id);
            begins_with_next += usize::from(
                blocks.of(own.end - 1) + 1 < blocks.len() && {
                    let next = blocks.key(blocks.of(own.end - 1) + 1);
                    next == (key.0.as_ms(), key.1)
                },
            );
        }
    }
    assert!(begins_with_next > 0, "no block of another section begins with a key that was looked for");
}

#[test]
fn a_file_is_opened_with_two_reads_however_long_its_index_is() {
    for count in [1, 3_000, 60_000] {
        let disk = CountedDisk::new(Arc::new(disk()));
        let plain = |number| (plain(number, number as i64), Bytes::from([7; 128].as_slice()));
        let written = write(&disk, &(1..=count).map(plain).collect::<Vec<_>>());
        let before = disk.counts();
        let file = Table::open(&disk, dir(), NAME).unwrap();
        let after = disk.counts();
        assert_eq!(file.index, written.index);
        assert_eq!(after.reads - before.reads, 2, "header, and end with index: {count} messages");
        let most = 8 * 1024 + file.size() / 1_024;
        assert!(after.read_bytes - before.read_bytes < most, "{count} messages, {} bytes", file.size());
    }
}

#[test]
fn writes_are_large() {
    let disk = CountedDisk::new(Arc::new(disk()));
    let before = disk.counts();
    let entries: Vec<_> =
        (1..=20_000).map(|number| (plain(number, number as i64), Bytes::from([7; 128].as_slice()))).collect();
    let file = write(&disk, &entries);
    let writes = disk.counts().writes - before.writes;
    assert!(writes <= file.size() / (128 * 1024) + 1, "{writes} writes of {} bytes", file.size());
    assert_eq!(disk.counts().syncs - before.syncs, 1);
    let overhead = file.size() as f64 / 20_000.0 - 128.0;
    assert!(overhead < 20.0, "{overhead} bytes a message over its body");
}

#[test]
fn large_bodies_lie_alone_and_are_not_read_for_their_entries() {
    let disk = CountedDisk::new(Arc::new(disk()));
    let lens = [10, 20_000, 40_000, 70_000, 5, 3_000_000, 0, 30_000];
    let entries: Vec<_> = (1..)
        .zip(lens)
        .map(|(number, len)| (plain(number, number as i64), Bytes::from(vec![number as u8; len])))
        .collect();
    let file = write(&disk, &entries);
    assert_eq!(read_all(&file), entries);
    file.verify(&mut |_| ()).unwrap();
    let before = disk.counts().read_bytes;
    let mut found = Vec::new();
    file.read(0..file.len(), &mut found).unwrap();
    assert!(found.iter().map(|found| &found.entry).eq(entries.iter().map(|(entry, _)| entry)));
    assert!(disk.counts().read_bytes - before < 400_000);
    for (ordinal, (entry, body)) in (0..).zip(&entries) {
        let (found, read) = file.get(ordinal).unwrap();
        assert_eq!((&found.entry, &read), (entry, body));
    }
}

#[test]
fn heads_that_are_larger_than_a_glance_are_read_whole() {
    let disk = disk();
    let mut entry = plain(1, 1);
    entry.standing.last_error = Some("e".repeat(200_000).into());
    let entries = [(entry, Bytes::from_static(b"body")), (plain(2, 2), Bytes::new())];
    let file = write(&disk, &entries);
    assert_eq!(read_all(&file), entries);
    assert_eq!(file.get(0).unwrap().1, entries[0].1);
    assert_eq!(file.lower_bound(&file.sections()[0], (at(2), 0)).unwrap(), 1);
}

#[test]
fn a_flipped_byte_is_refused_or_changes_nothing() {
    let disk = disk();
    let whole = transcript(&write(&disk, &of_all_kinds()));
    assert!(whole.iter().all(Option::is_some));
    let path = dir().join(NAME.file_name());
    let bytes = disk.read_file(&path).unwrap();
    for byte in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[byte] ^= 1 << (byte % 8);
        disk.put_file(&path, damaged);
        if let Ok(file) = Table::open(&disk, dir(), NAME) {
            let file = Arc::new(file);
            assert_no_lies(&transcript(&file), &whole, &byte);
            let refusal = file.verify(&mut |_| ()).unwrap_err();
            assert!(matches!(refusal, ReadError::Damaged { .. }), "byte {byte}: {refusal}");
        }
    }
}

#[test]
fn a_cut_or_lengthened_file_is_refused() {
    let disk = disk();
    write(&disk, &of_all_kinds());
    let path = dir().join(NAME.file_name());
    let bytes = disk.read_file(&path).unwrap();
    for len in (0..bytes.len()).chain([bytes.len() + 1, bytes.len() + 100]) {
        let mut damaged = bytes.clone();
        damaged.resize(len, 0);
        disk.put_file(&path, damaged);
        let refusal = Table::open(&disk, dir(), NAME).unwrap_err();
        assert!(matches!(refusal, ReadError::Damaged { .. }), "length {len}: {refusal}");
    }
    disk.put_file(&path, bytes.clone());
    let elsewhere = FileId { directory: 78, ..NAME };
    disk.put_file(&dir().join(elsewhere.file_name()), bytes);
    assert!(Table::open(&disk, dir(), elsewhere).is_err(), "a file of another directory");
}

#[test]
fn damage_is_told_with_file_offset_and_reason() {
    let disk = disk();
    let entries = many();
    let file = write(&disk, &entries);
    let path = dir().join(NAME.file_name());
    let mut bytes = disk.read_file(&path).unwrap();
    let (found, _) = file.get(1_500).unwrap();
    bytes[found.body.at as usize + 4] ^= 1;
    disk.put_file(&path, bytes);
    let file = Table::open(&disk, dir(), NAME).unwrap();
    let error = std::io::Error::from(file.get(1_500).unwrap_err());
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
    let text = format!("/d/table-003-0000000012 is damaged at byte {}: the body", found.body.at);
    assert!(error.to_string().starts_with(&text), "{error}");
    assert_eq!(crate::OpenError::from(file.verify(&mut |_| ()).unwrap_err()).code(), "damaged");
    assert!(file.get(1_499).is_ok(), "its neighbours are whole");
}

#[test]
fn what_was_finished_survives_and_a_failing_disk_is_an_error() {
    let entries = many();
    let write_on = |disk: &MemoryDisk| -> std::io::Result<()> {
        let mut writer = TableWriter::create(disk, dir(), NAME)?;
        for (entry, body) in &entries {
            writer.push(entry, body)?;
        }
        writer.finish()?;
        disk.sync_dir(dir())
    };
    let changes = {
        let disk = disk();
        let before = disk.changes();
        write_on(&disk).unwrap();
        let changes = disk.changes() - before;
        disk.power_off();
        disk.power_on(Crash::Drop);
        let file = Arc::new(Table::open(&disk, dir(), NAME).unwrap());
        assert_eq!(read_all(&file), entries);
        changes
    };
    for after in 0..changes {
        let disk = disk();
        let fault = Fault { calls: Calls::Changes, after, times: 1, error: std::io::ErrorKind::StorageFull };
        disk.fail(fault);
        assert_eq!(write_on(&disk).unwrap_err().kind(), std::io::ErrorKind::StorageFull, "{after}");
        disk.heal();
        write_on(&disk).unwrap();
        assert!(Table::open(&disk, dir(), NAME).is_ok(), "a second try takes the place of the first");
    }
    let disk = disk();
    write_on(&disk).unwrap();
    let file = Table::open(&disk, dir(), NAME).unwrap();
    disk.fail(Fault { calls: Calls::Reads, after: 0, times: 1, error: std::io::ErrorKind::Other });
    assert!(matches!(file.get(0), Err(ReadError::Io { .. })));
    assert!(file.get(0).is_ok());
}

#[test]
#[should_panic(expected = "out of order")]
fn entries_out_of_order_are_a_mistake() {
    let disk = disk();
    let mut writer = TableWriter::create(&disk, dir(), NAME).unwrap();
    writer.push(&plain(2, 2), b"").unwrap();
    let _ = writer.push(&plain(1, 1), b"");
}

#[test]
#[should_panic(expected = "out of order")]
fn sections_out_of_order_are_a_mistake() {
    let disk = disk();
    let mut writer = TableWriter::create(&disk, dir(), NAME).unwrap();
    writer.push(&plain(1, 1), b"").unwrap();
    let mut urgent = plain(2, 2);
    urgent.standing.priority = 1;
    let _ = writer.push(&urgent, b"");
}

/// What `salvage` finds: the intact messages, and the number of other parts.
fn salvaged(disk: &MemoryDisk) -> (Vec<(u32, Entry, Bytes)>, usize) {
    let (mut saved, mut others) = (Vec::new(), 0);
    let mut each = |salvaged| match salvaged {
        Salvaged::Message { ordinal, entry, body } => saved.push((ordinal, entry, body)),
        Salvaged::Bodiless { .. } | Salvaged::Lost { .. } => others += 1,
    };
    salvage(disk, dir(), NAME, &mut each).unwrap();
    (saved, others)
}

#[test]
fn what_is_cut_off_where_a_block_ends_is_missed() {
    let disk = disk();
    let entries: Vec<_> = many().into_iter().take(900).collect();
    let file = write(&disk, &entries);
    let path = dir().join(NAME.file_name());
    let bytes = disk.read_file(&path).unwrap();
    let second = file.index.blocks.spot(1);
    for (cut, whole) in [(0, 0), (second.at, second.first)] {
        disk.put_file(&path, bytes[..cut as usize].to_vec());
        let (mut saved, mut lost) = (0, None);
        let mut each = |salvaged| match salvaged {
            Salvaged::Message { .. } => saved += 1,
            salvaged => lost = Some(salvaged),
        };
        salvage(&disk, dir(), NAME, &mut each).unwrap();
        let end = u64::from(cut);
        assert_eq!((saved, lost), (whole, Some(Salvaged::Lost { from: end, to: end, entries: None })));
    }
}

#[test]
fn all_but_the_damaged_block_is_saved_with_and_without_an_index() {
    let disk = disk();
    let entries: Vec<_> = many().into_iter().take(900).collect();
    let file = write(&disk, &entries);
    let all: Vec<_> =
        (0..).zip(&entries).map(|(ordinal, (entry, body))| (ordinal, entry.clone(), body.clone())).collect();
    assert_eq!(salvaged(&disk), (all.clone(), 0));
    let path = dir().join(NAME.file_name());
    let bytes = disk.read_file(&path).unwrap();
    let second = file.index.blocks.spot(1);
    let without_second: Vec<_> = all
        .iter()
        .filter(|(ordinal, ..)| !(second.first..second.first + second.count).contains(ordinal))
        .cloned()
        .collect();
    let (found, _) = file.get(3).unwrap();
    for loses_index in [false, true] {
        let mut bytes = bytes.clone();
        if loses_index {
            let index_at = file.opened.index_at as usize;
            bytes[..crate::sealed::HEADER_LEN].fill(0);
            bytes.truncate(index_at + 5);
            disk.put_file(&path, bytes.clone());
            assert_eq!(salvaged(&disk), (all.clone(), 2), "before the first block, and behind the last");
        }
        for at in [0, 5, 9, 13, 30] {
            let mut bytes = bytes.clone();
            bytes[second.at as usize + at] ^= 1;
            disk.put_file(&path, bytes);
            let (saved, others) = salvaged(&disk);
            assert_eq!((saved, others), (without_second.clone(), if loses_index { 3 } else { 1 }), "{at}");
        }
        bytes[found.body.at as usize + 6] ^= 1;
        disk.put_file(&path, bytes);
        let (saved, _) = salvaged(&disk);
        assert!(saved.iter().eq(all.iter().filter(|(ordinal, ..)| *ordinal != 3)), "a damaged body");
    }
}

/// What can be saved through a lenient disk, and the number and size of the reads of the disk below it.
fn saved_leniently(disk: &MemoryDisk) -> (Vec<u32>, usize, DiskCounts) {
    let counted = CountedDisk::new(Arc::new(disk.clone()));
    let (mut saved, mut bodiless) = (Vec::new(), 0);
    let mut each = |salvaged| match salvaged {
        Salvaged::Message { ordinal, .. } => saved.push(ordinal),
        Salvaged::Bodiless { .. } => bodiless += 1,
        Salvaged::Lost { .. } => {}
    };
    salvage(&LenientDisk::new(Arc::new(counted.clone())), dir(), NAME, &mut each).unwrap();
    (saved, bodiless, counted.counts())
}

#[test]
fn a_sector_that_cannot_be_read_costs_what_lies_in_it_alone() {
    let disk = disk();
    // Longer than two sectors, so that each sector has one.
    let entries: Vec<_> =
        many().into_iter().take(900).map(|(entry, _)| (entry, Bytes::from(vec![7; 1_500]))).collect();
    let file = write(&disk, &entries);
    let path = dir().join(NAME.file_name());
    let body = u64::from(file.get(300).unwrap().0.body.at);
    let in_index = disk.copied();
    in_index.unreadable_at(&path, file.size() - 10, 1);
    let (saved, bodiless, counts) = saved_leniently(&in_index);
    assert_eq!((saved.len(), bodiless), (900, 0));
    assert!(counts.reads < 10_000 && counts.read_bytes < 8 * file.size(), "{counts:?}");
    for has_index in [true, false] {
        let disk = disk.copied();
        disk.unreadable_at(&path, body + 700, 1);
        if !has_index {
            disk.unreadable_at(&path, 0, 1);
        }
        let (saved, bodiless, counts) = saved_leniently(&disk);
        let lost: Vec<u32> = (0..900).filter(|ordinal| saved.binary_search(ordinal).is_err()).collect();
        // The file header stands before the first block in the sector.
        let first = file.index.blocks.spot(0);
        let all_but = |ordinal: &u32| *ordinal == 300 || !has_index && *ordinal < first.count;
        assert!(bodiless == 1 && lost.contains(&300) && lost.iter().all(all_but), "{has_index}: {lost:?}");
        assert!(counts.reads < 10_000 && counts.read_bytes < 8 * file.size(), "{counts:?}");
    }
}

#[test]
fn a_body_that_is_full_of_what_blocks_begin_with_is_no_more_work_than_another() {
    let disk = disk();
    let unit: Vec<u8> = [1_u32, 1, 900_000].into_iter().flat_map(u32::to_le_bytes).collect();
    let body = |number: u64| if number == 1 { unit.repeat(5_461) } else { vec![b'x'; 10 * 1024] };
    let entries: Vec<_> =
        (1..=101).map(|number| (plain(number, number as i64), Bytes::from(body(number)))).collect();
    let file = write(&disk, &entries);
    let path = dir().join(NAME.file_name());
    let mut bytes = disk.read_file(&path).unwrap();
    // The first block's header is in the same sector as the file's.
    bytes[..512].fill(0);
    disk.put_file(&path, bytes);
    let (saved, bodiless, counts) = saved_leniently(&disk);
    assert_eq!((saved, bodiless), ((1..101).collect(), 0));
    assert!(counts.read_bytes < 4 * file.size(), "{counts:?}");
}

#[test]
fn a_file_that_was_not_finished_is_refused_or_whole() {
    let entries: Vec<_> = many().into_iter().take(800).collect();
    let (mut refused, mut whole) = (0, 0);
    let right = transcript(&write(&disk(), &entries));
    for seed in 0..24 {
        for crash in [Crash::Holes(seed), Crash::Prefix(seed)] {
            let disk = disk();
            // The file's sync is the last of its changes, the directory's follows.
            let mut writer = TableWriter::create(&disk, dir(), NAME).unwrap();
            entries.iter().for_each(|(entry, body)| drop(writer.push(entry, body)));
            disk.power_off_at(disk.changes() + 2 + seed % 3);
            let finished = writer.finish().and_then(|_| disk.sync_dir(dir()));
            disk.power_off();
            disk.power_on(crash);
            match Table::open(&disk, dir(), NAME) {
                Ok(file) => {
                    let file = Arc::new(file);
                    assert_no_lies(&transcript(&file), &right, &(seed, crash));
                    let is_whole = file.verify(&mut |_| ()).is_ok();
                    assert!(is_whole || finished.is_err(), "{seed} {crash:?}");
                    whole += usize::from(is_whole);
                }
                Err(_) => {
                    assert!(finished.is_err(), "{seed} {crash:?}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 5 && whole > 5, "{refused} refused, {whole} whole");
}

//! Tables: what was written is read, in every way; and a damaged file gives no wrong answer.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dwell_model::{
    AttemptLimit, Counts, Death, DeathReason, Headers, MessageId, Number, QueueName, Standing, State,
    Timestamp,
};

use super::input::Input;
use crate::disk::{Disk as _, MemoryDisk};
use crate::sealed::{FileId, FileKind};
use crate::table::transcript::{assert_no_lies, transcript};
use crate::table::{Entry, Table, TableEntry, TableWriter};

const NAME: FileId = FileId { directory: 7, shard: 0, kind: FileKind::Table, number: 1 };

fn dir() -> &'static Path {
    Path::new("/data")
}

/// The number of messages (one byte); the messages; then changes to the file: offset (2 bytes), and the bits to flip.
pub fn table(data: &[u8]) {
    let mut input = Input::new(data);
    let entries = entries(&mut input);
    if entries.is_empty() {
        return;
    }
    let (disk, written) = written(&entries);
    let file = Arc::new(Table::open(&disk, dir(), NAME).expect("it was just written"));
    file.verify(&mut |_| ()).expect("it was just written");
    let whole = transcript(&file);
    assert_eq!(written.sections(), file.sections(), "an index is read as it was written");
    check(&file, &entries, &mut input);

    let path = dir().join(NAME.file_name());
    let mut bytes = disk.read_file(&path).expect("it was written");
    while !input.is_empty() {
        let at = usize::from(input.u16()) % bytes.len();
        bytes[at] ^= input.u8();
    }
    disk.put_file(&path, bytes.clone());
    if let Ok(file) = Table::open(&disk, dir(), NAME) {
        assert_no_lies(&transcript(&Arc::new(file)), &whole, &"damaged");
    }
}

/// A file that holds these entries.
pub(super) fn written(entries: &[(Entry, Bytes)]) -> (MemoryDisk, Arc<Table>) {
    let disk = MemoryDisk::new();
    disk.create_dir(dir()).expect("this disk does not fail");
    let mut writer = TableWriter::create(&disk, dir(), NAME).expect("this disk does not fail");
    for (ordinal, (entry, body)) in (0..).zip(entries) {
        assert_eq!(writer.push(entry, body).expect("this disk does not fail"), ordinal);
    }
    let file = writer.finish().expect("this disk does not fail");
    (disk, Arc::new(file))
}

/// Messages in the order of a file.
pub(super) fn entries(input: &mut Input<'_>) -> Vec<(Entry, Bytes)> {
    let count = u64::from(input.u8() % 64);
    let mut entries: Vec<(Entry, Bytes)> = (1..=count).map(|number| entry(input, number)).collect();
    entries.sort_by_key(|(entry, _)| entry.sort_key());
    entries
}

/// Decodes two bytes of choices, and the values chosen.
fn entry(input: &mut Input<'_>, nth: u64) -> (Entry, Bytes) {
    let choices = input.u16();
    let chosen = |bit: u16| choices >> bit & 1 == 1;
    let queue: QueueName =
        ["a", "b", "long-name"][usize::from(choices & 3) % 3].parse().expect("a queue's name");
    let near = |input: &mut Input<'_>| {
        Timestamp::from_ms(1_795_000_000_000 + i64::from(input.u8() % 8)).expect("it lies in 2026")
    };
    let due = if chosen(2) { input.instant() } else { near(input) };
    let put_for = if chosen(3) { input.instant() } else { due };
    let number = if chosen(4) { (u64::from(input.u32()) << 6) + nth } else { nth };
    let counter =
        if chosen(5) { input.u64() & MessageId::MAX_COUNTER } else { number & MessageId::MAX_COUNTER };
    // The shard distinguishes those that have everything else in common.
    let id = MessageId::new(put_for, nth as u16, u32::from(choices >> 6 & 1), counter);
    let state = match choices >> 7 & 3 {
        0 => State::Ready,
        1 => {
            let reasons = [DeathReason::AttemptsSpent, DeathReason::Buried, DeathReason::Expired];
            State::Dead(Death { reason: reasons[usize::from(input.u8() % 3)], at: input.instant() })
        }
        _ => State::Scheduled,
    };
    let mut standing = Standing {
        state,
        due,
        priority: if chosen(9) { u32::from(input.u8() % 3) } else { 1_024 },
        attempts: 0,
        expires: chosen(10).then(|| if chosen(4) { input.instant() } else { near(input) }),
        keyless: false,
        counts: Counts::default(),
        last_error: None,
        holder: None,
    };
    let mut entry = Entry {
        id,
        number: Number::new(number).expect("numbers begin with 1"),
        queue,
        created: if chosen(11) { input.instant() } else { near(input) },
        key: None,
        headers: Headers::default(),
        lease_ms: None,
        max_attempts: None,
        standing: standing.clone(),
        ready_since: Timestamp::MIN,
    };
    if chosen(12) {
        let text = String::from_utf8_lossy(input.take(9)).into_owned();
        entry.key = text.parse().ok();
        entry.headers = Headers::new([("x", text.as_str())]).unwrap_or_default();
        entry.lease_ms = Some(input.u64());
        entry.max_attempts =
            Some(if chosen(5) { AttemptLimit::Unlimited } else { AttemptLimit::At(NonZeroU32::MIN) });
        entry.ready_since = input.instant();
        standing.last_error = Some(text.into());
        standing.keyless = chosen(6);
        standing.attempts = input.u32();
        let mut count = || u32::from(input.u8());
        standing.counts =
            Counts { takes: count(), lapses: count(), releases: count(), buries: count(), revives: count() };
        entry.standing = standing;
    }
    let len = if chosen(13) { usize::from(input.u16()) } else { usize::from(input.u8() % 32) };
    (entry, vec![nth as u8; len].into())
}

/// Compares what is read with what was written.
fn check(file: &Arc<Table>, entries: &[(Entry, Bytes)], input: &mut Input<'_>) {
    let scanned = file.scan(0..file.len()).map(|read| read.expect("it is whole"));
    assert!(scanned.map(|(found, body)| (found.entry, body)).eq(entries.iter().cloned()));
    let mut sections = 0;
    for (at, section) in file.sections().iter().enumerate() {
        let ours = &entries[section.range().start as usize..section.range().end as usize];
        assert!(ours.iter().all(|(entry, _)| section.takes(entry)));
        assert!(section.range().all(|ordinal| file.section_of(ordinal) == at));
        assert_eq!(section.body_bytes, ours.iter().map(|(_, body)| body.len() as u64).sum::<u64>());
        sections += ours.len();
        let key = |entry: &Entry| (entry.standing.due, entry.id.as_bits());
        let from = (input.instant(), u128::from(input.u64()) << 64);
        for from in ours.iter().map(|(entry, _)| key(entry)).chain([from]) {
            let right = ours.partition_point(|(entry, _)| key(entry) < from) as u32;
            assert_eq!(file.lower_bound(section, from).expect("it is whole"), section.first + right);
        }
    }
    assert_eq!(sections, entries.len());
    for (ordinal, (entry, body)) in (0..).zip(entries) {
        let (TableEntry { entry: found, body: place, .. }, read) = file.get(ordinal).expect("it is whole");
        assert_eq!((&found, &read), (entry, body));
        assert_eq!(file.body(entry.number, place).expect("it is whole"), body);
    }
    let (start, end) = (u32::from(input.u8()) % file.len(), u32::from(input.u8()) % file.len());
    let mut found = Vec::new();
    file.read(start..end.max(start), &mut found).expect("it is whole");
    assert!(found.iter().map(|found| found.ordinal).eq(start..end.max(start)));
    let mut found = Vec::new();
    let some: Vec<u32> = (start..file.len()).step_by(3).collect();
    file.read_at(&some, &mut found).expect("it is whole");
    assert!(found.iter().map(|found| found.ordinal).eq(some.iter().copied()));
    assert!(found.iter().all(|found| found.entry == entries[found.ordinal as usize].0));
    let expires =
        (0..).zip(entries).filter_map(|(ordinal, (entry, _))| Some((entry.standing.expires?, ordinal)));
    let mut expires: Vec<_> = expires.collect();
    expires.sort_unstable();
    assert_eq!(file.expiries(None, Timestamp::MAX, usize::MAX).expect("it is whole"), expires);
    if let Some(middle) = expires.get(expires.len() / 2) {
        let right: Vec<_> = expires.iter().copied().filter(|pair| pair > middle).take(2).collect();
        assert_eq!(file.expiries(Some(*middle), Timestamp::MAX, 2).expect("it is whole"), right);
    }
}

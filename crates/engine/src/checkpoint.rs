//! The checkpoint: everything that the journal before some segment recorded, as files and a few values.
//!
//! It is the second part of the manifest, and describes one moment: the beginning of the segment that it names.
//! Recovery loads it, and replays the journal from there. A varint is LEB128, an instant a varint of milliseconds
//! since 1970.
//!
//! | what | as |
//! |---|---|
//! | start: the segment at whose beginning this was the state; 0 if there is no checkpoint | varint |
//! | seen: the last reading of the wall clock before | instant |
//! | next file: sealed files of this number and higher are not of this checkpoint | varint |
//! | numbering: for each incarnation the number that went with its counter 0 | count, then pairs of varints |
//! | tables | count, then for each: number (varint), ripe (instant), settled entries (see `table::DeletionBitmap`) |
//! | runs of numbers, runs of keys, each newest first | count, then numbers of files |
//! | held messages | count, then for each: file and ordinal of its copy (varints); then a record `stands` for each |

use std::num::NonZeroU32;

use dwell_model::{Number, Standing, Timestamp};
use dwell_store::core::{CopyAt, Record};

use crate::journal::encoding::{ByteCursor, Read, Unreadable, put_varint};
use crate::journal::format::Salt;
use crate::journal::record::{BatchContext, Decoder, Encoder, Fact};
use crate::sealed::{FileId, FileKind};
use crate::table::DeletionBitmap;

/// What the checkpoint stores about a table beyond the file's own index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableState {
    pub(crate) number: u32,
    /// Scheduled entries that are due by then are ready.
    pub(crate) ready_until: Timestamp,
    /// Entries whose messages are deleted or have a newer copy.
    pub(crate) settled: DeletionBitmap,
}

/// A message that was leased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeasedMessage {
    /// A copy that is right except for the standing.
    pub(crate) copy: CopyAt,
    pub(crate) number: Number,
    pub(crate) standing: Standing,
}

/// The checkpoint; see the [module](self).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    pub(crate) start: u64,
    pub(crate) seen: Timestamp,
    pub(crate) next_file: u32,
    pub(crate) numbering: Vec<(u32, u64)>,
    pub(crate) files: Vec<TableState>,
    pub(crate) numbers: Vec<u32>,
    pub(crate) keys: Vec<u32>,
    pub(crate) held: Vec<LeasedMessage>,
}

impl Default for Checkpoint {
    /// The checkpoint of a directory whose journal is complete from its beginning.
    fn default() -> Checkpoint {
        Checkpoint {
            start: 0,
            seen: Timestamp::MIN,
            next_file: 1,
            numbering: Vec::new(),
            files: Vec::new(),
            numbers: Vec::new(),
            keys: Vec::new(),
            held: Vec::new(),
        }
    }
}

/// The name of a sealed file of shard 0.
pub(crate) fn file_name(directory: u64, kind: FileKind, number: u32) -> FileId {
    FileId { directory, shard: 0, kind, number }
}

/// The context for records in a checkpoint: they belong to no batch.
fn context() -> BatchContext {
    BatchContext { shard: 0, incarnation: 0, now: Timestamp::MIN, salt: Salt::of(b"") }
}

impl Checkpoint {
    /// The names of all its files.
    pub(crate) fn names(&self, directory: u64) -> impl Iterator<Item = FileId> {
        let of = move |kind, number: &u32| file_name(directory, kind, *number);
        let due = self.files.iter().map(move |file| of(FileKind::Table, &file.number));
        let numbers = self.numbers.iter().map(move |number| of(FileKind::Numbers, number));
        due.chain(numbers).chain(self.keys.iter().map(move |number| of(FileKind::Keys, number)))
    }

    pub(crate) fn encode(&self, directory: u64) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.start);
        put_instant(&mut out, self.seen);
        put_varint(&mut out, u64::from(self.next_file));
        put_varint(&mut out, self.numbering.len() as u64);
        for (incarnation, start) in &self.numbering {
            put_varint(&mut out, u64::from(*incarnation));
            put_varint(&mut out, *start);
        }
        put_varint(&mut out, self.files.len() as u64);
        for file in &self.files {
            put_varint(&mut out, u64::from(file.number));
            put_instant(&mut out, file.ready_until);
            file.settled.encode(file_name(directory, FileKind::Table, file.number).salt(), &mut out);
        }
        for runs in [&self.numbers, &self.keys] {
            put_varint(&mut out, runs.len() as u64);
            runs.iter().for_each(|run| put_varint(&mut out, u64::from(*run)));
        }
        put_varint(&mut out, self.held.len() as u64);
        for held in &self.held {
            put_varint(&mut out, u64::from(held.copy.file.get()));
            put_varint(&mut out, u64::from(held.copy.ordinal));
        }
        let mut encoder = Encoder::default();
        for LeasedMessage { number, standing, .. } in &self.held {
            let record = Record::Stands { number: *number, standing: standing.clone() };
            encoder.record(&mut out, context(), &record);
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8], directory: u64) -> Read<Checkpoint> {
        let mut cursor = ByteCursor::new(bytes);
        let start = cursor.varint()?;
        let seen = read_instant(&mut cursor)?;
        let next_file = read_u32(&mut cursor)?;
        let mut numbering = Vec::new();
        for _ in 0..cursor.varint()? {
            numbering.push((read_u32(&mut cursor)?, cursor.varint()?));
        }
        let mut files = Vec::new();
        for _ in 0..cursor.varint()? {
            let number = read_u32(&mut cursor)?;
            let ready_until = read_instant(&mut cursor)?;
            let salt = file_name(directory, FileKind::Table, number).salt();
            let (settled, len) = DeletionBitmap::decode(&bytes[cursor.position()..], salt)?;
            cursor.take(len)?;
            files.push(TableState { number, ready_until, settled });
        }
        let mut runs = [Vec::new(), Vec::new()];
        for runs in &mut runs {
            for _ in 0..cursor.varint()? {
                runs.push(read_u32(&mut cursor)?);
            }
        }
        let mut copies = Vec::new();
        for _ in 0..cursor.varint()? {
            let file =
                NonZeroU32::new(read_u32(&mut cursor)?).ok_or(malformed("a held message lies in no file"))?;
            copies.push(CopyAt { file, ordinal: read_u32(&mut cursor)? });
        }
        let mut decoder = Decoder::new(&bytes[cursor.position()..], context());
        let mut held = Vec::new();
        for copy in copies {
            let Some(Fact::Record(Record::Stands { number, standing })) = decoder.next()? else {
                return Err(malformed("a held message has no standing"));
            };
            held.push(LeasedMessage { copy, number, standing });
        }
        if decoder.next()?.is_some() {
            return Err(malformed("something stands behind the checkpoint"));
        }
        let [numbers, keys] = runs;
        Ok(Checkpoint { start, seen, next_file, numbering, files, numbers, keys, held })
    }
}

fn put_instant(out: &mut Vec<u8>, at: Timestamp) {
    put_varint(out, at.as_ms().unsigned_abs());
}

fn read_instant(cursor: &mut ByteCursor<'_>) -> Read<Timestamp> {
    let ms = i64::try_from(cursor.varint()?).ok();
    ms.and_then(|ms| Timestamp::from_ms(ms).ok()).ok_or(malformed("an instant is out of range"))
}

fn read_u32(cursor: &mut ByteCursor<'_>) -> Read<u32> {
    u32::try_from(cursor.varint()?).map_err(|_| malformed("a number is out of range"))
}

fn malformed(what: &'static str) -> Unreadable {
    Unreadable::Malformed(what)
}

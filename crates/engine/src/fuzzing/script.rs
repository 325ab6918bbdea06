//! A data directory in a form that a fuzzer can change: fields and records without their checksums.
//!
//! Checksums are computed when the directory is built, so that a changed byte gets past them. A script begins with
//! the manifest's incarnation (4 bytes), when it was created (8), newest (near 1) and next number (near 1); then come
//! pieces, each with its kind:
//!
//! | kind | piece | values |
//! |---|---|---|
//! | 0 | segment | number (near the last + 1), incarnation (near the manifest's), first (near the last sequence + 1), oldest (near 1), next number (near 1), created (8 bytes), synced answers (1) |
//! | 1 | batch | sequence (near the last + 1), synced (near the sequence − 1), incarnation (near the segment's), records too many (1), fix bodies (1), wall clock (8), length (2), records |
//! | 2 | raw bytes | length (1), bytes |
//! | 3 | zeros | length (2) |
//! | 4 | flipped byte | distance from the end (2), bits to flip (1) |
//! | 5 | cut | number of bytes (2) |
//!
//! *near* is [`Input::near`]. Pieces other than segments belong to the segment before them.

use super::driven::{DIRECTORY, dir};
use super::input::{Input, put_near};
use crate::disk::{Disk as _, MemoryDisk};
use crate::journal::format::{BatchHeader, SegmentHeader, SegmentName, u64_at};
use crate::journal::reader::{ReadBatch, SegmentReader};
use crate::journal::record::{BatchContext, Decoder, Fact};
use crate::manifest::Manifest;

/// The maximum size of the directory in bytes; a piece that would exceed it is not added.
const MOST: usize = 256 * 1024;

/// The directory that `script` describes.
pub(super) fn build(script: &[u8]) -> MemoryDisk {
    let mut input = Input::new(script);
    let disk = MemoryDisk::new();
    disk.create_dir(dir()).expect("this disk does not fail");
    let manifest = Manifest {
        incarnation: input.u32(),
        directory: DIRECTORY,
        made: input.instant(),
        newest: input.near(1),
        next_number: input.near(1),
        checkpoint: crate::checkpoint::Checkpoint::default(),
    };
    manifest.write(&disk, dir()).expect("this disk does not fail");
    let mut made =
        BuiltSegment { name: None, incarnation: manifest.incarnation, sequence: 0, bytes: Vec::new() };
    let mut last = 0;
    let mut total = 0;
    while !input.is_empty() && total < MOST {
        let before = made.bytes.len();
        match input.u8() % 6 {
            0 => {
                made.finish(&disk);
                last = made.begin(&mut input, last, manifest.incarnation);
            }
            1 => made.batch(&mut input),
            2 => {
                let len = usize::from(input.u8());
                made.bytes.extend_from_slice(input.take(len));
            }
            3 => made.bytes.resize(before + usize::from(input.u16()), 0),
            4 => {
                let at = before.checked_sub(usize::from(input.u16()) + 1);
                let flip = input.u8();
                if let Some(at) = at {
                    made.bytes[at] ^= flip;
                }
            }
            _ => made.bytes.truncate(before.saturating_sub(usize::from(input.u16()))),
        }
        total += made.bytes.len().saturating_sub(before);
    }
    made.finish(&disk);
    disk
}

/// The segment that is being built.
struct BuiltSegment {
    name: Option<SegmentName>,
    incarnation: u32,
    sequence: u64,
    bytes: Vec<u8>,
}

impl BuiltSegment {
    fn finish(&mut self, disk: &MemoryDisk) {
        let bytes = std::mem::take(&mut self.bytes);
        if let Some(name) = self.name.take() {
            disk.put_file(&dir().join(name.file_name()), bytes);
        }
    }

    fn begin(&mut self, input: &mut Input<'_>, last: u64, incarnation: u32) -> u64 {
        let segment = input.near(last.wrapping_add(1));
        let name = SegmentName { directory: DIRECTORY, shard: 0, segment };
        let header = SegmentHeader {
            name,
            incarnation: input.near(u64::from(incarnation)) as u32,
            first: input.near(self.sequence.wrapping_add(1)),
            oldest: input.near(1),
            next_number: input.near(1),
            made: input.instant(),
            synced_answers: input.u8() & 1 == 1,
        };
        self.name = Some(name);
        self.incarnation = header.incarnation;
        self.sequence = header.first.wrapping_sub(1);
        self.bytes.extend_from_slice(&header.encode());
        segment
    }

    fn batch(&mut self, input: &mut Input<'_>) {
        let sequence = input.near(self.sequence.wrapping_add(1));
        let synced = input.near(sequence.wrapping_sub(1));
        let incarnation = input.near(u64::from(self.incarnation)) as u32;
        let too_many = input.u8();
        let fixes_bodies = input.u8() & 1 == 1;
        let now = input.instant();
        let len = usize::from(input.u16());
        let mut records = input.take(len).to_vec();
        let Some(name) = self.name else { return };
        let salt = name.salt();
        let context = BatchContext { shard: 0, incarnation, now, salt };
        let bodies = bodies(&records, context);
        for (number, at, len) in bodies.iter().flatten().filter(|_| fixes_bodies) {
            let (checksum, body) = records[*at..].split_at_mut(4);
            checksum.copy_from_slice(&salt.body_checksum(*number, &body[..*len]).to_le_bytes());
        }
        let header = BatchHeader {
            len: records.len() as u32,
            sequence,
            synced,
            now,
            incarnation,
            records: (bodies.len() as u32).wrapping_add(u32::from(too_many)),
            checksum: salt.checksum(&records),
        };
        self.sequence = sequence;
        self.bytes.extend_from_slice(&header.encode(salt));
        self.bytes.extend_from_slice(&records);
    }
}

/// The number and the place of the body of each record; `None` for those without.
fn bodies(records: &[u8], context: BatchContext) -> Vec<Option<(u64, usize, usize)>> {
    let mut decoder = Decoder::new(records, context);
    let mut bodies = Vec::new();
    while let Ok(Some(fact)) = decoder.next() {
        bodies.push(match fact {
            Fact::Put { record, body_at, body_len } => {
                Some((record.number.get(), body_at as usize, body_len as usize))
            }
            Fact::Record(_) | Fact::Closed => None,
        });
    }
    bodies
}

/// The script of a directory that an engine wrote.
pub(super) fn describe(disk: &MemoryDisk) -> Vec<u8> {
    let manifest = Manifest::read(disk, dir()).expect("an engine wrote it");
    let mut out = manifest.incarnation.to_le_bytes().to_vec();
    out.extend_from_slice(&manifest.made.as_ms().to_le_bytes());
    put_near(&mut out, manifest.newest, 1);
    put_near(&mut out, manifest.next_number, 1);
    let mut sequence = 0;
    let mut last = 0;
    for (name, bytes, header) in segments(disk) {
        out.push(0);
        put_near(&mut out, name.segment, last + 1);
        put_near(&mut out, u64::from(header.incarnation), u64::from(manifest.incarnation));
        put_near(&mut out, header.first, sequence + 1);
        put_near(&mut out, header.oldest, 1);
        put_near(&mut out, header.next_number, 1);
        out.extend_from_slice(&header.made.as_ms().to_le_bytes());
        out.push(u8::from(header.synced_answers));
        last = name.segment;
        for batch in batches(disk, name, &header) {
            sequence = batch.sequence;
            out.push(1);
            out.push(0);
            put_near(&mut out, batch.synced, sequence - 1);
            out.extend_from_slice(&[0, 0, 1]);
            out.extend_from_slice(&u64_at(&bytes, batch.at + 24).to_le_bytes());
            let records = &bytes[batch.at + BatchHeader::LEN..batch.end];
            out.extend_from_slice(&u16::try_from(records.len()).expect("seeds are small").to_le_bytes());
            out.extend_from_slice(records);
        }
    }
    out
}

/// A batch: its offset in the segment, and its header.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlacedBatch {
    pub(super) sequence: u64,
    pub(super) synced: u64,
    pub(super) at: usize,
    pub(super) end: usize,
}

/// The segments of a directory that an engine wrote.
pub(super) fn segments(disk: &MemoryDisk) -> Vec<(SegmentName, Vec<u8>, SegmentHeader)> {
    let names = disk.list(dir()).expect("this disk does not fail");
    let numbers = names.iter().filter_map(|name| SegmentName::parse(name));
    numbers
        .map(|(shard, segment)| {
            let name = SegmentName { directory: DIRECTORY, shard, segment };
            let bytes = disk.read_file(&dir().join(name.file_name())).expect("it was listed");
            let header = bytes.first_chunk().expect("an engine wrote it");
            let header = SegmentHeader::decode(header, name).expect("an engine wrote it");
            (name, bytes, header)
        })
        .collect()
}

/// The batches of such a segment.
pub(super) fn batches(disk: &MemoryDisk, name: SegmentName, header: &SegmentHeader) -> Vec<PlacedBatch> {
    let file = disk.open(&dir().join(name.file_name())).expect("it was listed");
    let mut reader = SegmentReader::new(file, name.salt(), Some(header.incarnation)).expect("it is there");
    let mut at = SegmentHeader::LEN;
    let mut found = Vec::new();
    for sequence in header.first.. {
        let ReadBatch::Batch(batch, records) =
            reader.find(at as u64, sequence).expect("this disk does not fail")
        else {
            break;
        };
        let end = at + BatchHeader::LEN + records.len();
        found.push(PlacedBatch { sequence, synced: batch.synced, at, end });
        at = end;
    }
    found
}

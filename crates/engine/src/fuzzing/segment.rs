//! Reading a segment: only batches with valid checksums are returned, and all marks are found.

use std::path::Path;

use super::input::Input;
use crate::disk::{Disk as _, MemoryDisk};
use crate::journal::format::{BATCH_MARKER, BatchHeader, Salt, SegmentName};
use crate::journal::reader::{ReadBatch, SegmentReader};

const NAME: SegmentName = SegmentName { directory: 7, shard: 0, segment: 1 };
const INCARNATION: u32 = 3;
const MOST: usize = 64 * 1024;

/// The first byte is the length of the reader's windows; then comes a sequence of pieces: raw bytes, batches with
/// valid checksums, zeros, flipped bytes.
pub fn segment(data: &[u8]) {
    let mut input = Input::new(data);
    let step = usize::from(input.u8()) + BatchHeader::LEN + 1;
    let bytes = pieces(&mut input);
    let path = Path::new("/data/journal");
    let disk = MemoryDisk::new();
    disk.put_file(path, bytes.clone());
    let file = disk.open(path).expect("it was put there");
    let salt = NAME.salt();
    for incarnation in [Some(INCARNATION), None] {
        let reader = SegmentReader::new(file.clone(), salt, incarnation).expect("this disk does not fail");
        let mut reader = reader.with_step(step);
        let mut at = 0;
        let mut sequence = 1;
        while let ReadBatch::Batch(header, records) =
            reader.find(at, sequence).expect("this disk does not fail")
        {
            assert_eq!(header.sequence, sequence);
            assert!(incarnation.is_none_or(|incarnation| header.incarnation == incarnation));
            let whole = &bytes[at as usize..][..BatchHeader::LEN + records.len()];
            assert_eq!(&whole[BatchHeader::LEN..], records);
            assert_eq!(whole[..BatchHeader::LEN], header.encode(salt), "a header has one form");
            assert_eq!(salt.checksum(records), header.checksum, "a wrong checksum passed");
            at += whole.len() as u64;
            sequence += 1;
        }
        for from in [0, at] {
            let rest = &bytes[from as usize..];
            let end = rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1);
            let found = reader.rest(from).expect("this disk does not fail");
            assert_eq!(found.end, from + end);
            let mark = highest_mark(rest, salt, incarnation);
            assert_eq!(found.mark, mark);
        }
    }
}

/// The mark of [`SegmentReader::rest`], computed from all bytes at once.
fn highest_mark(bytes: &[u8], salt: Salt, incarnation: Option<u32>) -> u64 {
    bytes
        .windows(BatchHeader::LEN)
        .filter(|window| window.starts_with(&BATCH_MARKER))
        .filter_map(|window| BatchHeader::decode(window, salt))
        .filter(|header| incarnation.is_none_or(|incarnation| header.incarnation == incarnation))
        .map(|header| header.synced)
        .max()
        .unwrap_or(0)
}

fn pieces(input: &mut Input<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut sequence = 0;
    while !input.is_empty() && bytes.len() < MOST {
        match input.u8() % 4 {
            0 => {
                let len = usize::from(input.u8());
                bytes.extend_from_slice(input.take(len));
            }
            1 => {
                sequence = input.near(sequence + 1) & (u64::MAX >> 1);
                let synced = input.near(sequence);
                let incarnation = input.near(u64::from(INCARNATION)) as u32;
                let now = input.instant();
                let len = usize::from(input.u16());
                let records = input.take(len);
                let header = BatchHeader {
                    len: records.len() as u32,
                    sequence,
                    synced,
                    now,
                    incarnation,
                    records: input.u32(),
                    checksum: NAME.salt().checksum(records),
                };
                bytes.extend_from_slice(&header.encode(NAME.salt()));
                bytes.extend_from_slice(records);
            }
            2 => {
                let len = usize::from(input.u16() % 2048);
                bytes.resize(bytes.len() + len, 0);
            }
            _ => {
                let back = usize::from(input.u16());
                let flip = input.u8();
                let at = bytes.len().checked_sub(back + 1);
                if let Some(byte) = at.and_then(|at| bytes.get_mut(at)) {
                    *byte ^= flip;
                }
            }
        }
    }
    bytes
}

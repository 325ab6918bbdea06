//! Damage to a real directory: damage to durable data is refused, and a directory that opens is whole.
//!
//! Which batches are damaged is found by comparing bytes, not by any checksum.

use std::path::PathBuf;
use std::sync::OnceLock;

use dwell_model::Message;

use super::driven::{Driven, dir};
use super::input::Input;
use super::script::{self, PlacedBatch};
use super::seeds;
use crate::disk::MemoryDisk;
use crate::journal::format::{SegmentHeader, SegmentName};

/// A directory whose process was killed, and the messages after each of its batches.
struct KilledDirectory {
    manifest: Vec<u8>,
    segments: Vec<Segment>,
    /// By sequence, from 0: before the first batch.
    states: Vec<Vec<Message>>,
}

struct Segment {
    name: SegmentName,
    path: PathBuf,
    bytes: Vec<u8>,
    header: SegmentHeader,
    batches: Vec<PlacedBatch>,
}

/// A sequence of changes: file (one byte), kind (one byte: flip, cut, zeros, copy), offset (2 bytes), and what the
/// kind needs.
pub fn damage(data: &[u8]) {
    static ORIGINAL: OnceLock<KilledDirectory> = OnceLock::new();
    let original = ORIGINAL.get_or_init(KilledDirectory::make);
    let mut manifest = original.manifest.clone();
    let mut segments: Vec<Vec<u8>> = original.segments.iter().map(|segment| segment.bytes.clone()).collect();
    let mut input = Input::new(data);
    while !input.is_empty() {
        let file = usize::from(input.u8()) % (segments.len() + 1);
        change(&mut input, segments.get_mut(file).unwrap_or(&mut manifest));
    }
    let disk = MemoryDisk::new();
    disk.put_file(&dir().join(crate::manifest::FILE), manifest.clone());
    for (segment, bytes) in original.segments.iter().zip(&segments) {
        disk.put_file(&segment.path, bytes.clone());
    }
    let before = disk.changes();
    match Driven::open(&disk) {
        Ok(mut store) => {
            assert_eq!(manifest, original.manifest, "a damaged manifest passed");
            let Verdict { whole, mark } = original.judge(&segments);
            assert!(mark <= whole, "batch {} was durable, is damaged, and passed", whole + 1);
            let found: Vec<Message> =
                store.dump().into_iter().map(|message| message.expect("its body is whole")).collect();
            assert_eq!(found, original.states[whole as usize], "after batch {whole}");
        }
        Err(error) => {
            assert_eq!(error.code(), "damaged", "{error}");
            assert_eq!(disk.changes(), before, "a refusal changes nothing");
            let unchanged = original.segments.iter().zip(&segments).all(|(old, new)| old.bytes == *new);
            assert!(!unchanged || manifest != original.manifest, "nothing is damaged: {error}");
        }
    }
}

fn change(input: &mut Input<'_>, bytes: &mut Vec<u8>) {
    let kind = input.u8() % 4;
    let at = usize::from(input.u16()).min(bytes.len());
    match kind {
        0 => {
            let flip = input.u8();
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= flip;
            }
        }
        1 => bytes.truncate(at),
        2 => {
            let end = (at + usize::from(input.u8())).min(bytes.len());
            bytes[at..end].fill(0);
        }
        _ => {
            let from = usize::from(input.u16()).min(bytes.len());
            let end = (from + usize::from(input.u8())).min(bytes.len());
            let end = end.min(from + bytes.len() - at);
            bytes.copy_within(from..end, at);
        }
    }
}

/// What the remaining bytes prove.
struct Verdict {
    /// Up to this batch all are unchanged.
    whole: u64,
    /// Up to this batch all were durable, according to an unchanged header.
    mark: u64,
}

impl KilledDirectory {
    fn make() -> KilledDirectory {
        let (disk, states) = seeds::killed();
        let manifest = disk.read_file(&dir().join(crate::manifest::FILE)).expect("it is there");
        let segments = script::segments(&disk)
            .into_iter()
            .map(|(name, bytes, header)| Segment {
                name,
                path: dir().join(name.file_name()),
                bytes,
                header,
                batches: script::batches(&disk, name, &header),
            })
            .collect();
        KilledDirectory { manifest, segments, states }
    }

    fn judge(&self, now: &[Vec<u8>]) -> Verdict {
        let mut verdict = Verdict { whole: 0, mark: 0 };
        let mut is_whole = true;
        for (segment, now) in self.segments.iter().zip(now) {
            let same = |from: usize, to: usize| now.get(from..to) == Some(&segment.bytes[from..to]);
            let has_header = same(0, SegmentHeader::LEN);
            if has_header {
                verdict.mark = verdict.mark.max(segment.header.first - 1);
            }
            assert!(segment.name.segment > 0);
            for batch in &segment.batches {
                if same(batch.at, batch.at + crate::journal::format::BatchHeader::LEN) {
                    verdict.mark = verdict.mark.max(batch.synced);
                }
                is_whole &= has_header && same(batch.at, batch.end);
                if is_whole {
                    verdict.whole = batch.sequence;
                }
            }
        }
        verdict
    }
}

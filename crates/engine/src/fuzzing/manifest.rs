//! The manifest: decoded only if its bytes are those that encoding gives.

use std::num::NonZeroU32;
use std::path::Path;

use dwell_model::{Counts, DEFAULT_PRIORITY, Number, Standing, State, Timestamp};
use dwell_store::core::CopyAt;

use super::input::Input;
use super::seeds::Seed;
use crate::checkpoint::{Checkpoint, LeasedMessage, TableState};
use crate::disk::MemoryDisk;
use crate::journal::format::u32_at;
use crate::manifest::{FILE, Manifest};
use crate::table::DeletionBitmap;

/// The first byte says whether length and checksums are corrected; then comes the file.
pub fn manifest(data: &[u8]) {
    let mut input = Input::new(data);
    let is_right = input.u8() & 1 == 1;
    let mut bytes = input.rest().to_vec();
    if is_right && bytes.len() >= 60 {
        bytes.resize(bytes.len().max(64), 0);
        let (len, checksum) = (bytes.len() as u64 - 64, crc32fast::hash(&bytes[64..]));
        bytes[48..56].copy_from_slice(&len.to_le_bytes());
        bytes[56..60].copy_from_slice(&checksum.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..60]);
        bytes[60..64].copy_from_slice(&checksum.to_le_bytes());
    }
    let dir = Path::new("/data");
    let disk = MemoryDisk::new();
    disk.put_file(&dir.join(FILE), bytes.clone());
    match Manifest::read(&disk, dir) {
        Ok(manifest) => {
            assert_eq!(crc32fast::hash(&bytes[..60]), u32_at(&bytes, 60), "a wrong checksum passed");
            manifest.write(&disk, dir).expect("this disk does not fail");
            let again = Manifest::read(&disk, dir).expect("what was written is read");
            assert_eq!(again, manifest, "what was written is what was read");
            // Fields that a later version may add to the records of held messages are skipped, and not written again.
            let once = disk.read_file(&dir.join(FILE));
            again.write(&disk, dir).expect("this disk does not fail");
            assert_eq!(disk.read_file(&dir.join(FILE)), once, "a manifest has one form");
        }
        Err(error) => assert!(matches!(error.code(), "damaged" | "newer_format"), "{error}"),
    }
}

/// A manifest with a checkpoint: the lives of the seeds are too short for one.
pub(super) fn seeds() -> Vec<Seed> {
    let at = |ms| Timestamp::from_ms(ms).expect("it is in range");
    let settled = |len, gone: &[u32]| {
        let mut settled = DeletionBitmap::none(len);
        gone.iter().for_each(|ordinal| _ = settled.set(*ordinal));
        settled
    };
    let mut half = settled(10_000, &[3, 5_000, 9_999]);
    half.set_range(4_096..8_192);
    let checkpoint = Checkpoint {
        start: 3,
        seen: at(1_795_000_000_500),
        next_file: 9,
        numbering: vec![(1, 1), (2, 4_097)],
        files: vec![
            TableState { number: 1, ready_until: at(0), settled: settled(2, &[]) },
            TableState { number: 5, ready_until: at(1_795_000_000_400), settled: half },
        ],
        numbers: vec![6, 2],
        keys: vec![7],
        held: vec![LeasedMessage {
            copy: CopyAt { file: NonZeroU32::MIN, ordinal: 1 },
            number: Number::new(4_100).expect("it is in range"),
            standing: Standing {
                state: State::Ready,
                due: at(1_795_000_000_000),
                priority: DEFAULT_PRIORITY,
                attempts: 2,
                expires: None,
                keyless: false,
                counts: Counts::default(),
                last_error: None,
                holder: None,
            },
        }],
    };
    let manifest = Manifest {
        incarnation: 2,
        directory: 77,
        made: at(1_795_000_000_000),
        newest: 4,
        next_number: 8_193,
        checkpoint,
    };
    vec![("manifest", "checkpoint".to_owned(), [vec![1], manifest.encode()].concat())]
}

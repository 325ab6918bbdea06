//! Sealed files of any content with valid checksums: they are read or refused, without a panic.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use dwell_model::Number;

use super::index_run::answers;
use super::input::Input;
use super::seeds::{Seed, made};
use crate::disk::{Disk as _, MemoryDisk};
use crate::index_run::{IndexRun, IndexValue, TableRef};
use crate::journal::format::{Salt, u32_at, u64_at};
use crate::sealed::{Appender, FileId, FileKind, HEADER_LEN, ReadError};
use crate::table::Table;
use crate::table::transcript::transcript;

fn dir() -> &'static Path {
    Path::new("/data")
}

/// Kind of the file (one byte), number of pieces (one byte), each with a length (2 bytes), what it is (one byte: a
/// block of a table, a block of a run or a chunk of expiries, the first piece of a filter, or none of these), and
/// its bytes; then the index. The checksums of pieces and index are corrected.
pub fn sealed(data: &[u8]) {
    let mut input = Input::new(data);
    let kind = [FileKind::Table, FileKind::Numbers, FileKind::Keys][usize::from(input.u8() % 3)];
    let name = FileId { directory: 7, shard: 0, kind, number: 1 };
    let disk = MemoryDisk::new();
    disk.create_dir(dir()).expect("this disk does not fail");
    let mut file = Appender::create(&disk, dir(), name).expect("this disk does not fail");
    for _ in 0..input.u8() {
        let len = usize::from(input.u16());
        let what = input.u8() % 4;
        let mut piece = input.take(len).to_vec();
        make_right(&mut piece, what, name.salt());
        file.append(&piece).expect("this disk does not fail");
    }
    file.finish(input.rest().to_vec()).expect("this disk does not fail");
    let refused = match kind {
        FileKind::Table => Table::open(&disk, dir(), name).and_then(|file| {
            let file = Arc::new(file);
            transcript(&file);
            file.verify(&mut |_| ())
        }),
        FileKind::Numbers => ask::<TableRef>(&disk, name),
        FileKind::Keys => ask::<Number>(&disk, name),
    };
    if let Err(refusal) = refused {
        assert!(matches!(refusal, ReadError::Damaged { .. } | ReadError::NewerRecord { .. }), "{refusal}");
    }
}

fn ask<V: IndexValue>(disk: &MemoryDisk, name: FileId) -> Result<(), ReadError> {
    let run = Arc::new(IndexRun::<V>::open(disk, dir(), name)?);
    let (low, high) = run.key_range().unwrap_or((0, 0));
    answers(&run, &[0, low, low / 2 + high / 2, high, u64::MAX]);
    run.verify(&mut |_| ())
}

fn make_right(piece: &mut [u8], what: u8, salt: Salt) {
    let len = piece.len();
    match what {
        0 if len >= 20 => {
            let heads_end = (20 + u32_at(piece, 12) as usize).min(len);
            let checksum = salt.checksum(&piece[4..heads_end]);
            piece[..4].copy_from_slice(&checksum.to_le_bytes());
        }
        1 if len >= 4 => {
            let checksum = salt.checksum(&piece[4..]);
            piece[..4].copy_from_slice(&checksum.to_le_bytes());
        }
        2 if len >= 4 => {
            let checksum = salt.body_checksum(0, &piece[..len - 4]);
            piece[len - 4..].copy_from_slice(&checksum.to_le_bytes());
        }
        _ => {}
    }
}

/// Seeds for this and for `table`, `index_run` and `deletion_bitmap`.
pub(super) fn seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    for (seed, len) in [(1, 60), (2, 400), (3, 1_500), (4, 2_500)] {
        for entry in ["table", "index_run", "deletion_bitmap"] {
            seeds.push((entry, format!("made-{seed}"), made(seed, len)));
        }
        let mut entries = super::table::entries(&mut Input::new(&[&[17], &made(seed, 2_000)[..]].concat()));
        // All in one block.
        entries.iter_mut().for_each(|(_, body)| body.truncate(20));
        let (disk, file) = super::table::written(&entries);
        let bytes = disk.read_file(file.path()).expect("it was written");
        let block = 20 + u32_at(&bytes, 32 + 12) as usize + u32_at(&bytes, 32 + 16) as usize;
        if block <= usize::from(u16::MAX) && file.block_end(0) == file.len() {
            seeds.push(("sealed", format!("table-{seed}"), describe(0, &bytes, block, (0, 1))));
        }
        let hashes = made(seed, 800);
        let keys = hashes.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
        let home = |key: u64| TableRef { file: key as u32 % 5, ordinal: (key >> 40) as u32 };
        let number = |key: u64| Number::new(key >> 40 | 1).expect("it has 24 bits");
        let has_filter = seed % 2 == 0;
        let homes = keys.clone().map(|key| (key >> 50, home(key))).collect::<BTreeMap<_, _>>().into_iter();
        seeds.push(("sealed", format!("numbers-{seed}"), run_seed(1, has_filter, homes.collect())));
        seeds.push((
            "sealed",
            format!("keys-{seed}"),
            run_seed(2, has_filter, keys.map(|key| (key, number(key))).collect()),
        ));
    }
    seeds
}

fn run_seed<V: IndexValue>(kind: u8, has_filter: bool, pairs: BTreeSet<(u64, V)>) -> Vec<u8> {
    let disk = MemoryDisk::new();
    let run = super::index_run::written(&disk, 1, has_filter, &pairs);
    let bytes = disk.read_file(run.path()).expect("it was written");
    let filter = if has_filter { (pairs.len() * 10).div_ceil(512) * 64 + 4 } else { 0 };
    let block = index_at(&bytes) - HEADER_LEN - filter;
    describe(kind, &bytes, block, (1, 2))
}

fn index_at(bytes: &[u8]) -> usize {
    u64_at(bytes, bytes.len() - 32 + 8) as usize
}

/// A file as `sealed` reads it: with a first piece of `first` bytes, and perhaps another one.
fn describe(kind: u8, bytes: &[u8], first: usize, whats: (u8, u8)) -> Vec<u8> {
    let (start, middle, end) = (HEADER_LEN, HEADER_LEN + first, index_at(bytes));
    let mut seed = vec![kind, 2];
    for (piece, what) in [(&bytes[start..middle], whats.0), (&bytes[middle..end], whats.1)] {
        seed.extend_from_slice(&(piece.len() as u16).to_le_bytes());
        seed.push(what);
        seed.extend_from_slice(piece);
    }
    seed.extend_from_slice(&bytes[end..bytes.len() - 32]);
    seed
}

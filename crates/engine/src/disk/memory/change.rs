//! Unsynced changes, and the effect of a power failure on them.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// The unit in which writes are torn, in bytes.
pub(super) const SECTOR: u64 = 512;

/// A file as the program sees it, and as it is on the medium.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) seen: Vec<u8>,
    pub(super) durable: Vec<u8>,
    /// The operations that lead from `durable` to `seen`.
    pub(super) ops: Vec<FileOp>,
}

#[derive(Debug)]
pub(super) struct FileOp {
    /// The index of the change, which orders changes of all files.
    pub(super) at: u64,
    pub(super) what: FileChange,
}

#[derive(Debug)]
pub(super) enum FileChange {
    Write { offset: u64, bytes: Vec<u8> },
    Size(u64),
}

#[derive(Debug)]
pub(super) struct NameOp {
    pub(super) at: u64,
    pub(super) removed: Option<PathBuf>,
    pub(super) added: Option<(PathBuf, u64)>,
}

/// splitmix64 (Steele, Lea, Flood 2014): small, and the same on every machine.
pub(super) struct DiskRng(pub(super) u64);

impl DiskRng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    pub(super) fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }
}

pub(super) fn write_into(bytes: &mut Vec<u8>, at: u64, part: &[u8]) {
    let at = at as usize;
    if bytes.len() < at + part.len() {
        bytes.resize(at + part.len(), 0);
    }
    bytes[at..at + part.len()].copy_from_slice(part);
}

impl FileChange {
    pub(super) fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            FileChange::Write { offset, bytes: part } => write_into(bytes, *offset, part),
            FileChange::Size(len) => bytes.resize(*len as usize, 0),
        }
    }

    /// A random choice of the sectors that it touches.
    pub(super) fn apply_some(&self, bytes: &mut Vec<u8>, chance: &mut DiskRng) {
        let FileChange::Write { offset, bytes: part } = self else {
            if chance.coin() {
                self.apply(bytes);
            }
            return;
        };
        let end = offset + part.len() as u64;
        let mut at = *offset;
        while at < end {
            let next = ((at / SECTOR + 1) * SECTOR).min(end);
            if chance.coin() {
                write_into(bytes, at, &part[(at - offset) as usize..(next - offset) as usize]);
            }
            at = next;
        }
    }

    /// A random part of it, from its beginning on.
    pub(super) fn apply_start(&self, bytes: &mut Vec<u8>, chance: &mut DiskRng) {
        if let FileChange::Write { offset, bytes: part } = self {
            let kept = chance.below(part.len() as u64 + 1) as usize;
            write_into(bytes, *offset, &part[..kept]);
        }
    }
}

impl NameOp {
    pub(super) fn apply(&self, names: &mut BTreeMap<PathBuf, u64>) {
        if let Some(removed) = &self.removed {
            names.remove(removed);
        }
        if let Some((path, file)) = &self.added {
            names.insert(path.clone(), *file);
        }
    }
}

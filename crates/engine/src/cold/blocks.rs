//! Entries that were read a moment ago, a block's worth at a time: a cursor comes back to them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Weak};

use super::ColdFile;
use crate::due::Found;
use crate::journal::segment::Segment;
use crate::sealed;

/// At least so many blocks are kept, and at most.
const KEPT: std::ops::RangeInclusive<usize> = 48..=256;

/// Bytes of a block.
const BLOCK: usize = 32 * 1024;
/// Of so many blocks one has its bytes kept too, for bodies.
const WITHOUT_BYTES: usize = 4;

/// The entries of a few blocks, without their bodies.
#[derive(Debug)]
pub(super) struct Blocks {
    most: usize,
    /// Those used last at the end.
    kept: VecDeque<Kept>,
    /// Whose bytes their files remember, the oldest first.
    remembered: VecDeque<(Weak<Segment>, u64)>,
}

#[derive(Debug)]
struct Kept {
    file: u32,
    ordinals: Range<u32>,
    entries: Vec<Found>,
}

impl Blocks {
    /// About `most` of them.
    pub(super) fn keeping(most: usize) -> Blocks {
        Blocks {
            most: most.clamp(*KEPT.start(), *KEPT.end()),
            kept: VecDeque::new(),
            remembered: VecDeque::new(),
        }
    }

    /// An entry; at most one read.
    pub(super) fn entry(&mut self, cold: &ColdFile, ordinal: u32) -> sealed::Result<&Found> {
        let number = cold.file.name().number;
        let is_it = |kept: &Kept| kept.file == number && kept.ordinals.contains(&ordinal);
        let kept = match self.kept.iter().rposition(is_it) {
            Some(at) if at + 1 == self.kept.len() => None,
            Some(at) => self.kept.remove(at),
            None => {
                let (entries, at, bytes) = cold.file.read_block(ordinal)?;
                let ordinals = ordinal..ordinal + entries.len() as u32;
                if let Some(bytes) = bytes {
                    self.forget_bytes(self.most / WITHOUT_BYTES);
                    cold.segment.remember(at, bytes);
                    self.remembered.push_back((Arc::downgrade(&cold.segment), at));
                }
                if self.kept.len() == self.most {
                    self.kept.pop_front();
                }
                Some(Kept { file: number, ordinals, entries })
            }
        };
        self.kept.extend(kept);
        let Kept { ordinals, entries, .. } = self.kept.back().expect("it was just made sure of");
        Ok(&entries[(ordinal - ordinals.start) as usize])
    }

    /// Lets go of the oldest bytes until fewer than `most` blocks have any.
    fn forget_bytes(&mut self, most: usize) {
        while self.remembered.len() >= most.max(1)
            && let Some((segment, at)) = self.remembered.pop_front()
        {
            if let Some(segment) = segment.upgrade() {
                segment.forget(at);
            }
        }
    }

    /// Their bytes in memory, but for keys and headers.
    pub(super) fn memory(&self) -> usize {
        let entries: usize = self.kept.iter().map(|kept| kept.entries.capacity() * size_of::<Found>()).sum();
        entries + self.remembered.len() * BLOCK
    }

    /// A file is there no more.
    pub(super) fn forget(&mut self, file: u32) {
        self.kept.retain(|kept| kept.file != file);
    }
}

//! Entries that were read a moment ago, a block's worth at a time: a cursor comes back to them.

use std::collections::VecDeque;
use std::ops::Range;

use crate::due::{File, Found};
use crate::sealed;

/// So many blocks are kept.
const KEPT: usize = 48;

/// The entries of a few blocks, without their bodies.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// Those used last at the end.
    kept: VecDeque<Kept>,
}

#[derive(Debug)]
struct Kept {
    file: u32,
    ordinals: Range<u32>,
    entries: Vec<Found>,
}

impl Blocks {
    /// An entry; at most one read.
    pub(super) fn entry(&mut self, file: &File, ordinal: u32) -> sealed::Result<&Found> {
        let number = file.name().number;
        let is_it = |kept: &Kept| kept.file == number && kept.ordinals.contains(&ordinal);
        let kept = match self.kept.iter().rposition(is_it) {
            Some(at) if at + 1 == self.kept.len() => None,
            Some(at) => self.kept.remove(at),
            None => {
                let ordinals = ordinal..file.block_end(ordinal);
                let mut entries = Vec::with_capacity(ordinals.len());
                file.read(ordinals.clone(), &mut entries)?;
                if self.kept.len() == KEPT {
                    self.kept.pop_front();
                }
                Some(Kept { file: number, ordinals, entries })
            }
        };
        self.kept.extend(kept);
        let Kept { ordinals, entries, .. } = self.kept.back().expect("it was just made sure of");
        Ok(&entries[(ordinal - ordinals.start) as usize])
    }

    /// Their bytes in memory, but for keys and headers.
    pub(super) fn memory(&self) -> usize {
        self.kept.iter().map(|kept| kept.entries.capacity() * size_of::<Found>()).sum()
    }

    /// A file is there no more.
    pub(super) fn forget(&mut self, file: u32) {
        self.kept.retain(|kept| kept.file != file);
    }
}

//! Dead messages that have left memory while a sweep goes on that does not mean them.
//!
//! A sweep means what was dead when it began. A message in memory knows how many sweeps had begun when it died; of one that
//! leaves memory this is kept here until it comes back, or until no sweep is left that would ask: a bit for each number.
//! The instant of its death does not tell: where the clock was stepped back, what died before the sweep began may have died
//! later by it.

use std::collections::BTreeMap;

use dwell_model::Number;

/// Which numbers, 64 at a place, by the place and by how many sweeps had begun: a number is looked for at its place alone.
#[derive(Debug, Default)]
pub(super) struct Late {
    bits: BTreeMap<(u64, u64), u64>,
    /// Nothing is kept of what died when fewer sweeps had begun.
    oldest: u64,
}

/// Where the bit of a number lies.
fn place(number: Number) -> (u64, u64) {
    (number.get() / 64, 1 << (number.get() % 64))
}

impl Late {
    /// A message leaves memory that died when so many sweeps had begun.
    pub(super) fn note(&mut self, number: Number, sweeps: u64) {
        let (at, bit) = place(number);
        *self.bits.entry((at, sweeps)).or_default() |= bit;
        self.oldest = self.oldest.min(sweeps);
    }

    /// A message comes into memory: how many sweeps had begun when it died, if that was kept.
    pub(super) fn take(&mut self, number: Number) -> Option<u64> {
        let (at, bit) = place(number);
        let mut here = self.bits.range_mut((at, 0)..=(at, u64::MAX));
        let (key, bits) = here.find(|(_, bits)| **bits & bit != 0)?;
        let key = *key;
        *bits &= !bit;
        if *bits == 0 {
            self.bits.remove(&key);
        }
        Some(key.1)
    }

    /// No sweep goes on but from this one on.
    pub(super) fn forget_before(&mut self, oldest: Option<u64>) {
        match oldest {
            Some(oldest) if oldest > self.oldest => {
                self.oldest = oldest;
                self.bits.retain(|(_, sweeps), _| *sweeps >= oldest);
            }
            Some(_) => {}
            None => self.bits.clear(),
        }
    }

    /// How many sweeps it tells apart.
    #[cfg(test)]
    pub(super) fn sweeps(&self) -> usize {
        self.bits.keys().map(|(_, sweeps)| *sweeps).collect::<std::collections::BTreeSet<u64>>().len()
    }

    /// Its bytes in memory, about.
    pub(super) fn memory(&self) -> usize {
        self.bits.len() * 2 * size_of::<((u64, u64), u64)>()
    }
}

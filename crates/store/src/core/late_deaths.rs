//! Dead messages that have left memory during a sweep that does not include them.
//!
//! A sweep includes the messages that were dead when it began. A message in memory knows how many sweeps had
//! begun when it died. For one that leaves memory this is kept here until it comes back, or until no sweep in
//! progress needs it: a bit for each number. The instant of its death does not suffice: after a step of the
//! clock back, a message that died before the sweep began may have a later instant of death.

use std::collections::BTreeMap;

use dwell_model::Number;

/// Sets of numbers, 64 to a word, by the word's index and the number of sweeps that had begun: a look-up of a
/// number reads its word only.
#[derive(Debug, Default)]
pub(super) struct LateDeaths {
    bits: BTreeMap<(u64, u64), u64>,
    /// Nothing is kept about messages that died when fewer sweeps had begun.
    oldest: u64,
}

/// The word and the bit of a number.
fn place(number: Number) -> (u64, u64) {
    (number.get() / 64, 1 << (number.get() % 64))
}

impl LateDeaths {
    /// Notes a message that leaves memory and died when `sweeps` sweeps had begun.
    pub(super) fn note(&mut self, number: Number, sweeps: u64) {
        let (at, bit) = place(number);
        *self.bits.entry((at, sweeps)).or_default() |= bit;
        self.oldest = self.oldest.min(sweeps);
    }

    /// Removes a message that comes into memory. Returns the number of sweeps that had begun when it died, if
    /// that was kept.
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

    /// Drops what only sweeps before `oldest`, the oldest one in progress, would need.
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

    /// The number of distinct sweeps.
    #[cfg(test)]
    pub(super) fn sweeps(&self) -> usize {
        self.bits.keys().map(|(_, sweeps)| *sweeps).collect::<std::collections::BTreeSet<u64>>().len()
    }

    /// Its approximate size in memory, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.bits.len() * 2 * size_of::<((u64, u64), u64)>()
    }
}

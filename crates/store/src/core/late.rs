//! Dead messages that have left memory while a sweep goes on that does not mean them.
//!
//! A sweep means what was dead when it began. A message in memory knows how many sweeps had begun when it died; of one that
//! leaves memory this is kept here until it comes back, or until no sweep is left that would ask: a bit for each number.
//! The instant of its death does not tell: where the clock was stepped back, what died before the sweep began may have died
//! later by it.

use std::collections::BTreeMap;

use dwell_model::Number;

/// By how many sweeps had begun: which numbers, 64 at a place.
#[derive(Debug, Default)]
pub(super) struct Late(BTreeMap<u64, BTreeMap<u64, u64>>);

/// Where the bit of a number lies.
fn place(number: Number) -> (u64, u64) {
    (number.get() / 64, 1 << (number.get() % 64))
}

impl Late {
    /// A message leaves memory that died when so many sweeps had begun.
    pub(super) fn note(&mut self, number: Number, sweeps: u64) {
        let (at, bit) = place(number);
        *self.0.entry(sweeps).or_default().entry(at).or_default() |= bit;
    }

    /// A message comes into memory: how many sweeps had begun when it died, if that was kept.
    pub(super) fn take(&mut self, number: Number) -> Option<u64> {
        let (at, bit) = place(number);
        for (sweeps, numbers) in &mut self.0 {
            let Some(bits) = numbers.get_mut(&at).filter(|bits| **bits & bit != 0) else { continue };
            *bits &= !bit;
            if *bits == 0 {
                numbers.remove(&at);
            }
            return Some(*sweeps);
        }
        None
    }

    /// No sweep goes on but from this one on.
    pub(super) fn forget_before(&mut self, oldest: Option<u64>) {
        match oldest {
            Some(oldest) => self.0.retain(|sweeps, _| *sweeps >= oldest),
            None => self.0.clear(),
        }
    }

    /// How many sweeps it tells apart.
    #[cfg(test)]
    pub(super) fn sweeps(&self) -> usize {
        self.0.len()
    }

    /// Its bytes in memory, about.
    pub(super) fn memory(&self) -> usize {
        self.0.values().map(BTreeMap::len).sum::<usize>() * 2 * size_of::<(u64, u64)>()
    }
}

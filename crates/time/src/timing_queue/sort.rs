//! Sorts a page by instant, and equal instants by insertion order.
//!
//! It sorts numbers instead of entries: the instant relative to the page's bound, followed by the index, which makes
//! the sort stable. Two passes of counting sort by the leading bits bring the numbers nearly into order, whatever their
//! count, and an insertion sort finishes. Where the leading bits distinguish too little (for example, because one entry
//! is far from all others), the insertion sort gives up early and the standard library's sort runs.
//! entry is far from all others, say), insertion gives up early and the library sorts.

use super::meter;
use super::page::{PIECE, Page};
use super::run::RunEntry;

/// Below this number the standard library's sort is faster.
const FEW: usize = 64;
/// From this number on, digits have 11 bits instead of 8: clearing the larger counters is then worth it.
const MANY: usize = 1024;

/// Sorts pages, one after the other, in buffers that it keeps.
#[derive(Debug, Default)]
pub(super) struct Sorter {
    keys: Vec<u64>,
    spare: Vec<u64>,
    slots: Vec<u32>,
}

impl Sorter {
    /// Sorts the entries of `page`, which has no dead ones, into (due, sequence) order.
    pub(super) fn sort(&mut self, page: &mut Page) {
        if page.is_ascending() {
            return;
        }
        meter::touched(page.live());
        let Sorter { keys, spare, slots } = self;
        let bound = page.bound;
        let dues = || page.columns().flat_map(|(dues, _)| dues);
        let span = dues().fold(0, |bits, due| bits | due.abs_diff(bound));
        let position_bits = usize::BITS - page.live().leading_zeros();
        let due_bits = u64::BITS - span.leading_zeros();
        if due_bits + position_bits > u64::BITS {
            let mut entries: Vec<RunEntry> = page.entries().collect();
            entries.sort_by_key(|entry| entry.due);
            page.put_in_order(entries.into_iter());
            return;
        }
        keys.clear();
        slots.clear();
        let mut at = 0;
        for (dues, part) in page.columns() {
            keys.extend(dues.iter().zip(at..).map(|(due, at)| due.abs_diff(bound) << position_bits | at));
            slots.extend_from_slice(part);
            at += part.len() as u64;
        }
        sort_keys(keys, spare, position_bits, due_bits);
        let position = (1_u64 << position_bits) - 1;
        page.put_in_order(keys.iter().map(|key| RunEntry {
            due: bound.wrapping_add_unsigned(key >> position_bits),
            slot: slots[(key & position) as usize],
        }));
    }
}

/// Returns the entries, which come in insertion order, in (due, sequence) order and without those before `from`.
///
/// The first few are sorted before the others, which are often not asked for.
pub(super) fn in_order(entries: impl Iterator<Item = RunEntry>, from: i64) -> impl Iterator<Item = RunEntry> {
    let entries = entries.filter(|entry| entry.due >= from).zip(0_u32..);
    let mut first: Vec<(i64, u32, u32)> = entries.map(|(entry, at)| (entry.due, at, entry.slot)).collect();
    let mut later = Vec::new();
    if first.len() > 2 * PIECE {
        first.select_nth_unstable(PIECE);
        later = first.split_off(PIECE);
    }
    first.sort_unstable();
    let later = std::iter::once_with(move || {
        later.sort_unstable();
        later
    });
    first.into_iter().chain(later.flatten()).map(|(due, _, slot)| RunEntry { due, slot })
}

/// Sorts numbers of which `bits` bits from bit `low` on are significant; the bits below `low` rise from one number to
/// the next.
fn sort_keys(keys: &mut Vec<u64>, spare: &mut Vec<u64>, low: u32, bits: u32) {
    if keys.len() < FEW {
        keys.sort_unstable();
    } else if keys.len() < MANY {
        sort_by_leading_bits::<256>(keys, spare, low, bits);
    } else {
        sort_by_leading_bits::<2048>(keys, spare, low, bits);
    }
}

fn sort_by_leading_bits<const VALUES: usize>(keys: &mut Vec<u64>, spare: &mut Vec<u64>, low: u32, bits: u32) {
    let digit = VALUES.ilog2();
    let shift = low + bits.saturating_sub(2 * digit);
    spare.resize(keys.len(), 0);
    count_and_place::<VALUES>(keys, spare, shift);
    if bits > digit {
        count_and_place::<VALUES>(spare, keys, shift + digit);
    } else {
        std::mem::swap(keys, spare);
    }
    if !insert_into_order(keys) {
        keys.sort_unstable();
    }
}

/// Writes the keys to `into` by the digit at `shift`. Keys with the same digit keep their order.
fn count_and_place<const VALUES: usize>(keys: &[u64], into: &mut [u64], shift: u32) {
    let digit = |key: u64| (key >> shift) as usize % VALUES;
    let mut places = [0_u32; VALUES];
    for key in keys {
        places[digit(*key)] += 1;
    }
    let mut next = 0;
    for place in &mut places {
        next += std::mem::replace(place, next);
    }
    for key in keys {
        let place = &mut places[digit(*key)];
        into[*place as usize] = *key;
        *place += 1;
    }
}

/// Sorts nearly sorted keys. Returns false if they are not nearly sorted: all keys are then there, in some order.
fn insert_into_order(keys: &mut [u64]) -> bool {
    let mut patience = 4 * keys.len();
    for at in 1..keys.len() {
        let key = keys[at];
        let mut to = at;
        while to > 0 && keys[to - 1] > key {
            keys[to] = keys[to - 1];
            to -= 1;
        }
        keys[to] = key;
        match patience.checked_sub(at - to) {
            Some(left) => patience = left,
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorts_whatever_the_gaps() {
        let patterns: [fn(u64) -> i64; 6] = [
            |n| (n * 7_919 % 1_000_003) as i64,
            |n| (n * 2_654_435_761 % 97) as i64,
            |n| if n == 5 { i64::MAX } else { (n * 7_919 % 3_001) as i64 },
            |n| i64::MAX >> (n * 31 % 63),
            |n| (n * 7_919 % 3_001) as i64 - if n % 2 == 0 { 1 << 62 } else { 0 },
            |n| (n % 2) as i64,
        ];
        for pattern in patterns {
            for count in [1, 2, 63, 64, 700, 1_024, 8_000] {
                let dues: Vec<i64> = (0..count).map(pattern).collect();
                let bound = dues.iter().copied().min().expect("there is one");
                let slots: Vec<u32> = (0..count as u32).collect();
                let mut page = Page::from_columns(bound, &dues, &slots, dues.is_sorted());
                Sorter::default().sort(&mut page);
                let sorted = page.entries().map(|entry| (entry.due, entry.slot));
                let mut expected: Vec<(i64, u32)> = dues.into_iter().zip(slots).collect();
                expected.sort_unstable();
                assert!(sorted.eq(expected), "{count} entries");
            }
        }
    }
}

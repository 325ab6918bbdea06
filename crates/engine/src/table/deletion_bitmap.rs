//! The settled entries of a file: a bit for each ordinal.

use std::ops::Range;

use crate::journal::encoding::{ByteCursor, Read, Unreadable, put_varint};
use crate::journal::format::{Salt, u32_at};

/// The number of ordinals in a page.
const PAGE: u32 = 4096;
const WORDS: usize = PAGE as usize / 64;

/// The settled ordinals of a file.
///
/// The bitmap is divided into pages of 4,096 ordinals. A page of which none or all are settled takes 16 bytes, any
/// other 528: so a file that is settled from its beginning on costs little.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeletionBitmap {
    len: u32,
    settled: u32,
    pages: Vec<BitmapPage>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum BitmapPage {
    None,
    All,
    Some { bits: Box<[u64; WORDS]>, count: u16 },
}

/// The bits of `word` that `range`, counted from the start of the page, covers.
fn mask(word: usize, range: &Range<u32>) -> u64 {
    let start = word as u32 * 64;
    let below = |bit: u32| match bit.saturating_sub(start) {
        0 => 0,
        bits if bits >= 64 => u64::MAX,
        bits => (1 << bits) - 1,
    };
    below(range.end) & !below(range.start)
}

impl BitmapPage {
    /// The number of settled ordinals in `range` (from the start of the page).
    fn count(&self, range: &Range<u32>, len: u32) -> u32 {
        match self {
            BitmapPage::None => 0,
            BitmapPage::All => range.len() as u32,
            BitmapPage::Some { count, .. } if range.len() as u32 == len => u32::from(*count),
            BitmapPage::Some { bits, .. } => {
                let words = (range.start / 64) as usize..(range.end as usize).div_ceil(64);
                words.map(|word| (bits[word] & mask(word, range)).count_ones()).sum()
            }
        }
    }

    /// Settles `range`; returns how many of it were not. The page has `len` ordinals.
    fn set(&mut self, range: &Range<u32>, len: u32) -> u32 {
        let fresh = range.len() as u32 - self.count(range, len);
        if fresh == 0 {
            return 0;
        }
        if let BitmapPage::None = self {
            *self = BitmapPage::Some { bits: Box::new([0; WORDS]), count: 0 };
        }
        if let BitmapPage::Some { bits, count } = self {
            for word in (range.start / 64) as usize..(range.end as usize).div_ceil(64) {
                bits[word] |= mask(word, range);
            }
            *count += fresh as u16;
            if u32::from(*count) == len {
                *self = BitmapPage::All;
            }
        }
        fresh
    }

    /// Clears `range`; returns how many of it were settled. The page has `len` ordinals.
    fn clear(&mut self, range: &Range<u32>, len: u32) -> u32 {
        let gone = self.count(range, len);
        if gone == 0 {
            return 0;
        }
        if range.len() as u32 == len {
            *self = BitmapPage::None;
            return gone;
        }
        if let BitmapPage::All = self {
            let mut bits = [0; WORDS];
            for (word, bits) in bits.iter_mut().enumerate() {
                *bits = mask(word, &(0..len));
            }
            *self = BitmapPage::Some { bits: Box::new(bits), count: len as u16 };
        }
        if let BitmapPage::Some { bits, count } = self {
            for word in (range.start / 64) as usize..(range.end as usize).div_ceil(64) {
                bits[word] &= !mask(word, range);
            }
            *count -= gone as u16;
            if *count == 0 {
                *self = BitmapPage::None;
            }
        }
        gone
    }

    /// The first ordinal from `from` on, before `len`, that is not settled.
    fn next_live(&self, from: u32, len: u32) -> Option<u32> {
        let live = match self {
            BitmapPage::None => from,
            BitmapPage::All => return None,
            BitmapPage::Some { bits, .. } => (from as usize / 64..WORDS).find_map(|word| {
                let live = !bits[word] & mask(word, &(from..PAGE));
                (live != 0).then(|| word as u32 * 64 + live.trailing_zeros())
            })?,
        };
        (live < len).then_some(live)
    }
}

impl BitmapPage {
    /// The ordinals that are settled here and not in `other`; the page has `len` ordinals.
    fn without(&self, other: &BitmapPage, len: u32) -> BitmapPage {
        let bits = |word: usize| match self {
            BitmapPage::None => 0,
            BitmapPage::All => mask(word, &(0..len)),
            BitmapPage::Some { bits, .. } => bits[word],
        };
        match other {
            BitmapPage::None => self.clone(),
            BitmapPage::All => BitmapPage::None,
            BitmapPage::Some { bits: gone, .. } => {
                let mut left = Box::new([0; WORDS]);
                left.iter_mut().enumerate().for_each(|(word, left)| *left = bits(word) & !gone[word]);
                match left.iter().map(|word| word.count_ones()).sum::<u32>() {
                    0 => BitmapPage::None,
                    count => BitmapPage::Some { bits: left, count: count as u16 },
                }
            }
        }
    }
}

impl DeletionBitmap {
    /// None of the `len` entries of a file.
    pub(crate) fn none(len: u32) -> DeletionBitmap {
        DeletionBitmap { len, settled: 0, pages: vec![BitmapPage::None; len.div_ceil(PAGE) as usize] }
    }

    /// The number of entries of the file.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Whether none is settled.
    pub(crate) fn is_empty(&self) -> bool {
        self.settled == 0
    }

    /// Whether all are settled.
    pub(crate) fn is_full(&self) -> bool {
        self.settled == self.len
    }

    /// The memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        let mixed = self.pages.iter().filter(|page| matches!(page, BitmapPage::Some { .. })).count();
        size_of::<DeletionBitmap>() + self.pages.capacity() * size_of::<BitmapPage>() + mixed * WORDS * 8
    }

    /// Settles an entry; false if it was settled before.
    pub(crate) fn set(&mut self, ordinal: u32) -> bool {
        // The most common case: one entry of a page that stays mixed.
        if let Some(BitmapPage::Some { bits, count }) = self.pages.get_mut((ordinal / PAGE) as usize)
            && u32::from(*count) + 1 < page_len((ordinal / PAGE) as usize, self.len)
            && ordinal < self.len
        {
            let (word, bit) = (&mut bits[(ordinal % PAGE / 64) as usize], 1 << (ordinal % 64));
            let is_new = *word & bit == 0;
            *word |= bit;
            *count += u16::from(is_new);
            self.settled += u32::from(is_new);
            return is_new;
        }
        self.set_range(ordinal..ordinal + 1) == 1
    }

    /// Clears an entry; false if it was not settled.
    pub(crate) fn clear(&mut self, ordinal: u32) -> bool {
        self.clear_range(ordinal..ordinal + 1) == 1
    }

    /// Clears all of `range`; returns how many of it were settled. Looks at no pages but those of `range`.
    pub(crate) fn clear_range(&mut self, range: Range<u32>) -> u32 {
        let len = self.len;
        let mut gone = 0;
        for (page, part) in self.parts(range) {
            #[cfg(test)]
            count_page();
            gone += self.pages[page].clear(&part, page_len(page, len));
        }
        self.settled -= gone;
        gone
    }

    /// Settles all of `range`; returns how many of it were not settled before.
    pub(crate) fn set_range(&mut self, range: Range<u32>) -> u32 {
        let len = self.len;
        let mut fresh = 0;
        for (page, part) in self.parts(range) {
            #[cfg(test)]
            count_page();
            fresh += self.pages[page].set(&part, page_len(page, len));
        }
        self.settled += fresh;
        fresh
    }

    /// Whether an entry is settled.
    pub(crate) fn has(&self, ordinal: u32) -> bool {
        assert!(ordinal < self.len, "ordinal {ordinal} of a file of {} entries", self.len);
        match &self.pages[(ordinal / PAGE) as usize] {
            BitmapPage::None => false,
            BitmapPage::All => true,
            BitmapPage::Some { bits, .. } => bits[(ordinal % PAGE / 64) as usize] >> (ordinal % 64) & 1 == 1,
        }
    }

    /// The number of entries in `range` that are not settled.
    pub(crate) fn live(&self, range: Range<u32>) -> u32 {
        let all = range.len() as u32;
        let parts = self.parts(range);
        all - parts.map(|(page, part)| self.pages[page].count(&part, page_len(page, self.len))).sum::<u32>()
    }

    /// The first ordinal from `from` on that is not settled.
    pub(crate) fn next_live(&self, from: u32) -> Option<u32> {
        if from >= self.len {
            return None;
        }
        let first = from / PAGE;
        (first as usize..self.pages.len()).find_map(|page| {
            let from = if page == first as usize { from % PAGE } else { 0 };
            let live = self.pages[page].next_live(from, page_len(page, self.len))?;
            Some(page as u32 * PAGE + live)
        })
    }

    /// The first ordinal from `from` on that is settled.
    pub(crate) fn next_settled(&self, from: u32) -> Option<u32> {
        let mut at = from;
        while at < self.len {
            let page = (at / PAGE) as usize;
            match &self.pages[page] {
                BitmapPage::None => {}
                BitmapPage::All => return Some(at),
                BitmapPage::Some { bits, .. } => {
                    let from = at % PAGE;
                    let found = (from as usize / 64..WORDS).find_map(|word| {
                        let set = bits[word] & mask(word, &(from..PAGE));
                        (set != 0).then(|| word as u32 * 64 + set.trailing_zeros())
                    });
                    if let Some(found) = found {
                        return Some(page as u32 * PAGE + found);
                    }
                }
            }
            at = (page as u32 + 1).saturating_mul(PAGE);
        }
        None
    }

    /// The entries that are settled here and not in `other`, which is of the same file.
    pub(crate) fn without(&self, other: &DeletionBitmap) -> DeletionBitmap {
        assert_eq!(self.len, other.len, "both are of one file");
        let pages = self.pages.iter().zip(&other.pages).enumerate();
        let pages: Vec<BitmapPage> =
            pages.map(|(at, (page, other))| page.without(other, page_len(at, self.len))).collect();
        #[cfg(test)]
        pages.iter().for_each(|_| count_page());
        let counts = pages.iter().enumerate();
        let settled = counts.map(|(at, page)| {
            let len = page_len(at, self.len);
            page.count(&(0..len), len)
        });
        DeletionBitmap { len: self.len, settled: settled.sum(), pages }
    }

    /// `range` divided at the boundaries of pages: page, and range from its start.
    fn parts(&self, range: Range<u32>) -> impl Iterator<Item = (usize, Range<u32>)> + use<> {
        assert!(range.end <= self.len, "ordinal {} of a file of {} entries", range.end, self.len);
        let pages = if range.is_empty() { 0..0 } else { range.start / PAGE..(range.end - 1) / PAGE + 1 };
        pages.map(move |page| {
            let start = page * PAGE;
            (page as usize, range.start.max(start) - start..range.end.min(start.saturating_add(PAGE)) - start)
        })
    }
}

#[cfg(test)]
thread_local! {
    static CHANGED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
fn count_page() {
    CHANGED.set(CHANGED.get() + 1);
}

/// The number of pages that this thread has looked at so far, to change them.
#[cfg(test)]
pub(crate) fn pages_changed() -> u64 {
    CHANGED.get()
}

/// The number of ordinals in a page.
fn page_len(page: usize, len: u32) -> u32 {
    (len - page as u32 * PAGE).min(PAGE)
}

/// The version of the format that [`DeletionBitmap::encode`] writes. To change the format, raise it, and keep reading
/// the old one.
const VERSION: u8 = 1;
/// The kinds of a run of pages.
const NONE: u8 = 0;
const ALL: u8 = 1;
const RAW: u8 = 2;
const RUNS: u8 = 3;

impl DeletionBitmap {
    /// Writes the set.
    ///
    /// | part | |
    /// |---|---|
    /// | length | 4 bytes: from here to the end, the checksum in it |
    /// | version | one byte, 1 |
    /// | entries | varint |
    /// | pages | in order; a kind (one byte), and: 0 none, how many such pages (varint); 1 all, how many; 2 raw, 512 bytes; 3 runs, lengths of what is not settled, settled, not settled, and so on, that fill the page (varints) |
    /// | checksum | CRC-32 of everything before, salted |
    pub(crate) fn encode(&self, salt: Salt, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.push(VERSION);
        put_varint(out, u64::from(self.len));
        let mut page = 0;
        while page < self.pages.len() {
            let kind = match &self.pages[page] {
                BitmapPage::None => NONE,
                BitmapPage::All => ALL,
                BitmapPage::Some { bits, .. } => {
                    put_page(out, bits, page_len(page, self.len));
                    page += 1;
                    continue;
                }
            };
            let same = self.pages[page..].iter().take_while(|other| **other == self.pages[page]).count();
            out.push(kind);
            put_varint(out, same as u64);
            page += same;
        }
        // The checksum is as long as the length.
        let len = (out.len() - start) as u32;
        out[start..start + 4].copy_from_slice(&len.to_le_bytes());
        let checksum = salt.checksum(&out[start..]);
        out.extend_from_slice(&checksum.to_le_bytes());
    }

    /// Reads a set from the start of `bytes`; returns its length too.
    pub(crate) fn decode(bytes: &[u8], salt: Salt) -> Read<(DeletionBitmap, usize)> {
        let malformed = Unreadable::Malformed;
        let end = bytes.len().checked_sub(4).map(|_| 4 + u32_at(bytes, 0) as usize);
        let end = end.filter(|end| (9..=bytes.len()).contains(end));
        let end = end.ok_or(malformed("a set of settlements is cut off"))?;
        if salt.checksum(&bytes[..end - 4]) != u32_at(bytes, end - 4) {
            return Err(malformed("a set of settlements fails its checksum"));
        }
        if bytes[4] > VERSION {
            return Err(Unreadable::Newer(
                "a set of settlements has a layout that this version does not know",
            ));
        }
        if bytes[4] == 0 {
            return Err(malformed("a set of settlements has a layout that there never was"));
        }
        let mut cursor = ByteCursor::new(&bytes[5..end - 4]);
        let len = u32::try_from(cursor.varint()?).map_err(|_| malformed("a file has too many entries"))?;
        let wanted = len.div_ceil(PAGE) as usize;
        let mut settled = DeletionBitmap { len, settled: 0, pages: Vec::new() };
        while settled.pages.len() < wanted {
            let at = settled.pages.len();
            let len = page_len(at, len);
            match cursor.byte()? {
                kind @ (NONE | ALL) => {
                    let count = usize::try_from(cursor.varint()?).ok();
                    let count = count.filter(|count| (1..=wanted - at).contains(count));
                    let count = count.ok_or(malformed("a set has more pages than its file"))?;
                    settled
                        .pages
                        .resize(at + count, if kind == NONE { BitmapPage::None } else { BitmapPage::All });
                }
                kind @ (RAW | RUNS) => settled.pages.push(read_page(&mut cursor, kind, len)?),
                _ => return Err(malformed("a set has a page of no kind")),
            }
        }
        if bytes[4] != VERSION || !cursor.is_at_end() {
            return Err(malformed("a set of settlements is longer than what it says"));
        }
        let counts = settled.pages.iter().enumerate();
        settled.settled =
            counts.map(|(at, page)| page.count(&(0..page_len(at, len)), page_len(at, len))).sum();
        Ok((settled, end))
    }
}

/// Writes a page that is neither empty nor full.
fn put_page(out: &mut Vec<u8>, bits: &[u64; WORDS], len: u32) {
    let start = out.len();
    out.push(RUNS);
    let is_set = |at: u32| bits[at as usize / 64] >> (at % 64) & 1 == 1;
    let (mut at, mut settled) = (0, false);
    while at < len {
        let run = (at..len).take_while(|at| is_set(*at) == settled).count() as u32;
        put_varint(out, u64::from(run));
        (at, settled) = (at + run, !settled);
    }
    if out.len() - start > 1 + WORDS * 8 {
        out.truncate(start);
        out.push(RAW);
        bits.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
    }
}

/// Reads a page of `len` ordinals.
fn read_page(cursor: &mut ByteCursor<'_>, kind: u8, len: u32) -> Read<BitmapPage> {
    let malformed = Unreadable::Malformed;
    let mut bits = Box::new([0; WORDS]);
    if kind == RAW {
        for word in bits.iter_mut() {
            *word = u64::from_le_bytes(cursor.take(8)?.try_into().expect("eight bytes were taken"));
        }
    } else {
        let (mut at, mut settled) = (0, false);
        while at < len {
            let run = u32::try_from(cursor.varint()?).ok().and_then(|run| at.checked_add(run));
            let is_right = |end: &u32| *end <= len && (*end > at || at == 0 && !settled);
            let end = run.filter(is_right).ok_or(malformed("a page has runs that do not fill it"))?;
            if settled {
                bits.iter_mut().enumerate().for_each(|(word, bits)| *bits |= mask(word, &(at..end)));
            }
            (at, settled) = (end, !settled);
        }
    }
    let count: u32 = bits.iter().map(|word| word.count_ones()).sum();
    let is_inside = bits.iter().enumerate().all(|(word, bits)| bits & !mask(word, &(0..len)) == 0);
    if !is_inside || count == 0 || count >= len {
        return Err(malformed("a page is not what it says"));
    }
    Ok(BitmapPage::Some { bits, count: count as u16 })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEN: u32 = 2 * PAGE + 100;

    /// A range, mostly short, and sometimes up to the end of a page.
    fn range() -> impl Strategy<Value = Range<u32>> {
        let pages = (0..4u32, 0..4u32).prop_map(|(from, pages)| from * PAGE..(from + pages) * PAGE);
        let any = (0..=LEN, prop_oneof![0..200u32, 0..LEN]).prop_map(|(from, len)| from..from + len);
        prop_oneof![1 => pages, 4 => any].prop_map(|range| range.start.min(LEN)..range.end.min(LEN))
    }

    /// The answers for ranges agree with a check of each ordinal.
    #[test]
    fn what_comes_next_and_how_many_are_left_is_so_for_every_ordinal() {
        let ranges = [
            Vec::new(),
            vec![0..PAGE, PAGE..LEN],
            vec![0..PAGE, PAGE + 5..PAGE + 6],
            vec![70..PAGE + 1, LEN - 1..LEN],
            vec![PAGE..PAGE + 1, PAGE + 1..2 * PAGE],
        ];
        for ranges in ranges {
            let mut settled = DeletionBitmap::none(LEN);
            for range in &ranges {
                settled.set_range(range.clone());
            }
            let is_set = |at: &u32| ranges.iter().any(|range| range.contains(at));
            for from in (0..=LEN + 1).filter(|at| at % 61 < 2 || at % PAGE < 3 || at % PAGE > PAGE - 3) {
                let after = || from..LEN;
                assert_eq!(settled.next_live(from), after().find(|at| !is_set(at)), "{from} of {ranges:?}");
                assert_eq!(settled.next_settled(from), after().find(is_set), "{from} of {ranges:?}");
                let live = after().filter(|at| !is_set(at)).count() as u32;
                assert_eq!(settled.live(from.min(LEN)..LEN), live, "{from} of {ranges:?}");
                assert!(from >= LEN || settled.has(from) == is_set(&from));
            }
            let count = (0..LEN).filter(is_set).count() as u32;
            assert_eq!((settled.is_empty(), settled.is_full()), (count == 0, count == LEN));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn a_range_is_cleared_as_if_one_by_one(steps in prop::collection::vec((any::<bool>(), range()), 1..20)) {
            let (mut settled, mut single) = (DeletionBitmap::none(LEN), vec![false; LEN as usize]);
            for (sets, range) in steps {
                let part = &mut single[range.start as usize..range.end as usize];
                let changed = part.iter().filter(|is_set| **is_set != sets).count() as u32;
                part.fill(sets);
                let said = if sets { settled.set_range(range) } else { settled.clear_range(range) };
                prop_assert_eq!(said, changed);
                let mut beside = DeletionBitmap::none(LEN);
                (0..LEN).filter(|at| single[*at as usize]).for_each(|at| assert!(beside.set(at)));
                prop_assert_eq!(&settled, &beside);
            }
        }
    }
}

//! A filter: rules out, without I/O, that a key is in a run.
//!
//! A Bloom filter in blocks of a cache line (Putze, Sanders and Singler, "Cache-, Hash- and Space-Efficient Bloom
//! Filters", 2007): a key chooses one group of 512 bits, and 6 bits in it.

use crate::journal::format::{Salt, u32_at};

/// The number of words in a group.
const GROUP: usize = 8;
const PROBES: u32 = 6;
/// The number of words in a piece, each of which has a separate checksum on disk.
pub(super) const PIECE: usize = 32 * 1024;

/// The filter of a run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Filter {
    words: Vec<u64>,
}

/// Numbers rise and hashes do not: both are spread (the finalizer of MurmurHash3).
fn mix(key: u64) -> u64 {
    let key = (key ^ key >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let key = (key ^ key >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    key ^ key >> 33
}

impl Filter {
    /// An empty filter for `count` keys, with `bits` bits for each.
    pub(super) fn for_keys(count: u64, bits: u64) -> Filter {
        let groups = count.saturating_mul(bits).div_ceil(GROUP as u64 * 64).max(1);
        Filter { words: vec![0; groups as usize * GROUP] }
    }

    /// The first word of a key's group, and its bits there, nine bits of the number for each.
    fn place(&self, key: u64) -> (usize, u64) {
        let groups = (self.words.len() / GROUP) as u128;
        let first = mix(key);
        let group = (u128::from(first) * groups) >> 64;
        (group as usize * GROUP, mix(first ^ 0x9e37_79b9_7f4a_7c15))
    }

    pub(super) fn insert(&mut self, key: u64) {
        let (group, bits) = self.place(key);
        for probe in 0..PROBES {
            let bit = (bits >> (probe * 9)) & 511;
            self.words[group + (bit >> 6) as usize] |= 1 << (bit & 63);
        }
    }

    /// False if `key` was not inserted; true if it was, and for some others.
    pub(super) fn may_hold(&self, key: u64) -> bool {
        let (group, bits) = self.place(key);
        (0..PROBES).all(|probe| {
            let bit = (bits >> (probe * 9)) & 511;
            self.words[group + (bit >> 6) as usize] >> (bit & 63) & 1 == 1
        })
    }

    pub(super) fn len(&self) -> usize {
        self.words.len()
    }

    /// The length of this number of words on disk, with checksums, in bytes.
    pub(super) fn size(words: u64) -> Option<u64> {
        words.checked_mul(8)?.checked_add(words.div_ceil(PIECE as u64) * 4)
    }

    /// The pieces to be written: words, then their CRC-32, salted with the piece's number too.
    pub(super) fn pieces(&self, salt: Salt) -> impl Iterator<Item = Vec<u8>> {
        self.words.chunks(PIECE).zip(0..).map(move |(words, number)| {
            let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            bytes.extend_from_slice(&salt.body_checksum(number, &bytes).to_le_bytes());
            bytes
        })
    }

    /// A filter of `words` words, of which nothing was read yet; the file is large enough for them.
    pub(super) fn unread(words: u64) -> Filter {
        Filter { words: Vec::with_capacity(words as usize) }
    }

    /// Adds the next piece; false if it is damaged.
    pub(super) fn read_piece(&mut self, salt: Salt, bytes: &[u8]) -> bool {
        let number = self.words.len() / PIECE;
        let Some((words, checksum)) = bytes.split_last_chunk::<4>() else { return false };
        if salt.body_checksum(number as u64, words) != u32_at(checksum, 0) {
            return false;
        }
        self.words.extend(words.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)));
        true
    }

    /// Whether a filter can have this number of words.
    pub(super) fn is_length(words: u64) -> bool {
        words.is_multiple_of(GROUP as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lets_what_it_holds_pass_and_few_others() {
        let spreads = [1, 0x9e37_79b9_7f4a_7c15];
        for (spread, (bits, most)) in
            spreads.into_iter().flat_map(|spread| [(spread, (10, 50)), (spread, (16, 500))])
        {
            let count = 100_000;
            let mut filter = Filter::for_keys(count, bits);
            (0..count).for_each(|key| filter.insert(key.wrapping_mul(spread)));
            assert!((0..count).all(|key| filter.may_hold(key.wrapping_mul(spread))));
            let others = (count..2 * count).filter(|key| filter.may_hold(key.wrapping_mul(spread))).count();
            assert!(others < count as usize / most, "{others} of {count} others pass");
            assert!(filter.len() as u64 * 64 <= (bits + 1) * count);
        }
    }

    /// Filters written by an earlier version are read by this one: a key whose bits have moved would not be found.
    #[test]
    fn keys_have_the_bits_that_docs_format_says() {
        // The finalizer of MurmurHash3 (fmix64), by its definition.
        let finalize = |key: u64| {
            let mut h = key;
            h ^= h >> 33;
            h = h.wrapping_mul(0xff51_afd7_ed55_8ccd);
            h ^= h >> 33;
            h = h.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
            h ^ h >> 33
        };
        assert_eq!(finalize(1), 0xb456_bcfc_34c2_cb2c);
        for key in [1, 700_000, 1 << 40, u64::MAX] {
            let mut filter = Filter::for_keys(1_000, 16);
            filter.insert(key);
            let groups = filter.len() as u64 / 8;
            let group = (u128::from(finalize(key)) * u128::from(groups)) >> 64;
            let numbers = finalize(finalize(key) ^ 0x9e37_79b9_7f4a_7c15);
            let mut words = vec![0; filter.len()];
            for probe in 0..6 {
                let bit = numbers / 512_u64.pow(probe) % 512;
                words[group as usize * 8 + bit as usize / 64] |= 1_u64 << (bit % 64);
            }
            assert_eq!(filter.words, words, "{key}");
        }
    }

    /// A piece is valid in its place only: the words of another one would give wrong answers.
    #[test]
    fn is_read_piece_by_piece_and_in_their_order_alone() {
        let salt = Salt::of(b"the name of a file");
        let mut filter = Filter::for_keys(300_000, 16);
        (0..300_000).for_each(|key| filter.insert(key));
        let pieces: Vec<Vec<u8>> = filter.pieces(salt).collect();
        assert!(pieces.len() > 2, "{} pieces", pieces.len());
        assert_eq!(
            Some(pieces.iter().map(Vec::len).sum::<usize>() as u64),
            Filter::size(filter.len() as u64)
        );
        let mut read = Filter::unread(filter.len() as u64);
        assert!(pieces.iter().all(|piece| read.read_piece(salt, piece)));
        assert_eq!(read, filter);
        let mut read = Filter::unread(filter.len() as u64);
        assert!(!read.read_piece(salt, &pieces[1]) && read.read_piece(salt, &pieces[0]));
        assert!(!read.read_piece(salt, &pieces[0]) && !read.read_piece(salt, &pieces[2]));
        assert!(read.read_piece(salt, &pieces[1]));
    }
}

//! Seeded random numbers (SplitMix64), so that a run depends on its seed alone.

/// A seeded random number generator.
///
/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014): its state is one
/// word, so that [`Random::of`] gives every line, client and round a separate stream at no cost.
#[derive(Clone, Debug)]
pub struct Random(u64);

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The stream of one part of a run: line, client or round number `number`.
    pub fn of(seed: u64, number: u64) -> Random {
        let mut parent = Random(seed ^ 0x6a09_e667_f3bc_c908);
        let mixed = parent.next() ^ number.wrapping_mul(GOLDEN);
        Random(Random(mixed).next())
    }

    /// The next 64 bits.
    #[expect(clippy::should_implement_trait, reason = "it has no end, and nobody wants an iterator")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 if that is 0.
    ///
    /// The bias of the multiplication (Lemire, 2019) is below `end` / 2^64, which is negligible here.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// A number from `from` to `to`, both included.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    /// True in `share` of a hundred cases.
    pub fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }

    /// True in one of two cases.
    pub fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }

    /// Appends `len` random bytes to `out`.
    pub fn fill(&mut self, out: &mut Vec<u8>, len: usize) {
        let end = out.len() + len;
        while out.len() < end {
            out.extend_from_slice(&self.next().to_le_bytes());
        }
        out.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_published_numbers_of_splitmix64() {
        let mut random = Random::new(1_234_567);
        let numbers = [random.next(), random.next(), random.next()];
        assert_eq!(
            numbers,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn stays_within_bounds_and_reaches_them() {
        let mut random = Random::new(1);
        let numbers: Vec<u64> = (0..1_000).map(|_| random.between(3, 5)).collect();
        assert!((3..=5).all(|n| numbers.contains(&n)) && numbers.iter().all(|n| (3..=5).contains(n)));
        let mut bytes = vec![7];
        random.fill(&mut bytes, 13);
        assert_eq!(bytes.len(), 14);
    }

    #[test]
    fn neighbouring_streams_differ() {
        let mut firsts: Vec<u64> = (0..1_000).map(|number| Random::of(9, number).next()).collect();
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts.len(), 1_000);
    }
}

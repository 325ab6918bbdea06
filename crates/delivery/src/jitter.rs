//! Jitter as a hash: it spreads events that would coincide, and every process computes the same value.
//!
//! A random number would differ between servers, and between tries.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

/// Fixed, so that all versions and machines agree: a message that is put with a jittered instant must be found under it
/// again.
const KEYS: (u64, u64) = (0x6477_656c_6c00_0001, 0x6a69_7474_6572_0001);

/// A number from 0 to `most` inclusive that is a hash of `parts`, evenly distributed.
///
/// Boundaries between parts matter: `["ab", "c"]` gives another number than `["a", "bc"]`.
pub(crate) fn up_to(most: u64, parts: &[&[u8]]) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(KEYS.0, KEYS.1);
    for part in parts {
        hasher.write(&(part.len() as u64).to_le_bytes());
        hasher.write(part);
    }
    let wide = u128::from(hasher.finish()) * (u128::from(most) + 1);
    (wide >> 64) as u64
}

/// `delay` less up to `percent` of it, by a hash of `parts`.
pub(crate) fn shortened(delay: u64, percent: u32, parts: &[&[u8]]) -> u64 {
    let most = u128::from(delay) * u128::from(percent.min(100)) / 100;
    delay - up_to(most as u64, parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_parts_give_the_same_number_on_every_machine() {
        // Golden values: with a change, two versions would put one run at two instants.
        assert_eq!(up_to(999, &[b"nightly", b"0"]), 243);
        assert_ne!(up_to(u64::MAX, &[b"ab", b"c"]), up_to(u64::MAX, &[b"a", b"bc"]));
    }

    #[test]
    fn numbers_spread_over_the_whole_range_and_stay_in_it() {
        let numbers: Vec<u64> = (0..10_000_u32).map(|n| up_to(9, &[&n.to_le_bytes()])).collect();
        for value in 0..=9 {
            let share = numbers.iter().filter(|number| **number == value).count();
            assert!((800..1_200).contains(&share), "{value} came {share} times of 10,000");
        }
        assert_eq!(up_to(0, &[b"x"]), 0);
    }

    #[test]
    fn a_shortened_delay_loses_its_share_at_most() {
        for n in 0..1_000_u32 {
            let delay = shortened(1_000, 20, &[&n.to_le_bytes()]);
            assert!((800..=1_000).contains(&delay), "{delay}");
        }
        assert_eq!(shortened(u64::MAX, 0, &[b"x"]), u64::MAX);
    }
}

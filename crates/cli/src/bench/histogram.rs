//! How long things took, in buckets that grow with what they hold: 32 to each power of two, so that what is read is
//! at most a thirty-second too much.

const FINE_BITS: u32 = 5;
const FINE: u64 = 1 << FINE_BITS;
const BUCKETS: usize = (FINE as usize) * (64 - FINE_BITS as usize + 1);

#[derive(Clone, Debug)]
pub(super) struct Histogram {
    counts: Vec<u64>,
    count: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: vec![0; BUCKETS], count: 0, max: 0 }
    }
}

impl Histogram {
    pub(super) fn add(&mut self, value: u64) {
        self.counts[bucket(value)] += 1;
        self.count += 1;
        self.max = self.max.max(value);
    }

    pub(super) fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max)
    }

    /// What so many of a hundred values are not over; nothing of no values.
    pub(super) fn percentile(&self, percent: u64) -> Option<u64> {
        let rank = (self.count * percent).div_ceil(100).max(1);
        let mut below = 0;
        for (at, count) in self.counts.iter().enumerate() {
            below += count;
            if below >= rank {
                return Some(last_of(at).min(self.max));
            }
        }
        None
    }
}

fn bucket(value: u64) -> usize {
    if value < FINE {
        return value as usize;
    }
    let shift = 63 - value.leading_zeros() - FINE_BITS;
    (FINE as usize) * (shift as usize) + (value >> shift) as usize
}

/// The largest value of a bucket.
fn last_of(at: usize) -> u64 {
    let at = at as u64;
    if at < 2 * FINE {
        return at;
    }
    let shift = at / FINE - 1;
    let first = (FINE + at % FINE) << shift;
    first + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_one_bucket_that_ends_close_above_it() {
        let values = (0..64).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit, (1 << bit) + (1 << bit) / 3]);
        for value in values.chain([u64::MAX]) {
            let at = bucket(value);
            assert!(at < BUCKETS, "{value}");
            let last = last_of(at);
            assert!(last >= value && last - value <= value / FINE, "{value} ends at {last}");
            assert!(at == 0 || last_of(at - 1) < value, "{value}");
        }
    }

    #[test]
    fn percentiles_are_of_what_was_added() {
        let mut histogram = Histogram::default();
        assert_eq!((histogram.percentile(50), histogram.max()), (None, None));
        (1..=30).for_each(|value| histogram.add(value));
        assert_eq!(histogram.percentile(50), Some(15));
        assert_eq!(histogram.percentile(99), Some(30));
        histogram.add(1_000_000);
        assert_eq!((histogram.percentile(99), histogram.max()), (Some(1_000_000), Some(1_000_000)));
    }
}

//! Histograms of sync durations and write sizes.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count for each bucket. Bucket bounds are powers of two: bucket `n` counts values over `2^(n-1)` and at most
/// `2^n` of the unit, the last one all larger values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Sizes {
    /// The count of each bucket.
    pub counts: [u64; Sizes::BUCKETS],
    /// The sum of all values.
    pub sum: u64,
}

impl Sizes {
    /// The number of buckets: the last but one ends at 2^24, 16 s in microseconds and 16 MiB in bytes.
    pub const BUCKETS: usize = 26;

    /// The upper bound of bucket `bucket`; `None` for the last one, which has none.
    pub fn bound(bucket: usize) -> Option<u64> {
        (bucket < Sizes::BUCKETS - 1).then(|| 1 << bucket)
    }
}

/// [`Sizes`] that are updated concurrently.
#[derive(Debug, Default)]
pub(crate) struct SizeTally {
    counts: [AtomicU64; Sizes::BUCKETS],
    sum: AtomicU64,
}

impl SizeTally {
    pub(crate) fn record(&self, size: u64) {
        let bucket = size.saturating_sub(1).checked_ilog2().map_or(0, |log| log as usize + 1);
        self.counts[bucket.min(Sizes::BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(size, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Sizes {
        Sizes {
            counts: std::array::from_fn(|bucket| self.counts[bucket].load(Ordering::Relaxed)),
            sum: self.sum.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_falls_into_the_first_bucket_that_holds_it() {
        for size in [0, 1, 2, 3, 4, 5, 1_000, 1 << 24, (1 << 24) + 1, u64::MAX] {
            let tally = SizeTally::default();
            tally.record(size);
            let bucket = tally.read().counts.iter().position(|count| *count == 1).unwrap();
            let first = (0..Sizes::BUCKETS).find(|at| Sizes::bound(*at).is_none_or(|bound| size <= bound));
            assert_eq!(Some(bucket), first, "{size}");
        }
    }
}

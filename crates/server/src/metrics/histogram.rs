//! Histograms.

use super::Counter;

/// A histogram over fixed bounds. Recording is two additions.
#[derive(Debug)]
pub(crate) struct Histogram<const N: usize> {
    /// The inclusive upper bound of each bucket, rising. Larger values go to one more bucket.
    bounds: &'static [u64; N],
    buckets: [Counter; N],
    above: Counter,
    sum: Counter,
}

impl<const N: usize> Histogram<N> {
    pub(crate) fn new(bounds: &'static [u64; N]) -> Histogram<N> {
        let buckets = std::array::from_fn(|_| Counter::default());
        Histogram { bounds, buckets, above: Counter::default(), sum: Counter::default() }
    }

    pub(crate) fn record(&self, value: u64) {
        let at = self.bounds.partition_point(|bound| *bound < value);
        self.buckets.get(at).unwrap_or(&self.above).add(1);
        self.sum.add(value);
    }

    /// Upper bounds and counts, the last bound infinite, and the sum of all values. Bounds and sum are multiplied by
    /// `unit`.
    pub(crate) fn read(&self, unit: f64) -> (Vec<(f64, u64)>, f64) {
        let bounds = self.bounds.iter().map(|bound| *bound as f64 * unit).chain([f64::INFINITY]);
        let counts = self.buckets.iter().chain([&self.above]).map(Counter::get);
        (bounds.zip(counts).collect(), self.sum.get() as f64 * unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let histogram = Histogram::new(&[0, 1, 10]);
        for value in [0, 0, 1, 2, 10, 11, 5_000] {
            histogram.record(value);
        }
        let (buckets, sum) = histogram.read(0.001);
        let counts: Vec<u64> = buckets.iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, [2, 1, 2, 2]);
        assert_eq!(buckets[3].0, f64::INFINITY);
        assert!((sum - 5.024).abs() < 1e-9);
    }
}

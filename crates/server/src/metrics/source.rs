//! What others count themselves: the server shows it, and does not know what it means.

/// One family of what is counted elsewhere, without labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Its name, in the form that Prometheus wants: `dwell_engine_syncs`. The page adds `_total` to a count.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// How much.
    pub value: SampleValue,
}

/// How much there is of something.
#[derive(Clone, Debug, PartialEq)]
pub enum SampleValue {
    /// So many so far.
    Counter(u64),
    /// So many now.
    Gauge(u64),
    /// So many of each size.
    Histogram {
        /// Upper bounds, rising, the last one infinite, and how many are in each bucket alone.
        buckets: Vec<(f64, u64)>,
        /// The sum of all sizes.
        sum: f64,
    },
}

/// Something that counts. Any function that gives samples is one.
pub trait Samples: Send + Sync {
    /// What was counted so far. Called each time a page is made: it has to be quick, and may not block.
    fn samples(&self) -> Vec<Sample>;
}

impl<F: Fn() -> Vec<Sample> + Send + Sync> Samples for F {
    fn samples(&self) -> Vec<Sample> {
        self()
    }
}

impl std::fmt::Debug for dyn Samples {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Samples")
    }
}

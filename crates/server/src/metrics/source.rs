//! Samples of other components: the server shows them without knowing what they mean.

/// One metric family of another component, without labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Its name, in Prometheus's form: `dwell_engine_syncs`. The page adds `_total` to a count.
    pub name: &'static str,
    /// Its help text, one sentence.
    pub help: &'static str,
    /// Its value.
    pub value: SampleValue,
}

/// A sample's value.
#[derive(Clone, Debug, PartialEq)]
pub enum SampleValue {
    /// A total that only grows.
    Counter(u64),
    /// A current value.
    Gauge(u64),
    /// A distribution.
    Histogram {
        /// Upper bounds, rising, the last one infinite, and the count of each bucket alone.
        buckets: Vec<(f64, u64)>,
        /// The sum of all values.
        sum: f64,
    },
}

/// A source of samples. Any function that returns samples is one.
pub trait Samples: Send + Sync {
    /// The current samples. Called for each page: it has to be fast, and must not block.
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

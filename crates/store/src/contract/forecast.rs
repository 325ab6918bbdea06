//! Forecasts: how many scheduled messages are due by given instants.

use dwell_model::{Invalid, Timestamp};

use super::Result;

/// The number of scheduled messages that are due by each of some instants.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Forecast {
    /// The exact number of all scheduled messages of these queues, as counted by
    /// [`Store::stats`](super::Store::stats).
    pub scheduled: u64,
    /// For each instant, the number of them that are due then or before.
    pub due_by: Vec<u64>,
    /// The maximum error of each of these; 0 where they are exact.
    pub within: u64,
}

impl Forecast {
    /// The maximum number of instants per call.
    pub const MAX_EDGES: usize = 200;

    /// A forecast without scheduled messages, for `edges` instants.
    pub fn none(edges: usize) -> Forecast {
        Forecast { scheduled: 0, due_by: vec![0; edges], within: 0 }
    }

    /// Refuses more instants than one call may name.
    ///
    /// # Errors
    /// [`Invalid::BatchTooLarge`].
    pub fn check(edges: &[Timestamp]) -> Result<()> {
        match edges.len() {
            len if len > Forecast::MAX_EDGES => {
                Err(Invalid::BatchTooLarge { len, limit: Forecast::MAX_EDGES }.into())
            }
            _ => Ok(()),
        }
    }

    /// Adds the messages of other queues, by the same instants.
    pub fn add(&mut self, other: &Forecast) {
        self.scheduled += other.scheduled;
        self.within += other.within;
        for (sum, more) in self.due_by.iter_mut().zip(&other.due_by) {
            *sum += more;
        }
    }
}

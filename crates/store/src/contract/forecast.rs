//! What falls due: how many scheduled messages are due by given instants.

use dwell_model::{Invalid, Timestamp};

use super::Result;

/// How many scheduled messages are due by each of some instants.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Forecast {
    /// All scheduled messages of the queues in question, as [`Store::stats`](super::Store::stats) counts them: exact.
    pub scheduled: u64,
    /// For each instant, how many of them are due then or before.
    pub due_by: Vec<u64>,
    /// How far off each of these may be, at most; 0 where they are exact.
    pub within: u64,
}

impl Forecast {
    /// The most instants that one call may name.
    pub const MAX_EDGES: usize = 200;

    /// Nothing is scheduled; for so many instants.
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

    /// Adds other queues' messages, by the same instants.
    pub fn add(&mut self, other: &Forecast) {
        self.scheduled += other.scheduled;
        self.within += other.within;
        for (sum, more) in self.due_by.iter_mut().zip(&other.due_by) {
            *sum += more;
        }
    }
}

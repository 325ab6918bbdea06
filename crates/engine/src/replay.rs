//! Rebuilding the state from records.
//!
//! Records about a cold message, one that was put before the journal began, are not resolved at once: that would cost
//! a read or two for each, at random places. They are collected and then resolved together, looked up in the order of
//! numbers, and read in the order of files. For a message that was taken and acked the lease record has its due time:
//! such messages are looked up by due time, in groups of limited size; the numbers of all others that are deleted are
//! collected in a set, and the runs are scanned once. Records about whole queues, or about time, depend on everything
//! collected before them: so they resolve it first.

use std::collections::HashMap;

use dwell_model::{Number, Standing, Timestamp};
use dwell_store::core::{Core, PutRecord, Record, ReplayError};

use crate::cold::{ColdSet, GoneByQueue};
use crate::index_run::NumberSet;
use crate::journal::segment::BodyRef;
use crate::recovery::{Replay, ReplayRefusal};
use crate::sealed::ReadError;
use crate::shard::step::Step;

/// The maximum number of messages whose standings are collected before they are looked up; it bounds memory.
const MOST: usize = 64 * 1024;

/// The maximum number of deleted messages that are looked up by due time at once.
const MOST_DUE: usize = 256 * 1024;

/// What was recorded of messages that are cold, or that do not exist.
#[derive(Debug, Default)]
struct ColdUpdates {
    /// Their current standings.
    stand: HashMap<Number, Standing>,
    /// Deleted messages, with their due times.
    gone_due: Vec<(Timestamp, Number)>,
    /// Deleted messages whose due time is not known.
    gone: NumberSet,
}

impl ColdUpdates {
    fn is_empty(&self) -> bool {
        self.stand.is_empty() && self.gone_due.is_empty() && self.gone.is_empty()
    }
}

/// A state that is being rebuilt.
pub(crate) struct Replayer<'a> {
    core: &'a mut Core<BodyRef>,
    cold: &'a mut ColdSet,
    news: ColdUpdates,
}

impl<'a> Replayer<'a> {
    /// Continues from the state in `step`.
    pub(crate) fn new(step: &'a mut Step) -> Replayer<'a> {
        let (core, cold) = step.both();
        Replayer { core, cold, news: ColdUpdates::default() }
    }

    fn refusal(&mut self, error: &ReplayError) -> ReplayRefusal {
        match self.cold.take_failure() {
            Some(failure) => ReplayRefusal::Unreadable(failure),
            None => ReplayRefusal::Contradiction(error.to_string()),
        }
    }

    /// Looks up deleted messages by due time. Those not found there are kept by number.
    fn look_up_gone(&mut self) -> Result<(), ReplayRefusal> {
        let mut gone = std::mem::take(&mut self.news.gone_due);
        let counts = self.cold.settle_due(&mut gone)?;
        self.count_out(counts);
        gone.into_iter().for_each(|(_, number)| self.news.gone.add(number.get()));
        Ok(())
    }

    fn count_out(&mut self, gone: GoneByQueue) {
        for (queue, (pending, dead)) in gone {
            self.core.replay_cold_gone(&queue, false, pending);
            self.core.replay_cold_gone(&queue, true, dead);
        }
    }

    fn replay(&mut self, record: Record) -> Result<(), ReplayRefusal> {
        self.core.replay_with(record, Some(self.cold)).map_err(|error| self.refusal(&error))
    }
}

impl From<ReadError> for ReplayRefusal {
    fn from(error: ReadError) -> ReplayRefusal {
        ReplayRefusal::Unreadable(error)
    }
}

impl Replay for Replayer<'_> {
    fn put(&mut self, record: PutRecord, body: BodyRef) -> Result<(), ReplayRefusal> {
        self.core.replay_put(record, body).map_err(|error| self.refusal(&error))
    }

    fn record(&mut self, record: Record) -> Result<(), ReplayRefusal> {
        match &record {
            // These depend on which messages exist: of all queues,
            Record::Ripe { .. } => self.look_up()?,
            // or of one queue. For a queue without cold messages nothing was collected.
            Record::Purged { queue }
            | Record::Discarded { queue }
            | Record::Revived { queue, .. }
            | Record::Deleted { queue } => {
                if self.core.has_cold(queue) {
                    self.look_up()?;
                }
            }
            Record::Stands { .. }
            | Record::Gone { .. }
            | Record::Answered { .. }
            | Record::Configured { .. } => {}
        }
        self.replay(record)
    }

    fn old(&mut self, number: Number, standing: Option<Standing>) -> Result<(), ReplayRefusal> {
        if self.core.is_resident(number) {
            return self.replay(match standing {
                Some(standing) => Record::Stands { number, standing },
                None => Record::Gone { number },
            });
        }
        match standing {
            // A deleted message stays deleted.
            Some(_) if self.news.gone.has(number.get()) => {}
            Some(standing) => {
                self.news.stand.insert(number, standing);
                if self.news.stand.len() >= MOST {
                    self.look_up()?;
                }
            }
            None => match self.news.stand.remove(&number) {
                Some(standing) => {
                    self.news.gone_due.push((standing.due, number));
                    if self.news.gone_due.len() >= MOST_DUE {
                        self.look_up_gone()?;
                    }
                }
                None => self.news.gone.add(number.get()),
            },
        }
        Ok(())
    }

    fn begins(&mut self, wall: Timestamp) -> Result<(), ReplayRefusal> {
        self.core.replay_begins(wall);
        let wall_before = self.core.seen();
        if wall < wall_before {
            // The clock stepped back. A segment that was begun before any call had noticed shows this by its time
            // alone.
            return self.record(Record::Ripe { wall: wall_before });
        }
        Ok(())
    }

    fn time(&mut self, wall: Timestamp) {
        self.core.replay_time(wall);
    }

    fn look_up(&mut self) -> Result<(), ReplayRefusal> {
        if self.news.is_empty() {
            return Ok(());
        }
        self.look_up_gone()?;
        let ColdUpdates { mut stand, gone, .. } = std::mem::take(&mut self.news);
        let counts = self.cold.settle(&gone)?;
        self.count_out(counts);
        let mut numbers: Vec<Number> = stand.keys().copied().collect();
        numbers.sort_unstable();
        for drawn in self.cold.draw(&numbers)? {
            let standing = stand.remove(&drawn.message.number).expect("it was asked for");
            self.core.replay_drawn(drawn, standing).map_err(|error| self.refusal(&error))?;
        }
        Ok(())
    }
}

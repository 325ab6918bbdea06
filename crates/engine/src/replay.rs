//! Building the state again from records.
//!
//! What is recorded of a message that is cold, it being put before the journal began, is not looked up at once: that would
//! be a read or two for each, wherever its number and its copy lie. It is remembered until all is read, and then looked
//! up together, in the order of numbers, and read in the order of files. Of a message that was taken and acked the lease says when it
//! was due: those are looked for where they were due, so many at a time; any other that is gone is in a set of numbers here, and the
//! runs are read through once. What is said of whole queues, or of time,
//! comes to all that was remembered before it: so it is looked up then.

use std::collections::HashMap;

use dwell_model::{Number, Standing, Timestamp};
use dwell_store::core::{Core, PutRecord, Record, ReplayError};

use crate::cold::{ColdSet, Gone};
use crate::journal::segment::Place;
use crate::recovery::{Refusal, Replay};
use crate::run::NumberSet;
use crate::sealed::ReadError;
use crate::shard::step::Step;

/// So many messages of which a standing is remembered are looked up at a time, so that no more is in memory.
const MOST: usize = 64 * 1024;

/// So many messages that are gone are looked for where they were due at a time.
const MOST_DUE: usize = 256 * 1024;

/// What was recorded of messages that are cold, or of none.
#[derive(Debug, Default)]
struct News {
    /// How they stand now.
    stand: HashMap<Number, Standing>,
    /// Those that are gone, and when they were due.
    gone_due: Vec<(Timestamp, Number)>,
    /// Others that are gone.
    gone: NumberSet,
}

impl News {
    fn is_empty(&self) -> bool {
        self.stand.is_empty() && self.gone_due.is_empty() && self.gone.is_empty()
    }
}

/// A state that is built again.
pub(crate) struct Rebuilding<'a> {
    core: &'a mut Core<Place>,
    cold: &'a mut ColdSet,
    news: News,
}

impl<'a> Rebuilding<'a> {
    /// Goes on from what `step` holds.
    pub(crate) fn new(step: &'a mut Step) -> Rebuilding<'a> {
        let (core, cold) = step.both();
        Rebuilding { core, cold, news: News::default() }
    }

    fn refusal(&mut self, error: &ReplayError) -> Refusal {
        match self.cold.take_failure() {
            Some(failure) => Refusal::Unreadable(failure),
            None => Refusal::Contradiction(error.to_string()),
        }
    }

    /// Looks for what is gone where it was due. What is not there is remembered by number.
    fn look_up_gone(&mut self) -> Result<(), Refusal> {
        let mut gone = std::mem::take(&mut self.news.gone_due);
        let counts = self.cold.settle_due(&mut gone)?;
        self.count_out(counts);
        gone.into_iter().for_each(|(_, number)| self.news.gone.add(number.get()));
        Ok(())
    }

    fn count_out(&mut self, gone: Gone) {
        for (queue, (pending, dead)) in gone {
            self.core.replay_cold_gone(&queue, false, pending);
            self.core.replay_cold_gone(&queue, true, dead);
        }
    }

    fn replay(&mut self, record: Record) -> Result<(), Refusal> {
        self.core.replay_with(record, Some(self.cold)).map_err(|error| self.refusal(&error))
    }
}

impl From<ReadError> for Refusal {
    fn from(error: ReadError) -> Refusal {
        Refusal::Unreadable(error)
    }
}

impl Replay for Rebuilding<'_> {
    fn put(&mut self, record: PutRecord, body: Place) -> Result<(), Refusal> {
        self.core.replay_put(record, body).map_err(|error| self.refusal(&error))
    }

    fn record(&mut self, record: Record) -> Result<(), Refusal> {
        match &record {
            // These go by which messages there are: of all queues,
            Record::Ripe { .. } => self.look_up()?,
            // or of one. Of a queue without cold messages nothing is remembered.
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

    fn old(&mut self, number: Number, standing: Option<Standing>) -> Result<(), Refusal> {
        if self.core.is_resident(number) {
            return self.replay(match standing {
                Some(standing) => Record::Stands { number, standing },
                None => Record::Gone { number },
            });
        }
        match standing {
            // What is gone stays so.
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

    fn begins(&mut self, wall: Timestamp) -> Result<(), Refusal> {
        self.core.replay_begins(wall);
        let wall_before = self.core.seen();
        if wall < wall_before {
            // The clock stepped back. A segment that was begun before any call had noticed says so by its time alone.
            return self.record(Record::Ripe { wall: wall_before });
        }
        Ok(())
    }

    fn time(&mut self, wall: Timestamp) {
        self.core.replay_time(wall);
    }

    fn look_up(&mut self) -> Result<(), Refusal> {
        if self.news.is_empty() {
            return Ok(());
        }
        self.look_up_gone()?;
        let News { mut stand, gone, .. } = std::mem::take(&mut self.news);
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

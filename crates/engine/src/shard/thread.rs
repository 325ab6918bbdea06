//! Who takes a shard's turns: a thread of its own, or whoever drives a simulation.

use std::sync::Arc;

use dwell_model::Wake;
use dwell_time::{Clock, Sleeper};

use super::inbox::Inbox;
use super::seat::Seat;
use super::turns::Turns;
use super::{Shard, Tally};
use crate::disk::DiskLock;
use crate::sync::{Builder, JoinHandle};

/// Takes a shard's turns. In production its own thread does ([`crate::Engine::open`]); a simulation that wants
/// to decide when a turn is taken does it itself ([`crate::Engine::open_driven`]).
pub struct Driver {
    turns: Turns,
    sleeper: Box<dyn Sleeper>,
    inbox: Arc<Inbox>,
    tally: Arc<Tally>,
}

impl Driver {
    pub(crate) fn new(
        shard: Shard,
        clock: Arc<dyn Clock>,
        tally: Arc<Tally>,
        lock: Box<dyn DiskLock>,
    ) -> (Driver, Arc<Inbox>) {
        let sleeper = clock.sleeper();
        let inbox = Arc::new(Inbox::new(sleeper.notifier()));
        let turns = Turns::new(shard, clock, Arc::clone(&inbox), lock);
        (Driver { turns, sleeper, inbox: Arc::clone(&inbox), tally }, inbox)
    }

    /// Takes turns until nothing is left to do now. A revive or a discard of many takes as many calls of this as it has
    /// slices: see [`Options::swept_a_call`](crate::Options::swept_a_call). False once the engine is closed.
    pub fn turn(&mut self) -> bool {
        self.turns.take()
    }

    /// When the next turn is due if no command comes. At rest that is later than now: whoever drives the engine may let
    /// time pass until then.
    pub fn next_wake(&self) -> Wake {
        self.turns.next_wake()
    }

    /// Lets a thread take the turns, and callers at the seat.
    pub(crate) fn spawn(self) -> std::io::Result<(JoinHandle<()>, Arc<Seat>)> {
        let Driver { mut turns, sleeper, inbox, tally } = self;
        turns.use_threads();
        let seat = Arc::new(Seat::new(turns, inbox));
        let thread = Builder::new().name("dwell-shard-0".to_owned());
        let thread = thread.spawn({
            let seat = Arc::clone(&seat);
            move || seat.run(sleeper, &tally)
        })?;
        Ok((thread, seat))
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}

//! Who takes a shard's turns: a thread of its own, or whoever drives a simulation.

use std::sync::Arc;

use dwell_model::Wake;
use dwell_time::{Clock, Sleeper};

use super::inbox::Inbox;
use super::seat::Seat;
use super::turns::Turns;
use super::{Shard, Tally};
use crate::disk::DiskLock;
use crate::executor::{Class, Executor};
use crate::sync::{Builder, JoinHandle};

/// Takes a shard's turns, and runs its work in the background. In production threads do ([`crate::Engine::open`]); a
/// simulation that wants to decide what happens when does it itself ([`crate::Engine::open_driven`]).
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
        sleeper: Box<dyn Sleeper>,
        tally: Arc<Tally>,
        executor: Arc<Executor>,
        lock: Box<dyn DiskLock>,
    ) -> (Driver, Arc<Inbox>) {
        let inbox = Arc::new(Inbox::new(sleeper.notifier()));
        let turns = Turns::new(shard, clock, Arc::clone(&inbox), executor, lock);
        (Driver { turns, sleeper, inbox: Arc::clone(&inbox), tally }, inbox)
    }

    /// Takes turns until nothing is left to do now, and then lets each task in the background do a slice. A revive or a
    /// discard of many takes as many calls of this as it has slices: see
    /// [`Options::swept_a_call`](crate::Options::swept_a_call). False once the engine is closed.
    pub fn turn(&mut self) -> bool {
        let is_open = self.turn_alone();
        if is_open {
            self.turns.executor().step_each();
        }
        is_open
    }

    /// The same without the tasks in the background: these go on by [`Driver::step`].
    pub fn turn_alone(&mut self) -> bool {
        self.turns.take()
    }

    /// The tasks in the background that have something left to do: flush, merges, prefetch, deletion of files.
    pub fn pending(&self) -> Vec<Class> {
        self.turns.executor().pending()
    }

    /// Lets the `nth` of the tasks that are [pending](Driver::pending) do a slice; false if there are not so many.
    pub fn step(&self, nth: usize) -> bool {
        self.turns.executor().step(nth)
    }

    /// When the next turn is due if no command comes; now, while a task in the background has something left to do. At rest
    /// that is later than now: whoever drives the engine may let time pass until then.
    pub fn next_wake(&self) -> Wake {
        let mut wake = self.turns.next_wake();
        if !self.pending().is_empty() {
            wake.by_mono(0);
        }
        wake
    }

    /// Lets a thread take the turns, and callers at the seat.
    pub(crate) fn spawn(self) -> std::io::Result<(JoinHandle<()>, Arc<Seat>)> {
        let Driver { mut turns, sleeper, inbox, tally } = self;
        turns.use_thread();
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

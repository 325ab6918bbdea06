//! Running a shard's turns: by its own thread, or by the driver of a simulation.

use std::sync::Arc;

use dwell_model::Wake;
use dwell_time::{Clock, Sleeper};

use super::command_queue::CommandQueue;
use super::event_loop::EventLoop;
use super::loop_state::LoopState;
use super::{Shard, ShardCounters};
use crate::disk::DiskLock;
use crate::executor::{Class, Executor};
use crate::sync::{Builder, JoinHandle};

/// Runs a shard's turns, and its background work. In production threads do ([`crate::Engine::open`]); a simulation
/// that decides the order of events does it itself ([`crate::Engine::open_driven`]).
pub struct Driver {
    turns: LoopState,
    sleeper: Box<dyn Sleeper>,
    command_queue: Arc<CommandQueue>,
    counters: Arc<ShardCounters>,
}

impl Driver {
    pub(crate) fn new(
        shard: Shard,
        clock: Arc<dyn Clock>,
        sleeper: Box<dyn Sleeper>,
        counters: Arc<ShardCounters>,
        executor: Arc<Executor>,
        lock: Box<dyn DiskLock>,
    ) -> (Driver, Arc<CommandQueue>) {
        let command_queue = Arc::new(CommandQueue::new(sleeper.notifier()));
        let turns = LoopState::new(shard, clock, Arc::clone(&command_queue), executor, lock);
        (Driver { turns, sleeper, command_queue: Arc::clone(&command_queue), counters }, command_queue)
    }

    /// Runs turns until nothing is left to do now, and then one slice of each background task. A bulk revive or
    /// discard takes as many calls of this as it has slices: see
    /// [`Options::bulk_per_call`](crate::Options::bulk_per_call). False once the engine is closed.
    pub fn turn(&mut self) -> bool {
        let is_open = self.turn_alone();
        if is_open {
            self.turns.executor().step_each();
        }
        is_open
    }

    /// The same without the background tasks: these are run by [`Driver::step`].
    pub fn turn_alone(&mut self) -> bool {
        self.turns.take()
    }

    /// The background tasks that have something left to do: flush, merges, prefetch, deletion of files.
    pub fn pending(&self) -> Vec<Class> {
        self.turns.executor().pending()
    }

    /// Runs a slice of the [pending](Driver::pending) task of index `nth`; false if there are fewer.
    pub fn step(&self, nth: usize) -> bool {
        self.turns.executor().step(nth)
    }

    /// When the next turn is due if no command comes; now, while a background task has something left to do. At rest
    /// it is later than now: the driver may let time pass until then.
    pub fn next_wake(&self) -> Wake {
        let mut wake = self.turns.next_wake();
        if !self.pending().is_empty() {
            wake.by_mono(0);
        }
        wake
    }

    /// Starts a thread that runs the turns, and a seat for callers.
    pub(crate) fn spawn(self) -> std::io::Result<(JoinHandle<()>, Arc<EventLoop>)> {
        let Driver { mut turns, sleeper, command_queue, counters } = self;
        turns.use_thread();
        let event_loop = Arc::new(EventLoop::new(turns, command_queue));
        let thread = Builder::new().name("dwell-shard-0".to_owned());
        let thread = thread.spawn({
            let event_loop = Arc::clone(&event_loop);
            move || event_loop.run(sleeper, &counters)
        })?;
        Ok((thread, event_loop))
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}

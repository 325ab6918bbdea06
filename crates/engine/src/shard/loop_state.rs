//! A shard with everything that its turns need, on any thread.

use std::collections::VecDeque;
use std::sync::Arc;

use dwell_model::Wake;
use dwell_store::Error;
use dwell_time::Clock;

use super::Shard;
use super::command::Command;
use super::command_queue::CommandQueue;
use crate::disk::DiskLock;
use crate::executor::Executor;

/// A shard between two turns, its clock and its commands. Dropping it ends the shard, and refuses all commands that
/// are left and all later ones, also when a turn has panicked: no caller may wait for a shard that is gone.
pub(crate) struct LoopState {
    shard: Shard,
    clock: Arc<dyn Clock>,
    command_queue: Arc<CommandQueue>,
    /// Commands that were taken from the inbox and not run yet.
    mine: VecDeque<Command>,
    /// Whether a thread runs the turns. Otherwise the driver may want to send something between two slices of a
    /// sweep.
    has_thread: bool,
    /// Runs background work.
    executor: Arc<Executor>,
    _lock: Box<dyn DiskLock>,
}

impl LoopState {
    pub(crate) fn new(
        shard: Shard,
        clock: Arc<dyn Clock>,
        command_queue: Arc<CommandQueue>,
        executor: Arc<Executor>,
        lock: Box<dyn DiskLock>,
    ) -> LoopState {
        LoopState {
            shard,
            clock,
            command_queue,
            mine: VecDeque::new(),
            has_thread: false,
            executor,
            _lock: lock,
        }
    }

    /// From now on a thread runs the turns, and background work between them if no other thread does.
    pub(crate) fn use_thread(&mut self) {
        self.has_thread = true;
        self.shard.use_thread();
    }

    /// Runs turns until nothing is left to do now, except for sweeps where there is no thread. False once the engine
    /// is closed.
    pub(crate) fn take(&mut self) -> bool {
        loop {
            self.command_queue.take_into(&mut self.mine);
            self.shard.turn(&mut self.mine, self.clock.now());
            if self.shard.is_closed() {
                self.refuse_all();
                return false;
            }
            let has_work = self.has_thread && self.does_background_work();
            let goes_on =
                has_work || self.shard.wants_turns() || self.has_thread && self.shard.has_bulk_work();
            if self.mine.is_empty() && !goes_on || self.shard.is_stalled() {
                return true;
            }
        }
    }

    /// Runs a slice of each background task, if no other thread does: a model checker would not see one. Returns
    /// whether something is left.
    fn does_background_work(&self) -> bool {
        if self.executor.has_threads() {
            return false;
        }
        self.executor.step_each();
        !self.executor.pending().is_empty()
    }

    pub(crate) fn executor(&self) -> &Executor {
        &self.executor
    }

    /// Runs one turn for `command` alone, if no other command waits and no work is due that could take long.
    /// Otherwise returns the command.
    pub(crate) fn take_for(&mut self, command: Command) -> Result<(), Command> {
        let now = self.clock.now();
        if !self.is_idle() || !self.shard.is_at_ease(now) {
            return Err(command);
        }
        self.mine.push_back(command);
        self.shard.short_turn(&mut self.mine, now);
        Ok(())
    }

    /// Whether no command is waiting.
    pub(crate) fn is_idle(&self) -> bool {
        self.mine.is_empty() && self.command_queue.is_empty()
    }

    /// When the next turn is due if no command comes.
    pub(crate) fn next_wake(&self) -> Wake {
        self.shard.next_wake()
    }

    fn refuse_all(&mut self) {
        for command in self.mine.drain(..).chain(self.shard.take_held()) {
            command.refuse(&Error::Closed);
        }
        self.command_queue.close();
    }
}

impl Drop for LoopState {
    fn drop(&mut self) {
        self.refuse_all();
        self.shard.let_waiting_go();
        // Before the directory is released, all writes have ended and all obsolete files are removed.
        self.executor.close();
    }
}

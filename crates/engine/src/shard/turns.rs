//! A shard with all that its turns need, whoever takes them.

use std::collections::VecDeque;
use std::sync::Arc;

use dwell_model::Wake;
use dwell_store::Error;
use dwell_time::Clock;

use super::Shard;
use super::command::Command;
use super::inbox::Inbox;
use crate::disk::DiskLock;
use crate::executor::Executor;

/// A shard between two turns, its clock and its commands. It is gone when this is dropped, and refuses all that is
/// left and will come; also when a turn has panicked: nobody may wait for a shard that is gone.
pub(crate) struct Turns {
    shard: Shard,
    clock: Arc<dyn Clock>,
    inbox: Arc<Inbox>,
    /// Commands that were taken from the inbox and not from here.
    mine: VecDeque<Command>,
    /// Whether a thread takes the turns. Otherwise whoever does may want to send something between two slices of a sweep.
    has_thread: bool,
    /// Who does work in the background.
    executor: Arc<Executor>,
    _lock: Box<dyn DiskLock>,
}

impl Turns {
    pub(crate) fn new(
        shard: Shard,
        clock: Arc<dyn Clock>,
        inbox: Arc<Inbox>,
        executor: Arc<Executor>,
        lock: Box<dyn DiskLock>,
    ) -> Turns {
        Turns { shard, clock, inbox, mine: VecDeque::new(), has_thread: false, executor, _lock: lock }
    }

    /// From now on a thread takes the turns, and does work in the background between them if nobody else does.
    pub(crate) fn use_thread(&mut self) {
        self.has_thread = true;
        self.shard.use_thread();
    }

    /// Takes turns until nothing is left to do now, but for sweeps where there is no thread. False once the engine is closed.
    pub(crate) fn take(&mut self) -> bool {
        loop {
            self.inbox.take_into(&mut self.mine);
            self.shard.turn(&mut self.mine, self.clock.now());
            if self.shard.is_closed() {
                self.refuse_all();
                return false;
            }
            let has_work = self.has_thread && self.does_background_work();
            let goes_on = has_work || self.shard.wants_turns() || self.has_thread && self.shard.is_sweeping();
            if self.mine.is_empty() && !goes_on || self.shard.is_stuck() {
                return true;
            }
        }
    }

    /// Lets each task in the background do a slice, if no other thread does: a model checker would see none. Says whether
    /// something is left.
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

    /// Takes one turn for `command` alone, if nothing else waits and nothing else is to be done that could take long.
    /// Otherwise the command comes back.
    pub(crate) fn take_for(&mut self, command: Command) -> Result<(), Command> {
        let now = self.clock.now();
        if !self.is_idle() || !self.shard.is_at_ease(now) {
            return Err(command);
        }
        self.mine.push_back(command);
        self.shard.short_turn(&mut self.mine, now);
        Ok(())
    }

    /// Whether no command waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.mine.is_empty() && self.inbox.is_empty()
    }

    /// When the next turn is due if no command comes.
    pub(crate) fn next_wake(&self) -> Wake {
        self.shard.next_wake()
    }

    fn refuse_all(&mut self) {
        for command in self.mine.drain(..).chain(self.shard.take_held()) {
            command.refuse(&Error::Closed);
        }
        self.inbox.close();
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        self.refuse_all();
        self.shard.let_waiting_go();
        // Nothing is written, and all is removed that is to go, before the directory is let go.
        self.executor.close();
    }
}

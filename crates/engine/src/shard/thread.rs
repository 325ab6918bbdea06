//! Who takes a shard's turns: a thread of its own, or whoever drives a simulation.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use dwell_store::Error;
use dwell_time::{Clock, Notifier, Sleeper};

use super::command::Command;
use super::{Shard, Tally};
use crate::disk::DiskLock;

/// Where commands wait for the next turn.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// Nothing once the shard is gone.
    commands: Mutex<Option<VecDeque<Command>>>,
    notifier: Arc<dyn Notifier>,
}

impl Inbox {
    /// Hands a command over; refuses it if the shard is gone.
    pub(crate) fn send(&self, command: Command) {
        let refused = match &mut *self.commands.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(commands) => {
                commands.push_back(command);
                None
            }
            None => Some(command),
        };
        match refused {
            None => self.notifier.notify(),
            Some(command) => command.refuse(&Error::Closed),
        }
    }

    fn take_into(&self, mine: &mut VecDeque<Command>) {
        if let Some(commands) = &mut *self.commands.lock().unwrap_or_else(PoisonError::into_inner) {
            if mine.is_empty() {
                std::mem::swap(mine, commands);
            } else {
                mine.append(commands);
            }
        }
    }

    /// The shard is gone: refuses what came meanwhile, and all that will come.
    fn close(&self) {
        let left = self.commands.lock().unwrap_or_else(PoisonError::into_inner).take();
        for command in left.into_iter().flatten() {
            command.refuse(&Error::Closed);
        }
    }
}

/// Takes a shard's turns. In production its own thread does ([`crate::Engine::open`]); a simulation that wants
/// to decide when a turn is taken does it itself ([`crate::Engine::open_driven`]).
pub struct Driver {
    shard: Shard,
    clock: Arc<dyn Clock>,
    sleeper: Box<dyn Sleeper>,
    inbox: Arc<Inbox>,
    /// Commands that were taken from the inbox and not from here.
    mine: VecDeque<Command>,
    tally: Arc<Tally>,
    _lock: Box<dyn DiskLock>,
}

impl Driver {
    pub(crate) fn new(
        shard: Shard,
        clock: Arc<dyn Clock>,
        tally: Arc<Tally>,
        lock: Box<dyn DiskLock>,
    ) -> (Driver, Arc<Inbox>) {
        let sleeper = clock.sleeper();
        let commands = Mutex::new(Some(VecDeque::new()));
        let inbox = Arc::new(Inbox { commands, notifier: sleeper.notifier() });
        let driver = Driver {
            shard,
            clock,
            sleeper,
            inbox: Arc::clone(&inbox),
            mine: VecDeque::new(),
            tally,
            _lock: lock,
        };
        (driver, inbox)
    }

    /// Takes turns until nothing is left to do now. False once the engine is closed.
    pub fn turn(&mut self) -> bool {
        loop {
            self.inbox.take_into(&mut self.mine);
            self.shard.turn(&mut self.mine, self.clock.now());
            if self.shard.is_closed() {
                self.refuse_all();
                return false;
            }
            if self.mine.is_empty() || self.shard.is_stuck() {
                return true;
            }
        }
    }

    /// Refuses what is left, and all that will come.
    fn refuse_all(&mut self) {
        for command in self.mine.drain(..) {
            command.refuse(&Error::Closed);
        }
        self.inbox.close();
    }

    /// Takes turns until the engine is closed; sleeps whenever there is nothing to do.
    fn run(mut self) {
        while self.turn() {
            self.sleeper.sleep(self.shard.next_wake());
            self.tally.wakeups.store(self.sleeper.wakeups(), Ordering::Relaxed);
        }
    }

    /// Lets a thread take the turns.
    pub(crate) fn spawn(mut self) -> std::io::Result<JoinHandle<()>> {
        self.shard.use_threads(Arc::clone(&self.inbox.notifier));
        thread::Builder::new().name("dwell-shard-0".to_owned()).spawn(move || self.run())
    }
}

impl Drop for Driver {
    /// Also when a turn has panicked: nobody may wait for a shard that is gone.
    fn drop(&mut self) {
        self.refuse_all();
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}

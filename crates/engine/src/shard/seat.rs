//! Where turns are taken by the shard's thread or, if it comes alone, by a caller: one at a time.
//!
//! A caller that hands its command to the thread waits for two wake-ups besides its sync: the thread's, and its own. On
//! two slow cores they cost half as much as the sync itself. So a caller that may be held for that long takes
//! the turn itself while nobody else wants one.
//!
//! # Ground rules
//! 1. Commands that wait go first, and the thread runs them: while there are any, callers join the queue. So commands
//!    that come together share a batch and its sync, as if no caller ever took a turn.
//! 2. Who does not get the seat at once does not wait for it.
//! 3. The thread takes all turns that could take long: it begins segments and retires messages. For callers that have
//!    other things to do it takes nearly all of them while callers' turns are slow.
//! 4. After a caller's turn the thread is woken if it sleeps longer now than it should, or if something is left to do.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use dwell_model::Wake;
use dwell_time::{Notifier, Sleeper, Stopwatch};

use super::Tally;
use super::command::Command;
use super::inbox::Inbox;
use super::turns::Turns;
use crate::sync::{AtomicU64, Mutex};

/// A caller takes a turn when so many commands in a row have found the seat free and no other command waiting.
const ALONE: u64 = if cfg!(shuttle) { 2 } else { 32 };

/// For how long a caller takes turns, in microseconds.
///
/// Where a turn takes long, two wake-ups are little beside it; what one thread leaves in its processor's cache for another to
/// read may not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// It does nothing else while it waits.
    Waits,
    /// It has other things to do, and leaves turns to the thread that usually take longer than a millisecond.
    IsBusy,
}

impl Patience {
    fn most_us(self) -> u64 {
        match self {
            Patience::Waits => u64::MAX,
            // What a model checker's threads do does not depend on how fast the machine is.
            Patience::IsBusy if cfg!(shuttle) => u64::MAX,
            Patience::IsBusy => 1_000,
        }
    }
}

/// The one place where a shard's turns are taken.
pub(crate) struct Seat {
    seated: Mutex<Seated>,
    inbox: Arc<Inbox>,
    /// How many commands in a row have come alone.
    alone: AtomicU64,
}

struct Seated {
    /// Nothing once the engine is closed.
    turns: Option<Turns>,
    /// Until when the thread sleeps.
    planned: Wake,
    /// How long a caller's turn takes: of what is known, the last one counts for an eighth.
    usual_us: u64,
}

impl Seat {
    pub(crate) fn new(turns: Turns, inbox: Arc<Inbox>) -> Seat {
        let seated = Mutex::new(Seated { turns: Some(turns), planned: Wake::default(), usual_us: 0 });
        Seat { seated, inbox, alone: AtomicU64::new(0) }
    }

    /// Runs a command in a turn of the caller's, or hands it to the thread. It may have been answered when this returns.
    pub(crate) fn send(&self, command: Command, patience: Patience) {
        if let Err(command) = self.take_turn(command, patience) {
            self.inbox.send(command);
        }
    }

    /// Takes a turn for `command`; gives it back if the thread is to run it.
    fn take_turn(&self, command: Command, patience: Patience) -> Result<(), Command> {
        // Should the turn panic, the thread finds the seat poisoned, and says so to all who wait.
        let _alarm = Alarm(self.inbox.notifier());
        let Ok(mut seated) = self.seated.try_lock() else {
            self.alone.store(0, Ordering::Relaxed);
            return Err(command);
        };
        let Seated { turns: Some(turns), planned, usual_us } = &mut *seated else { return Err(command) };
        if !turns.is_idle() {
            self.alone.store(0, Ordering::Relaxed);
            return Err(command);
        }
        if self.alone.fetch_add(1, Ordering::Relaxed) < ALONE || !command.is_short() {
            return Err(command);
        }
        let watch = Stopwatch::start();
        turns.take_for(command)?;
        *usual_us = (*usual_us * 7 + watch.elapsed_us()) / 8;
        if *usual_us > patience.most_us() {
            // After so many it is tried again, once if nothing has changed.
            self.alone.store(0, Ordering::Relaxed);
            *usual_us = patience.most_us();
        }
        let is_late = is_sooner(turns.next_wake(), *planned) || !turns.is_idle();
        drop(seated);
        if is_late {
            self.inbox.notifier().notify();
        }
        Ok(())
    }

    /// The thread: takes turns until the engine is closed; sleeps whenever there is nothing to do.
    pub(crate) fn run(self: Arc<Self>, mut sleeper: Box<dyn Sleeper>, tally: &Tally) {
        let leaving = Leaving(self);
        while let Some(wake) = leaving.0.take_turns() {
            sleeper.sleep(wake);
            tally.wakeups.store(sleeper.wakeups(), Ordering::Relaxed);
        }
    }

    /// Takes all turns that are due; says until when there is nothing to do, and nothing once the engine is closed.
    fn take_turns(&self) -> Option<Wake> {
        let mut seated = self.seated.lock().ok()?;
        let turns = seated.turns.as_mut()?;
        if !turns.take() {
            return None;
        }
        seated.planned = turns.next_wake();
        Some(seated.planned)
    }
}

/// The thread, which leaves nobody waiting when it ends, however it does.
struct Leaving(Arc<Seat>);

impl Drop for Leaving {
    fn drop(&mut self) {
        let turns = self.0.seated.lock().unwrap_or_else(PoisonError::into_inner).turns.take();
        drop(turns);
    }
}

/// Wakes the thread when a caller's turn panics.
struct Alarm<'a>(&'a Arc<dyn Notifier>);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.notify();
        }
    }
}

/// Whether either moment of `wake` comes before that of `planned`.
fn is_sooner(wake: Wake, planned: Wake) -> bool {
    fn sooner<T: Ord>(this: Option<T>, that: Option<T>) -> bool {
        this.is_some_and(|this| that.is_none_or(|that| this < that))
    }
    sooner(wake.wall, planned.wall) || sooner(wake.mono_ms, planned.mono_ms)
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seat").field("alone", &self.alone).finish_non_exhaustive()
    }
}

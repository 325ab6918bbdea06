//! The seat: turns are run one at a time, by the shard's thread or by a caller that comes alone.
//!
//! A caller that sends its command to the thread waits for its sync and for two wake-ups: the thread's, and its own.
//! On two slow cores they cost half as much as the sync itself. So a caller whose thread may block for that long runs
//! the turn itself while no other command is waiting.
//!
//! # Ground rules
//! 1. Waiting commands come first, and the thread runs them: while there are any, callers join the queue. So commands
//!    that come together share a batch and its sync, as if no caller ever ran a turn.
//! 2. A caller that does not get the seat at once does not wait for it.
//! 3. The thread runs all turns that could take long: it begins segments and flushes messages. For callers with other
//!    work it runs nearly all turns while callers' turns are slow.
//! 4. After a caller's turn the thread is woken if its planned sleep is now too long, or if something is left to do.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use dwell_model::Wake;
use dwell_time::{Notifier, Sleeper, Stopwatch};

use super::ShardCounters;
use super::command::Command;
use super::command_queue::CommandQueue;
use super::loop_state::LoopState;
use crate::sync::{AtomicU64, Mutex};

/// The number of consecutive commands that have to find the seat free, and no other command waiting, before a caller
/// runs a turn.
const LONE_CALLS: u64 = if cfg!(shuttle) { 2 } else { 32 };

/// The maximum usual duration of a turn that a caller runs.
///
/// Where a turn takes long, two wake-ups cost little in comparison; reading what another core has in its cache may
/// cost more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InlineCall {
    /// Unlimited: the caller does nothing else while it waits.
    Always,
    /// The caller has other work, and leaves turns that usually take longer than a millisecond to the thread.
    WhileShort,
}

impl InlineCall {
    fn most_us(self) -> u64 {
        match self {
            InlineCall::Always => u64::MAX,
            // A model checker's schedule must not depend on the speed of the machine.
            InlineCall::WhileShort if cfg!(shuttle) => u64::MAX,
            InlineCall::WhileShort => 1_000,
        }
    }
}

/// The seat of a shard; see the [module](self).
pub(crate) struct EventLoop {
    guarded: Mutex<LoopGuarded>,
    command_queue: Arc<CommandQueue>,
    /// The number of consecutive commands that came alone.
    lone: AtomicU64,
}

struct LoopGuarded {
    /// `None` once the engine is closed.
    turns: Option<LoopState>,
    /// Until when the thread sleeps.
    planned: Wake,
    /// The usual duration of a caller's turn: a moving average in which the last one has a weight of an eighth.
    usual_us: u64,
}

impl EventLoop {
    pub(crate) fn new(turns: LoopState, command_queue: Arc<CommandQueue>) -> EventLoop {
        let guarded = Mutex::new(LoopGuarded { turns: Some(turns), planned: Wake::default(), usual_us: 0 });
        EventLoop { guarded, command_queue, lone: AtomicU64::new(0) }
    }

    /// Runs a command in a turn of the caller, or sends it to the thread. It may have been answered when this
    /// returns.
    pub(crate) fn send(&self, command: Command, inline: InlineCall) {
        if let Err(command) = self.take_turn(command, inline) {
            self.command_queue.send(command);
        }
    }

    /// Runs a turn for `command`; returns it if the thread has to run it.
    fn take_turn(&self, command: Command, inline: InlineCall) -> Result<(), Command> {
        // If the turn panics, the thread finds the seat poisoned, and reports it to all waiting callers.
        let _alarm = Alarm(self.command_queue.notifier());
        let Ok(mut guarded) = self.guarded.try_lock() else {
            self.lone.store(0, Ordering::Relaxed);
            return Err(command);
        };
        let LoopGuarded { turns: Some(turns), planned, usual_us } = &mut *guarded else {
            return Err(command);
        };
        if !turns.is_idle() {
            self.lone.store(0, Ordering::Relaxed);
            return Err(command);
        }
        if self.lone.fetch_add(1, Ordering::Relaxed) < LONE_CALLS || !command.is_short() {
            return Err(command);
        }
        let watch = Stopwatch::start();
        turns.take_for(command)?;
        *usual_us = (*usual_us * 7 + watch.elapsed_us()) / 8;
        if *usual_us > inline.most_us() {
            // It is tried again after [`LONE_CALLS`] commands, and only once if turns are still slow.
            self.lone.store(0, Ordering::Relaxed);
            *usual_us = inline.most_us();
        }
        let is_late = is_sooner(turns.next_wake(), *planned) || !turns.is_idle();
        drop(guarded);
        if is_late {
            self.command_queue.notifier().notify();
        }
        Ok(())
    }

    /// The body of the thread: runs turns until the engine is closed; sleeps whenever there is nothing to do.
    pub(crate) fn run(self: Arc<Self>, mut sleeper: Box<dyn Sleeper>, counters: &ShardCounters) {
        let leaving = Leaving(self);
        while let Some(wake) = leaving.0.take_turns() {
            sleeper.sleep(wake);
            counters.wakeups.store(sleeper.wakeups(), Ordering::Relaxed);
        }
    }

    /// Runs all turns that are due; returns until when there is nothing to do, and `None` once the engine is closed.
    fn take_turns(&self) -> Option<Wake> {
        let mut guarded = self.guarded.lock().ok()?;
        let turns = guarded.turns.as_mut()?;
        if !turns.take() {
            return None;
        }
        guarded.planned = turns.next_wake();
        Some(guarded.planned)
    }
}

/// Drops the turns when the thread ends, even by a panic, so that no caller keeps waiting.
struct Leaving(Arc<EventLoop>);

impl Drop for Leaving {
    fn drop(&mut self) {
        let turns = self.0.guarded.lock().unwrap_or_else(PoisonError::into_inner).turns.take();
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

/// Whether either instant of `wake` comes before that of `planned`.
fn is_sooner(wake: Wake, planned: Wake) -> bool {
    fn sooner<T: Ord>(this: Option<T>, that: Option<T>) -> bool {
        this.is_some_and(|this| that.is_none_or(|that| this < that))
    }
    sooner(wake.wall, planned.wall) || sooner(wake.mono_ms, planned.mono_ms)
}

impl std::fmt::Debug for EventLoop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seat").field("alone", &self.lone).finish_non_exhaustive()
    }
}

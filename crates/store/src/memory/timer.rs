//! The thread that answers waiting takes when their moment comes without a call.
//!
//! It starts with the first waiting take and ends with the store. It sleeps until the earliest moment at
//! which a take may have an answer, and is woken before that only for an earlier one.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use dwell_model::Wake;
use dwell_time::{Notifier, Sleeper};

use super::{MemoryState, Outgoing, SharedState};
use crate::core::NoLog;
use crate::{Error, Result};

/// The state of the thread that is shared with the callers.
#[derive(Default)]
pub(super) struct Timer {
    notifier: Option<Arc<dyn Notifier>>,
    thread: Option<JoinHandle<()>>,
    /// The moment until which it sleeps, or is about to.
    armed: Wake,
}

impl Timer {
    pub(super) fn notify(&self) {
        if let Some(notifier) = &self.notifier {
            notifier.notify();
        }
    }

    /// Waits until the thread has noticed that the store is closed.
    pub(super) fn stop(self) {
        self.notify();
        // A store may be dropped by a task that the timer itself has woken.
        if let Some(thread) = self.thread.filter(|thread| thread.thread().id() != thread::current().id()) {
            // It has reported its panic, if there was one.
            let _ = thread.join();
        }
    }

    /// Whether `wake` is earlier than the moment until which the thread sleeps. It becomes that moment: the
    /// caller has to notify the thread.
    pub(super) fn is_earlier(&mut self, wake: Wake) -> bool {
        let sooner = |new: Option<u64>, old: Option<u64>| new.is_some() && (old.is_none() || new < old);
        let wall = |wake: Wake| wake.wall.map(|at| at.as_ms().unsigned_abs());
        let earlier = sooner(wall(wake), wall(self.armed)) || sooner(wake.mono_ms, self.armed.mono_ms);
        if earlier {
            self.armed = wake;
        }
        earlier
    }
}

/// Starts the thread, if it is not running yet.
pub(super) fn start(state: &mut MemoryState, shared: &Arc<SharedState>) -> Result<()> {
    if state.timer.notifier.is_some() {
        return Ok(());
    }
    let sleeper = shared.clock.sleeper();
    let notifier = sleeper.notifier();
    let shared = Arc::clone(shared);
    let thread = thread::Builder::new()
        .name("dwell-memory-timer".to_owned())
        .spawn(move || run(&shared, sleeper))
        .map_err(|error| Error::Unavailable {
            reason: format!("no thread can be started to wait with: {error}").into(),
        })?;
    state.timer = Timer { notifier: Some(notifier), thread: Some(thread), armed: Wake::default() };
    Ok(())
}

fn run(shared: &SharedState, mut sleeper: Box<dyn Sleeper>) {
    loop {
        let mut state = shared.state();
        if state.closed {
            return;
        }
        let now = shared.clock.now();
        let answers = state.core.serve(now, &mut NoLog);
        let answers = state.addressed(answers);
        let wake = state.core.next_wake();
        state.timer.armed = wake;
        drop(state);
        shared.send(Outgoing { answers, wake_timer: false });
        sleeper.sleep(wake);
    }
}

//! A running worker: its tasks, its drain, and its end.

use std::future::Future;
use std::sync::Arc;

use dwell_store::Store;
use dwell_time::Clock;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

use super::lane::LaneTask;
use super::shared::{Phase, Shared};
use super::spec::Spec;
use super::{keeper, settler};
use crate::timer::Timer;
use crate::token::Fired;
use crate::{Error, Result};

/// A task that is aborted with the worker, however that ends.
struct Aborted(JoinHandle<()>);

impl Drop for Aborted {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Stops what still runs when the worker has ended or was dropped: its leases are no longer renewed, and its outcomes
/// no longer received.
struct Ended(Arc<Shared>);

impl Drop for Ended {
    fn drop(&mut self) {
        let held = self.0.leases().lapsed(u64::MAX);
        held.iter().for_each(|fuse| fuse.fire(Fired::LeaseLost));
        self.0.phase.send_replace(Phase::Stopping);
    }
}

/// Runs the lanes until `stop` completes or one of them fails, and drains them.
pub(super) async fn run(
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    specs: Vec<Spec>,
    is_session: bool,
    drain_ms: u64,
    stop: impl Future<Output = ()> + Send,
) -> Result<()> {
    let timer = Timer::start(&clock)?;
    let (sender, requests) = mpsc::unbounded_channel();
    let shared = Arc::new(Shared::new(store, clock, timer, is_session, sender));
    let _ended = Ended(Arc::clone(&shared));
    let _keeper = Aborted(tokio::spawn(keeper::keep(Arc::clone(&shared))));
    let _settler = Aborted(tokio::spawn(settler::settle(Arc::clone(&shared), requests)));
    let mut lanes = JoinSet::new();
    for spec in specs {
        lanes.spawn(LaneTask::new(Arc::clone(&shared), spec).run());
    }
    let mut first_error = None;
    let mut phase = shared.phase.subscribe();
    tokio::select! {
        biased;
        Some(ended) = lanes.join_next() => note(&mut first_error, ended),
        // A lane has failed.
        _ = phase.wait_for(|phase| *phase > Phase::Running) => {}
        () = stop => {}
    }
    shared.drain();
    let drained_at_ms = shared.now_ms().saturating_add(drain_ms);
    loop {
        tokio::select! {
            biased;
            ended = lanes.join_next() => match ended {
                Some(ended) => note(&mut first_error, ended),
                None => break,
            },
            () = shared.timer.sleep_until(drained_at_ms), if *shared.phase.borrow() == Phase::Draining => {
                shared.phase.send_replace(Phase::Stopping);
            }
        }
    }
    first_error.map_or(Ok(()), Err)
}

/// Keeps the first error. A lane that panics is a bug, and the panic is propagated.
fn note(first_error: &mut Option<Error>, ended: std::result::Result<Result<()>, tokio::task::JoinError>) {
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            first_error.get_or_insert(error);
        }
        Err(error) => {
            if let Ok(payload) = error.try_into_panic() {
                std::panic::resume_unwind(payload);
            }
        }
    }
}

//! A running worker: its tasks, its drain, and its end.

use std::future::Future;
use std::sync::Arc;

use dwell_store::Store;
use dwell_time::Clock;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

use super::handling::GRACE_MS;
use super::lane::LaneTask;
use super::shared::{Phase, WorkerShared};
use super::spec::Spec;
use super::{keeper, settler};
use crate::timer::Timer;
use crate::token::Fired;
use crate::{Error, Result};

/// How long a worker that ends waits for the store to take back what was dropped, in milliseconds. A store that does not answer would
/// hold it up until the last lease is over, which may be hours.
const GIVE_BACK_MS: u64 = 10_000;

/// A task that ends with the worker, however that ends.
struct Aborted(JoinHandle<()>);

impl Drop for Aborted {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Stops what still runs when the worker has ended or was dropped: its leases are no longer renewed, and its outcomes
/// no longer received.
struct StopOnDrop(Arc<WorkerShared>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        let held = self.0.leases().lapsed(u64::MAX);
        held.iter().for_each(|fuse| fuse.fire(Fired::LeaseLost));
        self.0.phase.send_replace(Phase::Stopping);
    }
}

/// What is said of a worker as a whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) drain_ms: u64,
    pub(super) is_session: bool,
    pub(super) is_lasting: bool,
}

/// Runs the lanes until `stop` is done or one of them cannot go on, and drains them.
pub(super) async fn run(
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    specs: Vec<Spec>,
    terms: Terms,
    stop: impl Future<Output = ()> + Send,
) -> Result<()> {
    let timer = Timer::start(&clock)?;
    let (sender, requests) = mpsc::unbounded_channel();
    let shared = Arc::new(WorkerShared::new(store, clock, timer, terms, sender));
    let _ended = StopOnDrop(Arc::clone(&shared));
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
    let mut until_ms = shared.now_ms().saturating_add(terms.drain_ms);
    loop {
        let is_draining = *shared.phase.borrow() == Phase::Draining;
        tokio::select! {
            biased;
            ended = lanes.join_next() => match ended {
                Some(ended) => note(&mut first_error, ended),
                None => break,
            },
            () = shared.timer.sleep_until(until_ms) => {
                if !is_draining {
                    // The lanes end here with what the store has not taken back: leases end by themselves.
                    break;
                }
                shared.phase.send_replace(Phase::Stopping);
                until_ms = shared.now_ms().saturating_add(GRACE_MS).saturating_add(GIVE_BACK_MS);
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

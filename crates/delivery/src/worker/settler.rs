//! The settler: settles the outcomes of all lanes, those that come together in one call.

use std::sync::Arc;

use dwell_store::{Error, Settle, Settled};
use tokio::sync::mpsc;

use super::lane::Event;
use super::shared::{Held, Shared};

/// After how long a settlement is tried again that the store could not do, in milliseconds.
const AGAIN_AFTER_MS: u64 = 250;
/// How long the next call waits for the one before it, in milliseconds: what comes meanwhile goes together.
const SLOW_MS: u64 = 1_000;
/// How long a call may take, in milliseconds. One over a connection that is cut silently never returns; the next one goes over another.
const CALL_MS: u64 = 10_000;
/// The most settlements of one call.
const AT_ONCE: usize = 1_000;

/// An outcome to be settled.
pub(super) struct Request {
    pub(super) settle: Settle,
    /// When the lease is over: until then it is tried again.
    pub(super) deadline_ms: u64,
    pub(super) held: Held,
    pub(super) keeps_slot: bool,
    /// The lane that hears what has become of it.
    pub(super) lane: mpsc::UnboundedSender<Event>,
}

/// Settles until the task is aborted.
pub(super) async fn settle(shared: Arc<Shared>, mut requests: mpsc::UnboundedReceiver<Request>) {
    let mut batch: Vec<Request> = Vec::new();
    loop {
        let at_once = AT_ONCE.min(shared.store.limits().batch.max(1));
        if requests.recv_many(&mut batch, at_once).await == 0 {
            return;
        }
        let mut call = Box::pin(call(Arc::clone(&shared), std::mem::take(&mut batch)));
        let is_slow = tokio::select! {
            biased;
            () = &mut call => false,
            () = shared.timer.sleep_until(shared.now_ms().saturating_add(SLOW_MS)) => true,
        };
        if is_slow {
            // It goes on by itself, and holds up the outcomes of no other lane.
            tokio::spawn(call);
        }
    }
}

/// Settles these, and brings back what the store could not do.
async fn call(shared: Arc<Shared>, batch: Vec<Request>) {
    let settles = batch.iter().map(|request| request.settle.clone()).collect();
    let over_ms = batch.iter().map(|request| request.deadline_ms).max().unwrap_or_default();
    let until_ms = shared.now_ms().saturating_add(CALL_MS).min(over_ms);
    let answers = tokio::select! {
        biased;
        answers = shared.store.settle(settles) => answers,
        () = shared.timer.sleep_until(until_ms) => batch.iter().map(|_| Err(no_answer())).collect(),
    };
    let now_ms = shared.now_ms();
    let mut again = Vec::new();
    for (request, answer) in batch.into_iter().zip(answers) {
        match answer {
            Err(error) if error.is_retryable() && now_ms < request.deadline_ms => again.push(request),
            other => request.answer(other),
        }
    }
    if !again.is_empty() {
        tokio::spawn(async move {
            shared.timer.sleep_until(now_ms.saturating_add(AGAIN_AFTER_MS)).await;
            for request in again {
                // A worker that has gone has left its messages to their leases.
                let _ = shared.settler.send(request);
            }
        });
    }
}

fn no_answer() -> Error {
    Error::OutcomeUnknown { reason: "the store has not answered".into(), needs_reopen: false }
}

impl Request {
    fn answer(self, answer: Result<Settled, Error>) {
        let Request { settle, held, keeps_slot, lane, .. } = self;
        // A lane that has gone has nothing to hear.
        let _ = lane.send(Event::Settled { held, answer, action: settle.action, keeps_slot });
    }
}

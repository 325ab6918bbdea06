//! The settler: settles the outcomes of all lanes, in batches.

use std::sync::Arc;

use dwell_store::{Error, Settle, Settled};
use tokio::sync::mpsc;

use super::lane::Event;
use super::shared::{TakenMessage, WorkerShared};

/// The delay before a settlement is retried that the store could not execute, in milliseconds.
const AGAIN_AFTER_MS: u64 = 250;
/// How long the next call waits for the previous one, in milliseconds: what arrives meanwhile is one batch.
const SLOW_MS: u64 = 1_000;
/// The timeout of a call, in milliseconds. A call over a connection whose peer has silently vanished never returns; the
/// next one uses another connection.
const CALL_MS: u64 = 10_000;
/// The maximum number of settlements per call.
const AT_ONCE: usize = 1_000;

/// An outcome to be settled.
pub(super) struct Request {
    pub(super) settle: Settle,
    /// When the lease is over: until then it is retried.
    pub(super) deadline_ms: u64,
    pub(super) held: TakenMessage,
    pub(super) keeps_slot: bool,
    /// The lane that receives the result.
    pub(super) lane: mpsc::UnboundedSender<Event>,
}

/// Settles until the task is aborted.
pub(super) async fn settle(shared: Arc<WorkerShared>, mut requests: mpsc::UnboundedReceiver<Request>) {
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
            // It runs independently, and delays no other lane's outcomes.
            tokio::spawn(call);
        }
    }
}

/// Settles these, and sends back what the store could not settle.
async fn call(shared: Arc<WorkerShared>, batch: Vec<Request>) {
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
                // A worker that has ended has left its messages to their leases.
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
        // A lane that has ended needs no result.
        let _ = lane.send(Event::Settled { held, answer, action: settle.action, keeps_slot });
    }
}

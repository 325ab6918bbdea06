//! The settler: settles the outcomes of all lanes, those that come together in one call.

use std::sync::Arc;

use dwell_store::{Action, Error, Settle, Settled};
use tokio::sync::mpsc;

use super::lane::Event;
use super::shared::{Held, Shared};

/// After how long a settlement is tried again that the store could not do, in milliseconds.
const AGAIN_AFTER_MS: u64 = 250;
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

/// Settles until all lanes have ended.
pub(super) async fn settle(shared: Arc<Shared>, mut requests: mpsc::UnboundedReceiver<Request>) {
    let mut batch: Vec<Request> = Vec::new();
    loop {
        let at_once = AT_ONCE.min(shared.store.limits().batch.max(1));
        let room = at_once.saturating_sub(batch.len());
        if room > 0
            && (batch.is_empty() || !requests.is_empty())
            && requests.recv_many(&mut batch, room).await == 0
        {
            return;
        }
        let settles = batch.iter().map(|request| request.settle.clone()).collect();
        let answers = shared.store.settle(settles).await;
        let now_ms = shared.now_ms();
        let mut again = Vec::new();
        for (request, answer) in batch.drain(..).zip(answers) {
            match answer {
                Err(error) if error.is_retryable() && now_ms < request.deadline_ms => again.push(request),
                other => request.answer(other),
            }
        }
        batch = again;
        if !batch.is_empty() {
            shared.timer.sleep_until(now_ms.saturating_add(AGAIN_AFTER_MS)).await;
        }
    }
}

impl Request {
    fn answer(self, answer: Result<Settled, Error>) {
        let Request { settle, held, keeps_slot, lane, .. } = self;
        let is_release = matches!(settle.action, Action::Release { .. });
        // A lane that has gone has nothing to hear.
        let _ = lane.send(Event::Settled { held, answer, is_release, keeps_slot });
    }
}

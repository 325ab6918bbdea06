//! A waiting take, as seen by its caller: a future that gives its messages back if it is dropped unread.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use dwell_model::Receipt;
use futures_channel::oneshot;

use super::{SharedState, receipts, timer};
use crate::core::{NoLog, WaiterId};
use crate::{Delivery, Error, Result, Take};

/// The sender of the answer to a waiting take.
pub(super) type AnswerSender = oneshot::Sender<Result<Vec<Delivery>>>;

/// A waiting take.
pub(super) struct WaitingTake {
    shared: Arc<SharedState>,
    id: WaiterId,
    answer: oneshot::Receiver<Result<Vec<Delivery>>>,
    /// Whether its answer was handed over.
    read: bool,
}

impl WaitingTake {
    /// Makes a take wait that has received nothing.
    pub(super) fn begin(shared: &Arc<SharedState>, take: Take) -> Result<WaitingTake> {
        let mut state = shared.state();
        if state.closed {
            return Err(Error::Closed);
        }
        timer::start(&mut state, shared)?;
        let id = WaiterId(state.next_waiter);
        let now = shared.clock.now();
        state.core.wait(id, take, now, &mut NoLog)?;
        state.next_waiter += 1;
        let (sender, answer) = oneshot::channel();
        state.waiting.insert(id, sender);
        let outgoing = state.outgoing(now);
        drop(state);
        shared.send(outgoing);
        Ok(WaitingTake { shared: Arc::clone(shared), id, answer, read: false })
    }
}

impl Future for WaitingTake {
    type Output = Result<Vec<Delivery>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.answer).poll(context).map(|answer| {
            self.read = true;
            answer.unwrap_or(Err(Error::Closed))
        })
    }
}

impl Drop for WaitingTake {
    /// 1. There is no answer: the take is forgotten.
    /// 2. The answer was sent and not read: it is still here, and its messages are given back.
    /// 3. The answer is being sent: the sender finds the receiver closed, and gives them back itself.
    fn drop(&mut self) {
        // After a panic under the lock there is no store to give them back to.
        if self.read || self.shared.state.is_poisoned() {
            return;
        }
        let id = self.id;
        let forgotten = self.shared.call(|core, now| core.forget(id, now, &mut NoLog));
        if forgotten == Ok(true) {
            self.shared.state().waiting.remove(&id);
            return;
        }
        self.answer.close();
        if let Ok(Some(answer)) = self.answer.try_recv() {
            let unread: Vec<Receipt> = receipts(answer).collect();
            let _ = self.shared.call(|core, now| core.give_back(&unread, now, &mut NoLog));
        }
    }
}

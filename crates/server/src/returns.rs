//! Gives back messages whose taker disconnected before the answer was written.
//!
//! Drop is not async and settling is, so receipts are sent to one task that settles them.

use std::sync::Arc;

use dwell_model::Receipt;
use dwell_store::{Action, Settle, Store};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

/// The sender of receipts of undelivered messages. The channel is unbounded, but every receipt is of a leased message,
/// and the store caps these.
#[derive(Clone, Debug)]
pub(crate) struct Returns(UnboundedSender<Vec<Receipt>>);

impl Returns {
    /// Starts the task; it ends once every clone of the `Returns` is dropped and all receipts are settled.
    pub(crate) fn start(store: Arc<dyn Store>) -> (Returns, JoinHandle<()>) {
        let (sender, receiver) = unbounded_channel();
        (Returns(sender), tokio::spawn(settle_all(store, receiver)))
    }

    /// Makes these messages ready again, without spending an attempt.
    pub(crate) fn give_back(&self, receipts: Vec<Receipt>) {
        if receipts.is_empty() {
            return;
        }
        // The task ends only after the last sender, so the receiver exists unless the runtime is being shut down; then
        // the leases run out.
        let _ = self.0.send(receipts);
    }
}

/// The maximum number of receipts per call.
const TOGETHER: usize = 1_024;

/// Receipts that arrive during a call are settled in one call: each costs a sync, where the store has a disk.
async fn settle_all(store: Arc<dyn Store>, mut receiver: UnboundedReceiver<Vec<Receipt>>) {
    let batch = store.limits().batch.max(1);
    let mut handed_in = Vec::new();
    while receiver.recv_many(&mut handed_in, TOGETHER).await > 0 {
        let receipts: Vec<Receipt> = handed_in.drain(..).flatten().collect();
        for chunk in receipts.chunks(batch) {
            let settles = chunk
                .iter()
                .map(|receipt| Settle {
                    receipt: receipt.clone(),
                    action: Action::Release { after_ms: None, priority: None },
                })
                .collect();
            // A refusal means that the lease is over already, or that the store is closed and refuses every call; in
            // either case there is no caller left to report it to.
            let _ = store.settle(settles).await;
        }
    }
}

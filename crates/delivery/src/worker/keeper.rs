//! The keeper: renews the leases of all lanes, and fires the tokens of those that are over.

use std::sync::Arc;

use dwell_model::Receipt;
use dwell_store::{Action, Error, Settle};

use super::shared::WorkerShared;
use crate::lease::LeaseId;
use crate::token::Fired;

/// Keeps leases until the task is aborted.
pub(super) async fn keep(shared: Arc<WorkerShared>) {
    loop {
        let now_ms = shared.now_ms();
        let (lapsed, due, wake_at_ms) = {
            let mut leases = shared.leases();
            (leases.lapsed(now_ms), leases.renew(now_ms), leases.sleep())
        };
        lapsed.iter().for_each(|fuse| fuse.fire(Fired::LeaseLost));
        if !due.is_empty() {
            // A call that does not return must delay neither the next one nor a token.
            tokio::spawn(renew(Arc::clone(&shared), due, now_ms));
        }
        tokio::select! {
            () = shared.timer.sleep_until_some(wake_at_ms) => {}
            () = shared.granted.notified() => {}
        }
    }
}

/// Renews these leases, in a call that begins at `asked_ms`.
async fn renew(shared: Arc<WorkerShared>, due: Vec<(LeaseId, Receipt)>, asked_ms: u64) {
    let batch = shared.store.limits().batch.max(1);
    for due in due.chunks(batch) {
        let action = Action::Extend { lease_ms: None };
        let settles =
            due.iter().map(|(_, receipt)| Settle { receipt: receipt.clone(), action: action.clone() });
        let answers = shared.store.settle(settles.collect()).await;
        let now_ms = shared.now_ms();
        let mut lost = Vec::new();
        {
            let mut leases = shared.leases();
            for ((id, _), answer) in due.iter().zip(answers) {
                match answer {
                    Ok(_) => leases.renewed(*id, asked_ms),
                    Err(Error::LeaseLost) => lost.extend(leases.lost(*id)),
                    Err(_) => leases.not_renewed(*id, asked_ms, now_ms),
                }
            }
        }
        lost.iter().for_each(|fuse| fuse.fire(Fired::LeaseLost));
    }
    // The next deadline may be earlier than the one that the keeper sleeps for.
    shared.granted.notify_one();
}

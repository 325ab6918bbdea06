//! The state that the tasks of one worker share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dwell_model::Receipt;
use dwell_store::{Delivery, Store};
use dwell_time::Clock;
use tokio::sync::{Notify, mpsc, watch};

use super::run::Terms;
use super::settler;
use crate::job::Job;
use crate::lease::{LeaseId, Leases};
use crate::suspect::Solo;
use crate::timer::Timer;
use crate::token::{Fired, Fuse, Token};

/// The phase of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Running,
    /// Nothing is taken any more.
    Draining,
    /// Tokens fire, and what still runs is dropped a moment later.
    Stopping,
}

pub(super) struct WorkerShared {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) timer: Timer,
    pub(super) terms: Terms,
    pub(super) phase: watch::Sender<Phase>,
    /// Outcomes to be settled. Unbounded: each of them holds a slot of its lane.
    pub(super) settler: mpsc::UnboundedSender<settler::Request>,
    /// Wakes the keeper before its planned time.
    pub(super) granted: Notify,
    /// Wakes lanes that wait for a suspect, and a suspect that waits for lanes.
    pub(super) solo_changed: watch::Sender<()>,
    leases: Mutex<Leases<Fuse>>,
    solo: Mutex<Solo>,
}

/// A taken message.
pub(super) struct TakenMessage {
    pub(super) delivery: Arc<Delivery>,
    pub(super) lease: LeaseId,
    pub(super) fuse: Fuse,
    pub(super) token: Token,
    /// When the take was answered: at this time the store's clock read `taken_at`, or a little more.
    pub(super) answered_ms: u64,
    pub(super) is_suspect: bool,
}

impl TakenMessage {
    pub(super) fn bytes(&self) -> usize {
        self.delivery.message.body.len()
    }

    pub(super) fn id(&self) -> dwell_model::MessageId {
        self.delivery.message.id
    }

    /// Whether its lease is over: then its handler must not begin.
    pub(super) fn is_lost(&self) -> bool {
        self.token.fired() == Some(Fired::LeaseLost)
    }

    pub(super) fn job(&self, shared: &WorkerShared, deadline_ms: u64) -> Job {
        Job::new(Arc::clone(&self.delivery), self.token.clone(), Arc::clone(&shared.clock), deadline_ms)
    }
}

impl WorkerShared {
    pub(super) fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        timer: Timer,
        terms: Terms,
        settler: mpsc::UnboundedSender<settler::Request>,
    ) -> WorkerShared {
        WorkerShared {
            store,
            clock,
            timer,
            terms,
            phase: watch::Sender::new(Phase::Running),
            settler,
            granted: Notify::new(),
            solo_changed: watch::Sender::new(()),
            leases: Mutex::new(Leases::new()),
            solo: Mutex::default(),
        }
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.clock.now().mono_ms
    }

    /// Ends all takes, if they have not ended already.
    pub(super) fn drain(&self) {
        self.phase.send_if_modified(|phase| {
            let is_running = *phase == Phase::Running;
            if is_running {
                *phase = Phase::Draining;
            }
            is_running
        });
    }

    /// The leases. Not held across an await.
    pub(super) fn leases(&self) -> MutexGuard<'_, Leases<Fuse>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the core of suspects, and wakes all that wait for it if `changes` says so.
    pub(super) fn solo<T>(&self, changes: bool, ask: impl FnOnce(&mut Solo) -> T) -> T {
        let answer = ask(&mut self.solo.lock().unwrap_or_else(PoisonError::into_inner));
        if changes {
            self.solo_changed.send_replace(());
        }
        answer
    }

    /// Keeps the lease of a message from now on.
    pub(super) fn hold(
        &self,
        delivery: Delivery,
        lease_ms: u64,
        asked_ms: u64,
        is_suspect: bool,
    ) -> TakenMessage {
        let (fuse, token) = Token::new();
        let receipt = delivery.receipt.clone();
        let (lease, is_earlier) = self.leases().granted(receipt, lease_ms, asked_ms, fuse.clone());
        if is_earlier {
            self.granted.notify_one();
        }
        let (delivery, answered_ms) = (Arc::new(delivery), self.now_ms());
        if asked_ms.saturating_add(lease_ms) <= answered_ms {
            // The answer has come too late, as after a stop of the process. The keeper would fire it a moment later.
            fuse.fire(Fired::LeaseLost);
        }
        TakenMessage { delivery, lease, fuse, token, answered_ms, is_suspect }
    }

    /// Stops keeping a lease; returns its receipt and deadline, if it is not over.
    pub(super) fn end(&self, held: &TakenMessage) -> Option<(Receipt, u64)> {
        let now_ms = self.now_ms();
        self.leases().end(held.lease, now_ms)
    }
}

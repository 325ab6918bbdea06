//! The jobs that a connection holds: their receipts, and when their leases run out.
//!
//! The deadlines are the connection's own reckoning, from when the delivery reached it: never earlier than the
//! store's. They tell when to say `DEADLINE_SOON` and when to forget a job; whether a lease is in force the
//! store alone decides.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dwell_model::Receipt;
use dwell_store::Delivery;

/// Jobs by their numbers.
#[derive(Debug)]
pub(super) struct Held {
    /// How many jobs all connections hold.
    by_all: Arc<AtomicUsize>,
    jobs: HashMap<u64, HeldJob>,
    by_deadline: BTreeSet<(u64, u64)>,
    lapsed: u64,
}

#[derive(Debug)]
struct HeldJob {
    receipt: Receipt,
    lease_ms: u64,
    deadline_ms: u64,
}

impl Held {
    /// None yet; `by_all` counts what all hold.
    pub(super) fn among(by_all: Arc<AtomicUsize>) -> Held {
        Held { by_all, jobs: HashMap::new(), by_deadline: BTreeSet::new(), lapsed: 0 }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// This job was handed to the connection; `now_ms` is on the clock that all deadlines are on.
    pub(super) fn add(&mut self, delivery: &Delivery, now_ms: u64) {
        let lease_ms = delivery.lease_until.ms_since(delivery.taken_at);
        let job = HeldJob { receipt: delivery.receipt.clone(), lease_ms, deadline_ms: 0 };
        let number = delivery.message.number.get();
        self.remove(number);
        self.jobs.insert(number, job);
        self.by_all.fetch_add(1, Ordering::Relaxed);
        self.touched(number, now_ms);
    }

    /// The proof that the connection holds the job.
    pub(super) fn receipt(&self, number: u64) -> Option<&Receipt> {
        self.jobs.get(&number).map(|job| &job.receipt)
    }

    /// The lease begins anew.
    pub(super) fn touched(&mut self, number: u64, now_ms: u64) {
        if let Some(job) = self.jobs.get_mut(&number) {
            self.by_deadline.remove(&(job.deadline_ms, number));
            job.deadline_ms = now_ms.saturating_add(job.lease_ms);
            self.by_deadline.insert((job.deadline_ms, number));
        }
    }

    /// The job is settled.
    pub(super) fn remove(&mut self, number: u64) {
        if let Some(job) = self.jobs.remove(&number) {
            self.by_all.fetch_sub(1, Ordering::Relaxed);
            self.by_deadline.remove(&(job.deadline_ms, number));
        }
    }

    /// The store says that the lease is over.
    pub(super) fn lost(&mut self, number: u64) {
        self.remove(number);
        self.lapsed += 1;
    }

    /// Forgets what has run out at `now_ms`.
    pub(super) fn forget_lapsed(&mut self, now_ms: u64) {
        while let Some((deadline_ms, number)) = self.by_deadline.first().copied() {
            if deadline_ms > now_ms {
                return;
            }
            self.lost(number);
        }
    }

    /// How many leases have run out since this was asked before.
    pub(super) fn take_lapsed(&mut self) -> u64 {
        std::mem::take(&mut self.lapsed)
    }

    /// When the first lease runs out.
    pub(super) fn soonest_ms(&self) -> Option<u64> {
        self.by_deadline.first().map(|(deadline_ms, _)| *deadline_ms)
    }

    /// The job whose lease runs out first.
    pub(super) fn soonest(&self) -> Option<(u64, &Receipt)> {
        let (_, number) = self.by_deadline.first()?;
        Some((*number, self.receipt(*number)?))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// All receipts: the connection is over.
    pub(super) fn take_receipts(&mut self) -> Vec<Receipt> {
        self.by_deadline.clear();
        self.by_all.fetch_sub(self.jobs.len(), Ordering::Relaxed);
        self.jobs.drain().map(|(_, job)| job.receipt).collect()
    }
}

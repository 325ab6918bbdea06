//! The jobs that a connection holds: their receipts, and when their leases run out.
//!
//! The connection computes the deadlines itself, from the arrival of the delivery: never earlier than the store's. They
//! decide when to reply `DEADLINE_SOON` and when to forget a job; the store alone decides whether a lease is valid.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dwell_model::Receipt;
use dwell_store::Delivery;

/// Jobs by their numbers.
#[derive(Debug)]
pub(super) struct ReservedJobs {
    /// The number of jobs that all connections hold.
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

impl ReservedJobs {
    /// Without jobs; `by_all` counts those of all connections.
    pub(super) fn among(by_all: Arc<AtomicUsize>) -> ReservedJobs {
        ReservedJobs { by_all, jobs: HashMap::new(), by_deadline: BTreeSet::new(), lapsed: 0 }
    }

    /// The number of jobs.
    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Adds a job that was handed to the connection; `now_ms` is on the clock of all deadlines.
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

    /// Restarts the lease.
    pub(super) fn touched(&mut self, number: u64, now_ms: u64) {
        if let Some(job) = self.jobs.get_mut(&number) {
            self.by_deadline.remove(&(job.deadline_ms, number));
            job.deadline_ms = now_ms.saturating_add(job.lease_ms);
            self.by_deadline.insert((job.deadline_ms, number));
        }
    }

    /// Removes a settled job.
    pub(super) fn remove(&mut self, number: u64) {
        if let Some(job) = self.jobs.remove(&number) {
            self.by_all.fetch_sub(1, Ordering::Relaxed);
            self.by_deadline.remove(&(job.deadline_ms, number));
        }
    }

    /// Removes a job whose lease is over, as the store says.
    pub(super) fn lost(&mut self, number: u64) {
        self.remove(number);
        self.lapsed += 1;
    }

    /// Forgets the jobs whose leases have run out at `now_ms`.
    pub(super) fn forget_lapsed(&mut self, now_ms: u64) {
        while let Some((deadline_ms, number)) = self.by_deadline.first().copied() {
            if deadline_ms > now_ms {
                return;
            }
            self.lost(number);
        }
    }

    /// The number of leases that have run out since the previous call.
    pub(super) fn take_lapsed(&mut self) -> u64 {
        std::mem::take(&mut self.lapsed)
    }

    /// The earliest deadline.
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

    /// All receipts, at the end of the connection.
    pub(super) fn take_receipts(&mut self) -> Vec<Receipt> {
        self.by_deadline.clear();
        self.by_all.fetch_sub(self.jobs.len(), Ordering::Relaxed);
        self.jobs.drain().map(|(_, job)| job.receipt).collect()
    }
}

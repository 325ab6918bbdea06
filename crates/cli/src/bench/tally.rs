//! Counts that all threads of a bench share, and their stop flag.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dwell_time::Stopwatch;
use hdrhistogram::Histogram;

use super::BenchOptions;
use super::peer::ItemAnswer;
use crate::exit::Failure;

/// Counts of one kind of operation at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    pub(super) messages: u64,
    /// When the last of them was done, since the beginning.
    pub(super) last_us: u64,
}

#[derive(Debug)]
pub(super) struct WorkCounts {
    pub(super) put: Done,
    pub(super) taken: Done,
    pub(super) acked: Done,
    /// Durations of calls, to three digits.
    pub(super) put_us: Histogram<u64>,
    pub(super) ack_us: Histogram<u64>,
    /// From due to received.
    pub(super) late_us: Histogram<u64>,
    /// Transient refusals, by code.
    pub(super) refused: BTreeMap<String, u64>,
}

pub(super) struct BenchCounters {
    watch: Stopwatch,
    begun_us: AtomicU64,
    /// The number of messages that are still to be put.
    left: Option<AtomicU64>,
    putting: AtomicUsize,
    stopped: AtomicBool,
    interrupted: AtomicBool,
    counts: Mutex<WorkCounts>,
    failure: Mutex<Option<Failure>>,
}

impl BenchCounters {
    pub(super) fn new(wish: &BenchOptions) -> BenchCounters {
        BenchCounters {
            watch: Stopwatch::start(),
            begun_us: AtomicU64::new(0),
            left: wish.messages.map(AtomicU64::new),
            putting: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            interrupted: AtomicBool::new(false),
            counts: Mutex::new(WorkCounts::new()),
            failure: Mutex::default(),
        }
    }

    /// Marks the beginning, with the number of threads that put.
    pub(super) fn begin(&self, putting: usize) {
        self.begun_us.store(self.watch.elapsed_us(), Ordering::Relaxed);
        self.putting.store(putting, Ordering::Release);
    }

    /// Microseconds since the beginning.
    pub(super) fn now_us(&self) -> u64 {
        self.watch.elapsed_us().saturating_sub(self.begun_us.load(Ordering::Relaxed))
    }

    /// Claims at most `batch` of the messages that are still to be put.
    pub(super) fn claim(&self, batch: usize) -> usize {
        let Some(left) = &self.left else { return batch };
        let batch = batch as u64;
        let before =
            left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| Some(left.saturating_sub(batch)));
        before.unwrap_or_else(|left| left).min(batch) as usize
    }

    /// Records the answers of a put that began at `began_us`; returns whether nothing was refused.
    pub(super) fn put(&self, began_us: u64, answers: Vec<ItemAnswer>) -> bool {
        let now_us = self.now_us();
        let mut counts = self.counts();
        counts.put_us.saturating_record(now_us.saturating_sub(began_us));
        let done = counts.refusals(answers);
        counts.put.add(done.0, now_us);
        done.1 == 0
    }

    /// Records messages that have arrived, by their due times; `None` is a message that the bench did not put.
    pub(super) fn taken(&self, due_us: impl Iterator<Item = Option<u64>>) {
        let now_us = self.now_us();
        let mut counts = self.counts();
        let mut messages = 0;
        for due_us in due_us {
            messages += 1;
            if let Some(due_us) = due_us {
                counts.late_us.saturating_record(now_us.saturating_sub(due_us));
            }
        }
        counts.taken.add(messages, now_us);
    }

    /// Records the answers of an ack that began at `began_us`.
    pub(super) fn acked(&self, began_us: u64, answers: Vec<ItemAnswer>) {
        let now_us = self.now_us();
        let mut counts = self.counts();
        counts.ack_us.saturating_record(now_us.saturating_sub(began_us));
        let done = counts.refusals(answers);
        counts.acked.add(done.0, now_us);
    }

    /// Records a transient refusal of a call.
    pub(super) fn refused(&self, code: String) {
        *self.counts().refused.entry(code).or_default() += 1;
    }

    /// Records that a thread that puts has ended.
    pub(super) fn has_put(&self) {
        self.putting.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether nothing more will be put.
    pub(super) fn is_all_put(&self) -> bool {
        self.putting.load(Ordering::Acquire) == 0
    }

    pub(super) fn counts(&self) -> MutexGuard<'_, WorkCounts> {
        // The counts are consistent after each statement that changes them.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Requests an early end.
    pub(super) fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Release);
        self.stopped.store(true, Ordering::Release);
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Acquire)
    }

    /// Records the end of a thread. The first failure ends all others.
    pub(super) fn note(&self, ended: Result<(), Failure>) {
        if let Err(failure) = ended {
            self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
            self.stopped.store(true, Ordering::Release);
        }
    }

    pub(super) fn failure(&self) -> Option<Failure> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl WorkCounts {
    fn new() -> WorkCounts {
        // A whole day in microseconds; longer durations count as that.
        let micros = Histogram::new_with_bounds(1, 86_400_000_000, 3).expect("the bounds are in order");
        WorkCounts {
            put: Done::default(),
            taken: Done::default(),
            acked: Done::default(),
            put_us: micros.clone(),
            ack_us: micros.clone(),
            late_us: micros,
            refused: BTreeMap::new(),
        }
    }

    /// Records refusals; returns how many were done, and how many refused.
    fn refusals(&mut self, answers: Vec<ItemAnswer>) -> (u64, u64) {
        let (mut done, mut refused) = (0, 0);
        for answer in answers {
            match answer {
                Ok(()) => done += 1,
                Err(code) => {
                    refused += 1;
                    *self.refused.entry(code).or_default() += 1;
                }
            }
        }
        (done, refused)
    }
}

impl Done {
    fn add(&mut self, messages: u64, now_us: u64) {
        if messages > 0 {
            self.messages += messages;
            self.last_us = self.last_us.max(now_us);
        }
    }

    /// The rate per second, up to the last of them.
    pub(super) fn per_s(self) -> f64 {
        if self.last_us == 0 { 0.0 } else { self.messages as f64 / self.last_us as f64 * 1e6 }
    }
}

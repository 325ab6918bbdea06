//! The repeated merging of one kind of index runs: when to begin, and how long to wait after a failure.
//!
//! Each kind has separate retry delays, so that neither the other kind nor the writing of tables waits for it, and
//! the rebuild of unreadable runs has another, so that it blocks no other merge.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dwell_model::Now;

use super::job::FlushContext;
use super::retry_backoff::RetryBackoff;
use super::run_merge::{DeletionBitmaps, MergeContext, MergeInProgress, Mergeable};
use crate::background_failures::BackgroundWork;
use crate::index_run::{IndexRun, IndexValue};

/// See the module.
pub(super) struct RunCompactor<V: Mergeable> {
    work: BackgroundWork,
    merge: Option<MergeInProgress<V>>,
    /// When the merge was begun, on the monotonic clock.
    begun_ms: u64,
    backoff: RetryBackoff,
    /// The retry delay of rebuilding unreadable runs.
    rebuild_backoff: RetryBackoff,
}

/// Runs, and those that replace them.
pub(super) struct ReplacedRuns<V> {
    pub(super) old: Vec<Arc<IndexRun<V>>>,
    pub(super) new: Vec<Arc<IndexRun<V>>>,
}

impl<V: Mergeable> RunCompactor<V> {
    pub(super) fn new(work: BackgroundWork) -> RunCompactor<V> {
        let (backoff, rebuild_backoff) = (RetryBackoff::default(), RetryBackoff::default());
        RunCompactor { work, merge: None, begun_ms: 0, backoff, rebuild_backoff }
    }

    /// Whether a merge has ended whose outcome was not processed yet.
    pub(super) fn is_over(&self) -> bool {
        self.merge.as_ref().is_some_and(MergeInProgress::is_over)
    }

    /// Whether a merge is in progress.
    #[cfg(test)]
    pub(super) fn is_under_way(&self) -> bool {
        self.merge.is_some()
    }

    /// Whether unreadable runs are being rebuilt now.
    pub(super) fn heals(&self) -> bool {
        self.merge.as_ref().is_some_and(MergeInProgress::heals)
    }

    pub(super) fn memory(&self) -> u64 {
        self.merge.as_ref().map_or(0, MergeInProgress::memory)
    }

    /// Continues a merge of `runs`, or begins one. Returns the result when it is done.
    pub(super) fn go_on(
        &mut self,
        runs: &[Arc<IndexRun<V>>],
        context: &FlushContext,
        known: &MergeContext<'_>,
        gone: impl FnOnce() -> DeletionBitmaps,
        now: Now,
    ) -> Option<ReplacedRuns<V>> {
        let Some(merge) = &mut self.merge else {
            if self.backoff.is_over(now.mono_ms) {
                let may_heal = self.rebuild_backoff.is_over(now.mono_ms);
                self.begun_ms = now.mono_ms;
                match MergeInProgress::begin(runs, context, known, may_heal, gone) {
                    Ok(merge) => self.merge = merge,
                    Err(error) => self.failed(error.to_string(), context, now),
                }
            }
            return None;
        };
        let outcome = merge.outcome()?;
        let (old, heals) = (merge.take_inputs(), merge.heals());
        self.merge = None;
        let damage = || old.iter().find_map(|run| run.damage());
        match outcome {
            Ok(new) => {
                self.backoff.end();
                if heals {
                    self.rebuild_backoff.end();
                    context.rebuilt.fetch_add(damaged(&old), Ordering::Relaxed);
                }
                if heals || damaged(runs) == 0 {
                    context.background_failures.end(self.work);
                }
                return Some(ReplacedRuns { old, new });
            }
            Err(error) => match damage() {
                None => self.failed(error.to_string(), context, now),
                Some(damage) if heals => {
                    self.rebuild_backoff.failed(self.begun_ms, now.mono_ms);
                    let reason = format!("{damage}; it cannot be rebuilt: {error}; {REPAIR}");
                    context.background_failures.note(self.work, reason, now.wall);
                }
                Some(damage) => {
                    // The rebuild is tried at once.
                    let reason = format!("{damage}; it is rebuilt from tables");
                    context.background_failures.note(self.work, reason, now.wall);
                }
            },
        }
        None
    }

    fn failed(&mut self, reason: String, context: &FlushContext, now: Now) {
        self.backoff.failed(self.begun_ms, now.mono_ms);
        context.background_failures.note(self.work, reason, now.wall);
    }
}

/// The number of these runs that are known to be unreadable.
pub(super) fn damaged<V: IndexValue>(runs: &[Arc<IndexRun<V>>]) -> u64 {
    runs.iter().filter(|run| run.damage().is_some()).count() as u64
}

/// The last resort.
const REPAIR: &str = "stop the server, and `dwell engine repair` saves what can be read into a new directory";

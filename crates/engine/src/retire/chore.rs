//! The repeated merging of one kind of runs: when to begin, and how long to wait after a failure.
//!
//! Each kind has separate retry delays, so that neither the other kind nor the writing of due files waits for it, and
//! the rebuild of unreadable runs has another, so that it blocks no other merge.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dwell_model::Now;

use super::job::Desk;
use super::merge::{Gone, Kept, Known, Merging};
use super::rest::Rest;
use crate::run::{Run, Value};
use crate::troubles::Work;

/// See the module.
pub(super) struct Chore<V: Kept> {
    work: Work,
    merging: Option<Merging<V>>,
    /// When the merge was begun, on the monotonic clock.
    begun_ms: u64,
    rest: Rest,
    /// The retry delay of rebuilding unreadable runs.
    healing_rest: Rest,
}

/// Runs, and those that replace them.
pub(super) struct Replaced<V> {
    pub(super) old: Vec<Arc<Run<V>>>,
    pub(super) new: Vec<Arc<Run<V>>>,
}

impl<V: Kept> Chore<V> {
    pub(super) fn new(work: Work) -> Chore<V> {
        let (rest, healing_rest) = (Rest::default(), Rest::default());
        Chore { work, merging: None, begun_ms: 0, rest, healing_rest }
    }

    /// Whether a merge has ended whose outcome was not processed yet.
    pub(super) fn is_over(&self) -> bool {
        self.merging.as_ref().is_some_and(Merging::is_over)
    }

    /// Whether a merge is in progress.
    #[cfg(test)]
    pub(super) fn is_under_way(&self) -> bool {
        self.merging.is_some()
    }

    /// Whether unreadable runs are being rebuilt now.
    pub(super) fn heals(&self) -> bool {
        self.merging.as_ref().is_some_and(Merging::heals)
    }

    pub(super) fn memory(&self) -> u64 {
        self.merging.as_ref().map_or(0, Merging::memory)
    }

    /// Continues a merge of `runs`, or begins one. Returns the result when it is done.
    pub(super) fn go_on(
        &mut self,
        runs: &[Arc<Run<V>>],
        desk: &Desk,
        known: &Known<'_>,
        gone: impl FnOnce() -> Gone,
        now: Now,
    ) -> Option<Replaced<V>> {
        let Some(merging) = &mut self.merging else {
            if self.rest.is_over(now.mono_ms) {
                let may_heal = self.healing_rest.is_over(now.mono_ms);
                self.begun_ms = now.mono_ms;
                match Merging::begin(runs, desk, known, may_heal, gone) {
                    Ok(merging) => self.merging = merging,
                    Err(error) => self.failed(error.to_string(), desk, now),
                }
            }
            return None;
        };
        let outcome = merging.outcome()?;
        let (old, heals) = (merging.take_inputs(), merging.heals());
        self.merging = None;
        let damage = || old.iter().find_map(|run| run.damage());
        match outcome {
            Ok(new) => {
                self.rest.end();
                if heals {
                    self.healing_rest.end();
                    desk.healed.fetch_add(damaged(&old), Ordering::Relaxed);
                }
                if heals || damaged(runs) == 0 {
                    desk.troubles.end(self.work);
                }
                return Some(Replaced { old, new });
            }
            Err(error) => match damage() {
                None => self.failed(error.to_string(), desk, now),
                Some(damage) if heals => {
                    self.healing_rest.failed(self.begun_ms, now.mono_ms);
                    let reason = format!("{damage}; it cannot be made anew: {error}; {REPAIR}");
                    desk.troubles.note(self.work, reason, now.wall);
                }
                Some(damage) => {
                    // The rebuild is tried at once.
                    let reason = format!("{damage}; it is made anew from due files");
                    desk.troubles.note(self.work, reason, now.wall);
                }
            },
        }
        None
    }

    fn failed(&mut self, reason: String, desk: &Desk, now: Now) {
        self.rest.failed(self.begun_ms, now.mono_ms);
        desk.troubles.note(self.work, reason, now.wall);
    }
}

/// The number of these runs that are known to be unreadable.
pub(super) fn damaged<V: Value>(runs: &[Arc<Run<V>>]) -> u64 {
    runs.iter().filter(|run| run.damage().is_some()).count() as u64
}

/// The last resort.
const REPAIR: &str = "stop the server, and `dwell engine repair` saves what can be read into a new directory";

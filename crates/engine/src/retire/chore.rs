//! The merging of one kind of runs, again and again: when to begin, and how long it rests where it failed.
//!
//! It has rests of its own, so that neither the other kind nor the writing of due files waits for it, and making anew what can
//! not be read has another, so that it keeps no other merge from being made.

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
    /// When that was begun, on the monotonic clock.
    begun_ms: u64,
    rest: Rest,
    /// The rest of making anew what can not be read.
    healing_rest: Rest,
}

/// Runs, and those that take their place.
pub(super) struct Replaced<V> {
    pub(super) old: Vec<Arc<Run<V>>>,
    pub(super) new: Vec<Arc<Run<V>>>,
}

impl<V: Kept> Chore<V> {
    pub(super) fn new(work: Work) -> Chore<V> {
        let (rest, healing_rest) = (Rest::default(), Rest::default());
        Chore { work, merging: None, begun_ms: 0, rest, healing_rest }
    }

    /// Whether a merge is done, and nobody has heard of it yet.
    pub(super) fn is_over(&self) -> bool {
        self.merging.as_ref().is_some_and(Merging::is_over)
    }

    /// Whether a merge is under way.
    #[cfg(test)]
    pub(super) fn is_under_way(&self) -> bool {
        self.merging.is_some()
    }

    /// Whether what can not be read is made anew now.
    pub(super) fn heals(&self) -> bool {
        self.merging.as_ref().is_some_and(Merging::heals)
    }

    pub(super) fn memory(&self) -> u64 {
        self.merging.as_ref().map_or(0, Merging::memory)
    }

    /// Goes on with a merge of `runs`, or begins one. What came of it, if it is done.
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
                    let reason = format!("{damage}; it can not be made anew: {error}; {REPAIR}");
                    desk.troubles.note(self.work, reason, now.wall);
                }
                Some(damage) => {
                    // That is tried at once.
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

/// How many of them can not be read, as far as that is known.
pub(super) fn damaged<V: Value>(runs: &[Arc<Run<V>>]) -> u64 {
    runs.iter().filter(|run| run.damage().is_some()).count() as u64
}

/// What helps where nothing else does.
const REPAIR: &str = "stop the server, and `dwell engine repair` saves what can be read into a new directory";

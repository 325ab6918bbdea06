//! Reports what a run waits for when the wait begins, so that the run does not look stuck or finished.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dwell_model::format_duration_ms;
use dwell_store::Error;
use serde::Serialize;

use super::progress::LoadProgress;

/// The waits of all lanes.
pub(crate) struct RetryWaits<'a> {
    progress: &'a LoadProgress,
    patience_ms: u64,
    state: Mutex<WaitState>,
}

#[derive(Default)]
struct WaitState {
    /// Whether the last request got no answer from the server.
    is_away: bool,
    /// Codes of refusals that were reported. Each is reported once: a queue may be full repeatedly.
    told: BTreeSet<String>,
}

/// The report as JSON.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum WaitEvent<'a> {
    /// A part of the run, or all of it, waits.
    Waiting { code: &'a str, detail: String, retry_for: String },
    /// The server answers again.
    Resumed,
}

impl<'a> RetryWaits<'a> {
    /// For a run that waits at most this long while nothing succeeds.
    pub(crate) fn new(progress: &'a LoadProgress, patience_ms: u64) -> RetryWaits<'a> {
        RetryWaits { progress, patience_ms, state: Mutex::default() }
    }

    /// How long to retry while nothing succeeds.
    pub(crate) fn patience_ms(&self) -> u64 {
        self.patience_ms
    }

    /// Records a transient error of a lane, which retries.
    pub(crate) fn for_want_of(&self, error: &Error) {
        let is_news = {
            let mut state = self.state();
            match error {
                Error::Unreachable { .. } | Error::OutcomeUnknown { .. } => {
                    !std::mem::replace(&mut state.is_away, true)
                }
                refusal => state.told.insert(refusal.code().to_owned()),
            }
        };
        if is_news {
            let retry_for = format_duration_ms(self.patience_ms);
            let told = WaitEvent::Waiting { code: error.code(), detail: error.to_string(), retry_for };
            self.progress.tell(&told);
        }
    }

    /// Records that the server has answered.
    pub(crate) fn answered(&self) {
        if std::mem::take(&mut self.state().is_away) {
            self.progress.tell(&WaitEvent::Resumed);
        }
    }

    fn state(&self) -> MutexGuard<'_, WaitState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! What a run waits for: told when it begins to, so that nobody takes it for stuck or for done.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dwell_model::format_duration_ms;
use dwell_store::Error;
use serde::Serialize;

use super::progress::Progress;

/// What all lanes wait for.
pub(crate) struct Waits<'a> {
    progress: &'a Progress,
    patience_ms: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Whether the last that was heard of the server is that it does not answer.
    is_away: bool,
    /// Codes of refusals that were told. Each is told once: a queue may be full again and again.
    told: BTreeSet<String>,
}

/// How it is told to programs.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Told<'a> {
    /// Nothing goes on meanwhile, or not all.
    Waiting { code: &'a str, detail: String, retry_for: String },
    /// The server answers again.
    Resumed,
}

impl<'a> Waits<'a> {
    /// A run that waits so long at most while nothing succeeds.
    pub(crate) fn new(progress: &'a Progress, patience_ms: u64) -> Waits<'a> {
        Waits { progress, patience_ms, state: Mutex::default() }
    }

    /// How long to try while nothing succeeds.
    pub(crate) fn patience_ms(&self) -> u64 {
        self.patience_ms
    }

    /// A lane has met an error that may pass, and tries again.
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
            let told = Told::Waiting { code: error.code(), detail: error.to_string(), retry_for };
            self.progress.tell(&told);
        }
    }

    /// The server has answered.
    pub(crate) fn answered(&self) {
        if std::mem::take(&mut self.state().is_away) {
            self.progress.tell(&Told::Resumed);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

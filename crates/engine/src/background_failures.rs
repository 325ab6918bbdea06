//! Background work that fails and is retried: no caller waits for an answer that could report it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dwell_model::Timestamp;

/// Background work that no caller waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum BackgroundWork {
    /// A flush: messages are written to tables, and freed from memory.
    Flush,
    /// A merge of runs that locate messages by number.
    MergeNumbers,
    /// A merge of runs that locate messages by key.
    MergeKeys,
}

impl BackgroundWork {
    /// Its name in metrics and logs.
    pub fn word(self) -> &'static str {
        match self {
            BackgroundWork::Flush => "flush",
            BackgroundWork::MergeNumbers => "merge_numbers",
            BackgroundWork::MergeKeys => "merge_keys",
        }
    }
}

/// Work that has failed, and has not succeeded since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackgroundFailure {
    /// The work.
    pub work: BackgroundWork,
    /// Why it failed the last time: the error of the disk, with file and offset where they are known, and what can be
    /// done.
    pub reason: String,
    /// When it first failed.
    pub since: Timestamp,
    /// How often it has failed since.
    pub times: u64,
}

/// All current troubles.
#[derive(Debug, Default)]
pub(crate) struct BackgroundFailures(Mutex<BTreeMap<BackgroundWork, BackgroundFailure>>);

impl BackgroundFailures {
    fn all(&self) -> MutexGuard<'_, BTreeMap<BackgroundWork, BackgroundFailure>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a failure; the work will be retried.
    pub(crate) fn note(&self, work: BackgroundWork, reason: String, now: Timestamp) {
        let mut all = self.all();
        let trouble = all.entry(work);
        let trouble =
            trouble.or_insert(BackgroundFailure { work, reason: String::new(), since: now, times: 0 });
        (trouble.reason, trouble.times) = (reason, trouble.times + 1);
    }

    /// Records a success.
    pub(crate) fn end(&self, work: BackgroundWork) {
        self.all().remove(&work);
    }

    /// The current troubles.
    pub(crate) fn now(&self) -> Vec<BackgroundFailure> {
        self.all().values().cloned().collect()
    }
}

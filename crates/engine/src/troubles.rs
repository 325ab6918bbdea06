//! What fails in the background, and is tried again: nobody waits for an answer that could say so.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dwell_model::Timestamp;

/// Work that nobody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Work {
    /// Messages are written to due files, and memory forgets them.
    Flush,
    /// Runs are merged that find messages by number.
    MergeNumbers,
    /// Runs are merged that find messages by key.
    MergeKeys,
}

impl Work {
    /// A word for it, as metrics and logs have it.
    pub fn word(self) -> &'static str {
        match self {
            Work::Flush => "flush",
            Work::MergeNumbers => "merge_numbers",
            Work::MergeKeys => "merge_keys",
        }
    }
}

/// Work that has failed, and has not gone well since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Which work.
    pub work: Work,
    /// Why it failed the last time: what the disk says, with file and place where they are known, and what can be done.
    pub reason: String,
    /// When it failed first.
    pub since: Timestamp,
    /// How often it has failed since.
    pub times: u64,
}

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct Troubles(Mutex<BTreeMap<Work, Trouble>>);

impl Troubles {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Work, Trouble>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It has failed, and will be tried again.
    pub(crate) fn note(&self, work: Work, reason: String, now: Timestamp) {
        let mut all = self.all();
        let trouble = all.entry(work);
        let trouble = trouble.or_insert(Trouble { work, reason: String::new(), since: now, times: 0 });
        (trouble.reason, trouble.times) = (reason, trouble.times + 1);
    }

    /// It has gone well.
    pub(crate) fn end(&self, work: Work) {
        self.all().remove(&work);
    }

    /// What is wrong now.
    pub(crate) fn now(&self) -> Vec<Trouble> {
        self.all().values().cloned().collect()
    }
}

//! Comparison of live entries with the index runs that must find them, a portion at a time.

use std::sync::Arc;

use dwell_model::Number;

use super::{FileFlaw, Flaws};
use crate::index_run::{IndexRun, IndexValue, MergedPair, RunMerge, TableRef, merge};
use crate::sealed::FileId;

/// The maximum number of entries in a portion: 160 MiB.
pub(super) const MOST: usize = 4 * 1024 * 1024;

/// A live entry with a key: the key's hash, the message's number, and its place.
type Keyed = (u64, Number, TableRef);

/// The current portion, and the results of those before.
#[derive(Debug)]
pub(super) struct Portions {
    most: usize,
    /// The name of any table.
    due: FileId,
    /// `None` if one of them cannot be read: then nothing is compared.
    numbers: Option<Vec<Arc<IndexRun<TableRef>>>>,
    keys: Option<Vec<Arc<IndexRun<Number>>>>,
    by_number: Vec<(Number, TableRef)>,
    by_key: Vec<Keyed>,
    pub(super) flaws: Flaws,
    /// Bytes that were read and not reported yet.
    pub(super) read: u64,
}

impl Portions {
    pub(super) fn new(
        most: usize,
        due: FileId,
        numbers: Option<Vec<Arc<IndexRun<TableRef>>>>,
        keys: Option<Vec<Arc<IndexRun<Number>>>>,
    ) -> Portions {
        Portions {
            most,
            due,
            numbers,
            keys,
            by_number: Vec::new(),
            by_key: Vec::new(),
            flaws: Flaws::default(),
            read: 0,
        }
    }

    /// Adds a live entry.
    pub(super) fn add(&mut self, home: TableRef, number: Number, key: Option<u64>) {
        self.by_number.push((number, home));
        self.by_key.extend(key.map(|hash| (hash, number, home)));
        if self.by_number.len() >= self.most {
            self.compare();
        }
    }

    /// Compares the current portion with the index runs.
    pub(super) fn compare(&mut self) {
        self.by_number.sort_unstable();
        self.by_key.sort_unstable();
        let (by_number, by_key) = (std::mem::take(&mut self.by_number), std::mem::take(&mut self.by_key));
        self.compare_numbers(&by_number);
        self.compare_keys(&by_key);
        // The allocations are reused.
        (self.by_number, self.by_key) = (by_number, by_key);
        self.by_number.clear();
        self.by_key.clear();
    }

    fn compare_numbers(&mut self, entries: &[(Number, TableRef)]) {
        let Some(runs) = self.numbers.as_deref().filter(|_| !entries.is_empty()) else { return };
        let mut known = PairStream::of(runs, &mut self.read);
        for (number, home) in entries {
            let found = match known.advance(|pair| pair.key < number.get()) {
                Ok(found) => found.filter(|found| found.key == number.get()).map(|found| found.value),
                Err(error) => return self.flaws.note(FileFlaw::Unreadable(error)),
            };
            if found != Some(*home) {
                let file = FileId { number: home.file, ..self.due };
                let (ordinal, number) = (home.ordinal, *number);
                self.flaws.note(FileFlaw::NotFoundByNumber { file, ordinal, number, found });
            }
        }
    }

    fn compare_keys(&mut self, entries: &[Keyed]) {
        let Some(runs) = self.keys.as_deref().filter(|_| !entries.is_empty()) else { return };
        let mut known = PairStream::of(runs, &mut self.read);
        for (hash, number, home) in entries {
            let found = match known.advance(|pair| (pair.key, pair.value) < (*hash, *number)) {
                Ok(found) => found.map(|found| (found.key, found.value)),
                Err(error) => return self.flaws.note(FileFlaw::Unreadable(error)),
            };
            if found != Some((*hash, *number)) {
                let file = FileId { number: home.file, ..self.due };
                self.flaws.note(FileFlaw::NotFoundByKey { file, ordinal: home.ordinal, number: *number });
            }
        }
    }
}

/// All pairs of several index runs, in order, read from front to back.
struct PairStream<V> {
    pairs: RunMerge<V>,
    next: Option<MergedPair<V>>,
}

impl<V: IndexValue> PairStream<V> {
    fn of(runs: &[Arc<IndexRun<V>>], read: &mut u64) -> PairStream<V> {
        *read += runs.iter().map(|run| run.size()).sum::<u64>();
        PairStream { pairs: merge(runs.iter().map(|run| run.iter()).collect()), next: None }
    }

    /// Skips pairs while `is_before` is true, and returns the first other one without consuming it.
    fn advance(
        &mut self,
        is_before: impl Fn(&MergedPair<V>) -> bool,
    ) -> crate::sealed::Result<Option<MergedPair<V>>> {
        while self.next.as_ref().is_none_or(&is_before) {
            match self.pairs.next() {
                Some(pair) => self.next = Some(pair?),
                None => {
                    self.next = None;
                    break;
                }
            }
        }
        Ok(self.next)
    }
}

//! Where a message lies by its number or its key: look-ups in the index runs.

use dwell_model::{Key, Number, QueueName};
use dwell_store::core::{DeadSearch, Died};

use super::{ColdSet, EntryRef, SectionRef, dead};
use crate::index_run::{NumberSet, TableRef, key_hash};
use crate::sealed;
use crate::table::TableEntry;

/// The maximum number of messages that had a key to be looked up one by one; more are looked up together, since they
/// share blocks.
const LOOKED_UP: usize = 4;

impl ColdSet {
    /// The place of the cold message with this number.
    pub(super) fn home(&self, number: Number) -> sealed::Result<Option<EntryRef>> {
        for run in &self.numbers {
            let Some(TableRef { file, ordinal }) = run.home(number)? else { continue };
            if self.files.get(&file).is_some_and(|file| file.is_cold(ordinal)) {
                return Ok(Some(EntryRef { file, ordinal }));
            }
        }
        Ok(None)
    }

    /// The places of those that are cold, the latest first if there are few. `numbers` rise.
    pub(super) fn homes(&self, numbers: &[Number]) -> sealed::Result<Vec<EntryRef>> {
        if numbers.len() <= LOOKED_UP {
            return numbers.iter().rev().filter_map(|number| self.home(*number).transpose()).collect();
        }
        let mut spots = Vec::new();
        for run in &self.numbers {
            let mut wanted = NumberSet::default();
            for number in numbers {
                if run.may_hold(number.get())? {
                    wanted.add(number.get());
                }
            }
            if wanted.is_empty() {
                continue;
            }
            run.find_all(&wanted, |TableRef { file, ordinal }| {
                if self.files.get(&file).is_some_and(|file| file.is_cold(ordinal)) {
                    spots.push(EntryRef { file, ordinal });
                }
            })?;
        }
        Ok(spots)
    }

    /// Looks at some more of the messages that had this key, by their numbers, and returns whether these were all: one
    /// or two reads for each, and a few for each run. See [`Cold::dead_by_key`](dwell_store::core::Cold::dead_by_key).
    pub(super) fn search_dead_key(
        &mut self,
        queue: &QueueName,
        key: &Key,
        after: Option<Died>,
        most: usize,
        search: &mut DeadSearch,
    ) -> sealed::Result<bool> {
        // A message that has expired since its file was written is there under the hash of a live one.
        let hashes = [true, false].map(|is_dead| key_hash(self.directory, queue, key, is_dead));
        let (mut numbers, mut end) = (Vec::new(), None::<Number>);
        for (run, hash) in self.keys.iter().flat_map(|run| hashes.map(|hash| (run, hash))) {
            let found = run.find_after(hash, search.to, most)?;
            if let Some(last) = found.last().filter(|_| found.len() >= most) {
                // What this run has behind its last one was not read.
                end = Some(end.map_or(*last, |end| end.min(*last)));
            }
            numbers.extend(found);
        }
        numbers.sort_unstable();
        numbers.dedup();
        numbers.truncate(end.map_or(numbers.len(), |end| numbers.partition_point(|number| *number <= end)));
        let is_all = end.is_none() && numbers.len() <= most;
        numbers.truncate(most);
        let mut spots = self.homes(&numbers)?;
        // In the order of the places, each block is read once.
        spots.sort_unstable();
        for spot in spots {
            let file = &self.files[&spot.file];
            if !file.over.has(spot.ordinal) && !file.was_dead(spot.ordinal) {
                continue;
            }
            // The known times of death of the section may be enough to skip it.
            let section =
                u32::try_from(file.file.section_of(spot.ordinal)).expect("sections are counted in 32 bits");
            let least = search.youngest.map(|(died, _)| died).max(after);
            let deaths = self.deaths.get(&SectionRef { file: spot.file, section });
            if deaths.zip(least).is_some_and(|((_, last), (least, _))| *last < least) {
                continue;
            }
            let TableEntry { entry, .. } = self.blocks.entry(file, spot.ordinal)?;
            let had_it = entry.queue == *queue && entry.own_key() == Some(key);
            let died = dead::died_at(entry).filter(|died| had_it && Some(*died) > after);
            search.youngest = search.youngest.max(died.map(|died| (died, entry.number)));
        }
        search.to = numbers.last().copied().or(search.to);
        search.looked_at += numbers.len();
        Ok(is_all)
    }

    /// The place of the message that a search has found to be the youngest, if it is still there.
    pub(super) fn found_dead(&self, number: Number) -> sealed::Result<Option<EntryRef>> {
        let is_dead = |spot: &EntryRef| {
            let file = &self.files[&spot.file];
            file.over.has(spot.ordinal) || file.was_dead(spot.ordinal)
        };
        Ok(self.home(number)?.filter(is_dead))
    }

    pub(super) fn key_home(&mut self, queue: &QueueName, key: &Key) -> sealed::Result<Option<EntryRef>> {
        let hash = key_hash(self.directory, queue, key, false);
        for run in self.keys.clone() {
            // Messages that expired in place, or that died and whose runs were not merged yet, had the key as well.
            for spot in self.homes(&run.find(hash)?)? {
                let file = &self.files[&spot.file];
                if file.over.has(spot.ordinal) || file.was_dead(spot.ordinal) {
                    continue;
                }
                let entry = &self.blocks.entry(file, spot.ordinal)?.entry;
                if entry.queue == *queue && entry.live_key() == Some(key) {
                    return Ok(Some(spot));
                }
            }
        }
        Ok(None)
    }
}

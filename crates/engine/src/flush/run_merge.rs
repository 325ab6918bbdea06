//! Merging several index runs into one in the background: however long the index runs are, nothing waits for it.
//!
//! Pairs that are no longer needed are left out: former places of messages in tables, and keys of messages that are
//! in no table. For keys that is determined by reading all index runs of numbers, and so it is done only when the
//! oldest run is merged. Runs that have more than twice the pairs that they need are all merged at once. Unreadable
//! runs are rebuilt, see [`compaction`](super::run_compaction); while that fails, the index runs that are newer are
//! merged without them.
//!
//! The merged index run replaces the others in memory as soon as it is complete, and in the manifest with the next one
//! that is written; only after that are the files of the others removed. No index run is longer than
//! `FlushContext::run_bytes`: a longer one is divided into several, side by side, which are merged as one.

use std::collections::BTreeMap;
use std::io;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use dwell_model::Number;

use super::job::FlushContext;
use super::memory_budget::FilterBudget;
use super::run_compaction::{CompactionOrder, RunCompaction, numbers_of};
use crate::executor::{Class, Dropped, Handle, spawn};
use crate::index_run::{IndexRun, IndexValue, NumberSet, TableRef, key_hash_of, may_be_of_dead};
use crate::table::{DeletionBitmap, Entry, Table};

/// The number of index runs of about one size that are merged into one.
const MERGE_FAN_IN: usize = 4;

/// The state of each table that the manifest names.
pub(crate) type DeletionBitmaps = BTreeMap<u32, GoneOf>;

/// The state of a table: the settled entries, whose pairs are not needed any more; and the entries that were dead
/// when it was written.
#[derive(Clone, Debug)]
pub(crate) struct GoneOf {
    pub(crate) settled: DeletionBitmap,
    pub(crate) dead: Vec<Range<u32>>,
}

/// The messages that are in tables: those that were dead when their file was written, and the others.
#[derive(Debug, Default)]
pub(crate) struct Living(NumberSet);

impl Living {
    /// Adds a number. Numbers are added in rising order.
    pub(super) fn add(&mut self, number: u64, is_dead: bool) {
        self.0.add(2 * number + u64::from(is_dead));
    }

    fn has_live(&self, number: Number) -> bool {
        self.0.has(2 * number.get())
    }

    fn has_dead(&self, number: Number) -> bool {
        self.0.has(2 * number.get() + 1)
    }

    /// The maximum memory of a set of `count` numbers in this range, in bytes.
    fn most_memory(count: u64, (low, high): (u64, u64)) -> u64 {
        NumberSet::most_memory(count, (2 * low, 2 * high + 1))
    }
}

/// A merge of one kind of index runs, in progress.
#[derive(Debug)]
pub(crate) struct MergeInProgress<V: Mergeable> {
    /// The index runs that it merges, newest first.
    inputs: Vec<Arc<IndexRun<V>>>,
    /// Its memory without the inputs, in bytes: the filter that it makes, and the set of the living.
    memory: u64,
    heals: bool,
    handle: Handle<MergeOutcome<V>>,
}

/// The index runs that replace those that were merged.
type MergeOutcome<V> = io::Result<Vec<Arc<IndexRun<V>>>>;

/// How a kind of values is merged.
pub(crate) trait Mergeable: IndexValue {
    /// Whether a lookup may still need it, under this key of the index run. `living` are the messages in tables, if
    /// they are known.
    fn is_of_use(&self, key: u64, gone: &DeletionBitmaps, living: Option<&Living>) -> bool;

    /// Whether the living have to be determined before a merge.
    fn asks_for_living(has_oldest: bool) -> bool;

    /// The number of pairs that a filter is sized for, if the index runs `merged` of `runs` are merged; 0 for no
    /// filter.
    fn filter_for(runs: &[Arc<IndexRun<Self>>], merged: Range<usize>, filters: FilterBudget) -> u64;

    /// The pair of a message in a table, if a run of this kind has one.
    fn pair_of(entry: &Entry, home: TableRef, directory: u64) -> Option<(u64, Self)>;

    /// The range of the keys of a file's pairs, if it is known.
    fn keys_of(file: &Table) -> Option<RangeInclusive<u64>>;
}

impl Mergeable for TableRef {
    fn is_of_use(&self, _: u64, gone: &DeletionBitmaps, _: Option<&Living>) -> bool {
        gone.get(&self.file).is_some_and(|of| !of.settled.has(self.ordinal))
    }

    fn asks_for_living(_: bool) -> bool {
        false
    }

    fn filter_for(runs: &[Arc<IndexRun<TableRef>>], merged: Range<usize>, filters: FilterBudget) -> u64 {
        let (inputs, older) = (&runs[merged.clone()], &runs[merged.end..]);
        let ranges = inputs.iter().filter_map(|run| run.key_range());
        let range = ranges.reduce(|(low, high), (other, another)| (low.min(other), high.max(another)));
        numbers_room(pairs(inputs), range, older, filters)
    }

    fn pair_of(entry: &Entry, home: TableRef, _: u64) -> Option<(u64, TableRef)> {
        Some((entry.number.get(), home))
    }

    fn keys_of(file: &Table) -> Option<RangeInclusive<u64>> {
        Some(numbers_of(file))
    }
}

impl Mergeable for Number {
    fn is_of_use(&self, key: u64, _: &DeletionBitmaps, living: Option<&Living>) -> bool {
        // A message that comes into a table again gets a new pair for its key, as a live or as a dead one.
        living.is_none_or(|living| living.has_live(*self) || (may_be_of_dead(key) && living.has_dead(*self)))
    }

    fn asks_for_living(has_oldest: bool) -> bool {
        has_oldest
    }

    fn filter_for(runs: &[Arc<IndexRun<Number>>], merged: Range<usize>, filters: FilterBudget) -> u64 {
        room::<Number>(pairs(&runs[merged]), pairs(runs), filters.keys)
    }

    fn pair_of(entry: &Entry, _: TableRef, directory: u64) -> Option<(u64, Number)> {
        Some((key_hash_of(directory, entry)?, entry.number))
    }

    /// Hashes are in no order.
    fn keys_of(_: &Table) -> Option<RangeInclusive<u64>> {
        None
    }
}

fn pairs<V: IndexValue>(runs: &[Arc<IndexRun<V>>]) -> u64 {
    runs.iter().map(|run| run.len()).sum()
}

/// The number of pairs that the filter of a run of `total` numbers in this range is sized for, in front of these older
/// runs.
///
/// The oldest index run needs no filter: it is searched for numbers that no other index run has, and it has them. Nor
/// does a run that has most of the numbers of its range, as that of messages flushed in the order of their puts has:
/// the numbers searched for are there.
pub(super) fn numbers_room(
    total: u64,
    range: Option<(u64, u64)>,
    older: &[Arc<IndexRun<TableRef>>],
    filters: FilterBudget,
) -> u64 {
    let is_dense = range.is_none_or(|(low, high)| (high - low) / 16 * 15 < total);
    if older.is_empty() || is_dense {
        return 0;
    }
    let others = older.iter().filter(|run| run.has_filter()).map(|run| run.len()).sum::<u64>();
    // As many bits as keys have: numbers in the oldest index run are searched for in these first.
    let of_keys = |pairs: u64| pairs * Number::FILTER_BITS / TableRef::FILTER_BITS;
    room::<TableRef>(of_keys(total), of_keys(total + others), filters.numbers)
}

/// The number of pairs that a filter for `total` of `all` pairs is sized for. There are several short index runs, which
/// are searched before the long one that has the pair; they are sized for twice as many, and have one false positive in
/// a thousand.
///
/// All filters of a kind together take at most twice `most` bytes, however many pairs there are. If that is less than
/// [all their bits](IndexValue::FILTER_BITS), each pair has its share, and there are more false positives. The share is
/// larger in short index runs, where it costs little and each index run is searched as often as the longest (Dayan,
/// Athanassoulis and Idreos, "Monkey: Optimal Navigable Key-Value Store", 2017).
pub(super) fn room<V: IndexValue>(total: u64, all: u64, most: u64) -> u64 {
    if total == 0 {
        return 0;
    }
    let pairs = if total <= all / 16 { 2 * total } else { total };
    let fits = most.saturating_mul(8) / V::FILTER_BITS;
    if all <= fits {
        return pairs;
    }
    let times = match total {
        total if total <= all / 16 => 4,
        total if total <= all / 4 => 2,
        _ => 1,
    };
    let share = u128::from(total) * times * u128::from(fits) / u128::from(all);
    u64::try_from(share).map_or(pairs, |share| share.clamp(1, pairs))
}

/// What a merge needs to know beyond its runs: the contents of the manifest.
pub(crate) struct MergeContext<'a> {
    /// All index runs of numbers, newest first.
    pub(crate) numbers: &'a [Arc<IndexRun<TableRef>>],
    /// The number of entries of tables that are not settled: runs need no more pairs.
    pub(crate) in_use: u64,
}

impl MergeContext<'_> {
    /// The maximum memory of the set of the messages in tables, in bytes.
    fn living_bytes(&self) -> u64 {
        let ranges = || self.numbers.iter().filter_map(|run| Some((run.len(), run.key_range()?)));
        let all =
            ranges().map(|(_, range)| range).reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
        let at_once = all.map_or(0, |all| Living::most_memory(self.in_use, all));
        at_once.min(ranges().map(|(len, range)| Living::most_memory(len, range)).sum())
    }
}

impl<V: Mergeable> MergeInProgress<V> {
    /// Begins to merge some of `runs`, if that is worth it. `gone` returns the state of all tables that the manifest
    /// names. Unreadable runs are rebuilt if `may_heal`.
    pub(super) fn begin(
        runs: &[Arc<IndexRun<V>>],
        context: &FlushContext,
        known: &MergeContext<'_>,
        may_heal: bool,
        gone: impl FnOnce() -> DeletionBitmaps,
    ) -> io::Result<Option<MergeInProgress<V>>> {
        let Some(ChosenRuns { merged, heals }) = choose(runs, context, known, may_heal) else {
            return Ok(None);
        };
        let inputs = runs[merged.clone()].to_vec();
        let asks_for_living = V::asks_for_living(merged.end == runs.len()) && is_sound(known.numbers);
        let unread = if asks_for_living { known.numbers.to_vec() } else { Vec::new() };
        let living_bytes = if asks_for_living { known.living_bytes() } else { 0 };
        let filter_for = V::filter_for(runs, merged, context.filters);
        let memory = filter_for * V::FILTER_BITS / 8 + living_bytes;
        let filter_for = filter_of_each(filter_for, &inputs, context.run_bytes);
        let order = CompactionOrder { inputs: inputs.clone(), filter_for, unread, gone: gone(), heals };
        let (handle, submitted) =
            spawn(&context.executor, Class::Compaction, RunCompaction::new(context, order));
        // If no thread can be started it is given up, and retried after a delay.
        submitted?;
        Ok(Some(MergeInProgress { inputs, memory, heals, handle }))
    }

    /// Whether it is done.
    pub(super) fn is_over(&self) -> bool {
        self.handle.is_over()
    }

    /// The outcome when it is done.
    pub(super) fn outcome(&mut self) -> Option<MergeOutcome<V>> {
        match self.handle.try_take() {
            Ok(outcome) => outcome,
            Err(Dropped) => Some(Err(io::Error::other("the store closes"))),
        }
    }

    /// The index runs that it merges, newest first.
    pub(super) fn take_inputs(&mut self) -> Vec<Arc<IndexRun<V>>> {
        std::mem::take(&mut self.inputs)
    }

    /// Its memory in bytes, without a few blocks.
    pub(super) fn memory(&self) -> u64 {
        self.memory
    }

    /// Whether it rebuilds unreadable runs.
    pub(super) fn heals(&self) -> bool {
        self.heals
    }
}

/// The index runs that are merged.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ChosenRuns {
    merged: Range<usize>,
    heals: bool,
}

/// Whether none of them is known to be unreadable.
fn is_sound<V: IndexValue>(runs: &[Arc<IndexRun<V>>]) -> bool {
    runs.iter().all(|run| run.damage().is_none())
}

/// The unreadable runs, and those between them; otherwise all index runs if they have twice the pairs that they need,
/// or else the newest ones, if there are several of about one size.
fn choose<V: Mergeable>(
    runs: &[Arc<IndexRun<V>>],
    context: &FlushContext,
    known: &MergeContext<'_>,
    may_heal: bool,
) -> Option<ChosenRuns> {
    let is_bad = |run: &Arc<IndexRun<V>>| run.damage().is_some();
    let first_bad = runs.iter().position(is_bad);
    if let (Some(first), Some(last), true) = (first_bad, runs.iter().rposition(is_bad), may_heal) {
        return Some(ChosenRuns { merged: first..last + 1, heals: true });
    }
    let sound = &runs[..first_bad.unwrap_or(runs.len())];
    let is_all = sound.len() == runs.len();
    let leaves_out = !V::asks_for_living(true) || (is_all && is_sound(known.numbers));
    if leaves_out && !sound.is_empty() && pairs(sound) > 2 * known.in_use + 8 * context.least as u64 {
        return Some(ChosenRuns { merged: 0..sound.len(), heals: false });
    }
    let units = units(sound, context.run_bytes);
    let count = alike(units.iter().map(|(_, pairs)| *pairs))?;
    let runs = units[..count].iter().map(|(runs, _)| runs).sum();
    Some(ChosenRuns { merged: 0..runs, heals: false })
}

/// Groups runs that were written as parts of one that was too long: the number of index runs in each group, and their
/// pairs. All but the last of such index runs are full, and each has higher keys than the one before.
fn units<V: IndexValue>(runs: &[Arc<IndexRun<V>>], run_bytes: u64) -> Vec<(usize, u64)> {
    let goes_on = |one: &IndexRun<V>, other: &IndexRun<V>| {
        let ranges = one.key_range().zip(other.key_range());
        one.block_bytes() >= run_bytes && ranges.is_some_and(|((_, last), (first, _))| last <= first)
    };
    let units = runs.chunk_by(|one, other| goes_on(one, other));
    units.map(|unit| (unit.len(), pairs(unit))).collect()
}

/// The number of pairs that each filter is sized for, if the output of merging `inputs` is divided into several index
/// runs, and the filter of a single run would be sized for `filter_for`.
fn filter_of_each<V: IndexValue>(filter_for: u64, inputs: &[Arc<IndexRun<V>>], run_bytes: u64) -> u64 {
    let bytes: u64 = inputs.iter().map(|run| run.block_bytes()).sum();
    if bytes <= run_bytes {
        return filter_for;
    }
    let share = u128::from(filter_for) * u128::from(run_bytes) / u128::from(bytes);
    u64::try_from(share).map_or(filter_for, |share| share.clamp(filter_for.min(1), filter_for))
}

/// The number of newest index runs that are of about one size, if they are enough: each older one is at most twice as
/// long as all before it. So the lengths of the index runs that stay at least double, and of `n` messages there are at
/// most `MERGE_FAN_IN` + log2(n) runs, and those that came while a merge was in progress.
fn alike(lengths: impl Iterator<Item = u64>) -> Option<usize> {
    let (mut total, mut count) = (0, 0);
    for len in lengths {
        if count > 0 && len > total * 2 {
            break;
        }
        total += len;
        count += 1;
    }
    (count >= MERGE_FAN_IN).then_some(count)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::checkpoint::file_name;
    use crate::disk::{Disk, MemoryDisk};
    use crate::executor::Executor;
    use crate::index_run::RunWriter;
    use crate::sealed::FileKind;

    /// A run of every `step`th number below `end`.
    fn numbers(disk: &MemoryDisk, end: u64, step: usize, filter_for: u64) -> Arc<IndexRun<TableRef>> {
        let name = file_name(1, FileKind::Numbers, step as u32);
        let mut writer = RunWriter::create(disk, Path::new("/d"), name, filter_for).unwrap();
        (1..end).step_by(step).for_each(|key| writer.push(key, TableRef { file: 1, ordinal: 1 }).unwrap());
        Arc::new(writer.finish().unwrap())
    }

    #[test]
    fn numbers_have_a_filter_where_their_range_has_others_too() {
        let filters = FilterBudget { numbers: 16_000, keys: 0 };
        let (disk, room_for) =
            (MemoryDisk::new(), |total, range, older: &[_]| numbers_room(total, Some(range), older, filters));
        disk.create_dir(Path::new("/d")).unwrap();
        let oldest = [numbers(&disk, 100_000, 1, 0)];
        assert_eq!(room_for(1_000, (1, 100_000), &[]), 0, "the oldest has what it is asked for");
        assert_eq!(room_for(1_000, (100_001, 101_000), &oldest), 0, "and so has one with all of its range");
        assert_eq!(room_for(1_000, (100_001, 101_030), &oldest), 0, "or with nearly all");
        assert_eq!(room_for(1_000, (100_001, 102_000), &oldest), 1_600);
        assert_eq!(room_for(1_000, (1, 100_000), &oldest), 1_600, "what has no filter takes no room from it");
        let both = [numbers(&disk, 100_000, 10, 10_000), Arc::clone(&oldest[0])];
        assert_eq!(room_for(5_000, (1, 100_000), &both), 8_000 * 12_800 / 24_000);
        let merged = TableRef::filter_for(&both, 0..1, filters);
        assert_eq!((merged, TableRef::filter_for(&both, 0..2, filters)), (12_800, 0));
    }

    #[test]
    fn filters_of_however_many_pairs_have_a_bound() {
        let most = 10 * 1024 * 1024;
        let bytes = |pairs: u64| pairs * Number::FILTER_BITS / 8;
        assert_eq!(room::<Number>(1_000_000, 2_000_000, most), 1_000_000, "there is room for all");
        assert_eq!(room::<Number>(1_000_000, 100_000_000, u64::MAX), 2_000_000, "there is no limit");
        let (mut runs, mut all): (Vec<(u64, u64)>, u64) = (Vec::new(), 0);
        for _ in 0..5_000 {
            all += 100_000;
            runs.insert(0, (100_000, room::<Number>(100_000, all, most)));
            if let Some(count) = alike(runs.iter().map(|(len, _)| *len)) {
                let merged = runs.drain(..count).map(|(len, _)| len).sum();
                runs.insert(0, (merged, room::<Number>(merged, all, most)));
            }
            let taken: u64 = runs.iter().map(|(_, room)| bytes(*room)).sum();
            assert!(taken <= 2 * most, "{taken} bytes of {runs:?}");
            assert!(all < 100_000_000 || taken >= most, "{taken} bytes of {runs:?}");
        }
    }

    #[test]
    fn a_run_is_written_anew_alone_when_half_of_it_is_needless_and_some_more() {
        let disk = MemoryDisk::new();
        disk.create_dir(Path::new("/d")).unwrap();
        let runs = [numbers(&disk, 20_001, 1, 0)];
        let budget = crate::flush::memory_budget::MemoryBudget::of(64 << 10, 8 << 10);
        let mut context =
            FlushContext::new(Arc::new(disk), "/d".into(), 1, &budget, 1, Executor::without_threads());
        context.least = 5;
        let enough = (20_000 - 8 * context.least as u64) / 2;
        assert!(enough > 1_000);
        let merged = |in_use| {
            let chosen = choose(&runs, &context, &MergeContext { numbers: &runs, in_use }, true);
            chosen.map(|chosen| (chosen.merged, chosen.heals))
        };
        assert_eq!([merged(enough), merged(20_000)], [None, None]);
        assert_eq!(merged(enough - 1), Some((0..1, false)));
    }

    #[test]
    fn lengths_of_runs_that_stay_rise_by_twos() {
        let mut runs: Vec<u64> = Vec::new();
        for _ in 0..10_000 {
            runs.insert(0, 1);
            if let Some(count) = alike(runs.iter().copied()) {
                let merged = runs.drain(..count).sum();
                runs.insert(0, merged);
            }
            let total: u64 = runs.iter().sum();
            assert!(runs.len() <= MERGE_FAN_IN + total.ilog2() as usize, "{runs:?}");
        }
    }
}

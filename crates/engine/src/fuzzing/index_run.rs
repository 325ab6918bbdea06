//! Runs: what was written is found, alone and merged; and a damaged run gives no wrong answer.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use dwell_model::Number;

use super::input::Input;
use crate::disk::{Disk as _, MemoryDisk};
use crate::index_run::{IndexRun, IndexValue, RunWriter, TableRef, merge};
use crate::sealed::{FileId, Result};
use crate::table::transcript::assert_no_lies;

fn dir() -> &'static Path {
    Path::new("/data")
}

/// Kind (one byte), number of runs (one byte), for each a filter or none, number of pairs (one byte each), and these;
/// then changes to the first run: offset (2 bytes), and the bits to flip.
pub fn index_run(data: &[u8]) {
    let mut input = Input::new(data);
    if input.u8() & 1 == 0 {
        check(&mut input, |input| TableRef { file: u32::from(input.u8() % 4), ordinal: input.u32() });
    } else {
        check(&mut input, |input| Number::new(u64::from(input.u8()) + 1).expect("numbers begin with 1"));
    }
}

fn check<V: IndexValue>(input: &mut Input<'_>, value: impl Fn(&mut Input<'_>) -> V) {
    let disk = MemoryDisk::new();
    let mut models: Vec<BTreeSet<(u64, V)>> = Vec::new();
    let mut runs: Vec<Arc<IndexRun<V>>> = Vec::new();
    for number in 0..1 + u32::from(input.u8() % 4) {
        let has_filter = input.u8() & 1 == 1;
        let count = usize::from(input.u8());
        let mut model: BTreeSet<(u64, V)> = BTreeSet::new();
        for _ in 0..count {
            let key = input.near(100);
            let value = value(input);
            if !V::IS_UNIQUE || model.iter().all(|pair| pair.0 != key) {
                model.insert((key, value));
            }
        }
        let written = written(&disk, number, has_filter, &model);
        let run: IndexRun<V> = IndexRun::open(&disk, dir(), written.name()).expect("it was just written");
        assert_eq!((written.len(), written.key_range()), (run.len(), run.key_range()));
        run.verify(&mut |_| ()).expect("it was just written");
        models.push(model);
        runs.push(Arc::new(run));
    }
    for (run, model) in runs.iter().zip(&models) {
        assert!(run.iter().map(|pair| pair.expect("it is whole")).eq(model.iter().copied()));
        for key in model.iter().map(|pair| pair.0).chain([0, u64::MAX, input.near(100)]) {
            let right = model.iter().filter(|pair| pair.0 == key).map(|pair| pair.1);
            assert!(run.find(key).expect("it is whole").into_iter().eq(right));
        }
    }
    let mut right: BTreeSet<(u64, V)> = BTreeSet::new();
    let mut known: BTreeSet<u64> = BTreeSet::new();
    for model in &models {
        right.extend(model.iter().filter(|pair| !V::IS_UNIQUE || !known.contains(&pair.0)));
        known.extend(model.iter().map(|pair| pair.0));
    }
    let merged =
        merge(runs.iter().map(IndexRun::iter).collect()).map(|merged| merged.expect("they are whole"));
    assert!(merged.map(|merged| (merged.key, merged.value)).eq(right));

    let name = runs[0].name();
    let path = dir().join(name.file_name());
    let mut bytes = disk.read_file(&path).expect("it was written");
    while !input.is_empty() {
        let at = usize::from(input.u16()) % bytes.len();
        bytes[at] ^= input.u8();
    }
    disk.put_file(&path, bytes);
    if let Ok(run) = IndexRun::<V>::open(&disk, dir(), name) {
        let keys = models[0].iter().map(|pair| pair.0);
        let keys: Vec<u64> = keys.chain([0, u64::MAX]).collect();
        let whole = answers(&written(&MemoryDisk::new(), 0, false, &models[0]), &keys);
        assert_no_lies(&answers(&Arc::new(run), &keys), &whole, &"damaged");
    }
}

/// A run that holds these pairs.
pub(super) fn written<V: IndexValue>(
    disk: &MemoryDisk,
    number: u32,
    has_filter: bool,
    pairs: &BTreeSet<(u64, V)>,
) -> Arc<IndexRun<V>> {
    disk.create_dir(dir()).expect("this disk does not fail");
    let name = FileId { directory: 7, shard: 0, kind: V::KIND, number };
    let filter_for = if has_filter { pairs.len() as u64 } else { 0 };
    let mut writer = RunWriter::create(disk, dir(), name, filter_for).expect("this disk does not fail");
    pairs.iter().for_each(|(key, value)| writer.push(*key, *value).expect("this disk does not fail"));
    Arc::new(writer.finish().expect("this disk does not fail"))
}

/// The answers of a run; `None` where it refuses.
pub(super) fn answers<V: IndexValue>(run: &Arc<IndexRun<V>>, keys: &[u64]) -> Vec<Option<String>> {
    let all = run.iter().collect::<Result<Vec<_>>>().ok();
    let found = keys.iter().map(|key| run.find(*key).ok().map(|found| format!("{found:?}")));
    [Some(run.len().to_string()), all.map(|all| format!("{all:?}"))].into_iter().chain(found).collect()
}

//! What counts for the memory of cold messages, and which blocks of the cache are dropped.

use super::*;

/// The memory for sections and for places that could not be read is counted, each with the overhead of a half empty
/// tree.
#[test]
fn what_is_remembered_of_files_counts_for_memory() {
    let mut beside = Beside::new(8, 64, 16);
    (0..50).for_each(|_| beside.add(&dead_ones(2)));
    peek(&mut beside, |_, _| {});
    let (with, count) = (beside.cold.memory(), beside.cold.deaths.len());
    assert_eq!(count, 50, "the deaths of all sections were read");
    beside.cold.deaths.clear();
    let each = (with - beside.cold.memory()) / count;
    let entry = size_of::<SectionRef>() + 2 * size_of::<Timestamp>();
    assert!((2 * entry..4 * entry).contains(&each), "{each} bytes for {entry}");

    let mut beside = expiring(&[8]);
    let path = beside.cold.files()[&1].file.path().to_owned();
    beside.disk.unreadable_at(&path, 0, beside.cold.files()[&1].file.size());
    let before = beside.cold.files()[&1].memory();
    assert_eq!(expire(&mut beside, 0, usize::MAX), (0, true));
    let aside = beside.cold.files()[&1].memory() - before;
    assert!(aside >= 8 * 2 * (size_of::<u32>() + size_of::<Timestamp>()), "{aside} bytes");
}

#[test]
fn all_runs_count_for_memory_and_the_bad_ones_are_counted() {
    let mut beside = Beside::new(8, 64, 16);
    beside.add(&dead_ones(2));
    let bare = beside.cold.memory();
    let homes: Vec<_> = (1..3_000).map(|number| (number * 5, TableRef { file: 1, ordinal: 0 })).collect();
    let numbers = vec![run(&beside, 1, &homes), run(&beside, 2, &homes)];
    let keys = vec![run(&beside, 3, &[(1, Number::new(1).unwrap())])];
    let of_runs = numbers.iter().map(|run| run.memory()).chain(keys.iter().map(|run| run.memory()));
    let of_runs = of_runs.collect::<Vec<_>>();
    assert!(of_runs.iter().all(|bytes| *bytes > 0));
    beside.cold.set_runs(numbers.clone(), keys.clone());
    assert_eq!(beside.cold.memory(), bare + of_runs.iter().sum::<usize>());
    assert_eq!(beside.cold.damaged_runs(), 0);
    let paths = numbers.iter().map(|run| run.path()).chain(keys.iter().map(|run| run.path()));
    // Behind the header of each.
    paths.for_each(|path| beside.disk.rot_at(path, 32 + 9));
    numbers.iter().for_each(|run| run.iter_readable().for_each(drop));
    assert_eq!(beside.cold.damaged_runs(), 2);
    keys.iter().for_each(|run| run.iter_readable().for_each(drop));
    assert_eq!(beside.cold.damaged_runs(), 3);
}

#[test]
fn of_blocks_the_one_goes_that_was_used_longest_ago() {
    let mut beside = Beside::new(8, 2, 16);
    let put = |due| Drawn { state: 0, priority: 0, due, body_len: 900 };
    beside.add(&(0..300).map(put).collect::<Vec<_>>());
    let file = Arc::clone(&beside.cold.files()[&1].file);
    let second = file.block_end(0);
    let third = file.block_end(second);
    assert!(third < file.len());
    let mut blocks = block_cache::BlockCache::keeping(2, usize::MAX);
    let read = |blocks: &mut block_cache::BlockCache, ordinal| {
        blocks.entry(&beside.cold.files()[&1], ordinal).is_ok()
    };
    for ordinal in [0, second, 1, third] {
        assert!(read(&mut blocks, ordinal));
    }
    beside.disk.unreadable_at(file.path(), 0, file.size());
    assert!(read(&mut blocks, 0) && read(&mut blocks, third), "they are at hand");
    assert!(!read(&mut blocks, second));
}

//! Finding one cold message: by its id, its number or its key, and reads that fail.

use super::*;

/// Messages that were acked in the order of due are found by due; only those that are not there are searched for by
/// number.
#[test]
fn what_is_gone_is_found_where_it_was_due_and_the_rest_is_left_to_be_found_by_number() {
    let mut beside = Beside::new(16, 64, 16);
    let drawn = |state, due| Drawn { state, priority: 1, due, body_len: 1_000 };
    for first in [0, 200, 400] {
        let live = (0..200).map(|due| drawn(0, first + due));
        beside.add(&live.chain((0..20).map(|due| drawn(2, first + due))).collect::<Vec<_>>());
    }
    let name = FileId { directory: DIRECTORY, shard: 0, kind: FileKind::Numbers, number: 1 };
    let mut writer = crate::index_run::RunWriter::create(&beside.disk, Path::new("/d"), name, 0).unwrap();
    // So long that reading it costs more than the blocks in which they were due.
    (1..60_000).for_each(|number| writer.push(number, TableRef { file: 99, ordinal: 0 }).unwrap());
    beside.cold.set_runs(vec![Arc::new(writer.finish().unwrap())], Vec::new());
    let of = |known: &ModelMessage| (known.entry.standing.due, known.entry.number);
    let is_between = |known: &&ModelMessage, from, to| (at(from)..at(to)).contains(&known.entry.standing.due);
    let (dead, live): (Vec<&ModelMessage>, Vec<&ModelMessage>) =
        beside.known.iter().partition(|known| died(&known.entry).is_some());
    let mut gone: Vec<(Timestamp, Number)> =
        live.iter().filter(|known| is_between(known, 190, 230)).map(|known| of(known)).collect();
    let found: Vec<CopyAt> =
        live.iter().filter(|known| is_between(known, 190, 230)).map(|known| known.copy).collect();
    assert_eq!(found.len(), 40);
    // Due at another instant, dead, already gone, or never there.
    let moved = (at(200), live[0].entry.number);
    let already =
        (at(210), live.iter().find(|known| known.entry.standing.due == at(229)).unwrap().entry.number);
    let died_there = dead.iter().find(|known| is_between(known, 200, 230)).map(|known| of(known)).unwrap();
    let never = (at(205), Number::new(50_000).unwrap());
    let mut rest = vec![moved, already, died_there, never];
    rest.sort_unstable();
    gone.extend(&rest);
    let counts = beside.cold.settle_due(&mut gone).unwrap();
    assert_eq!(counts, BTreeMap::from([(queue(), (40, 0))]));
    gone.sort_unstable();
    assert_eq!(gone, rest);
    for known in &beside.known {
        let file = &beside.cold.files()[&known.copy.file.get()];
        assert_eq!(file.out.has(known.copy.ordinal), found.contains(&known.copy), "{known:?}");
    }
    let mut none = Vec::new();
    assert!(beside.cold.settle_due(&mut none).unwrap().is_empty());
}

#[test]
fn a_message_that_stands_as_it_was_put_is_found_without_a_run() {
    let mut beside = Beside::new(8, 64, 16);
    for first in [0, 10, 20] {
        let put = (0..10).map(|due| Drawn { state: 0, priority: 0, due: first + due, body_len: 10 });
        beside.add(&put.collect::<Vec<_>>());
    }
    for known in beside.known.clone() {
        let Entry { id, number, .. } = known.entry;
        let (_, TableRef { file, ordinal }) = home_of(&known);
        let found = beside.cold.find_by_id(&queue(), id, number).unwrap();
        assert_eq!(found, Some(EntryRef { file, ordinal }), "{known:?}");
    }
    let last = &beside.known[29].entry;
    let never = MessageId::new(last.standing.due, 0, 1, 9_999);
    assert_eq!(beside.cold.find_by_id(&queue(), never, last.number).unwrap(), None);
}

#[test]
fn a_message_is_found_by_its_number_and_by_its_own_key() {
    let mut beside = Beside::new(8, 64, 16);
    let put = |due| Drawn { state: 0, priority: 0, due, body_len: 10 };
    beside.add(&[put(1), put(2)]);
    beside.add_file(&[put(3)], false);
    let key: Key = "its".parse().unwrap();
    let hash = crate::index_run::key_hash(DIRECTORY, &queue(), &key, false);
    let mut homes: Vec<_> = beside.known.iter().map(home_of).collect();
    homes.sort_unstable();
    let numbers = vec![run(&beside, 1, &homes)];
    // Another key has the same hash.
    let keys = vec![run(&beside, 2, &[(hash, beside.known[0].entry.number)])];
    beside.cold.set_runs(numbers, keys);
    let spot = |at: usize| EntryRef { file: homes[at].1.file, ordinal: homes[at].1.ordinal };
    let home = |number| beside.cold.home(Number::new(number).unwrap()).unwrap();
    assert_eq!([home(1), home(2), home(3)], [Some(spot(0)), Some(spot(1)), None], "the third is in memory");
    assert_eq!(home(4), None);
    assert_eq!(beside.cold.key_home(&queue(), &key).unwrap(), None);
}

#[test]
fn a_read_that_failed_is_told_until_it_was_asked_for() {
    let mut beside = Beside::new(8, 64, 16);
    beside.add(&[Drawn { state: 0, priority: 0, due: 1, body_len: 10 }]);
    let known = beside.known[0].clone();
    let numbers = vec![run(&beside, 1, &[home_of(&known)])];
    beside.cold.set_runs(numbers, Vec::new());
    assert!(!beside.cold.has_failure());
    let file = Arc::clone(&beside.cold.files()[&1].file);
    beside.disk.unreadable_at(file.path(), 0, file.size());
    assert!(beside.cold.by_number(known.entry.number).is_err());
    assert!(beside.cold.has_failure());
    assert!(beside.cold.take_failure().is_some());
    assert!(!beside.cold.has_failure() && beside.cold.take_failure().is_none());
}

//! Cold dead messages: peeks, windows, retention, and the search for one that had a key.

use super::*;

/// Crash story: a peek reads files for longer than it takes until the next flush. 1. Each new file with a dead message
/// of the queue ended what it had read so far. 2. It began anew forever, and all other peeks waited for it.
#[test]
fn a_peek_comes_to_an_end_though_files_with_dead_messages_come_and_go() {
    let many = dead_ones(10_000);
    let mut alone = Beside::new(8, 64, 16);
    alone.add(&many);
    let (calls, oldest) = peek(&mut alone, |_, _| {});
    assert!(calls > 5, "{calls} calls read it");
    let mut beside = Beside::new(8, 64, 16);
    beside.add(&many);
    let found = peek(&mut beside, |beside, _| {
        beside.add_file(&dead_ones(1), false);
        let newest = beside.ready_until.len() as u32;
        beside.cold.remove(newest - newest % 2);
    });
    assert_eq!(found, (calls, oldest), "of a file whose messages are in memory nothing is read");
    // The messages of a file that is compacted are in another one.
    let mut beside = Beside::new(8, 64, 16);
    beside.add(&many);
    let (found, _) = peek(&mut beside, |beside, calls| {
        if calls % 3 == 0 {
            beside.add(&dead_ones(1));
        }
    });
    assert!(found <= calls + calls / 2 + 2, "{found} calls, and {calls} without these files");
}

/// Crash story: a peek of many dead messages remembers all that are put back. 1. A list of all dead messages was run.
/// 2. Each page was put back, and was remembered: sixty bytes a message, beyond the limit of memory.
#[test]
fn few_of_the_dead_that_are_put_back_are_remembered() {
    let mut beside = Beside::new(8, 64, 4);
    beside.add(&dead_ones(200));
    peek(&mut beside, |_, _| {});
    assert_eq!(beside.cold.walks.len(), 1);
    let file = &beside.cold.files()[&1];
    let out: Vec<bool> = beside.known.iter().map(|known| file.out.has(known.copy.ordinal)).collect();
    for (at, is_out) in out.into_iter().enumerate() {
        let (copy, died) = (beside.known[at].copy, died(&beside.known[at].entry));
        if !is_out {
            beside.cold.take_out(copy);
        }
        beside.cold.put_back(copy, died);
    }
    let remembered = beside.cold.walks[0].remembered();
    assert!(remembered <= 4, "{remembered} of 200");
    while beside.dead(3) {}
    assert!(beside.known.iter().all(|known| !known.is_cold), "and all are found");
}

/// Crash story: 1. Dead messages are put back while a window is filled, which ends before they died. 2. Others are put
/// back that died within it, until one more than may be remembered is. 3. The window was taken to reach as far as the
/// last of those remembered, and dead messages in between were passed over.
#[test]
fn what_is_put_back_moves_the_end_of_a_window_no_further() {
    let mut beside = Beside::new(8, 64, 2);
    let dead = |due| Drawn { state: 2, priority: 0, due, body_len: 0 };
    [0, 0, 35].into_iter().for_each(|due| beside.add(&[dead(due)]));
    beside.add_file(&[dead(1), dead(1), dead(1)], false);
    let put_back = |beside: &mut Beside, at: usize| {
        beside.cold.put_back(beside.known[at].copy, died(&beside.known[at].entry));
        beside.known[at].is_cold = true;
    };
    (0..2).for_each(|_| assert!(beside.dead(1)));
    assert!(beside.swept.is_none() && beside.cold.walks.len() == 1, "it is filled still");
    put_back(&mut beside, 3);
    put_back(&mut beside, 4);
    while beside.swept.is_none() {
        beside.dead(32);
    }
    let is_cold = |beside: &Beside| beside.known.iter().map(|known| known.is_cold).collect::<Vec<_>>();
    assert_eq!(is_cold(&beside), [false, false, true, true, true, false], "the oldest two were handed over");
    put_back(&mut beside, 0);
    // Each call is compared with what it has to hand over.
    while beside.dead(1) {}
    assert_eq!(is_cold(&beside), [true, false, false, false, false, false]);
}

/// Crash story: 1. Each message has a separate section, and many have expired in their file. 2. All that are dead are
/// discarded. 3. For each section all of the file was scanned, in one turn.
#[test]
fn to_forget_the_dead_of_a_section_looks_at_no_more_of_a_file_than_the_lane() {
    let mut beside = Beside::new(16, 64, 16);
    let sections = 20_000;
    beside.add(
        &(0..sections).map(|priority| Drawn { state: 0, priority, due: 50, body_len: 0 }).collect::<Vec<_>>(),
    );
    let file = beside.cold.files.get_mut(&1).unwrap();
    assert!((0..sections).step_by(2).all(|ordinal| file.die(ordinal).is_some()));
    let before = table::pages_changed();
    beside.cold.forget(&queue(), QueuePart::Dead);
    let looked = table::pages_changed() - before;
    assert!(looked <= 2 * u64::from(sections) / 2, "{looked} pages for {} sections", sections / 2);
    let file = &beside.cold.files[&1];
    assert!(file.over.is_empty() && file.sections.iter().all(|section| section.over == 0));
    assert!((0..sections).all(|ordinal| file.is_cold(ordinal) == (ordinal % 2 == 1)));
}

/// Crash story: 1. Of many dead messages a few are past their retention each minute. 2. To find them, all were read.
#[test]
fn what_is_known_to_have_died_later_is_not_read_for_retention() {
    let mut beside = Beside::new(8, 64, 16);
    // `add_file` derives times of death from dues.
    let died_at = |ms: i64| Drawn { state: 2, priority: 0, due: 35 * ms % 61, body_len: 300 };
    beside.add(&[0, 1, 2].map(died_at));
    beside.add(&[50, 51, 52].map(died_at));
    let last = MessageId::new(
        Timestamp::MAX,
        MessageId::MAX_SHARD,
        MessageId::MAX_INCARNATION,
        MessageId::MAX_COUNTER,
    );
    let ask = |beside: &mut Beside, until: i64, most: usize| -> dwell_store::Result<(usize, DeadProgress)> {
        beside.cold.walks.clear();
        beside.cold.retain_until(Some((at(until), last)));
        let mut handed = Vec::new();
        for _ in 0..10 {
            let to = beside.cold.dead(&queue(), DeadReader::Retention, None, false, most, &mut handed)?;
            if to != DeadProgress::To(None) {
                return Ok((handed.len(), to));
            }
        }
        panic!("it comes to no end");
    };
    // Nothing is known yet, and all is read.
    assert_eq!(ask(&mut beside, 2, 3).unwrap().0, 3);
    let file = Arc::clone(&beside.cold.files()[&2].file);
    beside.cold.blocks.forget(2);
    beside.disk.unreadable_at(file.path(), 0, file.size());
    assert_eq!(ask(&mut beside, 49, 3).unwrap(), (0, DeadProgress::To(Some((at(49), last)))));
    assert!(beside.cold.passed_over(&queue()).is_none(), "it was not read");
    assert_eq!(ask(&mut beside, 50, 3).unwrap(), (0, DeadProgress::All));
    assert!(beside.cold.passed_over(&queue()).is_some(), "it was read, and cannot be");
}

/// A search looks at few messages a call, continues from its position, and begins anew if another call has removed the
/// message that it had found.
#[test]
fn the_youngest_of_many_dead_that_had_a_key_is_found_a_few_a_call() {
    let mut beside = Beside::new(8, 64, 16);
    let key: Key = "its".parse().unwrap();
    beside.key = Some(key.clone());
    let count = 5_000;
    // Each file has some of them, and each run of keys some of each file.
    for _ in 0..2 {
        beside.add(
            &(0..count / 2).map(|due| Drawn { state: 2, priority: 0, due, body_len: 10 }).collect::<Vec<_>>(),
        );
    }
    let mut homes: Vec<_> = beside.known.iter().map(home_of).collect();
    homes.sort_unstable();
    let hash = crate::index_run::key_hash(DIRECTORY, &queue(), &key, true);
    let pairs = |odd: u64| {
        let numbers = homes.iter().map(|(number, _)| *number).filter(|number| number % 2 == odd);
        numbers.map(|number| (hash, Number::new(number).unwrap())).collect::<Vec<_>>()
    };
    let keys = vec![run(&beside, 1, &pairs(0)), run(&beside, 2, &pairs(1))];
    let numbers = vec![run(&beside, 3, &homes)];
    beside.cold.set_runs(numbers, keys);
    let mut deaths: Vec<_> =
        beside.known.iter().map(|known| (died(&known.entry).unwrap(), known.copy)).collect();
    deaths.sort_unstable();
    let mut search = DeadSearch::default();
    let mut ask = |beside: &mut Beside, after: Option<Died>| {
        let (before, mut found) = (search.looked_at, Vec::new());
        let is_over = beside.cold.dead_by_key(&queue(), &key, after, 64, &mut search, &mut found).unwrap();
        assert!(search.looked_at - before <= 64, "{search:?}");
        if is_over {
            search = DeadSearch::default();
        }
        assert!(is_over || found.is_empty());
        is_over.then(|| found.pop().map(|found| (found.message.id, found.copy)))
    };
    let mut calls = 0;
    let mut found_after = |beside: &mut Beside, after: Option<Died>, mut between: Option<CopyAt>| {
        for call in 1..1_000 {
            if let Some(found) = ask(beside, after) {
                calls = call;
                return found;
            }
            // Almost at the end.
            if call == 70
                && let Some(copy) = between.take()
            {
                beside.cold.take_out(copy);
            }
        }
        panic!("it comes to no end");
    };
    let last = |back: usize| deaths[deaths.len() - back];
    let youngest = |back: usize| Some((last(back).0.1, last(back).1));
    assert_eq!(found_after(&mut beside, None, None), youngest(1));
    assert_eq!(found_after(&mut beside, Some(last(2).0), None), None, "the youngest is in memory");
    assert_eq!(found_after(&mut beside, None, Some(last(2).1)), youngest(3), "the second has gone meanwhile");
    assert!(calls > 79, "{calls} calls");
    // A damaged place is reported, and the search continues from its position when the place can be read again.
    let file = Arc::clone(&beside.cold.files()[&1].file);
    beside.cold.blocks.forget(1);
    beside.disk.unreadable_at(file.path(), 0, file.size());
    let mut found = Vec::new();
    let read = beside.cold.dead_by_key(&queue(), &key, None, 64, &mut DeadSearch::default(), &mut found);
    assert!(matches!(read, Err(Error::Unavailable { .. })) && found.is_empty());
}

/// All that retention is handed until it comes to the end, and how often a read has failed.
fn retained(beside: &mut Beside) -> (BTreeSet<CopyAt>, usize) {
    let (mut copies, mut after, mut failures) = (BTreeSet::new(), None, 0);
    for _ in 0..200 {
        let mut handed = Vec::new();
        match beside.cold.dead(&queue(), DeadReader::Retention, after, false, 64, &mut handed) {
            Ok(to) => {
                copies.extend(handed.iter().map(|one| one.copy));
                match to {
                    DeadProgress::All => return (copies, failures),
                    DeadProgress::To(to) => after = after.max(to),
                }
            }
            Err(_) => {
                failures += 1;
                assert!(handed.is_empty());
            }
        }
    }
    panic!("it comes to no end");
}

/// Those that can be read, each by itself.
fn readable(beside: &Beside) -> BTreeSet<CopyAt> {
    let is_readable = |known: &&ModelMessage| {
        let (file, at) = (&beside.cold.files()[&known.copy.file.get()].file, known.copy.ordinal);
        let block = file.ordinals_of(file.block_of(at));
        file.read(block, &mut Vec::new()).is_ok()
    };
    beside.known.iter().filter(is_readable).map(|known| known.copy).collect()
}

/// Crash story: 1. Four blocks side by side cannot be read. 2. What lies behind them in the same piece is passed over with them, at each
/// try alike.
#[test]
fn what_lies_behind_many_bad_blocks_of_a_piece_is_read() {
    let mut beside = Beside::new(8, 64, 1_000);
    beside.add(&(0..600).map(|due| Drawn { state: 2, priority: 0, due, body_len: 300 }).collect::<Vec<_>>());
    let file = Arc::clone(&beside.cold.files()[&1].file);
    // Four blocks of 32 KiB or so, of seven.
    beside.disk.unreadable_at(file.path(), 0, 128_000);
    let readable = readable(&beside);
    assert!((50..300).contains(&readable.len()) && file.piece_end(0) == file.len(), "{}", readable.len());
    assert_eq!(retained(&mut beside), (readable, 0));
}

/// Crash story: 1. Of what retention is to be handed a block cannot be read. 2. The others are read one by one, and the process has no
/// descriptor, or is interrupted. 3. They are passed over as if they were damaged.
#[test]
fn what_cannot_be_read_just_now_is_not_passed_over() {
    let mut most = 0;
    for after in 0..40 {
        let mut beside = Beside::new(8, 64, 1_000);
        beside.add(
            &(0..400).map(|due| Drawn { state: 2, priority: 0, due, body_len: 300 }).collect::<Vec<_>>(),
        );
        let file = Arc::clone(&beside.cold.files()[&1].file);
        // The window is there before the block is bad.
        let mut handed = Vec::new();
        while handed.is_empty() {
            beside.cold.dead(&queue(), DeadReader::Retention, None, false, 1, &mut handed).unwrap();
        }
        beside.cold.blocks.forget(1);
        beside.disk.unreadable_at(file.path(), 40_000, 1);
        let mut expected = readable(&beside);
        expected.remove(&handed[0].copy);
        assert!(expected.len() < 399);
        let error = std::io::ErrorKind::WouldBlock;
        beside.disk.fail(Fault { calls: Calls::Reads, after, times: 1, error });
        let (copies, failures) = retained(&mut beside);
        assert_eq!(copies, expected, "a read fails after {after}");
        most = most.max(failures);
    }
    assert_eq!(most, 1);
}

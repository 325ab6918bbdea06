//! Prefetch of ready messages: when it begins, how much it reads at a time, and which files it holds.

use super::*;

#[test]
fn what_follows_is_read_ahead_once_much_is_asked_for() {
    let mut beside = Beside::new(16, 64, 16);
    let drawn = |due| Drawn { state: 0, priority: 1, due, body_len: 100 };
    let every = |from: i64| (0..80).map(|at| drawn(at * 3 + from)).collect::<Vec<_>>();
    (0..3).for_each(|from| beside.add(&every(from)));
    beside.now = at(1_000);
    (0..8).for_each(|_| beside.due());
    assert_eq!(beside.cold.prefetches.len(), 1, "it reads ahead");
    assert!(!beside.cold.blocks.can_spare(1_000), "a few sections at a time");
    let gone = beside.known.iter().position(|known| !known.is_cold).unwrap();
    beside.cold.put_back(beside.known[gone].copy, None);
    beside.known[gone].is_cold = true;
    assert!(beside.cold.prefetches.is_empty(), "what was read may not be what comes next");
    beside.due();
    beside.cold.forget(&queue(), QueuePart::Pending);
    assert!(beside.cold.prefetches.is_empty(), "nor is there any left");
}

#[test]
fn a_file_that_goes_is_held_no_longer_and_what_was_read_ahead_stays() {
    lets_a_file_go(false);
}

#[test]
fn a_file_that_goes_while_a_thread_reads_ahead_is_held_until_it_has() {
    lets_a_file_go(true);
}

/// Removes one of three files of which something was read ahead, optionally while a thread is reading.
fn lets_a_file_go(while_it_is_read: bool) {
    let mut beside = Beside::new(16, 64, 16);
    let drawn = |due| Drawn { state: 0, priority: 1, due, body_len: 100 };
    let every = |from: i64| (0..400).map(|at| drawn(at * 3 + from)).collect::<Vec<_>>();
    (0..3).for_each(|from| beside.add(&every(from)));
    beside.now = at(2_000);
    (0..8).for_each(|_| beside.due());
    assert_eq!(beside.cold.prefetches.len(), 1, "it reads ahead");
    let file = Arc::downgrade(&beside.cold.files()[&2].file);
    let left = beside.known.iter_mut().filter(|known| known.is_cold && known.copy.file.get() == 2);
    for known in left {
        beside.cold.take_out(known.copy);
        known.is_cold = false;
    }
    if while_it_is_read {
        let stream = beside.cold.prefetches[0].lend().expect("not all of it was read");
        beside.cold.remove(2);
        assert_ne!(file.strong_count(), 0, "it is read");
        beside.cold.prefetches[0].give_back(stream);
    } else {
        beside.cold.remove(2);
    }
    assert_eq!((file.strong_count(), beside.cold.prefetches.len()), (0, 1));
    while !beside.ready().is_empty() {
        beside.due();
    }
}

/// Sections of which each begins where the one before ends are read one after the other, whatever their number.
#[test]
fn sections_count_as_far_as_they_are_read_at_a_time() {
    let read_ahead = |apart: i64| {
        let mut beside = Beside::new(16, 12, 16);
        let drawn = |due| Drawn { state: 0, priority: 1, due, body_len: 100 };
        let section = |section: i64| (0..30).map(|at| drawn(section * apart + at)).collect::<Vec<_>>();
        (0..12).for_each(|at| beside.add(&section(at)));
        beside.now = at(1_000);
        (0..8).for_each(|_| beside.due());
        beside.cold.prefetches.len()
    };
    assert_eq!(read_ahead(20), 1, "of twelve sections no more than two at a time");
    assert_eq!(read_ahead(0), 0, "of twelve sections more than blocks can be spared");
}

/// Messages that are due at one instant are ordered by id, so a section may have to be read on where another begins.
#[test]
fn sections_that_meet_at_one_instant_are_read_at_a_time() {
    for (apart, open) in [(29, 2), (30, 1)] {
        let mut beside = Beside::new(16, 64, 16);
        let drawn = |due| Drawn { state: 0, priority: 1, due, body_len: 100 };
        (0..5).for_each(|section| {
            beside.add(&(0..30).map(|at| drawn(section * apart + at)).collect::<Vec<_>>())
        });
        let cursors = beside.cold.cursors(&queue(), at(1_000));
        assert_eq!((cursors.len(), open_at_once(&cursors)), (5, open), "{apart} apart");
    }
}

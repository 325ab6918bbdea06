//! What a forecast reads.

use super::*;

/// A queue of one file whose messages are due at intervals of a millisecond, ten of them by now.
fn by_and_by() -> Beside {
    let mut beside = Beside::new(64, 64, 16);
    let put = |due: i64| Drawn { state: 0, priority: 0, due: 91 + due, body_len: 300 };
    beside.add(&(0..2_000).map(put).collect::<Vec<_>>());
    beside
}

/// From now on nothing of the file can be read.
fn without_reading(beside: &mut Beside) {
    beside.cold.blocks.forget(1);
    let file = Arc::clone(&beside.cold.files()[&1].file);
    beside.disk.unreadable_at(file.path(), 0, file.size());
}

#[test]
fn a_forecast_reads_nothing_while_takes_keep_up() {
    let mut beside = by_and_by();
    while !beside.ready().is_empty() {
        beside.due();
        beside.head();
    }
    without_reading(&mut beside);
    let edges = [at(100), at(101), at(1_000), at(1_001), at(2_090), at(2_091)];
    let forecast = beside.cold.forecast(&queue(), beside.now, &edges).unwrap();
    assert_eq!(forecast.scheduled, 1_990);
    // A body alone takes 300 bytes of a block's 32 KiB.
    assert!((1..110).contains(&forecast.within), "{forecast:?}");
    for (said, due) in forecast.due_by.iter().zip([0, 1, 900, 901, 1_990, 1_990]) {
        assert!(said.abs_diff(due) <= 1, "they are spread evenly: {forecast:?}");
    }
    // At the ends of the section the forecast is exact.
    let ends = beside.cold.forecast(&queue(), beside.now, &[at(100), at(2_090)]).unwrap();
    assert_eq!((ends.due_by, ends.within), (vec![0, 1_990], 0));
}

#[test]
fn of_ready_messages_that_wait_a_forecast_reads_where_they_end_and_that_once() {
    let mut beside = by_and_by();
    let edges = [at(1_000)];
    let first = beside.cold.forecast(&queue(), beside.now, &edges).unwrap();
    assert_eq!(first.scheduled, 1_990);
    without_reading(&mut beside);
    assert_eq!(beside.cold.forecast(&queue(), beside.now, &edges), Ok(first));
    let refused = beside.cold.forecast(&queue(), at(500), &edges);
    assert!(matches!(refused, Err(Error::Unavailable { .. })), "{refused:?}");
    assert!(beside.cold.take_failure().is_some());
    // A file all of which is ready need not be read.
    let late = beside.cold.forecast(&queue(), at(2_090), &edges).unwrap();
    assert_eq!((late.scheduled, late.due_by, late.within), (0, vec![0], 0));
}

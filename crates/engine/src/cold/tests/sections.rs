//! Which sections a take looks at, and how many messages a turn hands over.

use super::*;

#[test]
fn a_take_looks_at_no_section_whose_time_has_not_come() {
    let mut beside = Beside::new(16, 64, 16);
    let drawn = |due| Drawn { state: 0, priority: 1, due, body_len: 100 };
    // Each section begins with a message that is due soon, and ends with one that is due later.
    (0..50).for_each(|section| beside.add(&[drawn(50), drawn(1_000 + section)]));
    beside.now = at(60);
    while !beside.ready().is_empty() {
        beside.due();
        beside.head();
    }
    assert_eq!(beside.cold.sections_by(&queue(), 1, at(999)), []);
    assert_eq!(beside.cold.sections_by(&queue(), 1, at(1_000)).len(), 1);
    let first = beside.known[0].copy;
    beside.cold.put_back(first, None);
    beside.known[0].is_cold = true;
    assert_eq!(beside.cold.sections_by(&queue(), 1, at(60)).len(), 1, "it may be ready again");
    beside.head();
    beside.due();
}

/// A file has messages of many queues. When it is removed, each of them keeps only its other files, and a queue without
/// other files costs nothing.
#[test]
fn a_file_that_goes_is_forgotten_by_all_of_its_queues() {
    let mut beside = Beside::new(16, 64, 16);
    let names = ["a", "b", "c"].map(|name| name.parse::<QueueName>().unwrap());
    let write = |beside: &Beside, number: u32, queues: &[QueueName]| {
        let name = FileId { directory: DIRECTORY, shard: 0, kind: FileKind::Table, number };
        let mut writer = TableWriter::create(&beside.disk, Path::new("/d"), name).unwrap();
        let entries = queues.iter().flat_map(|queue| [(queue, State::Ready), (queue, State::Scheduled)]);
        for ((queue, state), message) in entries.zip(u64::from(number) * 10..) {
            let entry = Entry {
                id: MessageId::new(at(5), 0, 1, message),
                number: Number::new(message).unwrap(),
                queue: queue.clone(),
                created: at(0),
                key: None,
                headers: Headers::default(),
                lease_ms: None,
                max_attempts: None,
                standing: Standing {
                    state,
                    due: at(5),
                    priority: 0,
                    attempts: 0,
                    expires: None,
                    keyless: false,
                    counts: Counts::default(),
                    last_error: None,
                    holder: None,
                },
                ready_since: Timestamp::MIN,
            };
            writer.push(&entry, b"").unwrap();
        }
        let file = Arc::new(writer.finish().unwrap());
        let (segment, none) = (Arc::new(Segment::of_table(&file)), DeletionBitmap::none(file.len()));
        ColdTable::new(file, segment, none, Timestamp::MIN, at(0))
    };
    for (number, queues) in [(1, &names[..]), (2, &names[1..])] {
        let file = write(&beside, number, queues);
        beside.cold.add(file);
    }
    let take_all_out = |beside: &mut Beside, number: u32| {
        let file = NonZeroU32::new(number).unwrap();
        for ordinal in 0..beside.cold.files()[&number].file.len() {
            beside.cold.take_out(CopyAt { file, ordinal });
        }
        assert!(beside.cold.remove(number).is_some());
    };
    take_all_out(&mut beside, 1);
    let left = |beside: &Beside| {
        let totals = beside.cold.totals().into_iter().map(|(queue, (pending, _))| (queue, pending));
        (totals.collect::<Vec<_>>(), beside.cold.by_queue.len())
    };
    assert_eq!(left(&beside), (vec![(names[1].clone(), 2), (names[2].clone(), 2)], 2));
    for (queue, count) in names.iter().zip([0, 2, 2]) {
        let mut copies = Vec::new();
        for _ in 0..3 {
            let mut handed = Vec::new();
            beside.cold.due(queue, at(10), &mut handed).unwrap();
            copies.extend(handed.into_iter().map(|one| one.copy));
        }
        assert_eq!(copies.len(), count, "{queue}");
        copies.into_iter().for_each(|copy| beside.cold.put_back(copy, None));
    }
    take_all_out(&mut beside, 2);
    assert_eq!(left(&beside), (Vec::new(), 0));
}

/// Hands over ready messages once; returns how many.
fn hand_over(beside: &mut Beside) -> usize {
    let mut handed = Vec::new();
    beside.cold.due(&queue(), beside.now, &mut handed).unwrap();
    handed.len()
}

/// Crash story: each message has a different priority, and so a section. 1. Each call for a few looked at all sections,
/// those of lower priorities too. 2. With a million of them the shard stood still for a second a call.
#[test]
fn a_take_looks_at_few_sections_however_many_priorities_there_are() {
    let mut beside = Beside::new(16, 64, 16);
    // Every second one is due later.
    let drawn =
        |priority: u32| Drawn { state: 0, priority, due: 50 + i64::from(priority % 2) * 1_000, body_len: 10 };
    beside.add(&(0..4_000).map(drawn).collect::<Vec<_>>());
    beside.now = at(60);
    let mut handed = 0;
    for _ in 0..50 {
        beside.cold.begin_turn(false);
        handed += hand_over(&mut beside) as u64;
        beside.cold.head(&queue(), beside.now).unwrap();
    }
    assert!(handed > 500, "{handed}");
    let looked = beside.cold.looked;
    assert!(looked < 4 * handed + 50 * 70, "{looked} sections for {handed} messages");
}

/// Crash story: a take names many queues with a backlog each. 1. Of each as many messages were made resident as of one,
/// and so memory had no bound but the number of queues that a take may name.
#[test]
fn a_turn_makes_few_messages_resident_however_many_queues_have_some() {
    let mut beside = Beside::new(64, 64, 16);
    let drawn = |due: i64| Drawn { state: 0, priority: 1, due, body_len: 10 };
    beside.add(&(0..4_000).map(drawn).collect::<Vec<_>>());
    beside.now = at(100_000);
    // Enough calls until many are handed over at a time.
    let handed: usize = (0..40).map(|_| hand_over(&mut beside)).sum();
    assert!(handed < 4 * 64 + 64 + 40 * 4, "{handed} in one turn");
    beside.cold.begin_turn(false);
    assert_eq!(hand_over(&mut beside), 64, "another turn may again");
}

/// Later calls in the same turn get a sixteenth of what is handed over at a time, and at least one.
#[test]
fn of_what_is_due_besides_a_turn_hands_over_few() {
    for window in [8, 24, 100, 512] {
        let mut beside = Beside::new(window, 64, 16);
        let drawn = |due: i64| Drawn { state: 0, priority: 1, due, body_len: 10 };
        beside.add(&(0..8 * window as i64).map(drawn).collect::<Vec<_>>());
        beside.now = at(100_000);
        while !beside.cold.has_handed_enough() {
            assert_ne!(hand_over(&mut beside), 0);
        }
        let handed = hand_over(&mut beside);
        assert!((1..=(window / 16).max(1)).contains(&handed), "{handed} where there are {window} at a time");
    }
}

//! Messages that expire while they are cold, among them some that cannot be read.

use super::*;

/// Crash story: 1. Sixteen places of a file are unreadable. 2. Expiries in other files were set aside untried. 3. Each
/// retry tried these sixteen, and never the others.
#[test]
fn what_can_be_read_expires_though_many_places_before_it_are_rotten() {
    let mut beside = expiring(&[16, 1]);
    let path = beside.cold.files()[&1].file.path().to_owned();
    beside.disk.unreadable_at(&path, 0, beside.cold.files()[&1].file.size());
    assert_eq!(expire(&mut beside, 0, usize::MAX), (0, true));
    let died: u64 = (1..=4).map(|seconds| expire(&mut beside, seconds * 1_000, usize::MAX).0).sum();
    assert_eq!(died, 1_024, "of the other file, within seconds");
    beside.disk.heal_rot(|_| true);
    assert_eq!(expire(&mut beside, 60_000, usize::MAX), (16 * 1_024, true));
}

/// An unreadable chunk concerns a queue as long as some of its messages may have expired there.
#[test]
fn a_queue_that_has_nothing_left_in_a_file_needs_none_of_its_expiries() {
    let mut beside = expiring(&[1]);
    let path = beside.cold.files()[&1].file.path().to_owned();
    beside.disk.unreadable_at(&path, 0, beside.cold.files()[&1].file.size());
    let expire_unread = |beside: &mut Beside, queue: &str, wall: i64| {
        let now = Now { wall: at(wall), mono_ms: 0 };
        beside.cold.expire_unread(&queue.parse().unwrap(), now, &|_| Expiring::Die, &mut Expired::default())
    };
    assert_eq!(expire_unread(&mut beside, "q", 999), Ok(()), "its time has not come");
    assert_eq!(expire(&mut beside, 0, usize::MAX), (0, true));
    assert!(matches!(expire_unread(&mut beside, "q", 1_000), Err(Error::Unavailable { .. })));
    assert_eq!(expire_unread(&mut beside, "other", 1_000), Ok(()), "nothing there is of that queue");
    for known in &beside.known {
        beside.cold.take_out(known.copy);
    }
    assert_eq!(expire_unread(&mut beside, "q", 1_000), Ok(()));
}

#[test]
fn what_can_be_read_again_is_looked_at_a_few_at_a_time() {
    let mut beside = expiring(&[20, 20]);
    let fault = Fault { calls: Calls::Reads, after: 0, times: 16, error: std::io::ErrorKind::Other };
    beside.disk.fail(fault);
    assert_eq!(expire(&mut beside, 0, usize::MAX), (0, true));
    let (mut died, mut calls) = (0, 0);
    loop {
        let (some, is_done) = expire(&mut beside, 1_000, 2 * 1_024);
        (died, calls) = (died + some, calls + 1);
        if is_done {
            break;
        }
        assert!(some <= 2 * 1_024 && calls < 100, "{some} in call {calls}");
        // Chunks that were not tried yet are retried at once.
        let again = beside.cold.again_ms;
        assert!(if calls == 1 { again == Some(1_000) } else { again.is_none_or(|again| again <= 1_000) });
    }
    assert_eq!(died, 40 * 1_024);
    assert!(calls >= 20, "{calls} calls");
}

/// Crash story: 1. One block cannot be read. 2. Two hundred messages expire together in a queue that drops expired
/// messages, one of them there. 3. All of them died, since they were to be read together.
#[test]
fn what_can_be_read_is_gone_though_others_that_expire_with_it_cannot() {
    let mut beside = Beside::new(8, 64, 16);
    beside.expires = Some(at(150));
    let put = |due: i64| Drawn { state: 0, priority: 0, due: due % 40, body_len: 300 };
    beside.add(&(0..400).map(put).collect::<Vec<_>>());
    let file = Arc::clone(&beside.cold.files()[&1].file);
    // A place in the second 32 KiB or so, of four times as many.
    beside.disk.unreadable_at(file.path(), 40_000, 1);
    let (now, mut expired) = (Now { wall: at(150), mono_ms: 0 }, Expired::default());
    while !beside.cold.expire(now, 10_000, &|_| Expiring::Go, &mut expired) {}
    let (gone, died) = (expired.gone.len() as u64, expired.died.iter().map(|(_, count)| count).sum::<u64>());
    assert_eq!(gone + died, 400);
    assert!(gone > 200 && died > 0, "{gone} are gone, {died} have died");
}

/// Crash story: 1. A block among the oldest dead of a queue cannot be read. 2. Retention of the queue stopped there
/// until it could be read.
#[test]
fn what_cannot_be_read_keeps_none_of_the_others_from_their_end() {
    let mut beside = Beside::new(8, 64, 1_000);
    beside.add(&(0..400).map(|due| Drawn { state: 2, priority: 0, due, body_len: 300 }).collect::<Vec<_>>());
    let file = Arc::clone(&beside.cold.files()[&1].file);
    beside.disk.unreadable_at(file.path(), 40_000, 1);
    let ask = |beside: &mut Beside, reader: DeadReader| -> dwell_store::Result<usize> {
        let mut handed = Vec::new();
        for _ in 0..100 {
            let after =
                handed.iter().filter_map(|one: &ColdMessage<BodyRef>| match one.message.standing.state {
                    State::Dead(death) => Some((death.at, one.message.id)),
                    _ => None,
                });
            let (after, anew) = (after.max(), handed.is_empty());
            if beside.cold.dead(&queue(), reader, after, anew, 64, &mut handed)? == DeadProgress::All {
                return Ok(handed.len());
            }
        }
        panic!("it comes to no end");
    };
    assert!(
        matches!(ask(&mut beside, DeadReader::Sweep), Err(Error::Unavailable { .. })),
        "a sweep gets the error"
    );
    assert!(beside.cold.take_failure().is_some());
    let some = ask(&mut beside, DeadReader::Retention).unwrap();
    assert!((200..400).contains(&some), "{some} of 400");
    assert!(beside.cold.passed_over(&queue()).is_some() && beside.cold.take_failure().is_some());
    assert!(beside.cold.deaths.is_empty(), "when all of them died is not known");
    // That nothing else is left is found once.
    assert_eq!(ask(&mut beside, DeadReader::Retention).unwrap(), 0);
    beside.cold.take_failure();
    assert_eq!(ask(&mut beside, DeadReader::Retention).unwrap(), 0);
    assert!(beside.cold.take_failure().is_none() && beside.cold.passed_over(&queue()).is_some());
    beside.disk.heal_rot(|_| true);
    assert_eq!(ask(&mut beside, DeadReader::Retention).unwrap(), 0, "it is not tried yet");
    beside.cold.try_passed_over(&queue());
    assert_eq!(
        ask(&mut beside, DeadReader::Retention).unwrap(),
        400 - some,
        "and the rest when it can be read again"
    );
    assert!(beside.cold.passed_over(&queue()).is_none());
}

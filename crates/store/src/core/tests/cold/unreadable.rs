//! Cold messages that cannot be read: what they hold up, and what they do not.

use super::*;

#[test]
fn an_id_of_another_queue_lets_nothing_expire_there() {
    let mut rig = Rig::new();
    let id = rig.put(put_to("b").after_ms(10), now(0)).unwrap().id;
    rig.put(put_to("a").after_ms(10), now(0)).unwrap();
    snapshot(&mut rig);
    evict(&mut rig, 0);
    assert_eq!(rig.core.cold_len(), 2);
    for _ in 0..100 {
        rig.put(Put { expires: Some(at(50)), ..put_to("b") }, now(0)).unwrap();
    }
    let before = rig.log.0.len();
    let got = rig.call(|core, log| core.get(&queue("a"), vec![crate::Target::Id(id)], false, now(60), log));
    assert_eq!(got, [Err(Error::MessageNotFound { queue: queue("a") })]);
    let stands = |told: &&LoggedFact| matches!(told, LoggedFact::Record(Record::Stands { .. }, _));
    assert_eq!(rig.log.0[before..].iter().filter(stands).count(), 0);
    assert!(rig.core.has_lapsed(&queue("b"), now(60)), "they expire in slices when somebody asks for them");
}

#[test]
fn what_cannot_be_read_when_it_expires_keeps_nothing_else_from_expiring() {
    let (mut rig, first) = with_one_unreadable();
    assert_eq!((count(&mut rig, "q", 60), count(&mut rig, "other", 60)), ((2, 1), (0, 1)));
    rig.log.1.as_mut().unwrap().unreadable.remove(&first);
    assert_eq!(count(&mut rig, "q", 61), (1, 2));
}

#[test]
fn a_queue_is_not_swept_while_nobody_can_say_what_of_it_is_dead() {
    let (mut rig, first) = with_one_unreadable();
    let q = queue("q");
    let refusals = |rig: &mut Rig, at: u64| {
        let purged = rig.call(|core, log| core.purge(&q, now(at), log)).map(drop);
        let mut said = vec![purged];
        for which in [Selection::All, Selection::Oldest(1)] {
            let one = which.clone();
            said.push(rig.revive(&q, one, When::AfterMs(9), now(at)).map(drop));
            said.push(rig.discard(&q, which, now(at)).map(drop));
        }
        said
    };
    for said in refusals(&mut rig, 60) {
        assert_eq!(said.unwrap_err().code(), "unavailable");
    }
    assert_eq!(count(&mut rig, "q", 60), (2, 1), "nothing was swept");
    // Messages that had expired are also dead by a clock that was stepped back, whether they could be read
    // then or not.
    let before = Now { wall: at(49), mono_ms: 60 };
    assert_eq!(rig.discard(&q, Selection::All, before).unwrap_err().code(), "unavailable");
    assert_eq!(rig.call(|core, log| core.purge(&queue("other"), now(61), log)), Ok(0));
    rig.log.1.as_mut().unwrap().unreadable.remove(&first);
    let swept = rig.discard(&q, Selection::All, now(62)).unwrap();
    assert_eq!((swept.done, count(&mut rig, "q", 62)), (2, (1, 0)));
    assert_eq!(rig.call(|core, log| core.purge(&q, now(63), log)), Ok(1));
}

#[test]
fn what_could_not_be_read_when_it_expired_stays_dead_though_the_clock_steps_back() {
    let (mut rig, first) = with_one_unreadable();
    assert_eq!(count(&mut rig, "q", 60), (2, 1));
    rig.log.1.as_mut().unwrap().unreadable.remove(&first);
    let before = Now { wall: at(20), mono_ms: 61 };
    let counts = rig.call(|core, log| core.stats(&queue("q"), before, log)).unwrap().counts;
    assert_eq!((counts.ready, counts.dead), (1, 2));
    let taken = rig.take(Take::from(queue("q")).max(9), before).unwrap();
    assert_eq!(taken.len(), 1, "the one that does not expire");
}

#[test]
fn a_queue_is_deleted_with_what_cannot_be_read() {
    let (mut rig, _) = with_one_unreadable();
    assert_eq!(rig.call(|core, log| core.delete_queue(&queue("q"), now(60), log)), 3);
    assert_eq!(rig.call(|core, log| core.purge(&queue("q"), now(61), log)), Ok(0));
}

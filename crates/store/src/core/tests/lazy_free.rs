//! Messages removed with all of their queue are gone at once, and freed later.

use dwell_model::{Key, StateKind};

use super::*;
use crate::{Cancelled, LeaseTerms, OnConflict, Selection, Target, When};

/// The number of messages freed by each call.
const A_CALL: usize = 100;

fn rig() -> Rig {
    Rig::configured(CoreConfig { freed_per_call: A_CALL, ..CoreConfig::new(Limits::default(), 7) })
}

fn key(number: usize) -> Key {
    format!("key {number}").parse().unwrap()
}

/// Scheduled messages, ready ones of two priorities, some with keys, some that expire.
fn fill(rig: &mut Rig, count: usize) {
    let puts = (0..count).map(|i| {
        let mut put = put_to("q").after_ms(if i % 3 == 0 { 0 } else { 1_000_000 + i as u64 % 7 });
        put.priority = if i % 5 == 0 { 7 } else { 1_024 };
        put.key = (i % 4 == 0).then(|| key(i));
        put.expires = (i % 6 == 0).then(|| at(9_000_000));
        put
    });
    let puts = puts.collect();
    assert!(rig.call(|core, log| core.put(puts, now(0), log)).iter().all(Result::is_ok));
}

/// Makes empty calls until nothing is left to be freed; returns how many each of them freed.
fn bury(rig: &mut Rig) -> Vec<usize> {
    let mut buried = Vec::new();
    while rig.core.has_unfreed() {
        let before = rig.core.len();
        let _ = rig.call(|core, log| core.stats(&queue("none"), now(2), log));
        buried.push(before - rig.core.len());
    }
    buried
}

#[test]
fn a_purge_forgets_no_more_than_any_call_does_whatever_it_removes() {
    let mut rig = rig();
    fill(&mut rig, 5_000);
    let taken = rig.take(Take::from(queue("q")).max(10), now(1)).unwrap();
    assert_eq!(rig.call(|core, log| core.purge(&queue("q"), now(1), log)), Ok(4_990));
    assert_eq!(rig.core.len(), 5_000, "nothing was forgotten yet");
    let counts = rig.call(|core, log| core.stats(&queue("q"), now(1), log)).unwrap().counts;
    assert_eq!((counts.scheduled, counts.ready, counts.ready_urgent, counts.leased), (0, 0, 0, 10));
    let buried = bury(&mut rig);
    assert!(buried.iter().all(|count| *count <= A_CALL), "{buried:?}");
    assert!(buried.len() <= 4_990 / A_CALL + 2);
    assert_eq!(rig.core.len(), 10);
    for taken in taken {
        rig.settle(&taken.receipt, Action::Ack, now(3)).unwrap();
    }
    assert!(rig.core.is_empty());
}

#[test]
fn dead_messages_and_a_whole_queue_go_alike() {
    let mut rig = rig();
    fill(&mut rig, 900);
    for taken in rig.take(Take::from(queue("q")).max(300), now(1)).unwrap() {
        rig.settle(&taken.receipt, Action::Bury { reason: None, priority: None }, now(1)).unwrap();
    }
    let discarded = rig.discard(&queue("q"), Selection::All, now(1)).unwrap();
    assert_eq!((discarded.done, rig.core.len()), (300, 900));
    assert_eq!(rig.call(|core, log| core.delete_queue(&queue("q"), now(1), log)), 600);
    assert!(rig.core.is_empty() && rig.core.len() > 700, "gone, and not forgotten");
    let unknown = rig.call(|core, log| core.stats(&queue("q"), now(1), log));
    assert_eq!(unknown.unwrap_err().code(), "unknown_queue");
    // The same name again, while the messages of the old queue still exist.
    fill(&mut rig, 7);
    assert!(rig.core.has_unfreed());
    assert_eq!(rig.call(|core, log| core.queues(None, 10, now(1), log)).len(), 1);
    bury(&mut rig);
    assert_eq!(rig.core.len(), 7);
    assert_eq!(rig.core.queues.with_gone().count(), 1, "the number of the old queue is free");
}

#[test]
fn nobody_finds_what_was_purged_by_id_number_or_key_and_the_key_is_free() {
    let mut rig = rig();
    fill(&mut rig, 2_000);
    let old =
        rig.call(|core, log| core.get(&queue("q"), vec![Target::Key(key(4))], false, now(1), log)).remove(0);
    let old = old.unwrap();
    rig.call(|core, log| core.purge(&queue("q"), now(1), log)).unwrap();
    let by_key = Target::Key(key(4));
    for target in [Target::Id(old.id), by_key.clone()] {
        let get =
            rig.call(|core, log| core.get(&queue("q"), vec![target.clone()], false, now(1), log)).remove(0);
        assert!(matches!(get.unwrap_err().code(), "message_not_found" | "unknown_queue"));
        let cancel = rig.call(|core, log| core.cancel(&queue("q"), vec![target], now(1), log)).remove(0);
        assert_eq!(cancel.unwrap(), Cancelled::NotFound);
    }
    assert_eq!(rig.call(|core, log| core.locate(vec![old.number], now(1), log)), [Ok(None)]);
    let take_id = rig.call(|core, log| core.take_id(&queue("q"), old.id, LeaseTerms::default(), now(1), log));
    assert_eq!(take_id.unwrap_err().code(), "message_not_found");
    let moved = rig
        .call(|core, log| core.reschedule(&queue("q"), vec![(Target::Id(old.id), When::Now)], now(1), log));
    assert_eq!(moved[0], Ok(crate::Rescheduled::NotFound));
    let mut put = put_to("q");
    (put.key, put.on_conflict) = (Some(key(4)), OnConflict::Reject);
    let new = rig.put(put, now(2)).unwrap();
    assert!(rig.core.has_unfreed(), "the one that had the key before is not forgotten");
    bury(&mut rig);
    let found = rig.call(|core, log| core.get(&queue("q"), vec![by_key], false, now(2), log)).remove(0);
    assert_eq!(found.unwrap().id, new.id);
    let page = rig.call(|core, log| core.list(&queue("q"), StateKind::Ready, None, 10, now(2), log)).unwrap();
    assert_eq!(page.messages.len(), 1);
}

#[test]
fn an_epoch_comes_again_only_when_nothing_is_left_of_it() {
    let mut rig = rig();
    fill(&mut rig, 1_000);
    let q = rig.core.queues.find(&queue("q")).unwrap();
    // A message that stays, so that the queue does: it is handed out first.
    let mut first = put_to("q");
    first.priority = 0;
    rig.put(first, now(0)).unwrap();
    rig.take(Take::from(queue("q")).max(1), now(1)).unwrap();
    rig.call(|core, log| core.purge(&queue("q"), now(1), log)).unwrap();
    assert_eq!(rig.core.queues.get(q).epoch, 1);
    rig.core.queues.get_mut(q).epoch = u16::MAX;
    fill(&mut rig, 1_000);
    let before = rig.core.len();
    rig.call(|core, log| core.purge(&queue("q"), now(1), log)).unwrap();
    assert_eq!(rig.core.queues.get(q).epoch, 0);
    assert!(before - rig.core.len() >= 900, "those of epoch 0 are forgotten");
    bury(&mut rig);
    assert_eq!(rig.core.len(), 1);
}

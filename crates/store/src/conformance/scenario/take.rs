//! Take: which messages it hands out, and to which caller. Leases and waits have files of their own.

use dwell_model::{Pause, Setting, StateKind};

use super::super::stage::*;
use super::super::waiting::PendingTake;
use crate::{Action, Put, Take};

pub fn a_take_over_several_queues_goes_by_priority_due_and_id_across_them(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let names = ["a", "b", "c"].map(queue);
    for (name, body, priority, after_ms) in [
        (0, "4", 5, 30),
        (1, "2", 5, 10),
        (2, "3", 5, 20),
        (0, "5", 5, 30),
        (1, "6", 5, 30),
        (2, "1", 1, 40),
        (0, "7", 9, 0),
    ] {
        stage.put(Put::new(names[name].clone(), body).priority(priority).after_ms(after_ms));
    }
    stage.put(message("not asked for").priority(0));
    stage.advance(40);
    let mut bodies = Vec::new();
    for max in [2, 5] {
        let taken = stage.take(Take::from_all(names.clone()).max(max));
        assert_eq!(taken.len(), max);
        bodies.extend(taken.iter().map(|taken| text(&taken.message.body)));
    }
    assert_eq!(bodies, ["1", "2", "3", "4", "5", "6", "7"]);
}

pub fn a_queue_named_twice_counts_once(factory: &Factory) {
    let stage = Stage::open(factory);
    stage.put(message("a"));
    stage.put(message("b"));
    let taken = stage.take(Take::from_all([q(), queue("empty"), q()]).max(9));
    assert_eq!(taken.len(), 2);
    let waiting = PendingTake::begin(&stage, Take::from_all([q(), q()]).max(9).wait_ms(1_000));
    stage.put(message("c"));
    assert_eq!(waiting.answer().unwrap().len(), 1);
}

pub fn max_bytes_bounds_a_take_but_always_grants_one_message(factory: &Factory) {
    let stage = Stage::open(factory);
    for len in [10, 20, 30, 1] {
        stage.put(message(&"x".repeat(len)));
    }
    let take = |max_bytes| {
        let taken = stage.take(Take::from(q()).max(9).max_bytes(max_bytes));
        taken.iter().map(|taken| taken.message.body.len()).collect::<Vec<_>>()
    };
    assert_eq!(take(5), [10], "one is granted whatever its length");
    assert_eq!(take(49), [20], "the next does not fit, and none is taken out of turn");
    assert_eq!(take(31), [30, 1]);
}

pub fn a_take_of_none_takes_none(factory: &Factory) {
    let stage = Stage::open(factory);
    stage.put(message("m"));
    assert!(stage.take(Take::from(q()).max(0)).is_empty());
    assert!(stage.take(Take::from_all([]).max(5)).is_empty());
    assert_eq!(stage.stats().counts.ready, 1);
}

pub fn a_paused_queue_hands_nothing_out(factory: &Factory) {
    let mut stage = Stage::open(factory);
    stage.put(message("before"));
    stage.set(Setting::Pause(Pause::Indefinite));
    stage.put(message("meanwhile"));
    stage.put(Put::new(queue("other"), "other"));
    stage.advance(86_400_000);
    assert!(stage.take_one().is_none());
    let taken = stage.take(Take::from_all([q(), queue("other")]).max(9));
    assert_eq!(taken.len(), 1, "another queue is not concerned");
    assert_eq!(stage.stats().counts.ready, 2);
    let waiting = PendingTake::begin(&stage, Take::from(q()).max(9).wait_ms(1_000));
    stage.set(Setting::Pause(Pause::Running));
    assert_eq!(waiting.answer().unwrap().len(), 2, "the end of the pause wakes a waiting take");
}

pub fn a_timed_pause_ends_by_itself_and_wakes_a_waiting_take(factory: &Factory) {
    let mut stage = Stage::open(factory);
    stage.put(message("m"));
    let end = stage.at(1_000);
    stage.set(Setting::Pause(Pause::Until(end)));
    let waiting = PendingTake::begin(&stage, Take::from(q()).wait_ms(5_000));
    stage.advance(999);
    assert!(stage.take_one().is_none());
    stage.advance(1);
    let taken = waiting.answer().unwrap().pop().expect("the pause is over");
    assert_eq!(taken.taken_at, end);
}

pub fn an_expired_message_is_not_handed_out(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let expires = Some(stage.at(1_000));
    let ids = [0, 500].map(|ms| stage.put(Put { expires, ..message("m").after_ms(ms) }).id);
    stage.put(message("other").priority(u32::MAX));
    stage.advance(1_000);
    assert_eq!(stage.drain(), ["other"]);
    assert_eq!(ids.map(|id| stage.death(id)), ["expired"; 2]);
}

pub fn taking_from_a_queue_never_used_before_is_no_error(factory: &Factory) {
    let stage = Stage::open(factory);
    assert!(stage.take_one().is_none());
    assert_eq!(code(stage.store().stats(q())), "unknown_queue", "and makes no queue");
}

pub fn a_delivery_states_when_it_was_taken_and_how_late_it_is(factory: &Factory) {
    let mut stage = Stage::open(factory);
    stage.put(message("m").after_ms(1_000));
    stage.advance(1_250);
    let taken = stage.taken_for(60_000);
    assert_eq!((taken.taken_at, taken.lateness_ms, taken.lease_until), (stage.now(), 250, stage.at(60_000)));
    let message_now = &taken.message;
    assert_eq!(message_now.standing.state.kind(), StateKind::Leased);
    assert_eq!((message_now.standing.attempt(), message_now.standing.counts.takes), (1, 1));
    assert_eq!((&taken.receipt.queue, taken.receipt.id), (&q(), message_now.id));
    assert_eq!(taken.receipt.to_string().parse(), Ok(taken.receipt.clone()));
    stage.advance(500);
    stage.settle(&taken.receipt, RELEASE).unwrap();
    stage.advance(20);
    let again = stage.taken();
    assert_eq!(again.lateness_ms, 20, "lateness counts from when it was last made ready");
    stage.settle(&again.receipt, retry(300)).unwrap();
    stage.advance(307);
    let third = stage.taken();
    assert_eq!((third.lateness_ms, third.message.standing.attempt()), (7, 2));
    stage.settle(&third.receipt, Action::Ack).unwrap();
    stage.put(message("long due").at(stage.at(-9_000)));
    stage.advance(3);
    assert_eq!(stage.taken().lateness_ms, 3, "or from the put");
}

//! Waiting takes, and takes whose callers have gone away.

use dwell_model::{Limits, StateKind};

use super::super::stage::*;
use super::super::waiting::{PendingTake, await_true};
use crate::{Action, Error, Put, Take, Target, When};

pub fn a_take_waits_without_polling_and_wakes_on_the_instant(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let due = stage.put(message("m").after_ms(1_000)).due;
    let waiting = PendingTake::begin(&stage, Take::from(q()).wait_ms(5_000));
    for _ in 0..9 {
        stage.advance(111);
        assert_eq!(stage.stats().counts.scheduled, 1);
    }
    assert_eq!(waiting.wakes(), 0, "it is left alone until its moment");
    stage.advance(1);
    let taken = waiting.answer().unwrap().pop().expect("its moment has come");
    assert_eq!((taken.taken_at, taken.lateness_ms), (due, 0));
}

pub fn a_take_that_waits_in_vain_answers_with_nothing(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let id = stage.put(message("too late").after_ms(1_001)).id;
    let waiting = PendingTake::begin(&stage, Take::from(q()).wait_ms(1_000));
    stage.advance(999);
    assert_eq!(stage.stats().waiting, 1);
    stage.advance(1);
    assert!(waiting.answer().unwrap().is_empty());
    assert_eq!(stage.state(id), StateKind::Scheduled);
    assert_eq!(stage.stats().waiting, 0);
}

pub fn a_put_of_a_due_message_wakes_a_waiting_take(factory: &Factory) {
    let stage = Stage::open(factory);
    let waiting = PendingTake::begin(&stage, Take::from_all([queue("other"), q()]).wait_ms(60_000));
    let id = stage.put(message("m")).id;
    let taken = waiting.answer().unwrap().pop().expect("it is there");
    assert_eq!((taken.message.id, taken.taken_at), (id, stage.now()));
    assert_eq!(stage.stats().waiting, 0);
}

pub fn waiting_takes_are_served_in_the_order_of_their_coming(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let [first, second, third] =
        [0; 3].map(|_| PendingTake::begin(&stage, Take::from(q()).lease_ms(60_000).wait_ms(60_000)));
    assert_eq!(stage.stats().waiting, 3);
    stage.put(message("a"));
    stage.put(message("b").after_ms(10));
    let body = |waiting: PendingTake| text(&waiting.answer().unwrap()[0].message.body);
    assert_eq!(body(first), "a");
    stage.advance(10);
    assert_eq!(body(second), "b");
    stage.put(message("c"));
    assert_eq!(body(third), "c");
}

pub fn a_take_whose_future_is_dropped_gives_its_messages_back_at_once_without_spending_an_attempt(
    factory: &Factory,
) {
    let mut stage = Stage::open(factory);
    // It waits, and has nothing yet.
    drop(PendingTake::begin(&stage, Take::from(q()).wait_ms(60_000)));
    stage.quiesce();
    let id = stage.put(message("m")).id;
    assert_eq!(stage.stats().waiting, 0);
    let first = stage.taken();
    assert_eq!(first.message.standing.attempt(), 1);
    stage.settle(&first.receipt, Action::Ack).unwrap();
    // It was given messages that it never saw.
    for after_ms in [0, 100] {
        let waiting = PendingTake::begin(&stage, Take::from(q()).max(5).wait_ms(60_000).lease_ms(60_000));
        let id = stage.put(message("m").after_ms(after_ms)).id;
        stage.advance(after_ms);
        waiting.await_wake();
        drop(waiting);
        stage.quiesce();
        assert_eq!(stage.state(id), StateKind::Ready);
        let taken = stage.taken();
        let standing = &taken.message.standing;
        let releases = u32::from(stage.gives_back_by_release());
        assert_eq!((taken.message.id, standing.attempt(), standing.counts.takes), (id, 1, 2));
        assert_eq!((standing.counts.lapses, standing.counts.releases), (0, releases));
        stage.settle(&taken.receipt, Action::Ack).unwrap();
    }
    // Another take waits for the messages that are given back.
    let [gone, next] = [0; 2].map(|_| PendingTake::begin(&stage, Take::from(q()).wait_ms(60_000)));
    let given = stage.put(message("m")).id;
    gone.await_wake();
    drop(gone);
    let taken = next.answer().unwrap().pop().expect("it is handed on");
    assert_eq!((taken.message.id, taken.message.standing.attempts), (given, 0));
    assert_eq!(code(stage.try_get(Target::Id(id))), "message_not_found");
}

pub fn a_reschedule_to_an_earlier_instant_wakes_a_waiting_take(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let [soon, sooner] = [50_000, 60_000].map(|ms| stage.put(message("m").after_ms(ms)).id);
    let waiting = PendingTake::begin(&stage, Take::from(q()).wait_ms(30_000));
    stage.reschedule(Target::Id(sooner), When::AfterMs(100));
    stage.advance(100);
    let taken = waiting.answer().unwrap().pop().expect("its new instant has come");
    assert_eq!((taken.message.id, taken.lateness_ms), (sooner, 0));
    let waiting = PendingTake::begin(&stage, Take::from(q()).wait_ms(30_000));
    stage.reschedule(Target::Id(soon), When::Now);
    assert_eq!(waiting.answer().unwrap()[0].message.id, soon);
}

pub fn past_the_cap_of_takes_that_wait_on_a_queue_others_wait_elsewhere(factory: &Factory) {
    let stage = Stage::open_with(factory, Limits { waiting_per_queue: 2, ..Limits::default() });
    let wait = |name: &str| PendingTake::begin(&stage, Take::from(queue(name)).wait_ms(60_000));
    let [first, second] = [wait("q"), wait("q")];
    for names in [vec![q()], vec![queue("other"), q()]] {
        let refused = stage.store().take(Take::from_all(names).wait_ms(60_000)).expect_err("two wait there");
        assert_eq!(refused, Error::TooManyWaiting { limit: 2 });
        assert!(refused.is_retryable());
    }
    assert_eq!(stage.take(Take::from(q())), [], "who does not wait is not concerned");
    let other = wait("other");
    stage.put(Put::new(queue("other"), "m"));
    assert_eq!(other.answer().unwrap().len(), 1);
    drop(first);
    stage.quiesce();
    let third = wait("q");
    for waiting in [second, third] {
        stage.put(message("m"));
        assert_eq!(waiting.answer().unwrap().len(), 1);
    }
}

pub fn a_take_that_would_wait_on_one_queue_too_many_is_refused(factory: &Factory) {
    let stage = Stage::open_with(factory, Limits { queues: 2, ..Limits::default() });
    stage.put(message("m").after_ms(60_000));
    let other = PendingTake::begin(&stage, Take::from_all([q(), queue("other")]).wait_ms(60_000));
    let take = || Take::from_all([queue("other"), queue("third")]);
    let refused = stage.store().take(take().wait_ms(60_000)).expect_err("two queues are there");
    assert_eq!(refused, Error::TooManyQueues { limit: 2 });
    assert_eq!(stage.take(take()), [], "a take that does not wait makes no queue");
    assert_eq!(stage.store().queues(None, 9).unwrap().len(), 2);
    stage.put(Put::new(queue("other"), "m"));
    assert_eq!(other.answer().unwrap().len(), 1);
    let taken = stage.take(Take::from(queue("other")));
    assert_eq!(taken, [], "its one message is held");
    assert_eq!(stage.store().delete_queue(q()), Ok(1));
    let start =
        |name| PendingTake::start(stage.raw(), Take::from_all([queue(name), queue("other")]).wait_ms(60_000));
    // There is room for one of them now. It is not known which of two connections is read first.
    let mut both = ["third", "fourth"].map(|name| (name, start(name)));
    let mut refused = None;
    // The second is refused while the store may not yet have checked whether the first may wait.
    await_true("one of them is refused", || {
        refused = both.iter_mut().enumerate().find_map(|(at, (_, waiting))| Some((at, waiting.poll()?)));
        refused.is_some()
    });
    let (at, answer) = refused.expect("it was just there");
    assert_eq!(answer, Err(Error::TooManyQueues { limit: 2 }));
    let [third, fourth] = both;
    let (name, waits) = if at == 0 { fourth } else { third };
    stage.put(Put::new(queue(name), "m"));
    assert_eq!(waits.answer().unwrap().len(), 1, "the other is not in its way");
}

pub fn stats_count_the_takes_that_wait(factory: &Factory) {
    let stage = Stage::open(factory);
    let first = PendingTake::begin(&stage, Take::from(q()).wait_ms(60_000));
    let both = PendingTake::begin(&stage, Take::from_all([q(), queue("other")]).wait_ms(60_000));
    let waiting = |name: &str| stage.store().stats(queue(name)).map_or(0, |stats| stats.waiting);
    assert_eq!((waiting("q"), waiting("other")), (2, 1));
    let listed = stage.store().queues(None, 10).unwrap();
    assert_eq!(listed.len(), 2, "a queue that somebody waits on is listed");
    stage.put(Put::new(queue("other"), "m"));
    assert_eq!(both.answer().unwrap().len(), 1);
    assert_eq!(waiting("q"), 1);
    drop(first);
    stage.quiesce();
    assert_eq!(waiting("q"), 0);
}

//! Leases: their length, their end, their cap.

use dwell_model::{AttemptLimit, Limits, Setting, StateKind};

use super::super::stage::*;
use super::super::waiting::PendingTake;
use crate::{Action, Error, LeaseTerms, Put, Settled, Take};

pub fn the_lease_is_the_takes_else_the_messages_else_the_queues(factory: &Factory) {
    let stage = Stage::open(factory);
    let length_ms = |take: Take| {
        let taken = stage.take(take).pop().expect("a message is ready");
        let length_ms = taken.lease_until.ms_since(taken.taken_at);
        stage.settle(&taken.receipt, Action::Ack).unwrap();
        length_ms
    };
    let own = Put { lease_ms: Some(2_000), ..message("own") };
    stage.put(message("m"));
    assert_eq!(length_ms(Take::from(q())), 30_000, "the default");
    stage.set(Setting::LeaseMs(7_000));
    stage.put(message("m"));
    assert_eq!(length_ms(Take::from(q())), 7_000, "the queue's");
    stage.put(own.clone());
    assert_eq!(length_ms(Take::from(q())), 2_000, "the message's");
    stage.put(own);
    assert_eq!(length_ms(Take::from(q()).lease_ms(1_000)), 1_000, "the take's");
    let id = stage.put(message("m")).id;
    let taken = stage.store().take_id(q(), id, LeaseTerms::of_ms(500)).unwrap();
    assert_eq!(taken.lease_until, stage.at(500));
}

pub fn a_take_with_a_lease_out_of_bounds_is_refused(factory: &Factory) {
    let stage = Stage::open(factory);
    let id = stage.put(message("m")).id;
    for lease_ms in [0, Setting::MAX_LEASE_MS + 1, u64::MAX] {
        assert_eq!(code(stage.store().take(Take::from(q()).lease_ms(lease_ms))), "invalid_setting");
        assert_eq!(code(stage.store().take_id(q(), id, LeaseTerms::of_ms(lease_ms))), "invalid_setting");
    }
    assert_eq!(stage.state(id), StateKind::Ready);
}

pub fn a_lapsed_lease_makes_the_message_ready_and_spends_an_attempt(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let id = stage.put(keyed("k", "m")).id;
    let taken = stage.taken_for(1_000);
    stage.advance(999);
    assert!(stage.take_one().is_none());
    assert_eq!(stage.state(id), StateKind::Leased);
    stage.advance(1);
    let standing = stage.get(id).standing;
    assert_eq!(standing.state.kind(), StateKind::Ready, "though nobody took meanwhile");
    assert_eq!((standing.attempts, standing.counts.lapses, standing.counts.takes), (1, 1, 1));
    assert_eq!(code(stage.settle(&taken.receipt, Action::Ack)), "lease_lost");
    let again = stage.taken();
    assert_eq!((again.message.id, again.message.standing.attempt()), (id, 2));
    assert_eq!(stage.settle(&again.receipt, Action::Ack), Ok(Settled::Gone));
}

pub fn a_message_is_dead_when_its_attempts_are_spent(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let id = stage.put(Put { max_attempts: Some(attempts(3)), ..keyed("k", "m") }).id;
    for attempt in 1..=3 {
        let taken = stage.taken_for(1_000);
        assert_eq!(taken.message.standing.attempt(), attempt);
        match attempt {
            1 => drop(stage.settle(&taken.receipt, retry(0)).unwrap()),
            _ => stage.advance(1_000),
        }
    }
    assert_eq!(stage.death(id), "attempts_spent");
    assert!(stage.take_one().is_none());
    assert_eq!(stage.stats().counts.dead, 1);
    let last = stage.put(Put { max_attempts: Some(attempts(1)), ..message("n") }).id;
    let error = Action::Retry { after_ms: Some(5), error: Some("no route".into()), priority: None };
    let receipt = stage.taken().receipt;
    let settled = stage.settle(&receipt, error).unwrap();
    assert_eq!(settled, Settled::Dead(dwell_model::DeathReason::AttemptsSpent));
    assert_eq!(stage.get(last).standing.last_error.as_deref(), Some("no route"), "the last error is kept");
}

pub fn the_limit_of_attempts_is_the_messages_else_the_queues(factory: &Factory) {
    let stage = Stage::open(factory);
    let tries = |put: Put| {
        let id = stage.put(put).id;
        let mut tries = 0;
        while let Some(taken) = stage.take_one() {
            tries += 1;
            stage.settle(&taken.receipt, retry(0)).unwrap();
            if tries == 40 {
                let taken = stage.taken();
                stage.settle(&taken.receipt, Action::Ack).unwrap();
                return None;
            }
        }
        assert_eq!(stage.death(id), "attempts_spent");
        Some(tries)
    };
    assert_eq!(tries(message("m")), Some(16), "the default is finite");
    stage.set(Setting::MaxAttempts(attempts(2)));
    assert_eq!(tries(message("m")), Some(2));
    assert_eq!(tries(Put { max_attempts: Some(attempts(5)), ..message("m") }), Some(5));
    assert_eq!(tries(Put { max_attempts: Some(AttemptLimit::Unlimited), ..message("m") }), None);
    stage.set(Setting::MaxAttempts(AttemptLimit::Unlimited));
    assert_eq!(tries(message("m")), None);
}

pub fn past_the_cap_of_leased_messages_a_take_is_refused(factory: &Factory) {
    let mut stage = Stage::open_with(factory, Limits { leased: 2, ..Limits::default() });
    for body in ["a", "b", "c"] {
        stage.put(message(body));
    }
    let held = stage.take(Take::from(q()).max(2).lease_ms(1_000));
    let refused = stage.store().take(Take::from(q())).expect_err("two are leased");
    assert_eq!(refused, Error::TooManyLeased { limit: 2 });
    assert!(refused.is_retryable());
    let ready = stage.store().list(q(), StateKind::Ready, None, 9).unwrap().messages.pop().unwrap().id;
    assert_eq!(code(stage.store().take_id(q(), ready, LeaseTerms::default())), "too_many_leased");
    assert!(stage.take(Take::from(queue("empty"))).is_empty(), "nothing is due there");
    stage.settle(&held[0].receipt, Action::Ack).unwrap();
    assert_eq!(stage.drain(), ["c"]);
    assert_eq!(stage.stats().counts.leased, 2);
    stage.advance(1_000);
    stage.put(Put::new(queue("other"), "d"));
    let taken = stage.take(Take::from(queue("other")));
    assert_eq!(taken.len(), 1, "a lapsed lease counts no more, also for those who take elsewhere");
    stage.settle(&taken[0].receipt, Action::Ack).unwrap();
    assert_eq!(stage.drain(), ["b"]);
}

pub fn below_the_cap_of_leased_messages_a_take_grants_what_is_left(factory: &Factory) {
    let stage = Stage::open_with(factory, Limits { leased: 3, ..Limits::default() });
    for body in ["a", "b", "c", "d", "e"] {
        stage.put(Put::new(queue(body), body));
    }
    let names = ["a", "b", "c", "d", "e"].map(queue);
    assert_eq!(stage.take(Take::from_all(names.clone()).max(2)).len(), 2);
    assert_eq!(stage.take(Take::from_all(names.clone()).max(9)).len(), 1);
    assert_eq!(code(stage.store().take(Take::from_all(names))), "too_many_leased");
}

pub fn past_the_cap_of_a_queues_leases_its_takes_are_refused_and_no_others(factory: &Factory) {
    let mut stage = Stage::open_with(factory, Limits { leased_per_queue: 2, ..Limits::default() });
    for body in ["a", "b", "c"] {
        stage.put(message(body));
        stage.put(Put::new(queue("other"), body));
    }
    let held = stage.take(Take::from(q()).max(5).lease_ms(1_000));
    assert_eq!(held.len(), 2, "what is left of its leases is granted");
    let refused = stage.store().take(Take::from(q())).expect_err("two are leased");
    assert_eq!(refused, Error::TooManyLeased { limit: 2 });
    let ready = stage.store().list(q(), StateKind::Ready, None, 9).unwrap().messages.pop().unwrap().id;
    assert_eq!(code(stage.store().take_id(q(), ready, LeaseTerms::default())), "too_many_leased");
    assert_eq!(stage.take(Take::from(queue("other")).lease_ms(60_000)).len(), 1, "others have their own");
    stage.settle(&held[0].receipt, Action::Ack).unwrap();
    assert_eq!(stage.take(Take::from(q()).max(5).lease_ms(60_000)).len(), 1);
    stage.advance(1_000);
    assert_eq!(stage.drain(), ["b"], "a lapsed lease counts no more");
    assert_eq!(code(stage.store().take(Take::from(queue("other")).max(5).lease_ms(0))), "invalid_setting");
    assert_eq!(stage.take(Take::from(queue("other")).max(5)).len(), 1);
}

pub fn a_take_over_several_queues_gets_from_those_below_their_caps(factory: &Factory) {
    let stage = Stage::open_with(factory, Limits { leased_per_queue: 2, ..Limits::default() });
    let put = |name: &str, body: &'static str| stage.put(Put::new(queue(name), body));
    let names = ["a", "b", "c"].map(queue);
    let all = || Take::from_all(names.clone()).lease_ms(60_000);
    let bodies =
        |taken: Vec<crate::Delivery>| taken.iter().map(|one| text(&one.message.body)).collect::<Vec<_>>();
    for body in ["a1", "a2", "a3", "a4"] {
        put("a", body);
    }
    for body in ["b1", "b2", "b3"] {
        put("b", body);
    }
    assert_eq!(bodies(stage.take(all().max(1))), ["a1"]);
    assert_eq!(bodies(stage.take(all().max(9))), ["a2", "b1", "b2"], "each queue up to its own cap");
    assert_eq!(code(stage.store().take(all())), "too_many_leased");
    let waiting = PendingTake::begin(&stage, all().wait_ms(60_000));
    put("a", "a5");
    put("c", "c1");
    assert_eq!(bodies(waiting.answer().unwrap()), ["c1"]);
    assert_eq!(stage.take(Take::from(queue("c"))), [], "nothing is due there");
}

pub fn a_take_that_waits_at_the_cap_of_leases_waits_on_until_there_is_room(factory: &Factory) {
    let of_all = Limits { leased: 1, ..Limits::default() };
    let of_one = Limits { leased_per_queue: 1, ..Limits::default() };
    for limits in [of_all, of_one] {
        let mut stage = Stage::open_with(factory, limits);
        for body in ["a", "b"] {
            stage.put(message(body));
        }
        let held = stage.taken_for(60_000);
        let wait = |lease_ms| PendingTake::begin(&stage, Take::from(q()).lease_ms(lease_ms).wait_ms(30_000));
        let [first, second, third] = [wait(1_000), wait(60_000), wait(1_000)];
        stage.put(message("c"));
        assert_eq!(stage.stats().waiting, 3, "one more that is due answers nobody");
        stage.settle(&held.receipt, Action::Ack).unwrap();
        let body = |waiting: PendingTake| {
            let taken = waiting.answer().unwrap().pop().expect("there is room for one");
            (text(&taken.message.body), taken.message.standing.attempt())
        };
        assert_eq!(body(first), ("b".to_owned(), 1));
        assert_eq!(stage.stats().waiting, 2);
        stage.advance(1_000);
        assert_eq!(body(second), ("b".to_owned(), 2), "a lease that ran out makes room");
        stage.advance(28_999);
        assert_eq!(stage.stats().waiting, 1);
        assert_eq!(third.wakes(), 0, "nobody has to come again");
        stage.advance(1);
        assert_eq!(third.answer(), Ok(vec![]));
        assert_eq!(
            code(stage.store().take(Take::from(q()))),
            "too_many_leased",
            "a take that does not wait is refused"
        );
    }
}

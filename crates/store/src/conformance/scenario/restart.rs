//! Restarts: everything that was answered is there again.

use dwell_model::{AttemptLimit, Headers, Limits, StateKind};

use super::super::stage::*;
use crate::{Action, LeaseTerms, Put, Settled, Take, Target, When};

pub fn a_put_that_was_answered_survives_a_restart(factory: &Factory) {
    let Some(mut stage) = Stage::durable(factory) else { return };
    let put = Put {
        headers: Headers::new([("content-type", "application/octet-stream")]).unwrap(),
        priority: 3,
        lease_ms: Some(777),
        max_attempts: Some(AttemptLimit::Unlimited),
        expires: Some(stage.at(9_000)),
        ..keyed("k", "body\0").after_ms(1_000)
    };
    let scheduled = stage.put(put).id;
    let ready = stage.put(message("ready")).id;
    let before = [stage.get(scheduled), stage.get(ready)];
    stage.restart();
    assert_eq!([stage.get(scheduled), stage.get(ready)], before);
    assert_eq!(stage.taken().message.id, ready);
    assert!(stage.take_one().is_none());
    stage.advance(1_000);
    assert_eq!(stage.taken().message.id, scheduled);
}

pub fn a_settlement_that_was_answered_survives_a_restart(factory: &Factory) {
    let Some(mut stage) = Stage::durable(factory) else { return };
    for body in ["ack", "retry", "release", "bury", "extend"] {
        stage.put(message(body));
    }
    let taken = stage.take(Take::from(q()).max(10).lease_ms(5_000));
    let actions = [
        Action::Ack,
        Action::Retry { after_ms: Some(700), error: Some("no route".into()), priority: Some(1) },
        Action::Release { after_ms: None, priority: Some(2) },
        bury("poison"),
        extend(60_000),
    ];
    assert_eq!(taken.len(), actions.len());
    for (taken, action) in taken.iter().zip(actions) {
        stage.settle(&taken.receipt, action).unwrap();
    }
    let before = stage.snapshot();
    stage.restart();
    assert_eq!(stage.snapshot(), before);
    let ids: Vec<_> = taken.iter().map(|taken| taken.message.id).collect();
    assert_eq!(code(stage.try_get(Target::Id(ids[0]))), "message_not_found");
    assert_eq!(stage.get(ids[1]).standing.last_error.as_deref(), Some("no route"));
    assert_eq!(stage.death(ids[3]), "buried");
    for stale in &taken[..4] {
        assert_eq!(code(stage.settle(&stale.receipt, Action::Ack)), "lease_lost");
    }
    stage.advance(50_000);
    assert_eq!(stage.settle(&taken[4].receipt, Action::Ack), Ok(Settled::Gone), "the extended lease");
}

pub fn states_order_and_numbers_are_the_same_after_a_restart(factory: &Factory) {
    let Some(mut stage) = Stage::durable(factory) else { return };
    for round in 0..30 {
        let put = keyed(&format!("k{round}"), &format!("m{round}")).priority(round % 3);
        stage.put(put.after_ms(u64::from(round * 7 % 5) * 100));
    }
    stage.advance(200);
    let held = stage.take(Take::from(q()).max(4).lease_ms(60_000));
    stage.settle(&held[0].receipt, bury("no")).unwrap();
    stage.settle(&held[1].receipt, RELEASE).unwrap();
    stage.reschedule(by_key("k29"), When::AfterMs(900));
    let before = stage.snapshot();
    let highest = before.1.iter().map(|message| message.number).max();
    stage.restart();
    assert_eq!(stage.snapshot(), before);
    let late = stage.put(keyed("late", "late").after_ms(5_000));
    assert!(Some(late.number) > highest, "numbers go on rising");
    stage.advance(1_000);
    let pending = |kind| matches!(kind, StateKind::Scheduled | StateKind::Ready);
    let place =
        |message: &dwell_model::Message| (message.standing.priority, message.standing.due, message.id);
    let mut expected: Vec<_> =
        before.1.iter().filter(|message| pending(message.standing.state.kind())).map(place).collect();
    expected.sort();
    let taken = stage.take(Take::from(q()).max(100));
    assert_eq!(taken.iter().map(|taken| place(&taken.message)).collect::<Vec<_>>(), expected);
}

pub fn a_lease_survives_a_restart_with_its_token_and_deadline(factory: &Factory) {
    let Some(mut stage) = Stage::durable(factory) else { return };
    let [acked, lapsing] = ["acked", "lapsing"].map(|body| stage.put(message(body)).id);
    let taken = stage.take(Take::from(q()).max(2).lease_ms(10_000));
    stage.advance(4_000);
    stage.restart();
    assert!(stage.take_one().is_none(), "remote holders go on");
    stage.advance(5_999);
    assert_eq!(stage.settle(&taken[0].receipt, Action::Ack), Ok(Settled::Gone));
    assert_eq!(code(stage.try_get(Target::Id(acked))), "message_not_found");
    assert_eq!(stage.state(lapsing), StateKind::Leased);
    stage.advance(1);
    assert_eq!(stage.state(lapsing), StateKind::Ready);
    assert_eq!(code(stage.settle(&taken[1].receipt, Action::Ack)), "lease_lost");
    let again = stage.taken();
    assert_eq!(again.message.standing.attempt(), 2);
    assert_ne!(again.receipt.token, taken[1].receipt.token);
    stage.restart();
    stage.advance(60_000);
    let third = stage.taken().receipt.token;
    assert!(taken.iter().chain([&again]).all(|old| old.receipt.token != third), "no token is issued twice");
}

pub fn a_session_lease_is_freed_at_a_restart_and_spends_an_attempt(factory: &Factory) {
    let Some(mut stage) = Stage::durable(factory).filter(Stage::has_sessions) else { return };
    let put = Put { max_attempts: Some(AttemptLimit::At(2.try_into().unwrap())), ..message("m") };
    let id = stage.put(put).id;
    let receipt = stage.take(Take::from(q()).lease_ms(60_000).session()).pop().unwrap().receipt;
    stage.restart();
    assert_eq!(code(stage.settle(&receipt, Action::Ack)), "lease_lost");
    let standing = stage.get(id).standing;
    assert_eq!((standing.state.kind(), standing.attempts, standing.counts.lapses), (StateKind::Ready, 1, 1));
    stage.store().take_id(q(), id, LeaseTerms { session: true, ..LeaseTerms::default() }).unwrap();
    stage.restart();
    assert_eq!(stage.death(id), "attempts_spent", "it killed its process twice");
}

pub fn a_pause_survives_a_restart(factory: &Factory) {
    let Some(mut stage) = Stage::durable(factory) else { return };
    stage.put(message("m"));
    stage.set(dwell_model::Setting::Pause(dwell_model::Pause::Until(stage.at(1_000))));
    stage.restart();
    assert!(stage.take_one().is_none());
    stage.advance(1_000);
    assert_eq!(stage.drain(), ["m"]);
    stage.put(message("n"));
    stage.set(dwell_model::Setting::Pause(dwell_model::Pause::Indefinite));
    stage.restart();
    stage.advance(86_400_000);
    assert!(stage.take_one().is_none());
}

pub fn a_cancel_that_was_answered_survives_a_restart(factory: &Factory) {
    let Some(mut stage) = Stage::durable(factory) else { return };
    let [scheduled, ready] = [50, 0].map(|ms| stage.put(message("m").after_ms(ms)).id);
    stage.cancel(Target::Id(scheduled));
    stage.cancel(Target::Id(ready));
    stage.restart();
    stage.advance(50);
    assert!(stage.take_one().is_none());
    for id in [scheduled, ready] {
        assert_eq!(stage.cancel(Target::Id(id)), crate::Cancelled::NotFound);
    }
}

pub fn a_reschedule_that_was_answered_survives_a_restart(factory: &Factory) {
    let Some(mut stage) = Stage::durable(factory) else { return };
    let [earlier, later] = [5_000, 0].map(|ms| stage.put(message("m").after_ms(ms)).id);
    stage.reschedule(Target::Id(earlier), When::AfterMs(100));
    stage.reschedule(Target::Id(later), When::AfterMs(200));
    stage.restart();
    assert_eq!([earlier, later].map(|id| stage.get(id).standing.due), [stage.at(100), stage.at(200)]);
    stage.advance(100);
    assert_eq!(stage.taken().message.id, earlier);
    assert!(stage.take_one().is_none());
}

pub fn a_revive_that_was_answered_survives_a_restart(factory: &Factory) {
    let Some(mut stage) = Stage::durable(factory) else { return };
    let ids = ["a", "b", "c"].map(|body| {
        stage.put(message(body));
        stage.bury_head()
    });
    stage.store().revive(q(), crate::Selection::Ids(vec![ids[1]]), When::Now).unwrap();
    stage.restart();
    assert_eq!(ids.map(|id| stage.state(id)), [StateKind::Dead, StateKind::Ready, StateKind::Dead]);
    stage.store().revive(q(), crate::Selection::All, When::AfterMs(10)).unwrap();
    stage.restart();
    assert_eq!(stage.stats().counts.scheduled, 2);
    stage.advance(10);
    assert_eq!(stage.drain().len(), 3);
}

pub fn a_purge_that_was_answered_survives_a_restart(factory: &Factory) {
    let Some(mut stage) = Stage::durable(factory) else { return };
    stage.put(message("dead"));
    stage.bury_head();
    stage.put(keyed("k", "held"));
    let held = stage.taken_for(60_000);
    for ms in [0, 10, 60_000] {
        stage.put(message("purged").after_ms(ms));
    }
    assert_eq!(stage.store().purge(q()), Ok(3));
    stage.put(message("later").after_ms(10));
    stage.restart();
    stage.advance(20);
    assert_eq!(stage.drain(), ["later"]);
    assert_eq!(stage.stats().counts.dead, 1);
    assert_eq!(stage.store().discard(q(), crate::Selection::All).unwrap().done, 1);
    stage.restart();
    assert_eq!(stage.stats().counts.dead, 0);
    assert_eq!(stage.settle(&held.receipt, Action::Ack), Ok(Settled::Gone));
}

pub fn the_caps_of_a_queue_hold_after_a_restart(factory: &Factory) {
    let limits = Limits { leased_per_queue: 2, idempotency_keys_per_queue: 3, ..Limits::default() };
    let Some(mut stage) = Stage::durable_with(factory, limits) else { return };
    let put = |name: &str| Put::new(queue(name), "m");
    let first = stage.put(put("q").idempotency_key(idempotency_key("t0")));
    stage.put(put("q").idempotency_key(idempotency_key("t1")));
    stage.put(put("q").idempotency_key(idempotency_key("t2")));
    let held = stage.take(Take::from(q()).max(5).lease_ms(600_000));
    assert_eq!(held.len(), 2);
    stage.restart();
    assert_eq!(code(stage.store().take(Take::from(q()))), "too_many_leased");
    assert_eq!(code(stage.try_put(put("q").idempotency_key(idempotency_key("t3")))), "overloaded");
    assert_eq!(stage.put(put("q").idempotency_key(idempotency_key("t0"))), first);
    stage.put(put("other").idempotency_key(idempotency_key("t3")));
    assert_eq!(stage.take(Take::from_all([q(), queue("other")]).max(5)).len(), 1);
    stage.settle(&held[0].receipt, Action::Ack).unwrap();
    assert_eq!(stage.take(Take::from(q()).max(5)).len(), 1);
}

pub fn a_clean_close_releases_session_leases_and_spends_no_attempt(factory: &Factory) {
    let Some(mut stage) = Stage::durable(factory).filter(Stage::has_sessions) else { return };
    let id = stage.put(Put { max_attempts: Some(attempts(1)), ..message("bound") }).id;
    let other = stage.put(message("other").priority(2_000)).id;
    let session = stage.take(Take::from(q()).lease_ms(3_600_000).session()).pop().unwrap();
    let held = stage.taken_for(3_600_000);
    assert_eq!((session.message.id, held.message.id), (id, other));
    for round in 1..=3 {
        stage.close();
        let standing = stage.get(id).standing;
        assert_eq!(
            (standing.state.kind(), standing.attempts),
            (StateKind::Ready, 0),
            "a deploy kills nothing"
        );
        assert_eq!((standing.counts.takes, standing.counts.releases), (round, round), "it was held");
        let again = stage.take(Take::from(q()).lease_ms(3_600_000).session()).pop().unwrap();
        assert_eq!((again.message.id, again.message.standing.attempt()), (id, 1));
    }
    assert_eq!(code(stage.settle(&session.receipt, Action::Ack)), "lease_lost");
    assert_eq!(stage.settle(&held.receipt, Action::Ack), Ok(Settled::Gone), "others hold on");
}

//! Leases that an operator ends, and who holds them.

use dwell_model::{Backoff, Holder, LapseBackoff, OnExpiry, Setting, State, StateKind};

use super::super::stage::*;
use super::super::waiting::PendingTake;
use crate::{Action, Delivery, Error, LeaseRef, LeaseTerms, Put, Result, Settled, Take, Target};

fn holder(name: &str) -> Holder {
    Holder::new(name).unwrap()
}

fn lease_ref(taken: &Delivery) -> LeaseRef {
    LeaseRef { id: taken.message.id, takes: taken.message.standing.counts.takes }
}

fn expire(stage: &Stage, lease: LeaseRef) -> Result<Settled> {
    stage.store().expire_lease(q(), vec![lease]).pop().expect("one answer an item")
}

pub fn an_ended_lease_is_as_one_that_ran_out(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let id = stage.put(Put { max_attempts: Some(attempts(2)), ..keyed("k", "m") }).id;
    let taken = stage.taken_for(3_600_000);
    stage.advance(1_000);
    assert_eq!(expire(&stage, lease_ref(&taken)), Ok(Settled::Ready));
    let standing = stage.get(id).standing;
    assert_eq!((standing.state, standing.attempts, standing.counts.lapses), (State::Ready, 1, 1));
    assert_eq!(standing.due, taken.message.standing.due, "it comes with the instant it had");
    for action in [Action::Ack, RELEASE, extend(1_000)] {
        assert_eq!(code(stage.settle(&taken.receipt, action)), "lease_lost");
    }
    let again = stage.taken();
    assert_eq!((again.message.id, again.message.standing.attempt()), (id, 2));
    assert_ne!(again.receipt, taken.receipt);
    let settled = expire(&stage, lease_ref(&again));
    assert_eq!(settled, Ok(Settled::Dead(dwell_model::DeathReason::AttemptsSpent)), "that was the last one");
    assert_eq!(stage.death(id), "attempts_spent");
    assert_eq!(code(stage.try_get(by_key("k"))), "message_not_found");
    // Also a session lease, and one whose message has expired meanwhile.
    let id = stage.put(Put { expires: Some(stage.at(500)), ..message("m") }).id;
    let held = stage.take(Take::from(q()).lease_ms(3_600_000).session()).pop().unwrap();
    stage.advance(500);
    assert_eq!(expire(&stage, lease_ref(&held)), Ok(Settled::Dead(dwell_model::DeathReason::Expired)));
    assert_eq!(stage.death(id), "expired");
}

pub fn an_ended_lease_waits_for_the_backoff_after_a_lapse(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let backoff = Backoff { base_ms: 10_000, factor_percent: 200, cap_ms: 60_000, jitter_percent: 50 };
    stage.set(Setting::Backoff(backoff));
    stage.set(Setting::LapseBackoff(LapseBackoff::First));
    let id = stage.put(Put { max_attempts: Some(attempts(2)), ..message("m") }).id;
    let taken = stage.taken_for(3_600_000);
    stage.advance(1_000);
    // Its deadline is now, so the backoff counts from now.
    let due = stage.at(backoff.lapse_delay_ms(id, 1) as i64);
    assert_eq!(expire(&stage, lease_ref(&taken)), Ok(Settled::Scheduled(due)));
    let standing = stage.get(id).standing;
    assert_eq!((standing.state, standing.due, standing.attempts), (State::Scheduled, due, 1));
    assert_eq!(code(stage.settle(&taken.receipt, Action::Ack)), "lease_lost");
    stage.advance(due.ms_since(stage.now()));
    let again = stage.taken_for(3_600_000);
    let settled = expire(&stage, lease_ref(&again));
    assert_eq!(
        settled,
        Ok(Settled::Dead(dwell_model::DeathReason::AttemptsSpent)),
        "the last one waits for none"
    );
}

pub fn an_expired_message_whose_lease_is_ended_is_gone_where_its_queue_drops_what_expires(factory: &Factory) {
    let mut stage = Stage::open(factory);
    stage.set(Setting::OnExpiry(OnExpiry::Drop));
    // Whatever else would happen to it.
    stage.set(Setting::LapseBackoff(LapseBackoff::First));
    let held_past_its_expiry = |stage: &mut Stage, max_attempts| {
        let id = stage.put(Put { expires: Some(stage.at(500)), max_attempts, ..keyed("k", "m") }).id;
        let taken = stage.taken_for(3_600_000);
        stage.advance(499);
        assert_eq!(stage.state(id), StateKind::Leased);
        stage.advance(1);
        (id, taken)
    };
    let (id, taken) = held_past_its_expiry(&mut stage, None);
    assert_eq!(expire(&stage, lease_ref(&taken)), Ok(Settled::Gone));
    assert_eq!(code(stage.try_get(Target::Id(id))), "message_not_found");
    assert_eq!(code(stage.try_get_dead("k")), "message_not_found");
    assert_eq!(code(stage.settle(&taken.receipt, Action::Ack)), "lease_lost");
    assert_eq!(expire(&stage, lease_ref(&taken)), Err(Error::MessageNotFound { queue: q() }));
    assert_eq!(stage.stats().counts.dead, 0);

    // One whose attempts are spent is dead by them.
    let (_, taken) = held_past_its_expiry(&mut stage, Some(attempts(1)));
    let dead = Settled::Dead(dwell_model::DeathReason::AttemptsSpent);
    assert_eq!(expire(&stage, lease_ref(&taken)), Ok(dead));
}

pub fn an_ended_lease_wakes_a_waiting_take(factory: &Factory) {
    let stage = Stage::open(factory);
    stage.put(message("m"));
    let taken = stage.taken_for(3_600_000);
    let waiting = PendingTake::begin(&stage, Take::from(q()).wait_ms(60_000));
    assert_eq!(stage.stats().waiting, 1);
    assert_eq!(expire(&stage, lease_ref(&taken)), Ok(Settled::Ready));
    assert_eq!(waiting.answer().unwrap()[0].message.id, taken.message.id);
}

pub fn a_lease_by_another_take_than_was_listed_is_not_ended(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let id = stage.put(message("m")).id;
    let listed = lease_ref(&stage.taken_for(1_000));
    stage.advance(1_000);
    let later = stage.taken_for(60_000);
    assert_eq!(expire(&stage, listed), Err(Error::LeaseChanged { id, takes: 2 }));
    assert_eq!(expire(&stage, LeaseRef { id, takes: 3 }), Err(Error::LeaseChanged { id, takes: 2 }));
    assert_eq!(stage.settle(&later.receipt, extend(90_000)), Ok(Settled::Leased(stage.at(90_000))));
    assert_eq!(stage.get(id).standing.attempts, 1, "nothing has changed");
    // An extension is the same take.
    assert_eq!(expire(&stage, lease_ref(&later)), Ok(Settled::Ready));
    assert_eq!(expire(&stage, lease_ref(&later)), Err(Error::NotLeased { id }), "and it is ended once");
}

pub fn a_lease_that_nobody_holds_cannot_be_ended(factory: &Factory) {
    let stage = Stage::open(factory);
    stage.put(message("dead"));
    let dead = stage.bury_head();
    let ready = stage.put(message("ready")).id;
    let scheduled = stage.put(message("scheduled").after_ms(50)).id;
    let gone = stage.put(message("gone").after_ms(50)).id;
    stage.cancel(Target::Id(gone));
    let before = stage.snapshot();
    let leases = [dead, ready, scheduled, gone].map(|id| LeaseRef { id, takes: 1 });
    let answers = stage.store().expire_lease(q(), leases.to_vec());
    let not_found = |name| -> Result<Settled> { Err(Error::MessageNotFound { queue: queue(name) }) };
    let not_leased = |id| -> Result<Settled> { Err(Error::NotLeased { id }) };
    assert_eq!(answers, [not_leased(dead), not_leased(ready), not_leased(scheduled), not_found("q")]);
    assert_eq!(stage.store().expire_lease(queue("other"), vec![leases[1]]), [not_found("other")]);
    assert_eq!(stage.snapshot(), before);
    assert!(answers.iter().flat_map(|answer| answer.as_ref().err()).all(|refused| !refused.is_retryable()));
}

pub fn an_ended_lease_survives_a_restart(factory: &Factory) {
    let Some(mut stage) = Stage::durable(factory) else { return };
    let id = stage.put(message("m")).id;
    let taken = stage.taken_for(3_600_000);
    assert_eq!(expire(&stage, lease_ref(&taken)), Ok(Settled::Ready));
    stage.restart();
    let standing = stage.get(id).standing;
    assert_eq!((standing.state.kind(), standing.attempts, standing.counts.lapses), (StateKind::Ready, 1, 1));
    assert_eq!(code(stage.settle(&taken.receipt, Action::Ack)), "lease_lost");
}

pub fn a_list_of_leased_messages_shows_deadline_grant_and_holder(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let named = stage.put(message("a")).id;
    stage.take(Take::from(q()).lease_ms(60_000).holder(holder("worker 7")));
    let nameless = stage.put(message("b")).id;
    stage.advance(1_000);
    let taken = stage.taken_for(30_000);
    let by_id = stage.put(message("c").after_ms(50)).id;
    let terms = LeaseTerms { holder: Some(holder("ops")), ..LeaseTerms::of_ms(10_000) };
    stage.store().take_id(q(), by_id, terms).unwrap();
    stage.advance(1_000);
    stage.settle(&taken.receipt, extend(40_000)).unwrap();
    let page = stage.store().list(q(), StateKind::Leased, None, 9).unwrap();
    let mut shown: Vec<_> = page
        .messages
        .iter()
        .map(|message| {
            let State::Leased(lease) = message.standing.state else { panic!("it is leased") };
            let holder = message.standing.holder.as_ref().map(|holder| holder.to_string());
            (message.id, lease.granted_at(), lease.deadline, holder)
        })
        .collect();
    shown.sort();
    let mut expected = vec![
        (named, stage.at(-2_000), stage.at(58_000), Some("worker 7".to_owned())),
        (nameless, stage.now(), stage.at(40_000), None),
        (by_id, stage.at(-1_000), stage.at(9_000), Some("ops".to_owned())),
    ];
    expected.sort();
    assert_eq!(shown, expected, "an extension grants anew");
    assert_eq!(stage.get(named).standing.holder, Some(holder("worker 7")), "a get shows the same");
}

pub fn a_holder_is_shown_while_it_holds_and_no_longer(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let id = stage.put(message("m")).id;
    let take = |stage: &Stage| {
        let taken = stage.take(Take::from(q()).lease_ms(1_000).holder(holder("worker"))).pop().unwrap();
        assert_eq!(taken.message.standing.holder, Some(holder("worker")));
        taken
    };
    let taken = take(&stage);
    stage.settle(&taken.receipt, extend(500)).unwrap();
    assert_eq!(stage.get(id).standing.holder, Some(holder("worker")));
    stage.settle(&taken.receipt, RELEASE).unwrap();
    assert_eq!(stage.get(id).standing.holder, None);
    take(&stage);
    stage.advance(1_000);
    assert_eq!(stage.get(id).standing.holder, None, "its lease ran out");
    assert_eq!(stage.taken().message.standing.holder, None, "and the next one has none");
}

pub fn a_holder_survives_a_restart(factory: &Factory) {
    let Some(mut stage) = Stage::durable(factory) else { return };
    let id = stage.put(message("m")).id;
    let taken = stage.take(Take::from(q()).lease_ms(60_000).holder(holder("worker"))).pop().unwrap();
    stage.restart();
    assert_eq!(stage.get(id).standing.holder, Some(holder("worker")));
    stage.settle(&taken.receipt, RELEASE).unwrap();
    stage.restart();
    assert_eq!(stage.get(id).standing.holder, None);
}

//! Keys: what a put does when its key is taken.

use dwell_model::{Setting, StateKind};

use super::super::stage::*;
use crate::{Action, Error, OnConflict, Put, PutOutcome, Settled, Target, When};

pub fn reject_answers_with_the_id_that_stands(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let id = stage.put(keyed("k", "m").after_ms(100)).id;
    for state in [StateKind::Scheduled, StateKind::Ready, StateKind::Leased] {
        assert_eq!(stage.state(id), state);
        assert_eq!(stage.try_put(keyed("k", "x")), Err(Error::KeyTaken { id }));
        match state {
            StateKind::Scheduled => stage.advance(100),
            _ => drop(stage.take_one()),
        }
    }
    stage.put(keyed("K", "keys are compared as they are"));
}

pub fn a_key_is_free_once_its_message_is_gone_or_dead(factory: &Factory) {
    let stage = Stage::open(factory);
    let put = |body| stage.put(keyed("k", body));
    put("acked");
    let receipt = stage.taken().receipt;
    stage.settle(&receipt, Action::Ack).unwrap();
    let id = put("cancelled").id;
    stage.cancel(Target::Id(id));
    put("buried");
    let dead = stage.bury_head();
    put("purged");
    stage.store().purge(q()).unwrap();
    let id = put("last").id;
    assert_eq!(stage.try_get(by_key("k")).map(|message| message.id), Ok(id));
    assert_eq!(stage.get(dead).key, Some(key("k")), "the dead one still says what it was called");
}

pub fn a_key_is_free_from_the_instant_of_an_expiry_on(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let old = stage.put(Put { expires: Some(stage.at(1_000)), ..keyed("k", "old") }).id;
    stage.advance(999);
    assert_eq!(code(stage.try_put(keyed("k", "new"))), "key_taken");
    stage.advance(1);
    let new = stage.put(keyed("k", "new")).id;
    assert_eq!((stage.death(old), stage.state(new)), ("expired", StateKind::Ready));
    // A leased message outlives its expiry, and so does its key.
    let held = stage.put(Put { expires: Some(stage.at(1_000)), ..keyed("h", "held").priority(0) }).id;
    let receipt = stage.taken_for(60_000).receipt;
    stage.advance(1_000);
    assert_eq!(stage.try_put(keyed("h", "x")), Err(Error::KeyTaken { id: held }));
    assert!(matches!(stage.settle(&receipt, RELEASE), Ok(Settled::Dead(_))));
    stage.put(keyed("h", "x"));
}

pub fn keys_are_scoped_to_their_queue(factory: &Factory) {
    let stage = Stage::open(factory);
    let here = stage.put(keyed("k", "here")).id;
    let there = stage.put(Put::new(queue("other"), "there").key(key("k"))).id;
    assert_eq!(stage.try_get(by_key("k")).map(|message| message.id), Ok(here));
    assert_eq!(stage.store().get(queue("other"), vec![by_key("k")], false)[0].as_ref().unwrap().id, there);
    stage.cancel(by_key("k"));
    assert_eq!(code(stage.try_put(Put::new(queue("other"), "x").key(key("k")))), "key_taken");
}

pub fn replace_puts_a_new_message_and_the_old_id_is_gone(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let first = stage.put(replacing("k", "first").after_ms(1_000));
    assert_eq!(first.outcome, PutOutcome::Created);
    let second = stage.put(replacing("k", "second").after_ms(2_000));
    assert_eq!(second.outcome, PutOutcome::Replaced(first.id));
    assert_ne!(second.id, first.id);
    assert!(second.number > first.number);
    assert_eq!(code(stage.try_get(Target::Id(first.id))), "message_not_found");
    stage.advance(1_000);
    assert!(stage.take_one().is_none(), "debounced: the instant of the old one is void");
    stage.advance(1_000);
    assert_eq!(stage.state(second.id), StateKind::Ready);
    let third = stage.put(replacing("k", "third"));
    assert_eq!(third.outcome, PutOutcome::Replaced(second.id), "a ready one is replaced too");
    assert_eq!(stage.drain(), ["third"]);
}

pub fn replace_of_a_leased_message_passes_the_key_on_and_its_holder_settles_it_keyless(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let old = stage.put(keyed("k", "old")).id;
    let receipt = stage.taken_for(60_000).receipt;
    let new = stage.put(replacing("k", "new").after_ms(1_000));
    assert_eq!(new.outcome, PutOutcome::Replaced(old));
    assert_eq!(stage.try_get(by_key("k")).map(|message| message.id), Ok(new.id));
    let held = stage.get(old);
    assert_eq!((held.key, held.standing.state.kind()), (None, StateKind::Leased));
    assert_eq!(stage.settle(&receipt, retry(10)), Ok(Settled::Scheduled(stage.at(10))));
    stage.advance(10);
    let again = stage.taken();
    assert_eq!((again.message.id, again.message.key), (old, None));
    assert_eq!(stage.settle(&again.receipt, Action::Ack), Ok(Settled::Gone));
    assert_eq!(
        stage.try_get(by_key("k")).map(|message| message.id),
        Ok(new.id),
        "the key is not the old one's"
    );
    stage.advance(1_000);
    assert_eq!(stage.drain(), ["new"]);
}

pub fn a_refused_replace_leaves_the_old_message_standing(factory: &Factory) {
    let stage = Stage::open(factory);
    let old = stage.put(keyed("k", "old").after_ms(100)).id;
    let before = stage.snapshot();
    assert_eq!(code(stage.try_put(Put { when: When::Level(1), ..replacing("k", "x") })), "unknown_level");
    assert_eq!(code(stage.try_put(replacing("k", "x").after_ms(u64::MAX))), "due_out_of_range");
    assert_eq!(stage.snapshot(), before);
    assert_eq!(stage.try_get(by_key("k")).map(|message| message.id), Ok(old));
    // A leased one makes no room in a full queue; afterwards it keeps its key.
    stage.reschedule(Target::Id(old), When::Now);
    let receipt = stage.taken_for(60_000).receipt;
    stage.set(Setting::MaxPending(1));
    stage.put(message("fills it"));
    assert_eq!(code(stage.try_put(replacing("k", "x"))), "queue_full");
    assert_eq!(stage.try_get(by_key("k")).map(|message| message.id), Ok(old));
    assert_eq!(stage.settle(&receipt, Action::Ack), Ok(Settled::Gone));
}

pub fn keep_retains_id_and_body_and_the_earlier_instant_wins(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let first = stage.put(keeping("k", "first").after_ms(1_000));
    assert_eq!(first.outcome, PutOutcome::Created);
    let later = stage.put(keeping("k", "x").after_ms(5_000).priority(0));
    assert_eq!((later.id, later.number, later.due), (first.id, first.number, first.due));
    assert_eq!(later.outcome, PutOutcome::Kept);
    let earlier = stage.put(keeping("k", "x").after_ms(300));
    assert_eq!((earlier.id, earlier.due), (first.id, stage.at(300)));
    assert_eq!(stage.stats().counts.scheduled, 1);
    stage.advance(300);
    let taken = stage.taken().message;
    assert_eq!((taken.id, text(&taken.body)), (first.id, "first".to_owned()));
    assert_eq!(taken.standing.priority, dwell_model::DEFAULT_PRIORITY, "only the instant is looked at");
}

pub fn keep_of_a_leased_message_answers_leased_with_the_standing_id(factory: &Factory) {
    let stage = Stage::open(factory);
    let id = stage.put(keyed("k", "m")).id;
    let receipt = stage.taken().receipt;
    assert_eq!(stage.try_put(keeping("k", "x")), Err(Error::Leased { id }));
    stage.settle(&receipt, Action::Ack).unwrap();
    assert_eq!(stage.put(keeping("k", "x")).outcome, PutOutcome::Created);
}

pub fn keep_of_a_ready_message_leaves_it_ready(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let first = stage.put(keyed("k", "m").after_ms(1_000));
    stage.advance(1_000);
    let kept = stage.put(keeping("k", "x").after_ms(500));
    assert_eq!((kept.id, kept.due, stage.state(first.id)), (first.id, first.due, StateKind::Ready));
    if stage.step_wall(-700) {
        // The new instant is earlier than the old one, but not yet reached by the present clock.
        let kept = stage.put(keyed("k", "x").at(stage.at(600)).on_conflict(OnConflict::Keep));
        assert_eq!((kept.id, stage.state(first.id)), (first.id, StateKind::Ready));
    }
    assert_eq!(stage.drain(), ["m"]);
}

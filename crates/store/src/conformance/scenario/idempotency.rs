//! Idempotency keys: a retried put is harmless.

use dwell_model::{Headers, Limits, Setting};

use super::super::stage::*;
use crate::{Action, Error, Put, PutOutcome, Selection, Take, Target, When};

pub fn the_same_idempotency_key_gives_the_same_answer_and_puts_nothing_also_when_the_message_is_gone(
    factory: &Factory,
) {
    let mut stage = Stage::open(factory);
    let put = message("m").after_ms(100).idempotency_key(idempotency_key("t"));
    let first = stage.put(put.clone());
    stage.advance(50);
    assert_eq!(stage.put(put.clone()), first, "the same answer, with the same instant");
    assert_eq!(
        stage.put(message("m").after_ms(70).idempotency_key(idempotency_key("t"))),
        first,
        "whatever it says of the instant"
    );
    assert_eq!(stage.stats().counts.scheduled, 1);
    stage.advance(50);
    let taken = stage.taken();
    assert_eq!(stage.put(put.clone()), first);
    stage.settle(&taken.receipt, Action::Ack).unwrap();
    assert_eq!(stage.put(put.clone()), first, "though it is gone");
    assert!(stage.take_one().is_none());
    let twice = stage.store().put(vec![
        message("n").idempotency_key(idempotency_key("u")),
        message("n").idempotency_key(idempotency_key("u")),
    ]);
    assert_eq!(twice[0], twice[1], "in one batch as well");
    let stands = stage.put(keyed("k", "stands").after_ms(900));
    let keep = keeping("k", "x").after_ms(500).idempotency_key(idempotency_key("keep"));
    let kept = stage.put(keep.clone());
    assert_eq!((kept.id, kept.outcome), (stands.id, PutOutcome::Kept));
    stage.cancel(Target::Id(stands.id));
    assert_eq!(stage.put(keep), kept, "a put that was answered with the standing message counts too");
    let replace = replacing("k2", "a").idempotency_key(idempotency_key("replace"));
    stage.put(keyed("k2", "old"));
    let replaced = stage.put(replace.clone());
    assert_eq!(stage.put(replace), replaced);
}

pub fn an_idempotency_key_is_forgotten_after_its_time(factory: &Factory) {
    let mut stage = Stage::open(factory);
    stage.set(Setting::IdempotencyMs(5_000));
    let put = message("m").after_ms(60_000).idempotency_key(idempotency_key("t"));
    let first = stage.put(put.clone());
    stage.advance(4_999);
    assert_eq!(stage.put(put.clone()), first);
    stage.advance(1);
    let second = stage.put(put.clone());
    assert_ne!(second.id, first.id);
    stage.advance(4_999);
    assert_eq!(stage.put(put), second, "and the time counts from the put that was made");
}

pub fn a_refused_put_leaves_its_idempotency_key_unused(factory: &Factory) {
    let stage = Stage::open(factory);
    let stands = stage.put(keyed("k", "m").after_ms(50)).id;
    assert_eq!(code(stage.try_put(keyed("k", "x").idempotency_key(idempotency_key("t")))), "key_taken");
    stage.cancel(Target::Id(stands));
    assert_eq!(stage.put(keyed("k", "x").idempotency_key(idempotency_key("t"))).outcome, PutOutcome::Created);
    let level = Put { when: When::Level(1), ..message("m").idempotency_key(idempotency_key("u")) };
    assert_eq!(code(stage.try_put(level.clone())), "unknown_level");
    stage.set(Setting::Levels(vec![1_000]));
    assert_eq!(stage.put(level).outcome, PutOutcome::Created);
}

pub fn idempotency_keys_are_scoped_to_their_queue(factory: &Factory) {
    let stage = Stage::open(factory);
    let here = stage.put(message("m").idempotency_key(idempotency_key("t")));
    let there = stage.put(Put::new(queue("other"), "m").idempotency_key(idempotency_key("t")));
    assert_ne!(here.id, there.id);
    assert_eq!(stage.take(Take::from_all([q(), queue("other")]).max(5)).len(), 2);
}

pub fn an_idempotency_key_survives_a_restart(factory: &Factory) {
    let Some(mut stage) = Stage::durable(factory) else { return };
    let put = message("m").after_ms(100).idempotency_key(idempotency_key("t"));
    let first = stage.put(put.clone());
    let stands = stage.put(keyed("k", "stands").after_ms(900));
    let keep = keeping("k", "x").after_ms(500).idempotency_key(idempotency_key("keep"));
    let kept = stage.put(keep.clone());
    assert_eq!(kept.id, stands.id);
    stage.restart();
    assert_eq!(stage.put(put.clone()), first);
    stage.advance(100);
    let taken = stage.taken();
    stage.settle(&taken.receipt, Action::Ack).unwrap();
    stage.restart();
    assert_eq!((stage.put(put.clone()), stage.put(keep)), (first, kept));
    stage.advance(600_000);
    stage.restart();
    assert_ne!(stage.put(put).id, first.id, "its time is over");
}

pub fn past_the_cap_of_a_queues_idempotency_keys_new_ones_are_refused_there_and_nowhere_else(
    factory: &Factory,
) {
    let mut stage = Stage::open_with(factory, Limits { idempotency_keys_per_queue: 3, ..Limits::default() });
    let put = |n: u32| message("m").after_ms(3_600_000).idempotency_key(idempotency_key(&format!("t{n}")));
    let first = stage.put(put(0));
    for n in 1..3 {
        stage.put(put(n));
    }
    let refused = stage.try_put(put(3)).expect_err("three are remembered");
    assert_eq!((refused.code(), refused.is_retryable()), ("overloaded", true));
    assert_eq!(stage.stats().counts.scheduled, 3);
    assert_eq!(stage.put(put(0)), first, "a known one is answered");
    if !stage.makes_idempotency_keys() {
        stage.put(message("without a token").after_ms(3_600_000));
    }
    let other = stage.put(Put { queue: queue("other"), ..put(3) });
    assert_eq!(other.outcome, PutOutcome::Created, "another queue has its own");
    stage.advance(602_000);
    assert_ne!(stage.put(put(0)).id, first.id, "and they come again when theirs have run out");
}

pub fn the_same_idempotency_key_for_another_body_or_key_is_a_mismatch_and_changes_nothing(factory: &Factory) {
    let stage = Stage::open(factory);
    let put = keyed("k", "m").after_ms(60_000).idempotency_key(idempotency_key("t"));
    let first = stage.put(put.clone());
    let before = stage.snapshot();
    let mismatch = Error::IdempotencyMismatch { id: first.id };
    for other in [
        keyed("k", "other"),
        keyed("other", "m"),
        message("m"),
        replacing("k", "other"),
        // The idempotency key is checked before anything else.
        message("other").after_ms(u64::MAX),
    ] {
        assert_eq!(stage.try_put(other.idempotency_key(idempotency_key("t"))), Err(mismatch.clone()));
    }
    assert_eq!(stage.snapshot(), before);
    assert!(!mismatch.is_retryable());
    assert_eq!(stage.put(put), first, "and it stands for the same as before");
    let batch = vec![
        message("n").idempotency_key(idempotency_key("u")),
        message("o").idempotency_key(idempotency_key("u")),
        message("p"),
    ];
    let answers = stage.store().put(batch);
    let id = answers[0].as_ref().unwrap().id;
    assert_eq!(answers[1], Err(Error::IdempotencyMismatch { id }), "in one batch as well");
    assert!(answers[2].is_ok());
}

pub fn the_same_idempotency_key_may_come_with_another_instant_and_other_headers(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let first = stage.put(keyed("k", "m").after_ms(60_000).idempotency_key(idempotency_key("t")));
    stage.advance(1_000);
    let trace = Headers::new([("traceparent", "00-1")]).unwrap();
    let again = Put {
        headers: trace,
        priority: 3,
        max_attempts: Some(attempts(2)),
        lease_ms: Some(5_000),
        expires: Some(stage.at(99_000)),
        ..keeping("k", "m").at(stage.at(60_000)).idempotency_key(idempotency_key("t"))
    };
    assert_eq!(stage.put(again), first);
    assert_eq!(stage.get(first.id).standing.due, first.due);
}

pub fn a_mismatch_is_noticed_after_a_restart_and_when_the_message_is_gone(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let put = keyed("k", "m").after_ms(60_000).idempotency_key(idempotency_key("t"));
    let first = stage.put(put.clone());
    let stands = stage.put(keyed("stands", "s").after_ms(60_000)).id;
    let kept = stage.put(keeping("stands", "x").idempotency_key(idempotency_key("kept")));
    assert_eq!(kept.id, stands);
    let check = |stage: &Stage| {
        let other = stage.try_put(keyed("k", "other").idempotency_key(idempotency_key("t")));
        assert_eq!(other, Err(Error::IdempotencyMismatch { id: first.id }));
        let other = stage.try_put(keeping("stands", "s").idempotency_key(idempotency_key("kept")));
        assert_eq!(other, Err(Error::IdempotencyMismatch { id: stands }), "it stands for the put's body");
        assert_eq!(stage.put(put.clone()), first);
        assert_eq!(stage.put(keeping("stands", "x").idempotency_key(idempotency_key("kept"))), kept);
    };
    check(&stage);
    if stage.is_durable() {
        stage.restart();
        check(&stage);
    }
    stage.store().purge(q()).unwrap();
    check(&stage);
    if stage.is_durable() {
        stage.restart();
        check(&stage);
    }
    stage.advance(600_000);
    assert_ne!(
        stage.put(keyed("k", "other").idempotency_key(idempotency_key("t"))).id,
        first.id,
        "its time is over"
    );
}

pub fn an_idempotency_key_is_answered_as_before_after_its_message_was_discarded(factory: &Factory) {
    let stage = Stage::open(factory);
    let put = keyed("k", "m").idempotency_key(idempotency_key("t"));
    let first = stage.put(put.clone());
    stage.bury_head();
    assert_eq!(stage.put(put.clone()), first, "it is dead");
    stage.store().discard(q(), Selection::Ids(vec![first.id])).unwrap();
    // The idempotency key keeps no message; another message keeps the queue.
    stage.put(message("n").after_ms(3_600_000));
    let before = stage.snapshot();
    assert_eq!(stage.put(put.clone()), first, "it was discarded");
    assert_eq!(stage.snapshot(), before, "and nothing was put");
    // The same by retention.
    stage.set(Setting::DeadMax(0));
    let put = message("o").idempotency_key(idempotency_key("u"));
    let first = stage.put(put.clone());
    stage.bury_head();
    assert_eq!(stage.stats().counts.dead, 0);
    assert_eq!(stage.put(put), first);
    assert_eq!(stage.stats().counts.ready, 0);
}

//! Put: instants, levels, limits, numbers. Keys and idempotency keys have files of their own.

use dwell_model::{Limits, Setting, SettingChange, StateKind, Timestamp};

use super::super::stage::*;
use crate::{Error, OnConflict, Put, PutOutcome, Take, Target, When};

pub fn a_delay_counts_from_the_stores_clock_at_the_put(factory: &Factory) {
    let mut stage = Stage::open(factory);
    for delay_ms in [1, 1_000, 30 * 60_000, 366 * 86_400_000] {
        stage.advance(17);
        let answer = stage.put(message("m").after_ms(delay_ms));
        assert_eq!(answer.due, stage.at(delay_ms as i64));
        assert_eq!(answer.id.due_at_put(), answer.due);
        assert_eq!(stage.get(answer.id).created, stage.now());
    }
}

pub fn a_past_instant_is_due_now(factory: &Factory) {
    let stage = Stage::open(factory);
    for due in [stage.now(), stage.at(-1), Timestamp::MIN] {
        let id = stage.put(message("m").at(due)).id;
        assert_eq!(stage.state(id), StateKind::Ready);
        let taken = stage.taken();
        assert_eq!((taken.message.id, taken.lateness_ms), (id, 0), "lateness counts from the put");
    }
}

pub fn a_put_without_a_delay_is_due_at_once(factory: &Factory) {
    let stage = Stage::open(factory);
    let answer = stage.put(message("m"));
    assert_eq!((answer.due, answer.outcome), (stage.now(), PutOutcome::Created));
    assert_eq!(stage.put(message("n").after_ms(0)).due, stage.now());
    assert_eq!(stage.drain(), ["m", "n"]);
}

pub fn an_instant_past_9999_is_refused(factory: &Factory) {
    let stage = Stage::open(factory);
    let left_ms = Timestamp::MAX.ms_since(stage.now());
    for delay_ms in [left_ms + 1, u64::MAX] {
        assert_eq!(code(stage.try_put(message("m").after_ms(delay_ms))), "due_out_of_range");
    }
    assert_eq!(code(stage.store().stats(q())), "unknown_queue", "nothing was made");
    assert_eq!(stage.put(message("m").after_ms(left_ms)).due, Timestamp::MAX);
    assert_eq!(stage.put(message("m").at(Timestamp::MAX)).due, Timestamp::MAX);
}

pub fn a_level_names_a_delay_of_the_queues_table_and_an_unknown_one_is_refused(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let at_level = |level| Put { when: When::Level(level), ..message("m") };
    assert_eq!(code(stage.try_put(at_level(1))), "unknown_level", "no table");
    stage.set(Setting::Levels(vec![1_000, 5_000, 10_000]));
    for level in [0, 4, u32::MAX] {
        assert_eq!(code(stage.try_put(at_level(level))), "unknown_level");
    }
    assert_eq!(stage.put(at_level(3)).due, stage.at(10_000));
    assert_eq!(stage.put(at_level(1)).due, stage.at(1_000));
    stage.advance(1_000);
    assert_eq!(stage.drain(), ["m"]);
}

pub fn expiry_must_lie_after_due(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let due = stage.at(1_000);
    for expires in [stage.at(999), due] {
        let refused = stage.try_put(Put { expires: Some(expires), ..message("m").at(due) });
        assert_eq!(code(refused), "expires_before_due");
    }
    let id = stage.put(Put { expires: Some(stage.at(1_001)), ..message("m").at(due) }).id;
    stage.advance(1_000);
    assert_eq!(stage.state(id), StateKind::Ready);
    stage.advance(1);
    assert_eq!(stage.death(id), "expired");
}

pub fn a_put_whose_expiry_has_passed_is_refused_and_changes_nothing(factory: &Factory) {
    let mut stage = Stage::open(factory);
    stage.advance(10_000);
    let live = stage.put(keyed("k", "live").after_ms(60_000)).id;
    let before = stage.snapshot();
    let late = |expires| Put { expires: Some(expires), ..message("late").at(stage.at(-5_000)) };
    for expires in [stage.at(-4_999), stage.at(-1), stage.now()] {
        assert_eq!(code(stage.try_put(late(expires))), "expires_before_due");
        assert_eq!(
            code(stage.try_put(late(expires).idempotency_key(idempotency_key("t")))),
            "expires_before_due"
        );
        for on_conflict in [OnConflict::Reject, OnConflict::Replace, OnConflict::Keep] {
            let refused = stage.try_put(late(expires).key(key("k")).on_conflict(on_conflict));
            assert_eq!(code(refused), "expires_before_due", "{on_conflict:?}");
        }
    }
    assert_eq!(stage.snapshot(), before, "the live message stands");
    assert_eq!(stage.try_get(by_key("k")).map(|message| message.id), Ok(live));
    let id = stage.put(late(stage.at(1)).idempotency_key(idempotency_key("t"))).id;
    assert_eq!(stage.state(id), StateKind::Ready, "a past instant is due now, and its expiry is to come");
}

pub fn a_lease_of_its_own_must_be_in_bounds(factory: &Factory) {
    let stage = Stage::open(factory);
    for lease_ms in [0, Setting::MAX_LEASE_MS + 1, u64::MAX] {
        let refused = stage.try_put(Put { lease_ms: Some(lease_ms), ..message("m") });
        assert_eq!(code(refused), "invalid_setting", "{lease_ms} ms");
    }
    stage.put(Put { lease_ms: Some(Setting::MAX_LEASE_MS), ..message("m") });
    let taken = stage.taken();
    assert_eq!(taken.lease_until, stage.now().saturating_after(Setting::MAX_LEASE_MS));
}

pub fn a_full_queue_refuses_with_retry_later_and_drops_nothing(factory: &Factory) {
    let mut stage = Stage::open(factory);
    stage.set(Setting::MaxPending(3));
    for body in ["a", "b"] {
        stage.put(message(body));
    }
    stage.put(message("c").after_ms(1_000));
    let refused = stage.try_put(message("d")).expect_err("three are pending");
    assert_eq!(refused, Error::QueueFull { queue: q(), limit: 3 });
    assert!(refused.is_retryable());
    stage.put(Put::new(queue("other"), "not concerned"));
    let held = stage.taken_for(60_000);
    stage.put(message("d"));
    assert_eq!(code(stage.try_put(message("e"))), "queue_full");
    stage.settle(&held.receipt, RELEASE).expect("a holder can always give back");
    stage.advance(1_000);
    assert_eq!(stage.drain(), ["a", "b", "d", "c"]);
}

pub fn replace_and_keep_fit_into_a_full_queue(factory: &Factory) {
    let stage = Stage::open(factory);
    stage.set(Setting::MaxPending(2));
    stage.put(message("a").after_ms(5));
    let old = stage.put(keyed("k", "old").after_ms(500));
    let new = stage.put(replacing("k", "new").after_ms(500));
    assert_eq!(new.outcome, PutOutcome::Replaced(old.id));
    let kept = stage.put(keeping("k", "x").after_ms(100));
    assert_eq!((kept.id, kept.outcome), (new.id, PutOutcome::Kept));
    for on_conflict in [OnConflict::Reject, OnConflict::Replace, OnConflict::Keep] {
        let other = keyed("other", "x").on_conflict(on_conflict);
        assert_eq!(code(stage.try_put(other)), "queue_full", "a key that nobody has makes no room");
    }
    assert_eq!(stage.stats().counts.scheduled, 2);
}

pub fn replace_and_keep_fit_into_a_queue_that_holds_more_than_it_may(factory: &Factory) {
    let stage = Stage::open(factory);
    for body in ["a", "b", "c"] {
        stage.put(message(body).after_ms(5));
    }
    let old = stage.put(keyed("k", "old").after_ms(500));
    for limit in [2, 0] {
        stage.set(Setting::MaxPending(limit));
        let before = stage.try_get(by_key("k")).unwrap().id;
        let new = stage.put(replacing("k", "new").after_ms(500));
        assert_eq!(new.outcome, PutOutcome::Replaced(before), "their number does not rise");
        let kept = stage.put(keeping("k", "x").after_ms(500));
        assert_eq!((kept.id, kept.outcome), (new.id, PutOutcome::Kept));
        assert_eq!(code(stage.try_put(replacing("other", "x"))), "queue_full");
        assert_eq!(stage.stats().counts.scheduled, 4);
    }
    assert_eq!(code(stage.try_get(Target::Id(old.id))), "message_not_found");
}

pub fn too_many_queues_are_refused(factory: &Factory) {
    let stage = Stage::open_with(factory, Limits { queues: 3, ..Limits::default() });
    for name in ["a", "b", "c"] {
        stage.put(Put::new(queue(name), "m"));
    }
    let refused = stage.try_put(message("m")).expect_err("three queues are there");
    assert_eq!(refused, Error::TooManyQueues { limit: 3 });
    assert!(refused.is_retryable());
    assert_eq!(
        code(stage.store().configure(q(), vec![SettingChange::Set(Setting::LeaseMs(5))])),
        "too_many_queues"
    );
    stage.put(Put::new(queue("a"), "a known name is not concerned"));
    assert_eq!(stage.take(Take::from_all([q(), queue("b")])).len(), 1, "a take makes no queue");
    assert_eq!(stage.store().purge(queue("c")), Ok(1));
    stage.put(message("there is room now"));
}

pub fn a_body_over_the_limit_is_refused(factory: &Factory) {
    let stage = Stage::open_with(factory, Limits { body_len: 100, ..Limits::default() });
    assert_eq!(stage.store().store().limits().body_len, 100);
    assert_eq!(code(stage.try_put(Put::new(q(), vec![0; 101]))), "body_too_large");
    let id = stage.put(Put::new(q(), vec![0; 100])).id;
    assert_eq!(stage.get(id).body.len(), 100);
}

pub fn a_batch_over_the_limit_is_refused_whole(factory: &Factory) {
    let stage = Stage::open_with(factory, Limits { batch: 4, ..Limits::default() });
    let answers = stage.store().put(vec![message("m"); 5]);
    assert_eq!(answers.len(), 5, "one answer an item");
    for answer in answers {
        assert_eq!(code(answer), "batch_too_large");
    }
    assert!(stage.take_one().is_none());
    assert!(stage.store().put(vec![message("m"); 4]).iter().all(|answer| answer.is_ok()));
    let targets = vec![by_key("k"); 5];
    assert!(stage.store().cancel(q(), targets.clone()).into_iter().all(|a| code(a) == "batch_too_large"));
    assert!(stage.store().get(q(), targets, false).into_iter().all(|a| code(a) == "batch_too_large"));
    assert!(stage.store().put(vec![]).is_empty());
}

pub fn numbers_rise_and_are_never_used_again(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let mut last = None;
    for round in 0..20 {
        let name = if round % 2 == 0 { q() } else { queue("other") };
        let answer = stage.put(Put::new(name.clone(), "m").after_ms(20 - round));
        assert!(Some(answer.number) > last, "{} after {last:?}", answer.number);
        last = Some(answer.number);
        stage.store().purge(name).unwrap();
    }
    if stage.is_durable() {
        stage.restart();
        assert!(Some(stage.put(message("m")).number) > last, "also after a restart");
    }
}

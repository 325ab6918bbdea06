//! Settle: ack, retry, release, bury, extend.

use dwell_model::{Backoff, DeathReason, Limits, Setting, StateKind};

use super::super::stage::*;
use crate::{Action, Put, Settled, Take, Target};

pub fn an_acked_message_is_gone(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let id = stage.put(message("m")).id;
    let taken = stage.taken();
    assert_eq!(stage.settle(&taken.receipt, Action::Ack), Ok(Settled::Gone));
    stage.advance(86_400_000);
    assert!(stage.take_one().is_none());
    assert_eq!(stage.cancel(Target::Id(id)), crate::Cancelled::NotFound);
    assert_eq!(code(stage.store().stats(q())), "unknown_queue");
}

pub fn a_retry_is_scheduled_after_its_delay_or_the_queues_backoff(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let backoff = Backoff { base_ms: 1_000, factor_percent: 300, cap_ms: 5_000, jitter_percent: 0 };
    stage.set(Setting::Backoff(backoff));
    let id = stage.put(message("m")).id;
    for (action, delay_ms) in
        [(BACKOFF, 1_000), (BACKOFF, 3_000), (retry(77), 77), (BACKOFF, 5_000), (BACKOFF, 5_000)]
    {
        let taken = stage.taken();
        let due = stage.at(delay_ms);
        assert_eq!(stage.settle(&taken.receipt, action), Ok(Settled::Scheduled(due)));
        assert_eq!(stage.get(id).standing.due, due);
        stage.advance(delay_ms as u64 - 1);
        assert!(stage.take_one().is_none(), "1 ms early");
        stage.advance(1);
    }
    let taken = stage.taken();
    assert_eq!(taken.message.standing.attempt(), 6);
    assert_eq!(stage.settle(&taken.receipt, retry(0)), Ok(Settled::Ready));
    stage.set(Setting::Backoff(Backoff { jitter_percent: 50, base_ms: 4_000, ..backoff }));
    let taken = stage.taken();
    stage.settle(&taken.receipt, BACKOFF).unwrap();
    let delay_ms = stage.get(id).standing.due.ms_since(stage.now());
    assert!((2_500..=5_000).contains(&delay_ms), "jitter only shortens: {delay_ms} ms");
}

pub fn backoff_grows_from_the_smallest_base_on(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let backoff = Backoff { base_ms: 1, factor_percent: 150, cap_ms: 100, jitter_percent: 0 };
    stage.set(Setting::Backoff(backoff));
    stage.put(message("m"));
    // 1.5 to the power of 0 to 11, each rounded down only when it is used.
    for delay_ms in [1, 1, 2, 3, 5, 7, 11, 17, 25, 38, 57, 86, 100, 100] {
        let taken = stage.taken();
        assert_eq!(stage.settle(&taken.receipt, BACKOFF), Ok(Settled::Scheduled(stage.at(delay_ms))));
        stage.advance(delay_ms as u64);
    }
}

pub fn a_retry_keeps_the_error(factory: &Factory) {
    let stage = Stage::open(factory);
    let id = stage.put(message("m")).id;
    let error = |text: Option<&str>| {
        let error = text.map(Into::into);
        let taken = stage.taken();
        stage.settle(&taken.receipt, Action::Retry { after_ms: Some(0), error, priority: None }).unwrap();
        stage.get(id).standing.last_error
    };
    assert_eq!(error(None), None);
    assert_eq!(error(Some("kein Anschluß 📵")).as_deref(), Some("kein Anschluß 📵"));
    assert_eq!(error(None).as_deref(), Some("kein Anschluß 📵"), "a retry without one keeps the last");
    assert_eq!(error(Some("again")).as_deref(), Some("again"));
}

pub fn a_release_spends_no_attempt(factory: &Factory) {
    let stage = Stage::open(factory);
    let put = stage.put(Put {
        max_attempts: Some(dwell_model::AttemptLimit::At(1.try_into().unwrap())),
        ..message("m")
    });
    for round in 1..=5 {
        let taken = stage.taken();
        assert_eq!(taken.message.standing.attempt(), 1);
        assert_eq!(stage.settle(&taken.receipt, RELEASE), Ok(Settled::Ready));
        let standing = stage.get(put.id).standing;
        assert_eq!((standing.attempts, standing.counts.releases), (0, round));
        assert_eq!(standing.due, put.due, "its place in the order is the old one");
    }
}

pub fn a_release_with_a_delay_is_scheduled(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let id = stage.put(message("m")).id;
    let taken = stage.taken();
    let release = Action::Release { after_ms: Some(500), priority: None };
    assert_eq!(stage.settle(&taken.receipt, release), Ok(Settled::Scheduled(stage.at(500))));
    assert_eq!(stage.state(id), StateKind::Scheduled);
    stage.advance(500);
    let taken = stage.taken();
    assert_eq!((taken.message.standing.attempt(), taken.lateness_ms), (1, 0));
}

pub fn a_buried_message_is_dead_with_its_reason(factory: &Factory) {
    let stage = Stage::open(factory);
    let id = stage.put(message("m")).id;
    let taken = stage.taken();
    let settled = stage.settle(&taken.receipt, bury("not JSON"));
    assert_eq!(settled, Ok(Settled::Dead(DeathReason::Buried)));
    assert_eq!(stage.death(id), "buried");
    let standing = stage.get(id).standing;
    assert_eq!((standing.last_error.as_deref(), standing.counts.buries), (Some("not JSON"), 1));
    assert!(stage.take_one().is_none());
}

pub fn retry_release_and_bury_may_set_a_new_priority(factory: &Factory) {
    let stage = Stage::open(factory);
    stage.put(message("a"));
    stage.put(message("b"));
    stage.put(message("c"));
    let taken = stage.take(Take::from(q()).max(3));
    let actions = [
        Action::Retry { after_ms: Some(0), error: None, priority: Some(30) },
        Action::Release { after_ms: None, priority: Some(20) },
        Action::Bury { reason: None, priority: Some(10) },
    ];
    for (taken, action) in taken.iter().zip(actions) {
        stage.settle(&taken.receipt, action).unwrap();
    }
    let priorities: Vec<_> =
        taken.iter().map(|taken| stage.get(taken.message.id).standing.priority).collect();
    assert_eq!(priorities, [30, 20, 10]);
    stage.store().revive(q(), crate::Selection::All, crate::When::Now).unwrap();
    assert_eq!(stage.drain(), ["c", "b", "a"]);
}

pub fn extend_moves_the_deadline(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let id = stage.put(message("m")).id;
    let receipt = stage.taken_for(1_000).receipt;
    for _ in 0..5 {
        stage.advance(900);
        let until = stage.at(1_000);
        assert_eq!(stage.settle(&receipt, extend(1_000)), Ok(Settled::Leased(until)));
    }
    stage.settle(&receipt, extend(100)).expect("it may also be shortened");
    stage.advance(99);
    assert_eq!(stage.state(id), StateKind::Leased);
    stage.advance(1);
    assert_eq!(stage.state(id), StateKind::Ready);
    assert_eq!(stage.get(id).standing.attempts, 1, "one attempt, however often it was extended");
}

pub fn extend_without_a_length_grants_the_old_one_anew(factory: &Factory) {
    let mut stage = Stage::open(factory);
    stage.put(message("m"));
    let receipt = stage.taken_for(4_000).receipt;
    stage.advance(3_000);
    let anew = Action::Extend { lease_ms: None };
    assert_eq!(stage.settle(&receipt, anew.clone()), Ok(Settled::Leased(stage.at(4_000))));
    stage.settle(&receipt, extend(9_000)).unwrap();
    assert_eq!(stage.settle(&receipt, anew), Ok(Settled::Leased(stage.at(9_000))));
}

pub fn extend_out_of_bounds_is_refused(factory: &Factory) {
    let stage = Stage::open(factory);
    stage.put(message("m"));
    let taken = stage.taken_for(4_000);
    for lease_ms in [0, Setting::MAX_LEASE_MS + 1, u64::MAX] {
        assert_eq!(code(stage.settle(&taken.receipt, extend(lease_ms))), "invalid_setting");
    }
    let longest = stage.settle(&taken.receipt, extend(Setting::MAX_LEASE_MS));
    assert_eq!(longest, Ok(Settled::Leased(stage.now().saturating_after(Setting::MAX_LEASE_MS))));
}

pub fn a_receipt_is_stale_after_the_lease_ran_out_and_after_it_was_settled(factory: &Factory) {
    let mut stage = Stage::open(factory);
    for end in [Action::Ack, retry(0), RELEASE, bury("x")] {
        stage.put(message("m"));
        let taken = stage.taken_for(60_000);
        stage.settle(&taken.receipt, end).unwrap();
        for action in [Action::Ack, RELEASE, extend(1)] {
            assert_eq!(code(stage.settle(&taken.receipt, action)), "lease_lost");
        }
        stage.store().purge(q()).unwrap();
    }
    stage.put(message("m"));
    let taken = stage.taken_for(1_000);
    stage.advance(1_000);
    for action in [Action::Ack, RELEASE, extend(1)] {
        assert_eq!(code(stage.settle(&taken.receipt, action)), "lease_lost", "nobody took it meanwhile");
    }
}

pub fn an_expired_message_that_is_given_back_is_dead(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let give_back =
        [retry(0), retry(5_000), RELEASE, Action::Release { after_ms: Some(5_000), priority: None }];
    for action in give_back {
        let id = stage.put(Put { expires: Some(stage.at(1_000)), ..message("m") }).id;
        let taken = stage.taken_for(60_000);
        stage.advance(1_000);
        assert_eq!(stage.state(id), StateKind::Leased, "its holder is not disturbed");
        let settled = stage.settle(&taken.receipt, action);
        assert_eq!(settled, Ok(Settled::Dead(DeathReason::Expired)));
        assert_eq!(stage.death(id), "expired");
    }
    stage.put(Put { expires: Some(stage.at(1_000)), ..message("m") });
    let taken = stage.taken_for(60_000);
    stage.advance(1_000);
    assert_eq!(stage.settle(&taken.receipt, Action::Ack), Ok(Settled::Gone), "done is done");
    let lapsing = stage.put(Put { expires: Some(stage.at(1_000)), ..message("m") }).id;
    stage.taken_for(2_000);
    stage.advance(2_000);
    assert_eq!(stage.death(lapsing), "expired");
}

pub fn an_error_text_over_the_limit_is_refused(factory: &Factory) {
    let stage = Stage::open(factory);
    let id = stage.put(message("m")).id;
    let taken = stage.taken();
    let long = "é".repeat(Limits::MAX_ERROR_TEXT_LEN / 2);
    let over = format!("{long}x");
    let retry = |error: &str| Action::Retry { after_ms: Some(0), error: Some(error.into()), priority: None };
    assert_eq!(code(stage.settle(&taken.receipt, retry(&over))), "error_text_too_long");
    assert_eq!(code(stage.settle(&taken.receipt, bury(&over))), "error_text_too_long");
    assert_eq!(stage.state(id), StateKind::Leased);
    assert_eq!(stage.settle(&taken.receipt, retry(&long)), Ok(Settled::Ready));
    assert_eq!(stage.get(id).standing.last_error.as_deref(), Some(long.as_str()));
}

pub fn counts_of_takes_lapses_releases_buries_and_revives_are_kept(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let id = stage.put(message("m")).id;
    for _ in 0..2 {
        stage.taken_for(1_000);
        stage.advance(1_000);
    }
    for _ in 0..3 {
        let taken = stage.taken();
        stage.settle(&taken.receipt, RELEASE).unwrap();
    }
    let taken = stage.taken();
    stage.settle(&taken.receipt, retry(0)).unwrap();
    for _ in 0..4 {
        stage.bury_head();
        stage.store().revive(q(), crate::Selection::All, crate::When::Now).unwrap();
    }
    let counts = stage.get(id).standing.counts;
    assert_eq!((counts.takes, counts.lapses, counts.releases), (2 + 3 + 1 + 4, 2, 3));
    assert_eq!((counts.buries, counts.revives), (4, 4));
}

//! The bullets of the trait itself, except restarts and clock steps.

use bytes::Bytes;
use dwell_model::{AttemptLimit, Headers};

use super::super::stage::*;
use crate::{Action, Cancelled, LeaseTerms, OnConflict, Put, Settle, Settled, Take, Target, When};

pub fn a_message_is_handed_out_at_its_instant_and_never_before(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let due = stage.put(message("m").after_ms(1_000)).due;
    assert_eq!(due, stage.at(1_000));
    for _ in 0..3 {
        assert!(stage.take_one().is_none(), "it is {} ms early", due.ms_since(stage.now()));
        stage.advance(333);
    }
    assert!(stage.take_one().is_none(), "it is 1 ms early");
    stage.advance(1);
    let taken = stage.taken();
    assert_eq!((taken.taken_at, taken.lateness_ms), (due, 0));
}

pub fn what_was_put_comes_back_byte_for_byte(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let every_byte: Vec<u8> = (0..=255).collect();
    let long = vec![0xa5; stage.raw().limits().body_len];
    let pairs = [("content-type", "text/plain; charset=utf-8"), ("x-city", "Größe, 東京")];
    let headers = Headers::new(pairs).unwrap();
    for body in [Bytes::new(), Bytes::from(every_byte), Bytes::from(long), Bytes::from_static(b"\xff\xfe\0")]
    {
        let put = Put {
            headers: headers.clone(),
            priority: 7,
            lease_ms: Some(1_234),
            max_attempts: Some(AttemptLimit::At(3.try_into().unwrap())),
            expires: Some(stage.at(90_000)),
            ..Put::new(q(), body.clone()).key(key("заказ №7 🛒\u{0}\n")).after_ms(50)
        };
        let (answer, created) = (stage.put(put.clone()), stage.now());
        stage.advance(50);
        let taken = stage.taken().message;
        let got = stage.get(answer.id);
        assert!(got.body == body && taken.body == body, "the body of {} bytes has changed", body.len());
        let taken = stage.as_shown(taken);
        assert_eq!(stage.as_shown(got.clone()), taken, "get and take show the same message");
        assert_eq!((got.id, got.number, got.queue), (answer.id, answer.number, q()));
        assert_eq!((&got.key, &got.headers, got.created), (&put.key, &headers, created));
        assert_eq!((got.lease_ms, got.max_attempts), (put.lease_ms, put.max_attempts));
        let standing = got.standing;
        assert_eq!((standing.due, standing.priority, standing.expires), (answer.due, 7, put.expires));
        stage.advance(1_234);
        let again = stage.taken();
        stage.settle(&again.receipt, Action::Ack).unwrap();
    }
}

pub fn a_name_never_used_before_needs_no_creation(factory: &Factory) {
    let stage = Stage::open(factory);
    let longest = "z".repeat(200);
    for name in ["q", "a/b;c.d$e_f(g):h@i+j-k", "...", longest.as_str()] {
        let answer = stage.put(Put::new(queue(name), "m"));
        let taken = stage.take(Take::from(queue(name))).pop().expect("it is ready");
        assert_eq!((taken.message.id, taken.message.queue.as_str()), (answer.id, name));
    }
}

pub fn due_messages_go_out_by_priority_then_due_then_id(factory: &Factory) {
    let mut stage = Stage::open(factory);
    for (body, priority, after_ms) in
        [("d", 5, 30), ("e", 5, 30), ("c", 5, 20), ("a", 0, 40), ("f", u32::MAX, 0), ("b", 1, 40)]
    {
        stage.put(message(body).priority(priority).after_ms(after_ms));
    }
    assert_eq!(stage.drain(), ["f"], "priority orders only what is due");
    stage.advance(40);
    assert_eq!(stage.drain(), ["a", "b", "c", "d", "e"]);
}

pub fn at_most_one_valid_receipt_exists_for_a_message(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let id = stage.put(message("m")).id;
    let mut receipts = Vec::new();
    for round in 0..6 {
        let taken = stage.taken_for(1_000);
        assert_eq!(taken.message.id, id);
        assert!(stage.take_one().is_none(), "a leased message is hidden from others");
        assert_eq!(code(stage.store().take_id(q(), id, LeaseTerms::default())), "leased");
        assert!(!receipts.contains(&taken.receipt), "a receipt was issued twice");
        for stale in &receipts {
            assert_eq!(code(stage.settle(stale, extend(1_000))), "lease_lost");
        }
        match round % 3 {
            0 => drop(stage.settle(&taken.receipt, RELEASE).unwrap()),
            1 => drop(stage.settle(&taken.receipt, retry(0)).unwrap()),
            _ => stage.advance(1_000),
        }
        receipts.push(taken.receipt);
    }
    let last = stage.taken();
    assert_eq!(stage.settle(&last.receipt, Action::Ack), Ok(Settled::Gone));
}

pub fn a_message_that_fails_again_and_again_delays_no_other(factory: &Factory) {
    let mut stage = Stage::open(factory);
    stage.put(Put { max_attempts: Some(AttemptLimit::Unlimited), ..message("poison").priority(0) });
    for round in 0..20 {
        let healthy = format!("healthy{round}");
        stage.put(message(&healthy));
        let taken = stage.take(Take::from(q()).max(2).lease_ms(1_000));
        let bodies: Vec<_> = taken.iter().map(|taken| text(&taken.message.body)).collect();
        assert_eq!(bodies, ["poison", &healthy]);
        assert_eq!(taken[1].lateness_ms, 0);
        stage.settle(&taken[1].receipt, Action::Ack).unwrap();
        match round % 2 {
            0 => drop(stage.settle(&taken[0].receipt, retry(0)).unwrap()),
            _ => stage.advance(1_000),
        }
    }
    assert_eq!(stage.stats().counts.ready, 1, "the poison itself");
}

pub fn a_stale_receipt_changes_nothing(factory: &Factory) {
    let mut stage = Stage::open(factory);
    stage.put(keyed("k", "m"));
    let lapsed = stage.taken_for(1_000).receipt;
    stage.advance(1_000);
    let released = stage.taken_for(5_000).receipt;
    stage.settle(&released, RELEASE).unwrap();
    let mut forged = stage.taken_for(60_000).receipt;
    forged.token.0 ^= 1;
    let before = stage.snapshot();
    for stale in [lapsed, released, forged] {
        for action in [Action::Ack, retry(0), BACKOFF, RELEASE, bury("x"), extend(90_000)] {
            assert_eq!(code(stage.settle(&stale, action.clone())), "lease_lost", "{action:?}");
        }
        let mut elsewhere = stale.clone();
        elsewhere.queue = queue("other");
        assert_eq!(code(stage.settle(&elsewhere, Action::Ack)), "lease_lost");
    }
    assert_eq!(stage.snapshot(), before);
}

pub fn a_bad_item_in_a_batch_fails_alone(factory: &Factory) {
    let stage = Stage::open(factory);
    let answers = stage.store().put(vec![
        message("first"),
        Put { when: When::Level(1), ..message("x") },
        keyed("k", "second"),
        keyed("k", "conflict"),
        message("third"),
    ]);
    let codes: Vec<_> =
        answers.into_iter().map(|answer| answer.map_or_else(|e| e.code(), |_| "ok")).collect();
    assert_eq!(codes, ["ok", "unknown_level", "ok", "key_taken", "ok"]);
    let taken = stage.take(Take::from(q()).max(9));
    assert_eq!(taken.len(), 3);
    let mut forged = taken[1].receipt.clone();
    forged.token.0 ^= 1;
    let settles = [taken[0].receipt.clone(), forged, taken[0].receipt.clone(), taken[2].receipt.clone()];
    let settles = settles.map(|receipt| Settle { receipt, action: Action::Ack });
    let answers = stage.store().settle(settles.to_vec());
    let codes: Vec<_> = answers.into_iter().map(|answer| answer.map_err(|e| e.code())).collect();
    assert_eq!(codes, [Ok(Settled::Gone), Err("lease_lost"), Err("lease_lost"), Ok(Settled::Gone)]);
    let held = taken[1].message.id;
    let missing = Target::Id(taken[0].message.id);
    let got = stage.store().get(q(), vec![missing.clone(), by_key("k")], false);
    let codes: Vec<_> = got.into_iter().map(|answer| answer.map_or_else(|e| e.code(), |_| "ok")).collect();
    assert_eq!(codes, ["message_not_found", "ok"]);
    let cancelled = stage.store().cancel(q(), vec![missing, by_key("k")]);
    assert_eq!(cancelled, [Ok(Cancelled::NotFound), Ok(Cancelled::Leased(held))]);
    let ids = [1, 2].map(|n| stage.put(message("moved").after_ms(n)).id);
    let moves = vec![(Target::Id(ids[0]), When::Level(3)), (Target::Id(ids[1]), When::AfterMs(7))];
    let moved = stage.store().reschedule(q(), moves);
    let codes: Vec<_> = moved.into_iter().map(|answer| answer.map_or_else(|e| e.code(), |_| "ok")).collect();
    assert_eq!(codes, ["unknown_level", "ok"]);
    assert_eq!(ids.map(|id| stage.get(id).standing.due), [stage.at(1), stage.at(7)]);
}

pub fn a_refusal_changes_nothing(factory: &Factory) {
    let mut stage = Stage::open(factory);
    let stands = stage.put(keyed("k", "stands").after_ms(5_000)).id;
    let held = stage.put(keyed("held", "held")).id;
    let receipt = stage.taken_for(60_000).receipt;
    let expires = Some(stage.at(9_000));
    let doomed = stage.put(Put { expires, ..keyed("doomed", "doomed").after_ms(1_000) }).id;
    stage.advance(10);
    let before = stage.snapshot();
    let past_9999 = When::AfterMs(u64::MAX);
    assert_eq!(code(stage.try_put(keyed("k", "x"))), "key_taken");
    assert_eq!(code(stage.try_put(keeping("held", "x"))), "leased");
    for conflict in [OnConflict::Replace, OnConflict::Keep] {
        let put = keyed("k", "x").on_conflict(conflict);
        assert_eq!(code(stage.try_put(Put { when: past_9999, ..put.clone() })), "due_out_of_range");
        assert_eq!(code(stage.try_put(Put { when: When::Level(9), ..put.clone() })), "unknown_level");
        assert_eq!(code(stage.try_put(Put { lease_ms: Some(0), ..put.clone() })), "invalid_setting");
        let expires = Some(stage.at(100));
        assert_eq!(code(stage.try_put(Put { expires, ..put.after_ms(100) })), "expires_before_due");
    }
    assert_eq!(code(stage.store().take_id(q(), held, LeaseTerms::default())), "leased");
    assert_eq!(code(stage.store().take_id(q(), stands, LeaseTerms::of_ms(0))), "invalid_setting");
    assert_eq!(code(stage.settle(&receipt, retry(u64::MAX))), "due_out_of_range");
    let release = Action::Release { after_ms: Some(u64::MAX), priority: Some(0) };
    assert_eq!(code(stage.settle(&receipt, release)), "due_out_of_range");
    assert_eq!(code(stage.settle(&receipt, extend(0))), "invalid_setting");
    assert_eq!(code(stage.try_reschedule(Target::Id(stands), past_9999)), "due_out_of_range");
    assert_eq!(code(stage.try_reschedule(Target::Id(doomed), When::AfterMs(9_000))), "expires_before_due");
    assert_eq!(stage.cancel(Target::Id(held)), Cancelled::Leased(held));
    assert_eq!(stage.snapshot(), before);
    assert_eq!(stage.settle(&receipt, Action::Ack), Ok(Settled::Gone), "the lease is still in force");
}

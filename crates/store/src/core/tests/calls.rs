//! Calls and their records, where the contract's own tests do not reach.

use dwell_model::{
    Headers, IdempotencyKey, LapseBackoff, LeaseToken, MessageId, Number, Setting, SettingChange, Settings,
    StateKind,
};

use super::*;
use crate::core::{LEASE_BYTES, ReplayError, StoredBody};
use crate::{Error, Forecast, Page, Selection, When};

#[test]
fn a_message_goes_from_put_to_ack() {
    let mut rig = Rig::new();
    let put = rig.put(put_to("q").after_ms(100), now(0)).unwrap();
    assert_eq!(put.due, at(100));
    assert_eq!(rig.take(Take::from(queue("q")), now(99)).unwrap(), []);
    let taken = rig.take(Take::from(queue("q")), now(103)).unwrap();
    assert_eq!((taken.len(), taken[0].message.id, taken[0].lateness_ms), (1, put.id, 3));
    assert_eq!(rig.settle(&taken[0].receipt, Action::Ack, now(104)), Ok(Settled::Gone));
    assert_eq!(rig.settle(&taken[0].receipt, Action::Ack, now(104)), Err(Error::LeaseLost));
    assert!(rig.core.is_empty());
    assert_eq!(rig.call(|core, log| core.queues(None, 10, now(105), log)), vec![]);
}

#[test]
fn a_log_replays_into_the_same_core_and_tokens_are_never_issued_twice() {
    let mut rig = Rig::new();
    for delay in [0, 10, 20] {
        rig.put(put_to("q").after_ms(delay), now(0)).unwrap();
    }
    let first = rig.take(Take::from(queue("q")), now(10)).unwrap().remove(0);
    let mut again = rig.reopened(now(11));
    let stats = again.call(|core, log| core.stats(&queue("q"), now(11), log)).unwrap();
    assert_eq!((stats.counts.scheduled, stats.counts.ready, stats.counts.leased), (1, 1, 1));
    let second = again.take(Take::from(queue("q")), now(11)).unwrap().remove(0);
    assert_ne!(first.receipt.token, second.receipt.token);
    assert_eq!(again.settle(&first.receipt, Action::Ack, now(12)), Ok(Settled::Gone));
    let later = again.put(put_to("q"), now(13)).unwrap();
    assert_eq!(later.number.get(), 4);
}

#[test]
fn once_ready_a_message_stays_ready_though_the_clock_steps_back_also_across_a_restart() {
    let mut rig = Rig::new();
    rig.put(put_to("q").after_ms(100), now(0)).unwrap();
    rig.call(|core, log| core.stats(&queue("other"), now(100), log)).unwrap_err();
    let stepped = Now { wall: at(50), mono_ms: 101 };
    let late = rig.put(put_to("q").after_ms(20), stepped).unwrap();
    assert_eq!(late.due, at(70));
    let stats = rig.call(|core, log| core.stats(&queue("q"), stepped, log)).unwrap();
    assert_eq!((stats.counts.scheduled, stats.counts.ready), (1, 1));
    let mut again = rig.reopened(Now { wall: at(55), mono_ms: 0 });
    let stats = again.call(|core, log| core.stats(&queue("q"), Now { wall: at(55), mono_ms: 1 }, log));
    let counts = stats.unwrap().counts;
    assert_eq!((counts.scheduled, counts.ready), (1, 1), "the one put after the step is not due before 70");
}

#[test]
fn lateness_counts_from_the_end_of_a_lapsed_lease() {
    let mut rig = Rig::new();
    rig.put(put_to("q"), now(0)).unwrap();
    rig.take(Take::from(queue("q")).lease_ms(1_000), now(500)).unwrap();
    let taken = rig.take(Take::from(queue("q")), now(1_507)).unwrap();
    assert_eq!(taken[0].lateness_ms, 7);
    rig.settle(&taken[0].receipt, Action::Release { after_ms: None, priority: None }, now(1_600)).unwrap();
    assert_eq!(rig.take(Take::from(queue("q")), now(1_604)).unwrap()[0].lateness_ms, 4);
}

#[test]
fn ids_and_numbers_run_out_with_a_refusal() {
    let mut rig = Rig::configured(CoreConfig {
        next_number: Number::MAX.get(),
        ..CoreConfig::new(Limits::default(), 0)
    });
    assert_eq!(rig.put(put_to("q"), now(0)).unwrap().number, Number::MAX);
    assert_eq!(
        rig.put(put_to("q"), now(0)),
        Err(Error::Exhausted { what: "message numbers", needs_reopen: false })
    );
    let mut rig = Rig::new();
    rig.core.next_counter = MessageId::MAX_COUNTER;
    rig.core.next_number = 1 + MessageId::MAX_COUNTER;
    assert_eq!(rig.put(put_to("q"), now(0)).unwrap().id.counter(), MessageId::MAX_COUNTER);
    assert_eq!(
        rig.put(put_to("q"), now(0)),
        Err(Error::Exhausted { what: "message ids", needs_reopen: true })
    );
    assert_eq!(rig.core.len(), 1);
}

#[test]
fn idempotency_keys_have_a_limit_and_come_again_when_theirs_have_run_out() {
    let mut rig = Rig::with(Limits { idempotency_keys: 3, ..Limits::default() });
    let put = |rig: &mut Rig, n: u64, ms: u64| {
        let idempotency_key = IdempotencyKey::new(&format!("token-{n}")).unwrap();
        rig.put(put_to("q").idempotency_key(idempotency_key), now(ms))
    };
    let first: Vec<PutAnswer> = (0..3).map(|n| put(&mut rig, n, n).unwrap()).collect();
    let refused = put(&mut rig, 3, 10).unwrap_err();
    assert_eq!((refused.code(), refused.is_retryable()), ("overloaded", true));
    assert_eq!(put(&mut rig, 1, 10).as_ref(), Ok(&first[1]), "it is known");
    rig.put(put_to("q"), now(10)).unwrap();
    assert_eq!(rig.core.others_len().0, 3);
    let ttl = Settings::default().idempotency_ms;
    let later = (0..10).find_map(|s| put(&mut rig, 3, ttl + 1_000 * s).ok());
    assert_ne!(later.unwrap().id, first[0].id);
    assert!(rig.core.others_len().0 <= 3);
}

#[test]
fn puts_of_a_queue_with_as_many_idempotency_keys_as_may_be_drop_no_more_of_others_than_one_such_put() {
    const OTHERS: u64 = 40_000;
    let mut rig = Rig::with(Limits { idempotency_keys_per_queue: 4, ..Limits::default() });
    let idempotency_key = |n: u64| IdempotencyKey::new(&format!("token-{n}")).unwrap();
    let named = |name: &str, n: u64| put_to(name).idempotency_key(idempotency_key(n));
    // Checking all indexes after each call would take too long.
    let Rig { core, log, .. } = &mut rig;
    let idempotency_keys_for = |ms| vec![SettingChange::Set(Setting::IdempotencyMs(ms))];
    core.configure(&queue("a"), idempotency_keys_for(3_600_000), now(0), log).unwrap();
    for n in 0..OTHERS / 4 {
        let name = format!("other-{n}");
        core.configure(&queue(&name), idempotency_keys_for(1_000), now(0), log).unwrap();
        let puts = (0..4).map(|idempotency_key| named(&name, idempotency_key)).collect();
        assert!(core.put(puts, now(0), log).iter().all(Result::is_ok));
    }
    assert!(core.put((0..4).map(|n| named("a", n)).collect(), now(0), log).iter().all(Result::is_ok));
    assert_eq!(core.others_len().0, OTHERS as usize + 4);
    let late = now(10_000);
    let mut left = core.others_len().0;
    for turn in 0..2 {
        let answers = core.put((4..14).map(|n| named("a", n + 10 * turn)).collect(), late, log);
        assert!(
            answers.iter().all(|answer| answer.as_ref().is_err_and(|refusal| refusal.code() == "overloaded"))
        );
        let dropped = left - core.others_len().0;
        assert!(
            (4_096..=4_096 + 30).contains(&dropped),
            "{dropped} idempotency keys are dropped in one turn"
        );
        left -= dropped;
        core.serve(late, log);
    }
}

#[test]
fn a_log_that_is_not_this_cores_is_refused() {
    let mut rig = Rig::new();
    let put = rig.put(put_to("q").key("k".parse().unwrap()), now(0)).unwrap();
    let LoggedFact::Put(record, body) = rig.log.0[0].clone() else { panic!("the first record is the put") };
    let mut again = rig.replayed();
    let refuse =
        |again: &mut Rig, record: PutRecord| again.core.replay_put(record, body.clone()).unwrap_err().reason;
    assert_eq!(refuse(&mut again, record.clone()), "was put twice");
    let other = Number::new(6).unwrap();
    let next = |shard, incarnation, counter| PutRecord {
        number: other,
        id: MessageId::new(at(0), shard, incarnation, counter),
        ..record.clone()
    };
    assert_eq!(refuse(&mut again, next(0, 0, 5)), "has the key of another live message");
    assert_eq!(refuse(&mut again, next(0, 1, 5)), "was put by this incarnation or a later one");
    let keyless = |record| PutRecord { key: None, ..record };
    assert_eq!(refuse(&mut again, keyless(next(1, 0, 5))), "is of another shard");
    assert_eq!(refuse(&mut again, keyless(next(0, 0, 4))), "has a number that is out of step with its id");
    let ReplayError { number, .. } = again.core.replay(Record::Gone { number: other }).unwrap_err();
    assert_eq!(number, other);
    again.core.check();
    assert_eq!(again.core.body_of(put.number).map(StoredBody::body_len), Some(4));
}

#[test]
fn sweeping_a_queue_is_one_record() {
    let mut rig = Rig::new();
    for _ in 0..10 {
        rig.put(put_to("q").after_ms(5), now(0)).unwrap();
    }
    let taken = rig.take(Take::from(queue("q")).max(6), now(5)).unwrap();
    for delivery in &taken[..5] {
        rig.settle(&delivery.receipt, Action::Bury { reason: None, priority: None }, now(6)).unwrap();
    }
    let all = |rig: &mut Rig, wanted: &dyn Fn(&Record) -> bool| {
        let told = std::mem::take(&mut rig.log.0);
        let records: Vec<&Record> = told
            .iter()
            .filter_map(|told| if let LoggedFact::Record(record, _) = told { Some(record) } else { None })
            .collect();
        assert_eq!(records.len(), 1, "{records:?}");
        assert!(wanted(records[0]), "{records:?}");
    };
    rig.log.0.clear();
    assert_eq!(rig.call(|core, log| core.purge(&queue("q"), now(7), log)), Ok(4));
    all(&mut rig, &|record| matches!(record, Record::Purged { .. }));
    assert_eq!(rig.revive(&queue("q"), Selection::All, When::AfterMs(9), now(8)).unwrap().done, 5);
    let told = std::mem::take(&mut rig.log.0);
    let stands =
        |told: &&LoggedFact| matches!(told, LoggedFact::Record(Record::Stands { .. }, Durability::Synced));
    assert_eq!(told.iter().filter(stands).count(), 5, "each stands for itself: {told:?}");
    assert_eq!(rig.call(|core, log| core.delete_queue(&queue("q"), now(9), log)), 5);
    all(&mut rig, &|record| matches!(record, Record::Deleted { .. }));
    let stats = rig.call(|core, log| core.stats(&queue("q"), now(9), log)).unwrap();
    assert_eq!((stats.counts.leased, stats.counts.scheduled), (1, 0));
    assert_eq!(rig.settle(&taken[5].receipt, Action::Ack, now(9)), Ok(Settled::Gone));
    rig.log.0.clear();
    assert_eq!(rig.call(|core, log| core.purge(&queue("q"), now(9), log)), Ok(0));
    assert!(
        matches!(rig.log.0[..], [LoggedFact::Time(_)]),
        "a purge of nothing records nothing: {:?}",
        rig.log.0
    );
}

#[test]
fn an_id_named_twice_is_swept_once() {
    let mut rig = Rig::new();
    let id = rig.put(put_to("q"), now(0)).unwrap().id;
    let taken = rig.take(Take::from(queue("q")), now(0)).unwrap();
    rig.settle(&taken[0].receipt, Action::Bury { reason: None, priority: None }, now(1)).unwrap();
    let twice = Selection::Ids(vec![id, id]);
    let revived = rig.revive(&queue("q"), twice.clone(), When::Now, now(2)).unwrap();
    assert_eq!((revived.done, revived.refused), (1, vec![(id, Error::NotDead { id })]));
    let taken = rig.take(Take::from(queue("q")), now(2)).unwrap();
    rig.settle(&taken[0].receipt, Action::Bury { reason: None, priority: None }, now(3)).unwrap();
    let discarded = rig.discard(&queue("q"), twice, now(4)).unwrap();
    assert_eq!(
        (discarded.done, discarded.refused),
        (1, vec![(id, Error::MessageNotFound { queue: queue("q") })])
    );
}

#[test]
fn lists_select_what_does_not_lie_in_order() {
    let mut rig = Rig::new();
    for (delay, priority) in [(30, 5), (10, 7), (20, 6), (10, 5)] {
        rig.put(put_to("q").after_ms(delay).priority(priority), now(0)).unwrap();
    }
    for (state, moment) in [(StateKind::Scheduled, 0), (StateKind::Ready, 30), (StateKind::Leased, 31)] {
        if state == StateKind::Leased {
            rig.take(Take::from(queue("q")).max(9), now(30)).unwrap();
        }
        let mut seen = Vec::new();
        let mut after = None;
        loop {
            let page =
                rig.call(|core, log| core.list(&queue("q"), state, after, 3, now(moment), log)).unwrap();
            seen.extend(page.messages.iter().map(|message| (message.standing.due, message.id)));
            let Some(next) = page.next else { break };
            after = Some(next);
        }
        assert_eq!(seen.len(), 4, "{state}");
        assert!(seen.is_sorted(), "{state}: {seen:?}");
    }
}

#[test]
fn a_page_ends_where_its_bodies_pass_what_one_may_hold() {
    let limits = Limits { body_len: 2 * Page::MAX_BYTES, ..Limits::default() };
    let pages_of = |lengths: &[usize]| {
        let mut rig = Rig::with(limits.clone());
        for length in lengths {
            rig.put(Put::new(queue("q"), vec![0_u8; *length]), now(0)).unwrap();
        }
        let (mut pages, mut after) = (Vec::new(), None);
        loop {
            let page = rig.core.list(&queue("q"), StateKind::Ready, after, 9, now(0), &mut rig.log).unwrap();
            pages.push(page.messages.len());
            let Some(next) = page.next else { return pages };
            after = Some(next);
        }
    };
    let most = Page::MAX_BYTES;
    assert_eq!(pages_of(&[most / 2, most / 2, 1]), [2, 1]);
    assert_eq!(pages_of(&[most / 2, most / 2]), [2]);
    assert_eq!(pages_of(&[most / 2, most / 2 + 1]), [1, 1]);
    assert_eq!(pages_of(&[most + 1, 1]), [1, 1], "one goes in, whatever its size");
    assert_eq!(pages_of(&[most + 1]), [1], "and none is left behind it");
}

#[test]
fn lease_tokens_name_shard_and_incarnation() {
    let config = CoreConfig { shard: 3, incarnation: 5, ..CoreConfig::new(Limits::default(), 0) };
    let mut rig = Rig::configured(config);
    rig.put(put_to("q"), now(0)).unwrap();
    let taken = rig.take(Take::from(queue("q")), now(0)).unwrap();
    assert_eq!(taken[0].receipt.token, LeaseToken((5 << 80) | (3 << 64)));
}

/// The weight of messages determines how many are resident.
#[test]
fn a_message_weighs_what_its_texts_take() {
    fn weight(key: &str, headers: &[(&str, &str)], error: &str) -> usize {
        let mut rig = Rig::new();

        let put = Put {
            headers: Headers::new(headers.iter().copied()).unwrap(),
            ..put_to("q").key(key.parse().unwrap())
        };
        rig.put(put, now(0)).unwrap();
        let taken = rig.take(Take::from(queue("q")), now(0)).unwrap();
        let retry = Action::Retry { after_ms: Some(9), error: Some(error.into()), priority: None };
        rig.settle(&taken[0].receipt, retry, now(0)).unwrap();
        rig.core.weight()
    }
    let (long, short) = ("0123456789", "0");
    let least = weight(short, &[], short);
    assert_eq!(weight(long, &[], short), least + 9);
    assert_eq!(weight(short, &[], long), least + 9);
    let with_header = weight(short, &[(short, short)], short);
    // The overhead of a text besides its bytes, for name and value.
    assert_eq!(with_header, least + 2 + 2 * 32);
    assert_eq!(weight(short, &[(long, long)], short), with_header + 18);
    assert_eq!(weight(short, &[("a", short), ("b", short)], short) - with_header, with_header - least);
}

#[test]
fn a_lease_weighs_something_as_long_as_it_is_in_force() {
    let mut rig = Rig::new();
    assert_eq!(rig.core.weight(), 0);
    rig.put(put_to("q"), now(0)).unwrap();
    rig.put(put_to("q"), now(0)).unwrap();
    let without = rig.core.weight();
    assert!(without > 0);
    let mut taken = rig.take(Take::from(queue("q")), now(0)).unwrap();
    assert_eq!(rig.core.weight(), without + LEASE_BYTES);
    taken.extend(rig.take(Take::from(queue("q")), now(0)).unwrap());
    assert_eq!(rig.core.weight(), without + 2 * LEASE_BYTES);
    for delivery in taken {
        rig.settle(&delivery.receipt, Action::Ack, now(1)).unwrap();
    }
    assert_eq!(rig.core.weight(), 0);
}

/// A lease that runs out may leave its message scheduled, and a retry may name an instant past the expiry.
#[test]
fn a_forecast_of_all_queues_is_as_of_now() {
    let mut rig = Rig::new();
    let change = SettingChange::Set(Setting::LapseBackoff(LapseBackoff::First));
    rig.call(|core, log| core.configure(&queue("q"), vec![change], now(0), log)).unwrap();
    rig.put(put_to("q"), now(0)).unwrap();
    rig.put(Put { expires: Some(at(300)), ..put_to("q") }, now(0)).unwrap();
    let taken = rig.take(Take::from(queue("q")).max(2).lease_ms(100), now(0)).unwrap();
    let retry = Action::Retry { after_ms: Some(5_000), error: None, priority: None };
    rig.settle(&taken[1].receipt, retry, now(10)).unwrap();
    let mut all = |at_ms| rig.call(|core, log| core.forecast_page(None, 9, &[at(60_000)], now(at_ms), log)).0;
    assert_eq!(all(200), Forecast { scheduled: 2, due_by: vec![2], within: 0 });
    assert_eq!(all(300), Forecast { scheduled: 1, due_by: vec![1], within: 0 });
}

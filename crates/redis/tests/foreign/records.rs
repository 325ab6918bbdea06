//! Records of messages that are damaged: refused, buried or named, and no other message is held up.

use super::*;

/// The record of a leased message was overwritten: as put, and in the long form.
#[tokio::test]
async fn a_leased_record_that_was_damaged_is_refused_at_each_settlement_and_when_its_lease_runs_out() {
    for damage in [&b"mine"[..], b"\xc1", b"\x80", b"\x04", b""] {
        for is_long in [false, true] {
            let mut redis = Redis::start();
            let clock = ManualClock::new(Timestamp::from_ms(START_MS).unwrap());
            let shared: Arc<dyn Clock> = Arc::new(clock.clone());
            let store = open(redis.server.address(), &shared).await.unwrap();
            let body = if is_long { message("damaged").priority(7) } else { message("damaged") };
            let id = one(store.put(vec![body])).await.unwrap().id;
            let damaged = store.take(Take::from(queue()).lease_ms(30_000)).await.unwrap().pop().unwrap();
            one(store.put(vec![message("whole").priority(9)])).await.unwrap();
            let whole = store.take(Take::from(queue()).lease_ms(60_000)).await.unwrap().pop().unwrap();
            let records = redis.partition() + "records";
            let field = id.as_bits().to_be_bytes()[8..].to_vec();
            let record: Vec<u8> = redis.command(&[b"HGET", records.as_bytes(), &field]);
            redis.command::<Value>(&[b"HSET", records.as_bytes(), &field, damage]);
            let before = redis.held();
            let settle = |receipt: &Receipt, action| vec![Settle { receipt: receipt.clone(), action }];
            let refused =
                async |action| one(store.settle(settle(&damaged.receipt, action))).await.unwrap_err();
            let retry = Action::Retry { after_ms: Some(1), error: Some("e".into()), priority: None };
            for action in [
                Action::Extend { lease_ms: None },
                retry,
                Action::Release { after_ms: None, priority: None },
                Action::Bury { reason: None, priority: None },
            ] {
                assert_foreign(&refused(action).await, &records, "a settlement");
            }
            if is_long {
                assert_foreign(&refused(Action::Ack).await, &records, "an ack");
            }
            assert_foreign(
                &store.take_id(queue(), id, LeaseTerms::default()).await.unwrap_err(),
                &records,
                "a take",
            );
            assert_foreign(
                &one(store.get(queue(), vec![Target::Id(id)], false)).await.unwrap_err(),
                &records,
                "a get",
            );
            assert_eq!(changed(&before, &redis.held()), [""; 0], "{damage:?}");
            // The lease runs out: each call reports it, and does nothing.
            clock.advance(31_000);
            for refused in [
                store.stats(queue()).await.map(drop),
                store.take(Take::from(queue())).await.map(drop),
                one(store.put(vec![message("new")])).await.map(drop),
                one(store.settle(settle(&whole.receipt, Action::Ack))).await.map(drop),
            ] {
                assert_foreign(&refused.unwrap_err(), &records, "a call after the deadline");
            }
            assert_eq!(changed(&before, &redis.held()), [""; 0], "{damage:?}");
            // Once repaired, it is what it was: its lease has run out, and the other one is still leased.
            redis.command::<Value>(&[b"HSET", records.as_bytes(), &field, &record]);
            assert_eq!(one(store.settle(settle(&whole.receipt, Action::Ack))).await, Ok(Settled::Gone));
            assert_eq!(one(store.settle(settle(&damaged.receipt, Action::Ack))).await, Err(Error::LeaseLost));
            let again = store.take(Take::from(queue())).await.unwrap().pop().unwrap();
            assert_eq!((again.message.id, &again.message.body[..]), (id, &b"damaged"[..]));
        }
    }
}

/// A record that is a table of fields, as ours are, one of which has a type or a value that we never write.
#[tokio::test]
async fn a_record_with_a_field_of_another_type_is_refused_and_nothing_is_changed() {
    let mut redis = Redis::start();
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(Timestamp::from_ms(START_MS).unwrap()));
    let store = open(redis.server.address(), &clock).await.unwrap();
    let headers = Headers::new([("content-type", "text/plain")]).unwrap();
    let damaged = || Put { headers: headers.clone(), ..message("damaged").priority(7).key(key("k")) };
    let id = one(store.put(vec![damaged()])).await.unwrap().id;
    one(store.put(vec![message("whole").priority(9)])).await.unwrap();
    let records = redis.partition() + "records";
    let field = id.as_bits().to_be_bytes()[8..].to_vec();
    let counts = ["'x'", "{}", "-1", "1.5", "true", "0/0"];
    let instants = ["'x'", "{}", "-1", "253402300800000"];
    let mut wrong: Vec<(&str, &str)> = Vec::new();
    for name in ["a", "t", "l", "r", "b", "v", "M", "L", "E"] {
        wrong.extend(counts.iter().map(|value| (name, *value)));
    }
    for name in ["d", "c", "x", "y"] {
        wrong.extend(instants.iter().map(|value| (name, *value)));
    }
    wrong.extend([("p", "4294967296"), ("p", "'x'"), ("s", "1"), ("s", "'x'"), ("d", "nil"), ("c", "nil")]);
    wrong.extend([
        ("k", "7"),
        ("k", "{}"),
        ("k", "''"),
        ("k", "string.rep('k', 513)"),
        ("e", "7"),
        ("e", "{}"),
    ]);
    wrong.extend([("h", "'x'"), ("h", "7"), ("K", "'x'"), ("i", "string.sub(r.i, 1, 15)"), ("i", "7")]);
    wrong.extend([("i", "string.rep('x', 8) .. string.sub(r.i, 9)")]);
    // Leased or dead, and without the fields that this needs.
    wrong.extend([("s", "2"), ("s", "3")]);
    let write = "local r = cmsgpack.unpack(redis.call('HGET', KEYS[1], ARGV[1])) \
                 r[ARGV[2]] = loadstring('local r = ... return ' .. ARGV[3])(r) \
                 redis.call('HSET', KEYS[1], ARGV[1], cmsgpack.pack(r))";
    let whole = redis.all();
    for (name, value) in wrong {
        let what = format!("{name} is {value}");
        redis.restore(&whole);
        let words = [
            &b"EVAL"[..],
            write.as_bytes(),
            b"1",
            records.as_bytes(),
            &field,
            name.as_bytes(),
            value.as_bytes(),
        ];
        redis.command::<Value>(&words);
        let before = redis.held();
        let target = || Target::Key(key("k"));
        for refused in [
            store.take(Take::from(queue())).await.map(drop),
            store.take(Take::from(queue()).max(10)).await.map(drop),
            store.take_id(queue(), id, LeaseTerms::default()).await.map(drop),
            one(store.get(queue(), vec![Target::Id(id)], false)).await.map(drop),
            one(store.cancel(queue(), vec![target()])).await.map(drop),
            one(store.reschedule(queue(), vec![(target(), When::Now)])).await.map(drop),
            one(store.put(vec![damaged()])).await.map(drop),
        ] {
            assert_foreign(&refused.expect_err(&what), &records, &what);
        }
        let after = redis.held();
        // A take finds what is due, and puts it into order before any of it is read.
        let changed: Vec<_> = changed(&before, &after)
            .into_iter()
            .filter(|key| {
                ![":pending-urgent", ":ready", ":ready-by-due"].iter().any(|end| key.ends_with(end))
            })
            .collect();
        assert_eq!(changed, [""; 0], "{what}");
    }
    redis.restore(&whole);
    let taken = store.take(Take::from(queue()).max(10)).await.unwrap();
    assert_eq!((taken.len(), taken[0].message.id, &taken[0].message.headers), (2, id, &headers));
}

/// Damage that no script sees, such as invalid UTF-8: the message is not handed out, and the others of its batch are.
#[tokio::test]
async fn a_message_that_cannot_be_read_dies_of_it_and_keeps_nobody_from_the_others() {
    let mut redis = Redis::start();
    let clock = ManualClock::new(Timestamp::from_ms(START_MS).unwrap());
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let store = open(redis.server.address(), &shared).await.unwrap();
    let headers = Headers::new([("a", "b")]).unwrap();
    let max_attempts = Some(AttemptLimit::At(3.try_into().unwrap()));
    let damaged = Put { headers, max_attempts, ..message("damaged") };
    let id = one(store.put(vec![damaged])).await.unwrap().id;
    let field = id.as_bits().to_be_bytes()[8..].to_vec();
    let headers = redis.partition() + "headers";
    redis.command::<Value>(&[b"HSET", headers.as_bytes(), &field, b"\0\x01a\0\x01\xff"]);
    one(store.put(vec![message("whole")])).await.unwrap();
    let taken = store.take(Take::from(queue()).max(10).lease_ms(60_000)).await.unwrap();
    assert_eq!(taken.len(), 1);
    assert_eq!(&taken[0].message.body[..], b"whole");
    let ack = Settle { receipt: taken[0].receipt.clone(), action: Action::Ack };
    assert_eq!(store.settle(vec![ack]).await, [Ok(Settled::Gone)]);
    for _ in 0..2 {
        clock.advance(60_000);
        let refused = store.take(Take::from(queue()).lease_ms(60_000)).await.unwrap_err();
        assert_foreign(&refused, "orders", "a take");
    }
    clock.advance(60_000);
    assert!(store.take(Take::from(queue())).await.unwrap().is_empty());
    let counts = store.stats(queue()).await.unwrap().counts;
    assert_eq!((counts.ready, counts.leased, counts.dead), (0, 0, 1));
}

/// One of five messages has an overwritten record, or headers that are not text: a list names it and shows the
/// others.
#[tokio::test]
async fn a_message_that_cannot_be_read_is_named_in_lists_and_the_others_are_shown() {
    let mut redis = Redis::start();
    let clock = ManualClock::new(Timestamp::from_ms(START_MS).unwrap());
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let store = open(redis.server.address(), &shared).await.unwrap();
    for state in [StateKind::Scheduled, StateKind::Ready, StateKind::Leased, StateKind::Dead] {
        redis.command::<Value>(&[b"FLUSHALL"]);
        let after_ms = if state == StateKind::Scheduled { MINUTE_MS } else { 0 };
        let mut ids = Vec::new();
        for n in 0..5 {
            let headers = Headers::new([("a", "b")]).unwrap();
            let put = Put { headers, ..message("m").priority(7).after_ms(after_ms + n) };
            ids.push(one(store.put(vec![put])).await.unwrap().id);
        }
        clock.advance(10);
        if matches!(state, StateKind::Leased | StateKind::Dead) {
            for id in &ids {
                let receipt =
                    store.take_id(queue(), *id, LeaseTerms::of_ms(8 * MINUTE_MS)).await.unwrap().receipt;
                if state == StateKind::Dead {
                    let action = Action::Bury { reason: None, priority: None };
                    assert!(one(store.settle(vec![Settle { receipt, action }])).await.is_ok());
                }
            }
        }
        let whole = redis.all();
        let field = ids[2].as_bits().to_be_bytes()[8..].to_vec();
        let partition = redis.partition();
        for (name, value) in [("records", &b"mine"[..]), ("headers", b"\0\x01a\0\x01\xff")] {
            redis.restore(&whole);
            redis.command::<Value>(&[b"HSET", (partition.clone() + name).as_bytes(), &field, value]);
            for max in [1, 2, 100] {
                let what = format!("{state:?}, {name}, pages of {max}");
                let (mut shown, mut unread, mut after) = (Vec::new(), Vec::new(), None);
                for _ in 0..=ids.len() {
                    let page = within(store.list(queue(), state, after, max)).await;
                    let page = page.unwrap_or_else(|error| panic!("{what}: {error}"));
                    assert!(page.messages.len() + page.unread.len() <= max, "{what}");
                    shown.extend(page.messages.iter().map(|message| message.id));
                    unread.extend(page.unread);
                    after = page.next;
                    if after.is_none() {
                        break;
                    }
                }
                assert_eq!(after, None, "{what}");
                assert_eq!(shown, [ids[0], ids[1], ids[3], ids[4]], "{what}");
                assert_eq!(unread.len(), 1, "{what}");
                assert_eq!(unread[0].0, ids[2], "{what}");
                assert_foreign(&unread[0].1, "", &what);
            }
        }
    }
}

/// The same where the others lie in another queue.
#[tokio::test]
async fn a_message_that_cannot_be_read_costs_no_other_queue_an_attempt() {
    let mut redis = Redis::start();
    let clock = ManualClock::new(Timestamp::from_ms(START_MS).unwrap());
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let store = open(redis.server.address(), &shared).await.unwrap();
    let headers = Headers::new([("a", "b")]).unwrap();
    let id = one(store.put(vec![Put { headers, ..message("damaged") }])).await.unwrap().id;
    let field = id.as_bits().to_be_bytes()[8..].to_vec();
    let headers = redis.partition() + "headers";
    redis.command::<Value>(&[b"HSET", headers.as_bytes(), &field, b"\0\x01a\0\x01\xff"]);
    let good = QueueName::new("good").unwrap();
    one(store.put(vec![Put::new(good.clone(), "whole")])).await.unwrap();
    let taken = store.take(Take::from_all([queue(), good.clone()]).max(10)).await.unwrap();
    let bodies: Vec<_> =
        taken.iter().map(|one| (&one.message.body[..], one.message.standing.attempt())).collect();
    assert_eq!(bodies, [(&b"whole"[..], 1)]);
    let ack = Settle { receipt: taken[0].receipt.clone(), action: Action::Ack };
    assert_eq!(store.settle(vec![ack]).await, [Ok(Settled::Gone)]);
}

/// An ack of a message as put reads the lease alone; and in a batch, a damaged one fails alone.
#[tokio::test]
async fn a_leased_record_that_was_damaged_fails_alone_in_a_batch() {
    let mut redis = Redis::start();
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(Timestamp::from_ms(START_MS).unwrap()));
    let store = open(redis.server.address(), &clock).await.unwrap();
    for long in [false, true, false, true] {
        let put = if long { message("m").priority(7) } else { message("m") };
        one(store.put(vec![put])).await.unwrap();
    }
    let taken = store.take(Take::from(queue()).max(4)).await.unwrap();
    let (long, fresh): (Vec<_>, Vec<_>) =
        taken.into_iter().partition(|delivery| delivery.message.standing.priority == 7);
    let records = redis.partition() + "records";
    for delivery in [&long[0], &fresh[0]] {
        let field = delivery.message.id.as_bits().to_be_bytes()[8..].to_vec();
        redis.command::<Value>(&[b"HSET", records.as_bytes(), &field, b"mine"]);
    }
    let extend =
        |receipt: &Receipt| Settle { receipt: receipt.clone(), action: Action::Extend { lease_ms: None } };
    let ack = |receipt: &Receipt| Settle { receipt: receipt.clone(), action: Action::Ack };
    let all = [&long[0], &long[1], &fresh[0], &fresh[1]].map(|delivery| &delivery.receipt);
    let extended = store.settle(all.map(extend).to_vec()).await;
    assert!(extended[1].is_ok() && extended[3].is_ok(), "{extended:?}");
    for refused in [&extended[0], &extended[2]] {
        assert_foreign(refused.as_ref().unwrap_err(), &records, "an extension");
    }
    let acked = store.settle(all.map(ack).to_vec()).await;
    assert_foreign(acked[0].as_ref().unwrap_err(), &records, "an ack");
    assert_eq!((&acked[1], &acked[3]), (&Ok(Settled::Gone), &Ok(Settled::Gone)));
    // Together with leases in the long form its record is read, and found to be damaged; alone it is acked.
    assert_foreign(acked[2].as_ref().unwrap_err(), &records, "an ack beside others");
    assert_eq!(store.settle(vec![ack(all[2])]).await, [Ok(Settled::Gone)]);
}

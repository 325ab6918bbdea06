//! A key of another type under each name of the layout, and fields and members that we have not written.

use super::*;

/// Calls each operation on a queue of which one key after the other is foreign.
async fn spoil_each_key(after_ms: u64, with_session: bool, looks_alike: bool) {
    let mut redis = Redis::start();
    let clock = ManualClock::new(Timestamp::from_ms(START_MS).unwrap());
    let stage = Stage::set(&redis, &(Arc::new(clock.clone()) as Arc<dyn Clock>), with_session).await;
    clock.advance(after_ms);
    let whole = redis.all();
    let partition = redis.partition();
    let there = redis.held();
    for name in SORTED_SETS.into_iter().chain(HASHES) {
        let is_there = there.contains_key(format!("{partition}{name}").as_bytes());
        assert!(
            is_there || name == "purged" || (name == "session-leases" && !with_session),
            "nothing lies under {name}"
        );
    }
    let expected = stage.messages().await;
    for name in SORTED_SETS.into_iter().chain(HASHES) {
        let key = format!("{partition}{name}");
        let mut spoiled = whole.clone();
        redis.restore(&whole);
        redis.spoil(&key, looks_alike);
        spoiled.insert(key.clone().into_bytes(), redis.all()[key.as_bytes()].clone());
        let mut refusing = Vec::new();
        for (operation, call) in OPERATIONS {
            let what = format!("{operation} while {name} is another's");
            redis.restore(&spoiled);
            let before = redis.held();
            match within(call(&stage)).await {
                Err(refused) => {
                    assert_foreign(&refused, &key, &what);
                    let changed = changed(&before, &redis.held());
                    assert!(changed.is_empty(), "{what}: {changed:?} changed although {refused}");
                    refusing.push((operation, call));
                }
                Ok(()) => assert_eq!(redis.held()[key.as_bytes()], before[key.as_bytes()], "{what}"),
            }
        }
        assert!(!refusing.is_empty(), "{name} matters to nobody");
        // The calls are refused one after the other; then the key is restored.
        redis.restore(&spoiled);
        for (operation, call) in refusing {
            assert!(within(call(&stage)).await.is_err(), "{operation} while {name} is another's");
        }
        redis.command::<Value>(&[b"DEL", key.as_bytes()]);
        if let Some(dump) = whole.get(key.as_bytes()) {
            redis.command::<Value>(&[b"RESTORE", key.as_bytes(), b"0", dump]);
        }
        assert_eq!(stage.messages().await, expected, "{name} was another's");
        let taken = stage.store.take(Take::from(queue()).max(128)).await.unwrap();
        let mut delivered: Vec<_> = taken.iter().map(|delivery| delivery.message.id).collect();
        let ready = expected.iter().filter(|(_, state)| *state == "ready").map(|(id, _)| *id);
        delivered.sort();
        assert_eq!(delivered, ready.collect::<Vec<_>>(), "{name} was another's");
        for delivery in taken {
            assert_eq!(
                one(stage.store.settle(vec![Settle { receipt: delivery.receipt, action: Action::Ack }]))
                    .await,
                Ok(Settled::Gone)
            );
        }
    }
}

#[tokio::test]
async fn a_key_of_another_type_refuses_what_needs_it_and_nothing_is_changed() {
    spoil_each_key(0, false, false).await;
}

#[tokio::test]
async fn a_key_that_looks_like_ours_refuses_what_needs_it_and_nothing_is_changed() {
    spoil_each_key(0, true, true).await;
}

/// Leases have run out, expiries have come, and no script has seen it yet.
#[tokio::test]
async fn a_key_of_another_type_refuses_what_time_brings_about_and_nothing_is_changed() {
    spoil_each_key(11 * MINUTE_MS, true, false).await;
}

/// Calls each operation on what is spoilt: it works as always, or is refused and has changed nothing.
async fn call_each(redis: &mut Redis, stage: &Stage, what: &str) -> usize {
    let spoiled = redis.all();
    let mut refusals = 0;
    for (operation, call) in OPERATIONS {
        redis.restore(&spoiled);
        let before = redis.held();
        if let Err(refused) = within(call(stage)).await
            // A message that is no longer found is reported as missing.
            && !matches!(refused, Error::MessageNotFound { .. } | Error::LeaseLost)
        {
            let what = format!("{operation} while {what}");
            assert_foreign(&refused, "", &what);
            let changed = changed(&before, &redis.held());
            assert!(changed.is_empty(), "{what}: {changed:?} changed although {refused}");
            refusals += 1;
        }
    }
    refusals
}

#[tokio::test]
async fn a_field_that_nobody_of_us_has_written_is_refused_and_nothing_is_changed() {
    let mut redis = Redis::start();
    let clock = ManualClock::new(Timestamp::from_ms(START_MS).unwrap());
    let stage = Stage::set(&redis, &(Arc::new(clock.clone()) as Arc<dyn Clock>), true).await;
    let partition = redis.partition();
    for after_ms in [0, 9 * MINUTE_MS] {
        clock.advance(after_ms);
        stage.come_to_rest().await;
        let whole = redis.all();
        for name in HASHES {
            let key = format!("{partition}{name}");
            let fields: Vec<Vec<u8>> = redis.command(&[b"HKEYS", key.as_bytes()]);
            let mut refusals = 0;
            for field in &fields {
                for value in [&b"mine"[..], b"\xc1", b"\x80", b"\x04mine", b""] {
                    redis.restore(&whole);
                    redis.command::<Value>(&[b"HSET", key.as_bytes(), field, value]);
                    let what = format!("{} of {name} is {value:?}", String::from_utf8_lossy(field));
                    refusals += call_each(&mut redis, &stage, &what).await;
                }
            }
            // Bodies and headers belong to the callers; what `due-index` and `waiters` hold may be wrong.
            assert!(
                refusals > 0 || ["bodies", "headers", "due-index", "waiters", "purged"].contains(&name),
                "nobody reads {name}"
            );
            redis.restore(&whole);
        }
    }
}

#[tokio::test]
async fn a_member_that_nobody_of_us_has_written_is_refused_and_nothing_is_changed() {
    let mut redis = Redis::start();
    let clock = ManualClock::new(Timestamp::from_ms(START_MS).unwrap());
    let stage = Stage::set(&redis, &(Arc::new(clock.clone()) as Arc<dyn Clock>), true).await;
    stage.come_to_rest().await;
    let whole = redis.all();
    let partition = redis.partition();
    for name in SORTED_SETS {
        let key = format!("{partition}{name}");
        let mut refusals = 0;
        for member in [&b"mine"[..], b"sixteen letters:", b"longer than any id, and as long as a message"] {
            for score in [&b"1"[..], b"253402300799999"] {
                redis.restore(&whole);
                redis.command::<Value>(&[b"ZADD", key.as_bytes(), score, member]);
                let what = format!("{} lies in {name}", String::from_utf8_lossy(member));
                refusals += call_each(&mut redis, &stage, &what).await;
            }
        }
        // Unused blocks of numbers, idempotency keys and processes are skipped.
        assert!(
            refusals > 0 || ["due-index-until", "idempotency-until", "session-leases"].contains(&name),
            "nobody reads {name}"
        );
    }
}

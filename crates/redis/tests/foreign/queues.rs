//! Queues and a directory that are out of order: other queues are served all the same.

use super::*;

/// One queue that is out of order, and others.
#[tokio::test]
async fn what_is_wrong_with_a_queue_is_nobody_elses_trouble() {
    let mut redis = Redis::start();
    let clock = ManualClock::new(Timestamp::from_ms(START_MS).unwrap());
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let address = redis.server.address::<dwell_redis::Address>().with_client("somebody");
    let store = open(address.clone(), &shared).await.unwrap();
    one(store.put(vec![message("bad"), message("bad too")])).await.unwrap();
    let leases = redis.partition() + "leases";
    let good = QueueName::new("good").unwrap();
    let put = async |body: &'static str| one(store.put(vec![Put::new(good.clone(), body)])).await.unwrap().id;
    let held = Take::from_all([queue(), good.clone()]).max(3).session();
    put("bound").await;
    assert_eq!(store.take(held.clone()).await.unwrap().len(), 3);
    for name in [queue(), good.clone()] {
        one(store.put(vec![Put::new(name, "later").after_ms(10 * MINUTE_MS)])).await.unwrap();
    }
    redis.spoil(&leases, false);
    let id = put("good").await;
    // A process opens: it frees what the earlier one of its name had bound, where it can.
    let other = open(address.clone(), &shared).await.unwrap();
    assert_foreign(&other.take(Take::from(queue())).await.unwrap_err(), &leases, "the queue itself");
    let taken = other.take(Take::from(good.clone()).max(10)).await.unwrap();
    assert_eq!(taken.len(), 2, "one that was bound, and one that was there");
    let give_back = |delivery: dwell_store::Delivery| {
        let action = Action::Release { after_ms: None, priority: None };
        Settle { receipt: delivery.receipt, action }
    };
    other.settle(taken.into_iter().map(give_back).collect()).await;
    let both = Take::from_all([queue(), good.clone()]).max(10);
    assert_eq!(other.take(both.clone()).await.unwrap().len(), 2, "of several queues the others");
    assert_foreign(&other.take(both).await.unwrap_err(), &leases, "there is nothing else");
    let listed = other.queues(None, 10).await.unwrap();
    let names: Vec<_> = listed.iter().map(|stats| (stats.name.as_str(), stats.counts.leased)).collect();
    assert_eq!(names, [("good", 2), ("orders", 0)]);
    assert_eq!(listed[0].unread, None);
    assert_foreign(listed[1].unread.as_ref().unwrap(), &leases, "the queue itself, in a list");
    let due = other.forecast(None, vec![Timestamp::MAX]).await.unwrap();
    assert_eq!((due.scheduled, due.due_by), (1, vec![1]), "of all queues it is left out");
    let refused = other.forecast(Some(vec![good.clone(), queue()]), vec![Timestamp::MAX]).await.unwrap_err();
    assert_foreign(&refused, &leases, "the queue itself, of several");
    let found = one(other.get(good.clone(), vec![Target::Id(id)], false)).await.unwrap();
    assert_eq!(found.standing.state.kind(), StateKind::Leased);
    // Background work goes on for the other queues: a process that was silent for long is dead.
    drop((store, other));
    let third = open(redis.server.address(), &shared).await.unwrap();
    third.put(vec![Put::new(good.clone(), "bound").priority(3)]).await.pop().unwrap().unwrap();
    let session =
        third.take(Take::from(good.clone()).max(1).lease_ms(8 * MINUTE_MS).session()).await.unwrap();
    assert_eq!(session.len(), 1);
    drop(third);
    clock.advance(20_000);
    let fourth = open(redis.server.address(), &shared).await.unwrap();
    // No process sent a heartbeat meanwhile: its silence is counted from now on.
    let mut freed = None;
    for _ in 0..4 {
        clock.advance(5_000);
        within(fourth.beat_for_test()).await.unwrap();
        freed = freed.or(fourth.take(Take::from(good.clone()).max(10)).await.unwrap().pop());
    }
    assert_eq!(freed.unwrap().message.standing.attempt(), 2);
}

/// Numbers are used in blocks, each by many queues.
#[tokio::test]
async fn a_queue_that_is_out_of_order_keeps_no_other_from_being_found_by_number() {
    let mut redis = Redis::start();
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(Timestamp::from_ms(START_MS).unwrap()));
    let store = open(redis.server.address(), &clock).await.unwrap();
    let bad = one(store.put(vec![message("bad")])).await.unwrap();
    let leases = redis.partition() + "leases";
    let good = QueueName::new("good").unwrap();
    let mut put = Vec::new();
    for _ in 0..20 {
        put.push(one(store.put(vec![Put::new(good.clone(), "m")])).await.unwrap());
    }
    redis.spoil(&leases, false);
    let elsewhere = Number::new(100_000).unwrap();
    let mut numbers: Vec<Number> = put.iter().map(|put| put.number).collect();
    numbers.extend([bad.number, elsewhere]);
    let mut located = store.locate(numbers).await;
    assert_eq!(located.pop().unwrap(), Ok(None), "nobody has numbers of that block");
    assert_foreign(&located.pop().unwrap().unwrap_err(), &leases, "the message of the queue itself");
    let places: Vec<_> = put.iter().map(|put| Ok(Some((good.clone(), put.id)))).collect();
    assert_eq!(located, places);
    assert_eq!(one(store.locate(vec![put[0].number])).await, places[0].clone(), "alone");
    // If it is not among those that can be read, it may still exist.
    one(store.cancel(good, vec![Target::Id(put[0].id)])).await.unwrap();
    assert_foreign(&one(store.locate(vec![put[0].number])).await.unwrap_err(), &leases, "one that is gone");
}

/// The names in an error do not decide its kind.
#[tokio::test]
async fn a_prefix_that_reads_like_an_error_is_no_error() {
    for prefix in ["ROOM", "LOADING", "READONLY"] {
        let mut redis = Redis::start();
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(Timestamp::from_ms(START_MS).unwrap()));
        let address = redis.server.address::<dwell_redis::Address>().with_prefix(prefix);
        let store = open(address, &clock).await.unwrap();
        one(store.put(vec![message("m")])).await.unwrap();
        let keys: Vec<String> = redis.command(&[b"KEYS", format!("{prefix}:{{*}}:meta").as_bytes()]);
        let leases = keys[0].strip_suffix("meta").unwrap().to_owned() + "leases";
        // A script that finds it reports it with the key's name.
        let keys = leases.strip_suffix("leases").unwrap().to_owned() + "keys";
        redis.spoil(&keys, false);
        let put = one(store.put(vec![message("m").priority(3)])).await;
        assert_foreign(&put.unwrap_err(), &keys, "a put");
        redis.command::<Value>(&[b"DEL", keys.as_bytes()]);
        // The server reports it, without the name.
        redis.spoil(&leases, false);
        let put = one(store.put(vec![message("m").priority(3)])).await;
        assert_foreign(&put.unwrap_err(), &leases, "a put");
        assert_foreign(&within(store.take(Take::from(queue()))).await.unwrap_err(), &leases, "a take");
        assert_foreign(&store.stats(queue()).await.unwrap_err(), &leases, "stats");
    }
}

/// All queues are counted, whatever the size of a page of a list.
#[tokio::test]
async fn leases_are_counted_in_all_queues() {
    let redis = Redis::start();
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(Timestamp::from_ms(START_MS).unwrap()));
    let limits = Limits { batch: 4, leased: 10, ..Limits::default() };
    let open = async || {
        RedisStore::open_for_test(redis.server.address(), limits.clone(), Arc::clone(&clock)).await.unwrap()
    };
    let store = open().await;
    for n in 0..11 {
        let name = QueueName::new(&format!("q{n}")).unwrap();
        one(store.put(vec![Put::new(name.clone(), "m")])).await.unwrap();
        let taken = open().await.take(Take::from(name)).await;
        assert_eq!(taken.as_ref().map_or(0, Vec::len), usize::from(n < 10), "{n}: {taken:?}");
        assert!(n < 10 || matches!(taken, Err(Error::TooManyLeased { limit: 10 })), "{taken:?}");
    }
}

/// The directory: names, numbers, processes. What is reserved before it is used may stay reserved.
#[tokio::test]
async fn a_key_of_another_type_in_the_directory_refuses_what_needs_it_and_no_message_is_touched() {
    let mut redis = Redis::start();
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(Timestamp::from_ms(START_MS).unwrap()));
    let address = redis.server.address::<dwell_redis::Address>().with_client("somebody");
    let store = open(address.clone(), &clock).await.unwrap();
    one(store.put(vec![message("m")])).await.unwrap();
    let held = store.take(Take::from(queue()).session()).await.unwrap().pop().unwrap();
    let whole = redis.all();
    let mut directory: Vec<String> = redis.command(&[b"KEYS", b"{dwell}:[^s]*"]);
    directory.sort();
    let all = [
        "{dwell}:block:0",
        "{dwell}:blocks",
        "{dwell}:clients",
        "{dwell}:heartbeats",
        "{dwell}:meta",
        "{dwell}:queues",
        "{dwell}:registrations",
    ];
    assert_eq!(directory, all);
    let other = QueueName::new("others").unwrap();
    for key in directory {
        for looks_alike in [false, true] {
            if looks_alike && key.contains(":block:") {
                continue;
            }
            redis.restore(&whole);
            redis.spoil(&key, looks_alike);
            let before = redis.held();
            let name = key.rsplit(':').next().unwrap();
            let mut refusals = 0;
            // A batch that needs numbers; a name; names; a number; a process that opens.
            let many = (0..600).map(|_| Put::new(other.clone(), "new")).collect();
            let put = store.put(many).await.into_iter().find_map(Result::err);
            let listed = store.queues(None, 10).await.err();
            let located = one(store.locate(vec![held.message.number])).await.err();
            let opened = match open(address.clone(), &clock).await {
                Ok(_) => None,
                Err(OpenError::Foreign { found }) => Some(Error::ForeignData { reason: found.into() }),
                Err(refused) => panic!("{refused}"),
            };
            let is_open = opened.is_none();
            for refused in [put, listed, located, opened].into_iter().flatten() {
                assert_foreign(&refused, &key, name);
                refusals += 1;
            }
            assert!(refusals > 0, "nobody needs {key}");
            let after = redis.held();
            let touched = before.iter().filter(|(key, value)| after.get(*key) != Some(value)).count();
            // A process that opens under the name of another one ends the leases that this one had bound.
            assert!(touched == 0 || is_open, "{touched} keys of messages changed while {key} is another's");
            assert_eq!(redis.all()[key.as_bytes()], {
                redis.restore(&whole);
                redis.spoil(&key, looks_alike);
                redis.all()[key.as_bytes()].clone()
            });
        }
    }
    redis.restore(&whole);
    assert_eq!(
        one(store.settle(vec![Settle { receipt: held.receipt, action: Action::Ack }])).await,
        Ok(Settled::Gone)
    );
}

//! Queues that are spread over partitions, and takes that wait: what all processes must agree on, which takes are
//! served, and how few commands they send.

#![expect(clippy::unwrap_used, reason = "tests, where a panic is the answer")]

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use dwell_model::{IdempotencyKey, Key, Limits, QueueName, Setting, SettingChange, Timestamp};
use dwell_redis::{OpenError, RedisStore};
use dwell_store::{
    Action, Cancelled, Delivery, Error, LeaseTerms, Put, Selection, Settle, Settled, Store, Take, Target,
    When,
};
use dwell_testkit::redis::Server;
use dwell_testkit::until_async as until;
use dwell_time::{Clock, ManualClock};

const PARTITIONS: u16 = 4;

fn queue() -> QueueName {
    QueueName::new("orders").unwrap()
}

fn message(body: &str) -> Put {
    Put::new(queue(), body.to_owned())
}

fn over_partitions(partitions: u16) -> Limits {
    let mut limits = Limits::default();
    limits.defaults.partitions = partitions;
    limits
}

async fn open(server: &Server) -> RedisStore {
    RedisStore::open(server.address(), Limits::default()).await.unwrap()
}

async fn set_partitions(store: &RedisStore, partitions: u16) -> Result<(), Error> {
    store.configure(queue(), vec![SettingChange::Set(Setting::Partitions(partitions))]).await.map(drop)
}

async fn put_all(store: &RedisStore, puts: Vec<Put>) {
    for answer in store.put(puts).await {
        answer.unwrap();
    }
}

async fn take(store: &RedisStore, max: usize) -> Vec<Delivery> {
    store.take(Take::from(queue()).max(max)).await.unwrap()
}

async fn ack(store: &RedisStore, taken: Vec<Delivery>) {
    let ack = |delivery: Delivery| Settle { receipt: delivery.receipt, action: Action::Ack };
    for settled in store.settle(taken.into_iter().map(ack).collect()).await {
        settled.unwrap();
    }
}

#[tokio::test]
async fn takes_serve_what_is_due_first_wherever_it_lies() {
    let server = Server::start();
    let store = open(&server).await;
    set_partitions(&store, PARTITIONS).await.unwrap();
    let due = |n: i64| Timestamp::from_ms(1_700_000_000_000 + n).unwrap();
    put_all(&store, (0..400).map(|n| message("m").at(due(n))).collect()).await;
    let (mut last, mut by_partition) = (due(-1), HashMap::<u16, i32>::new());
    for _ in 0..40 {
        let taken = take(&store, 10).await;
        assert_eq!(taken.len(), 10);
        for delivery in &taken {
            assert!(delivery.message.standing.due > last, "one that was due before was passed over");
            last = delivery.message.standing.due;
            *by_partition.entry(delivery.message.id.shard()).or_default() += 1;
        }
        let (most, least) = (by_partition.values().max().unwrap(), by_partition.values().min().unwrap());
        assert!(by_partition.len() == usize::from(PARTITIONS) && most - least <= 3, "{by_partition:?}");
        ack(&store, taken).await;
    }
}

#[tokio::test]
async fn what_is_due_at_one_instant_is_taken_from_all_partitions_alike() {
    let server = Server::start();
    let store = open(&server).await;
    set_partitions(&store, PARTITIONS).await.unwrap();
    let due = Timestamp::from_ms(1_700_000_000_000).unwrap();
    for max in [1, 2, 10, 100] {
        put_all(&store, (0..400).map(|_| message("m").at(due)).collect()).await;
        let mut by_partition = HashMap::<u16, usize>::new();
        for _ in 0..(200 / max) {
            let taken = take(&store, max).await;
            taken.iter().for_each(|one| *by_partition.entry(one.message.id.shard()).or_default() += 1);
            ack(&store, taken).await;
        }
        let (most, least) = (by_partition.values().max().unwrap(), by_partition.values().min().unwrap());
        let fair = by_partition.len() == usize::from(PARTITIONS) && most - least <= 25;
        assert!(fair, "takes of {max}: {by_partition:?}");
        ack(&store, take(&store, 400).await).await;
    }
}

#[tokio::test]
async fn partitions_are_fixed_while_there_are_messages() {
    let server = Server::start();
    let (store, other) = (open(&server).await, open(&server).await);
    put_all(&store, vec![message("m")]).await;
    let fixed = set_partitions(&store, PARTITIONS).await;
    assert!(matches!(&fixed, Err(error @ Error::SettingFixed { .. }) if error.code() == "setting_fixed"));
    assert_eq!(store.stats(queue()).await.unwrap().settings.partitions, 1, "nothing was changed");
    let taken = take(&store, 1).await;
    assert!(set_partitions(&store, PARTITIONS).await.is_err(), "one that is leased counts");
    ack(&store, taken).await;
    set_partitions(&store, PARTITIONS).await.unwrap();
    // A process that assumes another number of partitions learns of it by its next call.
    put_all(&other, (0..40).map(|n| message(&n.to_string())).collect()).await;
    let shards: HashSet<_> = take(&other, 40).await.iter().map(|one| one.message.id.shard()).collect();
    assert_eq!(shards.len(), usize::from(PARTITIONS));
}

/// With the smallest batch, learning the number of partitions does not use up the call.
#[tokio::test]
async fn a_take_of_the_least_batch_brings_what_is_due_though_it_has_not_heard_of_partitions() {
    let server = Server::start();
    let store = open(&server).await;
    let least = Limits { batch: 1, ..Limits::default() };
    let other = RedisStore::open(server.address(), least).await.unwrap();
    // Leases were counted, from which it would learn the number of partitions.
    assert!(take(&other, 1).await.is_empty());
    set_partitions(&store, PARTITIONS).await.unwrap();
    put_all(&store, vec![message("m")]).await;
    assert_eq!(take(&other, 1).await.len(), 1);
}

/// The first call of a process on a queue whose number of partitions it does not know.
#[tokio::test]
async fn a_process_that_has_not_heard_of_partitions_finds_what_ids_and_receipts_name() {
    let server = Server::start();
    let store = open(&server).await;
    let others = [open(&server).await, open(&server).await, open(&server).await, open(&server).await];
    set_partitions(&store, PARTITIONS).await.unwrap();
    put_all(&store, (0..16).map(|n| message(&n.to_string())).collect()).await;
    let beyond = |taken: &[Delivery]| taken.iter().find(|one| one.message.id.shard() > 0).unwrap().clone();
    let held = beyond(&take(&store, 8).await);
    let [settles, takes, discards, revives] = &others;
    let ack = Settle { receipt: held.receipt.clone(), action: Action::Ack };
    assert_eq!(settles.settle(vec![ack.clone()]).await, [Ok(Settled::Gone)]);
    assert_eq!(settles.settle(vec![ack]).await, [Err(Error::LeaseLost)]);

    let held = beyond(&take(&store, 8).await);
    let release = Action::Release { after_ms: None, priority: None };
    store.settle(vec![Settle { receipt: held.receipt, action: release }]).await.pop().unwrap().unwrap();
    let taken = takes.take_id(queue(), held.message.id, LeaseTerms::default()).await.unwrap();
    assert_eq!(taken.message.id, held.message.id);

    let bury = |receipt| Settle { receipt, action: Action::Bury { reason: None, priority: None } };
    takes.settle(vec![bury(taken.receipt)]).await.pop().unwrap().unwrap();
    let dead = Selection::Ids(vec![held.message.id]);
    let swept = revives.revive(queue(), dead.clone(), When::Now).await.unwrap();
    assert_eq!((swept.done, swept.refused_in_all), (1, 0), "{swept:?}");
    let taken = takes.take_id(queue(), held.message.id, LeaseTerms::default()).await.unwrap();
    takes.settle(vec![bury(taken.receipt)]).await.pop().unwrap().unwrap();
    let swept = discards.discard(queue(), dead).await.unwrap();
    assert_eq!((swept.done, swept.refused_in_all), (1, 0), "{swept:?}");
}

#[tokio::test]
async fn a_process_with_another_default_of_partitions_is_refused_while_there_are_any() {
    let server = Server::start();
    let store = open(&server).await;
    put_all(&store, vec![message("m")]).await;
    let keys = server.command(&["DBSIZE"]);
    let refused = RedisStore::open(server.address(), over_partitions(PARTITIONS)).await.err().unwrap();
    assert!(matches!(&refused, OpenError::Partitions { there: 1, asked: PARTITIONS }), "{refused}");
    assert_eq!(server.command(&["DBSIZE"]), keys, "nothing was written");
    ack(&store, take(&store, 1).await).await;
    drop(store);
    // A process that opens unregisters empty queues.
    let tidy = open(&server).await;
    until("the queue is let go", async || {
        tidy.queues(None, 10).await.unwrap().is_empty()
            && server.command(&["EXISTS", "{dwell}:queues"]) == redis::Value::Int(0)
    })
    .await;
    drop(tidy);
    let store = RedisStore::open(server.address(), over_partitions(PARTITIONS)).await.unwrap();
    put_all(&store, (0..40).map(|n| message(&n.to_string())).collect()).await;
    let refused = RedisStore::open(server.address(), Limits::default()).await.err().unwrap();
    assert!(matches!(&refused, OpenError::Partitions { there: 4, asked: 1 }), "{refused}");
}

#[tokio::test]
async fn a_keyed_message_lies_where_its_keys_hash_says() {
    let server = Server::start();
    let (store, other) = (open(&server).await, open(&server).await);
    set_partitions(&store, PARTITIONS).await.unwrap();
    // FNV-1a of 64 bits, as docs/redis.md says: other programs may rely on it.
    let hash = |text: &str| {
        let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        text.bytes().fold(0xcbf2_9ce4_8422_2325, fnv)
    };
    let mut shards = HashSet::new();
    for n in 0..60 {
        let name = format!("order-{n}");
        let keyed = || message("m").key(Key::new(name.as_str()).unwrap()).after_ms(60_000);
        let answer = store.put(vec![keyed()]).await.pop().unwrap().unwrap();
        assert_eq!(u64::from(answer.id.shard()), hash(&name) % u64::from(PARTITIONS), "{name}");
        shards.insert(answer.id.shard());
        let taken = other.put(vec![keyed()]).await.pop().unwrap();
        assert_eq!(taken, Err(Error::KeyTaken { id: answer.id }), "{name}");
        let target = Target::Key(Key::new(name.as_str()).unwrap());
        let found = other.get(queue(), vec![target.clone()], false).await.pop().unwrap().unwrap();
        assert_eq!(found.id, answer.id);
        if n % 2 == 0 {
            let cancelled = other.cancel(queue(), vec![target]).await.pop().unwrap();
            assert_eq!(cancelled, Ok(Cancelled::Cancelled(answer.id)));
        }
    }
    assert_eq!(shards.len(), usize::from(PARTITIONS));
    assert_eq!(store.stats(queue()).await.unwrap().counts.scheduled, 30);
}

/// A put that is repeated after the queue was emptied and has another number of partitions gets its answer, as long as
/// its idempotency key is valid.
#[tokio::test]
async fn idempotency_keys_are_good_beyond_a_change_of_partitions() {
    let server = Server::start();
    let clock = ManualClock::new(Timestamp::from_ms(1_795_000_000_000).unwrap());
    let open = async || {
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        RedisStore::open_for_test(server.address(), Limits::default(), shared).await.unwrap()
    };
    let (store, other) = (open().await, open().await);
    let puts = |round: u32| -> Vec<Put> {
        let idempotency_key = |n: u32| IdempotencyKey::new(&format!("{round}-{n}")).unwrap();
        let plain = (0..8).map(|n| message("m").idempotency_key(idempotency_key(n)));
        let keyed = (8..16).map(|n| {
            message("m").idempotency_key(idempotency_key(n)).key(Key::new(&format!("key {n}")).unwrap())
        });
        plain.chain(keyed).collect()
    };
    let mut answered = Vec::new();
    for (round, partitions) in [1, 4, 2, 5, 1, 3].into_iter().enumerate() {
        set_partitions(&store, partitions).await.unwrap();
        let round = round as u32;
        for (before, answers) in &answered {
            for store in [&store, &other] {
                assert_eq!(&store.put(puts(*before)).await, answers, "{before} again in {round}");
            }
        }
        assert!(take(&other, 128).await.is_empty(), "round {round}: one was put again");
        let mut batch = puts(round);
        batch.push(message("besides"));
        let mut answers = store.put(batch).await;
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        answers.pop();
        assert_eq!(other.put(puts(round)).await, answers);
        let taken = take(&other, 128).await;
        assert_eq!(taken.len(), 17);
        ack(&other, taken).await;
        answered.push((round, answers));
        clock.advance(60_000);
    }
    // Also where the queue was deleted, and comes again with the default number of partitions.
    store.delete_queue(queue()).await.unwrap();
    for (before, answers) in &answered {
        assert_eq!(&other.put(puts(*before)).await, answers, "{before} again");
    }
    // Ten minutes after the put its idempotency key has expired; keyed ones that were repeated are valid from then on.
    clock.advance(5 * 60_000);
    let first: Vec<_> = other.put(puts(0)).await.into_iter().map(|answer| answer.unwrap().id).collect();
    let before: Vec<_> = answered[0].1.iter().map(|answer| answer.as_ref().unwrap().id).collect();
    assert!(first[..8].iter().all(|id| !before.contains(id)), "they are put anew");
    assert_eq!(&store.put(puts(5)).await, &answered[5].1, "these are good yet");
    let anew = first.iter().filter(|id| !before.contains(id)).count();
    assert_eq!(take(&other, 128).await.len(), anew);
}

/// The number of commands that clients have sent, scripts among them, by `INFO commandstats`.
fn asked(server: &Server) -> u64 {
    let calls = |command: &str| {
        let stats = server.info(&format!("cmdstat_{command}"))?;
        stats.strip_prefix("calls=")?.split(',').next()?.parse::<u64>().ok()
    };
    ["evalsha", "eval", "subscribe", "unsubscribe", "ping"].into_iter().filter_map(calls).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_takes_that_wait_ask_no_more_than_one() {
    let server = Server::start();
    let (first, second) = (Arc::new(open(&server).await), Arc::new(open(&server).await));
    let mut waiting = tokio::task::JoinSet::new();
    for n in 0..1_000 {
        let store = Arc::clone(if n % 2 == 0 { &first } else { &second });
        waiting.spawn(async move { store.take(Take::from(queue()).max(1).wait_ms(50_000)).await.unwrap() });
    }
    until("all wait", async || first.stats(queue()).await.is_ok_and(|stats| stats.waiting == 1_000)).await;
    until("all have asked once", async || {
        let before = asked(&server);
        tokio::time::sleep(Duration::from_millis(300)).await;
        asked(&server) == before
    })
    .await;
    let before = asked(&server);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let idle = asked(&server) - before;
    println!("1,000 takes waiting in two processes: {idle} commands in 3 s");
    // Each process sends a heartbeat every 5 s, asks again every 10, and subscribes.
    assert!(idle <= 12, "{idle} commands in 3 s, for nothing");

    let before = asked(&server);
    put_all(&first, (0..200).map(|_| message("m").after_ms(300)).collect()).await;
    for _ in 0..200 {
        let served = tokio::time::timeout(Duration::from_secs(60), waiting.join_next()).await;
        let taken = served.unwrap().unwrap().unwrap();
        assert_eq!(taken.len(), 1);
        assert!(taken[0].taken_at >= taken[0].message.standing.due, "it is early");
    }
    let busy = asked(&server) - before;
    println!("200 messages handed to them one by one: {busy} commands");
    assert!(busy <= 3 * 200, "{busy} commands for 200 messages");
    assert_eq!(first.stats(queue()).await.unwrap().waiting, 800);
    waiting.abort_all();
}

//! Failures of a Redis, and what callers see of them: `docs/redis.md` has the table.

#![expect(clippy::unwrap_used, reason = "tests, where a panic is the answer")]

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dwell_model::{IdempotencyKey, Limits, MessageId, QueueName, Setting, SettingChange, Timestamp};
use dwell_redis::{Address, OpenError, RedisStore};
use dwell_store::{Action, Error, LeaseTerms, Put, PutAnswer, Settle, Settled, Store, Take};
use dwell_testkit::redis::{Cluster, Server, text};
use dwell_testkit::within;
use dwell_time::{Clock, ManualClock};

fn queue() -> QueueName {
    QueueName::new("orders").unwrap()
}

fn message(body: &str) -> Put {
    Put::new(queue(), body.to_owned())
}

async fn open(address: Address) -> RedisStore {
    RedisStore::open(address, Limits::default()).await.unwrap()
}

async fn put(store: &RedisStore, put: Put) -> Result<PutAnswer, Error> {
    store.put(vec![put]).await.pop().unwrap()
}

async fn ack(store: &RedisStore, receipt: dwell_model::Receipt) -> Result<Settled, Error> {
    store.settle(vec![Settle { receipt, action: Action::Ack }]).await.pop().unwrap()
}

/// Takes and acks all messages, leases that run out meanwhile included; each id once per delivery.
async fn drain(store: &RedisStore, expected: usize) -> Vec<MessageId> {
    let mut ids = Vec::new();
    while ids.len() < expected {
        let taken = within("a take", store.take(Take::from(queue()).max(128).wait_ms(2_000))).await.unwrap();
        if taken.is_empty() {
            break;
        }
        for delivery in taken {
            assert!(delivery.taken_at >= delivery.message.standing.due, "it is early");
            ids.push(delivery.message.id);
            ack(store, delivery.receipt).await.unwrap();
        }
    }
    ids
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_stays_away_is_said_and_a_repeated_idempotency_key_puts_once() {
    let mut server = Server::durable();
    let url = format!("{}?retry_ms=300&timeout_ms=500", server.url());
    let store = open(url.parse().unwrap()).await;
    let idempotency_key = || message("m").idempotency_key(IdempotencyKey::new("t").unwrap());
    let first = put(&store, idempotency_key()).await.unwrap();
    server.kill();
    let away = within("a put", put(&store, message("n"))).await.unwrap_err();
    assert!(matches!(away, Error::Unavailable { .. } | Error::OutcomeUnknown { .. }), "{away}");
    assert!(away.is_retryable());
    server.start_again();
    assert_eq!(put(&store, idempotency_key()).await.unwrap(), first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn out_of_memory_refuses_puts_and_lets_takes_and_acks_go_on() {
    let server = Server::start();
    let store = open(server.address()).await;
    for n in 0..20 {
        put(&store, message(&n.to_string())).await.unwrap();
    }
    let held = store.take(Take::from(queue())).await.unwrap().pop().unwrap();
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let full = put(&store, message("too much")).await.unwrap_err();
    assert_eq!((full.code(), full.is_retryable()), ("disk_full", true), "{full}");
    // A queue that there is not yet has to be registered.
    let changes = vec![SettingChange::Set(Setting::LeaseMs(9_000))];
    let other = QueueName::new("other").unwrap();
    let full = store.configure(other, changes).await.unwrap_err();
    assert_eq!(full.code(), "disk_full", "{full}");
    assert_eq!(ack(&store, held.receipt).await, Ok(Settled::Gone));
    let taken = store.take(Take::from(queue()).max(3)).await.unwrap();
    assert_eq!(taken.len(), 3);
    let buried = Action::Bury { reason: None, priority: None };
    for (delivery, action) in taken.into_iter().zip([Action::Ack, buried, Action::Extend { lease_ms: None }])
    {
        store.settle(vec![Settle { receipt: delivery.receipt, action }]).await.pop().unwrap().unwrap();
    }
    let stats = store.stats(queue()).await.unwrap();
    assert_eq!((stats.counts.ready, stats.counts.dead, stats.counts.leased), (16, 1, 1));
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    put(&store, message("again")).await.unwrap();
}

/// The same for the store's other writes: opening, and heartbeats.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn out_of_memory_lets_stores_open_and_session_leases_go_on() {
    let server = Server::start();
    let clock = ManualClock::new(Timestamp::from_ms(1_795_000_000_000).unwrap());
    let open = async || {
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        RedisStore::open_for_test(server.address(), Limits::default(), shared).await.unwrap()
    };
    let store = open().await;
    for n in 0..3 {
        put(&store, message(&n.to_string())).await.unwrap();
    }
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(put(&store, message("too much")).await.unwrap_err().code(), "disk_full");
    let other = open().await;
    assert_eq!(put(&other, message("too much")).await.unwrap_err().code(), "disk_full");
    let session = Take::from(queue()).max(1).lease_ms(3_600_000).session();
    let held = store.take(session.clone()).await.unwrap().pop().unwrap();
    let ended = other.take(session).await.unwrap().pop().unwrap();
    let extended = Settle { receipt: held.receipt.clone(), action: Action::Extend { lease_ms: None } };
    store.settle(vec![extended]).await.pop().unwrap().unwrap();
    // A process without a heartbeat for 15 seconds is dead: these send some in between.
    for _ in 0..2 {
        clock.advance(10_000);
        let now = clock.now().wall.as_ms();
        within("a beat", async {
            let heard = || -> Vec<(String, i64)> {
                let reply = server.command(&["ZRANGE", "{dwell}:heartbeats", "0", "-1", "WITHSCORES"]);
                let flat: Vec<Vec<u8>> = redis::from_redis_value(reply).unwrap();
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                flat.chunks(2).map(|two| (text(&two[0]), text(&two[1]).parse().unwrap())).collect()
            };
            while heard().iter().filter(|(_, at)| *at == now).count() < 2 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
    }
    assert_eq!(store.stats(queue()).await.unwrap().counts.leased, 2, "both are held");
    assert_eq!(ack(&store, held.receipt).await, Ok(Settled::Gone));
    other.leave().await.unwrap();
    let again = store.take(Take::from(queue()).max(3)).await.unwrap();
    assert!(again.iter().any(|delivery| delivery.message.id == ended.message.id), "it was freed");
    for delivery in again {
        ack(&store, delivery.receipt).await.unwrap();
    }
}

#[tokio::test]
async fn a_redis_that_evicts_is_refused() {
    for policy in
        ["allkeys-lru", "allkeys-random", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"]
    {
        let server = Server::start_with(&["--maxmemory-policy", policy]);
        let refused = RedisStore::open(server.address(), Limits::default()).await.err().unwrap();
        assert!(matches!(&refused, OpenError::Evicts { policy: said } if said == policy), "{refused}");
        assert_eq!(server.command(&["DBSIZE"]), redis::Value::Int(0), "nothing was written");
    }
}

#[tokio::test]
async fn a_redis_that_is_set_to_evict_later_is_said_and_takes_go_on() {
    let server = Server::start();
    let store = open(server.address()).await;
    put(&store, message("before")).await.unwrap();
    for policy in ["allkeys-lru", "volatile-ttl"] {
        server.command(&["CONFIG", "SET", "maxmemory-policy", policy]);
        store.beat_for_test().await.unwrap();
        let refused = put(&store, message("refused")).await.unwrap_err();
        assert!(matches!(&refused, Error::Unavailable { reason } if reason.contains(policy)), "{refused}");
        assert!(refused.is_retryable());
    }
    assert_eq!(drain(&store, 1).await.len(), 1, "what is there is handed out");
    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    store.beat_for_test().await.unwrap();
    put(&store, message("after")).await.unwrap();
}

#[tokio::test]
async fn a_redis_that_is_too_old_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("redis://{}?connections=1", listener.local_addr().unwrap()).parse().unwrap();
    // The part of an old server that is used: it ends with its only connection.
    let old = std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        connection.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut bytes = [0; 4096];
        let mut words = HashSet::new();
        while let Ok(read @ 1..) = connection.read(&mut bytes) {
            let asked = String::from_utf8_lossy(&bytes[..read]).to_uppercase();
            for command in asked.split('*').skip(1) {
                words.extend(command.split("\r\n").nth(2).map(ToOwned::to_owned));
                let answer = if command.contains("\r\nINFO\r\n") {
                    "$21\r\nredis_version:5.0.14\n\r\n"
                } else if command.contains("\r\nPING\r\n") {
                    "+PONG\r\n"
                } else {
                    "-ERR unknown command\r\n"
                };
                connection.write_all(answer.as_bytes()).unwrap();
            }
        }
        words
    });
    let refused = RedisStore::open(address, Limits::default()).await.err().unwrap();
    assert!(matches!(&refused, OpenError::TooOld { version, .. } if version == "5.0.14"), "{refused}");
    let words = old.join().unwrap();
    let questions = ["PING", "INFO", "HELLO", "CLIENT", "SELECT"];
    assert!(words.iter().all(|word| questions.contains(&word.as_str())), "nothing was written: {words:?}");
}

#[tokio::test]
async fn a_foreign_key_where_ours_would_lie_is_named_and_nothing_is_changed() {
    let server = Server::start();
    let store = open(server.address()).await;
    put(&store, message("m")).await.unwrap();
    let keys: Vec<String> = redis::from_redis_value(server.command(&["KEYS", "dwell:{*}:meta"])).unwrap();
    let leases = keys[0].strip_suffix("meta").unwrap().to_owned() + "leases";
    server.command(&["SET", &leases, "mine"]);
    // A process that opens later sees it before it writes.
    let later = open(server.address()).await;
    for refused in [
        put(&later, message("n")).await.map(drop),
        later.take(Take::from(queue())).await.map(drop),
        later.stats(queue()).await.map(drop),
    ] {
        let refused = refused.unwrap_err();
        assert_eq!((refused.code(), refused.is_retryable()), ("foreign_data", false), "{refused}");
        let refused = refused.to_string();
        assert!(refused.contains(&leases) && refused.contains("string"), "{refused}");
    }
    server.command(&["DEL", &leases]);
    assert_eq!(drain(&later, usize::MAX).await.len(), 1);
}

#[tokio::test]
async fn a_write_that_no_replica_confirms_is_a_retryable_error() {
    let server = Server::start();
    let store = open((server.url() + "?wait=1&wait_ms=50").parse().unwrap()).await;
    let idempotency_key = || message("m").idempotency_key(IdempotencyKey::new("t").unwrap());
    for _ in 0..2 {
        let refused = put(&store, idempotency_key()).await.unwrap_err();
        assert_eq!((refused.code(), refused.is_retryable()), ("outcome_unknown", true), "{refused}");
    }
    let plain = open(server.address()).await;
    assert_eq!(plain.stats(queue()).await.unwrap().counts.ready, 1, "it is there, and once");
}

/// A lease that no replica has is valid all the same, and void after a failover: if the take were refused, its
/// messages would be leased without a holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_handed_out_is_not_refused_for_want_of_a_replica() {
    let server = Server::start();
    let plain = open(server.address()).await;
    let confirmed = open((server.url() + "?wait=1&wait_ms=50").parse().unwrap()).await;
    put(&plain, message("first")).await.unwrap();
    let id = put(&plain, message("second")).await.unwrap().id;
    let first = within("a take", confirmed.take(Take::from(queue()).max(1))).await.unwrap().pop().unwrap();
    let second = within("a take", confirmed.take_id(queue(), id, LeaseTerms::default())).await.unwrap();
    assert_eq!(plain.stats(queue()).await.unwrap().counts.leased, 2);
    for delivery in [first, second] {
        assert_eq!(ack(&plain, delivery.receipt).await, Ok(Settled::Gone));
    }
    // Where nothing is handed out there is nothing for a replica to confirm.
    let waits = || server.info("cmdstat_wait").unwrap_or_default();
    let before = waits();
    let other = QueueName::new("other").unwrap();
    for take in [Take::from(queue()), Take::from_all([queue(), other])] {
        assert_eq!(within("a take", confirmed.take(take.clone())).await, Ok(Vec::new()));
        assert_eq!(within("a take", confirmed.take(take.wait_ms(300))).await, Ok(Vec::new()));
    }
    assert_eq!(waits(), before);
}

#[tokio::test]
async fn waiting_that_cannot_be_is_refused_at_open() {
    let server = Server::start();
    let address = (server.url() + "?wait=1&wait_ms=5000").parse().unwrap();
    let refused = RedisStore::open(address, Limits::default()).await.err().unwrap();
    assert!(matches!(refused, OpenError::Unsupported { .. }), "{refused}");
}

/// Debian's Redis has no `WAITAOF`; `scripts/test redis` runs this on a Valkey too, which has it.
#[tokio::test]
async fn waitaof_is_asked_for_each_change_or_refused_at_open() {
    let server = Server::durable();
    let address = (server.url() + "?waitaof=1&wait_ms=4000&timeout_ms=5000&retry_ms=200").parse().unwrap();
    let version = server.info("redis_version").unwrap();
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap());
    if (parts.next().unwrap(), parts.next().unwrap()) < (7, 2) {
        let refused = RedisStore::open(address, Limits::default()).await.err().unwrap();
        assert!(matches!(refused, OpenError::TooOld { needed: "7.2", .. }), "{refused}");
        return;
    }
    let store = open(address).await;
    for n in 0..20 {
        put(&store, message(&n.to_string())).await.unwrap();
    }
    let calls = server.info("cmdstat_waitaof").unwrap();
    assert!(calls.starts_with("calls=20,"), "{calls}");
    // No file, no confirmation: it is there all the same, and repeating it with its idempotency key puts nothing more.
    server.command(&["CONFIG", "SET", "appendonly", "no"]);
    let idempotency_key = || message("m").idempotency_key(IdempotencyKey::new("t").unwrap());
    for _ in 0..2 {
        let refused = put(&store, idempotency_key()).await.unwrap_err();
        assert_eq!((refused.code(), refused.is_retryable()), ("outcome_unknown", true), "{refused}");
    }
    server.command(&["CONFIG", "SET", "appendonly", "yes"]);
    put(&store, idempotency_key()).await.unwrap();
    assert_eq!(store.stats(queue()).await.unwrap().counts.ready, 21);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_moves_to_another_node_while_calls_go_on() {
    let mut cluster = Cluster::start();
    let store = Arc::new(open((cluster.url() + "?retry_ms=60000").parse().unwrap()).await);
    put(&store, message("first")).await.unwrap();
    // The node and the slot of the queue's partition.
    let nodes = cluster.nodes();
    let ids: Vec<String> = nodes.iter().map(|node| text(node.command(&["CLUSTER", "MYID"]))).collect();
    let keys_of = |node: &Server| -> Vec<String> {
        redis::from_redis_value(node.command(&["KEYS", "dwell:{*}:*"])).unwrap()
    };
    let from = nodes.iter().position(|node| !keys_of(node).is_empty()).unwrap();
    let to = (from + 1) % nodes.len();
    let key = keys_of(&nodes[from])[0].clone();
    let slot: i64 = redis::from_redis_value(nodes[from].command(&["CLUSTER", "KEYSLOT", &key])).unwrap();
    let slot = slot.to_string();
    let stop = Arc::new(AtomicBool::new(false));
    let worker = {
        let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
        tokio::spawn(async move {
            let (mut put_ids, mut taken_ids) = (Vec::new(), Vec::new());
            while !stop.load(Ordering::Relaxed) {
                put_ids.push(put(&store, message("m")).await.unwrap().id);
                for delivery in store.take(Take::from(queue())).await.unwrap() {
                    taken_ids.push(delivery.message.id);
                    assert_eq!(ack(&store, delivery.receipt).await, Ok(Settled::Gone));
                }
            }
            (put_ids, taken_ids)
        })
    };
    // As redis-cli --cluster reshard does it: marked on both sides, moved, then announced everywhere.
    nodes[to].command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &ids[from]]);
    nodes[from].command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &ids[to]]);
    let port = nodes[to].port().to_string();
    loop {
        let keys: Vec<String> =
            redis::from_redis_value(nodes[from].command(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]))
                .unwrap();
        if keys.is_empty() {
            break;
        }
        for key in keys {
            nodes[from].command(&["MIGRATE", "127.0.0.1", &port, &key, "0", "5000"]);
        }
    }
    for node in [to, from, 3 - to - from] {
        nodes[node].command(&["CLUSTER", "SETSLOT", &slot, "NODE", &ids[to]]);
    }
    within("calls on the other node", async {
        while keys_of(&nodes[to]).is_empty() || !keys_of(&nodes[from]).is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    put(&store, message("after")).await.unwrap();
    stop.store(true, Ordering::Relaxed);
    let (put_ids, mut taken) = within("the worker", worker).await.unwrap();
    taken.extend(drain(&store, usize::MAX).await);
    let distinct: HashSet<_> = taken.iter().collect();
    assert_eq!(distinct.len(), taken.len(), "none was handed out twice");
    assert_eq!(taken.len(), put_ids.len() + 2, "none is lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_leaves_frees_what_is_bound_to_it_at_once() {
    let server = Server::start();
    let (leaving, other) = (open(server.address()).await, open(server.address()).await);
    let id = put(&leaving, message("m")).await.unwrap().id;
    let held = leaving.take(Take::from(queue()).lease_ms(3_600_000).session()).await.unwrap().pop().unwrap();
    assert_eq!((held.message.id, other.take(Take::from(queue())).await.unwrap().len()), (id, 0));
    leaving.leave().await.unwrap();
    let taken = other.take(Take::from(queue())).await.unwrap().pop().unwrap();
    assert_eq!(taken.message.id, id);
    assert_eq!(ack(&other, held.receipt).await, Err(Error::LeaseLost));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_has_left_begins_no_call_any_more() {
    let server = Server::start();
    let (left, other) = (open(server.address()).await, open(server.address()).await);
    let id = put(&left, message("m")).await.unwrap().id;
    assert_eq!(left.leave().await, Ok(true));
    assert_eq!(left.leave().await, Ok(false), "once is enough");
    assert_eq!(put(&left, message("late")).await.unwrap_err(), Error::Closed);
    for take in [Take::from(queue()), Take::from(queue()).session(), Take::from(queue()).wait_ms(60_000)] {
        assert_eq!(left.take(take).await.unwrap_err(), Error::Closed);
    }
    assert_eq!(left.take_id(queue(), id, LeaseTerms::default()).await.unwrap_err(), Error::Closed);
    assert_eq!(left.stats(queue()).await.unwrap_err(), Error::Closed);
    assert_eq!(left.ready().await.unwrap_err(), Error::Closed);
    let taken = other.take(Take::from(queue()).max(9)).await.unwrap();
    assert_eq!(taken.iter().map(|delivery| delivery.message.id).collect::<Vec<_>>(), [id]);
    assert_eq!(ack(&left, taken[0].receipt.clone()).await, Err(Error::Closed));
    assert_eq!(ack(&other, taken[0].receipt.clone()).await, Ok(Settled::Gone));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_of_numbers_that_nobody_uses_any_more_are_forgotten() {
    let server = Server::start();
    let clock = ManualClock::new(Timestamp::from_ms(1_795_000_000_000).unwrap());
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let store = RedisStore::open_for_test(server.address(), Limits::default(), shared).await.unwrap();
    let puts = (0..1_000).map(|_| message("m")).collect();
    let put_ids: Vec<_> = store.put(puts).await.into_iter().map(|answer| answer.unwrap().id).collect();
    let kept = put_ids[500];
    for id in put_ids.iter().filter(|id| **id != kept) {
        store.cancel(queue(), vec![dwell_store::Target::Id(*id)]).await.pop().unwrap().unwrap();
    }
    let blocks = || -> i64 { redis::from_redis_value(server.command(&["ZCARD", "{dwell}:blocks"])).unwrap() };
    assert!(blocks() >= 4);
    let number =
        store.get(queue(), vec![dwell_store::Target::Id(kept)], false).await.pop().unwrap().unwrap().number;
    clock.advance(2 * 3_600_000);
    within("a beat", async {
        while blocks() > 1 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let sets: Vec<String> = redis::from_redis_value(server.command(&["KEYS", "{dwell}:block:*"])).unwrap();
    assert_eq!(sets.len(), 1);
    let told: Vec<String> =
        redis::from_redis_value(server.command(&["KEYS", "dwell:{*}:due-index"])).unwrap();
    assert_eq!(
        server.command(&["HLEN", &told[0]]),
        redis::Value::Int(1),
        "of the blocks that are in use alone"
    );
    assert_eq!(store.locate(vec![number]).await, [Ok(Some((queue(), kept)))]);
    // Numbers that were reserved long ago are not used: their block is no longer checked.
    let new = put(&store, message("n")).await.unwrap();
    assert_eq!(blocks(), 2);
    assert_eq!(store.locate(vec![new.number]).await, [Ok(Some((queue(), new.id)))]);
}

/// A server that restarts from its last save has lost later reservations of numbers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_are_not_given_twice_after_the_last_steps_were_lost() {
    let mut server = Server::start_with(&["--save", "3600 1000000"]);
    let (first, second) = (open(server.address()).await, open(server.address()).await);
    let in_queue = |name: &str| Put::new(QueueName::new(name).unwrap(), "m".to_owned());
    let number =
        async |store: &RedisStore, name: &str| put(store, in_queue(name)).await.unwrap().number.get();
    // An earlier process, so that it is known which server it was.
    number(&open(server.address()).await, "earlier").await;
    server.command(&["SAVE"]);
    let mut given = vec![number(&first, "a").await];
    server.kill();
    server.start_again();
    for _ in 0..2 {
        given.push(number(&first, "a").await);
        given.push(number(&second, "b").await);
    }
    let distinct: HashSet<_> = given.iter().collect();
    assert_eq!(distinct.len(), given.len(), "{given:?}");
}

/// Numbers end, and a store that is refused some does not go on beyond them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_that_have_run_out_are_refused_each_time() {
    let server = Server::start();
    let store = open(server.address()).await;
    let last = dwell_model::Number::MAX.get() / 256;
    server.command(&["HSET", "{dwell}:meta", "v", "1", "b", &last.to_string()]);
    for _ in 0..3 {
        let refused = put(&store, message("m")).await.unwrap_err();
        assert_eq!(refused.code(), "exhausted", "{refused}");
    }
    assert!(matches!(store.stats(queue()).await, Err(Error::UnknownQueue { .. })), "nothing was put");
}

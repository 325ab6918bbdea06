//! The answers that a server keeps for calls that are repeated, and for idempotency keys: how long, and where.

#![expect(clippy::unwrap_used, reason = "tests, where a panic is the answer")]

use std::sync::Arc;

use dwell_model::{IdempotencyKey, Key, Limits, QueueName, Setting, SettingChange, Timestamp};
use dwell_redis::RedisStore;
use dwell_store::{Action, Error, Put, PutAnswer, Settle, Store as _, Take, Target};
use dwell_testkit::redis::Server;
use dwell_time::{Clock, ManualClock};

const START_MS: i64 = 1_795_000_000_000;

fn queue() -> QueueName {
    QueueName::new("orders").unwrap()
}

struct Fixture {
    server: Server,
    store: RedisStore,
    clock: ManualClock,
}

impl Fixture {
    async fn new(limits: Limits) -> Fixture {
        let (server, clock) = (Server::start(), ManualClock::new(Timestamp::from_ms(START_MS).unwrap()));
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let store = RedisStore::open_for_test(server.address(), limits, shared).await.unwrap();
        store.beat_no_more_for_test();
        Fixture { server, store, clock }
    }

    async fn repartition(&self, over: u16) {
        self.store.configure(queue(), vec![SettingChange::Set(Setting::Partitions(over))]).await.unwrap();
    }

    async fn put(&self, put: Put) -> Result<PutAnswer, Error> {
        self.store.put(vec![put]).await.pop().unwrap()
    }

    /// The keys of all partitions that end so.
    fn keys(&self, end: &str) -> Vec<String> {
        redis::from_redis_value(self.server.command(&["KEYS", &format!("dwell:{{*}}:{end}")])).unwrap()
    }

    fn key(&self, end: &str) -> String {
        let mut keys = self.keys(end);
        assert_eq!(keys.len(), 1, "{keys:?}");
        keys.remove(0)
    }

    /// How long a key has left, in milliseconds; negative if it has no expiry, or is not there.
    fn left_ms(&self, key: &str) -> i64 {
        redis::from_redis_value(self.server.command(&["PTTL", key])).unwrap()
    }

    fn expire(&self, key: &str, in_ms: u32) {
        self.server.command(&["PEXPIRE", key, &in_ms.to_string()]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_kept_for_a_minute_after_each_of_many_calls() {
    let bed = Fixture::new(Limits::default()).await;
    bed.put(Put::new(queue(), "first")).await.unwrap();
    let answers = bed.key("calls");
    for call in 0..20 {
        bed.expire(&answers, 60_000);
        // Never a second since the last call, and one second of the clock or several.
        for _ in 0..5 {
            bed.clock.advance(400);
            bed.put(Put::new(queue(), "more")).await.unwrap();
        }
        assert!(bed.left_ms(&answers) > 60_000, "call {call}: {} ms", bed.left_ms(&answers));
    }
}

/// Each ends alone otherwise: without the index, no key is forgotten, and all count against the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idempotency_keys_and_their_index_end_together() {
    let bed = Fixture::new(Limits::default()).await;
    bed.put(Put::new(queue(), "m").idempotency_key(IdempotencyKey::new("once").unwrap())).await.unwrap();
    let taken = bed.store.take(Take::from(queue())).await.unwrap().pop().unwrap();
    bed.store
        .settle(vec![Settle { receipt: taken.receipt, action: Action::Ack }])
        .await
        .pop()
        .unwrap()
        .unwrap();
    let (answers, index) = (bed.key("idempotency"), bed.key("idempotency-until"));
    bed.expire(&answers, 60_000);
    bed.expire(&index, 60_000);
    bed.repartition(3).await;
    for key in [answers, index] {
        let left_ms = bed.left_ms(&key);
        assert!(left_ms > 86_400_000, "{key} has {left_ms} ms");
    }
}

/// What the partition of the message has lost, a put under the same idempotency key puts again, though another
/// partition has its answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_put_that_a_failover_has_lost_is_not_answered_from_another_partition() {
    for repartitioned in [false, true] {
        let mut lost_elsewhere = 0;
        for n in 0..16 {
            let bed = Fixture::new(Limits::default()).await;
            bed.repartition(5).await;
            let key = Key::new(&format!("order {n}")).unwrap();
            let again = || {
                let once = IdempotencyKey::new(&format!("put-{n}")).unwrap();
                Put::new(queue(), "m").key(key.clone()).idempotency_key(once)
            };
            let first = bed.put(again()).await.unwrap();
            assert_eq!(bed.put(again()).await.unwrap(), first);
            let homes = bed.keys("keys");
            let home = homes
                .iter()
                .find(|home| bed.server.command(&["HEXISTS", home, key.as_str()]) == redis::Value::Int(1));
            let home = home.unwrap().strip_suffix("keys").unwrap().to_owned();
            let remembering = bed.keys("idempotency");
            let holders = remembering.iter().filter(|key| {
                bed.server.command(&["HEXISTS", key, &format!("put-{n}")]) == redis::Value::Int(1)
            });
            lost_elsewhere += usize::from(holders.count() == 2);
            // The node of this partition has lost what it was sent last.
            for key in bed.keys("*").iter().filter(|key| key.starts_with(&home) && !key.ends_with(":meta")) {
                bed.server.command(&["DEL", key]);
            }
            if repartitioned {
                bed.repartition(7).await;
            }
            let answer = bed.put(again()).await.unwrap();
            let target = Target::Key(key.clone());
            let found = bed.store.get(queue(), vec![target], false).await.pop().unwrap().unwrap();
            assert_eq!(found.id, answer.id);
            assert_eq!(bed.put(again()).await.unwrap(), answer);
        }
        assert!(lost_elsewhere > 4, "{lost_elsewhere} lay in two partitions");
    }
}

//! Caps of a queue where several processes and partitions share it, and backoff: the same delay as everywhere else.

#![expect(clippy::unwrap_used, reason = "tests, where a panic is the answer")]

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dwell_model::{Backoff, IdempotencyKey, Limits, QueueName, Setting, SettingChange, Timestamp};
use dwell_redis::RedisStore;
use dwell_store::{Action, Error, LeaseTerms, Put, Settle, Store, Take};
use dwell_testkit::redis::Server;
use dwell_time::ManualClock;

const SCRIPT: &str = include_str!("../src/native/lua/backoff.lua");

/// Calls it for cases of six numbers each.
const CASES: &str = "
local delays = {}
for at = 1, #ARGV, 6 do
  local function number(n) return tonumber(ARGV[at + n]) end
  local b = { base = number(0), factor = number(1), cap = number(2), jitter = number(3) }
  delays[#delays + 1] = string.format('%.0f', backoff(b, number(4), number(5)))
end
return delays
";

fn queue() -> QueueName {
    QueueName::new("orders").unwrap()
}

async fn open(server: &Server, limits: &Limits) -> RedisStore {
    RedisStore::open(server.address(), limits.clone()).await.unwrap()
}

async fn put(store: &RedisStore, put: Put) -> Result<(), Error> {
    store.put(vec![put]).await.pop().unwrap().map(drop)
}

/// Bits that look random.
struct Chance(u64);

impl Chance {
    fn bits(&mut self, count: u32) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 ^ self.0 >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - count)
    }
}

#[test]
fn backoff_is_the_same_in_the_script_as_everywhere_else() {
    let longest = Timestamp::MAX.as_ms() as u64;
    let mut cases: Vec<(Backoff, u32, u32)> = Vec::new();
    for base_ms in [0, 1, 7, 99, 100, 101, 999, 12_345_678_901, longest - 1, longest] {
        for factor_percent in [100, 101, 133, 150, 199, 200, 999, 10_000] {
            for (cap_ms, jitter_percent) in
                [(0, 20), (1, 100), (60_000, 33), (longest - 1, 100), (longest, 1)]
            {
                let backoff = Backoff { base_ms, factor_percent, cap_ms, jitter_percent };
                cases.extend(
                    [(1, 0), (2, 1 << 31), (10, u32::MAX), (5_000, 0xdead_beef)]
                        .map(|(n, r)| (backoff, n, r)),
                );
            }
        }
    }
    let mut chance = Chance(22);
    for _ in 0..4_000 {
        let (base, cap) = (chance.bits(6) as u32 % 48, chance.bits(6) as u32 % 48);
        let backoff = Backoff {
            base_ms: chance.bits(base.max(1)),
            factor_percent: 100 + (chance.bits(14) % 9_901) as u32 / (1 + chance.bits(7) as u32),
            cap_ms: chance.bits(cap.max(1)).min(longest),
            jitter_percent: (chance.bits(7) % 101) as u32,
        };
        let attempt = 1 + chance.bits(9) as u32 / (1 + chance.bits(5) as u32);
        cases.push((backoff, attempt, chance.bits(32) as u32));
    }
    let server = Server::start();
    let script = format!("{SCRIPT}{CASES}");
    for cases in cases.chunks(500) {
        let arguments: Vec<String> = cases
            .iter()
            .flat_map(|(backoff, attempt, random)| {
                let Backoff { base_ms, factor_percent, cap_ms, jitter_percent } = *backoff;
                [
                    base_ms,
                    factor_percent.into(),
                    cap_ms,
                    jitter_percent.into(),
                    (*attempt).into(),
                    (*random).into(),
                ]
            })
            .map(|number| number.to_string())
            .collect();
        let mut words = vec!["EVAL", &script, "0"];
        words.extend(arguments.iter().map(String::as_str));
        let delays: Vec<u64> = redis::from_redis_value(server.command(&words)).unwrap();
        assert_eq!(delays.len(), cases.len());
        for ((backoff, attempt, random), delay_ms) in cases.iter().zip(delays) {
            let expected = backoff.delay_ms(*attempt, *random);
            assert_eq!(delay_ms, expected, "{backoff:?}, attempt {attempt}, random {random}");
        }
    }
}

/// A take waits for what another process settles: it is notified, and need not poll.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_take_that_waits_for_room_in_its_queue_is_told_by_another_process() {
    let server = Server::start();
    let limits = Limits { leased_per_queue: 1, ..Limits::default() };
    let (one, other) = (open(&server, &limits).await, open(&server, &limits).await);
    for body in ["a", "b"] {
        put(&one, Put::new(queue(), body)).await.unwrap();
    }
    let held = one.take(Take::from(queue())).await.unwrap();
    assert_eq!(one.take(Take::from(queue())).await, Err(Error::TooManyLeased { limit: 1 }));
    let waiting = tokio::spawn(async move { other.take(Take::from(queue()).wait_ms(60_000)).await });
    // It counts as waiting once it has asked.
    let mut asked = 0;
    while one.stats(queue()).await.unwrap().waiting == 0 {
        assert!(asked < 6_000, "the take never waits");
        tokio::time::sleep(Duration::from_millis(10)).await;
        asked += 1;
    }
    let settle = Settle { receipt: held[0].receipt.clone(), action: Action::Ack };
    one.settle(vec![settle]).await.pop().unwrap().unwrap();
    let taken = tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap().unwrap().unwrap();
    assert_eq!(&taken[0].message.body[..], b"b");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_partitions_of_a_queue_share_its_caps() {
    let server = Server::start();
    let limits = Limits { leased_per_queue: 8, idempotency_keys_per_queue: 8, ..Limits::default() };
    let store = open(&server, &limits).await;
    store.configure(queue(), vec![SettingChange::Set(Setting::Partitions(4))]).await.unwrap();
    let mut refused = 0;
    for n in 0..64 {
        let idempotency_key = IdempotencyKey::new(&format!("token-{n}")).unwrap();
        refused +=
            usize::from(put(&store, Put::new(queue(), "m").idempotency_key(idempotency_key)).await.is_err());
    }
    assert_eq!(refused, 64 - 8, "two in each of four");
    for _ in 0..64 {
        put(&store, Put::new(queue(), "m")).await.unwrap();
    }
    assert_eq!(store.take(Take::from(queue()).max(64)).await.unwrap().len(), 8);
    assert_eq!(store.take(Take::from(queue())).await, Err(Error::TooManyLeased { limit: 8 }));
}

/// More leases run out at once than a take and a take by id process together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_that_have_run_out_take_no_room_from_others() {
    const LEASES: usize = 1_500;
    let server = Server::start();
    let clock = ManualClock::new(Timestamp::from_ms(1_795_000_000_000).unwrap());
    let limits = Limits::default();
    let store = RedisStore::open_for_test(server.address(), limits, Arc::new(clock.clone())).await.unwrap();
    let mut ids = HashSet::new();
    for _ in 0..LEASES / 500 {
        for answer in store.put(vec![Put::new(queue(), "m"); 500]).await {
            ids.insert(answer.unwrap().id);
        }
    }
    for _ in 0..LEASES / 500 {
        let taken = store.take(Take::from(queue()).max(500).lease_ms(1_000)).await.unwrap();
        assert_eq!(taken.len(), 500);
    }
    store.configure(queue(), vec![SettingChange::Set(Setting::MaxLeased(2))]).await.unwrap();
    clock.advance(2_000);
    let taken = store.take(Take::from(queue()).lease_ms(60_000)).await.unwrap();
    assert_eq!(taken.len(), 1, "none is held");
    let other = *ids.iter().find(|id| **id != taken[0].message.id).unwrap();
    let terms = LeaseTerms { lease_ms: Some(60_000), ..LeaseTerms::default() };
    store.take_id(queue(), other, terms.clone()).await.unwrap();
    // Now the cap is reached.
    assert_eq!(store.take(Take::from(queue())).await, Ok(Vec::new()));
    let third = *ids.iter().find(|id| **id != taken[0].message.id && **id != other).unwrap();
    let refused = store.take_id(queue(), third, terms).await;
    assert_eq!(refused.unwrap_err(), Error::TooManyLeased { limit: 2 });
}

/// Two processes, each of which takes from all partitions.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn several_processes_pass_the_max_leased_of_a_queue_by_no_more_than_its_partitions_round_up() {
    const PARTITIONS: u64 = 4;
    const MOST: u64 = 6;
    const ROUNDS: usize = 50;
    let server = Server::start();
    let limits = Limits::default();
    let stores = [open(&server, &limits).await, open(&server, &limits).await].map(Arc::new);
    let settings = [Setting::Partitions(PARTITIONS as u16), Setting::MaxLeased(MOST)];
    let settings = settings.into_iter().map(SettingChange::Set).collect();
    stores[0].configure(queue(), settings).await.unwrap();
    for answer in stores[0].put(vec![Put::new(queue(), "m"); 400]).await {
        answer.unwrap();
    }
    let (held, highest) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let workers = (0..8).map(|n| {
        let (store, held, highest) = (Arc::clone(&stores[n % 2]), Arc::clone(&held), Arc::clone(&highest));
        tokio::spawn(async move {
            for _ in 0..ROUNDS {
                let taken = store.take(Take::from(queue()).max(1 + n % 3)).await.unwrap();
                let count = taken.len() as u64;
                highest.fetch_max(held.fetch_add(count, Ordering::SeqCst) + count, Ordering::SeqCst);
                let leased = store.stats(queue()).await.unwrap().counts.leased;
                highest.fetch_max(leased, Ordering::SeqCst);
                held.fetch_sub(count, Ordering::SeqCst);
                let release =
                    |receipt| Settle { receipt, action: Action::Release { after_ms: None, priority: None } };
                let settles = taken.into_iter().map(|delivery| release(delivery.receipt)).collect();
                for settled in store.settle(settles).await {
                    settled.unwrap();
                }
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    let highest = highest.load(Ordering::SeqCst);
    assert!(highest < MOST + PARTITIONS, "{highest} were leased");
    // No lease is settled: they stop at the cap, and not before.
    for store in stores.iter().cycle().take(40) {
        store.take(Take::from(queue()).max(2)).await.unwrap();
    }
    let leased = stores[0].stats(queue()).await.unwrap().counts.leased;
    assert!((MOST..MOST + PARTITIONS).contains(&leased), "{leased} are leased");
}

/// A later version has written some of the settings; this one changes others, and the queue's number of partitions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_that_this_version_does_not_know_survive_a_change() {
    const EACH: &str = "
        local said = {}
        for _, key in ipairs(redis.call('KEYS', 'dwell:{*}:meta')) do
          local own = redis.call('HGET', key, 'o')
          own = own and cmsgpack.unpack(own) or {}
          if ARGV[1] == 'make' then
            own.later = { deep = { 7, 2.5, 'x' } }
            redis.call('HSET', key, 'o', cmsgpack.pack(own))
          end
          local deep = own.later and own.later.deep
          said[#said + 1] = deep and table.concat(deep, ' ') .. ' ' .. tostring(own.pending) or 'none'
        end
        return said";
    let server = Server::start();
    let store = open(&server, &Limits::default()).await;
    let set = async |setting| {
        store.configure(queue(), vec![SettingChange::Set(setting)]).await.unwrap();
    };
    let said =
        || -> Vec<String> { redis::from_redis_value(server.command(&["EVAL", EACH, "0", "look"])).unwrap() };
    set(Setting::MaxPending(5)).await;
    server.command(&["EVAL", EACH, "0", "make"]);
    set(Setting::MaxPending(6)).await;
    assert_eq!(said(), ["7 2.5 x 6"]);
    set(Setting::Partitions(3)).await;
    assert_eq!(said(), vec!["7 2.5 x 6"; 3]);
    let reset =
        [Setting::MaxPending(0), Setting::Partitions(1)].map(|setting| SettingChange::Reset(setting.name()));
    let stats = store.configure(queue(), reset.to_vec()).await.unwrap();
    assert!(stats.own.is_empty(), "{:?}", stats.own);
    assert!(said().iter().any(|text| text == "7 2.5 x nil"), "{:?}", said());
}

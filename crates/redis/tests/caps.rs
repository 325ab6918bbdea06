//! Caps of a queue where several processes and partitions share it, and backoff: the same delay as everywhere else.

#![expect(clippy::unwrap_used, reason = "tests, where a panic is the answer")]

use std::time::Duration;

use dwell_model::{Backoff, Limits, PutToken, QueueName, Setting, SettingChange, Timestamp};
use dwell_redis::RedisStore;
use dwell_store::{Action, Error, Put, Settle, Store, Take};
use dwell_testkit::redis::Server;

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

/// What one process settles another one waits for: it is told, and need not look.
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
    let limits = Limits { leased_per_queue: 8, put_tokens_per_queue: 8, ..Limits::default() };
    let store = open(&server, &limits).await;
    store.configure(queue(), vec![SettingChange::Set(Setting::Spread(4))]).await.unwrap();
    let mut refused = 0;
    for n in 0..64 {
        let token = PutToken::new(&format!("token-{n}")).unwrap();
        refused += usize::from(put(&store, Put::new(queue(), "m").token(token)).await.is_err());
    }
    assert_eq!(refused, 64 - 8, "two in each of four");
    for _ in 0..64 {
        put(&store, Put::new(queue(), "m")).await.unwrap();
    }
    assert_eq!(store.take(Take::from(queue()).max(64)).await.unwrap().len(), 8);
    assert_eq!(store.take(Take::from(queue())).await, Err(Error::TooManyLeased { limit: 8 }));
}

//! Processes that bind leases: who is gone and who is not, whatever Redis and its clock do.

use std::sync::Arc;

use dwell_model::{Limits, Timestamp};
use dwell_redis::RedisStore;
use dwell_redis::testing::Server;
use dwell_store::{Action, Delivery, Put, Settle, Settled, Store as _, Take};
use dwell_time::{Clock as _, ManualClock};

use super::{put, queue};

const LEASE_MS: u64 = 12 * 3_600_000;
const BEAT_MS: u64 = 5_000;

/// Beats within which one that has died must be found out: silent for 15 seconds, and the beat after.
const FOUND_OUT: usize = 4;

struct Bed {
    server: Server,
    clock: ManualClock,
}

impl Bed {
    fn new() -> Bed {
        let clock = ManualClock::new(Timestamp::from_ms(1_795_000_000_000).unwrap());
        Bed { server: Server::start(), clock }
    }

    async fn process(&self) -> RedisStore {
        let clock = Arc::new(self.clock.clone());
        RedisStore::open_for_test(self.server.address(), Limits::default(), clock).await.unwrap()
    }

    async fn step(&self, processes: &[&RedisStore]) {
        self.clock.advance(BEAT_MS);
        for process in processes {
            process.beat_for_test().await.unwrap();
        }
    }

    /// Processes that are heard of, for as long as it takes to judge others.
    async fn live(&self, processes: &[&RedisStore]) {
        for _ in 0..FOUND_OUT {
            self.step(processes).await;
        }
    }

    /// A message that a process holds.
    async fn hold(&self, process: &RedisStore) -> Delivery {
        let id = put(process, Put::new(queue("jobs"), "m")).await.unwrap().id;
        let held = take(process).await.unwrap();
        assert_eq!(held.message.id, id);
        held
    }
}

/// A bound take; no lease of the test ends by itself.
async fn take(process: &RedisStore) -> Option<Delivery> {
    process.take(Take::from(queue("jobs")).lease_ms(LEASE_MS).bound()).await.unwrap().pop()
}

async fn leased(process: &RedisStore) -> u64 {
    process.stats(queue("jobs")).await.unwrap().counts.leased
}

async fn ack(process: &RedisStore, held: Delivery) {
    let acked = Settle { receipt: held.receipt, action: Action::Ack };
    assert_eq!(process.settle(vec![acked]).await.pop().unwrap(), Ok(Settled::Gone));
}

/// What the scores of the processes tell after an outage is what they tell after a step of the clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_or_a_step_of_the_clock_frees_nothing_of_those_who_live() {
    let bed = Bed::new();
    let (one, other) = (bed.process().await, bed.process().await);
    let held = [bed.hold(&one).await, bed.hold(&other).await];
    bed.live(&[&one, &other]).await;
    for away_ms in [20_000, 8_000, 3_600_000] {
        bed.clock.advance(away_ms);
        for process in [&one, &other] {
            process.beat_for_test().await.unwrap();
            assert_eq!(leased(&one).await, 2, "away for {away_ms} ms");
        }
        bed.live(&[&one, &other]).await;
        assert_eq!(leased(&one).await, 2, "away for {away_ms} ms, a while ago");
    }
    for held in held {
        ack(&one, held).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_died_in_an_outage_is_found_out_once_it_is_over() {
    let bed = Bed::new();
    let one = bed.process().await;
    for step_ms in [20_000, -3_600_000] {
        let other = bed.process().await;
        let held = bed.hold(&one).await;
        let lost = bed.hold(&other).await.message.id;
        bed.live(&[&one, &other]).await;
        drop(other);
        bed.clock.step_wall(Timestamp::from_ms(bed.clock.now().wall.as_ms() + step_ms).unwrap());
        one.beat_for_test().await.unwrap();
        assert_eq!(leased(&one).await, 2, "nobody can know yet");
        bed.live(&[&one]).await;
        assert_eq!(leased(&one).await, 1, "after a step of {step_ms} ms");
        // It is due again by the clock that it was put by.
        bed.clock.advance(3_600_000);
        let again = take(&one).await.unwrap();
        assert_eq!(again.message.id, lost);
        ack(&one, again).await;
        ack(&one, held).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_was_forgotten_and_lives_binds_leases_as_before() {
    let bed = Bed::new();
    let (one, other) = (bed.process().await, bed.process().await);
    let lost = bed.hold(&other).await.message.id;
    // It says nothing for so long; if it does by itself, on a slow machine, it begins again.
    for _ in 0..100 {
        bed.step(&[&one]).await;
        if leased(&one).await == 0 {
            break;
        }
    }
    // It knows nothing of that yet, and holds it once more.
    let again = take(&other).await.expect("it was freed");
    assert_eq!(again.message.id, lost);
    other.beat_for_test().await.unwrap();
    bed.live(&[&one, &other]).await;
    assert_eq!(leased(&one).await, 1, "it is there");
    drop(other);
    bed.live(&[&one]).await;
    assert_eq!(take(&one).await.expect("it was freed").message.id, lost);
}

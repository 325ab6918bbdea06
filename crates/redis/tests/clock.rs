//! Steps of Redis' clock. It is the only one that scripts have: a step moves what is due, and leases with it.
//! Whatever it does, nothing is handed out before its instant by that clock, nothing is lost, and one receipt of a
//! message is valid.

#![expect(clippy::unwrap_used, reason = "tests, where a panic is the answer")]

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use dwell_model::{AttemptLimit, Limits, MessageId, QueueName, Receipt, Setting, SettingChange, Timestamp};
use dwell_redis::RedisStore;
use dwell_store::{Action, Delivery, Error, Put, Settle, Settled, Store as _, Take};
use dwell_testkit::Random;
use dwell_testkit::redis::Server;
use dwell_time::{Clock, ManualClock};

const START_MS: i64 = 1_795_000_000_000;
const HOUR_MS: i64 = 3_600_000;

fn queue() -> QueueName {
    QueueName::new("orders").unwrap()
}

struct Fixture {
    _server: Server,
    store: RedisStore,
    clock: ManualClock,
}

impl Fixture {
    async fn new() -> Fixture {
        let server = Server::start();
        let clock = ManualClock::new(Timestamp::from_ms(START_MS).unwrap());
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let store = RedisStore::open_for_test(server.address(), Limits::default(), shared).await.unwrap();
        Fixture { _server: server, store, clock }
    }

    fn now_ms(&self) -> i64 {
        self.clock.now().wall.as_ms()
    }

    /// Steps the wall clock of Redis' host.
    fn step(&self, by_ms: i64) {
        self.clock.step_wall(Timestamp::from_ms(self.now_ms() + by_ms).unwrap());
    }

    async fn put(&self, put: Put) -> MessageId {
        self.store.put(vec![put]).await.pop().unwrap().unwrap().id
    }

    async fn take(&self, lease_ms: u64) -> Vec<Delivery> {
        let taken = self.store.take(Take::from(queue()).max(16).lease_ms(lease_ms)).await.unwrap();
        for delivery in &taken {
            assert_eq!(delivery.taken_at.as_ms(), self.now_ms(), "by the clock of Redis");
            assert!(delivery.taken_at >= delivery.message.standing.due, "{} is early", delivery.message.id);
        }
        taken
    }

    async fn settle(&self, receipt: &Receipt, action: Action) -> Result<Settled, Error> {
        self.store.settle(vec![Settle { receipt: receipt.clone(), action }]).await.pop().unwrap()
    }
}

#[tokio::test]
async fn a_step_back_hands_out_nothing_early_and_loses_nothing() {
    let bed = Fixture::new().await;
    let message = |body: &str| Put::new(queue(), body.to_owned());
    let fresh = bed.put(message("fresh").after_ms(10_000)).await;
    let long = bed.put(message("in the long form").priority(7).after_ms(10_000)).await;
    bed.clock.advance(9_000);
    bed.step(-HOUR_MS);
    for _ in 0..2 {
        assert_eq!(bed.take(60_000).await.len(), 0, "an hour and a second before");
        bed.clock.advance(HOUR_MS as u64 / 2);
    }
    bed.clock.advance(1_000);
    let taken = bed.take(60_000).await;
    assert_eq!(taken.iter().map(|delivery| delivery.message.id).collect::<Vec<_>>(), [long, fresh]);
    // Leased messages: a step back makes leases longer by as much, and their receipts stay valid.
    bed.step(-HOUR_MS);
    bed.clock.advance(HOUR_MS as u64);
    assert_eq!(bed.take(60_000).await.len(), 0, "both are leased still");
    assert_eq!(bed.settle(&taken[0].receipt, Action::Ack).await, Ok(Settled::Gone));
    bed.clock.advance(60_000);
    let again = bed.take(60_000).await;
    assert_eq!((again.len(), again[0].message.id), (1, fresh));
    assert_eq!(bed.settle(&taken[1].receipt, Action::Ack).await, Err(Error::LeaseLost));
    assert_eq!(bed.settle(&again[0].receipt, Action::Ack).await, Ok(Settled::Gone));
}

#[tokio::test]
async fn a_step_forward_makes_due_what_is_due_by_it_and_ends_leases() {
    let bed = Fixture::new().await;
    let held = bed.put(Put::new(queue(), "held")).await;
    let first = bed.take(60_000).await.pop().unwrap();
    let later = bed.put(Put::new(queue(), "later").after_ms(30 * 60_000)).await;
    bed.step(HOUR_MS);
    let taken = bed.take(60_000).await;
    assert_eq!(taken.iter().map(|delivery| delivery.message.id).collect::<Vec<_>>(), [held, later]);
    assert_eq!(bed.settle(&first.receipt, Action::Ack).await, Err(Error::LeaseLost));
    for delivery in taken {
        assert_eq!(bed.settle(&delivery.receipt, Action::Ack).await, Ok(Settled::Gone));
    }
}

#[tokio::test]
async fn whatever_steps_the_clock_makes_nothing_is_early_lost_or_held_twice() {
    let seeds: Vec<u64> = match std::env::var("DWELL_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => vec![1, 2, 3],
    };
    for seed in seeds {
        println!("DWELL_SEED={seed} cargo test -p dwell-redis --test clock whatever_steps");
        steps_at_random(Random::new(seed)).await;
    }
}

async fn steps_at_random(mut random: Random) {
    let bed = Fixture::new().await;
    let unlimited = SettingChange::Set(Setting::MaxAttempts(AttemptLimit::Unlimited));
    bed.store.configure(queue(), vec![unlimited]).await.unwrap();
    let (mut there, mut gone) = (HashSet::new(), HashSet::new());
    let mut receipts: HashMap<MessageId, Vec<Receipt>> = HashMap::new();
    for _ in 0..400 {
        match random.below(6) {
            0 | 1 => {
                let delayed = Put::new(queue(), "m").after_ms(random.below(60_000));
                let urgent = random.below(3) == 0;
                there.insert(bed.put(if urgent { delayed.priority(7) } else { delayed }).await);
            }
            2 => bed.step(random.below(120_000) as i64 - 60_000),
            3 => bed.clock.advance(random.below(20_000)),
            _ => {
                for delivery in bed.take(1 + random.below(30_000)).await {
                    let id = delivery.message.id;
                    assert!(there.contains(&id) && !gone.contains(&id), "{id} was acked");
                    let before = receipts.entry(id).or_default();
                    for stale in before.iter() {
                        let settled = bed.settle(stale, Action::Ack).await;
                        assert_eq!(settled, Err(Error::LeaseLost), "{id} has two good receipts");
                    }
                    before.push(delivery.receipt.clone());
                    match random.below(4) {
                        0 => {}
                        1 => {
                            let action =
                                Action::Release { after_ms: Some(random.below(5_000)), priority: None };
                            bed.settle(&delivery.receipt, action).await.unwrap();
                        }
                        _ => {
                            assert_eq!(bed.settle(&delivery.receipt, Action::Ack).await, Ok(Settled::Gone));
                            gone.insert(id);
                        }
                    }
                }
            }
        }
        let held = bed.store.stats(queue()).await.unwrap().counts;
        let counted = held.scheduled + held.ready + held.leased + held.dead;
        assert_eq!(counted as usize, there.len() - gone.len(), "none is lost");
    }
    // All messages come in the end.
    bed.step(24 * HOUR_MS);
    loop {
        let taken = bed.take(60_000).await;
        if taken.is_empty() {
            break;
        }
        for delivery in taken {
            assert_eq!(bed.settle(&delivery.receipt, Action::Ack).await, Ok(Settled::Gone));
            assert!(gone.insert(delivery.message.id), "it comes once");
        }
    }
    assert_eq!(gone, there);
}

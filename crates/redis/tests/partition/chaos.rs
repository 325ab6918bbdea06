//! Random faults on the link of one process, which puts and consumes all the while: whatever happens, nothing that
//! was answered is lost or comes early, nothing is put twice, and at most one receipt of a message is valid.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dwell_model::{AttemptLimit, MessageId, Receipt, Setting, SettingChange};
use dwell_redis::RedisStore;
use dwell_store::{Action, Error, Settled, Store, Take};
use dwell_testkit::Random;
use dwell_testkit::redis::Server;
use dwell_testkit::redis::proxy::{Link, Proxy};

use super::{idempotency_key, message, open, put, queue, settle, within};

const MESSAGES: usize = 150;
const LEASE_MS: u64 = 1_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_the_link_does_nothing_is_lost_early_or_twice() {
    let seeds: Vec<u64> = match std::env::var("DWELL_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => vec![1, 2, 3],
    };
    for seed in seeds {
        println!("DWELL_SEED={seed} cargo test -p dwell-redis --test partition whatever_the_link_does");
        within("the run", run(seed)).await;
    }
}

async fn run(seed: u64) {
    let server = Server::start();
    let proxy = Arc::new(Proxy::to(server.port()).await);
    let plain = open(&server.url()).await;
    let store = Arc::new(open(&proxy.url("connections=2&timeout_ms=150&retry_ms=300")).await);
    let unlimited = vec![SettingChange::Set(Setting::MaxAttempts(AttemptLimit::Unlimited))];
    plain.configure(queue(), unlimited).await.unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let faults = tokio::spawn(break_the_link(Arc::clone(&proxy), Random::of(seed, 0), Arc::clone(&over)));
    let producer = tokio::spawn(produce(Arc::clone(&store), Random::of(seed, 1)));
    let mut consumer = Consumer::new(store, Random::of(seed, 2));
    loop {
        consumer.step().await;
        let is_all = producer.is_finished();
        let counts = plain.stats(queue()).await.unwrap().counts;
        assert_eq!(counts.dead, 0);
        if is_all && counts.scheduled + counts.ready + counts.leased == 0 {
            break;
        }
    }
    over.store(true, Ordering::Relaxed);
    let broken = faults.await.unwrap();
    let (put_ids, repeated) = producer.await.unwrap();
    let put_ids: HashSet<MessageId> = put_ids.into_iter().collect();
    let came: HashSet<MessageId> = consumer.deliveries.keys().copied().collect();
    assert_eq!(put_ids.len(), MESSAGES, "each put has an id of its own");
    assert!(came.is_superset(&put_ids), "what was answered came");
    assert!(came.len() <= MESSAGES + repeated, "{} besides, of {repeated} unknown", came.len() - MESSAGES);
    let deliveries: usize = consumer.deliveries.values().map(Vec::len).sum();
    println!(
        "seed {seed}: {broken} faults, {deliveries} deliveries of {MESSAGES}, {} unknown",
        consumer.unknown
    );
    assert!(broken > 3, "{broken} faults");
}

/// Puts each message until it is answered: one in two under an idempotency key, so that it is put once; the others are
/// stored in another form, and may be put again for each answer that is unknown. Also returns the number of those.
async fn produce(store: Arc<RedisStore>, mut random: Random) -> (Vec<MessageId>, usize) {
    let (mut ids, mut unknown) = (Vec::new(), 0);
    for number in 0..MESSAGES {
        let name = number.to_string();
        let delay_ms = random.below(300);
        let id = loop {
            let plain = message(&name).after_ms(delay_ms);
            let has_idempotency_key = number % 2 == 0;
            match put(
                &store,
                if has_idempotency_key { plain.idempotency_key(idempotency_key(&name)) } else { plain },
            )
            .await
            {
                Ok(answer) => break answer.id,
                Err(error) => {
                    assert!(error.is_retryable(), "{error}");
                    unknown +=
                        usize::from(!has_idempotency_key && matches!(error, Error::OutcomeUnknown { .. }));
                }
            }
        };
        ids.push(id);
    }
    (ids, unknown)
}

struct Consumer {
    store: Arc<RedisStore>,
    random: Random,
    /// All receipts of each message, the last one last.
    deliveries: HashMap<MessageId, Vec<Receipt>>,
    gone: HashSet<MessageId>,
    tokens: HashSet<u128>,
    unknown: usize,
}

impl Consumer {
    fn new(store: Arc<RedisStore>, random: Random) -> Consumer {
        Consumer {
            store,
            random,
            deliveries: HashMap::new(),
            gone: HashSet::new(),
            tokens: HashSet::new(),
            unknown: 0,
        }
    }

    async fn step(&mut self) {
        let take = Take::from(queue()).max(8).wait_ms(100).lease_ms(LEASE_MS);
        let taken = match self.store.take(take).await {
            Ok(taken) => taken,
            Err(error) => {
                assert!(error.is_retryable(), "{error}");
                self.unknown += 1;
                return;
            }
        };
        for delivery in taken {
            let id = delivery.message.id;
            assert!(delivery.taken_at >= delivery.message.standing.due, "{id} is early");
            assert!(!self.gone.contains(&id), "{id} comes after its ack was answered");
            assert!(self.tokens.insert(delivery.receipt.token.0), "a receipt is given twice");
            for stale in self.deliveries.get(&id).cloned().unwrap_or_default() {
                let settled = settle(&self.store, stale, Action::Ack).await;
                let refused = match &settled {
                    Err(Error::LeaseLost) => true,
                    Err(error) => error.is_retryable(),
                    Ok(_) => false,
                };
                assert!(refused, "{id} has a second good receipt: {settled:?}");
            }
            self.deliveries.entry(id).or_default().push(delivery.receipt.clone());
            match self.random.below(10) {
                0 => {}
                1 => {
                    let retry = Action::Retry { after_ms: Some(50), error: None, priority: None };
                    let _ = self.settle(delivery.receipt, retry).await;
                }
                _ => {
                    if self.settle(delivery.receipt, Action::Ack).await == Some(Settled::Gone) {
                        self.gone.insert(id);
                    }
                }
            }
        }
    }

    /// Settles until the outcome is known; `None` if the lease was over by then, or was settled by a try whose answer
    /// was lost.
    async fn settle(&mut self, receipt: Receipt, action: Action) -> Option<Settled> {
        loop {
            match settle(&self.store, receipt.clone(), action.clone()).await {
                Ok(settled) => return Some(settled),
                Err(Error::LeaseLost) => return None,
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
            self.unknown += 1;
        }
    }
}

/// Breaks the link and restores it until `over` is set; returns how many times.
async fn break_the_link(proxy: Arc<Proxy>, mut random: Random, over: Arc<AtomicBool>) -> usize {
    let mut broken = 0;
    while !over.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(20 + random.below(60))).await;
        match random.below(6) {
            0 => proxy.set(Link::Cut),
            1 => proxy.set(Link::Stalled),
            2 => proxy.set(Link::Deaf),
            3 => proxy.set(Link::Mute),
            _ => proxy.lose_reply_after(random.below(3) as i64),
        }
        tokio::time::sleep(Duration::from_millis(5 + random.below(250))).await;
        proxy.set(Link::Whole);
        broken += 1;
    }
    broken
}

//! Producers and consumers that go on whatever happens, and the record of their answers: what was put, what was
//! delivered, what was acked, and what is unknown.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use dwell_model::{IdempotencyKey, MessageId, Receipt};
use dwell_redis::RedisStore;
use dwell_store::{Error, Put, Settled, Store as _, Take};
use tokio::task::JoinHandle;

use super::{ack, put, queue, until, within};

/// The answers that producers and consumers received.
#[derive(Default)]
pub(super) struct LoadAnswers {
    /// Put, and answered.
    pub(super) answered: HashSet<MessageId>,
    /// Puts that may have been done, and were not repeated.
    pub(super) unknown_puts: usize,
    /// Acked, and answered.
    pub(super) acked: HashSet<MessageId>,
    /// Acks that may have been done.
    maybe_acked: HashSet<MessageId>,
    /// All receipts of each message.
    receipts: HashMap<MessageId, Vec<Receipt>>,
    tokens: HashSet<u128>,
    /// Messages that were delivered after their ack was answered.
    pub(super) came_back: HashSet<MessageId>,
    /// Calls that failed, each with a retryable error.
    pub(super) failures: usize,
}

impl LoadAnswers {
    /// Messages whose put was answered and that are gone, although no ack was answered or may have been done. They
    /// may have been delivered: a message that was lost with its lease never comes again.
    pub(super) fn lost(&self) -> HashSet<MessageId> {
        let is_done = |id: &&MessageId| self.acked.contains(id) || self.maybe_acked.contains(id);
        self.answered.iter().filter(|id| !is_done(id)).copied().collect()
    }

    /// The number of messages whose put was not answered.
    fn besides(&self) -> usize {
        self.receipts.keys().filter(|id| !self.answered.contains(id)).count()
    }
}

/// A load on some stores: a producer and a consumer for each.
pub(super) struct Load {
    told: Arc<Mutex<LoadAnswers>>,
    over: Arc<AtomicBool>,
    producers: Vec<JoinHandle<()>>,
    consumers: Vec<JoinHandle<()>>,
}

const LEASE_MS: u64 = 3_000;

impl Load {
    pub(super) fn start(stores: Vec<RedisStore>) -> Load {
        let (told, over) = (Arc::new(Mutex::new(LoadAnswers::default())), Arc::new(AtomicBool::new(false)));
        let (mut producers, mut consumers) = (Vec::new(), Vec::new());
        for (number, store) in stores.into_iter().enumerate() {
            let store = Arc::new(store);
            producers.push(tokio::spawn(produce(number, Arc::clone(&store), told.clone(), over.clone())));
            consumers.push(tokio::spawn(consume(store, told.clone(), over.clone())));
        }
        Load { told, over, producers, consumers }
    }

    pub(super) fn told(&self) -> MutexGuard<'_, LoadAnswers> {
        self.told.lock().unwrap()
    }

    /// Waits until `more` messages were put and as many were acked, and returns those put by then.
    pub(super) async fn go_on(&self, more: usize) -> HashSet<MessageId> {
        let counts = || {
            let told = self.told();
            (told.answered.len(), told.acked.len())
        };
        let before = counts();
        until("the load", async || {
            for task in self.producers.iter().chain(&self.consumers) {
                assert!(!task.is_finished(), "the load has ended");
            }
            let now = counts();
            now.0 >= before.0 + more && now.1 >= before.1 + more
        })
        .await;
        self.told().answered.clone()
    }

    /// Ends it: calls under way are awaited. The remaining messages are taken and acked through another store.
    pub(super) async fn end(self, store: &RedisStore) -> LoadAnswers {
        self.over.store(true, Ordering::Relaxed);
        for task in self.producers.into_iter().chain(self.consumers) {
            within("the load's last call", task).await.unwrap();
        }
        within("the rest", async {
            while !is_empty(store).await {
                step(store, &self.told).await;
            }
        })
        .await;
        let told = std::mem::take(&mut *self.told.lock().unwrap());
        // What was repeated because its answer was lost was done once.
        let (besides, unknown) = (told.besides(), told.unknown_puts);
        assert!(besides <= unknown, "{besides} without an answer, and {unknown} puts of unknown outcome");
        told
    }
}

async fn is_empty(store: &RedisStore) -> bool {
    match store.stats(queue()).await {
        Ok(stats) => {
            assert_eq!(stats.counts.dead, 0);
            stats.counts.scheduled + stats.counts.ready + stats.counts.leased == 0
        }
        Err(Error::UnknownQueue { .. }) => true,
        Err(error) => panic!("{error}"),
    }
}

/// Puts in each stored form; what has an idempotency key is repeated until it is answered.
async fn produce(
    number: usize,
    store: Arc<RedisStore>,
    told: Arc<Mutex<LoadAnswers>>,
    over: Arc<AtomicBool>,
) {
    for turn in 0_u64.. {
        if over.load(Ordering::Relaxed) {
            return;
        }
        let message = |body: &str| Put::new(queue(), body.to_owned()).after_ms(turn % 50);
        let plain = store.put(vec![message("a"), message("b").priority(7), message("c")]).await;
        for answer in plain {
            let mut told = told.lock().unwrap();
            match answer {
                Ok(answer) => assert!(told.answered.insert(answer.id), "an id is given twice"),
                Err(error) => {
                    assert!(error.is_retryable(), "{error}");
                    told.failures += 1;
                    told.unknown_puts += usize::from(matches!(error, Error::OutcomeUnknown { .. }));
                }
            }
        }
        let idempotency_key = IdempotencyKey::new(&format!("{number}-{turn}")).unwrap();
        let mut tried = false;
        loop {
            match put(&store, message("d").idempotency_key(idempotency_key.clone())).await {
                Ok(answer) => break assert!(told.lock().unwrap().answered.insert(answer.id)),
                Err(error) => {
                    assert!(error.is_retryable(), "{error}");
                    tried |= matches!(error, Error::OutcomeUnknown { .. });
                    let mut told = told.lock().unwrap();
                    told.failures += 1;
                    if over.load(Ordering::Relaxed) {
                        told.unknown_puts += usize::from(tried);
                        break;
                    }
                }
            }
        }
    }
}

async fn consume(store: Arc<RedisStore>, told: Arc<Mutex<LoadAnswers>>, over: Arc<AtomicBool>) {
    while !over.load(Ordering::Relaxed) {
        step(&store, &told).await;
    }
}

/// Takes some and acks them, except for some that come for the first time: their leases run out.
async fn step(store: &RedisStore, told: &Mutex<LoadAnswers>) {
    let taken = match store.take(Take::from(queue()).max(8).wait_ms(100).lease_ms(LEASE_MS)).await {
        Ok(taken) => taken,
        Err(error) => {
            assert!(error.is_retryable(), "{error}");
            told.lock().unwrap().failures += 1;
            return;
        }
    };
    for delivery in taken {
        let (id, receipt) = (delivery.message.id, delivery.receipt);
        assert!(delivery.taken_at >= delivery.message.standing.due, "{id} is early");
        let stale = {
            let mut told = told.lock().unwrap();
            if told.acked.contains(&id) {
                told.came_back.insert(id);
            }
            assert!(told.tokens.insert(receipt.token.0), "a receipt is given twice");
            let receipts = told.receipts.entry(id).or_default();
            receipts.push(receipt.clone());
            receipts[..receipts.len() - 1].to_vec()
        };
        let is_first = stale.is_empty();
        for stale in stale {
            let settled = ack(store, &stale).await;
            let is_refused = settled
                .as_ref()
                .err()
                .is_some_and(|error| *error == Error::LeaseLost || error.is_retryable());
            assert!(is_refused, "{id} has two good receipts: {settled:?}");
        }
        if is_first && receipt.token.0 % 32 == 0 {
            continue;
        }
        match ack(store, &receipt).await {
            Ok(settled) => {
                assert_eq!(settled, Settled::Gone);
                let mut told = told.lock().unwrap();
                assert!(told.acked.insert(id) || told.came_back.contains(&id), "{id} is acked twice");
            }
            Err(Error::LeaseLost) => {}
            Err(error) => {
                assert!(error.is_retryable(), "{error}");
                let mut told = told.lock().unwrap();
                told.failures += 1;
                told.maybe_acked.insert(id);
            }
        }
    }
}

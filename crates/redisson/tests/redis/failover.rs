//! A primary dies under offers, a mover and a consumer, and Sentinels promote its replica. The test compares what was
//! offered with what was delivered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use dwell_redis::Link;
use dwell_redisson::codec::Text;
use dwell_redisson::{Consumer, DelayedQueue, Keys, Mover, MoverOptions, When};
use dwell_testkit::redis::{Sentinels, count};
use dwell_testkit::until;
use tokio::task::JoinHandle;

/// What producer and consumer have observed.
#[derive(Default)]
pub(crate) struct Observations {
    /// Offers that were acknowledged.
    pub(crate) answered: BTreeSet<String>,
    /// The number of deliveries of each.
    pub(crate) delivered: BTreeMap<String, usize>,
    /// Calls that failed, each with a retryable error.
    pub(crate) failures: usize,
}

/// A producer, a mover and a consumer that continue whatever happens.
pub(crate) struct Load {
    told: Arc<Mutex<Observations>>,
    pauses: Arc<AtomicBool>,
    ends: Arc<AtomicBool>,
    producer: JoinHandle<()>,
    others: [JoinHandle<()>; 2],
    stop: tokio::sync::oneshot::Sender<()>,
}

const LEASE_MS: u64 = 2_000;
/// The pause after a refusal, or when there is nothing to do.
const PAUSE: Duration = Duration::from_millis(5);

impl Load {
    pub(crate) fn start(link: &Link, keys: &Keys) -> Load {
        let told = Arc::new(Mutex::new(Observations::default()));
        let (pauses, ends) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let mover = Mover::new(link.clone(), keys.clone(), MoverOptions::default());
        let moving = tokio::spawn(mover.run(async { drop(stopped.await) }, |_| {}));
        let queue = DelayedQueue::new(link.clone(), keys.clone(), Text);
        let producer =
            tokio::spawn(produce(queue, Arc::clone(&told), Arc::clone(&pauses), Arc::clone(&ends)));
        let consumer = Consumer::new(link.clone(), keys.clone()).with_max_attempts(0);
        let consuming = tokio::spawn(consume(consumer, Arc::clone(&told), Arc::clone(&ends)));
        Load { told, pauses, ends, producer, others: [moving, consuming], stop }
    }

    /// Continues until `more` more payloads were delivered.
    pub(crate) async fn go_on(&self, more: usize) {
        let enough = locked(&self.told).delivered.len() + more;
        self.until(|told| told.delivered.len() >= enough).await;
    }

    pub(crate) fn pause(&self, pause: bool) {
        self.pauses.store(pause, Ordering::SeqCst);
    }

    async fn until(&self, holds: impl Fn(&Observations) -> bool) {
        let waiting = async {
            while !holds(&locked(&self.told)) {
                tokio::time::sleep(PAUSE).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(90), waiting).await;
        if waited.is_err() {
            let told = locked(&self.told);
            panic!("{} of {} came, {} failures", told.delivered.len(), told.answered.len(), told.failures);
        }
    }

    /// Waits until every acknowledged offer is delivered, and stops.
    pub(crate) async fn end(self) -> Observations {
        self.pause(true);
        self.until(|told| told.answered.iter().all(|id| told.delivered.contains_key(id))).await;
        self.ends.store(true, Ordering::SeqCst);
        drop(self.stop);
        self.producer.await.unwrap();
        for other in self.others {
            other.await.unwrap();
        }
        std::mem::take(&mut *locked(&self.told))
    }
}

async fn produce(
    queue: DelayedQueue<Text>,
    told: Arc<Mutex<Observations>>,
    pauses: Arc<AtomicBool>,
    ends: Arc<AtomicBool>,
) {
    let mut number = 0_u64;
    while !ends.load(Ordering::SeqCst) {
        if pauses.load(Ordering::SeqCst) {
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        number += 1;
        let id = number.to_string();
        loop {
            match queue.offer_as(&id, &id, When::In(number % 40)).await {
                Ok(_) => {
                    locked(&told).answered.insert(id);
                    break;
                }
                Err(error) => failed(&told, &error).await,
            }
        }
    }
}

async fn consume(consumer: Consumer, told: Arc<Mutex<Observations>>, ends: Arc<AtomicBool>) {
    while !ends.load(Ordering::SeqCst) {
        let claimed = match consumer.claim(10, 100, LEASE_MS).await {
            Ok(claimed) => claimed,
            Err(error) => {
                failed(&told, &error).await;
                continue;
            }
        };
        for claimed in claimed {
            let id = String::from_utf8(claimed.payload).unwrap();
            *locked(&told).delivered.entry(id).or_default() += 1;
            if let Err(error) = consumer.ack(&claimed.token).await {
                failed(&told, &error).await;
            }
        }
    }
}

async fn failed(told: &Mutex<Observations>, error: &dwell_redisson::Error) {
    assert!(error.is_retryable(), "{error}");
    locked(told).failures += 1;
    tokio::time::sleep(PAUSE).await;
}

fn locked(told: &Mutex<Observations>) -> MutexGuard<'_, Observations> {
    told.lock().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_loses_nothing_that_the_replica_had() {
    let mut sentinels = Sentinels::start();
    let link = Link::open(sentinels.address()).await.unwrap();
    let load = Load::start(&link, &Keys::new("orders").unwrap());
    load.go_on(100).await;
    // Mover and consumer continue; what they do that does not reach the replica is done again.
    load.pause(true);
    let [primary, replica] = sentinels.servers() else { panic!("two servers") };
    let position = |server: &dwell_testkit::redis::Server, field: &str| -> i64 {
        server.info(field).and_then(|said| said.parse().ok()).unwrap_or(-1)
    };
    // The producer may still be in the middle of an offer.
    tokio::time::sleep(PAUSE * 10).await;
    let written = position(primary, "master_repl_offset");
    until("the replica has caught up", || position(replica, "slave_repl_offset") >= written);
    let old = primary.port();
    primary.kill();
    load.pause(false);
    sentinels.await_failover(old);
    load.go_on(100).await;
    let told = load.end().await;
    let again = told.delivered.values().filter(|times| **times > 1).count();
    let line = format!(
        "failover by Sentinel under a queue of Redisson's, the replica in step: 0 of {} answered offers lost, {again} of {} \
         delivered again; {} calls failed meanwhile",
        told.answered.len(),
        told.delivered.len(),
        told.failures
    );
    count(env!("CARGO_TARGET_TMPDIR"), "redisson-failover", &line);
    assert!(told.failures > 0, "nobody noticed");
    assert!(told.delivered.len() >= 200, "{line}");
}

/// The first Sentinel of the address does not answer, the others do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mover_moves_though_the_first_sentinel_does_not_answer() {
    let off = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let sentinels = Sentinels::start();
    let url = sentinels.url() + "?timeout_ms=2000";
    let through = url.replacen("://", &format!("://{},", off.local_addr().unwrap()), 1);
    let keys = Keys::new("orders").unwrap();
    let link = Link::open(through.parse().unwrap()).await.unwrap();
    let plain = Link::open(url.parse().unwrap()).await.unwrap();
    let queue = DelayedQueue::new(plain.clone(), keys.clone(), Text);
    queue.offer(&"m".to_owned(), When::In(10)).await.unwrap();
    let mover = Mover::new(link.clone(), keys.clone(), MoverOptions::default());
    let moving = tokio::spawn(mover.run(std::future::pending(), |_| {}));
    let moved = async {
        loop {
            let count: i64 = plain.ask(redis::cmd("LLEN").arg("orders")).await.unwrap();
            if count == 1 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let moved = tokio::time::timeout(Duration::from_secs(30), moved).await;
    moving.abort();
    assert!(moved.is_ok(), "nothing was moved in 30 s");
}

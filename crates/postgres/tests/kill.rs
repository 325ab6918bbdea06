//! Kills and restarts the server under load: nothing that was answered is lost, and nothing that was acked is delivered again.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dwell_model::{IdempotencyKey, Limits, QueueName};
use dwell_postgres::{Address, PostgresStore};
use dwell_store::{Action, Error, Put, Settle, Settled, Store as _, Take};
use dwell_testkit::postgres::Server;
use dwell_testkit::{Random, until_async, within};

use support::RUNTIME;

/// The state of a message, by its body.
#[derive(Default)]
struct Known {
    put: BTreeSet<String>,
    acked: BTreeSet<String>,
    /// Messages whose ack has an unknown outcome.
    unsure: BTreeSet<String>,
    /// Receipts, and how often each was issued.
    receipts: BTreeMap<String, u32>,
}

fn queue() -> QueueName {
    "orders".parse().expect("it is a name")
}

#[test]
fn nothing_answered_is_lost_where_the_server_is_killed_under_load() {
    let rounds = std::env::var("DWELL_ROUNDS").map_or(3, |rounds| rounds.parse().expect("a number"));
    let mut server = Server::start_with(&[]);
    let url = format!("{}?connections=6&timeout_ms=5000", server.url("postgres"));
    let store = RUNTIME.block_on(async {
        let address: Address = url.parse().expect("it is a URL");
        Arc::new(PostgresStore::open(address, Limits::default()).await.expect("it can be opened"))
    });
    let known = Arc::new(Mutex::new(Known::default()));
    let (is_over, acks) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let producers: Vec<_> = (0..2)
        .map(|producer| {
            RUNTIME.spawn(produce(producer, Arc::clone(&store), Arc::clone(&known), Arc::clone(&is_over)))
        })
        .collect();
    let consumers: Vec<_> = (0..3)
        .map(|_| {
            RUNTIME.spawn(consume(
                Arc::clone(&store),
                Arc::clone(&known),
                Arc::clone(&is_over),
                Arc::clone(&acks),
            ))
        })
        .collect();
    let mut random = Random::new(1);
    for _ in 0..rounds {
        // Some work is done between two kills, plus a little more.
        let before = acks.load(Ordering::Relaxed);
        RUNTIME.block_on(async {
            until_async("some acks", async || acks.load(Ordering::Relaxed) > before + 50).await
        });
        let little = Duration::from_millis(random.below(200));
        RUNTIME.block_on(async { tokio::time::sleep(little).await });
        server.kill();
        server.start_again();
    }
    is_over.store(true, Ordering::Relaxed);
    RUNTIME.block_on(async { within("the producers", futures_util::future::join_all(producers)).await });
    // The rest is taken until all is acked; a message that was not received comes again when its lease has run out.
    RUNTIME.block_on(until_async("all to be acked", async || {
        let known = known.lock().expect("nobody panics with it");
        known.put.iter().all(|body| known.acked.contains(body) || known.unsure.contains(body))
    }));
    for consumer in RUNTIME.block_on(within("the consumers", futures_util::future::join_all(consumers))) {
        consumer.expect("it did not panic");
    }
    let known = known.lock().expect("nobody panics with it");
    assert!(known.receipts.values().all(|times| *times == 1), "a receipt was given twice");
    println!(
        "{rounds} kills: {} put, {} acked, {} acks of which nobody knows",
        known.put.len(),
        known.acked.len(),
        known.unsure.len()
    );
}

/// Puts messages, each retried with its idempotency key until it is answered.
async fn produce(
    producer: u32,
    store: Arc<PostgresStore>,
    known: Arc<Mutex<Known>>,
    is_over: Arc<AtomicBool>,
) {
    let mut number = 0;
    while !is_over.load(Ordering::Relaxed) {
        let names: Vec<String> = (0..5).map(|n| format!("{producer}-{}", number + n)).collect();
        number += names.len();
        let idempotency_key = |name: &String| IdempotencyKey::new(name).expect("it is an idempotency key");
        let puts: Vec<Put> = names
            .iter()
            .map(|name| Put::new(queue(), name.clone()).after_ms(50).idempotency_key(idempotency_key(name)))
            .collect();
        loop {
            let answers = store.put(puts.clone()).await;
            if answers.iter().all(Result::is_ok) {
                break;
            }
            for error in answers.into_iter().filter_map(Result::err) {
                assert!(error.is_retryable(), "{error}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        known.lock().expect("nobody panics with it").put.extend(names);
    }
}

/// Takes and acks until all messages are acked.
async fn consume(
    store: Arc<PostgresStore>,
    known: Arc<Mutex<Known>>,
    is_over: Arc<AtomicBool>,
    acks: Arc<AtomicU64>,
) {
    loop {
        let taken = match store.take(Take::from(queue()).max(5).lease_ms(3_000).wait_ms(200)).await {
            Ok(taken) => taken,
            Err(error) => {
                assert!(error.is_retryable(), "{error}");
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        for delivery in taken {
            let body = String::from_utf8(delivery.message.body.to_vec()).expect("it is text");
            assert!(delivery.taken_at >= delivery.message.standing.due, "{body} is early");
            {
                let mut known = known.lock().expect("nobody panics with it");
                assert!(!known.acked.contains(&body), "{body} was acked, and comes again");
                *known.receipts.entry(delivery.receipt.to_string()).or_default() += 1;
            }
            let settle = Settle { receipt: delivery.receipt, action: Action::Ack };
            let answer = store.settle(vec![settle]).await.pop().expect("one answer an item");
            let mut known = known.lock().expect("nobody panics with it");
            match answer {
                Ok(Settled::Gone) => drop(known.acked.insert(body)),
                Ok(other) => panic!("an ack is answered {other:?}"),
                Err(Error::OutcomeUnknown { .. }) => drop(known.unsure.insert(body)),
                // The ack was not done; the lease runs out, and the message comes again.
                Err(error) => assert!(error.is_retryable() || error == Error::LeaseLost, "{error}"),
            }
            acks.fetch_add(1, Ordering::Relaxed);
        }
        let known = known.lock().expect("nobody panics with it");
        let is_done = known.put.iter().all(|body| known.acked.contains(body) || known.unsure.contains(body));
        if is_over.load(Ordering::Relaxed) && is_done {
            return;
        }
    }
}

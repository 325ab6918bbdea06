//! Several waiters on one object wait concurrently, each until its own deadline.

use std::sync::Arc;

use dwell_redis::Link;
use dwell_redisson::codec::Text;
use dwell_redisson::{Consumer, DelayedQueue};

use crate::{Fixture, HOUR_MS, run, text};

fn queue(bed: &Fixture) -> Arc<DelayedQueue<Text>> {
    Arc::new(DelayedQueue::new(bed.link.clone(), bed.keys.clone(), Text))
}

/// Waits until `count` waiters block at the server.
async fn blocked(bed: &Fixture, count: usize) {
    while bed.server.info("blocked_clients") != Some(count.to_string()) {
        tokio::task::yield_now().await;
    }
}

#[test]
fn takes_wait_beside_each_other() {
    run(async {
        let bed = Fixture::new().await;
        let queue = queue(&bed);
        let waiting: Vec<_> = (0..10)
            .map(|_| {
                let queue = queue.clone();
                tokio::spawn(async move { queue.take(30_000).await })
            })
            .collect();
        // All at the same time: one after another they would never be ten.
        blocked(&bed, 10).await;
        assert_eq!(queue.take(0).await.unwrap(), None, "it does not wait for the others");
        let values: Vec<_> = (0..10).map(|n| n.to_string()).collect();
        bed.send(redis::cmd("RPUSH").arg(bed.keys.ready()).arg(&values)).await;
        let mut taken = Vec::new();
        for one in waiting {
            taken.push(one.await.unwrap().unwrap().unwrap());
        }
        taken.sort();
        assert_eq!(taken, values);
        assert_eq!(queue.take(0).await.unwrap(), None);
        bed.send(redis::cmd("RPUSH").arg(bed.keys.ready()).arg("at once")).await;
        assert_eq!(queue.take(0).await.unwrap(), Some(text("at once")));
    });
}

#[test]
fn takes_that_find_nothing_end_together() {
    run(async {
        let bed = Fixture::new().await;
        let queue = queue(&bed);
        let begun_ms = bed.now_ms().await;
        let waiting: Vec<_> = (0..10)
            .map(|_| {
                let queue = queue.clone();
                tokio::spawn(async move { queue.take(1_500).await })
            })
            .collect();
        for one in waiting {
            assert_eq!(one.await.unwrap().unwrap(), None);
        }
        let took_ms = bed.now_ms().await - begun_ms;
        assert!((1_400..5 * 1_500).contains(&took_ms), "{took_ms} ms, one after another 15,000");
    });
}

#[test]
fn claims_wait_beside_each_other() {
    run(async {
        let bed = Fixture::new().await;
        let consumer = Arc::new(Consumer::new(bed.link.clone(), bed.keys.clone()));
        let waiting: Vec<_> = (0..10)
            .map(|_| {
                let consumer = consumer.clone();
                tokio::spawn(async move { consumer.claim(1, 30_000, HOUR_MS).await })
            })
            .collect();
        blocked(&bed, 10).await;
        assert!(consumer.claim(1, 0, HOUR_MS).await.unwrap().is_empty());
        let values: Vec<_> = (0..10).map(|n| n.to_string()).collect();
        bed.send(redis::cmd("RPUSH").arg(bed.keys.ready()).arg(&values)).await;
        let mut claimed = Vec::new();
        for one in waiting {
            claimed.extend(one.await.unwrap().unwrap().into_iter().map(|one| one.payload));
        }
        claimed.sort();
        assert_eq!(claimed, values.iter().map(|value| value.as_bytes().to_vec()).collect::<Vec<_>>());
    });
}

/// More waiters than may block at the server: the rest wait for a connection, but not beyond their deadline.
#[test]
fn more_takes_than_connections_end_too() {
    run(async {
        let bed = Fixture::new().await;
        let queue = queue(&bed);
        let long: Vec<_> = (0..64)
            .map(|_| {
                let queue = queue.clone();
                tokio::spawn(async move { queue.take(HOUR_MS).await })
            })
            .collect();
        blocked(&bed, 64).await;
        assert_eq!(queue.take(50).await.unwrap(), None);
        for one in long {
            one.abort();
        }
    });
}

/// The payload that a claim waited for was taken from the inbox by another claim: it continues to wait.
#[test]
fn a_claim_whose_inbox_others_empty_waits_on() {
    run(async {
        let bed = Fixture::new().await;
        let consumer = Consumer::new(bed.link.clone(), bed.keys.clone());
        let claiming = tokio::spawn(async move { consumer.claim(1, 30_000, HOUR_MS).await });
        let thief = Link::open(bed.server.address()).await.unwrap();
        // Elapsed time is what is subtracted: forty waits that end at once are not forty seconds.
        for n in 0..40 {
            blocked(&bed, 1).await;
            let mut steal = redis::cmd("BLPOP");
            steal.arg(bed.keys.inbox()).arg(5);
            let stealing = thief.ask::<Option<(String, String)>>(&steal);
            let offering = async {
                blocked(&bed, 2).await;
                bed.send(redis::cmd("RPUSH").arg(bed.keys.ready()).arg(format!("stolen {n}"))).await;
            };
            let (stolen, ()) = tokio::join!(stealing, offering);
            assert_eq!(stolen.unwrap().unwrap().1, format!("stolen {n}"));
            assert!(!claiming.is_finished(), "it has waited to its end after {n}");
        }
        blocked(&bed, 1).await;
        bed.send(redis::cmd("RPUSH").arg(bed.keys.ready()).arg("left")).await;
        assert_eq!(claiming.await.unwrap().unwrap()[0].payload, b"left");
    });
}

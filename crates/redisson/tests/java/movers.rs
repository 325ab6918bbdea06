//! Our movers next to Java's: each element is moved once, by whichever is faster.

use std::collections::BTreeSet;

use dwell_model::Timestamp;
use dwell_redisson::{Layout, When};
use serde_json::json;

use crate::java::all;
use crate::{Fixture, HOUR_MS, for_layout, run};

/// Asserts that `taken` has each of `0..count` once.
fn each_once(taken: &[String], count: usize) {
    let distinct: BTreeSet<usize> = taken.iter().map(|value| value.parse().expect("a number")).collect();
    assert_eq!((taken.len(), distinct.len()), (count, count), "taken and distinct");
    assert_eq!((distinct.first(), distinct.last()), (Some(&0), Some(&(count - 1))));
}

/// Offers `0..count` from Rust, due at one instant.
async fn offer_at_one_instant(bed: &Fixture, layout: Layout, count: usize, in_ms: i64) {
    offer_at_instants(bed, layout, count, in_ms, count).await;
}

/// Offers `0..count` from Rust, `at_once` of them due at one instant, and the next ones 400 ms later.
async fn offer_at_instants(bed: &Fixture, layout: Layout, count: usize, in_ms: i64, at_once: usize) {
    let (seconds, micros): (i64, i64) = bed.ask(&redis::cmd("TIME")).await;
    let first_ms = seconds * 1000 + micros / 1000 + in_ms;
    let due = |n: usize| Timestamp::from_ms(first_ms + 400 * (n / at_once) as i64).expect("it is an instant");
    let values: Vec<_> = (0..count).map(|n| (n.to_string(), When::At(due(n)))).collect();
    for some in values.chunks(1_000) {
        bed.queue("orders").with_layout(layout).offer_many(some).await.expect("they can be offered");
    }
}

#[test]
fn movers_race_over_five_thousand() {
    run(async {
        for java in all() {
            let layout = java.layout();
            let bed = Fixture::new().await;
            let client = java.connect(bed.server.port(), "").await;
            let theirs = client.queue("orders");
            theirs.open().await;
            let count = 5_000;
            // Java has moved some before ours begin, since its timer is the slower one; then they race for the rest. A
            // race that one of them wins alone is repeated.
            let mut raced = Vec::new();
            while !raced.iter().any(|moved| (1..count).contains(moved)) {
                assert!(raced.len() < 8, "{}: one side moved all each time, ours {raced:?}", java.release);
                offer_at_instants(&bed, layout, count, 300, 1_000).await;
                while bed.queue("orders").ready_size().await.unwrap() == 0 {
                    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
                }
                let ours = [
                    bed.mover("orders", for_layout(layout)).await,
                    bed.mover("orders", for_layout(layout)).await,
                ];
                each_once(&theirs.collect(count, 20_000).await, count);
                let mut moved = 0;
                for mover in ours {
                    moved += mover.stop().await;
                }
                println!("{}: ours moved {moved} of {count}, Java the rest", java.release);
                assert_eq!(bed.queue("orders").size().await.unwrap(), 0);
                assert_eq!(bed.queue("orders").ready_size().await.unwrap(), 0);
                raced.push(moved);
            }
            client.shutdown().await;
        }
    });
}

#[test]
fn ten_thousand_at_one_instant_from_rust_to_java() {
    run(async {
        for java in all() {
            let bed = Fixture::new().await;
            let client = java.connect(bed.server.port(), "").await;
            let count = 10_000;
            offer_at_one_instant(&bed, java.layout(), count, 500).await;
            let mover = bed.mover("orders", for_layout(java.layout())).await;
            each_once(&client.queue("orders").collect(count, 20_000).await, count);
            assert_eq!(mover.stop().await, count);
            client.shutdown().await;
        }
    });
}

#[test]
fn ten_thousand_at_one_instant_by_java_s_mover() {
    run(async {
        for java in all() {
            let bed = Fixture::new().await;
            let client = java.connect(bed.server.port(), "").await;
            client.queue("orders").open().await;
            let count = 10_000;
            offer_at_one_instant(&bed, java.layout(), count, 1_000).await;
            let ours = bed.queue("orders");
            let mut taken = Vec::new();
            while taken.len() < count {
                taken.push(ours.take(20_000).await.unwrap().expect("all of them come"));
            }
            each_once(&taken, count);
            assert_eq!((ours.size().await.unwrap(), ours.ready_size().await.unwrap()), (0, 0));
            client.shutdown().await;
        }
    });
}

#[test]
fn ten_thousand_at_one_instant_from_java_to_rust() {
    run(async {
        for java in all() {
            let bed = Fixture::new().await;
            let client = java.connect(bed.server.port(), "").await;
            let (theirs, ours) = (client.queue("orders"), bed.queue("orders"));
            let count = 10_000;
            let values: Vec<_> = (0..count).map(|n| n.to_string()).collect();
            // Offered for later, then made due at one instant: Java's own offers have no instant in common.
            theirs.offer(json!(values), HOUR_MS).await;
            theirs.destroy().await;
            let all: Vec<Vec<u8>> =
                bed.ask(redis::cmd("ZRANGE").arg(ours.keys().timeouts()).arg(0).arg(-1)).await;
            let mut at_once = redis::cmd("ZADD");
            at_once.arg(ours.keys().timeouts());
            for element in &all {
                at_once.arg(1_000).arg(element);
            }
            bed.ask::<usize>(&at_once).await;
            let mover = bed.mover("orders", for_layout(java.layout())).await;
            let mut taken = Vec::new();
            while taken.len() < count {
                taken.push(ours.take(20_000).await.unwrap().expect("all of them come"));
            }
            each_once(&taken, count);
            assert_eq!(mover.stop().await, count);
            client.shutdown().await;
        }
    });
}

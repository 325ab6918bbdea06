//! Movers beside Java's: each element once, whoever is faster.

use std::collections::BTreeSet;

use dwell_redis::redisson::{Layout, When};
use serde_json::json;

use crate::java::{NEW, new_ones};
use crate::{Bed, for_layout, run};

/// All of `0..count`, each once.
fn each_once(taken: &[String], count: usize) {
    let distinct: BTreeSet<usize> = taken.iter().map(|value| value.parse().expect("a number")).collect();
    assert_eq!((taken.len(), distinct.len()), (count, count), "taken and distinct");
    assert_eq!((distinct.first(), distinct.last()), (Some(&0), Some(&(count - 1))));
}

/// Offers `0..count` from Rust, due at one instant.
async fn offer_at_one_instant(bed: &Bed, count: usize, in_ms: i64) {
    let (seconds, micros): (i64, i64) = bed.ask(&redis::cmd("TIME")).await;
    let due =
        dwell_model::Timestamp::from_ms(seconds * 1000 + micros / 1000 + in_ms).expect("it is an instant");
    let values: Vec<_> = (0..count).map(|n| (n.to_string(), When::At(due))).collect();
    for some in values.chunks(1_000) {
        bed.queue("orders").offer_many(some).await.expect("they can be offered");
    }
}

#[test]
fn movers_race_over_five_thousand() {
    run(async {
        for java in new_ones() {
            let bed = Bed::new().await;
            let client = java.connect(bed.server.port(), "").await;
            let theirs = client.queue("orders");
            theirs.open().await;
            let count = 5_000;
            offer_at_one_instant(&bed, count, 1_000).await;
            let ours = [
                bed.mover("orders", for_layout(Layout::New)).await,
                bed.mover("orders", for_layout(Layout::New)).await,
            ];
            each_once(&theirs.collect(count, 20_000).await, count);
            let mut moved = 0;
            for mover in ours {
                moved += mover.stop().await;
            }
            println!("{}: ours moved {moved} of {count}, Java the rest", java.release);
            assert_eq!(bed.queue("orders").size().await.unwrap(), 0);
            assert_eq!(bed.queue("orders").ready_size().await.unwrap(), 0);
            client.shutdown().await;
        }
    });
}

#[test]
fn ten_thousand_at_one_instant_from_rust_to_java() {
    run(async {
        let bed = Bed::new().await;
        let client = NEW.connect(bed.server.port(), "").await;
        let count = 10_000;
        offer_at_one_instant(&bed, count, 500).await;
        let mover = bed.mover("orders", for_layout(Layout::New)).await;
        each_once(&client.queue("orders").collect(count, 20_000).await, count);
        assert_eq!(mover.stop().await, count);
        client.shutdown().await;
    });
}

#[test]
fn ten_thousand_at_one_instant_from_java_to_rust() {
    run(async {
        let bed = Bed::new().await;
        let client = NEW.connect(bed.server.port(), "").await;
        let (theirs, ours) = (client.queue("orders"), bed.queue("orders"));
        let count = 10_000;
        let values: Vec<_> = (0..count).map(|n| n.to_string()).collect();
        // Offered for later, then made due at one instant: Java's own offers have no instant in common.
        theirs.offer(json!(values), 3_600_000).await;
        theirs.destroy().await;
        let all: Vec<Vec<u8>> =
            bed.ask(redis::cmd("ZRANGE").arg(ours.keys().timeouts()).arg(0).arg(-1)).await;
        let mut at_once = redis::cmd("ZADD");
        at_once.arg(ours.keys().timeouts());
        for element in &all {
            at_once.arg(1_000).arg(element);
        }
        bed.ask::<usize>(&at_once).await;
        let mover = bed.mover("orders", for_layout(Layout::New)).await;
        let mut taken = Vec::new();
        while taken.len() < count {
            taken.push(ours.take(20_000).await.unwrap().expect("all of them come"));
        }
        each_once(&taken, count);
        assert_eq!(mover.stop().await, count);
        client.shutdown().await;
    });
}

//! The old layout among new elements: without a Java mover, with one, and what Java does by itself.

use std::collections::BTreeMap;

use dwell_model::Timestamp;
use dwell_redisson::{Event, Layout, When};
use serde_json::json;

use crate::java::{Java, MIDDLE, NEW, OLD, new_ones};
use crate::{Fixture, HOUR_MS, for_layout, run, text};

#[test]
fn with_no_java_mover_each_is_delivered_once() {
    run(async {
        for java in new_ones() {
            let bed = Fixture::new().await;
            let old = OLD.connect(bed.server.port(), "").await;
            let new = java.connect(bed.server.port(), "").await;
            for (client, value) in [(&old, "old"), (&new, "new")] {
                let values: Vec<_> = (0..50).map(|n| format!("{value} {n}")).collect();
                client.queue("orders").offer(json!(values), HOUR_MS).await;
                client.queue("orders").destroy().await;
            }
            let ours = bed.queue("orders");
            assert_eq!(ours.size().await.unwrap(), 100);
            // Due only after the last Java mover has stopped, however slow the machine is.
            let all: Vec<Vec<u8>> =
                bed.ask(redis::cmd("ZRANGE").arg(ours.keys().timeouts()).arg(0).arg(-1)).await;
            let mut due = redis::cmd("ZADD");
            due.arg(ours.keys().timeouts());
            all.iter().for_each(|element| {
                due.arg(1_000).arg(element);
            });
            bed.ask::<usize>(&due).await;
            let mover = bed.mover("orders", for_layout(Layout::New)).await;
            let taken = new.queue("orders").collect(101, 3_000).await;
            assert_eq!(counted(taken), expected(50), "{}", java.release);
            assert_eq!(mover.stop().await, 100);
            old.shutdown().await;
            new.shutdown().await;
        }
    });
}

#[test]
fn beside_a_java_mover_foreign_elements_are_rewritten_before_they_are_due() {
    run(async {
        for java in new_ones() {
            let bed = Fixture::new().await;
            let old = OLD.connect(bed.server.port(), "").await;
            let new = java.connect(bed.server.port(), "").await;
            let theirs = new.queue("orders");
            theirs.open().await;
            let mut mover = bed.mover("orders", for_layout(Layout::New)).await;
            let old_values: Vec<_> = (0..50).map(|n| format!("old {n}")).collect();
            let new_values: Vec<_> = (0..50).map(|n| format!("new {n}")).collect();
            old.queue("orders").offer(json!(old_values), 3_000).await;
            // Its own mover would jam at the new ones.
            old.queue("orders").destroy().await;
            theirs.offer(json!(new_values), 3_000).await;
            let mut rewritten = 0;
            while rewritten < 50 {
                match mover.events.recv().await.expect("the mover runs") {
                    Event::Mended(mended) => rewritten += mended.rewritten,
                    Event::Moved(_) => {
                        panic!("due before all were rewritten: the machine is too slow for this test")
                    }
                    _ => {}
                }
            }
            // They keep their position, and Java can read them now.
            assert_eq!(theirs.size().await, 100);
            assert!(theirs.contains("old 7").await);
            let taken = theirs.collect(101, 4_000).await;
            assert_eq!(counted(taken), expected(50), "{}", java.release);
            mover.stop().await;
            old.shutdown().await;
            new.shutdown().await;
        }
    });
}

#[test]
fn what_3_17_repeats_by_itself_is_counted_and_ours_ends_it() {
    repeats_until_ours_ends_it(&OLD, Layout::Old, Layout::New);
}

#[test]
fn what_3_45_repeats_by_itself_is_counted_and_ours_ends_it() {
    repeats_until_ours_ends_it(&MIDDLE, Layout::New, Layout::Old);
}

#[test]
fn what_4_7_repeats_by_itself_is_counted_and_ours_ends_it() {
    repeats_until_ours_ends_it(&NEW, Layout::New, Layout::Old);
}

fn repeats_until_ours_ends_it(java: &'static Java, own: Layout, other: Layout) {
    run(async {
        let bed = Fixture::new().await;
        let client = java.connect(bed.server.port(), "").await;
        let theirs = client.queue("orders");
        // An element of Java's layout that is due first, one of the other layout, at which Java's script fails, and
        // another of its own. All are due before Java starts to move, so that one script handles them all.
        let ours = bed.queue("orders").with_layout(own);
        let foreign = bed.queue("orders").with_layout(other);
        for (queue, value, ms) in
            [(&ours, "first", 1_000), (&foreign, "foreign", 1_001), (&ours, "last", 1_002)]
        {
            let due = Timestamp::from_ms(ms).expect("it is an instant");
            queue.offer(&text(value), When::At(due)).await.expect("it is offered");
        }
        theirs.open().await;
        // Java repeats the first one, and never reaches the last: once more every 5 s, as `docs/redisson.md` says.
        let now_ms = async || {
            let (seconds, micros): (i64, i64) = bed.ask(&redis::cmd("TIME")).await;
            seconds * 1_000 + micros / 1_000
        };
        let (mut taken, mut came_ms) = (Vec::new(), Vec::new());
        while taken.len() < 4 {
            taken.push(theirs.take(20_000).await.as_str().expect("something comes").to_owned());
            came_ms.push(now_ms().await);
        }
        let apart_ms: Vec<i64> = came_ms.windows(2).map(|pair| pair[1] - pair[0]).collect();
        println!(
            "{} alone delivered {taken:?} of first, foreign and last, {apart_ms:?} ms apart",
            java.release
        );
        assert_eq!(taken, ["first"; 4]);
        assert!(apart_ms[1..].iter().all(|ms| *ms >= 4_000), "{apart_ms:?} ms apart, and not 5 s");
        // Our mover removes the foreign element and moves all three, so the first one comes once more than from Java;
        // Java may run once in between.
        let mover = bed.mover("orders", for_layout(own)).await;
        let rest = theirs.collect(10, 6_000).await;
        let counts = counted(rest.clone());
        println!("{}: with ours besides {counts:?}", java.release);
        assert_eq!((counts.get("foreign"), counts.get("last")), (Some(&1), Some(&1)), "{rest:?}");
        let firsts = counts.get("first").copied().unwrap_or(0);
        assert!((1..=2).contains(&firsts) && rest.len() == firsts + 2, "{rest:?}");
        assert_eq!(ours.size().await.expect("Redis answers"), 0);
        mover.stop().await;
        client.shutdown().await;
    });
}

#[test]
fn ours_serves_a_fleet_of_old_clients() {
    run(async {
        let bed = Fixture::new().await;
        let old = OLD.connect(bed.server.port(), "").await;
        let theirs = old.queue("orders");
        let mover = bed.mover("orders", for_layout(Layout::Old)).await;
        bed.queue("orders").offer(&text("from a new client"), When::In(HOUR_MS)).await.unwrap();
        let mut mover = mover;
        loop {
            if let Event::Mended(mended) = mover.events.recv().await.expect("the mover runs") {
                assert_eq!(mended.rewritten, 1);
                break;
            }
        }
        theirs.open().await;
        assert!(theirs.debounce("from a new client", 50).await);
        assert_eq!(theirs.take(20_000).await, "from a new client");
        mover.stop().await;
        old.shutdown().await;
    });
}

fn counted(taken: Vec<String>) -> BTreeMap<String, usize> {
    let mut counted = BTreeMap::new();
    for value in taken {
        *counted.entry(value).or_default() += 1;
    }
    counted
}

/// Each element of both kinds once.
fn expected(count: usize) -> BTreeMap<String, usize> {
    ["old", "new"].into_iter().flat_map(|kind| (0..count).map(move |n| (format!("{kind} {n}"), 1))).collect()
}

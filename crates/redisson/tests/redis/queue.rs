//! Pending elements: read, removed, debounced.

use dwell_redisson::codec::{Codec, Long};
use dwell_redisson::{DelayedQueue, Error, Keys, Layout, When, decode_element, encode_element};

use crate::{Fixture, HOUR_MS, run, text};

#[test]
fn pending_values_are_seen_in_the_order_of_offers() {
    run(async {
        let bed = Fixture::new().await;
        for (value, delay_ms) in [("c", 3 * HOUR_MS), ("a", HOUR_MS), ("b", 2 * HOUR_MS)] {
            bed.offer(value, delay_ms).await;
        }
        assert_eq!(bed.queue.size().await.unwrap(), 3);
        assert_eq!(bed.queue.read_all().await.unwrap(), ["c", "a", "b"]);
        assert_eq!(bed.queue.peek().await.unwrap(), Some(text("c")));
        assert!(bed.queue.contains(&text("b")).await.unwrap());
        assert!(!bed.queue.contains(&text("d")).await.unwrap());
        assert_eq!(bed.queue.poll(2).await.unwrap(), ["c", "a"]);
        assert_eq!(bed.queue.size().await.unwrap(), 1);
        bed.queue.clear().await.unwrap();
        assert_eq!(bed.queue.peek().await.unwrap(), None);
        assert_eq!(bed.queue.poll(2).await.unwrap(), Vec::<String>::new());
    });
}

#[test]
fn the_first_equal_one_is_removed() {
    run(async {
        let bed = Fixture::new().await;
        for value in ["x", "y", "x", "z"] {
            bed.offer(value, HOUR_MS).await;
        }
        assert!(bed.queue.remove(&text("x")).await.unwrap());
        assert_eq!(bed.queue.read_all().await.unwrap(), ["y", "x", "z"]);
        assert!(!bed.queue.remove(&text("w")).await.unwrap());
        assert_eq!(bed.queue.remove_all(&[text("x"), text("z"), text("w")]).await.unwrap(), 2);
        assert_eq!(bed.queue.read_all().await.unwrap(), ["y"]);
    });
}

#[test]
fn walks_over_many_pages_find_all() {
    run(async {
        let bed = Fixture::new().await;
        let values: Vec<_> = (0..3_000).map(|n| (format!("v{}", n % 1_000), When::In(HOUR_MS))).collect();
        for some in values.chunks(500) {
            bed.queue.offer_many(some).await.unwrap();
        }
        assert!(bed.queue.contains(&text("v999")).await.unwrap());
        assert_eq!(bed.queue.remove_all(&[text("v999"), text("v0"), text("v500")]).await.unwrap(), 9);
        assert_eq!(bed.queue.size().await.unwrap(), 2_991);
        assert_eq!(bed.queue.read_all().await.unwrap().len(), 2_991);
    });
}

#[test]
fn a_debounce_leaves_one() {
    run(async {
        let bed = Fixture::new().await;
        bed.offer("x", 10).await;
        bed.offer("y", HOUR_MS).await;
        bed.offer("x", 20).await;
        let debounced = bed.queue.debounce(&text("x"), When::In(HOUR_MS)).await.unwrap();
        assert_eq!(debounced.taken_out, 2);
        assert_eq!(bed.queue.read_all().await.unwrap(), ["y", "x"]);
        let scheduled: usize = bed.link.ask(redis::cmd("ZCARD").arg(bed.keys.timeouts())).await.unwrap();
        assert_eq!(scheduled, 2);
        assert_eq!(bed.queue.debounce(&text("new"), When::In(1)).await.unwrap().taken_out, 0);
    });
}

#[test]
fn a_value_that_the_codec_cannot_read_stays() {
    run(async {
        let bed = Fixture::new().await;
        bed.offer("no number", HOUR_MS).await;
        let numbers = DelayedQueue::new(bed.link.clone(), bed.keys.clone(), Long);
        assert!(matches!(numbers.read_all().await, Err(Error::Value { codec: "long", .. })));
        assert!(matches!(numbers.poll(1).await, Err(Error::Value { codec: "long", .. })));
        assert_eq!(bed.queue.size().await.unwrap(), 1);
        assert!(!numbers.contains(&5).await.unwrap());
        assert!(Long.encode(&5).is_ok());
    });
}

#[test]
fn both_layouts_are_read_side_by_side() {
    run(async {
        let bed = Fixture::new().await;
        let old = DelayedQueue::new(bed.link.clone(), bed.keys.clone(), dwell_redisson::codec::Text)
            .with_layout(Layout::Old);
        old.offer(&text("old"), When::In(HOUR_MS)).await.unwrap();
        bed.offer("new", HOUR_MS).await;
        bed.plant(&encode_element(Layout::Old, *b"\x08\0\0\0\0\0\xd0\x43", b"planted"), "99999999999999")
            .await;
        assert_eq!(bed.queue.read_all().await.unwrap(), ["old", "new", "planted"]);
        let first: Vec<u8> = bed.link.ask(redis::cmd("LINDEX").arg(bed.keys.pending()).arg(0)).await.unwrap();
        assert_eq!(decode_element(&first).unwrap().layout, Layout::Old);
        assert!(bed.queue.remove(&text("old")).await.unwrap());
    });
}

#[test]
fn a_key_of_another_type_is_a_typed_error_and_changes_nothing() {
    run(async {
        let bed = Fixture::new().await;
        bed.send(redis::cmd("SET").arg(bed.keys.pending()).arg("mine")).await;
        let offered = bed.queue.offer(&text("x"), When::In(1)).await;
        assert!(matches!(offered, Err(Error::WrongType { .. })), "{offered:?}");
        assert!(matches!(bed.queue.debounce(&text("x"), When::In(1)).await, Err(Error::WrongType { .. })));
        assert!(matches!(bed.queue.size().await, Err(Error::WrongType { .. })));
        let keys: usize = bed.link.ask(&redis::cmd("DBSIZE")).await.unwrap();
        assert_eq!(keys, 1);
    });
}

#[test]
fn a_mapped_name_is_another_queue() {
    run(async {
        let bed = Fixture::new().await;
        let keys = Keys::with_prefix("shop:", "orders").unwrap();
        let mapped = DelayedQueue::new(bed.link.clone(), keys, dwell_redisson::codec::Text);
        mapped.offer(&text("x"), When::In(HOUR_MS)).await.unwrap();
        assert_eq!(bed.queue.size().await.unwrap(), 0);
        assert_eq!(mapped.size().await.unwrap(), 1);
    });
}

//! Each operation in each direction: an offer of one side is seen, removed and taken by the other.

use dwell_redisson::codec::{ClassJson, Json, Long, Raw, Text};
use dwell_redisson::{Consumer, DelayedQueue, Keys, Layout, Settled, When};
use serde_json::{Value, json};

use crate::java::{Client, all};
use crate::{Fixture, HOUR_MS, for_layout, run, text};

/// Runs a test with each release, on a separate server.
fn with_each(test: impl AsyncFn(&Fixture, &Client, Layout)) {
    run(async {
        for java in all() {
            let bed = Fixture::new().await;
            let client = java.connect(bed.server.port(), "").await;
            test(&bed, &client, java.layout()).await;
            client.shutdown().await;
        }
    });
}

#[test]
fn java_offers_and_moves_and_rust_takes() {
    with_each(async |bed, client, _| {
        client.queue("orders").offer(json!(["hello"]), 50).await;
        assert_eq!(bed.queue("orders").take(20_000).await.unwrap(), Some(text("hello")));
    });
}

#[test]
fn rust_offers_and_java_moves_and_takes() {
    with_each(async |bed, client, layout| {
        let theirs = client.queue("orders");
        theirs.open().await;
        let ours = bed.queue("orders").with_layout(layout);
        ours.offer(&text("hello"), When::In(50)).await.unwrap();
        assert_eq!(theirs.take(20_000).await, "hello");
        assert_eq!(theirs.size().await, 0);
    });
}

#[test]
fn java_sees_and_removes_what_rust_offers() {
    with_each(async |bed, client, layout| {
        let theirs = client.queue("orders");
        let ours = bed.queue("orders").with_layout(layout);
        for value in ["a", "b", "a", "c"] {
            ours.offer(&text(value), When::In(HOUR_MS)).await.unwrap();
        }
        assert_eq!(theirs.size().await, 4);
        assert_eq!(theirs.read_all().await, json!(["a", "b", "a", "c"]));
        assert!(theirs.contains("c").await && !theirs.contains("d").await);
        assert!(theirs.remove("a").await && !theirs.remove("d").await);
        assert_eq!(ours.read_all().await.unwrap(), ["b", "a", "c"]);
        assert_eq!(theirs.ask("peek", json!({})).await, "b");
        assert_eq!(theirs.ask("poll", json!({})).await, "b");
        theirs.ask("clear", json!({})).await;
        assert_eq!(ours.size().await.unwrap(), 0);
        let scheduled: usize = bed.ask(redis::cmd("ZCARD").arg(ours.keys().timeouts())).await;
        assert_eq!(scheduled, 0);
    });
}

#[test]
fn rust_sees_and_removes_what_java_offers() {
    with_each(async |bed, client, _| {
        let theirs = client.queue("orders");
        let ours = bed.queue("orders");
        theirs.offer(json!(["a", "b", "a", "c"]), HOUR_MS).await;
        assert_eq!(ours.size().await.unwrap(), 4);
        assert_eq!(ours.read_all().await.unwrap(), ["a", "b", "a", "c"]);
        assert!(ours.contains(&text("c")).await.unwrap() && !ours.contains(&text("d")).await.unwrap());
        assert!(ours.remove(&text("a")).await.unwrap() && !ours.remove(&text("d")).await.unwrap());
        assert_eq!(theirs.read_all().await, json!(["b", "a", "c"]));
        assert_eq!(ours.peek().await.unwrap(), Some(text("b")));
        assert_eq!(ours.poll(1).await.unwrap(), ["b"]);
        ours.clear().await.unwrap();
        assert_eq!(theirs.size().await, 0);
    });
}

#[test]
fn a_debounce_crosses_over() {
    with_each(async |bed, client, layout| {
        let theirs = client.queue("orders");
        let ours = bed.queue("orders").with_layout(layout);
        theirs.offer(json!(["x", "y"]), HOUR_MS).await;
        let debounced = ours.debounce(&text("x"), When::In(HOUR_MS)).await.unwrap();
        assert_eq!(debounced.taken_out, 1);
        assert_eq!(theirs.read_all().await, json!(["y", "x"]));
        // Java's debounce, on our offer: the same element, once more.
        assert!(theirs.debounce("x", 50).await);
        assert_eq!(theirs.take(20_000).await, "x");
        assert_eq!(ours.read_all().await.unwrap(), ["y"]);
        // By id: of two offers, only the second one is delivered. Our mover runs, since Java's may oversleep: a late
        // reply to its last transfer overrides the timer of the offer that was published meanwhile.
        let mover = bed.mover("orders", for_layout(layout)).await;
        ours.replace_as("cart", &text("one item"), When::In(HOUR_MS)).await.unwrap();
        ours.replace_as("cart", &text("two items"), When::In(50)).await.unwrap();
        assert_eq!(theirs.take(20_000).await, "two items");
        assert_eq!(theirs.read_all().await, json!(["y"]));
        mover.stop().await;
    });
}

#[test]
fn json_with_a_class_crosses_over() {
    with_each(async |bed, client, layout| {
        let keys = Keys::new("orders").unwrap();
        let codec = ClassJson::<Value>::new("dwell.interop.Order");
        let ours = DelayedQueue::new(bed.link.clone(), keys, codec).with_layout(layout);
        let theirs = client.queue("orders").with_codec("json");
        let shown = json!({"id": "7", "amount": 3, "customer": 5, "weight": 1.0, "note": "ü😀"});
        let value =
            json!({"id": "7", "amount": 3, "customer": ["java.lang.Long", 5], "weight": 1.0, "note": "ü😀"});
        theirs.offer(json!([shown]), HOUR_MS).await;
        assert!(ours.contains(&value).await.unwrap());
        assert!(ours.remove(&value).await.unwrap());
        ours.offer(&value, When::In(HOUR_MS)).await.unwrap();
        assert!(theirs.contains(shown.clone()).await);
        assert!(theirs.debounce(shown.clone(), 50).await);
        assert_eq!(theirs.take(20_000).await, shown);
        theirs.offer(json!([shown]), 50).await;
        assert_eq!(ours.take(20_000).await.unwrap(), Some(value));
    });
}

#[test]
fn other_codecs_cross_over() {
    with_each(async |bed, client, layout| {
        let keys = |name| Keys::new(name).unwrap();
        let plain =
            DelayedQueue::new(bed.link.clone(), keys("plain"), Json::<Value>::new()).with_layout(layout);
        let theirs = client.queue("plain").with_codec("typed-json");
        let order = json!({"id": "7", "amount": 3, "customer": 5, "weight": 1.0, "note": "n"});
        plain.offer(&order, When::In(HOUR_MS)).await.unwrap();
        assert!(theirs.remove(order.clone()).await);
        theirs.offer(json!([order]), HOUR_MS).await;
        assert!(plain.remove(&order).await.unwrap());

        let bytes = DelayedQueue::new(bed.link.clone(), keys("bytes"), Raw).with_layout(layout);
        let theirs = client.queue("bytes").with_codec("bytes");
        bytes.offer(&vec![0, 0xff, 0], When::In(50)).await.unwrap();
        theirs.open().await;
        assert_eq!(theirs.take(20_000).await, "00ff00");

        let numbers = DelayedQueue::new(bed.link.clone(), keys("numbers"), Long).with_layout(layout);
        let theirs = client.queue("numbers").with_codec("long");
        theirs.offer(json!([i64::MIN]), 50).await;
        assert_eq!(numbers.take(20_000).await.unwrap(), Some(i64::MIN));
    });
}

#[test]
fn names_with_a_tag_and_with_a_mapper_are_the_same_queue() {
    run(async {
        for java in all() {
            let bed = Fixture::new().await;
            let plain = java.connect(bed.server.port(), "").await;
            let mapped = java.connect(bed.server.port(), "shop:").await;
            let cases = [
                (&plain, "orders{eu}", Keys::new("orders{eu}").unwrap()),
                (&mapped, "orders", Keys::with_prefix("shop:", "orders").unwrap()),
                (&mapped, "{eu}", Keys::with_prefix("shop:", "{eu}").unwrap()),
            ];
            for (client, name, keys) in cases {
                let ours = DelayedQueue::new(bed.link.clone(), keys, Text).with_layout(java.layout());
                let theirs = client.queue(name);
                ours.offer(&text("rust"), When::In(50)).await.unwrap();
                theirs.open().await;
                assert_eq!(theirs.take(20_000).await, "rust", "{name}");
                theirs.offer(json!(["java"]), HOUR_MS).await;
                assert!(ours.remove(&text("java")).await.unwrap(), "{name}");
                // Java's own mover may oversleep the next one, as in the debounce above.
                let mover = bed.mover(ours.keys().name(), for_layout(java.layout())).await;
                theirs.offer(json!(["java"]), 50).await;
                assert_eq!(ours.take(20_000).await.unwrap(), Some(text("java")), "{name}");
                mover.stop().await;
            }
            plain.shutdown().await;
            mapped.shutdown().await;
        }
    });
}

#[test]
fn a_lease_stands_beside_javas_takes() {
    with_each(async |bed, client, layout| {
        let theirs = client.queue("orders");
        theirs.offer(json!(["a", "b"]), 20).await;
        let ours = Consumer::new(bed.link.clone(), Keys::new("orders").unwrap()).with_layout(layout);
        let mut claimed = ours.claim(1, 20_000, HOUR_MS).await.unwrap();
        let claimed = claimed.pop().unwrap();
        let other = theirs.take(20_000).await;
        assert_ne!(other, String::from_utf8(claimed.payload.clone()).unwrap());
        // After the retry it is pending for Java too.
        let mover = bed.mover("orders", for_layout(layout)).await;
        let settled = ours.retry(&claimed, 50, "later").await.unwrap();
        assert_eq!(settled, Settled::Scheduled);
        assert_eq!(theirs.take(20_000).await, String::from_utf8(claimed.payload).unwrap());
        mover.stop().await;
    });
}

#[test]
fn the_producer_is_gone_and_only_our_mover_is_there() {
    with_each(async |bed, client, layout| {
        let producer = client.java.connect(bed.server.port(), "").await;
        producer.queue("orders").offer(json!(["left behind"]), 700).await;
        producer.shutdown().await;
        // A consumer with only the blocking queue starts no transfer task, so nothing would move the element.
        let mover = bed.mover("orders", for_layout(layout)).await;
        assert_eq!(client.queue("orders").take(20_000).await, "left behind");
        assert_eq!(mover.stop().await, 1);
    });
}

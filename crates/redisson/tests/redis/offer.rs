//! Offers: instants, ids, the channel, and refusals.

use dwell_model::{Invalid, Timestamp};
use dwell_redisson::codec::Text;
use dwell_redisson::{DelayedQueue, Error, Layout, Mover, MoverOptions, Offered, When, decode_element};
use futures_util::StreamExt as _;

use crate::{Fixture, HOUR_MS, run, text};

#[test]
fn a_delay_runs_from_the_servers_clock() {
    run(async {
        let bed = Fixture::new().await;
        let before = bed.now_ms().await;
        let due = bed.queue.offer(&text("x"), When::In(5_000)).await.unwrap().as_ms();
        let after = bed.now_ms().await;
        assert!(before + 5_000 < due && due <= after + 5_001, "{before} {due} {after}");
        let at = Timestamp::from_ms(4_102_444_800_000).unwrap();
        assert_eq!(bed.queue.offer(&text("y"), When::At(at)).await.unwrap(), at);
        let score: String = bed
            .link
            .ask(redis::cmd("ZRANGE").arg(bed.keys.timeouts()).arg(1).arg(1).arg("WITHSCORES"))
            .await
            .map(|pair: Vec<(Vec<u8>, String)>| pair[0].1.clone())
            .unwrap();
        assert_eq!(score, "4102444800000");
    });
}

#[test]
fn past_the_last_instant_all_of_a_batch_is_refused() {
    run(async {
        let bed = Fixture::new().await;
        let far = When::In(Timestamp::MAX.as_ms() as u64);
        let offered = bed.queue.offer_many(&[(text("x"), When::In(1)), (text("y"), far)]).await;
        assert!(matches!(offered, Err(Error::Invalid(Invalid::DueOutOfRange { .. }))), "{offered:?}");
        assert_eq!(bed.queue.offer_many(&[]).await.unwrap(), []);
        assert!(bed.queue.offer_as("id", &text("y"), far).await.is_err());
        assert!(bed.queue.debounce(&text("y"), far).await.is_err());
        let keys: usize = bed.link.ask(&redis::cmd("DBSIZE")).await.unwrap();
        assert_eq!(keys, 0);
    });
}

#[test]
fn an_id_offers_once() {
    run(async {
        let bed = Fixture::new().await;
        let Offered::New { due } = bed.queue.offer_as("7", &text("x"), When::In(HOUR_MS)).await.unwrap()
        else {
            panic!("it was new")
        };
        for _ in 0..3 {
            let again = bed.queue.offer_as("7", &text("x"), When::In(1)).await.unwrap();
            assert_eq!(again, Offered::Known { due: Some(due) });
        }
        assert_eq!(bed.queue.size().await.unwrap(), 1);
        // Also when it is no longer pending.
        assert!(bed.queue.remove(&text("x")).await.unwrap());
        let again = bed.queue.offer_as("7", &text("x"), When::In(1)).await.unwrap();
        assert_eq!(again, Offered::Known { due: None });
        assert_eq!(bed.queue.size().await.unwrap(), 0);
    });
}

#[test]
fn an_id_is_forgotten_some_time_after_the_instant() {
    run(async {
        let bed = Fixture::new().await;
        bed.queue.offer_as("7", &text("x"), When::In(HOUR_MS)).await.unwrap();
        let ttl: u64 = bed.link.ask(redis::cmd("PTTL").arg(bed.keys.offer("7"))).await.unwrap();
        assert!((HOUR_MS..=HOUR_MS + 10 * 60 * 1000 + 1).contains(&ttl), "{ttl}");
    });
}

#[test]
fn an_id_debounces() {
    run(async {
        let bed = Fixture::new().await;
        let first = bed.queue.replace_as("cart", &text("one item"), When::In(10)).await.unwrap();
        assert!(matches!(first, Offered::New { .. }));
        let second = bed.queue.replace_as("cart", &text("two items"), When::In(HOUR_MS)).await.unwrap();
        assert!(matches!(second, Offered::Replaced { .. }));
        assert_eq!(bed.queue.read_all().await.unwrap(), ["two items"]);
        assert!(bed.queue.cancel_as("cart").await.unwrap());
        assert!(!bed.queue.cancel_as("cart").await.unwrap());
        assert_eq!(bed.queue.size().await.unwrap(), 0);
    });
}

#[test]
fn the_channel_tells_a_new_first_instant_and_nothing_else() {
    run(async {
        let bed = Fixture::new().await;
        let mut subscriber = bed.link.subscriber().await.unwrap();
        subscriber.subscribe(bed.keys.channel()).await.unwrap();
        let mut told = subscriber.into_on_message();
        let at = |ms| When::At(Timestamp::from_ms(ms).unwrap());
        for ms in [5_000_000_000_000, 6_000_000_000_000, 4_000_000_000_000] {
            bed.queue.offer(&text("x"), at(ms)).await.unwrap();
        }
        for expected in ["5000000000000", "4000000000000"] {
            let message = told.next().await.unwrap();
            assert_eq!(message.get_payload::<String>().unwrap(), expected);
        }
    });
}

#[test]
fn elements_have_javas_bytes() {
    run(async {
        let bed = Fixture::new().await;
        bed.offer("hello", HOUR_MS).await;
        let packed: Vec<u8> =
            bed.link.ask(redis::cmd("LINDEX").arg(bed.keys.pending()).arg(0)).await.unwrap();
        assert_eq!(packed.len(), 1 + 8 + 8 + 5);
        assert_eq!((packed[0], &packed[9..]), (8, b"\x05\0\0\0\0\0\0\0hello".as_slice()));
        assert_eq!(decode_element(&packed).unwrap().payload, b"hello");
        let scheduled: Vec<Vec<u8>> =
            bed.link.ask(redis::cmd("ZRANGE").arg(bed.keys.timeouts()).arg(0).arg(-1)).await.unwrap();
        assert_eq!(scheduled, [packed]);
    });
}

/// A mover of ours that knows Java's layout rewrites elements: they are found by their ids all the same.
#[test]
fn an_id_finds_its_element_after_it_was_rewritten() {
    run(async {
        let bed = Fixture::new().await;
        for layout in [Layout::New, Layout::Old] {
            let other = if layout == Layout::New { Layout::Old } else { Layout::New };
            let queue = DelayedQueue::new(bed.link.clone(), bed.keys.clone(), Text).with_layout(layout);
            let rewrite = async |to: Layout| {
                let options = MoverOptions { layout: Some(to), ..MoverOptions::default() };
                let mut mover = Mover::new(bed.link.clone(), bed.keys.clone(), options);
                mover.mend_all().await.unwrap().rewritten
            };
            let Offered::New { due } = queue.offer_as("7", &text("x"), When::In(HOUR_MS)).await.unwrap()
            else {
                panic!("it was new")
            };
            assert_eq!(rewrite(other).await, 1);
            let again = queue.offer_as("7", &text("x"), When::In(1)).await.unwrap();
            assert_eq!(again, Offered::Known { due: Some(due) });
            let replaced = queue.replace_as("7", &text("y"), When::In(HOUR_MS)).await.unwrap();
            assert!(matches!(replaced, Offered::Replaced { .. }), "{replaced:?}");
            assert_eq!(queue.read_all().await.unwrap(), ["y"]);
            assert_eq!(rewrite(other).await, 1);
            assert!(queue.cancel_as("7").await.unwrap());
            assert_eq!(queue.size().await.unwrap(), 0);
            // Debounced by value, whatever layout it was rewritten to.
            bed.offer("z", HOUR_MS).await;
            rewrite(other).await;
            assert_eq!(queue.debounce(&text("z"), When::In(HOUR_MS)).await.unwrap().taken_out, 1);
            assert_eq!(queue.read_all().await.unwrap(), ["z"]);
            queue.clear().await.unwrap();
        }
    });
}

//! The mover, alone and with others.

use std::collections::BTreeSet;
use std::sync::mpsc;
use std::time::Duration;

use dwell_redisson::codec::Text;
use dwell_redisson::{
    DelayedQueue, Error, Event, Keys, Layout, Mover, MoverOptions, When, decode_element, encode_element,
};

use crate::{Fixture, HOUR_MS, run, text};

const POISON: &[u8] = b"no element at all";

/// Moves until nothing is due any more and `count` payloads are ready.
async fn move_until(bed: &Fixture, count: usize) {
    let mut mover = bed.mover();
    while bed.queue.ready_size().await.expect("it is a list") < count {
        mover.pass().await.expect("it moves");
        tokio::task::yield_now().await;
    }
}

#[test]
fn due_elements_come_in_the_order_of_their_instants() {
    run(async {
        let bed = Fixture::new().await;
        let now_ms = bed.now_ms().await;
        for (value, after_ms) in [("c", 30), ("a", 1), ("later", HOUR_MS as i64), ("b", 15)] {
            let due = dwell_model::Timestamp::from_ms(now_ms + after_ms).unwrap();
            bed.queue.offer(&text(value), When::At(due)).await.unwrap();
        }
        // However long the offers took, all three are due by then, and are moved in one batch.
        while bed.now_ms().await <= now_ms + 30 {}
        move_until(&bed, 3).await;
        assert_eq!(bed.ready().await, ["a", "b", "c"]);
        assert_eq!(bed.queue.read_all().await.unwrap(), ["later"]);
    });
}

#[test]
fn a_running_mover_wakes_for_an_offer_and_moves_it_on_time() {
    run(async {
        let bed = Fixture::new().await;
        // No sweep is due in time: only the channel and the instant wake it.
        let options = MoverOptions { sweep_ms: HOUR_MS, ..MoverOptions::default() };
        let mover = Mover::new(bed.link.clone(), bed.keys.clone(), options);
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (events, heard) = tokio::sync::mpsc::unbounded_channel();
        let running =
            tokio::spawn(mover.run(async { drop(stopped.await) }, move |event| drop(events.send(event))));
        let mut heard = heard;
        assert_eq!(heard.recv().await.unwrap(), Event::Listening);
        bed.offer("late", HOUR_MS).await;
        let due = bed.queue.offer(&text("soon"), When::In(50)).await.unwrap();
        assert_eq!(bed.queue.take(10_000).await.unwrap(), Some(text("soon")));
        let Event::Moved(moved) = heard.recv().await.unwrap() else { panic!("it moved one") };
        assert_eq!(moved.moved, 1);
        assert!(moved.now_ms >= due.as_ms(), "moved {} ms early", due.as_ms() - moved.now_ms);
        stop.send(()).unwrap();
        running.await.unwrap();
    });
}

#[test]
fn a_sweep_finds_what_no_notification_told_of() {
    run(async {
        let bed = Fixture::new().await;
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let options = MoverOptions { sweep_ms: 20, ..MoverOptions::default() };
        let mover = Mover::new(bed.link.clone(), bed.keys.clone(), options);
        let (events, heard) = mpsc::channel();
        let running =
            tokio::spawn(mover.run(async { drop(stopped.await) }, move |event| drop(events.send(event))));
        // This one is not published.
        let packed = encode_element(Layout::New, *b"12345678", b"silent");
        let now = bed.now_ms().await;
        bed.plant(&packed, &now.to_string()).await;
        assert_eq!(bed.queue.take(10_000).await.unwrap(), Some(text("silent")));
        drop(stop);
        running.await.unwrap();
        assert!(heard.iter().any(|event| matches!(event, Event::Moved(_))));
    });
}

#[test]
fn a_mover_outlives_its_connections() {
    run(async {
        let bed = Fixture::new().await;
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let options = MoverOptions { sweep_ms: 20, ..MoverOptions::default() };
        let mover = Mover::new(bed.link.clone(), bed.keys.clone(), options);
        let running = tokio::spawn(mover.run(async { drop(stopped.await) }, |_| {}));
        for round in 0..5 {
            bed.server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            bed.server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
            bed.server.command(&["SCRIPT", "FLUSH"]);
            let value = format!("round {round}");
            // This link's own connection was killed too: nothing was done then.
            while bed.queue.offer_as(&value, &value, When::In(5)).await.is_err() {}
            let taken = loop {
                if let Ok(Some(taken)) = bed.queue.take(10_000).await {
                    break taken;
                }
            };
            assert_eq!(taken, value);
        }
        drop(stop);
        running.await.unwrap();
    });
}

/// The number of subscribed connections, and of channels.
fn heard(bed: &Fixture) -> (usize, usize) {
    let list: String =
        redis::from_redis_value(bed.server.command(&["CLIENT", "LIST", "TYPE", "pubsub"])).unwrap();
    let channels: Vec<String> =
        redis::from_redis_value(bed.server.command(&["PUBSUB", "CHANNELS", "*"])).unwrap();
    (list.lines().filter(|line| !line.is_empty()).count(), channels.len())
}

#[test]
fn movers_of_many_queues_share_one_subscription_and_it_comes_again() {
    run(async {
        const COUNT: usize = 300;
        let bed = Fixture::new().await;
        // No sweep is due in time: only the channel wakes them.
        let options = MoverOptions { sweep_ms: HOUR_MS, ..MoverOptions::default() };
        let (stop, stopped) = tokio::sync::watch::channel(());
        let (events, mut told) = tokio::sync::mpsc::unbounded_channel();
        let running: Vec<_> = (0..COUNT)
            .map(|n| {
                let keys = Keys::new(format!("queue {n}")).unwrap();
                let mover = Mover::new(bed.link.clone(), keys, options.clone());
                let (mut stopped, events) = (stopped.clone(), events.clone());
                let report = move |event| drop(events.send((n, event)));
                tokio::spawn(mover.run(async move { drop(stopped.changed().await) }, report))
            })
            .collect();
        let mut listening = BTreeSet::new();
        while listening.len() < COUNT {
            let (n, event) = told.recv().await.unwrap();
            assert_eq!(event, Event::Listening);
            listening.insert(n);
        }
        for round in 0..3 {
            assert_eq!(heard(&bed), (1, COUNT), "round {round}");
            for n in [0, COUNT / 2, COUNT - 1] {
                let keys = Keys::new(format!("queue {n}")).unwrap();
                let queue = DelayedQueue::new(bed.link.clone(), keys, Text);
                queue.offer(&text("soon"), When::In(10)).await.unwrap();
                assert_eq!(queue.take(10_000).await.unwrap(), Some(text("soon")), "round {round}, queue {n}");
            }
            bed.server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            while heard(&bed) != (1, COUNT) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        drop(stop);
        for running in running {
            running.await.unwrap();
        }
        // There are no more subscribers.
        while heard(&bed).1 > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
}

/// A channel that this user may not subscribe to is reported to the mover of its queue, and does not affect the others.
#[test]
fn a_channel_that_is_refused_keeps_nobody_from_the_others() {
    run(async {
        let bed = Fixture::new().await;
        let allowed = bed.keys.channel();
        bed.server.command(&["ACL", "SETUSER", "default", "resetchannels", &format!("&{allowed}")]);
        let options = MoverOptions { sweep_ms: HOUR_MS, ..MoverOptions::default() };
        let (stop, stopped) = tokio::sync::watch::channel(());
        let (events, mut told) = tokio::sync::mpsc::unbounded_channel();
        let running: Vec<_> = ["forbidden", "orders"]
            .into_iter()
            .map(|name| {
                let mover = Mover::new(bed.link.clone(), Keys::new(name).unwrap(), options.clone());
                let (mut stopped, events) = (stopped.clone(), events.clone());
                let report = move |event| drop(events.send((name, event)));
                tokio::spawn(mover.run(async move { drop(stopped.changed().await) }, report))
            })
            .collect();
        let (mut is_refused, mut is_listening) = (false, false);
        while !(is_refused && is_listening) {
            match told.recv().await.unwrap() {
                ("forbidden", Event::Failure(error)) => {
                    assert_eq!(error.code(), "redis_refused", "{error}");
                    is_refused = true;
                }
                ("orders", Event::Listening) => is_listening = true,
                other => panic!("{other:?}"),
            }
        }
        for _ in 0..3 {
            bed.offer("soon", 10).await;
            assert_eq!(bed.queue.take(10_000).await.unwrap(), Some(text("soon")));
            bed.server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            while heard(&bed).1 == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        drop(stop);
        for running in running {
            running.await.unwrap();
        }
    });
}

/// A mover without permission for the channel sweeps, so offers are moved all the same.
#[test]
fn a_mover_that_cannot_listen_moves() {
    run(async {
        let bed = Fixture::new().await;
        bed.offer("one", 1).await;
        bed.server.command(&["ACL", "SETUSER", "default", "resetchannels"]);
        let mover = Mover::new(bed.link.clone(), bed.keys.clone(), MoverOptions::default());
        let (events, mut told) = tokio::sync::mpsc::unbounded_channel();
        let running = tokio::spawn(mover.run(std::future::pending(), move |event| drop(events.send(event))));
        let (mut is_told, mut moved) = (false, 0);
        while !is_told || moved == 0 {
            match told.recv().await.unwrap() {
                Event::Failure(error) => {
                    assert_eq!(error.code(), "redis_refused", "{error}");
                    is_told = true;
                }
                Event::Moved(step) => moved += step.moved,
                other => panic!("{other:?}"),
            }
        }
        running.abort();
        assert_eq!(bed.ready().await, ["one"]);
    });
}

#[test]
fn poison_is_set_aside_and_delays_nobody() {
    run(async {
        let bed = Fixture::new().await;
        let now = bed.now_ms().await;
        bed.offer("first", 1).await;
        bed.plant(POISON, &(now - 1_000).to_string()).await;
        bed.plant(&encode_element(Layout::New, *b"negative", b"never"), "-5").await;
        bed.offer("second", 2).await;
        move_until(&bed, 2).await;
        assert_eq!(bed.ready().await, ["first", "second"]);
        let mut aside = bed.queue.set_aside(10).await.unwrap();
        aside.sort_by(|a, b| a.why.cmp(&b.why));
        assert_eq!(aside.len(), 2);
        assert_eq!(aside[0].why, "-5 negative_score");
        assert_eq!(aside[1].why, format!("{} undecodable", now - 1_000));
        assert_eq!(aside[1].packed, POISON);
        assert_eq!(bed.queue.size().await.unwrap(), 0);
    });
}

#[test]
fn what_would_jam_java_is_mended_before_it_is_due() {
    run(async {
        let bed = Fixture::new().await;
        let old = encode_element(Layout::Old, *b"\x79\x09\x89\x2a\xaf\x16\xac\x43", b"old");
        bed.offer("new", HOUR_MS).await;
        bed.plant(POISON, "4102444800000").await;
        bed.plant(&old, "4102444800001").await;
        bed.plant(&encode_element(Layout::New, *b"fraction", b"half"), "4102444800002.5").await;
        bed.plant(&encode_element(Layout::New, *b"endless!", b"endless"), "1e18").await;
        bed.offer("last", HOUR_MS).await;
        let options = MoverOptions { layout: Some(Layout::New), ..MoverOptions::default() };
        let mended = Mover::new(bed.link.clone(), bed.keys.clone(), options).mend_all().await.unwrap();
        assert_eq!((mended.set_aside, mended.rewritten, mended.rounded), (2, 1, 1));
        // Same position, same instant, another layout.
        assert_eq!(bed.queue.read_all().await.unwrap(), ["new", "old", "half", "last"]);
        let all: Vec<(Vec<u8>, String)> = bed
            .link
            .ask(redis::cmd("ZRANGE").arg(bed.keys.timeouts()).arg(2).arg(-1).arg("WITHSCORES"))
            .await
            .unwrap();
        let scores: Vec<_> = all.iter().map(|(_, score)| score.as_str()).collect();
        assert_eq!(scores, ["4102444800001", "4102444800003"]);
        let rewritten = decode_element(&all[0].0).unwrap();
        assert_eq!((rewritten.layout, rewritten.payload), (Layout::New, b"old".as_slice()));
        assert_eq!(rewritten.id, &old[..8]);
        // The other way round, for old clients.
        let options = MoverOptions { layout: Some(Layout::Old), ..MoverOptions::default() };
        let mended = Mover::new(bed.link.clone(), bed.keys.clone(), options).mend_all().await.unwrap();
        assert_eq!(mended.rewritten, 4);
        assert_eq!(bed.queue.read_all().await.unwrap(), ["new", "old", "half", "last"]);
    });
}

#[test]
fn nothing_is_rewritten_unasked() {
    run(async {
        let bed = Fixture::new().await;
        for layout in [Layout::Old, Layout::New] {
            bed.plant(&encode_element(layout, *b"\x79\x09\x89\x2a\xaf\x16\xac\x43", b"x"), "1000").await;
            bed.plant(&encode_element(layout, *b"\x78\x09\x89\x2a\xaf\x16\xac\x43", b"y"), "4102444800000")
                .await;
        }
        assert!(bed.mover().mend_all().await.unwrap().is_nothing());
        assert_eq!(bed.mover().pass().await.unwrap(), (2, 0));
        assert_eq!(bed.ready().await, ["x", "x"]);
    });
}

#[test]
fn a_walk_sees_each_element_once_and_all_that_come() {
    run(async {
        let bed = Fixture::new().await;
        let options = MoverOptions { layout: Some(Layout::New), ..MoverOptions::default() };
        let mut mover = Mover::new(bed.link.clone(), bed.keys.clone(), options);
        for round in 0..4_u64 {
            let values: Vec<_> = (0..450).map(|n| (format!("{round} {n}"), When::In(HOUR_MS))).collect();
            bed.queue.offer_many(&values).await.unwrap();
            let id = (round + 1).to_le_bytes().map(|byte| byte | 0x40);
            bed.plant(&encode_element(Layout::Old, id, b"old"), "4102444800000").await;
            assert_eq!(mover.mend_all().await.unwrap().rewritten, 1, "round {round}");
            // The last element, the walk's position, may be removed.
            assert!(bed.queue.remove(&text("old")).await.unwrap());
            assert!(bed.queue.remove(&format!("{round} 449")).await.unwrap());
        }
        bed.queue.clear().await.unwrap();
        assert!(mover.mend_all().await.unwrap().is_nothing());
        bed.plant(POISON, "4102444800000").await;
        assert_eq!(mover.mend_all().await.unwrap().set_aside, 1);
    });
}

#[test]
fn a_destination_of_another_type_is_told_and_loses_nothing() {
    run(async {
        let bed = Fixture::new().await;
        bed.send(redis::cmd("SET").arg(bed.keys.ready()).arg("mine")).await;
        bed.queue.offer(&text("x"), When::At(dwell_model::Timestamp::MIN)).await.unwrap();
        let moved = bed.mover().step().await;
        assert!(matches!(moved, Err(Error::WrongType { .. })), "{moved:?}");
        assert_eq!(bed.queue.read_all().await.unwrap(), ["x"]);
        bed.send(redis::cmd("DEL").arg(bed.keys.ready())).await;
        assert_eq!(bed.mover().pass().await.unwrap(), (1, 0));
    });
}

#[test]
fn several_movers_move_each_element_once() {
    run(async {
        let bed = Fixture::new().await;
        let count = 5_000;
        let at = When::At(dwell_model::Timestamp::from_ms(bed.now_ms().await + 300).unwrap());
        let values: Vec<_> = (0..count).map(|n| (n.to_string(), at)).collect();
        for some in values.chunks(1_000) {
            bed.queue.offer_many(some).await.unwrap();
        }
        let running: Vec<_> = (0..4)
            .map(|_| {
                let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
                let moving = bed.mover().run(async { drop(stopped.await) }, |_| {});
                (stop, tokio::spawn(moving))
            })
            .collect();
        let mut taken = BTreeSet::new();
        for _ in 0..count {
            let value = bed.queue.take(20_000).await.unwrap().expect("all of them come");
            assert!(taken.insert(value.parse::<u32>().unwrap()), "{value} came twice");
        }
        for (stop, running) in running {
            drop(stop);
            running.await.unwrap();
        }
        assert_eq!(bed.queue.ready_size().await.unwrap(), 0);
        assert_eq!(bed.queue.size().await.unwrap(), 0);
    });
}

#[test]
fn batches_shrink_where_the_search_is_dear() {
    run(async {
        let bed = Fixture::new().await;
        // The due elements were offered last, behind many that are due later: a search from the head passes all of
        // these.
        let values: Vec<_> = (0..30_000).map(|n| (format!("{n:0100}"), When::In(HOUR_MS))).collect();
        for some in values.chunks(2_000) {
            bed.queue.offer_many(some).await.unwrap();
        }
        let due: Vec<_> =
            (0..1_000).map(|n| (n.to_string(), When::At(dwell_model::Timestamp::MIN))).collect();
        bed.queue.offer_many(&due).await.unwrap();
        let mut mover = bed.mover();
        let mut sizes = Vec::new();
        loop {
            let step = mover.step().await.unwrap();
            sizes.push(step.moved);
            if !step.more {
                break;
            }
        }
        assert_eq!(bed.queue.ready_size().await.unwrap(), 1_000);
        assert!(sizes[1] < 10, "from the head a few at a time: {sizes:?}");
        assert!(sizes.iter().max() > Some(&20), "until the tail is found to be cheaper: {sizes:?}");
    });
}

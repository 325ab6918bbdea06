//! A Redis that is out of memory: calls that need more are refused, and calls that free memory or need none succeed.

use dwell_redisson::{
    Consumer, Doctor, DoctorOptions, Error, Layout, Mover, MoverOptions, Settled, When, decode_element,
    encode_element,
};

use crate::{Fixture, HOUR_MS, run, text};

fn fill(bed: &Fixture) {
    bed.server.command(&["CONFIG", "SET", "maxmemory", "1"]);
}

fn consumer(bed: &Fixture) -> Consumer {
    Consumer::new(bed.link.clone(), bed.keys.clone()).with_max_attempts(4)
}

#[test]
fn offers_are_refused_and_change_nothing() {
    run(async {
        let bed = Fixture::new().await;
        bed.offer("x", HOUR_MS).await;
        bed.queue.offer_as("7", &text("mine"), When::In(HOUR_MS)).await.unwrap();
        fill(&bed);
        let soon = When::In(1);
        for refused in [
            bed.queue.offer(&text("y"), soon).await.map(drop),
            bed.queue.offer_many(&[(text("y"), soon), (text("z"), soon)]).await.map(drop),
            bed.queue.offer_as("8", &text("y"), soon).await.map(drop),
            bed.queue.replace_as("7", &text("y"), soon).await.map(drop),
            bed.queue.debounce(&text("x"), soon).await.map(drop),
        ] {
            assert!(matches!(refused, Err(Error::Unavailable { .. })), "{refused:?}");
        }
        assert_eq!(bed.queue.read_all().await.unwrap(), ["x", "mine"]);
        let scheduled: usize = bed.link.ask(redis::cmd("ZCARD").arg(bed.keys.timeouts())).await.unwrap();
        assert_eq!(scheduled, 2);
        assert!(bed.queue.cancel_as("7").await.unwrap());
        assert!(bed.queue.remove(&text("x")).await.unwrap());
        bed.server.command(&["CONFIG", "SET", "maxmemory", "0"]);
        bed.offer("again", HOUR_MS).await;
        assert_eq!(bed.queue.poll(5).await.unwrap(), ["again"]);
    });
}

#[test]
fn what_is_due_is_moved_and_what_would_jam_java_is_mended() {
    run(async {
        let bed = Fixture::new().await;
        bed.plant(&encode_element(Layout::New, *b"due now!", b"due"), "1000").await;
        bed.plant(b"poison that is due", "1000").await;
        bed.plant(b"poison", "4102444800000").await;
        bed.plant(&encode_element(Layout::Old, *b"oldolold", b"old"), "4102444800000").await;
        fill(&bed);
        let options = MoverOptions { layout: Some(Layout::New), ..MoverOptions::default() };
        let mut mover = Mover::new(bed.link.clone(), bed.keys.clone(), options);
        assert_eq!(mover.pass().await.unwrap(), (1, 2));
        assert_eq!(bed.ready().await, ["due"]);
        assert_eq!(bed.queue.read_all().await.unwrap(), ["old"]);
        let left: Vec<u8> = bed.link.ask(redis::cmd("LINDEX").arg(bed.keys.pending()).arg(0)).await.unwrap();
        assert_eq!(decode_element(&left).unwrap().layout, Layout::New);
    });
}

#[test]
fn consumers_go_on() {
    run(async {
        let bed = Fixture::new().await;
        let consumer = consumer(&bed);
        let values = ["acked", "released", "retried", "later", "buried", "lapses"];
        bed.send(redis::cmd("RPUSH").arg(bed.keys.ready()).arg(&values)).await;
        fill(&bed);
        let claimed = consumer.claim(5, 0, HOUR_MS).await.unwrap();
        let lapses = consumer.claim(1, 0, 1).await.unwrap();
        assert_eq!(claimed.len(), 5);
        assert_eq!(consumer.extend(&claimed[0].token, HOUR_MS).await.unwrap(), Settled::Extended);
        assert_eq!(consumer.ack(&claimed[0].token).await.unwrap(), Settled::Acked);
        assert_eq!(consumer.release(&claimed[1].token).await.unwrap(), Settled::Ready);
        assert_eq!(consumer.retry(&claimed[2], 0, "why").await.unwrap(), Settled::Ready);
        assert_eq!(consumer.retry(&claimed[3], HOUR_MS, "why").await.unwrap(), Settled::Scheduled);
        assert_eq!(consumer.bury(&claimed[4].token, "why").await.unwrap(), Settled::Dead);
        assert_eq!(consumer.revive(5).await.unwrap(), 1);
        while bed.now_ms().await <= lapses[0].deadline.as_ms() {}
        let doctor = Doctor::new(bed.link.clone(), bed.keys.clone(), DoctorOptions::default());
        for (finding, _) in doctor.examine().await.unwrap().plan() {
            doctor.fix(finding).await.unwrap();
        }
        let mut ready = bed.ready().await;
        ready.sort();
        assert_eq!(ready, ["buried", "lapses", "released", "retried"]);
        assert_eq!(bed.queue.read_all().await.unwrap(), ["later"]);
    });
}

/// `BLMOVE` is refused there, so waiting falls back to polling.
#[test]
fn a_claim_waits_though_the_server_does_not_let_it() {
    run(async {
        let bed = Fixture::new().await;
        bed.plant(&encode_element(Layout::New, *b"due now!", b"due"), "1000").await;
        fill(&bed);
        let consumer = consumer(&bed);
        let claiming = consumer.claim(1, 30_000, HOUR_MS);
        let moving = async {
            while bed.server.info("errorstat_OOM").is_none() {
                tokio::task::yield_now().await;
            }
            bed.mover().step().await
        };
        let (claimed, moved) = tokio::join!(claiming, moving);
        assert_eq!(moved.unwrap().moved, 1);
        assert_eq!(claimed.unwrap()[0].payload, b"due");
    });
}

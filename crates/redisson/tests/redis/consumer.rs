//! Takes with a lease: no payload is lost with its consumer, and no lease is granted twice.

use dwell_model::{Invalid, Timestamp};
use dwell_redisson::{
    Consumer, Doctor, DoctorOptions, Error, Event, FindingKind, INBOX_MS, Mover, MoverOptions, Settled,
};

use crate::{Fixture, HOUR_MS, run, text};

fn consumer(bed: &Fixture) -> Consumer {
    Consumer::new(bed.link.clone(), bed.keys.clone()).with_max_attempts(3)
}

async fn put(bed: &Fixture, payloads: &[&str]) {
    bed.send(redis::cmd("RPUSH").arg(bed.keys.ready()).arg(payloads)).await;
}

#[test]
fn what_is_acked_is_gone() {
    run(async {
        let bed = Fixture::new().await;
        let consumer = consumer(&bed);
        put(&bed, &["a", "b", "c"]).await;
        let claimed = consumer.claim(2, 0, HOUR_MS).await.unwrap();
        assert_eq!(claimed.len(), 2);
        assert_eq!((claimed[0].payload.as_slice(), claimed[0].attempt), (b"a".as_slice(), 1));
        assert_eq!(bed.ready().await, ["c"]);
        assert_eq!(consumer.ack(&claimed[0].token).await.unwrap(), Settled::Acked);
        assert_eq!(consumer.ack(&claimed[0].token).await.unwrap(), Settled::LeaseLost);
        assert_eq!(consumer.release(&claimed[1].token).await.unwrap(), Settled::Ready);
        assert_eq!(bed.ready().await, ["b", "c"]);
        assert_eq!(consumer.claim(1, 0, HOUR_MS).await.unwrap()[0].attempt, 1);
    });
}

#[test]
fn a_lease_that_ran_out_comes_back_and_counts() {
    run(async {
        let bed = Fixture::new().await;
        let consumer = consumer(&bed);
        put(&bed, &["a"]).await;
        for attempt in 1..=3 {
            let claimed = consumer.claim(1, 10_000, 20).await.unwrap();
            assert_eq!(claimed[0].attempt, attempt);
            let other = Consumer::new(bed.link.clone(), bed.keys.clone()).with_max_attempts(3);
            // The next claim waits, and finds it when its lease has lapsed; after the last one there is none.
            if attempt == 3 {
                while consumer.dead(0, 10).await.unwrap().is_empty() {
                    assert!(other.claim(1, 50, 20).await.unwrap().is_empty());
                }
            }
            assert_eq!(consumer.dead(0, 10).await.unwrap().len(), usize::from(attempt == 3));
        }
        let dead = consumer.dead(0, 10).await.unwrap();
        assert_eq!((dead[0].payload.as_slice(), dead[0].attempts), (b"a".as_slice(), 3));
        assert_eq!(dead[0].reason, "lease ran out");
        assert_eq!(consumer.revive(10).await.unwrap(), 1);
        assert_eq!(consumer.claim(1, 0, HOUR_MS).await.unwrap()[0].attempt, 1);
    });
}

#[test]
fn an_extended_lease_holds() {
    run(async {
        let bed = Fixture::new().await;
        let consumer = consumer(&bed);
        put(&bed, &["a"]).await;
        let claimed = consumer.claim(1, 0, 2_000).await.unwrap();
        assert_eq!(consumer.extend(&claimed[0].token, HOUR_MS).await.unwrap(), Settled::Extended);
        // It is still held after the first deadline.
        assert!(consumer.claim(1, 2_100, HOUR_MS).await.unwrap().is_empty());
        assert_eq!(consumer.ack(&claimed[0].token).await.unwrap(), Settled::Acked);
    });
}

#[test]
fn a_lapsed_lease_proves_nothing() {
    run(async {
        let bed = Fixture::new().await;
        let consumer = consumer(&bed);
        put(&bed, &["a"]).await;
        let claimed = consumer.claim(1, 0, 1).await.unwrap();
        while bed.now_ms().await <= claimed[0].deadline.as_ms() {}
        assert_eq!(consumer.ack(&claimed[0].token).await.unwrap(), Settled::LeaseLost);
        assert_eq!(consumer.claim(1, 0, HOUR_MS).await.unwrap()[0].attempt, 2);
    });
}

#[test]
fn a_retry_waits_and_a_burial_is_final() {
    run(async {
        let bed = Fixture::new().await;
        let consumer = consumer(&bed);
        put(&bed, &["a"]).await;
        let claimed = consumer.claim(1, 0, HOUR_MS).await.unwrap();
        let settled = consumer.retry(&claimed[0], HOUR_MS, "not yet").await.unwrap();
        assert_eq!(settled, Settled::Scheduled);
        assert_eq!(bed.queue.read_all().await.unwrap(), [text("a")]);
        assert!(bed.queue.remove(&text("a")).await.unwrap());
        put(&bed, &["a"]).await;
        let claimed = consumer.claim(1, 0, HOUR_MS).await.unwrap();
        assert_eq!(claimed[0].attempt, 2);
        assert_eq!(consumer.retry(&claimed[0], 0, "again").await.unwrap(), Settled::Ready);
        let claimed = consumer.claim(1, 0, HOUR_MS).await.unwrap();
        assert_eq!(claimed[0].attempt, 3);
        assert_eq!(consumer.retry(&claimed[0], 0, "spent\0").await.unwrap(), Settled::Dead);
        put(&bed, &["b"]).await;
        let claimed = consumer.claim(1, 0, HOUR_MS).await.unwrap();
        assert_eq!(consumer.bury(&claimed[0].token, "no such order").await.unwrap(), Settled::Dead);
        let reasons: Vec<_> =
            consumer.dead(0, 10).await.unwrap().into_iter().map(|letter| letter.reason).collect();
        assert_eq!(reasons, ["spent ", "no such order"]);
        assert!(consumer.dead(2, 10).await.unwrap().is_empty());
    });
}

#[test]
fn a_waiting_claim_wakes() {
    run(async {
        let bed = Fixture::new().await;
        let consumer = consumer(&bed);
        let claiming = tokio::spawn(async move { consumer.claim(1, 30_000, HOUR_MS).await });
        while bed.server.info("blocked_clients").as_deref() != Some("1") {
            tokio::task::yield_now().await;
        }
        put(&bed, &["a"]).await;
        assert_eq!(claiming.await.unwrap().unwrap()[0].payload, b"a");
    });
}

#[test]
fn a_claim_that_is_given_up_loses_nothing() {
    run(async {
        let bed = Fixture::new().await;
        let first = consumer(&bed);
        {
            let waiting = std::pin::pin!(first.claim(1, 30_000, HOUR_MS));
            let blocked = async {
                while bed.server.info("blocked_clients").as_deref() != Some("1") {
                    tokio::task::yield_now().await;
                }
                put(&bed, &["a"]).await;
                // The server has moved it, but the reply was never read.
                while bed.queue.ready_size().await.unwrap() > 0 {}
            };
            futures_util::future::select(waiting, std::pin::pin!(blocked)).await;
        }
        let claimed = consumer(&bed).claim(1, 10_000, HOUR_MS).await.unwrap();
        assert_eq!(claimed.len().max(bed.leased().await), 1);
    });
}

#[test]
fn a_lease_or_a_delay_out_of_range_is_refused_and_changes_nothing() {
    run(async {
        let bed = Fixture::new().await;
        let consumer = consumer(&bed);
        put(&bed, &["a"]).await;
        for lease_ms in [0, u64::from(u32::MAX) * 1_000 + 1, 1 << 53, u64::MAX] {
            let refused = consumer.claim(1, 0, lease_ms).await;
            assert!(matches!(&refused, Err(Error::Invalid(Invalid::InvalidSetting { .. }))), "{refused:?}");
        }
        let longest = consumer.claim(1, 0, u64::from(u32::MAX) * 1_000).await.unwrap().pop().unwrap();
        for lease_ms in [0, 1 << 53, u64::MAX] {
            let refused = consumer.extend(&longest.token, lease_ms).await;
            assert!(matches!(&refused, Err(Error::Invalid(Invalid::InvalidSetting { .. }))), "{refused:?}");
        }
        for delay_ms in [Timestamp::MAX.as_ms() as u64, 1 << 53, i64::MAX as u64, u64::MAX] {
            let refused = consumer.retry(&longest, delay_ms, "why").await;
            assert!(matches!(&refused, Err(Error::Invalid(Invalid::DueOutOfRange { .. }))), "{refused:?}");
        }
        let attempts: Vec<String> =
            bed.link.ask(redis::cmd("KEYS").arg("dwell_redisson_attempts*")).await.unwrap();
        assert_eq!((attempts.len(), bed.queue.size().await.unwrap()), (0, 0));
        assert_eq!(consumer.ack(&longest.token).await.unwrap(), Settled::Acked);
        // Numbers that only look dangerous.
        assert!(consumer.dead(usize::MAX, usize::MAX).await.unwrap().is_empty());
        put(&bed, &["b"]).await;
        assert_eq!(bed.queue.take(u64::MAX).await.unwrap(), Some(text("b")));
        assert!(consumer.claim(usize::MAX, 0, 1).await.unwrap().is_empty());
    });
}

/// A consumer died after `BLMOVE`, and no other one comes: a mover gives the payload back, and so does the doctor.
#[test]
fn what_nobody_fetches_from_the_inbox_is_given_back() {
    run(async {
        let bed = Fixture::new().await;
        let left = async |value: &str| {
            bed.send(redis::cmd("RPUSH").arg(bed.keys.inbox()).arg(value).arg(format!("{value} too"))).await;
        };
        put(&bed, &["before"]).await;
        left("orphan").await;
        let doctor = Doctor::new(bed.link.clone(), bed.keys.clone(), DoctorOptions::default());
        let report = doctor.examine().await.unwrap();
        let inbox = report.findings.iter().find(|finding| finding.kind == FindingKind::InInbox).unwrap();
        assert_eq!((inbox.count, report.is_healthy()), (2, true));
        assert_eq!(doctor.fix(inbox).await.unwrap(), 2);
        assert_eq!(bed.ready().await, ["orphan", "orphan too", "before"]);
        bed.send(redis::cmd("DEL").arg(bed.keys.ready())).await;
        left("again").await;
        let (events, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let options = MoverOptions { sweep_ms: 20, ..MoverOptions::default() };
        let mover = Mover::new(bed.link.clone(), bed.keys.clone(), options);
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let begun_ms = bed.now_ms().await;
        let report = move |event| drop(events.send(event));
        let running = tokio::spawn(mover.run(async { drop(stopped.await) }, report));
        while heard.recv().await.unwrap() != Event::Reaped(2) {}
        assert!(bed.now_ms().await - begun_ms >= INBOX_MS as i64, "its consumer may still fetch it");
        assert_eq!(bed.ready().await, ["again", "again too"]);
        let left: usize = bed.link.ask(redis::cmd("EXISTS").arg(bed.keys.inbox_since())).await.unwrap();
        assert_eq!(left, 0);
        drop(stop);
        running.await.unwrap();
    });
}

impl Fixture {
    async fn leased(&self) -> usize {
        self.link.ask(redis::cmd("ZCARD").arg(self.keys.leases())).await.expect("it is a sorted set")
    }
}

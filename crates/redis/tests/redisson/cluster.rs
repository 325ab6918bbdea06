//! On a cluster of three: all keys of a queue in one slot, whatever its name.

use dwell_redis::Link;
use dwell_redis::redisson::codec::Text;
use dwell_redis::redisson::{
    Consumer, DelayedQueue, Doctor, DoctorOptions, Event, FindingKind, Keys, Mover, MoverOptions, Settled,
    When,
};
use dwell_redis::testing::Cluster;

use crate::{HOUR_MS, run, text};

#[test]
fn everything_works_on_a_cluster() {
    run(async {
        let cluster = Cluster::start();
        let link = Link::open(cluster.address()).await.unwrap();
        // Names that lie on different nodes.
        for name in ["orders", "orders{eu}", "mails", "{us}jobs", "a", "b", "c"] {
            let keys = Keys::new(name).unwrap();
            let queue = DelayedQueue::new(link.clone(), keys.clone(), Text);
            let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
            let (events, mut heard) = tokio::sync::mpsc::unbounded_channel();
            let options = MoverOptions { sweep_ms: HOUR_MS, ..MoverOptions::default() };
            let mover = Mover::new(link.clone(), keys.clone(), options);
            let report = move |event| drop(events.send(event));
            let running = tokio::spawn(mover.run(async { drop(stopped.await) }, report));
            assert_eq!(heard.recv().await, Some(Event::Listening), "{name}");

            queue.offer(&text("later"), When::In(HOUR_MS)).await.unwrap();
            queue.offer_as("id", &text("soon"), When::In(20)).await.unwrap();
            assert_eq!(queue.take(20_000).await.unwrap(), Some(text("soon")), "{name}");
            assert_eq!(queue.debounce(&text("later"), When::In(20)).await.unwrap().taken_out, 1);

            let consumer = Consumer::new(link.clone(), keys.clone());
            let claimed = consumer.claim(1, 20_000, HOUR_MS).await.unwrap();
            assert_eq!(claimed[0].payload, b"later", "{name}");
            assert_eq!(consumer.retry(&claimed[0], HOUR_MS, "not now").await.unwrap(), Settled::Scheduled);
            assert!(queue.remove(&text("later")).await.unwrap());

            queue.offer(&text("seen"), When::In(HOUR_MS)).await.unwrap();
            let doctor = Doctor::new(link.clone(), keys.clone(), DoctorOptions::default());
            let report = doctor.examine().await.unwrap();
            assert_eq!((report.scheduled, report.listeners), (1, 1), "{name}");
            drop(stop);
            running.await.unwrap();
            // A server learns in its own time that a connection is closed.
            let mut report = doctor.examine().await.unwrap();
            while report.listeners > 0 {
                tokio::task::yield_now().await;
                report = doctor.examine().await.unwrap();
            }
            let kinds: Vec<_> = report.findings.iter().map(|finding| finding.kind).collect();
            assert_eq!(kinds, [FindingKind::NobodyListens], "{name}");
        }
    });
}

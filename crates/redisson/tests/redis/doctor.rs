//! The doctor finds the problems of a queue, and fixes them.

use dwell_redisson::{
    Consumer, Doctor, DoctorOptions, Event, FindingKind, Layout, Mover, MoverOptions, Report, encode_element,
};

use crate::{Fixture, HOUR_MS, run, text};

fn doctor(bed: &Fixture) -> Doctor {
    Doctor::new(bed.link.clone(), bed.keys.clone(), DoctorOptions::default())
}

fn counts(report: &Report) -> Vec<(FindingKind, usize)> {
    report.findings.iter().map(|finding| (finding.kind, finding.count)).collect()
}

const FAR: &str = "4102444800000";

#[test]
fn an_empty_queue_and_a_watched_one_are_healthy() {
    run(async {
        let bed = Fixture::new().await;
        let report = doctor(&bed).examine().await.unwrap();
        assert!(report.is_healthy() && report.findings.is_empty(), "{report:?}");
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (events, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let mover = Mover::new(bed.link.clone(), bed.keys.clone(), MoverOptions::default());
        let running =
            tokio::spawn(mover.run(async { drop(stopped.await) }, move |event| drop(events.send(event))));
        assert_eq!(heard.recv().await, Some(Event::Listening));
        bed.offer("x", HOUR_MS).await;
        let report = doctor(&bed).examine().await.unwrap();
        assert!(report.is_healthy(), "{report:?}");
        assert_eq!((report.listed, report.scheduled, report.listeners), (1, 1, 1));
        drop(stop);
        running.await.unwrap();
    });
}

#[test]
fn everything_that_can_be_wrong_is_found_and_mended() {
    run(async {
        let bed = Fixture::new().await;
        let element = |id: &[u8; 8], payload: &[u8]| encode_element(Layout::New, *id, payload);
        bed.offer("fine", HOUR_MS).await;
        bed.plant(b"poison", FAR).await;
        bed.plant(&element(b"negative", b"n"), "-1").await;
        bed.plant(&element(b"endless!", b"e"), "1e18").await;
        bed.plant(&element(b"fraction", b"f"), "4102444800000.25").await;
        bed.plant(&encode_element(Layout::Old, *b"\x79\x09\x89\x2a\xaf\x16\xac\x43", b"old"), FAR).await;
        bed.plant(&element(b"overdue!", b"due long ago"), "1000").await;
        bed.send(redis::cmd("RPUSH").arg(bed.keys.pending()).arg(element(b"listonly", b"orphan"))).await;
        bed.send(redis::cmd("ZADD").arg(bed.keys.timeouts()).arg(FAR).arg(element(b"zsetonly", b"hidden")))
            .await;
        let twice = element(b"twotimes", b"twice");
        bed.plant(&twice, FAR).await;
        bed.send(redis::cmd("RPUSH").arg(bed.keys.pending()).arg(&twice)).await;
        bed.send(redis::cmd("RPUSH").arg(bed.keys.ready()).arg("taken")).await;
        let consumer = Consumer::new(bed.link.clone(), bed.keys.clone());
        let claimed = consumer.claim(1, 0, 1).await.unwrap();
        while bed.now_ms().await <= claimed[0].deadline.as_ms() {}

        let doctor = doctor(&bed);
        let report = doctor.examine().await.unwrap();
        assert!(!report.is_healthy());
        let expected = [
            (FindingKind::Undecodable, 1),
            (FindingKind::NegativeScore, 1),
            (FindingKind::Overdue, 1),
            (FindingKind::ListedOnly, 1),
            (FindingKind::ScheduledOnly, 1),
            (FindingKind::ListedTwice, 1),
            (FindingKind::FractionalScore, 1),
            (FindingKind::EndlessScore, 1),
            (FindingKind::OtherLayout, 1),
            (FindingKind::NobodyListens, 9),
            (FindingKind::LapsedLeases, 1),
        ];
        assert_eq!(counts(&report), expected);
        for (finding, fix) in report.plan() {
            assert_eq!(doctor.fix(finding).await.unwrap(), 1, "{:?} of {:?}", fix, finding);
        }
        let after = doctor.examine().await.unwrap();
        let left = [(FindingKind::NobodyListens, 5), (FindingKind::SetAside, 4)];
        assert_eq!(counts(&after), left);
        assert_eq!((after.listed, after.scheduled), (5, 5));
        assert_eq!(bed.ready().await.iter().filter(|value| *value == "due long ago").count(), 1);
        assert!(bed.queue.contains(&text("hidden")).await.unwrap());
        assert!(!bed.queue.contains(&text("orphan")).await.unwrap());
    });
}

#[test]
fn looking_changes_nothing() {
    run(async {
        let bed = Fixture::new().await;
        bed.plant(b"poison", "5").await;
        bed.offer("x", HOUR_MS).await;
        let state = async || {
            let listed = bed.send(redis::cmd("LRANGE").arg(bed.keys.pending()).arg(0).arg(-1)).await;
            let scheduled = bed
                .send(redis::cmd("ZRANGE").arg(bed.keys.timeouts()).arg(0).arg(-1).arg("WITHSCORES"))
                .await;
            (listed, scheduled, bed.send(&redis::cmd("DBSIZE")).await)
        };
        let before = state().await;
        doctor(&bed).examine().await.unwrap();
        assert_eq!(state().await, before);
    });
}

#[test]
fn a_key_of_another_type_is_the_finding() {
    run(async {
        let bed = Fixture::new().await;
        bed.send(redis::cmd("SET").arg(bed.keys.ready()).arg("mine")).await;
        let report = doctor(&bed).examine().await.unwrap();
        assert_eq!(counts(&report), [(FindingKind::WrongType, 1)]);
        assert_eq!(report.findings[0].samples, ["orders is a string, not a list"]);
    });
}

#[test]
fn a_fix_leaves_alone_what_has_changed_since() {
    run(async {
        let bed = Fixture::new().await;
        let element = encode_element(Layout::New, *b"listonly", b"orphan");
        bed.send(redis::cmd("RPUSH").arg(bed.keys.pending()).arg(&element)).await;
        let doctor = doctor(&bed);
        let report = doctor.examine().await.unwrap();
        assert_eq!(counts(&report), [(FindingKind::ListedOnly, 1)]);
        bed.send(redis::cmd("ZADD").arg(bed.keys.timeouts()).arg(FAR).arg(&element)).await;
        assert_eq!(doctor.fix(&report.findings[0]).await.unwrap(), 0);
        assert!(bed.queue.contains(&text("orphan")).await.unwrap());
    });
}

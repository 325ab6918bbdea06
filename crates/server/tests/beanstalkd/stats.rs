//! `stats`, `stats-tube`, `stats-job`.

use std::sync::atomic::Ordering;

use crate::support::{start, start_counting, until};

/// The fields of beanstalkd 1.12, in its order, followed by our own.
const STATS: &str = "current-jobs-urgent current-jobs-ready current-jobs-reserved current-jobs-delayed \
    current-jobs-buried cmd-put cmd-peek cmd-peek-ready cmd-peek-delayed cmd-peek-buried cmd-reserve \
    cmd-reserve-with-timeout cmd-delete cmd-release cmd-use cmd-watch cmd-ignore cmd-bury cmd-kick cmd-touch \
    cmd-stats cmd-stats-job cmd-stats-tube cmd-list-tubes cmd-list-tube-used cmd-list-tubes-watched \
    cmd-pause-tube job-timeouts total-jobs max-job-size current-tubes current-connections current-producers \
    current-workers current-waiting total-connections pid version rusage-utime rusage-stime uptime \
    binlog-oldest-index binlog-current-index binlog-records-migrated binlog-records-written binlog-max-size \
    draining id hostname os platform dwell-version";
const TUBE: &str = "name current-jobs-urgent current-jobs-ready current-jobs-reserved current-jobs-delayed \
    current-jobs-buried total-jobs current-using current-watching current-waiting cmd-delete cmd-pause-tube pause \
    pause-time-left";
const JOB: &str = "id tube state pri age delay ttr time-left file reserves timeouts releases buries kicks";

fn names(yaml: &str) -> Vec<&str> {
    yaml.strip_prefix("---\n").unwrap().lines().map(|line| line.split_once(": ").unwrap().0).collect()
}

#[tokio::test]
async fn all_fields_are_there_in_their_order() {
    let server = start().await;
    let mut client = server.connect().await;
    let id = client.put(0, 0, 9, "x").await;
    for (command, fields, count) in
        [("stats", STATS, 52), ("stats-tube default", TUBE, 14), (&format!("stats-job {id}"), JOB, 14)]
    {
        let yaml = client.yaml(command).await;
        let expected: Vec<&str> = fields.split_whitespace().collect();
        assert_eq!(names(&yaml), expected, "{command}");
        assert_eq!(expected.len(), count, "{command}");
    }
    server.stop().await;
}

#[tokio::test]
async fn stats_count_jobs_commands_and_connections() {
    let server = start().await;
    let (mut client, mut worker) = (server.connect().await, server.connect().await);
    client.put(0, 0, 60, "a").await;
    client.put(2_000, 0, 60, "b").await;
    client.put(0, 100, 60, "c").await;
    client.ask("use t").await;
    client.put(0, 100, 60, "d").await;
    worker.reserve().await;
    worker.expect("kick x", "BAD_FORMAT").await;
    let stats = client.map("stats").await;
    for (field, value) in [
        ("current-jobs-urgent", "0"),
        ("current-jobs-ready", "1"),
        ("current-jobs-reserved", "1"),
        ("current-jobs-delayed", "2"),
        ("current-jobs-buried", "0"),
        ("cmd-put", "4"),
        ("cmd-use", "1"),
        ("cmd-reserve", "0"),
        ("cmd-reserve-with-timeout", "1"),
        ("cmd-kick", "0"),
        ("cmd-stats", "1"),
        ("total-jobs", "4"),
        ("current-tubes", "2"),
        ("current-connections", "2"),
        ("current-producers", "1"),
        ("current-workers", "1"),
        ("current-waiting", "0"),
        ("total-connections", "2"),
        ("draining", "false"),
        ("max-job-size", "1048576"),
    ] {
        assert_eq!(stats[field], value, "{field}");
    }
    assert_eq!(stats["pid"], std::process::id().to_string());
    // Clients parse it: two numbers, as beanstalkd writes them.
    assert_eq!(stats["version"], "\"1.13\"");
    assert_eq!(stats["dwell-version"], format!("\"{}\"", env!("CARGO_PKG_VERSION")));
    server.stop().await;
}

#[tokio::test]
async fn stats_tube_counts_one_tube() {
    let server = start().await;
    let (mut client, mut waiter) = (server.connect().await, server.connect().await);
    client.ask("use t").await;
    waiter.write("watch t\r\nignore default\r\nreserve\r\n").await;
    assert_eq!(waiter.line().await, "WATCHING 2");
    assert_eq!(waiter.line().await, "WATCHING 1");
    let stats = crate::support::soon("it waits", async {
        loop {
            let stats = client.map("stats-tube t").await;
            if stats["current-waiting"] == "1" {
                return stats;
            }
        }
    });
    let stats = stats.await;
    for (field, value) in [
        ("name", "\"t\""),
        ("current-using", "1"),
        ("current-watching", "1"),
        ("total-jobs", "0"),
        ("current-jobs-ready", "0"),
        ("pause", "0"),
    ] {
        assert_eq!(stats[field], value, "{field}");
    }
    client.put(1, 0, 60, "x").await;
    waiter.next_job().await;
    client.put(1, 0, 60, "x").await;
    client.put(9_999, 0, 60, "x").await;
    client.put(1, 50, 60, "x").await;
    let stats = client.map("stats-tube t").await;
    for (field, value) in [
        ("current-jobs-urgent", "1"),
        ("current-jobs-ready", "2"),
        ("current-jobs-reserved", "1"),
        ("current-jobs-delayed", "1"),
        ("current-jobs-buried", "0"),
        ("total-jobs", "4"),
        ("current-waiting", "0"),
    ] {
        assert_eq!(stats[field], value, "{field}");
    }
    server.stop().await;
}

#[tokio::test]
async fn stats_job_follows_a_job() {
    let server = start().await;
    let mut client = server.connect().await;
    let id = client.put(3, 100, 60, "x").await;
    let stats = client.map(&format!("stats-job {id}")).await;
    for (field, value) in [
        ("tube", "\"default\""),
        ("state", "delayed"),
        ("pri", "3"),
        ("delay", "100"),
        ("ttr", "60"),
        ("reserves", "0"),
        ("file", "0"),
        ("age", "0"),
    ] {
        assert_eq!(stats[field], value, "{field}");
    }
    assert!(["99", "100"].contains(&stats["time-left"].as_str()), "{stats:?}");
    client.job(&format!("reserve-job {id}")).await;
    let stats = client.map(&format!("stats-job {id}")).await;
    assert_eq!((stats["state"].as_str(), stats["reserves"].as_str()), ("reserved", "1"));
    assert!(["59", "60"].contains(&stats["time-left"].as_str()), "{stats:?}");
    server.stop().await;
}

#[tokio::test]
async fn walks_are_in_small_pages_and_those_who_ask_at_once_share_one() {
    let (server, store) = start_counting().await;
    let mut first = server.connect().await;
    store.holds_walks.store(true, Ordering::SeqCst);
    first.write("stats\r\n").await;
    until("a walk has begun", async || store.walks.load(Ordering::SeqCst) == 1).await;
    let mut others = Vec::new();
    for at in 0..8 {
        let mut other = server.connect().await;
        // The reply is complete when the next command has begun.
        other.write(format!("use own-{at}\r\nlist-tubes\r\n")).await;
        assert_eq!(other.line().await, format!("USING own-{at}"));
        others.push(other);
    }
    store.gate.add_permits(100);
    assert!(first.line().await.starts_with("OK "));
    for (at, other) in others.iter_mut().enumerate() {
        let line = other.line().await;
        let tubes = String::from_utf8(other.body(&line).await).unwrap();
        assert!(tubes.contains(&format!("- own-{at}\n")), "{tubes}");
    }
    assert_eq!(store.walks.load(Ordering::SeqCst), 2);
    assert!(store.page.load(Ordering::SeqCst) <= 256);
    // A later request does not share an earlier walk.
    first.ask("use later").await;
    assert!(others[0].list("list-tubes").await.contains(&"later".to_owned()));
    server.stop().await;
}

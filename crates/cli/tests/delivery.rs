//! Sinks and schedules of a real server: from its file, by its commands, over a reload and a restart.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod common;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Server, dwell, serve_in_memory, until};
use serde_json::{Value, json};

/// Answers each request with 204, and counts them.
fn receiver() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let got = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&got);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, count) = (stream.unwrap(), Arc::clone(&count));
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                loop {
                    let (mut line, mut length) = (String::new(), 0_usize);
                    while line != "\r\n" {
                        line.clear();
                        if !matches!(reader.read_line(&mut line), Ok(1..)) {
                            return;
                        }
                        let lower = line.to_lowercase();
                        if let Some(text) = lower.strip_prefix("content-length: ") {
                            length = text.trim().parse().unwrap();
                        }
                    }
                    if reader.read_exact(&mut vec![0; length]).is_err() {
                        return;
                    }
                    count.fetch_add(1, Ordering::SeqCst);
                    if stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, got)
}

/// A server in memory with this file.
fn serve(file: &Path) -> Server {
    let mut command = dwell();
    command.args(["serve", "--store", "memory", "--listen", "127.0.0.1:0", "--config"]).arg(file);
    Server::spawn(command)
}

fn sink(to: SocketAddr, more: &str) -> String {
    format!(
        "[[sinks]]\nname = \"shop\"\nqueues = [\"ticks\"]\nkind = \"webhook\"\nurl = \"http://{to}/hush\"\n{more}\n"
    )
}

const TICK: &str = "[[schedules]]\nname = \"tick\"\nqueue = \"ticks\"\nevery = \"1s\"\nbody = \"tock\"\n";

#[test]
fn sinks_and_schedules_of_the_file_run_and_a_hangup_changes_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dwell.toml");
    let (to, got) = receiver();
    fs::write(&file, sink(to, "") + TICK).unwrap();
    let server = serve(&file);
    until("a run is delivered", || got.load(Ordering::SeqCst) > 0);
    let listed = server.dwell(&["sinks", "list"]).ok().json();
    assert_eq!((&listed["name"], &listed["state"]), (&json!("shop"), &json!("running")), "{listed}");
    assert!(!listed.to_string().contains("hush"), "{listed}");
    let listed = server.dwell(&["schedules", "list"]).ok().json();
    assert_eq!(
        (&listed["name"], &listed["every"], &listed["body"]),
        (&json!("tick"), &json!("1s"), &json!("tock"))
    );

    // Nothing has changed.
    let changed = |sinks: u64, schedules: u64| {
        json!({
            "event": "reloaded", "queues_changed": 0, "sinks_changed": sinks, "schedules_changed": schedules,
            "needs_restart": [],
        })
    };
    server.signal("HUP");
    assert_eq!(server.next(), changed(0, 0));
    // A mistake changes nothing.
    fs::write(&file, sink(to, "secrets = [\"file:none\"]") + TICK).unwrap();
    server.signal("HUP");
    let refused = server.next();
    assert_eq!(
        (&refused["event"], &refused["errors"][0]["code"]),
        (&json!("reload_refused"), &json!("unreadable_secret"))
    );
    // Nor does a schedule that the store could not keep, under the limit that it was opened with.
    let large = format!(
        "[[schedules]]\nname = \"large\"\nqueue = \"ticks\"\nevery = \"1s\"\nbody = \"{}\"\n",
        "x".repeat(2_000_000)
    );
    let limits = "[limits]\nbody = \"4MiB\"\n[queues.ticks]\nlease = \"1m\"\n";
    fs::write(&file, format!("{limits}{}{large}{TICK}", sink(to, "concurrency = 3"))).unwrap();
    server.signal("HUP");
    let refused = server.next();
    assert_eq!(
        (&refused["event"], &refused["errors"][0]["code"]),
        (&json!("reload_refused"), &json!("body_too_large"))
    );
    let settings = server.dwell(&["settings", "ticks"]).ok().json();
    assert!(!settings.to_string().contains("\"1m\""), "{settings}");
    // A schedule that is left out is deleted; a sink with another bound is another one.
    fs::write(&file, sink(to, "concurrency = 2")).unwrap();
    server.signal("HUP");
    assert_eq!(server.next(), changed(1, 1));
    assert!(server.dwell(&["schedules", "list"]).ok().lines().is_empty());
    let before = got.load(Ordering::SeqCst);
    server.dwell(&["put", "ticks", "by hand"]).ok();
    until("the new sink delivers", || got.load(Ordering::SeqCst) > before);
    assert_eq!(server.stop_by("TERM").0["event"], "stopped");
}

#[test]
fn a_schedule_is_put_looked_at_run_paused_and_deleted() {
    let server = serve_in_memory(&[]);
    let put =
        |args: &[&str]| server.dwell(&[&["schedules", "put", "report", "--queue", "reports"], args].concat());
    assert_eq!(
        put(&["--every", "1h", "--body", "x"]).ok().json(),
        json!({"name": "report", "outcome": "created"})
    );
    let cron =
        ["--cron", "30 9 * * MON-FRI", "--zone", "Europe/Berlin", "--overlap", "allow", "--jitter", "1m"];
    assert_eq!(put(&cron).ok().json()["outcome"], "changed");
    let listed = server.dwell(&["schedules", "list"]).ok().json();
    for (field, value) in [
        ("cron", json!("30 9 * * MON-FRI")),
        ("zone", json!("Europe/Berlin")),
        ("overlap", json!("allow")),
        ("missed", json!("one")),
        ("jitter", json!("1m")),
        ("body", json!("")),
    ] {
        assert_eq!(listed[field], value, "{field}: {listed}");
    }
    let next = server.dwell(&["schedules", "next", "report", "--count", "3"]).ok().lines();
    assert!(next.len() == 3 && next.iter().all(|line| line["instant"].is_string()), "{next:?}");
    server.dwell(&["schedules", "run", "report"]).ok();
    let taken = server.dwell(&["take", "reports", "--ack"]).ok().json();
    assert_eq!(taken["headers"]["dwell-schedule-name"], "report");
    assert_eq!(server.dwell(&["schedules", "pause", "report"]).ok().json()["paused"], true);
    assert_eq!(server.dwell(&["schedules", "resume", "report"]).ok().json()["paused"], false);
    assert_eq!(put(&["--cron", "0 0 9 ? * 2"]).failure(), "ambiguous_dialect");
    assert_eq!(put(&["--cron", "0 0 9 ? * 2", "--dialect", "quartz"]).ok().json()["outcome"], "changed");
    assert_eq!(server.dwell(&["schedules", "delete", "report"]).ok().json()["removed"], 1);
    let gone = server.dwell(&["schedules", "next", "report"]);
    assert_eq!((gone.code, gone.failure().as_str()), (3, "unknown_schedule"));
    let none = server.dwell(&["sinks", "test", "none"]);
    assert_eq!((none.code, none.failure().as_str()), (3, "unknown_sink"));
    server.stop_by("TERM");
}

#[test]
fn a_sink_that_is_not_reached_ends_its_test_with_a_refusal_and_a_pause_holds_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dwell.toml");
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    fs::write(&file, sink(nobody, "")).unwrap();
    let server = serve(&file);
    let tested = server.dwell(&["sinks", "test", "shop"]);
    let said: Value = tested.json();
    assert_eq!((tested.code, &said["reached"]), (1, &json!(false)), "{said}");
    assert_eq!(server.dwell(&["sinks", "pause", "shop"]).ok().json()["state"], "paused");
    server.dwell(&["put", "ticks", "x"]).ok();
    let listed = server.dwell(&["sinks", "list"]).ok().json();
    assert_eq!((&listed["state"], &listed["queues"][0]["taken"]), (&json!("paused"), &json!(0)));
    assert_eq!(server.dwell(&["sinks", "resume", "shop"]).ok().json()["state"], "running");
    server.stop_by("TERM");
}

#[test]
fn a_reserved_queue_is_read_and_not_changed_from_the_command_line() {
    let server = serve_in_memory(&[]);
    server.dwell(&["schedules", "put", "tick", "--queue", "ticks", "--every", "1h"]).ok();
    let listed = server.dwell(&["stats", "dwell:schedules"]).ok().json();
    assert_eq!(listed["queue"], "dwell:schedules");
    for args in [
        &["put", "dwell:schedules", "x"][..],
        &["take", "dwell:schedules"],
        &["cancel", "dwell:schedules", "--key", "tick"],
        &["purge", "dwell:schedules", "--yes"],
        &["delete-queue", "dwell:schedules", "--yes"],
        &["pause", "dwell:schedules"],
    ] {
        let refused = server.dwell(args);
        assert_eq!((refused.code, refused.failure().as_str()), (1, "queue_reserved"), "{args:?}");
    }
    assert_eq!(server.dwell(&["schedules", "list"]).ok().json()["name"], "tick");
    server.stop_by("TERM");
}

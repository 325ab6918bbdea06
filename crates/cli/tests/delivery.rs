//! Sinks and schedules of a real server: from its file, by its commands, over a reload and a restart.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod common;

use std::fs;
use std::io::Read as _;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;

use common::receiver::Receiver;
use common::shared::get;
use common::{Server, dwell, serve_in_memory, until};
use dwell_engine::{Engine, Options};
use dwell_model::{Headers, Key, QueueName, Timestamp};
use dwell_store::{Put, Target, When};
use serde_json::{Value, json};

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
    let receiver = Receiver::start();
    let to = receiver.address;
    fs::write(&file, sink(to, "") + TICK).unwrap();
    let server = serve(&file);
    until("a run is delivered", || receiver.count() > 0);
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
    let before = receiver.count();
    server.dwell(&["put", "ticks", "by hand"]).ok();
    until("the new sink delivers", || receiver.count() > before);
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

/// The message of a schedule that a newer version has written: this one cannot read what it says of missed instants.
fn of_a_newer_version(name: &str) -> Put {
    let definition = r#"{"queue":"ticks","every_ms":3600000,"missed":"of_a_later_version"}"#;
    Put {
        key: Some(Key::new(name).unwrap()),
        headers: Headers::new([("dwell-schedule", definition)]).unwrap(),
        when: When::At(Timestamp::MAX),
        ..Put::new("dwell:schedules".parse().unwrap(), "body")
    }
}

#[test]
fn a_schedule_of_a_newer_version_is_left_alone_by_a_reload_in_part_and_by_a_start() {
    let folder = tempfile::tempdir().unwrap();
    let (data, file) = (folder.path().join("data"), folder.path().join("dwell.toml"));
    let engine = Engine::open(&data, Options::default()).unwrap();
    let put = engine.blocking().put_one(of_a_newer_version("later")).unwrap();
    engine.close().unwrap();
    let serve = || {
        let mut command = dwell();
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(&data).arg("--config").arg(&file);
        command.stderr(Stdio::piped());
        Server::spawn(command)
    };
    let later = TICK.replace("tick\"", "later\"");
    let counted = |server: &Server, count: u64| {
        let page = get(server, "/metrics").1;
        assert!(page.contains(&format!("dwell_schedule_unreadable_total {count}\n")), "{page}");
    };

    // A reload does the rest.
    let receiver = Receiver::start();
    fs::write(&file, "").unwrap();
    let server = serve();
    counted(&server, 0);
    fs::write(&file, sink(receiver.address, "") + &later + TICK).unwrap();
    server.signal("HUP");
    let reloaded = server.next();
    assert_eq!(reloaded["event"], "reloaded_in_part", "{reloaded}");
    assert_eq!((&reloaded["schedules_changed"], &reloaded["sinks_changed"]), (&json!(1), &json!(1)));
    let errors = reloaded["errors"].as_array().unwrap();
    assert_eq!((errors.len(), &errors[0]["code"]), (1, &json!("unreadable_schedule")), "{reloaded}");
    assert!(errors[0]["detail"].as_str().unwrap().contains("schedule 'later'"), "{reloaded}");
    assert_eq!(reloaded["schedules_untried"], Value::Null, "{reloaded}");
    counted(&server, 1);
    until("a run is delivered", || receiver.count() > 0);
    let next = server.dwell(&["schedules", "next", "later"]);
    assert_eq!(next.failure(), "unreadable_schedule");
    server.stop_by("TERM");

    // So does a start.
    receiver.heard();
    let mut server = serve();
    let mut said = server.stderr();
    until("a run is delivered", || receiver.count() > 0);
    counted(&server, 1);
    let (stopped, status) = server.stop_by("TERM");
    assert!(stopped["event"] == "stopped" && status.success());
    let mut log = String::new();
    said.read_to_string(&mut log).unwrap();
    let warning = log.lines().find(|line| line.contains("unreadable_schedule"));
    assert!(warning.is_some_and(|line| line.contains("later")), "{log}");

    let engine = Engine::open(&data, Options::default()).unwrap();
    let queue: QueueName = "dwell:schedules".parse().unwrap();
    let message = engine.blocking().get(queue, vec![Target::Id(put.id)], false).remove(0).unwrap();
    assert_eq!((message.headers, message.standing.counts.takes), (of_a_newer_version("later").headers, 0));
    engine.close().unwrap();
}

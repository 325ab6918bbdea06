//! Servers over one PostgreSQL: they share queues, one outlives the other, and none prints a password.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod common;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;

use common::shared::{get, instant, waiting_take};
use common::{KilledOnDrop, PATIENCE, Ran, Server, dwell, run, until};
use dwell_testkit::free_port;
use dwell_testkit::postgres::Server as Postgres;

/// Puts of other processes are found every 250 ms; later on a busy machine.
const NO_LATER_MS: u64 = 10_000;

fn serve(postgres: &str, args: &[&str]) -> Server {
    let mut command = dwell();
    command.args(["serve", "--listen", "127.0.0.1:0"]).args(args).env("DWELL_STORE", postgres);
    Server::spawn(command)
}

/// A PostgreSQL for the tests of this file, each of which has a schema.
fn url(postgres: &Postgres, schema: &str) -> String {
    format!("{}?schema={schema}&unsynced=allow", postgres.url("postgres"))
}

#[test]
fn servers_share_queues_and_one_outlives_the_other() {
    let postgres = Postgres::start();
    let url = url(&postgres, "shared");
    let (first, second) = (serve(&url, &[]), serve(&url, &[]));
    assert_eq!(first.serving["store"], "postgres");
    let shown = format!("postgres://127.0.0.1:{}/postgres?schema=shared", postgres.port());
    assert_eq!(first.serving["postgres"], shown);

    // A take on one server is woken by a put on the other, at its instant.
    let take = waiting_take(&second, "orders");
    let put = first.dwell(&["put", "orders", "close order 7", "--delay", "700ms"]).ok().json();
    let taken = take.finish().ok().json();
    assert_eq!((&taken["id"], &taken["body"]), (&put["id"], &"close order 7".into()));
    assert!(instant(&taken, "taken_at") >= instant(&put, "due"), "{taken}");
    assert!(taken["lateness_ms"].as_u64().unwrap() < NO_LATER_MS, "{taken}");
    second.dwell(&["ack", taken["receipt"].as_str().unwrap()]).ok();

    // A lease of a server that was killed runs out, and the other hands the message out again.
    let id = first.dwell(&["put", "orders", "order 8"]).ok().json()["id"].clone();
    let held = first.dwell(&["take", "orders", "--lease", "2s"]).ok().json();
    assert_eq!((&held["id"], &held["attempt"]), (&id, &1.into()));
    first.kill();
    let again = second.dwell(&["take", "orders", "--wait", "60s"]).ok().json();
    assert_eq!((&again["id"], &again["attempt"]), (&id, &2.into()));
    assert!(instant(&again, "taken_at") >= instant(&held, "lease_until"), "{held} {again}");
    let stale = second.dwell(&["ack", held["receipt"].as_str().unwrap()]);
    assert_eq!(stale.failure(), "lease_lost");
    second.dwell(&["ack", again["receipt"].as_str().unwrap()]).ok();
    let (said, status) = second.stop_by("TERM");
    assert!(said["event"] == "stopped" && status.success());
}

#[test]
fn a_server_that_ends_in_order_gives_back_the_jobs_of_beanstalkds_clients() {
    let postgres = Postgres::start();
    let url = url(&postgres, "jobs");
    let server = serve(&url, &["--beanstalkd", "127.0.0.1:0"]);
    let stream = TcpStream::connect(server.serving["beanstalkd"].as_str().unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut line = BufReader::new(stream);
    write!(line.get_mut(), "put 1024 0 3600 7\r\norder 7\r\nreserve\r\n").unwrap();
    let mut said = String::new();
    line.read_line(&mut said).unwrap();
    let number = said.trim_end().strip_prefix("INSERTED ").unwrap().to_owned();
    said.clear();
    line.read_line(&mut said).unwrap();
    assert_eq!(said.trim_end(), format!("RESERVED {number} 7"));
    server.stop_by("TERM");

    let next = serve(&url, &[]);
    let taken = next.dwell(&["take", "default"]).ok().json();
    assert_eq!((&taken["body"], &taken["attempt"]), (&"order 7".into(), &1.into()));
}

#[test]
fn a_postgres_that_is_away_is_seen_in_health_and_its_return_too() {
    let mut postgres = Postgres::start_with(&[]);
    let server = serve(&format!("{}?schema=away&timeout_ms=1000", postgres.url("postgres")), &[]);
    let id = server.dwell(&["put", "orders", "x"]).ok().json()["id"].clone();
    assert_eq!(get(&server, "/health/ready").0, 200);
    postgres.kill();
    until("it is not ready", || get(&server, "/health/ready").0 == 503);
    assert_eq!(get(&server, "/health/live").0, 200);
    let refused = server.dwell(&["take", "orders"]).failure();
    assert!(["outcome_unknown", "unavailable"].contains(&refused.as_str()), "{refused}");
    postgres.start_again();
    until("it is ready again", || get(&server, "/health/ready").0 == 200);
    assert_eq!(server.dwell(&["take", "orders"]).ok().json()["id"], id);
}

#[test]
fn a_postgres_that_cannot_be_used_is_said_and_a_password_never_is() {
    let postgres = Postgres::start();
    let at = postgres.port();
    let nobody = free_port();
    for (url, code) in [
        (format!("postgres://u:hush@127.0.0.1:{nobody}/x?timeout_ms=1000"), "unreachable"),
        (format!("postgres://postgres:hush@127.0.0.1:{at}/nowhere?unsynced=allow"), "unreachable"),
        (format!("postgres://postgres:hush@127.0.0.1:{at}/postgres"), "postgres_unsynced"),
        (
            format!("postgres://postgres:hush@127.0.0.1:{at}/postgres?sslmode=require&unsynced=allow"),
            "unreachable",
        ),
        (
            format!("postgres://postgres:hush@127.0.0.1:{at}/postgres?schema=pg_catalog&unsynced=allow"),
            "foreign_data",
        ),
        (format!("postgres://u:hush@127.0.0.1:{at}/x?connections=0"), "config"),
    ] {
        let mut command = dwell();
        command.args(["serve", "--listen", "127.0.0.1:0"]).env("DWELL_STORE", &url);
        let ended = run(command);
        assert!(!format!("{ended:?}").contains("hush"), "{ended:?}");
        assert_ne!(ended.code, 0, "{url}: {ended:?}");
        if code != "config" {
            assert_eq!((ended.code, ended.failure().as_str()), (6, code), "{url}: {ended:?}");
        }
    }
}

/// Runs `dwell postgres …` with this URL in the environment.
fn administer(url: &str, args: &[&str]) -> Ran {
    let mut command = dwell();
    command.arg("postgres").args(args).env("DWELL_STORE", url);
    run(command)
}

#[test]
fn a_schema_is_migrated_granted_to_a_role_of_a_server_and_dropped() {
    let postgres = Postgres::start();
    let url = url(&postgres, "adm");
    for args in [["grant", "postgres"].as_slice(), &["drop", "--yes"]] {
        let refused = administer(&url, args);
        assert_eq!((refused.code, refused.failure().as_str()), (3, "not_installed"), "{args:?}");
    }
    let installed = administer(&url, &["migrate"]).ok().json();
    assert_eq!(
        (&installed["schema"], &installed["from"], &installed["to"]),
        (&"adm".into(), &().into(), &1.into())
    );
    assert_eq!(administer(&url, &["migrate"]).ok().json()["from"], 1);

    let unknown = administer(&url, &["grant", "nobody_at_all"]);
    assert_eq!((unknown.code, unknown.failure().as_str()), (1, "unknown_role"));
    postgres.psql("postgres", "CREATE ROLE serving LOGIN");
    let granted = administer(&url, &["grant", "serving", "put", "cancel"]).ok().json();
    assert_eq!(granted["functions"], serde_json::json!(["cancel", "put"]));
    administer(&url, &["grant", "serving", "--serve"]).ok();
    let as_serving = url.replace("postgres@", "serving@");
    let server = serve(&as_serving, &[]);
    server.dwell(&["put", "orders", "x"]).ok();
    for args in [["migrate"].as_slice(), &["grant", "serving"], &["drop", "--yes"]] {
        let refused = administer(&as_serving, args);
        assert_eq!((refused.code, refused.failure().as_str()), (1, "not_granted"), "{args:?}");
    }
    server.stop_by("TERM");

    let asked = administer(&url, &["drop"]);
    assert_eq!((asked.code, asked.failure().as_str()), (2, "usage"));
    let dropped = administer(&url, &["drop", "--yes"]).ok().json();
    assert_eq!(
        (&dropped["dropped"], &dropped["queues"], &dropped["pending"]),
        (&true.into(), &1.into(), &1.into())
    );
    assert_eq!(administer(&url, &["drop", "--yes"]).failure(), "not_installed");
}

#[test]
fn the_administration_refuses_what_it_cannot_use_and_prints_no_password() {
    let nobody = free_port();
    let at = format!("postgres://u:hush@127.0.0.1:{nobody}/x?timeout_ms=1000");
    for (url, args, code) in [
        (at.as_str(), ["migrate"].as_slice(), 4),
        (at.as_str(), ["drop", "--yes"].as_slice(), 4),
        (at.as_str(), ["grant"].as_slice(), 2),
        (at.as_str(), ["grant", "shop", "maintain_1"].as_slice(), 2),
        (at.as_str(), ["grant", "shop", "put", "--serve"].as_slice(), 2),
        (at.as_str(), ["vacuum"].as_slice(), 2),
        ("postgres://u:hush@127.0.0.1/x?connections=0", ["migrate"].as_slice(), 2),
        ("redis://u:hush@127.0.0.1", ["migrate"].as_slice(), 2),
        ("engine", ["drop", "--yes"].as_slice(), 2),
    ] {
        let ended = administer(url, args);
        assert!(!format!("{ended:?}").contains("hush"), "{ended:?}");
        assert_eq!(ended.code, code, "{url} {args:?}: {ended:?}");
    }
    let mut without = dwell();
    without.args(["postgres", "migrate"]);
    assert_eq!(run(without).code, 2, "no store is named");
}

/// Runs `dwell postgres drop` on a terminal of its own, by `script` of util-linux. Once it asks, `typed` is entered.
/// Returns the exit code and what the terminal has shown.
fn drop_on_a_terminal(url: &str, args: &str, typed: &str) -> (i32, String) {
    let drop = format!("'{}' postgres drop --color never {args}", env!("CARGO_BIN_EXE_dwell"));
    let mut command = dwell_testkit::dwell("script");
    command.args(["-qec", &drop, "/dev/null"]).env("SHELL", "/bin/sh").env("DWELL_STORE", url);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = KilledOnDrop(command.spawn().unwrap());
    let (mut keyboard, mut screen) = (child.0.stdin.take().unwrap(), child.0.stdout.take().unwrap());
    let (sender, parts) = channel();
    thread::spawn(move || {
        let mut part = [0; 1024];
        while let Ok(length @ 1..) = screen.read(&mut part) {
            let _ = sender.send(part[..length].to_vec());
        }
    });
    let (mut shown, mut is_typed) = (String::new(), false);
    loop {
        match parts.recv_timeout(PATIENCE) {
            Ok(part) => shown.push_str(&String::from_utf8_lossy(&part)),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => panic!("it does not end: {shown}"),
        }
        if !is_typed && shown.contains("[y/N] ") {
            keyboard.write_all(typed.as_bytes()).unwrap();
            is_typed = true;
        }
    }
    (child.0.wait().unwrap().code().unwrap_or(-1), shown)
}

#[test]
fn on_a_terminal_a_drop_shows_what_is_lost_and_asks() {
    const LOST: &str = "1 queues with 1 scheduled or ready messages, 0 leased, 0 dead";
    let postgres = Postgres::start();
    let url = url(&postgres, "asked").replace("postgres@", "postgres:hush@");
    administer(&url, &["migrate"]).ok();
    let server = serve(&url, &[]);
    server.dwell(&["put", "orders", "x"]).ok();
    server.stop_by("TERM");
    // The last one is the end of the input.
    for typed in ["n\n", "\n", "yes please\n", "\u{4}"] {
        let (code, shown) = drop_on_a_terminal(&url, "", typed);
        assert_eq!(code, 1, "{typed:?}: {shown}");
        assert!(shown.contains(LOST) && shown.contains("asked  stays as it is"), "{typed:?}: {shown}");
        assert!(!shown.contains("hush"), "{shown}");
    }
    let (code, shown) = drop_on_a_terminal(&url, "--json", "y\n");
    assert!(code == 2 && !shown.contains("[y/N]"), "programs are not asked: {code} {shown}");
    let (code, shown) = drop_on_a_terminal(&url, "", "y\n");
    assert!(code == 0 && shown.contains(LOST) && shown.contains("asked  dropped"), "{code} {shown}");
    assert_eq!(administer(&url, &["drop", "--yes"]).failure(), "not_installed");
}

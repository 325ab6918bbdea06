//! Servers over one Redis: they share queues, one outlives the other, and none prints a password.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod common;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;

use common::shared::{get, instant, waiting_take};
use common::{PATIENCE, Server, dwell, run, until};
use dwell_testkit::free_port;
use dwell_testkit::redis::{Server as Redis, number, text};
use serde_json::json;

/// A waiting take checks again every ten seconds in any case. What arrives earlier was notified.
const BEFORE_THE_SWEEP_MS: u64 = 5_000;

/// A lease that runs out is found like a message that falls due: by a timer at its instant. So both are equally late on
/// a busy machine, except that one may have to wait for the other.
const NO_LATER_MS: u64 = 1_000;

fn serve(redis: &str, args: &[&str]) -> Server {
    let mut command = dwell();
    command.args(["serve", "--listen", "127.0.0.1:0"]).args(args).env("DWELL_STORE", redis);
    Server::spawn(command)
}

#[test]
fn the_leases_of_a_server_that_was_killed_come_back_on_the_other_when_they_run_out() {
    let redis = Redis::start();
    let (first, second) = (serve(&redis.url(), &[]), serve(&redis.url(), &[]));
    assert_eq!(first.serving["store"], "redis");
    assert_eq!(first.serving["redis"], redis.url());
    let id = first.dwell(&["put", "orders", "close order 7"]).ok().json()["id"].clone();
    assert_eq!(second.dwell(&["list", "orders", "--state", "ready"]).ok().json()["id"], id);
    let control = waiting_take(&second, "control");
    let held = first.dwell(&["take", "orders", "--lease", "3s"]).ok().json();
    assert_eq!((&held["id"], &held["attempt"]), (&id, &1.into()));
    let take = waiting_take(&second, "orders");
    // Due when the lease runs out: its lateness shows how late this machine is then.
    let due = held["lease_until"].as_str().unwrap();
    second.dwell(&["put", "control", "due then", "--due", due]).ok();
    first.kill();
    let again = take.finish().ok().json();
    let control = control.finish().ok().json();
    assert_eq!((&again["id"], &again["attempt"]), (&id, &2.into()));
    // By the clock of Redis: no sooner; and ready from the deadline on, found then and not by a sweep.
    let (deadline, taken_at) = (instant(&held, "lease_until"), instant(&again, "taken_at"));
    assert!(taken_at >= deadline, "{held} {again}");
    let late_ms = taken_at.ms_since(deadline);
    assert_eq!(again["lateness_ms"].as_u64().unwrap(), late_ms, "{held} {again}");
    assert!(late_ms < BEFORE_THE_SWEEP_MS, "{held} {again}");
    let others_ms = instant(&control, "taken_at").ms_since(instant(&control, "due"));
    assert_eq!(instant(&control, "due"), deadline);
    assert!(late_ms <= others_ms + NO_LATER_MS, "{late_ms} ms late, and what was due then {others_ms} ms");
    let stale = second.dwell(&["ack", held["receipt"].as_str().unwrap()]);
    assert_eq!(stale.failure(), "lease_lost");
    second.dwell(&["ack", again["receipt"].as_str().unwrap()]).ok();
    assert_eq!(second.dwell(&["stats", "orders"]).failure(), "unknown_queue");
}

#[test]
fn what_is_put_on_one_server_wakes_a_take_on_the_other() {
    let redis = Redis::start();
    let (first, second) = (serve(&redis.url(), &[]), serve(&redis.url(), &[]));
    // It sleeps until the far message is due, or the notification arrives.
    first.dwell(&["put", "orders", "far", "--delay", "1h"]).ok();
    let take = waiting_take(&second, "orders");
    let put = first.dwell(&["put", "orders", "near", "--delay", "700ms"]).ok().json();
    let taken = take.finish().ok().json();
    assert_eq!((&taken["id"], &taken["body"]), (&put["id"], &"near".into()));
    assert!(instant(&taken, "taken_at") >= instant(&put, "due"), "{taken}");
    assert!(taken["lateness_ms"].as_u64().unwrap() < BEFORE_THE_SWEEP_MS, "{taken}");
    let (said, status) = second.stop_by("TERM");
    assert!(said["event"] == "stopped" && status.success());
}

#[test]
fn jobs_of_a_server_that_was_killed_are_ready_again_for_beanstalkd_s_clients_of_the_other() {
    let redis = Redis::start();
    let servers = [(); 2].map(|()| serve(&redis.url(), &["--beanstalkd", "127.0.0.1:0"]));
    let [mut first, mut second] = [0, 1].map(|index: usize| {
        let stream = TcpStream::connect(servers[index].serving["beanstalkd"].as_str().unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        BufReader::new(stream)
    });
    let said = |line: &mut BufReader<TcpStream>| {
        let mut text = String::new();
        line.read_line(&mut text).unwrap();
        text.trim_end().to_owned()
    };
    // A lease of an hour: only the end of its server gives it back.
    write!(first.get_mut(), "put 1024 0 3600 7\r\norder 7\r\nreserve\r\n").unwrap();
    let number = said(&mut first).strip_prefix("INSERTED ").unwrap().to_owned();
    assert_eq!(said(&mut first), format!("RESERVED {number} 7"));
    write!(second.get_mut(), "reserve-with-timeout 0\r\nreserve-with-timeout 60\r\n").unwrap();
    assert_eq!(said(&mut second), "TIMED_OUT");
    let [killed, left] = servers;
    killed.kill();
    assert_eq!(said(&mut second), format!("RESERVED {number} 7"));
    assert_eq!(said(&mut second), "order 7");
    write!(second.get_mut(), "delete {number}\r\n").unwrap();
    assert_eq!(said(&mut second), "DELETED");
    left.stop_by("TERM");
}

#[test]
fn a_redis_that_is_away_is_seen_in_health_and_metrics_and_its_return_too() {
    let mut redis = Redis::durable();
    let server = serve(&format!("{}?retry_ms=200&timeout_ms=1000", redis.url()), &[]);
    let id = server.dwell(&["put", "orders", "x"]).ok().json()["id"].clone();
    assert_eq!(get(&server, "/health/ready").0, 200);
    redis.kill();
    // The store's last answer is valid for a second.
    let mut answer = String::new();
    until("it is not ready", || {
        let (status, said) = get(&server, "/health/ready");
        answer = said;
        status == 503
    });
    assert!(answer.contains("\"unavailable\""), "{answer}");
    assert_eq!(get(&server, "/health/live").0, 200);
    assert!(get(&server, "/metrics").1.contains("\ndwell_up 0\n"));
    let refused = server.dwell(&["take", "orders"]).failure();
    assert!(["outcome_unknown", "unavailable"].contains(&refused.as_str()), "{refused}");
    redis.start_again();
    until("it is ready again", || get(&server, "/health/ready").0 == 200);
    until("the page says so", || get(&server, "/metrics").1.contains("\ndwell_up 1\n"));
    assert_eq!(server.dwell(&["take", "orders"]).ok().json()["id"], id);
}

/// The number of scripts that a Redis has run.
fn scripts(redis: &Redis) -> usize {
    let told = redis.info("cmdstat_evalsha").unwrap_or_default();
    told.split(['=', ',']).nth(1).map_or(0, |calls| calls.parse().unwrap())
}

#[test]
fn probes_cost_a_script_a_second_at_most_whatever_the_number_of_queues() {
    const PROBES: usize = 40;
    let redis = Redis::start();
    let server = serve(&redis.url(), &[]);
    let lines: String = (0..400).map(|n| format!("{{\"queue\":\"q{n}\",\"body\":\"x\"}}\n")).collect();
    server.dwell_with(&["put", "--from", "-"], lines.as_bytes()).ok();
    redis.command(&["CONFIG", "RESETSTAT"]);
    for _ in 0..PROBES {
        assert_eq!(get(&server, "/health/ready").0, 200);
    }
    // The server has its own heartbeats meanwhile.
    let count = scripts(&redis);
    assert!(count <= PROBES, "{count} scripts for {PROBES} probes");
}

/// A server with queues `good`, of three messages, and `bad`, of one, whose leases are overwritten; a connection of
/// beanstalkd's protocol; and the numbers of the messages.
struct OutOfOrder {
    _redis: Redis,
    server: Server,
    line: BufReader<TcpStream>,
    good: Vec<String>,
    bad: String,
}

impl OutOfOrder {
    fn new() -> OutOfOrder {
        let redis = Redis::start();
        let server = serve(&redis.url(), &["--beanstalkd", "127.0.0.1:0"]);
        let stream = TcpStream::connect(server.serving["beanstalkd"].as_str().unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut line = BufReader::new(stream);
        let mut put = |tube: &str| {
            write!(line.get_mut(), "use {tube}\r\nput 1024 0 60 1\r\nx\r\n").unwrap();
            assert_eq!(reply(&mut line), format!("USING {tube}"));
            reply(&mut line).strip_prefix("INSERTED ").unwrap().to_owned()
        };
        let bad = put("bad");
        let first = redis.command(&["EVAL", "return redis.call('KEYS', 'dwell:{*}:meta')[1]", "0"]);
        let leases = text(first).strip_suffix("meta").unwrap().to_owned() + "leases";
        let good: Vec<String> = (0..3).map(|_| put("good")).collect();
        redis.command(&["SET", &leases, "mine"]);
        OutOfOrder { _redis: redis, server, line, good, bad }
    }
}

/// The next line from a server of beanstalkd's protocol.
fn reply(line: &mut BufReader<TcpStream>) -> String {
    let mut text = String::new();
    line.read_line(&mut text).unwrap();
    text.trim_end().to_owned()
}

#[test]
fn jobs_of_other_tubes_are_found_and_deleted_though_a_tube_is_out_of_order() {
    let mut there = OutOfOrder::new();
    let (line, good, bad) = (&mut there.line, &there.good, &there.bad);
    write!(line.get_mut(), "peek {}\r\n", good[0]).unwrap();
    assert_eq!(reply(line), format!("FOUND {} 1", good[0]));
    assert_eq!(reply(line), "x");
    // Those that arrive together are looked up together.
    write!(line.get_mut(), "delete {}\r\ndelete {bad}\r\ndelete {}\r\n", good[0], good[1]).unwrap();
    assert_eq!(reply(line), "DELETED");
    assert_ne!(reply(line), "DELETED");
    assert_eq!(reply(line), "DELETED");
}

/// Foreign data under a queue's keys, and a list that is one page.
#[test]
fn a_queue_that_is_out_of_order_is_nobody_elses_trouble_at_a_server_either() {
    let there = OutOfOrder::new();
    let server = &there.server;
    let is_up = get(server, "/metrics").1.contains("\ndwell_up 1\n");
    assert_eq!((get(server, "/health/ready").0, is_up), (200, true));
    let (status, listed) = get(server, "/v1/queues");
    assert!(status == 200 && listed.contains("\"good\""), "{listed}");
    assert!(listed.contains("\"unread\":[{\"queue\":\"bad\",\"error\":{"), "{listed}");
    let lines = server.dwell(&["queues", "--json"]).ok().lines();
    assert_eq!((&lines[0]["queue"], &lines[0]["error"]["code"]), (&json!("bad"), &json!("foreign_data")));
    assert_eq!((&lines[1]["queue"], &lines[1]["counts"]["ready"]), (&json!("good"), &json!(3)), "{lines:?}");
    assert_eq!(server.dwell(&["stats"]).ok().json()["unread"], 1);
    let metrics = get(server, "/metrics").1;
    assert!(metrics.contains("\ndwell_queues 2\n"), "{metrics}");
    assert!(!metrics.contains("dwell_messages{queue=\"bad\""), "nobody says that it has nothing: {metrics}");
}

#[test]
fn a_page_of_metrics_scans_nothing() {
    let redis = Redis::start();
    let server = serve(&redis.url(), &[]);
    let lines: String = (0..500).map(|n| format!("{{\"queue\":\"q{}\",\"body\":\"x\"}}\n", n % 5)).collect();
    server.dwell_with(&["put", "--from", "-"], lines.as_bytes()).ok();
    redis.command(&["CONFIG", "RESETSTAT"]);
    let page = get(&server, "/metrics").1;
    assert!(page.contains("dwell_messages{queue=\"q0\",state=\"ready\"} 100\n"), "{page}");
    let stats: String = text(redis.command(&["INFO", "commandstats"]));
    let calls: Vec<(&str, u64)> = stats
        .lines()
        .filter_map(|line| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((name, rest.split(',').next()?.parse().ok()?))
        })
        .collect();
    assert!(calls.iter().any(|(name, _)| *name == "zcard"), "{stats}");
    for (name, count) in calls {
        let scans = ["scan", "keys", "hscan", "sscan", "zscan", "smembers", "hvals", "hkeys"].contains(&name);
        assert!(!scans, "{name}: {count}");
        // Five queues, whatever they contain.
        assert!(count <= 100, "{name}: {count}");
    }
}

#[test]
fn a_redis_that_cannot_be_used_is_said_and_a_password_never_is() {
    let locked = Redis::with_password("se-cret");
    let nobody = format!("redis://:se-cret@127.0.0.1:{}", free_port());
    let wrong = locked.url().replace("se-cret", "se-cretly");
    let unknown = format!("{}?prefx=p", locked.url());
    let evicting = Redis::start_with(&["--maxmemory-policy", "allkeys-lru"]);
    for (url, code) in [
        (nobody.as_str(), "unreachable"),
        (&wrong, "unreachable"),
        (&evicting.url(), "redis_evicts"),
        (&unknown, "config_invalid_value"),
        ("redis://user:se-cret", "config_invalid_value"),
        ("redsi://user:se-cret@host", "config_invalid_value"),
    ] {
        for by_flag in [false, true] {
            let mut command = dwell();
            command.args(["serve", "--listen", "127.0.0.1:0"]);
            match by_flag {
                true => command.args(["--store", url]),
                false => command.env("DWELL_STORE", url),
            };
            let ran = run(command);
            assert_eq!((ran.code, ran.failure().as_str()), (6, code), "{url}: {ran:?}");
            assert!(!format!("{ran:?}").contains("se-cret"), "{ran:?}");
        }
    }
    for args in [
        ["redisson", "doctor", "--queue", "q", "--redis", "redis://u:se-cret"].as_slice(),
        &["redisson", "move", "--help"],
    ] {
        let mut command = dwell();
        command.args(args).env("DWELL_REDIS", "redis://u:se-cret@host");
        assert!(!format!("{:?}", run(command)).contains("se-cret"));
    }

    let mut command = dwell();
    command.args(["config", "show"]).env("DWELL_STORE", locked.url() + "/3?prefix=shop&wait=1");
    let shown = run(command).ok().stdout;
    let expected = format!("redis://…@127.0.0.1:{}/3?prefix=shop&wait=1", locked.port());
    assert!(shown.contains(&expected) && !shown.contains("se-cret"), "{shown}");

    let mut command = dwell();
    command.args(["serve", "--listen", "127.0.0.1:0", "--log", "debug"]).env("DWELL_STORE", locked.url());
    command.stderr(Stdio::piped());
    let mut server = Server::spawn(command);
    let mut log = server.stderr();
    server.dwell(&["put", "orders", "x"]).ok();
    let said = server.serving.to_string();
    server.stop_by("TERM");
    let mut logged = String::new();
    log.read_to_string(&mut logged).unwrap();
    assert!(
        logged.contains("DEBUG") && !logged.contains("se-cret") && !said.contains("se-cret"),
        "{logged} {said}"
    );
}

#[test]
fn queues_of_redisson_are_moved_as_the_file_says() {
    let redis = Redis::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dwell.toml");
    let text = |queues: &str| {
        format!(
            "[store]\nurl = \"{0}\"\n[redisson]\nurl = \"{0}\"\nqueues = {queues}\nname_prefix = \"shop:\"\n\
             sweep = \"50ms\"\njava = \"new\"\nmax_attempts = 3\n",
            redis.url()
        )
    };
    std::fs::write(&file, text("[\"a{b\", \"x\", \"x\"]")).unwrap();
    let mut command = dwell();
    command.args(["config", "check", "--config"]).arg(&file);
    let ran = run(command);
    let codes = ["config_invalid_value", "config_conflict"];
    assert!(ran.code == 6 && codes.iter().all(|code| ran.stderr.contains(code)), "{ran:?}");

    std::fs::write(&file, text("[\"orders\", \"mails\"]")).unwrap();
    let mut command = dwell();
    command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(&file);
    let server = Server::spawn(command);
    for queue in ["shop:orders", "shop:mails"] {
        let packed = "\u{8}aaaaaaaa\u{3}\0\0\0\0\0\0\0due";
        redis.command(&["ZADD", &format!("redisson_delay_queue_timeout:{{{queue}}}"), "1000", packed]);
        redis.command(&["RPUSH", &format!("redisson_delay_queue:{{{queue}}}"), packed]);
        until("it is moved", || redis.command(&["LLEN", queue]) == number(1));
    }
    // The server's own store goes on as well.
    server.dwell(&["put", "orders", "x"]).ok();
    let (said, status) = server.stop_by("TERM");
    assert!(said["event"] == "stopped" && status.success());
}

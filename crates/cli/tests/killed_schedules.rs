//! Two servers over one Redis that run the same schedules, while one or the other is killed.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use common::{Server, dwell, until};
use dwell_client::Client;
use dwell_model::{QueueName, Timestamp, Wake};
use dwell_store::{Action, Settle, Take};
use dwell_testkit::Random;
use dwell_testkit::redis::Server as Redis;
use dwell_time::{Clock as _, SystemClock};
use serde_json::Value;

const SCHEDULES: usize = 100;

fn serve(redis: &str, file: &Path) -> Server {
    let mut command = dwell();
    command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(file).env("DWELL_STORE", redis);
    Server::spawn(command)
}

fn sleep_ms(clock: &SystemClock, ms: u64) {
    let until_ms = clock.now().mono_ms + ms;
    let mut sleeper = clock.sleeper();
    while clock.now().mono_ms < until_ms {
        sleeper.sleep(Wake { wall: None, mono_ms: Some(until_ms) });
    }
}

/// 100 schedules of one second. `DWELL_SECONDS` sets for how long servers are killed, 8 by default: the issue of a kill is a
/// lease that has to run out, which takes another half a minute.
#[test]
fn two_servers_on_one_redis_run_each_instant_once_though_either_is_killed() {
    let seconds: u64 = std::env::var("DWELL_SECONDS").map_or(8, |text| text.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dwell.toml");
    let mut text = String::new();
    for number in 0..SCHEDULES {
        writeln!(text, "[[schedules]]\nname = \"s{number}\"\nqueue = \"runs\"\nevery = \"1s\"").unwrap();
        writeln!(text, "missed = \"all\"\noverlap = \"allow\"").unwrap();
    }
    fs::write(&file, text).unwrap();
    let redis = Redis::start();
    let mut servers = [serve(&redis.url(), &file), serve(&redis.url(), &file)];
    let clock = SystemClock::new();
    let mut rng = Random::new(26);
    let over_ms = clock.now().mono_ms + seconds * 1_000;
    let mut kills = 0;
    while clock.now().mono_ms < over_ms {
        sleep_ms(&clock, rng.between(500, 3_000));
        let [first, second] = servers;
        let (left, killed) = if rng.coin() { (first, second) } else { (second, first) };
        killed.kill();
        kills += 1;
        servers = [left, serve(&redis.url(), &file)];
    }
    assert!(kills > 0);

    let last_kill = clock.now().wall;
    let is_past = |schedule: &Value| {
        schedule["next"].as_str().is_some_and(|next| next.parse::<Timestamp>().unwrap() > last_kill)
    };
    until("each schedule is past the last kill", || {
        let listed = servers[0].dwell(&["schedules", "list"]).ok().lines();
        listed.len() == SCHEDULES && listed.iter().all(is_past)
    });
    for server in servers {
        assert!(server.stop_by("TERM").1.success());
    }
    // With no schedule of its own, and so with nothing to run before the runs are counted.
    fs::write(&file, "").unwrap();
    let server = serve(&redis.url(), &file);
    let mut runs: BTreeMap<String, Vec<Timestamp>> = BTreeMap::new();
    let client = Client::builder(server.url()).build().unwrap();
    let (queue, now): (QueueName, Timestamp) = ("runs".parse().unwrap(), clock.now().wall);
    loop {
        let taken = client.blocking().take(Take::from(queue.clone()).max(500)).unwrap();
        if taken.is_empty() {
            break;
        }
        let ack = |receipt| Settle { receipt, action: Action::Ack };
        for run in &taken {
            let instant = run.header("dwell-schedule-instant").unwrap().parse().unwrap();
            let name = run.header("dwell-schedule-name").unwrap().to_owned();
            assert!(run.message.created >= instant, "{name} ran early");
            runs.entry(name).or_default().push(instant);
        }
        let acked = client.blocking().settle(taken.into_iter().map(|run| ack(run.receipt)).collect());
        assert!(acked.iter().all(Result::is_ok), "{acked:?}");
    }
    assert_eq!(runs.len(), SCHEDULES);
    let mut in_all = 0;
    for (name, instants) in &mut runs {
        instants.sort_unstable();
        // The third server runs them too, so that the last may still be on their way.
        instants.retain(|at| *at <= last_kill && *at <= now);
        let twice = instants.windows(2).find(|pair| pair[0] == pair[1]);
        assert_eq!(twice, None, "{name} ran twice at an instant");
        let (first, last) = (instants[0], instants[instants.len() - 1]);
        assert_eq!(instants.len() as u64, last.ms_since(first) / 1_000 + 1, "{name} has left out an instant");
        assert!(last_kill.ms_since(last) < 1_000, "{name} ended at {last}");
        in_all += instants.len();
    }
    println!("{kills} kills, {in_all} runs");
    server.stop_by("TERM");
}

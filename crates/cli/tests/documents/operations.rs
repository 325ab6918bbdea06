//! `docs/operations.md`: certificates, tokens, a scrape, a rotation under load, a restart under load, a backup, a repair.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use serde_json::Value;

use crate::common::{Server, dwell};
use crate::{in_own_network, shell, shell_blocks};

const PAGE: &str = include_str!("../../../../docs/operations.md");

/// The block that starts the server; the test starts it instead, to read its output.
const START: &str = "dwell serve --config dwell.toml & echo $! > dwell.pid\n";

#[test]
fn an_operator_gets_along_with_what_is_written() {
    in_own_network("operations::in_this_network", run_the_blocks);
}

#[test]
#[ignore = "run by an_operator_gets_along_with_what_is_written, in a network of its own"]
fn in_this_network() {
    run_the_blocks();
}

fn run_the_blocks() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("deploy")).unwrap();
    let example = include_str!("../../../../deploy/dwell.toml");
    fs::write(folder.path().join("deploy/dwell.toml"), example).unwrap();
    let tls = folder.path().join("tls");
    fs::create_dir(&tls).unwrap();
    // As root, its owner can be another user, as under the unit.
    let _ = std::os::unix::fs::chown(&tls, Some(65_534), Some(65_534));

    let mut server: Option<Server> = None;
    let mut starts = 0;
    let mut printed = String::new();
    let done = folder.path().join("load.done");
    let mut signalled = Vec::new();
    for block in shell_blocks(PAGE) {
        if block == START {
            if let Some(stopped) = server.take() {
                let (said, status) = stopped.end();
                assert!(status.success(), "{said:?}");
                assert_eq!(said.last().unwrap()["event"], "stopped");
                assert!(said.iter().any(|line| line["event"] == "reloaded"), "{said:?}");
                assert!(said.iter().all(|line| line["event"] != "reload_refused"), "{said:?}");
            }
            let mut command = dwell();
            command.args(["serve", "--config", "dwell.toml"]).current_dir(folder.path());
            let started = Server::spawn(command);
            fs::write(folder.path().join("dwell.pid"), started.pid().to_string()).unwrap();
            server = Some(started);
            starts += 1;
            continue;
        }
        let signal = ["-HUP", "-TERM"].into_iter().find(|signal| block.contains(&format!("kill {signal} ")));
        if let Some(signal) = signal {
            assert!(!done.exists(), "the load was over before the signal {signal}");
        }
        let said = shell(block, folder.path()).stdout;
        if let Some(signal) = signal {
            assert!(!done.exists(), "the load was over after the signal {signal}: {said}");
            signalled.push(signal);
        }
        printed.push_str(&said);
    }
    assert_eq!(starts, 2);
    let (folder_of, key) = (fs::metadata(&tls).unwrap(), fs::metadata(tls.join("key.pem")).unwrap());
    assert_eq!((key.uid(), key.mode() & 0o777), (folder_of.uid(), 0o600), "the server's alone");
    assert_eq!(signalled, ["-HUP", "-TERM"]);
    // Before the rotation, after it, and after the restart.
    let grown: Vec<u64> = printed
        .lines()
        .filter_map(|line| line.split_once("grew from ")?.1.split_once(" to "))
        .flat_map(|(before, after)| [before.parse().unwrap(), after.parse().unwrap()])
        .collect();
    assert_eq!(grown.len(), 6, "{printed}");
    assert!(
        grown.is_sorted() && grown[0] < grown[1] && grown[2] < grown[3] && grown[4] < grown[5],
        "{grown:?}"
    );
    assert!(printed.contains("dwell_"), "metrics were scraped: {printed}");
    assert!(printed.contains("\"valid\":true"), "{printed}");
    // Every line of the load was put once, over a rotation and a restart.
    let sent: u64 = fs::read_to_string(folder.path().join("load.sent")).unwrap().trim().parse().unwrap();
    assert!(sent >= grown[5], "{sent}, {grown:?}");
    let load = fs::read_to_string(folder.path().join("load.out")).unwrap();
    let summary: Value = serde_json::from_str(load.lines().last().unwrap()).expect(&load);
    assert_eq!((summary["put"].as_u64(), summary["refused"].as_u64()), (Some(sent), Some(0)), "{load}");
    let stats = printed.lines().rev().find(|line| line.contains("\"counts\"")).unwrap();
    let stats: Value = serde_json::from_str(stats).expect(&printed);
    let counts = &stats["counts"];
    let there: u64 = ["scheduled", "ready"].iter().map(|state| counts[state].as_u64().unwrap()).sum();
    assert_eq!(there, sent, "{stats}");
    // Each of them, and none twice in the place of another, as the dump of the backup shows.
    let dump = fs::read_to_string(folder.path().join("messages.jsonl")).unwrap();
    let mut bodies: Vec<u64> = dump
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["body"].as_str().unwrap().parse().unwrap())
        .collect();
    bodies.sort_unstable();
    assert!(bodies.iter().copied().eq(1..=sent), "{} of {sent} messages", bodies.len());
    // And once in the repaired copy of the backup.
    let checked: Value = serde_json::from_str(printed.lines().last().unwrap()).expect(&printed);
    assert_eq!((checked["sound"].as_bool(), checked["messages"].as_u64()), (Some(true), Some(sent)));
    let (stopped, status) = server.unwrap().stop_by("TERM");
    assert!(status.success() && stopped["cut_off"] == 0, "{stopped}");
}

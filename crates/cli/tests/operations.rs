//! The shell blocks of `docs/operations.md`, run as they are written, in their order: certificates, tokens,
//! a scrape, a rotation under load, a restart under load, a backup, a repair.
//!
//! They speak of port 7411, so they get a network of their own where the system allows it (Linux, user
//! namespaces). Elsewhere the port has to be free. They need openssl and curl.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Ran, Server, dwell, run};
use serde_json::Value;

const PAGE: &str = include_str!("../../../docs/operations.md");

/// The block that starts the server, for which the test does it: it wants to hear what the server says.
const START: &str = "dwell serve --config dwell.toml & echo $! > dwell.pid\n";

/// A new network with nothing but a loopback, and a new process namespace that ends as a whole.
const OWN_NETWORK: [&str; 5] = ["--map-root-user", "--net", "--pid", "--fork", "--kill-child"];

#[test]
fn an_operator_gets_along_with_what_is_written() {
    let allowed = Command::new("unshare")
        .args(OWN_NETWORK)
        .args(["ip", "link", "set", "lo", "up"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !allowed {
        return run_the_blocks();
    }
    let mut command = Command::new("unshare");
    command.args(OWN_NETWORK).args(["--mount-proc", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"]);
    let own = std::env::current_exe().unwrap();
    command.arg(own).args(["--exact", "in_this_network", "--ignored", "--nocapture"]);
    let ran = run(command);
    print!("{}", ran.stdout);
    assert!(ran.stdout.contains("1 passed"), "{ran:?}");
}

#[test]
#[ignore = "run by an_operator_gets_along_with_what_is_written, in a network of its own"]
fn in_this_network() {
    run_the_blocks();
}

fn run_the_blocks() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("deploy")).unwrap();
    let example = include_str!("../../../deploy/dwell.toml");
    fs::write(folder.path().join("deploy/dwell.toml"), example).unwrap();

    let mut server: Option<Server> = None;
    let mut starts = 0;
    let mut printed = String::new();
    for block in PAGE.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()) {
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
        printed.push_str(&shell(block, folder.path()).stdout);
    }
    assert_eq!(starts, 2);
    assert!(printed.contains("dwell_"), "metrics were scraped: {printed}");
    assert!(printed.contains("\"valid\":true"), "{printed}");
    // Every line of the load was put once, over a rotation and a restart.
    let load = fs::read_to_string(folder.path().join("load.out")).unwrap();
    let summary: Value = serde_json::from_str(load.lines().last().unwrap()).expect(&load);
    assert_eq!((summary["put"].as_u64(), summary["refused"].as_u64()), (Some(20_000), Some(0)), "{load}");
    let stats = printed.lines().rev().find(|line| line.contains("\"counts\"")).unwrap();
    let stats: Value = serde_json::from_str(stats).expect(&printed);
    let counts = &stats["counts"];
    let there: u64 = ["scheduled", "ready"].iter().map(|state| counts[state].as_u64().unwrap()).sum();
    assert_eq!(there, 20_000, "{stats}");
    // And once in the repaired copy of the backup.
    let checked: Value = serde_json::from_str(printed.lines().last().unwrap()).expect(&printed);
    assert_eq!((checked["sound"].as_bool(), checked["messages"].as_u64()), (Some(true), Some(20_000)));
    let (stopped, status) = server.unwrap().stop_by("TERM");
    assert!(status.success() && stopped["cut_off"] == 0, "{stopped}");
}

/// Runs a block, which must not fail.
fn shell(block: &str, folder: &Path) -> Ran {
    let binary = Path::new(env!("CARGO_BIN_EXE_dwell")).parent().unwrap();
    let path = std::env::join_paths(
        [binary.to_owned()].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", block]).current_dir(folder).env("PATH", path.unwrap());
    for name in ["DWELL_SERVER", "DWELL_TOKEN", "DWELL_CA", "DWELL_CONFIG"] {
        command.env_remove(name);
    }
    println!("$ {block}");
    let ran = run(command);
    assert_eq!(ran.code, 0, "{block}\n{ran:?}");
    ran
}

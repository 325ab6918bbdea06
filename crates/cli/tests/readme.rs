//! The README's shell blocks, run as they are written, in their order.
//!
//! They speak of port 7411, so they get a network of their own where the system allows it (Linux, user
//! namespaces). Elsewhere the port has to be free.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod common;

use std::path::Path;
use std::process::{Command, Stdio};

use common::{Server, dwell, run};

const README: &str = include_str!("../../../README.md");

/// A new network with nothing but a loopback, and a new process namespace that ends as a whole.
const OWN_NETWORK: [&str; 5] = ["--map-root-user", "--net", "--pid", "--fork", "--kill-child"];

#[test]
fn shell_blocks_run_as_written() {
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
    command.args(OWN_NETWORK).args(["sh", "-c", "ip link set lo up && exec \"$@\"", "sh"]);
    command.arg(std::env::current_exe().unwrap()).args([
        "--exact",
        "in_this_network",
        "--ignored",
        "--nocapture",
    ]);
    let ran = run(command);
    print!("{}", ran.stdout);
    assert!(ran.stdout.contains("1 passed"), "{ran:?}");
}

#[test]
#[ignore = "run by shell_blocks_run_as_written, in a network of its own"]
fn in_this_network() {
    run_the_blocks();
}

fn run_the_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = None;
    let mut ran = Vec::new();
    for block in blocks("sh") {
        match block {
            // The binary that was built for the tests stands in for the one that this would build.
            "cargo run --release -- serve\n" => {
                let mut command = dwell();
                command.arg("serve").current_dir(folder.path());
                let serving = server.insert(Server::spawn(command));
                assert_eq!(serving.url(), "http://127.0.0.1:7411");
                assert!(folder.path().join("dwell-data").is_dir());
            }
            // It is what runs this test.
            "./scripts/test\n" => {
                assert!(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/test")).is_file());
            }
            block => {
                assert!(server.is_some(), "a block needs the server that an earlier one starts:\n{block}");
                ran.push(shell(block, folder.path()));
            }
        }
    }
    let [curl, command_line] = ran.as_slice() else { panic!("two blocks talk to the server, not {ran:?}") };
    assert!(curl.contains("\"body\":\"close order 7\""), "{curl}");
    assert!(curl.trim_end().ends_with("{\"state\":\"gone\"}"), "{curl}");
    assert!(command_line.contains("\"body\":\"close order 8\""), "{command_line}");
    assert!(command_line.contains("{\"put\":1,\"refused\":0,\"skipped\":0}"), "{command_line}");
}

/// The fenced blocks of one language.
fn blocks(language: &str) -> Vec<&str> {
    let opening = format!("```{language}\n");
    let behind = README.split(opening.as_str()).skip(1);
    behind.map(|rest| rest.split("```").next().unwrap()).collect()
}

/// Runs a block, which must not fail, and in which no request may be refused.
fn shell(block: &str, folder: &Path) -> String {
    let binary = Path::new(env!("CARGO_BIN_EXE_dwell")).parent().unwrap();
    let path = std::env::join_paths(
        [binary.to_owned()].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", block]).current_dir(folder).env("PATH", path.unwrap());
    let ran = run(command).ok();
    assert!(!ran.stdout.contains("\"retryable\""), "something was refused:\n{}", ran.stdout);
    ran.stdout
}

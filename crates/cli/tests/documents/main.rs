//! The shell blocks of documents, run as they are written, in their order.
//!
//! They use port 7411, so each document gets a separate network where the system allows it (Linux, user namespaces).
//! Elsewhere the port has to be free.
//!
//! # Layout
//! - `readme`: the README
//! - `operations`: `docs/operations.md`; it needs openssl and curl

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

#[path = "../common/mod.rs"]
mod common;
mod operations;
mod readme;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use common::{Ran, run};

/// A new network with a loopback alone, and a new process namespace that ends as a whole.
const OWN_NETWORK: [&str; 6] =
    ["--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"];

/// Runs `test`, an ignored test of this program, in a separate network; `here`, where the system does not allow one.
fn in_own_network(test: &str, here: fn()) {
    /// Locked by the test that uses the port of the only network.
    static PORT: Mutex<()> = Mutex::new(());
    let allowed = Command::new("unshare")
        .args(OWN_NETWORK)
        .args(["ip", "link", "set", "lo", "up"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !allowed {
        let _mine = PORT.lock().unwrap_or_else(PoisonError::into_inner);
        return here();
    }
    let mut command = Command::new("unshare");
    command.args(OWN_NETWORK).args(["sh", "-c", "ip link set lo up && exec \"$@\"", "sh"]);
    command.arg(std::env::current_exe().unwrap()).args(["--exact", test, "--ignored", "--nocapture"]);
    let ran = run(command);
    print!("{}", ran.stdout);
    assert!(ran.stdout.contains("1 passed"), "{ran:?}");
}

/// The fenced shell blocks of a document.
fn shell_blocks(document: &str) -> impl Iterator<Item = &str> {
    document.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap())
}

/// Runs a block with the program of this build, independent of the environment; it must not fail.
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

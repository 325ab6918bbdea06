//! Runs the real binary.

#![allow(
    dead_code,
    unused_imports,
    reason = "each test file is a program of its own and uses a part of this"
)]

pub(crate) mod crowd;
pub(crate) mod receiver;
pub(crate) mod shared;

use std::path::Path;
use std::process::Command;

pub(crate) use dwell_testkit::process::{KilledOnDrop, Ran, Running, run, run_with, send_signal};
pub(crate) use dwell_testkit::{PATIENCE, Server, until};

/// A `dwell` command without environment variables that would affect it.
pub(crate) fn dwell() -> Command {
    dwell_testkit::dwell(env!("CARGO_BIN_EXE_dwell"))
}

/// Starts a server on a free port, with its data in `dir`.
pub(crate) fn serve(dir: &Path) -> Server {
    serve_with(dir, &["--listen", "127.0.0.1:0"])
}

/// Starts a server with its data in `dir` and these arguments.
pub(crate) fn serve_with(dir: &Path, args: &[&str]) -> Server {
    let mut command = dwell();
    command.arg("serve").arg("--data").arg(dir).args(args);
    Server::spawn(command)
}

/// Starts a server in memory, on a free port.
pub(crate) fn serve_in_memory(args: &[&str]) -> Server {
    let mut command = dwell();
    command.args(["serve", "--store", "memory", "--listen", "127.0.0.1:0"]).args(args);
    Server::spawn(command)
}

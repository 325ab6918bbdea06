//! `dwell`: the delay queue's server and its command line.
//!
//! # Layout
//! - `args`: what can be typed, and groups of options that several subcommands share
//! - `access`: tokens and certificates that the client shows
//! - `command`: a subcommand a file
//! - `load`: `put --from`, a whole file of messages; `bench`: load on a running server
//! - `output`, `human`, `table`: for people on a terminal, JSON for all else
//! - `exit`: exit codes and failures

mod access;
mod args;
mod bench;
mod command;
mod exit;
mod human;
mod load;
mod output;
mod table;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::Cli;
use crate::command::Context;
use crate::output::Output;

/// Several threads fill and empty a store's memory in turn. glibc's malloc gives each an arena of its own, and what one has
/// emptied is of no use to another: with a heap of 117 MB at its peak a store kept 200 to 280 MB resident, and 190 with one
/// arena of this. See `.cargo/config.toml`.
#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let output = Output::new(&cli.common);
    let context = Context { server: cli.common.server, access: cli.common.access, output };
    match cli.command.run(&context) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            context.output.failure(&failure);
            failure.exit.into()
        }
    }
}

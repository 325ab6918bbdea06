//! `dwell`: the delay queue's server and its command line.
//!
//! # Layout
//! - `args`: the command line, and groups of options that several subcommands share
//! - `access`: tokens and certificates of the client
//! - `command`: one file per subcommand
//! - `load`: `put --from`, a whole file of messages; `bench`: load on a running server
//! - `output`, `human`, `table`: output for people on a terminal, JSON otherwise
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

/// Several threads fill and empty a store's memory in turn. glibc's malloc gives each thread a separate arena, and
/// memory that one has freed is not reused by another: with a heap of 117 MB at its peak a store kept 200 to 280 MB
/// resident, and 190 with one arena of this. See `.cargo/config.toml`.
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

//! `dwell-sim`: tests dwell by running it under faults and checking every answer.
//!
//! # Layout
//! - `jsonl`: the input of a load, made from a seed
//! - `kill/`: rounds of `kill -9` of the real server under mixed load
//! - `load/`: a file of messages through the command line and the real server, which is killed meanwhile
//! - `mutants/`: faults planted around the engine, which seeds have to find
//! - `oracle/`: checks every answer against all possible states
//! - `run/`: the engine under a simulated disk and clock, by seeds
//! - `schedules/`: years of schedules in memory, with runners that die
//! - `server/`: the real server as a child process
//! - `stress/`: the engine with its own threads, very little memory, and many callers
//! - `workload/`: which commands are sent, with which arguments

mod jsonl;
mod kill;
mod load;
mod mutants;
mod oracle;
mod run;
mod schedules;
mod server;
mod stress;
mod workload;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use self::server::Binary;

/// Tests dwell by running it under faults and checking every answer.
#[derive(Debug, Parser)]
#[command(name = "dwell-sim", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write a JSONL file of messages: the same bytes for the same seed
    MakeJsonl {
        /// The number of lines
        #[arg(long, default_value_t = 1_000_000)]
        lines: u64,
        /// The seed of all random choices
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// The file to write
        #[arg(long)]
        out: PathBuf,
    },
    /// Put such a file to the real server, kill it meanwhile, and account for every line
    Load {
        /// The number of lines
        #[arg(long, default_value_t = 20_000)]
        lines: u64,
        /// How often to kill the server
        #[arg(long, default_value_t = 3)]
        kills: u32,
        /// The seed of all random choices
        #[arg(long, default_value_t = 1)]
        seed: u64,
        #[command(flatten)]
        dwell: DwellArgs,
    },
    /// Kill the real server at random moments under mixed load, and check all its answers
    Kill {
        /// How often to kill the server
        #[arg(long, default_value_t = 30)]
        rounds: u32,
        /// The seed of all random choices
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Only pause, without a kill: the control experiment
        #[arg(long)]
        spare: bool,
        /// The protocol of the load
        #[arg(long, value_enum, default_value_t = kill::Protocol::Http)]
        protocol: kill::Protocol,
        /// Kill server, worker and receiver while messages are delivered, instead of the server under mixed load
        #[arg(long, conflicts_with_all = ["spare", "protocol"])]
        delivery: bool,
        /// With --delivery: the number of messages, over all rounds
        #[arg(long, default_value_t = 20_000, requires = "delivery")]
        messages: u64,
        #[command(flatten)]
        dwell: DwellArgs,
    },
    /// A receiver of webhooks, as `kill --delivery` starts it
    #[command(hide = true)]
    Receive {
        /// Its port on 127.0.0.1
        #[arg(long)]
        port: u16,
        /// The file that it appends to
        #[arg(long)]
        log: PathBuf,
    },
    /// A worker, as `kill --delivery` starts it
    #[command(hide = true)]
    Work {
        /// The server's URL
        #[arg(long)]
        server: String,
        /// The file that it appends to
        #[arg(long)]
        log: PathBuf,
    },
    /// Run the engine under a simulated disk and clock: many seeds, or one
    Run {
        /// The number of seeds
        #[arg(long, default_value_t = 500, conflicts_with = "seed")]
        seeds: u64,
        /// The first seed
        #[arg(long, default_value_t = 1, conflicts_with = "seed")]
        first: u64,
        /// Only this seed
        #[arg(long)]
        seed: Option<u64>,
        /// Print all events
        #[arg(long, requires = "seed")]
        verbose: bool,
    },
    /// Let the disk be full at each write of a run in turn, then have room again: nothing may be lost, no reopen may be needed
    Squeeze {
        /// The number of seeds
        #[arg(long, default_value_t = 10, conflicts_with = "seed")]
        seeds: u64,
        /// The first seed
        #[arg(long, default_value_t = 1, conflicts_with = "seed")]
        first: u64,
        /// Only this seed, with all events printed
        #[arg(long, requires = "write")]
        seed: Option<u64>,
        /// The number of writes before the disk is full
        #[arg(long, requires = "seed")]
        write: Option<u64>,
    },
    /// Run the engine with its own threads, very little memory and many callers, and check all its answers
    Stress {
        /// The duration
        #[arg(long, conflicts_with = "rounds")]
        seconds: Option<u64>,
        /// The number of rounds
        #[arg(long, default_value_t = 10)]
        rounds: u64,
        /// The first seed; each round has its own, counting up
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Let years of schedules pass, with runners that come late and die, and check that each instant is run once
    Schedules {
        /// The number of years of each policy
        #[arg(long, default_value_t = 2)]
        years: u64,
        /// The seed of all random choices
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Plant faults around the engine; each has to be found
    Mutants {
        /// The number of seeds that a fault may survive
        #[arg(long, default_value_t = mutants::SEEDS)]
        seeds: u64,
        /// Plant only those whose names contain this
        #[arg(long, default_value = "")]
        only: String,
    },
}

/// The `dwell` under test, and its options.
#[derive(Debug, Args)]
struct DwellArgs {
    /// The `dwell` binary; by default the one in the folder of this program
    #[arg(long, value_name = "PATH")]
    dwell: Option<PathBuf>,
    /// A further argument for `dwell serve`; may be repeated
    #[arg(long = "serve", value_name = "ARGUMENT", allow_hyphen_values = true)]
    serve: Vec<String>,
}

impl DwellArgs {
    fn find(self) -> io::Result<Binary> {
        Binary::find(self.dwell, self.serve)
    }
}

fn main() -> ExitCode {
    match perform(Arguments::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("dwell-sim: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs a command; returns false if a promise was broken.
fn perform(command: Command) -> io::Result<bool> {
    match command {
        Command::MakeJsonl { lines, seed, out } => {
            let written = jsonl::write(&out, seed, lines)?;
            println!(
                "{} lines, {} bytes, {} with a key, {} bytes of bodies",
                written.lines, written.bytes, written.keyed, written.body_bytes
            );
            Ok(true)
        }
        Command::Load { lines, kills, seed, dwell } => {
            load::run(&load::LoadOptions { lines, kills, seed, dwell: dwell.find()? })
        }
        Command::Kill { rounds, seed, delivery: true, messages, dwell, .. } => {
            kill::delivery::run(&kill::delivery::Wish { rounds, messages, seed, dwell: dwell.find()? })
        }
        Command::Receive { port, log } => kill::delivery::receive(port, &log).map(|()| true),
        Command::Work { server, log } => kill::delivery::work(&server, &log).map(|()| true),
        Command::Kill { rounds, seed, spare, protocol, dwell, .. } => {
            kill::run(&kill::KillOptions { rounds, seed, spare, protocol, dwell: dwell.find()? })
        }
        Command::Run { seed: Some(seed), verbose, .. } => Ok(run::one(seed, verbose)),
        Command::Run { seeds, first, .. } => Ok(run::many(first, seeds)),
        Command::Squeeze { seed: Some(seed), write: Some(write), .. } => Ok(run::squeeze_one(seed, write)),
        Command::Squeeze { seeds, first, .. } => Ok(run::squeeze_all(first, seeds)),
        Command::Stress { seconds, rounds, seed } => {
            stress::run(stress::StressOptions { seconds, rounds, seed })
        }
        Command::Schedules { years, seed } => schedules::run(schedules::Wish { years, seed }),
        Command::Mutants { seeds, only } => Ok(mutants::hunt(seeds, &only)),
    }
}

//! `dwell engine`: maintains a data directory, mostly while no server has it open.
//!
//! - `bar`: the progress of a long command
//! - `backup`: a copy that can be opened
//! - `check`: whether everything is intact
//! - `dump`: all messages, as JSON
//! - `repair`: what can be saved of a damaged directory
//! - `stats`: what is in it

mod backup;
mod bar;
mod check;
mod dump;
mod repair;
mod stats;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use dwell_engine::OpenError;
use dwell_engine::disk::{CountedDisk, ReadOnlyDisk};
use dwell_engine::offline::sizes;
use serde::Serialize;

use super::{Context, Outcome};
use crate::exit::{Exit, Failure, Own};

/// Maintain a data directory: back it up; and while no server has it open, check, measure, dump, repair it
#[derive(Debug, Args)]
pub(crate) struct Engine {
    #[command(subcommand)]
    command: EngineCommand,
}

#[derive(Debug, Subcommand)]
enum EngineCommand {
    Backup(backup::Backup),
    Check(check::Check),
    Stats(stats::Stats),
    Dump(dump::Dump),
    Repair(repair::Repair),
}

impl Engine {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        match self.command {
            EngineCommand::Backup(it) => it.run(context),
            EngineCommand::Check(it) => it.run(context),
            EngineCommand::Stats(it) => it.run(context),
            EngineCommand::Dump(it) => it.run(context),
            EngineCommand::Repair(it) => it.run(context),
        }
    }
}

/// The machine's disk, read-only, with a count of the bytes read.
fn looked_at() -> CountedDisk {
    CountedDisk::new(Arc::new(ReadOnlyDisk))
}

/// The bytes of the files in `dir`, each kind multiplied by `times`.
fn bytes(disk: &CountedDisk, dir: &Path, times: impl Fn(&str) -> u64) -> u64 {
    let sizes = sizes(disk, dir).unwrap_or_default();
    sizes.iter().map(|(kind, size)| size.bytes * times(kind)).sum()
}

/// Whether a path leads into a directory.
fn lies_in(path: &Path, dir: &Path) -> bool {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    absolute(path).starts_with(absolute(dir))
}

/// The seed of a new directory.
fn seed() -> Result<u64, Failure> {
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).map_err(|error| Failure::new(Exit::Refused, Own::Randomness.code(), error))?;
    Ok(u64::from_le_bytes(seed))
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Failure {
        Failure { retryable: error.is_retryable(), ..Failure::new(Exit::Refused, error.code(), error) }
    }
}

/// Damage, with its position.
#[derive(Debug, Serialize)]
struct ShownFlaw<'a> {
    file: &'a Path,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    reason: &'a str,
}

/// A torn tail, which is not damage.
#[derive(Debug, Serialize)]
struct ShownCut<'a> {
    file: &'a Path,
    offset: u64,
    bytes: u64,
    reason: &'a str,
}

impl<'a> From<&'a dwell_engine::Cut> for ShownCut<'a> {
    fn from(cut: &'a dwell_engine::Cut) -> ShownCut<'a> {
        ShownCut { file: &cut.file, offset: cut.offset, bytes: cut.bytes, reason: cut.reason }
    }
}

/// A data directory.
#[derive(Debug, Args)]
struct DirArgs {
    /// The data directory; no server may have it open
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

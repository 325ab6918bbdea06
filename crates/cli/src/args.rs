//! The command line: options common to all subcommands, and groups that several share.

mod message;
mod store_url;
mod when;

use clap::{Args, Parser, ValueEnum};
use dwell_client::DEFAULT_SERVER;
use dwell_model::{Invalid, parse_duration_ms};

pub(crate) use message::{DeadArgs, TargetArgs};
pub(crate) use store_url::StoreUrl;
pub(crate) use when::WhenArgs;

use crate::access::Access;
use crate::command::Command;

const EXAMPLES: &str = "\
Examples:
  dwell serve                                   a server on 127.0.0.1:7411
  dwell put orders 'close order 7' --delay 30m  due in half an hour
  dwell take orders --wait 1m --ack             the next one, acked once printed
  dwell put --from messages.jsonl               a whole file; repeats are harmless

Exit codes:
  0 done             1 refused            2 usage            3 nothing there
  4 no server answers                     5 outcome unknown  6 cannot start

`dwell COMMAND --help` has examples for each command. Durations need units
(ms s m h d): 1h30m. Instants are RFC 3339: 2026-11-21T18:00:00Z.";

/// Holds messages until their moment: a delay queue's server and command line.
#[derive(Debug, Parser)]
#[command(name = "dwell", version, after_help = EXAMPLES, propagate_version = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every subcommand.
#[derive(Debug, Args)]
#[command(next_help_heading = "Common options")]
pub(crate) struct Common {
    /// The server to connect to
    #[arg(long, global = true, env = "DWELL_SERVER", default_value = DEFAULT_SERVER, value_name = "URL")]
    pub(crate) server: String,
    #[command(flatten)]
    pub(crate) access: Access,
    /// Print JSON, one value per line (the default unless the output is a terminal)
    #[arg(long, global = true, conflicts_with = "human")]
    pub(crate) json: bool,
    /// Print for people, even if the output is not a terminal
    #[arg(long, global = true)]
    pub(crate) human: bool,
    /// Colours
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    pub(crate) color: Color,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Parses a duration with units into milliseconds.
pub(crate) fn duration_ms(text: &str) -> Result<u64, Invalid> {
    parse_duration_ms(text)
}

/// Parses a limit of attempts: a number, or `unlimited`.
pub(crate) fn attempts(text: &str) -> Result<dwell_model::AttemptLimit, String> {
    if text == "unlimited" {
        return Ok(dwell_model::AttemptLimit::Unlimited);
    }
    text.parse().map(dwell_model::AttemptLimit::At).map_err(|_| "1 or more, or 'unlimited'".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_commands_are_well_formed() {
        Cli::command().debug_assert();
    }
}

//! `dwell config`: checks or shows a server's configuration without starting one.

use clap::{Args, Subcommand};
use dwell_server::{LayeredValue, Loaded};
use serde::Serialize;

use super::serve::ServerOptions;
use super::{Context, Outcome};
use crate::exit::Exit;
use crate::human::{FAINT, GOOD, STRONG, WAITING};

/// Check or show a server's configuration
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell config check --config dwell.toml
  dwell config show --config dwell.toml --listen 127.0.0.1:7500

Both read the same file and environment and take the same options as `dwell
serve`, and load certificates and keys. `check` names every mistake with its
place, and ends with exit code 6 if there is one.")]
pub(crate) struct Config {
    #[command(subcommand)]
    what: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Print every error, with its position and a remedy
    Check(Box<ServerOptions>),
    /// Print every value and its origin, without secrets
    Show(Box<ServerOptions>),
}

/// The result of a check.
#[derive(Serialize)]
struct Checked {
    valid: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// A value as displayed.
#[derive(Serialize)]
struct ConfigRow<'a> {
    key: &'a str,
    value: &'a dwell_server::ConfigValue,
    origin: String,
}

impl Config {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        match self.what {
            ConfigCommand::Check(options) => check(context, &options.load_or_fail(&context.output)?),
            ConfigCommand::Show(options) => show(context, &options.load_or_fail(&context.output)?),
        }
    }
}

fn check(context: &Context, loaded: &Loaded) -> Outcome {
    let warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
    let checked = Checked { valid: true, warnings };
    context.output.show(&checked, |out| {
        for warning in &checked.warnings {
            writeln!(out, "{WAITING}warning{WAITING:#} {warning}")?;
        }
        writeln!(out, "{GOOD}valid{GOOD:#}")
    })?;
    Ok(Exit::Ok)
}

fn show(context: &Context, loaded: &Loaded) -> Outcome {
    if !context.output.is_human() {
        for LayeredValue { key, value, origin, .. } in &loaded.shown {
            context.output.show(&ConfigRow { key, value, origin: origin.to_string() }, |_| Ok(()))?;
        }
        return Ok(Exit::Ok);
    }
    context.output.print(|out| {
        let mut section = "";
        for LayeredValue { key, value, origin, .. } in &loaded.shown {
            let (table, name) = key.rsplit_once('.').unwrap_or(("", key));
            if table != section {
                let gap = if section.is_empty() { "" } else { "\n" };
                writeln!(out, "{gap}{STRONG}[{table}]{STRONG:#}")?;
                section = table;
            }
            let line = format!("{name} = {value}");
            writeln!(out, "{line:<48} {FAINT}# {origin}{FAINT:#}")?;
        }
        Ok(())
    })?;
    Ok(Exit::Ok)
}

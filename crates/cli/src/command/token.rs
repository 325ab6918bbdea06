//! `dwell token`: creates the secrets that authenticate callers.

use std::io::Read as _;

use clap::{Args, Subcommand};
use dwell_server::{Scope, TokenDigest};
use serde::Serialize;

use super::{Context, Outcome};
use crate::exit::{Exit, Failure};
use crate::human::{FAINT, STRONG};

/// Create a token that authenticates a caller
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell token new --name orders --scope put:orders --scope take:orders
  dwell token digest < token.txt

`new` prints the token, which goes to whoever is to use it and is shown this
once, and what goes into the server's dwell.toml, which holds no secret.")]
pub(crate) struct Token {
    #[command(subcommand)]
    what: TokenCommand,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// Create a token, and print it with its digest
    New(New),
    /// Print the digest of the token on standard input
    Digest,
}

#[derive(Debug, Args)]
struct New {
    /// Its name in the configuration
    #[arg(long, default_value = "new", value_name = "NAME")]
    name: String,
    /// A scope: `put:QUEUE`, `take:QUEUE`, `manage:QUEUE`, `look:QUEUE` (a name, a prefix and `*`, or `*`), `metrics`;
    /// may be repeated
    #[arg(long = "scope", required = true, value_name = "SCOPE")]
    scopes: Vec<Scope>,
}

#[derive(Serialize)]
struct MadeToken {
    token: String,
    name: String,
    sha256: String,
    scopes: Vec<String>,
}

#[derive(Serialize)]
struct DigestArgs {
    sha256: String,
}

/// The prefix of all our tokens, so that scanners for secrets in files find them.
const PREFIX: &str = "dwell_";

impl Token {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        match self.what {
            TokenCommand::New(new) => new.run(context),
            TokenCommand::Digest => digest(context),
        }
    }
}

impl New {
    fn run(self, context: &Context) -> Outcome {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|error| {
            Failure::new(
                Exit::Refused,
                crate::exit::Own::Randomness.code(),
                format!("the system gives none: {error}"),
            )
        })?;
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let token = format!("{PREFIX}{digits}");
        let sha256 = TokenDigest::of(token.as_bytes()).to_string();
        let scopes = self.scopes.iter().map(Scope::to_string).collect();
        let made = MadeToken { token, name: self.name, sha256, scopes };
        context.output.show(&made, |out| {
            writeln!(out, "{FAINT}# for whoever is to use it, and shown this once{FAINT:#}")?;
            writeln!(out, "{STRONG}{}{STRONG:#}\n", made.token)?;
            writeln!(out, "{FAINT}# for the server's dwell.toml{FAINT:#}")?;
            let quoted = |text: &str| serde_json::Value::from(text).to_string();
            let scopes = serde_json::Value::from(made.scopes.clone());
            writeln!(out, "[[tokens]]\nname = {}", quoted(&made.name))?;
            writeln!(out, "sha256 = {}\nscopes = {scopes}", quoted(&made.sha256))
        })?;
        Ok(Exit::Ok)
    }
}

fn digest(context: &Context) -> Outcome {
    let mut text = String::new();
    let read = std::io::stdin().read_to_string(&mut text);
    read.map_err(|error| Failure::file("input", "standard input", &error))?;
    let token = text.trim_ascii();
    if token.is_empty() {
        return Err(Failure::usage("there is no token on standard input"));
    }
    let digest = DigestArgs { sha256: TokenDigest::of(token.as_bytes()).to_string() };
    context.output.show(&digest, |out| writeln!(out, "{}", digest.sha256))?;
    Ok(Exit::Ok)
}

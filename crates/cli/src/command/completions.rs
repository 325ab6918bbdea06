//! `dwell completions`

use std::io::{self, Write as _};

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::Outcome;
use crate::args::Cli;
use crate::exit::Exit;

/// Print a script that completes dwell's commands in a shell
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell completions bash > /etc/bash_completion.d/dwell
  dwell completions zsh > ~/.zfunc/_dwell
  dwell completions fish > ~/.config/fish/completions/dwell.fish")]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> Outcome {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "dwell", &mut script);
        io::stdout().write_all(&script)?;
        Ok(Exit::Ok)
    }
}

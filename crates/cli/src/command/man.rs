//! `dwell man`

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::{Args, CommandFactory as _};
use clap_mangen::Man;

use super::Outcome;
use crate::args::Cli;
use crate::exit::{Exit, Failure};

/// Print the manual page, or write those of all commands
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell man | man -l -
  dwell man --dir /usr/local/share/man/man1")]
pub(crate) struct Manual {
    /// Write a page for each command into this directory
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Manual {
    pub(crate) fn run(self) -> Outcome {
        let Some(dir) = self.dir else {
            let mut page = Vec::new();
            Man::new(Cli::command()).render(&mut page)?;
            io::stdout().write_all(&page)?;
            return Ok(Exit::Ok);
        };
        let failed = |error| Failure::file("output", dir.display(), &error);
        fs::create_dir_all(&dir).map_err(failed)?;
        // `dwell-config-check.1` is the page of `dwell config check`.
        clap_mangen::generate_to(Cli::command(), &dir).map_err(failed)?;
        Ok(Exit::Ok)
    }
}

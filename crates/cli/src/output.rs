//! The destination and form of output: text for people on a terminal, one JSON value per line otherwise.

use std::io::{self, BufRead as _, IsTerminal as _, Write};

use anstream::{AutoStream, ColorChoice};
use serde::Serialize;

use crate::args::{Color, Common};
use crate::exit::Failure;
use crate::human::{BAD, STRONG};

/// The two forms.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Human,
    Json,
}

/// Standard output and standard error.
#[derive(Clone, Copy)]
pub(crate) struct Output {
    form: Form,
    failure_form: Form,
    color: Color,
}

impl Output {
    /// The requested form; by default, the one that fits the output.
    pub(crate) fn new(common: &Common) -> Output {
        let form = |terminal: bool| match (common.json, common.human, terminal) {
            (true, ..) => Form::Json,
            (_, true, _) | (_, _, true) => Form::Human,
            _ => Form::Json,
        };
        Output {
            form: form(io::stdout().is_terminal()),
            failure_form: form(io::stderr().is_terminal()),
            color: common.color,
        }
    }

    /// Whether the output is for people.
    pub(crate) fn is_human(&self) -> bool {
        self.form == Form::Human
    }

    /// Whether a progress bar can be shown.
    pub(crate) fn has_progress(&self) -> bool {
        self.failure_form == Form::Human && io::stderr().is_terminal()
    }

    /// Writes one value: as a line of JSON, or as `human` writes it.
    pub(crate) fn show(
        &self,
        value: &impl Serialize,
        human: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Failure> {
        match self.form {
            Form::Json => {
                let mut line = serde_json::to_vec(value).map_err(io::Error::other)?;
                line.push(b'\n');
                io::stdout().write_all(&line)?;
            }
            Form::Human => return self.print(human),
        }
        Ok(io::stdout().flush()?)
    }

    /// Writes text for people.
    pub(crate) fn print(&self, human: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
        let mut stream = AutoStream::new(io::stdout().lock(), self.choice(io::stdout().is_terminal()));
        human(&mut stream)?;
        Ok(stream.flush()?)
    }

    /// Asks on the terminal; true if the answer is `y` or `yes`.
    pub(crate) fn confirm(
        &self,
        question: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<bool, Failure> {
        self.print(|out| {
            question(out)?;
            write!(out, " [y/N] ")
        })?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        Ok(matches!(answer.trim(), "y" | "yes"))
    }

    /// Writes bytes as they are.
    pub(crate) fn raw(&self, bytes: &[u8]) -> Result<(), Failure> {
        io::stdout().write_all(bytes)?;
        Ok(io::stdout().flush()?)
    }

    /// Reports a failure on standard error; if that is closed too, the failure is not reported.
    pub(crate) fn failure(&self, failure: &Failure) {
        let mut stream = AutoStream::new(io::stderr().lock(), self.choice(io::stderr().is_terminal()));
        let _ = match self.failure_form {
            Form::Json => {
                let line = serde_json::json!({ "error": failure });
                writeln!(stream, "{line}")
            }
            Form::Human => {
                let Failure { code, detail, .. } = failure;
                writeln!(stream, "{BAD}{code}{BAD:#}: {STRONG}{detail}{STRONG:#}")
            }
        };
    }

    /// A remark on standard error for people; not written in JSON mode.
    pub(crate) fn remark(&self, text: &str) {
        if self.failure_form == Form::Human {
            let _ = writeln!(io::stderr(), "{text}");
        }
    }

    fn choice(&self, terminal: bool) -> ColorChoice {
        let wanted_not = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        match self.color {
            Color::Always => ColorChoice::Always,
            Color::Never => ColorChoice::Never,
            Color::Auto if terminal && !wanted_not => ColorChoice::Always,
            Color::Auto => ColorChoice::Never,
        }
    }
}

//! The bar on a terminal, and refused lines beside it.

use std::io::{self, Write as _};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::ledger::{Reason, Rejected};
use super::waits::WaitEvent;

/// The progress of a run.
pub(crate) struct LoadProgress {
    bar: ProgressBar,
    on_terminal: bool,
}

impl LoadProgress {
    /// A bar over `len` bytes, or a spinner where the length is unknown; hidden unless `on_terminal`.
    pub(crate) fn new(on_terminal: bool, len: Option<u64>) -> LoadProgress {
        let target = if on_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(len, target);
        let template = match len {
            Some(_) => "{bar:30} {bytes}/{total_bytes}  {msg}  {elapsed}, {eta} to go",
            None => "{spinner} {bytes}  {msg}  {elapsed}",
        };
        bar.set_style(ProgressStyle::with_template(template).expect("the template is one"));
        LoadProgress { bar, on_terminal }
    }

    /// Sets the number of bytes read.
    pub(crate) fn bytes(&self, bytes: u64) {
        self.bar.set_position(bytes);
    }

    /// Sets the number of completed lines.
    pub(crate) fn lines(&self, lines: u64) {
        if self.on_terminal {
            self.bar.set_message(format!("{lines} lines"));
        }
    }

    /// Reports a refused line: for people beside the bar, else as JSON.
    pub(crate) fn refused(&self, line: u64, reason: &Reason) -> io::Result<()> {
        if self.on_terminal {
            let Reason { code, detail } = reason;
            self.bar.suspend(|| writeln!(io::stderr(), "line {line}: {code}: {detail}"))
        } else {
            let told = serde_json::to_string(&Rejected { line, reason }).map_err(io::Error::other)?;
            writeln!(io::stderr(), "{told}")
        }
    }

    /// Reports what the run waits for, or that it goes on: for people beside the bar, else as JSON. If standard error
    /// is closed, nothing is reported.
    pub(super) fn tell(&self, told: &WaitEvent<'_>) {
        if !self.on_terminal {
            let line = serde_json::to_string(told).unwrap_or_default();
            let _ = writeln!(io::stderr(), "{line}");
            return;
        }
        self.bar.suspend(|| {
            let _ = match told {
                WaitEvent::Waiting { code, detail, retry_for } => {
                    writeln!(
                        io::stderr(),
                        "{code}: {detail}; trying again for up to {retry_for} (--retry-for)"
                    )
                }
                WaitEvent::Resumed => writeln!(io::stderr(), "the server answers; going on"),
            };
        });
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

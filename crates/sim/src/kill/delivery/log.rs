//! The log of what a part was handed: one line per delivery, written before it is answered.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use dwell_time::{Clock as _, SystemClock};

/// The log; see the [module](self). It outlives its process.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    clock: SystemClock,
}

/// The body of a message.
pub(super) fn body(number: u64, due_ms: i64) -> String {
    format!("{number} {due_ms}")
}

impl Log {
    /// Appends to the file.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub(super) fn open(path: &Path) -> io::Result<Log> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Log { file, clock: SystemClock::new() })
    }

    /// Records a delivery: the message's body, and when it was handed over. Returns how long to work on it, in
    /// milliseconds, so that a kill finds messages at every stage.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn record(&self, body: &str) -> io::Result<u64> {
        let line = format!("{body} {}\n", self.clock.now().wall.as_ms());
        // One call per line, which a kill does not divide.
        (&self.file).write_all(line.as_bytes())?;
        Ok(body.bytes().map(u64::from).sum::<u64>() % 16)
    }
}

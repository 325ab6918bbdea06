//! A worker or receiver as a child process of this binary.

use std::io::{self, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use dwell_testkit::process::KilledOnDrop;

/// A running part. It is killed when this is dropped, and ends by itself if this process is killed.
#[derive(Debug)]
pub(super) struct Part {
    child: KilledOnDrop,
    name: String,
}

impl Part {
    /// Starts this binary with these arguments, and the path of its log.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(super) fn start(arguments: &[&str], log: &Path) -> io::Result<Part> {
        let mut command = Command::new(std::env::current_exe()?);
        let child = command.args(arguments).arg("--log").arg(log).stdin(Stdio::piped()).spawn()?;
        Ok(Part { child: KilledOnDrop(child), name: arguments.join(" ") })
    }

    /// Kills it with SIGKILL and waits for its end.
    ///
    /// # Errors
    /// If it had already ended by itself.
    pub(super) fn kill(&mut self) -> io::Result<()> {
        if let Some(status) = self.child.0.try_wait()? {
            return Err(io::Error::other(format!("`{}` ended by itself with {status}", self.name)));
        }
        self.end();
        Ok(())
    }

    /// Kills it if it still runs.
    pub(super) fn end(&mut self) {
        self.child.kill();
    }
}

/// Ends this process when the one that has started it is gone: it holds the other end of standard input.
pub(super) fn end_with_parent() {
    thread::spawn(|| {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
}

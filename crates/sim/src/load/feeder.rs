//! The feeder: a `dwell put --from` process, whose answers are read while it writes them.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dwell_model::{MessageId, Wake};
use dwell_time::{Clock as _, Sleeper, SystemClock};
use serde_json::Value;

use super::ledger::LoadLedger;

/// The feeder; see the [module](self). The process is killed when this is dropped.
pub(super) struct Feeder {
    child: Child,
    status: Option<ExitStatus>,
    /// The file of the answers, opened once the process has created it.
    path: PathBuf,
    answers: Option<File>,
    /// The part of a line that was read so far.
    partial: Vec<u8>,
    /// The number of answers read so far.
    read: u64,
    ledger: Arc<Mutex<LoadLedger>>,
    clock: SystemClock,
    sleeper: Box<dyn Sleeper>,
}

impl Feeder {
    /// Starts a process that puts `file` to the server on `port`.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub(super) fn start(
        dwell: &Path,
        file: &Path,
        answers: &Path,
        port: u16,
        ledger: Arc<Mutex<LoadLedger>>,
    ) -> io::Result<Feeder> {
        let child = Command::new(dwell)
            .arg("put")
            .arg("--from")
            .arg(file)
            .arg("--answers")
            .arg(answers)
            .arg("--server")
            .arg(format!("http://127.0.0.1:{port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        let clock = SystemClock::new();
        let sleeper = clock.sleeper();
        Ok(Feeder {
            child,
            status: None,
            path: answers.to_path_buf(),
            answers: None,
            partial: Vec::new(),
            read: 0,
            ledger,
            clock,
            sleeper,
        })
    }

    /// Reads answers until there are `lines` of them, or the file is done.
    ///
    /// # Errors
    /// If none arrives for `patience`, or a line is not an answer.
    pub(super) fn await_lines(&mut self, lines: u64, patience: Duration) -> io::Result<()> {
        let mut progress_ms = self.clock.now().mono_ms;
        while self.read < lines {
            let ended = self.ended()?;
            let before = self.read;
            self.read_answers()?;
            if self.read > before {
                progress_ms = self.clock.now().mono_ms;
            } else if ended {
                return Ok(());
            } else if self.clock.now().mono_ms > progress_ms + patience.as_millis() as u64 {
                return Err(io::Error::other(format!("no answer after {} lines", self.read)));
            } else {
                // No event for appends by another process exists on all systems, so the file is polled.
                self.pause_ms(5);
            }
        }
        Ok(())
    }

    /// Reads the remaining answers, until the process has ended.
    ///
    /// # Errors
    /// As [`Feeder::await_lines`]; also if it ended with an exit code other than 0.
    pub(super) fn finish(&mut self, patience: Duration) -> io::Result<()> {
        self.await_lines(u64::MAX, patience)?;
        match self.status {
            Some(status) if status.success() => Ok(()),
            status => Err(io::Error::other(format!("`dwell put --from` ended with {status:?}"))),
        }
    }

    fn ended(&mut self) -> io::Result<bool> {
        if self.status.is_none() {
            self.status = self.child.try_wait()?;
        }
        Ok(self.status.is_some())
    }

    fn read_answers(&mut self) -> io::Result<()> {
        if self.answers.is_none() {
            self.answers = File::open(&self.path).ok();
        }
        let Some(answers) = &mut self.answers else { return Ok(()) };
        let mut chunk = vec![0; 1 << 20];
        loop {
            let len = answers.read(&mut chunk)?;
            if len == 0 {
                return Ok(());
            }
            let now_ms = self.clock.now().mono_ms;
            self.partial.extend_from_slice(&chunk[..len]);
            let Some(end) = self.partial.iter().rposition(|byte| *byte == b'\n') else { continue };
            let rest = self.partial.split_off(end + 1);
            let whole = std::mem::replace(&mut self.partial, rest);
            let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
            for line in whole.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                self.read += 1;
                hear(&mut ledger, line, now_ms)?;
            }
        }
    }

    fn pause_ms(&mut self, ms: u64) {
        let wake = self.clock.now().mono_ms + ms;
        while self.clock.now().mono_ms < wake {
            self.sleeper.sleep(Wake { wall: None, mono_ms: Some(wake) });
        }
    }
}

/// Parses one answer. The file counts lines from 1.
fn hear(ledger: &mut LoadLedger, line: &[u8], now_ms: u64) -> io::Result<()> {
    let odd = || io::Error::other(format!("no answer: {}", String::from_utf8_lossy(line)));
    let answer: Value = serde_json::from_slice(line).map_err(|_| odd())?;
    let number = answer["line"].as_u64().and_then(|number| number.checked_sub(1)).ok_or_else(odd)?;
    match (answer["outcome"].as_str(), answer["id"].as_str()) {
        (Some("created"), Some(id)) => {
            let id: MessageId = id.parse().map_err(|_| odd())?;
            ledger.answered(number, id.as_bits(), now_ms);
        }
        (Some("refused"), _) => ledger.refused(number, answer["code"].as_str().unwrap_or("no code")),
        _ => return Err(odd()),
    }
    Ok(())
}

impl Drop for Feeder {
    fn drop(&mut self) {
        // The process may have ended already; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! The processes of a test: commands that end in time, and children that end with the test.

use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use serde_json::Value;

use crate::PATIENCE;

/// A child process that is killed and awaited on drop.
#[derive(Debug)]
pub struct KilledOnDrop(pub Child);

impl KilledOnDrop {
    /// Kills it with SIGKILL and waits for its exit. It may have exited before.
    pub fn kill(&mut self) {
        self.0.kill().expect("a child can be killed");
        self.0.wait().expect("a child can be waited for");
    }
}

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        // It may already have exited, and then there is nothing to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The result of a command.
#[derive(Debug)]
pub struct Ran {
    /// Its exit code; -1 if it was ended by a signal.
    pub code: i32,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Ran {
    /// The JSON values in its output, one per line.
    pub fn lines(&self) -> Vec<Value> {
        self.stdout.lines().map(json).collect()
    }

    /// The single JSON value in its output.
    pub fn json(&self) -> Value {
        let mut lines = self.lines();
        assert_eq!(lines.len(), 1, "{self:?}");
        lines.remove(0)
    }

    /// The error code in its last line on standard error.
    pub fn failure(&self) -> String {
        let told = json(self.stderr.trim().lines().last().unwrap_or_default());
        let error = &told["error"];
        assert!(error["detail"].as_str().is_some_and(|detail| detail.len() > 10), "{told}");
        error["code"].as_str().expect("a failure has a code").to_owned()
    }

    /// Asserts that its exit code is 0, and returns it.
    pub fn ok(self) -> Ran {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }
}

/// Parses a line of JSON.
#[track_caller]
pub(crate) fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// A running command.
#[derive(Debug)]
pub struct Running {
    child: KilledOnDrop,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
}

impl Running {
    /// Starts a command, with `input` on its standard input.
    pub fn start(command: Command, input: &[u8]) -> Running {
        let (sender, parts) = channel();
        sender.send(input.to_vec()).expect("the receiver is here");
        Running::fed(command, parts)
    }

    /// Starts a command whose standard input arrives in parts, and ends when their sender is dropped.
    pub fn fed(mut command: Command, parts: Receiver<Vec<u8>>) -> Running {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = command.spawn();
        let mut child = KilledOnDrop(started.unwrap_or_else(|error| panic!("{command:?}: {error}")));
        let mut stdin = child.0.stdin.take().expect("it is piped");
        // A command that does not read its input closes it.
        thread::spawn(move || parts.iter().try_for_each(|part| stdin.write_all(&part)));
        let stdout = read_all(child.0.stdout.take().expect("it is piped"));
        let stderr = read_all(child.0.stderr.take().expect("it is piped"));
        Running { child, stdout, stderr }
    }

    /// Kills it with SIGKILL and waits for its exit.
    pub fn kill(mut self) {
        self.child.kill();
    }

    /// Waits for its exit.
    pub fn finish(mut self) -> Ran {
        let late = |_| panic!("a command did not end in {PATIENCE:?}");
        let stdout = self.stdout.recv_timeout(PATIENCE).unwrap_or_else(late);
        let stderr = self.stderr.recv_timeout(PATIENCE).unwrap_or_else(late);
        let status = self.child.0.wait().expect("a child can be waited for");
        Ran { code: status.code().unwrap_or(-1), stdout, stderr }
    }
}

/// Runs a command to completion.
pub fn run(command: Command) -> Ran {
    run_with(command, b"")
}

/// Runs a command to completion, with `input` on its standard input.
pub fn run_with(command: Command, input: &[u8]) -> Ran {
    Running::start(command, input).finish()
}

/// The complete content of a pipe, once it has ended.
fn read_all(mut pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut text = Vec::new();
        pipe.read_to_end(&mut text).expect("a pipe can be read");
        let _ = sender.send(String::from_utf8_lossy(&text).into_owned());
    });
    receiver
}

/// The lines of a pipe. It is read to its end, so that the child never blocks on it.
pub fn lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            // The pipe is still read when the receiver is gone.
            let _ = sender.send(line);
        }
    });
    receiver
}

/// Sends a signal (`TERM`, `INT`, `STOP`) to a process of the test.
pub fn send_signal(pid: u32, signal: &str) {
    let sent = Command::new("kill").args([format!("-{signal}"), pid.to_string()]).status();
    assert!(sent.expect("kill can be run").success(), "{signal} was not sent to {pid}");
}

/// A size from a process's `/proc/PID/status`, in bytes: `VmRSS` is the resident memory, `VmHWM` its peak.
///
/// # Errors
/// If the system does not report it.
pub fn memory_bytes(pid: u32, field: &str) -> io::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let size = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib = size.and_then(|size| size.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(kib.ok_or(io::ErrorKind::InvalidData)? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_runs_to_its_end() {
        let mut command = Command::new("sh");
        let failure = "{\"error\":{\"code\":\"odd\",\"detail\":\"a detail that is long\"}}";
        command.args(["-c", &format!("cat; echo '{failure}' >&2; exit 3")]);
        let ran = run_with(command, b"{\"a\":1}\n");
        assert_eq!((ran.code, &ran.json()["a"], ran.failure()), (3, &Value::from(1), "odd".to_owned()));
    }

    #[test]
    fn a_child_ends_with_whoever_keeps_it() {
        let kept = KilledOnDrop(Command::new("sleep").arg("600").spawn().expect("there is a sleep"));
        let pid = kept.0.id();
        assert!(memory_bytes(pid, "VmRSS").expect("it runs") > 0);
        drop(kept);
        assert!(memory_bytes(pid, "VmRSS").is_err());
    }
}

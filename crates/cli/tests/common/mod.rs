//! The real binary as the tests run it: servers that die with their test, commands that end in time.

#![allow(dead_code, reason = "each test file is a program of its own and uses a part of this")]

pub(crate) mod crowd;

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use dwell_model::Wake;
use dwell_time::{Clock as _, SystemClock};
use serde_json::Value;

/// No wait lasts longer. Far more than anything takes on a machine that does ten things at a time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A `dwell` command, without anything of the environment that would change what it does.
pub(crate) fn dwell() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dwell"));
    for (name, _) in std::env::vars_os() {
        if name == "NO_COLOR" || name.to_string_lossy().starts_with("DWELL_") {
            command.env_remove(name);
        }
    }
    // Its port is one for the whole machine: a test that wants it names another.
    command.env("DWELL_BEANSTALKD", "off");
    command
}

/// Waits until `reached` says so; for what has no event to wait for.
pub(crate) fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    let mut sleeper = clock.sleeper();
    let deadline_ms = clock.now().mono_ms + PATIENCE.as_millis() as u64;
    while !reached() {
        let now_ms = clock.now().mono_ms;
        assert!(now_ms < deadline_ms, "{what}: not in {PATIENCE:?}");
        sleeper.sleep(Wake { wall: None, mono_ms: Some(now_ms + 5) });
    }
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Ran {
    /// Its exit code; -1 if a signal ended it.
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// The JSON values of its output, one a line.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The one JSON value of its output.
    pub(crate) fn json(&self) -> Value {
        let mut lines = self.lines();
        assert_eq!(lines.len(), 1, "{self:?}");
        lines.remove(0)
    }

    /// The code of the failure that it told, after whatever it said on its way.
    pub(crate) fn failure(&self) -> String {
        let last = self.stderr.trim().lines().last().unwrap_or_default();
        let error: Value = serde_json::from_str(last).expect(&self.stderr);
        assert!(error["error"]["detail"].as_str().unwrap().len() > 10, "{error}");
        error["error"]["code"].as_str().unwrap().to_owned()
    }

    /// The same, if it went well.
    pub(crate) fn ok(self) -> Ran {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }
}

/// A child that is killed, and waited for, when this is dropped.
pub(crate) struct Kept(pub(crate) Child);

impl Drop for Kept {
    fn drop(&mut self) {
        // It may be gone already; then there is nothing left to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command under way.
pub(crate) struct Running {
    child: Kept,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
}

impl Running {
    /// Starts a command, with `input` on its standard input.
    pub(crate) fn start(command: Command, input: &[u8]) -> Running {
        let (sender, parts) = channel();
        sender.send(input.to_vec()).unwrap();
        Running::fed(command, parts)
    }

    /// Starts a command whose standard input comes in parts, and ends with their sender.
    pub(crate) fn fed(mut command: Command, parts: Receiver<Vec<u8>>) -> Running {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Kept(command.spawn().unwrap());
        let mut stdin = child.0.stdin.take().unwrap();
        // A command that does not read its input closes it.
        thread::spawn(move || parts.iter().try_for_each(|part| stdin.write_all(&part)));
        let stdout = read_all(child.0.stdout.take().unwrap());
        let stderr = read_all(child.0.stderr.take().unwrap());
        Running { child, stdout, stderr }
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) {
        self.child.0.kill().unwrap();
        self.child.0.wait().unwrap();
    }

    /// Waits for its end.
    pub(crate) fn finish(mut self) -> Ran {
        let late = |_| panic!("a command did not end in {PATIENCE:?}");
        let stdout = self.stdout.recv_timeout(PATIENCE).unwrap_or_else(late);
        let stderr = self.stderr.recv_timeout(PATIENCE).unwrap_or_else(late);
        let status = self.child.0.wait().unwrap();
        Ran { code: status.code().unwrap_or(-1), stdout, stderr }
    }
}

/// Runs a command to its end, with `input` on its standard input.
pub(crate) fn run_with(command: Command, input: &[u8]) -> Ran {
    Running::start(command, input).finish()
}

/// Runs a command to its end.
pub(crate) fn run(command: Command) -> Ran {
    run_with(command, b"")
}

fn read_all(mut pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut text = Vec::new();
        pipe.read_to_end(&mut text).unwrap();
        let _ = sender.send(String::from_utf8_lossy(&text).into_owned());
    });
    receiver
}

/// A `dwell serve` that serves.
pub(crate) struct Server {
    child: Kept,
    lines: Receiver<String>,
    /// What it said when it began to serve.
    pub(crate) serving: Value,
}

impl Server {
    /// On a free port, with its data in `dir`.
    pub(crate) fn start(dir: &Path) -> Server {
        Server::start_with(dir, &["--listen", "127.0.0.1:0"])
    }

    /// With its data in `dir` and these arguments.
    pub(crate) fn start_with(dir: &Path, args: &[&str]) -> Server {
        let mut command = dwell();
        command.arg("serve").arg("--data").arg(dir).args(args);
        Server::spawn(command)
    }

    /// In memory, on a free port.
    pub(crate) fn in_memory(args: &[&str]) -> Server {
        let mut command = dwell();
        command.args(["serve", "--store", "memory", "--listen", "127.0.0.1:0"]).args(args);
        Server::spawn(command)
    }

    /// From a command of the caller's that runs `dwell serve`.
    pub(crate) fn spawn(mut command: Command) -> Server {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = Kept(command.spawn().unwrap());
        let stdout = BufReader::new(child.0.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let first = lines.recv_timeout(PATIENCE).expect("the server says where it listens");
        let serving: Value = serde_json::from_str(&first).expect(&first);
        assert_eq!(serving["event"], "serving");
        Server { child, lines, serving }
    }

    /// What it says next.
    pub(crate) fn next(&self) -> Value {
        let line = self.lines.recv_timeout(PATIENCE).expect("the server says something");
        serde_json::from_str(&line).expect(&line)
    }

    /// Where it speaks HTTP.
    pub(crate) fn url(&self) -> &str {
        self.serving["http"].as_str().unwrap()
    }

    /// `127.0.0.1:1234`.
    pub(crate) fn address(&self) -> &str {
        self.url().strip_prefix("http://").unwrap()
    }

    /// What it says on standard error, if the command that it was spawned from has that in a pipe.
    pub(crate) fn stderr(&mut self) -> std::process::ChildStderr {
        self.child.0.stderr.take().unwrap()
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// Runs `dwell ARGS` against it.
    pub(crate) fn dwell(&self, args: &[&str]) -> Ran {
        self.dwell_with(args, b"")
    }

    /// Runs `dwell ARGS` against it, with `input` on its standard input.
    pub(crate) fn dwell_with(&self, args: &[&str], input: &[u8]) -> Ran {
        let mut command = dwell();
        command.env("DWELL_SERVER", self.url()).args(args);
        run_with(command, input)
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) {
        self.child.0.kill().unwrap();
        self.child.0.wait().unwrap();
    }

    /// Sends a signal (`TERM`, `INT`).
    pub(crate) fn signal(&self, signal: &str) {
        let sent =
            Command::new("kill").args([format!("-{signal}"), self.pid().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for its end: what it still said, and how it ended.
    pub(crate) fn end(mut self) -> (Vec<Value>, ExitStatus) {
        let mut said = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => said.push(serde_json::from_str(&line).unwrap()),
                // Its output ends with it.
                Err(RecvTimeoutError::Disconnected) => return (said, self.child.0.wait().unwrap()),
                Err(RecvTimeoutError::Timeout) => panic!("the server did not end in {PATIENCE:?}"),
            }
        }
    }

    /// Sends a signal and waits for the end; what it said last, and how it ended.
    pub(crate) fn stop_by(self, signal: &str) -> (Value, ExitStatus) {
        self.signal(signal);
        let (mut said, status) = self.end();
        assert_eq!(said.len(), 1, "{said:?}");
        (said.remove(0), status)
    }
}

//! `dwell serve` as a child process that ends with its test.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _};
use std::process::{ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};

use serde_json::Value;

use crate::PATIENCE;
use crate::process::{KilledOnDrop, Ran, json, lines, run_with, send_signal};

/// A command that runs the `dwell` binary at `program`, without the environment variables that configure it.
pub fn dwell(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name == "NO_COLOR" || name.to_string_lossy().starts_with("DWELL_") {
            command.env_remove(name);
        }
    }
    // Its default port exists once per machine: a test that needs it sets another.
    command.env("DWELL_BEANSTALKD", "off");
    command
}

/// A running `dwell serve`.
#[derive(Debug)]
pub struct Server {
    child: KilledOnDrop,
    program: OsString,
    lines: Receiver<String>,
    /// Its first line of output, printed when it starts to serve.
    pub serving: Value,
}

impl Server {
    /// Runs a command, which is `dwell serve` with the caller's arguments, and waits until it reports its addresses.
    ///
    /// # Errors
    /// If it cannot be started, or exits or prints nothing instead. The error contains its standard error, if the
    /// command has that in a pipe.
    pub fn try_spawn(mut command: Command) -> io::Result<Server> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let program = command.get_program().to_owned();
        let started = command.spawn();
        let mut child = KilledOnDrop(started.map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", program.to_string_lossy()))
        })?);
        let lines = lines(child.0.stdout.take().expect("it is piped"));
        let first = lines.recv_timeout(PATIENCE).unwrap_or_default();
        match serde_json::from_str::<Value>(&first) {
            Ok(serving) if serving["event"] == "serving" => Ok(Server { child, program, lines, serving }),
            _ => {
                child.kill();
                let mut text = format!("the server did not say where it listens: {first}\n");
                if let Some(mut stderr) = child.0.stderr.take() {
                    stderr.read_to_string(&mut text)?;
                }
                Err(io::Error::other(text))
            }
        }
    }

    /// As [`try_spawn`](Server::try_spawn), but panics on an error.
    pub fn spawn(command: Command) -> Server {
        Server::try_spawn(command).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Its next line of output.
    pub fn next(&self) -> Value {
        json(&self.lines.recv_timeout(PATIENCE).expect("the server says something"))
    }

    /// Its HTTP URL.
    pub fn url(&self) -> &str {
        self.serving["http"].as_str().expect("a server says where it listens")
    }

    /// Its plain HTTP address, such as `127.0.0.1:1234`.
    pub fn address(&self) -> &str {
        self.url().strip_prefix("http://").expect("it speaks plain HTTP")
    }

    /// Its standard error, if the command has that in a pipe.
    pub fn stderr(&mut self) -> ChildStderr {
        self.child.0.stderr.take().expect("it is piped, and nobody has taken it")
    }

    /// The id of its process.
    pub fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// Its exit status, if it has exited.
    ///
    /// # Errors
    /// Those of the system.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.0.try_wait()
    }

    /// Runs `dwell ARGS` against it, with the program of the command that it was spawned from.
    pub fn dwell(&self, args: &[&str]) -> Ran {
        self.dwell_with(args, b"")
    }

    /// As [`dwell`](Server::dwell), with `input` on its standard input.
    pub fn dwell_with(&self, args: &[&str], input: &[u8]) -> Ran {
        let mut command = dwell(&self.program);
        command.env("DWELL_SERVER", self.url()).args(args);
        run_with(command, input)
    }

    /// Kills it with SIGKILL and waits for its exit.
    pub fn kill(mut self) {
        self.child.kill();
    }

    /// Sends it a signal (`TERM`, `INT`).
    pub fn signal(&self, signal: &str) {
        send_signal(self.pid(), signal);
    }

    /// Waits for its exit. Returns the rest of its output, and its exit status.
    pub fn end(mut self) -> (Vec<Value>, ExitStatus) {
        let mut said = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => said.push(json(&line)),
                // Its output ends when it exits.
                Err(RecvTimeoutError::Disconnected) => {
                    return (said, self.child.0.wait().expect("a child can be waited for"));
                }
                Err(RecvTimeoutError::Timeout) => panic!("the server did not end in {PATIENCE:?}"),
            }
        }
    }

    /// Sends a signal and waits for the exit. Returns the last line of output, and the exit status.
    pub fn stop_by(self, signal: &str) -> (Value, ExitStatus) {
        self.signal(signal);
        let (mut said, status) = self.end();
        assert_eq!(said.len(), 1, "{said:?}");
        (said.remove(0), status)
    }
}

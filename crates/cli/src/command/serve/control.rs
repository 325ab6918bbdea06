//! The control socket of a running server, in its data directory.
//!
//! A request is one line of JSON, and so is its answer, which ends the connection. Requests are those that need both
//! the files and the running engine: a backup. Only the server's own user and root can write to the socket, so callers
//! are not authenticated, and nothing of this is on the network.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use dwell_engine::{BackupReport, Engine};
use dwell_model::Wake;
use dwell_time::{Clock as _, SystemClock};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use crate::exit::{Exit, Failure};

/// The socket's name in the data directory.
const NAME: &str = "CONTROL";
/// The maximum length of a request.
const LONGEST: u64 = 64 * 1024;
/// The timeout of a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long no connection is accepted after one could not be.
const PAUSE_MS: u64 = 100;

/// A request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(crate) enum ControlRequest {
    /// Copy the data directory.
    Backup {
        /// Into this one.
        to: PathBuf,
        /// Link no file.
        copies: bool,
    },
}

/// An answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ControlAnswer {
    /// The backup is complete.
    Done {
        /// The number of files that were linked.
        linked: u64,
        /// The number of files that were copied.
        copied: u64,
        /// The bytes of all files.
        bytes: u64,
    },
    /// The request failed.
    Error {
        /// The stable code.
        code: String,
        /// What happened and what to do.
        detail: String,
        /// Whether the same request may succeed later.
        retryable: bool,
    },
}

/// The socket, for as long as the server runs.
pub(crate) struct Door(PathBuf);

impl Drop for Door {
    fn drop(&mut self) {
        // The next server that has this directory removes it, if this one cannot.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Opens the control socket of `data`, which this process holds: an existing socket is a stale one.
pub(super) fn open(data: &Path, engine: Engine, runtime: Handle) -> io::Result<Door> {
    let path = data.join(NAME);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    let door = Door(path);
    std::fs::set_permissions(&door.0, std::fs::Permissions::from_mode(0o600))?;
    let serve = move || {
        let clock = SystemClock::new();
        let mut sleeper = clock.sleeper();
        loop {
            match listener.accept() {
                Ok((caller, _)) => {
                    // The caller may have disconnected.
                    let _ = answer(&caller, &engine, &runtime);
                }
                // Out of file descriptors or memory: some have to be freed before a caller can be accepted, and it
                // waits meanwhile.
                Err(_) => {
                    let again_ms = clock.now().mono_ms + PAUSE_MS;
                    sleeper.sleep(Wake { wall: None, mono_ms: Some(again_ms) });
                }
            }
        }
    };
    thread::Builder::new().name("dwell-control".to_owned()).spawn(serve)?;
    Ok(door)
}

fn answer(caller: &UnixStream, engine: &Engine, runtime: &Handle) -> io::Result<()> {
    caller.set_read_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(caller.take(LONGEST)).read_line(&mut line)?;
    let answer = match serde_json::from_str(&line) {
        Ok(ControlRequest::Backup { to, copies }) => {
            let now = SystemClock::new().now();
            match runtime.block_on(engine.backup(&to, now, copies)) {
                Ok(BackupReport { linked, copied, bytes }) => ControlAnswer::Done { linked, copied, bytes },
                Err(error) => ControlAnswer::Error {
                    code: error.code().to_owned(),
                    detail: error.to_string(),
                    retryable: error.is_retryable(),
                },
            }
        }
        Err(error) => ControlAnswer::Error {
            code: "malformed_request".to_owned(),
            detail: format!("the server does not understand it, and may be of another version: {error}"),
            retryable: false,
        },
    };
    let mut line = serde_json::to_vec(&answer)?;
    line.push(b'\n');
    (&mut &*caller).write_all(&line)
}

/// Sends a request to the server that has `data` open.
pub(crate) fn ask(data: &Path, request: &ControlRequest) -> Result<BackupReport, Failure> {
    let path = data.join(NAME);
    let unreachable = |error: io::Error| {
        let detail = format!(
            "{} is in use, and its server cannot be asked at {}: {error}; be the server's user, or stop it",
            data.display(),
            path.display()
        );
        Failure { retryable: true, ..Failure::new(Exit::Unreachable, "unreachable", detail) }
    };
    let server = UnixStream::connect(&path).map_err(unreachable)?;
    let exchange = || {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        (&mut &server).write_all(&line)?;
        let mut line = String::new();
        BufReader::new(&server).read_line(&mut line)?;
        serde_json::from_str(&line).map_err(io::Error::other)
    };
    match exchange().map_err(unreachable)? {
        ControlAnswer::Done { linked, copied, bytes } => Ok(BackupReport { linked, copied, bytes }),
        ControlAnswer::Error { code, detail, retryable } => {
            Err(Failure { retryable, ..Failure::new(Exit::Refused, &code, detail) })
        }
    }
}

//! One run of the command: its input, its end, and the message's outcome.

use std::ffi::OsString;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use dwell_delivery::{Failure, IntoOutcome as _, Job, Outcome};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout, timeout_at};

use super::environment;

/// The exit code for a message that will never succeed: EX_DATAERR of sysexits.h.
const BURY: i32 = 65;
/// The bytes from the end of standard error that are kept with a message.
const TAIL_LEN: usize = 2_048;
/// The grace period of a command after SIGTERM, and of its pipes after its end, which a process that it has left behind
/// may hold.
const GRACE: Duration = Duration::from_secs(1);
/// The interval of checks for remaining processes of a command after SIGTERM: there is no notification for processes
/// that are not our children.
#[cfg(unix)]
const LOOK: Duration = Duration::from_millis(20);

/// The command.
pub(super) struct Program {
    pub(super) path: OsString,
    pub(super) args: Vec<OsString>,
}

/// Runs the command for a message, and returns the outcome.
pub(super) async fn run(program: &Program, job: &Job) -> Outcome {
    let mut running = match Running::start(program, job) {
        Ok(running) => running,
        // Not the message's failure: no attempt is spent, and the breaker tries again later.
        Err(error) => {
            return Failure::refused(format!("the command cannot be started: {error}")).into_outcome();
        }
    };
    // Its input, output and end are handled concurrently: none may wait for another.
    let ended = tokio::select! {
        ended = running.child.wait() => ended,
        _ = job.token().wait() => return running.stop().await,
    };
    running.is_over = ended.is_ok();
    match ended {
        Ok(status) => outcome(status, &running.tail().await),
        Err(error) => {
            Outcome::Retry { error: format!("the command cannot be waited for: {error}"), after: None }
        }
    }
}

/// The outcome of an exit code.
fn outcome(status: ExitStatus, tail: &str) -> Outcome {
    let told = match (status.code(), tail) {
        (Some(code), "") => format!("exit code {code}"),
        (Some(code), tail) => format!("exit code {code}: {tail}"),
        (None, "") => status.to_string(),
        (None, tail) => format!("{status}: {tail}"),
    };
    match status.code() {
        Some(0) => Outcome::Done,
        Some(BURY) => Outcome::Bury { reason: told },
        _ => Outcome::Retry { error: told, after: None },
    }
}

/// A running command. Dropping it kills it and all its processes.
struct Running {
    child: Child,
    /// Its process group.
    group: Option<u32>,
    is_over: bool,
    /// The task that writes its standard input.
    input: Option<JoinHandle<()>>,
    /// The end of its standard error; the channel is closed when that is.
    tail: watch::Receiver<Vec<u8>>,
}

impl Running {
    fn start(program: &Program, job: &Job) -> io::Result<Running> {
        let mut command = Command::new(&program.path);
        command.args(&program.args).stdin(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        for (name, _) in std::env::vars_os().filter(|(name, _)| environment::is_of_a_message(name)) {
            command.env_remove(name);
        }
        command.envs(environment::set(job));
        // A separate group: Ctrl-C in a terminal drains this process, instead of ending the commands at once.
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command.spawn()?;
        let body = job.body().clone();
        // A command need not read its input. This task ends with it, even if a process that it has left behind holds
        // the pipe.
        let input = child.stdin.take().map(|mut stdin| {
            tokio::spawn(async move {
                let _ = stdin.write_all(&body).await;
            })
        });
        let (sender, tail) = watch::channel(Vec::new());
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(pass_on(stderr, sender));
        }
        Ok(Running { group: child.id(), child, is_over: false, input, tail })
    }

    /// The end of its standard error, once that is closed or the grace period is over.
    async fn tail(&mut self) -> String {
        let closed = async { while self.tail.changed().await.is_ok() {} };
        // If a process that it has left behind holds the pipe, what was read so far counts.
        let _ = timeout(GRACE, closed).await;
        let tail = self.tail.borrow();
        String::from_utf8_lossy(&tail).trim().to_owned()
    }

    /// Sends SIGTERM to the command and its processes, and kills those that remain.
    async fn stop(mut self) -> Outcome {
        self.signal(Kind::Terminate);
        let released = Outcome::Release { after: None };
        // A sleep that is not polled computes an instant without reading a clock.
        let deadline = sleep(GRACE).deadline();
        let Ok(Ok(_)) = timeout_at(deadline, self.child.wait()).await else { return released };
        // A shell ends at once, but its child may not, and would run concurrently with the next attempt.
        let _ = timeout_at(deadline, self.is_gone()).await;
        self.signal(Kind::Kill);
        self.is_over = true;
        // Its exit code is ignored: many programs exit with 0 on SIGTERM, whether their work is done or not.
        released
    }

    #[cfg(unix)]
    fn group(&self) -> Option<rustix::process::Pid> {
        self.group.and_then(|group| i32::try_from(group).ok()).and_then(rustix::process::Pid::from_raw)
    }

    #[cfg(unix)]
    fn signal(&self, kind: Kind) {
        use rustix::process::{Signal, kill_process_group};
        let signal = match kind {
            Kind::Terminate => Signal::TERM,
            Kind::Kill => Signal::KILL,
        };
        if let Some(group) = self.group() {
            // It may have ended just now.
            let _ = kill_process_group(group, signal);
        }
    }

    /// Waits until its process group is empty.
    #[cfg(unix)]
    async fn is_gone(&self) {
        use rustix::process::test_kill_process_group;
        while self.group().is_some_and(|group| test_kill_process_group(group).is_ok()) {
            sleep(LOOK).await;
        }
    }

    #[cfg(not(unix))]
    fn signal(&self, _: Kind) {}

    #[cfg(not(unix))]
    async fn is_gone(&self) {}
}

#[derive(Clone, Copy)]
enum Kind {
    Terminate,
    Kill,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(input) = &self.input {
            input.abort();
        }
        // Once it was waited for, its id may be reused.
        if !self.is_over {
            self.signal(Kind::Kill);
        }
    }
}

/// Copies standard error to our own, and keeps its end.
async fn pass_on(mut stderr: ChildStderr, tail: watch::Sender<Vec<u8>>) {
    let mut buffer = vec![0; 8 * 1024];
    let mut own = tokio::io::stderr();
    while let Ok(len @ 1..) = stderr.read(&mut buffer).await {
        let read = &buffer[..len];
        tail.send_modify(|tail| {
            tail.extend_from_slice(read);
            let excess = tail.len().saturating_sub(TAIL_LEN);
            tail.drain(..excess);
        });
        // If our standard error is not read, the command is not affected.
        let _ = own.write_all(read).await;
    }
    let _ = own.flush().await;
}

//! Our server as a process of its own: the real binary on a free loopback port, stopped when it goes out of scope.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::Result;

/// A running `dwell serve`.
#[derive(Debug)]
pub(crate) struct Server {
    process: Child,
    url: String,
    beanstalkd: String,
}

impl Server {
    /// Starts it with its data in `folder`, and waits until it says where it listens.
    pub(crate) fn start(folder: &Path) -> Result<Server> {
        Server::start_with(folder, &[])
    }

    /// The same with arguments of the caller's.
    pub(crate) fn start_with(folder: &Path, arguments: &[&str]) -> Result<Server> {
        let mut process = Command::new(binary()?)
            .args(["--json", "serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(folder)
            .args(arguments)
            .env("DWELL_BEANSTALKD", "127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.take().expect("it was piped");
        // From here on it is stopped whatever happens.
        let mut server = Server { process, url: String::new(), beanstalkd: String::new() };
        for line in BufReader::new(output).lines() {
            let said: Value = serde_json::from_str(&line?)?;
            if let Some(url) = said["http"].as_str() {
                server.url = url.to_owned();
                server.beanstalkd = said["beanstalkd"].as_str().unwrap_or_default().to_owned();
                return Ok(server);
            }
        }
        Err("the server ended without saying where it listens".into())
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Where it speaks beanstalkd's protocol.
    pub(crate) fn beanstalkd(&self) -> &str {
        &self.beanstalkd
    }

    /// A number of its page of metrics that has no labels.
    pub(crate) fn metric(&self, name: &str) -> Result<f64> {
        let address = self.url.strip_prefix("http://").ok_or("the server speaks plain HTTP")?;
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let head = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        let mut page = String::new();
        stream.read_to_string(&mut page)?;
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(value.ok_or_else(|| format!("the page of metrics has no {name}"))?.trim().parse()?)
    }

    /// Seconds of processors that it has had so far.
    pub(crate) fn cpu_s(&self) -> Result<f64> {
        cpu_s(self.process.id())
    }

    /// What the kernel has counted of it so far.
    pub(crate) fn usage(&self) -> Result<Usage> {
        Usage::of(self.process.id())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let stopped = self.process.kill().and_then(|()| self.process.wait());
        if let Err(error) = stopped {
            eprintln!("dwell-bench: the server was not stopped: {error}");
        }
    }
}

/// What the kernel has counted of a process by a moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usage {
    /// How often each of its threads was put off a processor, of its own will or not.
    switches: BTreeMap<String, u64>,
    /// How long they ran, in clock ticks (100 a second on Linux), threads that have ended included.
    ticks: u64,
}

/// A process's use of processors between two moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Used {
    /// How often its threads were put off a processor: each is a wake-up later.
    pub(crate) switches: u64,
    /// How long they ran, in clock ticks.
    pub(crate) ticks: u64,
}

impl Usage {
    fn of(process: u32) -> Result<Usage> {
        let mut switches = BTreeMap::new();
        for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
            let thread = thread?;
            let status = match std::fs::read_to_string(thread.path().join("status")) {
                Ok(status) => status,
                // It ended just now. Where the process did, its file of statistics below says so.
                Err(_) => continue,
            };
            let counts = status.lines().filter(|line| line.contains("ctxt_switches:"));
            let counts = counts.map(|line| line.split_whitespace().last().unwrap_or("0").parse::<u64>());
            let count = counts.sum::<std::result::Result<u64, _>>()?;
            switches.insert(thread.file_name().to_string_lossy().into_owned(), count);
        }
        Ok(Usage { switches, ticks: ticks(format!("/proc/{process}/stat").as_ref())? })
    }

    /// What came to it since `before`. Of a thread that has ended meanwhile nobody knows how often it was put off after
    /// `before`; it counts as not at all.
    pub(crate) fn since(&self, before: &Usage) -> Used {
        let of_thread = |(thread, now): (&String, &u64)| {
            let before = before.switches.get(thread).copied().unwrap_or(0);
            // A thread's number may belong to a new one by now.
            now.checked_sub(before).unwrap_or(*now)
        };
        let switches = self.switches.iter().map(of_thread).sum();
        Used { switches, ticks: self.ticks.saturating_sub(before.ticks) }
    }
}

/// Seconds of processors that a process has had, threads that have ended included.
pub(crate) fn cpu_s(process: u32) -> Result<f64> {
    Ok(ticks(format!("/proc/{process}/stat").as_ref())? as f64 / 100.0)
}

/// What a file of statistics says of time on processors.
fn ticks(stat: &Path) -> Result<u64> {
    // proc_pid_stat(5): utime and stime are the 14th and 15th, the 12th and 13th behind the name.
    let stat = std::fs::read_to_string(stat)?;
    let behind_name = stat.rsplit(')').next().unwrap_or_default();
    let mut ticks = 0;
    for some in behind_name.split_whitespace().skip(11).take(2) {
        ticks += some.parse::<u64>()?;
    }
    Ok(ticks)
}

/// The binary beside this one; built first if this was started through cargo.
fn binary() -> Result<PathBuf> {
    let beside = std::env::current_exe()?.with_file_name(format!("dwell{}", std::env::consts::EXE_SUFFIX));
    let cargo: Option<OsString> = std::env::var_os("CARGO");
    if let Some(cargo) = cargo {
        let built =
            Command::new(cargo).args(["build", "--release", "--locked", "-p", "dwell-cli"]).status()?;
        if !built.success() {
            return Err("the server could not be built".into());
        }
    }
    if beside.is_file() {
        Ok(beside)
    } else {
        Err(format!("{} is missing: run `cargo build --release -p dwell-cli`", beside.display()).into())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;
    use std::thread;

    use super::*;

    /// The server's threads that wait for blocking work end when there was none for ten seconds, which is as long as an
    /// idle server is looked at.
    #[test]
    fn a_thread_that_ends_meanwhile_takes_nothing_away() {
        let (to, from) = sync_channel::<()>(0);
        let (back, again) = sync_channel::<()>(0);
        let busy = thread::spawn(move || from.iter().try_for_each(|()| back.send(())));
        // Each of these puts it off a processor.
        for _ in 0..200 {
            to.send(()).expect("it lives");
            again.recv().expect("it answers");
        }
        let before = Usage::of(std::process::id()).expect("the kernel counts");
        drop(to);
        busy.join().expect("it does not panic").expect("it is heard");
        let used = Usage::of(std::process::id()).expect("the kernel counts").since(&before);
        assert!(used.switches < 1_000_000 && used.ticks < 1_000_000, "{used:?}");
    }

    #[test]
    fn threads_are_told_apart() {
        let usage = |threads: &[(&str, u64)], ticks| Usage {
            switches: threads.iter().map(|(thread, count)| ((*thread).to_owned(), *count)).collect(),
            ticks,
        };
        let before = usage(&[("1", 10), ("2", 5_000), ("3", 70)], 5);
        // One went on, one ended, one is another by the same number, one is new.
        let after = usage(&[("1", 15), ("3", 4), ("4", 2)], 9);
        assert_eq!(after.since(&before), Used { switches: 5 + 4 + 2, ticks: 4 });
    }
}

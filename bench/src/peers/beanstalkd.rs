//! beanstalkd itself: the real server (Debian's package) on a free loopback port.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::Result;
use crate::stopwatch::{Stopwatch, pause};

/// Where it keeps its jobs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum JobStorage<'a> {
    /// In its log in this folder, synced at each write (`-f0`).
    Synced(&'a Path),
    /// Only in memory.
    InMemory,
}

/// A running beanstalkd, which is killed on drop.
#[derive(Debug)]
pub(crate) struct Beanstalkd {
    process: Child,
    address: String,
}

impl Beanstalkd {
    pub(crate) fn start(kept: JobStorage<'_>) -> Result<Beanstalkd> {
        // It cannot choose a port itself, so a free one is looked up first; another process may take it meanwhile.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut command = Command::new("beanstalkd");
        command.args(["-l", "127.0.0.1", "-p", &address.port().to_string()]);
        if let JobStorage::Synced(folder) = kept {
            command.arg("-f0").arg("-b").arg(folder);
        }
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().map_err(|error| {
            format!("beanstalkd cannot be started ({error}); it is Debian's package beanstalkd")
        })?;
        let server = Beanstalkd { process, address: address.to_string() };
        let patience = Stopwatch::start();
        while TcpStream::connect(address).is_err() {
            if patience.elapsed() > Duration::from_secs(10) {
                return Err("beanstalkd does not listen".into());
            }
            pause(Duration::from_millis(5));
        }
        Ok(server)
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for Beanstalkd {
    fn drop(&mut self) {
        let stopped = self.process.kill().and_then(|()| self.process.wait());
        if let Err(error) = stopped {
            eprintln!("dwell-bench: beanstalkd was not stopped: {error}");
        }
    }
}

//! Our server in a separate process: the real binary on a free loopback port, stopped on drop.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::Result;

/// A running `dwell serve`.
#[derive(Debug)]
pub(crate) struct Server(dwell_testkit::Server);

impl Server {
    /// Starts it with its data in `folder`, and waits until it reports its addresses.
    pub(crate) fn start(folder: &Path) -> Result<Server> {
        Server::start_with(folder, &[])
    }

    /// The same with the caller's arguments.
    pub(crate) fn start_with(folder: &Path, arguments: &[&str]) -> Result<Server> {
        let mut command = Command::new(binary()?);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(folder).args(arguments);
        command.env("DWELL_BEANSTALKD", "127.0.0.1:0");
        Ok(Server(dwell_testkit::Server::try_spawn(command)?))
    }

    pub(crate) fn url(&self) -> &str {
        self.0.url()
    }

    /// Its address for beanstalkd's protocol.
    pub(crate) fn beanstalkd(&self) -> &str {
        self.0.serving["beanstalkd"].as_str().unwrap_or_default()
    }

    /// Its page of metrics.
    pub(crate) fn metrics(&self) -> Metrics {
        Metrics { address: self.0.address().to_owned() }
    }

    /// Its processor time so far, in seconds.
    pub(crate) fn cpu_s(&self) -> Result<f64> {
        cpu_s(self.0.pid())
    }
}

/// A server's page of metrics, usable from any thread.
#[derive(Debug)]
pub(crate) struct Metrics {
    address: String,
}

impl Metrics {
    /// Reads a metric without labels.
    pub(crate) fn get(&self, name: &str) -> Result<f64> {
        let Metrics { address } = self;
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let head = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        let mut page = String::new();
        stream.read_to_string(&mut page)?;
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(value.ok_or_else(|| format!("the page of metrics has no {name}"))?.trim().parse()?)
    }
}

/// The processor time of a process in seconds, including threads that have ended.
pub(crate) fn cpu_s(process: u32) -> Result<f64> {
    Ok(ticks(format!("/proc/{process}/stat").as_ref())? as f64 / 100.0)
}

/// Parses the processor time in a `stat` file.
fn ticks(stat: &Path) -> Result<u64> {
    // proc_pid_stat(5): utime and stime are fields 14 and 15, the 12th and 13th after the name.
    let stat = std::fs::read_to_string(stat)?;
    let behind_name = stat.rsplit(')').next().unwrap_or_default();
    let mut ticks = 0;
    for some in behind_name.split_whitespace().skip(11).take(2) {
        ticks += some.parse::<u64>()?;
    }
    Ok(ticks)
}

/// The server's binary, which is in the same folder as this one; built first if this was started through cargo.
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

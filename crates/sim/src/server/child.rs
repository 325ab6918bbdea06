//! `dwell serve` as a child process, which is killed at the latest when this is dropped.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::Receiver;

use dwell_client::Client;
use dwell_testkit::process::{lines, memory_bytes};

/// The `dwell` binary, and further arguments of `dwell serve`.
#[derive(Clone, Debug)]
pub(crate) struct Binary {
    /// The path of the binary.
    pub(crate) path: PathBuf,
    /// Further arguments of `serve`.
    pub(crate) serve: Vec<String>,
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    process: dwell_testkit::Server,
    /// The lines of its standard error, kept to report a failure.
    said: Receiver<String>,
}

impl Server {
    /// Starts `dwell serve` on `data` and waits until it is ready. Port 0 chooses a free one.
    ///
    /// # Errors
    /// If it cannot be started, or ends or prints nothing instead of its address.
    pub(crate) fn start(dwell: &Binary, data: &Path, port: u16) -> io::Result<Server> {
        let mut command = Command::new(&dwell.path);
        command.arg("serve").arg("--data").arg(data).arg("--listen").arg(format!("127.0.0.1:{port}"));
        // Off unless requested: another listener would only need another port.
        command.args(&dwell.serve).env("DWELL_BEANSTALKD", "off").stderr(Stdio::piped());
        let mut process = dwell_testkit::Server::try_spawn(command)?;
        let said = lines(process.stderr());
        let server = Server { process, said };
        let client = server.client()?;
        client
            .blocking()
            .ready()
            .map_err(|error| io::Error::other(format!("the server is not ready: {error}")))?;
        Ok(server)
    }

    /// The address of its HTTP listener.
    pub(crate) fn address(&self) -> SocketAddr {
        self.process.address().parse().expect("a server says where it listens")
    }

    /// The address of its beanstalkd listener, if enabled.
    pub(crate) fn beanstalkd(&self) -> Option<SocketAddr> {
        self.process.serving["beanstalkd"].as_str()?.parse().ok()
    }

    /// A client without retries, so that each request is known.
    ///
    /// # Errors
    /// None that a loopback address can cause.
    pub(crate) fn client(&self) -> io::Result<Client> {
        let client = Client::builder(self.process.url()).patience_ms(0).build();
        client.map_err(|error| io::Error::other(error.to_string()))
    }

    /// Kills it with SIGKILL and waits for its end. Returns its peak memory in bytes.
    ///
    /// # Errors
    /// If it had already ended by itself.
    pub(crate) fn kill(mut self) -> io::Result<u64> {
        let peak = self.peak_rss();
        if let Some(status) = self.process.ended()? {
            let said: Vec<String> = self.said.try_iter().collect();
            let text = format!("the server ended by itself with {status}:\n{}", said.join("\n"));
            return Err(io::Error::other(text));
        }
        self.process.kill();
        Ok(peak)
    }

    /// Its peak resident memory so far, in bytes; 0 if the system does not report it.
    pub(crate) fn peak_rss(&self) -> u64 {
        memory_bytes(self.process.pid(), "VmHWM").unwrap_or(0)
    }
}

impl Binary {
    /// The binary at `named`, or the one in the folder of this program.
    ///
    /// # Errors
    /// If it does not exist.
    pub(crate) fn find(named: Option<PathBuf>, serve: Vec<String>) -> io::Result<Binary> {
        let path = match named {
            Some(path) => path,
            None => std::env::current_exe()?.with_file_name("dwell"),
        };
        if path.is_file() {
            return Ok(Binary { path, serve });
        }
        let text = format!(
            "there is no {}: build it with `cargo build -p dwell-cli`, in the same profile, or name another with --dwell",
            path.display()
        );
        Err(io::Error::new(io::ErrorKind::NotFound, text))
    }
}

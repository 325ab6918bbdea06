//! `dwell serve` as a child process: it is killed by this program, at the latest when this ends.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::Receiver;

use dwell_client::Client;
use dwell_testkit::process::{lines, memory_bytes};

/// The `dwell` binary, and what else to tell `dwell serve`.
#[derive(Clone, Debug)]
pub(crate) struct Binary {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// More arguments of `serve`.
    pub(crate) serve: Vec<String>,
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    process: dwell_testkit::Server,
    /// Lines on its standard error, kept for a report of its failure.
    said: Receiver<String>,
}

impl Server {
    /// Starts `dwell serve` on `data` and waits until it is ready. Port 0 chooses a free one.
    ///
    /// # Errors
    /// If it cannot be started, or ends or stays silent instead of saying where it listens.
    pub(crate) fn start(dwell: &Binary, data: &Path, port: u16) -> io::Result<Server> {
        let mut command = Command::new(&dwell.path);
        command.arg("serve").arg("--data").arg(data).arg("--listen").arg(format!("127.0.0.1:{port}"));
        // Unless it is asked for, a port of its own would only be one more to be taken.
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

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.process.address().parse().expect("a server says where it listens")
    }

    /// Where it speaks beanstalkd's protocol, if it was told to.
    pub(crate) fn beanstalkd(&self) -> Option<SocketAddr> {
        self.process.serving["beanstalkd"].as_str()?.parse().ok()
    }

    /// A client that repeats nothing of its own accord, so that each request is known.
    ///
    /// # Errors
    /// None that a loopback address could cause.
    pub(crate) fn client(&self) -> io::Result<Client> {
        let client = Client::builder(self.process.url()).patience_ms(0).build();
        client.map_err(|error| io::Error::other(error.to_string()))
    }

    /// Kills it with SIGKILL and waits until it is gone. Says how much memory it had at most, in bytes.
    ///
    /// # Errors
    /// If it had ended by itself before.
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

    /// The most memory that it has had resident so far, in bytes; 0 where the system does not say.
    pub(crate) fn peak_rss(&self) -> u64 {
        memory_bytes(self.process.pid(), "VmHWM").unwrap_or(0)
    }
}

impl Binary {
    /// The one named, or the one beside ours.
    ///
    /// # Errors
    /// If there is none.
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

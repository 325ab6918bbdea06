//! `dwell serve` as a process of ours: it dies when we say so, and at the latest when we do.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use dwell_client::Client;

/// How long a server may take to say where it listens.
const START: Duration = Duration::from_secs(60);

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
    child: Child,
    address: SocketAddr,
    /// Where it speaks beanstalkd's protocol, if it was told to.
    beanstalkd: Option<SocketAddr>,
    peak_rss_bytes: u64,
    /// Lines that it prints, kept for a report of its failure.
    said: Receiver<String>,
}

impl Server {
    /// Starts `dwell serve` on `data` and waits until it is ready. Port 0 chooses a free one.
    ///
    /// # Errors
    /// If it cannot be started, or ends or stays silent instead of saying where it listens.
    pub(crate) fn start(dwell: &Binary, data: &Path, port: u16) -> io::Result<Server> {
        let mut child = Command::new(&dwell.path)
            .arg("serve")
            .arg("--data")
            .arg(data)
            .arg("--listen")
            .arg(format!("127.0.0.1:{port}"))
            .args(&dwell.serve)
            // Unless it is asked for, a port of its own would only be one more to be taken.
            .env("DWELL_BEANSTALKD", "off")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", dwell.path.display())))?;
        let (say, said) = mpsc::channel();
        listen(child.stdout.take().expect("it is piped"), say.clone());
        listen(child.stderr.take().expect("it is piped"), say);
        // From here on the child is dropped, and so killed, whatever happens.
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut server = Server { child, address, beanstalkd: None, peak_rss_bytes: 0, said };
        server.address = server.await_address()?;
        let client = server.client()?;
        client.ready().map_err(|error| io::Error::other(format!("the server is not ready: {error}")))?;
        Ok(server)
    }

    fn await_address(&mut self) -> io::Result<SocketAddr> {
        let mut heard = String::new();
        loop {
            match self.said.recv_timeout(START) {
                Ok(line) => {
                    if let Some(address) = address_in(&line) {
                        let (_, after) = line.split_once("\"beanstalkd\":").unwrap_or_default();
                        self.beanstalkd = address_in(after);
                        return Ok(address);
                    }
                    heard.push_str(&line);
                    heard.push('\n');
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(io::Error::other(format!(
                        "the server did not say where it listens:\n{heard}"
                    )));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait()?;
                    return Err(io::Error::other(format!("the server ended with {status}:\n{heard}")));
                }
            }
        }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it speaks beanstalkd's protocol.
    pub(crate) fn beanstalkd(&self) -> Option<SocketAddr> {
        self.beanstalkd
    }

    /// A client that repeats nothing of its own accord, so that each request is known.
    ///
    /// # Errors
    /// None that a loopback address could cause.
    pub(crate) fn client(&self) -> io::Result<Client> {
        let client = Client::builder(&format!("http://{}", self.address)).patience_ms(0).build();
        client.map_err(|error| io::Error::other(error.to_string()))
    }

    /// Kills it with SIGKILL and waits until it is gone. Says how much memory it had at most, in bytes.
    ///
    /// # Errors
    /// If it cannot be killed, or had ended by itself before.
    pub(crate) fn kill(mut self) -> io::Result<u64> {
        let peak = self.peak_rss();
        if let Some(status) = self.child.try_wait()? {
            let said: Vec<String> = self.said.try_iter().collect();
            let text = format!("the server ended by itself with {status}:\n{}", said.join("\n"));
            return Err(io::Error::other(text));
        }
        self.child.kill()?;
        self.child.wait()?;
        Ok(peak)
    }

    /// The most memory that it has had resident so far, in bytes; 0 where the system does not say.
    pub(crate) fn peak_rss(&mut self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = kib.and_then(|kib| kib.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        self.peak_rss_bytes = self.peak_rss_bytes.max(kib.unwrap_or_default() * 1024);
        self.peak_rss_bytes
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone already; then there is nothing left to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads `pipe` to its end, so that the child never blocks on it.
fn listen(pipe: impl Read + Send + 'static, say: Sender<String>) {
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            // Nobody may be left to hear it, and the pipe is read all the same.
            let _ = say.send(line);
        }
    });
}

/// The first loopback address with a port in a line.
fn address_in(line: &str) -> Option<SocketAddr> {
    let start = line.find("127.0.0.1:")?;
    let rest = &line[start..];
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ':').unwrap_or(rest.len());
    rest[..end].trim_end_matches([':', '.']).parse().ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_address_in_what_a_server_says() {
        let port = |line| address_in(line).map(|address| address.port());
        assert_eq!(port("listening on http://127.0.0.1:41234"), Some(41_234));
        assert_eq!(port("{\"http\":\"127.0.0.1:80\"}"), Some(80));
        assert_eq!(port("ready at 127.0.0.1:8080."), Some(8_080));
        assert_eq!(port("data in ./dwell-data"), None);
        assert_eq!(port("127.0.0.1:"), None);
    }
}

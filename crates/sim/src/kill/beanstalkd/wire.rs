//! The protocol's lines, from the client's side.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The timeout of a reply.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection.
#[derive(Debug)]
pub(super) struct BeanstalkdWire(BufReader<TcpStream>);

/// A reply: its words, and its data if there is any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BeanstalkdReply {
    pub(super) line: String,
    pub(super) body: Vec<u8>,
}

impl BeanstalkdWire {
    pub(super) fn connect(address: SocketAddr) -> io::Result<BeanstalkdWire> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(BeanstalkdWire(BufReader::new(stream)))
    }

    /// Sends raw commands, several at a time.
    pub(super) fn send(&mut self, commands: &[u8]) -> io::Result<()> {
        self.0.get_mut().write_all(commands)
    }

    /// Reads the next reply.
    pub(super) fn reply(&mut self) -> io::Result<BeanstalkdReply> {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line)?;
        let line = line.strip_suffix(b"\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        let line = String::from_utf8_lossy(line).into_owned();
        let mut body = Vec::new();
        if ["RESERVED", "FOUND", "OK"].contains(&line.split(' ').next().unwrap_or_default()) {
            let bytes = line.rsplit(' ').next().and_then(|bytes| bytes.parse::<usize>().ok());
            body.resize(bytes.ok_or(io::ErrorKind::InvalidData)? + 2, 0);
            self.0.read_exact(&mut body)?;
            body.truncate(body.len() - 2);
        }
        Ok(BeanstalkdReply { line, body })
    }

    /// Sends one command and reads its reply.
    pub(super) fn ask(&mut self, command: &str) -> io::Result<BeanstalkdReply> {
        self.send(format!("{command}\r\n").as_bytes())?;
        self.reply()
    }
}

impl BeanstalkdReply {
    /// The first word of the reply.
    pub(super) fn word(&self) -> &str {
        self.line.split(' ').next().unwrap_or_default()
    }

    /// The job's id, if it is the first argument of the reply.
    pub(super) fn id(&self) -> Option<u64> {
        self.line.split(' ').nth(1)?.parse().ok()
    }

    /// A field of the YAML data after `OK`, without quotes.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let text = std::str::from_utf8(&self.body).ok()?;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))?;
        Some(value.trim_matches('"'))
    }

    /// A field as a number.
    pub(super) fn number(&self, name: &str) -> Option<i64> {
        self.field(name)?.parse().ok()
    }
}

//! A client of beanstalkd's protocol that pipelines commands.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::Result;

/// A connection to beanstalkd, or to another server that speaks its protocol.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: BufReader<TcpStream>,
    line: Vec<u8>,
}

/// A job that was reserved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) id: u64,
    pub(crate) body: Vec<u8>,
}

impl Wire {
    pub(crate) fn connect(address: &str) -> Result<Wire> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Wire { stream: BufReader::with_capacity(64 << 10, stream), line: Vec::new() })
    }

    /// Sends commands unchanged.
    pub(crate) fn send(&mut self, commands: &[u8]) -> Result<()> {
        Ok(self.stream.get_mut().write_all(commands)?)
    }

    /// Reads a one-line reply, which has to begin with `word`.
    pub(crate) fn expect(&mut self, word: &str) -> Result<()> {
        let line = self.line()?;
        if line.split(' ').next() == Some(word) {
            return Ok(());
        }
        Err(format!("the reply is '{line}', not {word}").into())
    }

    /// Reads the reply to a reserve: a job, or `None` if it timed out.
    pub(crate) fn reserved(&mut self) -> Result<Option<Job>> {
        let line = self.line()?;
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["RESERVED", id, bytes] => {
                let (id, bytes) = (id.parse()?, bytes.parse::<usize>()?);
                let mut body = vec![0; bytes + 2];
                self.stream.read_exact(&mut body)?;
                body.truncate(bytes);
                Ok(Some(Job { id, body }))
            }
            ["TIMED_OUT"] => Ok(None),
            _ => Err(format!("the reply to a reserve is '{line}'").into()),
        }
    }

    /// Whether part of the next reply is already in the buffer.
    pub(crate) fn has_more(&self) -> bool {
        !self.stream.buffer().is_empty()
    }

    /// Requests one number from a tube's statistics.
    pub(crate) fn tube_stat(&mut self, tube: &str, name: &str) -> Result<u64> {
        self.send(format!("stats-tube {tube}\r\n").as_bytes())?;
        let line = self.line()?;
        let bytes = line.strip_prefix("OK ").ok_or_else(|| format!("the reply is '{line}', not OK"))?;
        let mut text = vec![0; bytes.parse::<usize>()? + 2];
        self.stream.read_exact(&mut text)?;
        let text = std::str::from_utf8(&text)?;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        Ok(value.ok_or_else(|| format!("there is no {name} in {text}"))?.trim().parse()?)
    }

    fn line(&mut self) -> Result<&str> {
        self.line.clear();
        self.stream.read_until(b'\n', &mut self.line)?;
        let line = self.line.strip_suffix(b"\r\n").ok_or("the connection ended")?;
        Ok(std::str::from_utf8(line)?)
    }
}

/// Appends a put in its wire format.
pub(crate) fn put(commands: &mut Vec<u8>, delay_s: u64, body: &[u8]) {
    commands.extend_from_slice(format!("put 1024 {delay_s} 60 {}\r\n", body.len()).as_bytes());
    commands.extend_from_slice(body);
    commands.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn replies_are_read_as_they_come() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut wire = Wire::connect(&listener.local_addr().unwrap().to_string()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let replies = b"INSERTED 7\r\nRESERVED 8 4\r\na\r\nb\r\nTIMED_OUT\r\nOK 19\r\n---\nx: 1\nxy: 12345\n\r\nBURIED\r\n";
        server.write_all(replies).unwrap();
        wire.expect("INSERTED").unwrap();
        assert_eq!(wire.reserved().unwrap(), Some(Job { id: 8, body: b"a\r\nb".to_vec() }));
        assert_eq!(wire.reserved().unwrap(), None);
        assert_eq!(wire.tube_stat("t", "xy").unwrap(), 12_345);
        assert!(wire.expect("INSERTED").unwrap_err().to_string().contains("BURIED"));
        drop(server);
        assert!(wire.expect("INSERTED").is_err());

        let mut commands = Vec::new();
        put(&mut commands, 30, b"body");
        assert_eq!(commands, b"put 1024 30 60 4\r\nbody\r\n");
    }
}

//! A server over beanstalkd's protocol: dwell, beanstalkd itself, or another.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use dwell_model::QueueName;

use super::peer::{ItemAnswer, Peer, PeerConnection, TakeAnswer, TakenMessage, sent_us};
use crate::exit::{Exit, Failure};

/// The timeout of a reply, in addition to the wait of a reserve.
const PATIENCE: Duration = Duration::from_secs(60);

/// The wait of a reserve for the first job: the minimum of the protocol.
const WAIT_S: u64 = 1;

/// Jobs are deleted at once; this is when they are ready again if this process is killed.
const TTR_S: u64 = 60;

const PRIORITY: u32 = 1024;

/// The number of jobs that are kicked, and that are removed, at a time.
const KICKED: usize = 10_000;
const REMOVED: usize = 256;

pub(super) struct Beanstalkd<'a> {
    address: &'a str,
    queue: QueueName,
}

impl<'a> Beanstalkd<'a> {
    pub(super) fn new(address: &'a str, queue: QueueName) -> Beanstalkd<'a> {
        Beanstalkd { address, queue }
    }
}

impl Peer for Beanstalkd<'_> {
    type Wire = BeanstalkdWire;

    fn protocol(&self) -> &'static str {
        "beanstalkd"
    }

    fn address(&self) -> &str {
        self.address
    }

    fn queue(&self) -> &QueueName {
        &self.queue
    }

    fn claim(&self) -> Result<(), Failure> {
        let mut wire = BeanstalkdWire::new(self.address)?;
        match wire.has_jobs(&self.queue)? {
            false => Ok(()),
            true => Err(Failure::usage(format!(
                "the tube '{}' has jobs already; name one that has none, or none",
                self.queue
            ))),
        }
    }

    fn connect(&self) -> Result<BeanstalkdWire, Failure> {
        let mut wire = BeanstalkdWire::new(self.address)?;
        let queue = &self.queue;
        wire.send(format!("use {queue}\r\nwatch {queue}\r\nignore default\r\n").as_bytes())?;
        wire.expect("USING")?;
        wire.expect("WATCHING")?;
        wire.expect("WATCHING")?;
        Ok(wire)
    }

    fn clean(&self) -> Result<(u64, u64), Failure> {
        let mut wire = self.connect()?;
        let mut removed = 0;
        loop {
            wire.send(format!("kick {KICKED}\r\n").as_bytes())?;
            let kicked: u64 = wire.expect("KICKED")?.parse().unwrap_or(0);
            let mut round = 0;
            loop {
                let taken = wire.reserve(REMOVED, 0)?;
                if taken.is_empty() {
                    break;
                }
                let acked = wire.ack(taken.into_iter().map(|taken| taken.held).collect())?;
                round += acked.iter().filter(|answer| answer.is_ok()).count() as u64;
            }
            removed += round;
            if kicked == 0 && round == 0 {
                break;
            }
        }
        let left = u64::from(wire.has_jobs(&self.queue)?);
        Ok((removed, left))
    }
}

pub(super) struct BeanstalkdWire {
    stream: BufReader<TcpStream>,
    line: Vec<u8>,
}

impl BeanstalkdWire {
    fn new(address: &str) -> Result<BeanstalkdWire, Failure> {
        let connected = connect(address).map_err(|error| {
            let detail = format!("nobody speaks beanstalkd's protocol at {address} ({error})");
            let mut failure = Failure::new(Exit::Unreachable, "unreachable", detail);
            failure.retryable = true;
            failure
        })?;
        Ok(BeanstalkdWire { stream: BufReader::with_capacity(64 * 1024, connected), line: Vec::new() })
    }

    fn send(&mut self, commands: &[u8]) -> Result<(), Failure> {
        self.stream.get_mut().write_all(commands).map_err(|error| lost(&error))
    }

    fn line(&mut self) -> Result<&str, Failure> {
        self.line.clear();
        self.stream.read_until(b'\n', &mut self.line).map_err(|error| lost(&error))?;
        let line = self.line.strip_suffix(b"\r\n");
        let line = line.ok_or_else(|| lost(&io::Error::from(io::ErrorKind::UnexpectedEof)))?;
        std::str::from_utf8(line).map_err(|_| odd("no text"))
    }

    /// Reads a reply that has to begin with `word`; returns what follows it.
    fn expect(&mut self, word: &str) -> Result<String, Failure> {
        let line = self.line()?;
        match line.strip_prefix(word) {
            Some(rest) => Ok(rest.trim_start().to_owned()),
            None => Err(odd(line)),
        }
    }

    fn bytes(&mut self, len: usize) -> Result<Vec<u8>, Failure> {
        let mut bytes = vec![0; len + 2];
        self.stream.read_exact(&mut bytes).map_err(|error| lost(&error))?;
        bytes.truncate(len);
        Ok(bytes)
    }

    /// Whether the tube has any job.
    fn has_jobs(&mut self, tube: &QueueName) -> Result<bool, Failure> {
        self.send(format!("stats-tube {tube}\r\n").as_bytes())?;
        let line = self.line()?.to_owned();
        if line == "NOT_FOUND" {
            return Ok(false);
        }
        let len = line.strip_prefix("OK ").and_then(|len| len.parse().ok()).ok_or_else(|| odd(&line))?;
        let stats = self.bytes(len)?;
        let counts = String::from_utf8_lossy(&stats);
        let mut counts =
            counts.lines().filter_map(|line| line.strip_prefix("current-jobs-")?.split_once(": "));
        Ok(counts.any(|(_, count)| count.trim() != "0"))
    }

    /// Reserves at most `max` jobs; waits `wait_s` seconds for the first.
    fn reserve(&mut self, max: usize, wait_s: u64) -> Result<Vec<TakenMessage<u64>>, Failure> {
        let mut commands = format!("reserve-with-timeout {wait_s}\r\n");
        commands.push_str(&"reserve-with-timeout 0\r\n".repeat(max.saturating_sub(1)));
        self.send(commands.as_bytes())?;
        let mut taken = Vec::new();
        for _ in 0..max {
            let line = self.line()?.to_owned();
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["RESERVED", number, len] => {
                    let (Ok(held), Ok(len)) = (number.parse(), len.parse()) else { return Err(odd(&line)) };
                    taken.push(TakenMessage { sent_us: sent_us(&self.bytes(len)?), held });
                }
                ["TIMED_OUT" | "DEADLINE_SOON"] => {}
                _ => return Err(odd(&line)),
            }
        }
        Ok(taken)
    }
}

fn connect(address: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, Duration::from_secs(5)) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn lost(error: &io::Error) -> Failure {
    Failure::new(Exit::Unknown, "outcome_unknown", format!("the connection broke: {error}"))
}

fn odd(reply: &str) -> Failure {
    Failure::new(Exit::Unreachable, "bad_answer", format!("the reply is '{reply}', which was not asked for"))
}

/// A transient error is the job's; any other ends the bench.
fn answer(line: &str, good: &str) -> Result<ItemAnswer, Failure> {
    match line.split(' ').next() {
        Some(word) if word == good => Ok(Ok(())),
        // beanstalkd had no memory to make it ready, and keeps it buried.
        Some("BURIED") => Ok(Ok(())),
        Some(word @ ("OUT_OF_MEMORY" | "DRAINING" | "NOT_FOUND")) => Ok(Err(word.to_lowercase())),
        Some("JOB_TOO_BIG") => {
            Err(Failure::new(Exit::Refused, "body_too_large", "the server takes no body of this length"))
        }
        _ => Err(odd(line)),
    }
}

impl PeerConnection for BeanstalkdWire {
    type Held = u64;

    fn put(&mut self, bodies: Vec<Vec<u8>>, delay_ms: u64) -> Result<Vec<ItemAnswer>, Failure> {
        let mut commands = Vec::new();
        for body in &bodies {
            let line = format!("put {PRIORITY} {} {TTR_S} {}\r\n", delay_ms / 1_000, body.len());
            commands.extend_from_slice(line.as_bytes());
            commands.extend_from_slice(body);
            commands.extend_from_slice(b"\r\n");
        }
        self.send(&commands)?;
        bodies.iter().map(|_| answer(self.line()?, "INSERTED")).collect()
    }

    fn take(&mut self, max: usize) -> Result<TakeAnswer<u64>, Failure> {
        self.reserve(max, WAIT_S).map(Ok)
    }

    fn ack(&mut self, held: Vec<u64>) -> Result<Vec<ItemAnswer>, Failure> {
        let commands: String = held.iter().map(|number| format!("delete {number}\r\n")).collect();
        self.send(commands.as_bytes())?;
        held.iter().map(|_| answer(self.line()?, "DELETED")).collect()
    }
}

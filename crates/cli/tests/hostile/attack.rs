//! Hostile clients, each a connection that never blocks: what it cannot write or read now it skips.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;

use dwell_testkit::Random;

use crate::common::crowd::connect;

/// The queue with the large messages.
pub(crate) const LARGE: &str = "large";
/// The queue that partial messages are put into.
pub(crate) const HALF: &str = "half";

/// The length of the message of which half is sent.
const WHOLE_BYTES: usize = 1 << 20;
/// The length of the line that is begun.
const LONG_LINE_BYTES: usize = 1 << 20;
/// The maximum that is written, and that is read, per turn.
const PIECE: usize = 64 << 10;
/// Every other client that sends half a message disconnects after this many turns, and begins again.
const HANGS_UP_AFTER: u64 = 50;
/// The number of turns per byte of its answer: one byte per second.
const READS_EVERY: u64 = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Attack {
    /// Takes 8 MiB, and reads them one byte a second.
    SlowReader,
    /// Endless headers, or arguments.
    Endless,
    /// Random bytes.
    Garbage,
    /// A line of a megabyte.
    LongLine,
    /// Half a message.
    Half,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Protocol {
    Http,
    Beanstalkd,
}

/// The result of an attack.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AttackResult {
    pub(crate) sent_bytes: usize,
    pub(crate) read_bytes: usize,
    /// How often the server closed the connection.
    pub(crate) closed: usize,
}

impl Attack {
    /// Each attack, with the number of clients over each protocol.
    pub(crate) const ALL: [(Attack, usize); 5] = [
        (Attack::SlowReader, 2),
        (Attack::Endless, 16),
        (Attack::Garbage, 4),
        (Attack::LongLine, 2),
        (Attack::Half, 32),
    ];

    /// Asserts that the attack took place, and how the server handled it.
    pub(crate) fn assert_went_on(self, protocol: Protocol, told: AttackResult) {
        let AttackResult { sent_bytes, read_bytes, closed } = told;
        let as_meant = match (self, protocol) {
            // Its connection stays, and it reads a little.
            (Attack::SlowReader, _) => closed == 0 && (1..1_000).contains(&read_bytes),
            // Refused, and closed where there is no other way.
            (Attack::Endless | Attack::Garbage | Attack::LongLine, Protocol::Http) => closed > 0,
            // A line that does not end is skipped for as long as it arrives.
            (Attack::Endless, Protocol::Beanstalkd) => closed == 0 && sent_bytes > 1_000,
            (Attack::Garbage, Protocol::Beanstalkd) => sent_bytes > PIECE && read_bytes > 0,
            (Attack::LongLine, Protocol::Beanstalkd) => {
                closed == 0 && sent_bytes > LONG_LINE_BYTES && read_bytes >= b"BAD_FORMAT\r\n".len()
            }
            (Attack::Half, _) => sent_bytes >= 32 * WHOLE_BYTES / 2,
        };
        assert!(as_meant, "{protocol:?}, {self:?}: {told:?}");
    }
}

/// The results of each attack over each protocol, all attackers together.
pub(crate) fn summary(attackers: &[Attacker]) -> Vec<(Protocol, Attack, AttackResult)> {
    let mut summary: BTreeMap<(Protocol, Attack), AttackResult> = BTreeMap::new();
    for attacker in attackers {
        let told = summary.entry((attacker.protocol, attacker.attack)).or_default();
        told.sent_bytes += attacker.told.sent_bytes;
        told.read_bytes += attacker.told.read_bytes;
        told.closed += attacker.told.closed;
    }
    summary.into_iter().map(|((protocol, attack), told)| (protocol, attack, told)).collect()
}

/// One client.
pub(crate) struct Attacker {
    attack: Attack,
    protocol: Protocol,
    address: String,
    /// Its index among those of its kind.
    at: usize,
    stream: Option<TcpStream>,
    /// What is still to be written.
    to_write: Vec<u8>,
    /// Turns on this connection.
    turns: u64,
    random: Random,
    told: AttackResult,
}

impl Attacker {
    pub(crate) fn new(attack: Attack, protocol: Protocol, address: String, at: usize) -> Attacker {
        let random = Random::new(at as u64);
        let (to_write, told) = (Vec::new(), AttackResult::default());
        Attacker { attack, protocol, address, at, stream: None, to_write, turns: 0, random, told }
    }

    /// One turn.
    pub(crate) fn step(&mut self) {
        if self.stream.is_none() {
            let stream = connect(&self.address);
            stream.set_nonblocking(true).unwrap();
            self.stream = Some(stream);
            self.to_write = self.opening();
            self.turns = 0;
        }
        self.turns += 1;
        self.more();
        let is_open = self.write() && self.read();
        if !is_open {
            self.told.closed += 1;
            self.stream = None;
        } else if self.attack == Attack::Half && self.at % 2 == 1 && self.turns == HANGS_UP_AFTER {
            self.stream = None;
        }
    }

    /// The first bytes of a new connection.
    fn opening(&self) -> Vec<u8> {
        let request = |rest: &str| format!("{rest} HTTP/1.1\r\nHost: localhost\r\n");
        match (self.attack, self.protocol) {
            (Attack::SlowReader, Protocol::Http) => {
                let take = format!("POST /v1/queues/{LARGE}/take?max=8&max_bytes=8388608&lease=1h");
                format!("{}\r\n", request(&take)).into_bytes()
            }
            (Attack::SlowReader, Protocol::Beanstalkd) => {
                let reserves = "reserve-with-timeout 0\r\n".repeat(8);
                format!("watch {LARGE}\r\nignore default\r\n{reserves}").into_bytes()
            }
            (Attack::Endless, Protocol::Http) => request("GET /health/live").into_bytes(),
            (Attack::Endless, Protocol::Beanstalkd) => b"put 0 0 60".to_vec(),
            (Attack::Garbage, _) => Vec::new(),
            (Attack::LongLine, Protocol::Http) => b"GET /".to_vec(),
            (Attack::LongLine, Protocol::Beanstalkd) => b"use ".to_vec(),
            (Attack::Half, protocol) => {
                let mut bytes = match protocol {
                    Protocol::Http => {
                        let put = request(&format!("POST /v1/queues/{HALF}/messages"));
                        format!("{put}Content-Length: {WHOLE_BYTES}\r\n\r\n")
                    }
                    Protocol::Beanstalkd => format!("use {HALF}\r\nput 0 0 60 {WHOLE_BYTES}\r\n"),
                }
                .into_bytes();
                bytes.resize(bytes.len() + WHOLE_BYTES / 2, b'x');
                bytes
            }
        }
    }

    /// Its next bytes, once everything so far is written.
    fn more(&mut self) {
        if !self.to_write.is_empty() {
            return;
        }
        match (self.attack, self.protocol) {
            (Attack::SlowReader | Attack::Half, _) => {}
            (Attack::Endless, Protocol::Http) => {
                // A few at a time, so that they reach the limit of a head within the test.
                self.to_write.extend_from_slice(&b"X-More: and more\r\n".repeat(64));
            }
            (Attack::Endless, Protocol::Beanstalkd) => self.to_write.extend_from_slice(b" 1"),
            (Attack::Garbage, _) => {
                self.random.fill(&mut self.to_write, 512 * 8);
            }
            (Attack::LongLine, _) => {
                self.to_write.resize(LONG_LINE_BYTES, b'a');
                self.to_write.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Writes what the connection accepts; false if it is closed.
    fn write(&mut self) -> bool {
        let Some(stream) = &mut self.stream else { return true };
        let piece = self.to_write.len().min(PIECE);
        if piece == 0 {
            return true;
        }
        match stream.write(&self.to_write[..piece]) {
            Ok(written) => {
                self.told.sent_bytes += written;
                self.to_write.drain(..written);
                true
            }
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    }

    /// Reads what has arrived, if it is one that reads; false if the connection is closed.
    fn read(&mut self) -> bool {
        let Some(stream) = &mut self.stream else { return true };
        let mut bytes = [0; PIECE];
        let most = match self.attack {
            Attack::SlowReader if !self.turns.is_multiple_of(READS_EVERY) => return true,
            Attack::SlowReader => 1,
            _ => PIECE,
        };
        match stream.read(&mut bytes[..most]) {
            Ok(0) => false,
            Ok(read) => {
                self.told.read_bytes += read;
                true
            }
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    }
}

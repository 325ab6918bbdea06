//! One connection that sends pipelined commands, and reports to the ledger before and after.
//!
//! Ground rule: a job belongs to one worker at a time, so that its commands are ordered: to the worker that has reserved
//! it, or, while it is buried or delayed for longer than any run, to the worker that left it so.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

use dwell_testkit::Random;

use super::BeanstalkdShared;
use super::ledger::{PutJob, Way};
use super::wire::{BeanstalkdReply, BeanstalkdWire};

/// The names of the tubes.
pub(super) const TUBES: [&str; 4] = ["mails", "orders", "a/b:c", "default"];
/// A delay longer than any run, in seconds.
const FAR_S: u32 = 100_000;
/// TTRs also longer than any run: a job is ready again only because of a kill.
const TTRS_S: [u32; 3] = [100_000, 1_234_567, u32::MAX];

/// A worker; see the [module](self).
pub(super) struct Worker<'a> {
    shared: &'a BeanstalkdShared,
    rng: Random,
    number: u64,
    wire: BeanstalkdWire,
    answered: Sender<u64>,
    /// The number of bodies so far, so that each is distinct.
    bodies: u64,
    /// Jobs that this worker has put with the far delay.
    far: Vec<u64>,
    /// Jobs that this worker has buried, with their priorities.
    buried: Vec<(u64, u32)>,
}

impl<'a> Worker<'a> {
    pub(super) fn connect(
        shared: &'a BeanstalkdShared,
        rng: Random,
        number: u64,
        address: SocketAddr,
        answered: Sender<u64>,
    ) -> io::Result<Worker<'a>> {
        let mut wire = BeanstalkdWire::connect(address)?;
        for tube in TUBES {
            wire.ask(&format!("watch {tube}"))?;
        }
        Ok(Worker { shared, rng, number, wire, answered, bodies: 0, far: Vec::new(), buried: Vec::new() })
    }

    /// Sends commands until the connection breaks.
    pub(super) fn run(mut self) {
        while !self.shared.killing.load(Ordering::SeqCst) {
            let Err(error) = self.step() else { continue };
            let mut ledger = self.shared.ledger();
            ledger.counts.unknown += 1;
            if !self.shared.killing.load(Ordering::SeqCst) {
                ledger.accuse(format!("a connection ended, and nobody had killed the server: {error}"));
            }
            return;
        }
    }

    fn step(&mut self) -> io::Result<()> {
        let count = match self.rng.below(10) {
            0..4 => self.put(),
            4..8 => self.reserve(),
            8 => self.delete_far(),
            _ => self.kick_buried(),
        }?;
        // The receiver is gone once the round is over.
        let _ = self.answered.send(count);
        Ok(())
    }

    fn put(&mut self) -> io::Result<u64> {
        let tube = *self.rng.pick(&TUBES);
        let mut commands = format!("use {tube}\r\n").into_bytes();
        let mut puts = Vec::new();
        let sent_ms = self.shared.now_ms();
        for _ in 0..self.rng.between(1, 8) {
            let delay_s = *self.rng.pick(&[0, 0, 1, 2, FAR_S]);
            let (priority, ttr_s) = (self.rng.below(3_000) as u32, *self.rng.pick(&TTRS_S));
            let mut body = format!("{sent_ms}-{}-{}-", self.number, self.bodies).into_bytes();
            self.bodies += 1;
            let len = self.rng.below(2_000) as usize;
            self.rng.fill(&mut body, len);
            commands
                .extend_from_slice(format!("put {priority} {delay_s} {ttr_s} {}\r\n", body.len()).as_bytes());
            commands.extend_from_slice(&body);
            commands.extend_from_slice(b"\r\n");
            puts.push(PutJob { tube, priority, delay_s, ttr_s, body, sent_ms });
        }
        {
            let mut ledger = self.shared.ledger();
            puts.iter().for_each(|put| ledger.put(put.clone()));
        }
        self.wire.send(&commands)?;
        self.expect("USING")?;
        for put in &puts {
            let reply = self.expect("INSERTED")?;
            let now_ms = self.shared.now_ms();
            let Some(id) = reply.id() else { return Err(io::ErrorKind::InvalidData.into()) };
            self.shared.ledger().inserted(id, &put.body, now_ms);
            if put.delay_s == FAR_S {
                self.far.push(id);
            }
        }
        Ok(puts.len() as u64)
    }

    fn reserve(&mut self) -> io::Result<u64> {
        let count = self.rng.between(1, 6);
        self.wire.send("reserve-with-timeout 0\r\n".repeat(count as usize).as_bytes())?;
        let mut ids = Vec::new();
        for _ in 0..count {
            let reply = self.wire.reply()?;
            match (reply.word(), reply.id()) {
                ("RESERVED", Some(id)) => {
                    self.shared.ledger().reserved(id, &reply.body, self.shared.now_ms());
                    ids.push(id);
                }
                ("TIMED_OUT", _) => {}
                _ => self.odd(&reply),
            }
        }
        self.settle(&ids)?;
        Ok(count)
    }

    fn settle(&mut self, ids: &[u64]) -> io::Result<()> {
        let mut commands = String::new();
        let mut expected = Vec::new();
        let sent_ms = self.shared.now_ms();
        for id in ids {
            let priority = self.rng.below(3_000) as u32;
            let delay_s = *self.rng.pick(&[0, 1, FAR_S]);
            let delay_ms = i64::from(delay_s) * 1_000;
            let released = Way::Waits { priority, from_ms: (sent_ms + delay_ms, i64::MAX) };
            let (command, word, way) = match self.rng.below(10) {
                0..6 => (format!("delete {id}\r\n"), "DELETED", Way::Gone),
                6..8 => (format!("release {id} {priority} {delay_s}\r\n"), "RELEASED", released),
                8 => (format!("bury {id} {priority}\r\n"), "BURIED", Way::Buried { priority }),
                // It stays reserved, and is ready again when the connection ends.
                _ => (format!("touch {id}\r\n"), "TOUCHED", Way::Gone),
            };
            commands.push_str(&command);
            expected.push((*id, word, way, delay_s, priority));
            if word != "TOUCHED" {
                self.shared.ledger().may_become(*id, way);
            }
        }
        self.wire.send(commands.as_bytes())?;
        for (id, word, way, delay_s, priority) in expected {
            self.expect(word)?;
            let now_ms = self.shared.now_ms();
            let exactly = match way {
                Way::Waits { priority, from_ms: (from, _) } => {
                    Way::Waits { priority, from_ms: (from, now_ms + i64::from(delay_s) * 1_000) }
                }
                way => way,
            };
            match word {
                "TOUCHED" => continue,
                "BURIED" => self.buried.push((id, priority)),
                "RELEASED" if delay_s == FAR_S => self.far.push(id),
                _ => {}
            }
            self.shared.ledger().became(id, way, exactly);
        }
        Ok(())
    }

    fn delete_far(&mut self) -> io::Result<u64> {
        let Some(id) = self.far.pop() else { return Ok(0) };
        self.shared.ledger().may_become(id, Way::Gone);
        self.wire.send(format!("delete {id}\r\n").as_bytes())?;
        self.expect("DELETED")?;
        self.shared.ledger().became(id, Way::Gone, Way::Gone);
        Ok(1)
    }

    fn kick_buried(&mut self) -> io::Result<u64> {
        let Some((id, priority)) = self.buried.pop() else { return Ok(0) };
        let sent_ms = self.shared.now_ms();
        let kicked = |now_ms| Way::Waits { priority, from_ms: (sent_ms, now_ms) };
        self.shared.ledger().may_become(id, kicked(i64::MAX));
        self.wire.send(format!("kick-job {id}\r\n").as_bytes())?;
        self.expect("KICKED")?;
        let now_ms = self.shared.now_ms();
        self.shared.ledger().became(id, kicked(i64::MAX), kicked(now_ms));
        Ok(1)
    }

    /// Reads a reply, which must begin with `word`.
    fn expect(&mut self, word: &str) -> io::Result<BeanstalkdReply> {
        let reply = self.wire.reply()?;
        if reply.word() != word {
            self.odd(&reply);
        }
        Ok(reply)
    }

    fn odd(&self, reply: &BeanstalkdReply) {
        self.shared.ledger().accuse(format!("the reply is '{}'", reply.line));
    }
}

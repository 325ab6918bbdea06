//! `kill --delivery`: server, worker and receiver are killed with SIGKILL, in turn and together, while messages fall due.
//!
//! Half of the messages are sent by a webhook of the server to a receiver, half are taken over HTTP by a worker. Receiver
//! and worker are processes of this binary. Each appends a line to its log before it answers, so the logs have every
//! message that was handed over, also those whose answer was lost.
//!
//! # Layout
//! - `ledger`: what was put, what the logs say, and the verdict
//! - `log`: the file to which a part writes what it was handed
//! - `part`: a worker or receiver as a child process
//! - `receiver`, `worker`: what these processes do

mod ledger;
mod log;
mod part;
mod receiver;
mod worker;

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use dwell_client::Client;
use dwell_model::{IdempotencyKey, QueueName, Timestamp};
use dwell_store::{Error, Put, StateCounts, When};
use dwell_testkit::{Random, free_port};
use dwell_time::{Clock as _, SystemClock};

use self::ledger::{Due, Ledger, QUEUES, Way};
use self::part::Part;
pub(crate) use self::receiver::receive;
pub(crate) use self::worker::work;
use super::pause_ms;
use crate::server::{Binary, Server};

/// The options of a run.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    /// The number of rounds, each with one kill at least.
    pub(crate) rounds: u32,
    /// The number of messages, over all rounds.
    pub(crate) messages: u64,
    /// The seed of all random choices.
    pub(crate) seed: u64,
    /// The server under test.
    pub(crate) dwell: Binary,
}

/// The number of messages that worker and webhook have in flight at most, each.
const IN_FLIGHT: u64 = 16;
/// The lease of the worker's messages: how long those of a killed worker are missing.
const LEASE: Duration = Duration::from_secs(10);
/// The messages of a round fall due within this time, in milliseconds. It is as long as a round, without restarts.
const SPREAD_MS: u64 = 1_200;
/// The number of messages per put.
const BATCH: usize = 64;
/// How long a put or the end of the deliveries may take, in milliseconds.
const PATIENCE_MS: u64 = 180_000;
/// The pause between two tries, in milliseconds.
const AGAIN_MS: u64 = 20;

/// How often each part was killed.
#[derive(Clone, Copy, Debug, Default)]
struct Kills {
    server: u64,
    worker: u64,
    receiver: u64,
}

/// Ports and paths, which stay the same over all kills.
struct Stage {
    dwell: Binary,
    folder: PathBuf,
    server_port: u16,
    receiver_port: u16,
    clock: SystemClock,
}

/// The running processes.
struct Parts {
    server: Server,
    worker: Part,
    receiver: Part,
}

/// Runs the rounds. Returns true if nothing was violated.
///
/// # Errors
/// If something other than a promise of dwell fails.
pub(crate) fn run(wish: &Wish) -> io::Result<bool> {
    println!(
        "seed {}; the same choices again, though processes never meet twice in the same way: dwell-sim kill --delivery \
         --rounds {} --messages {} --seed {}",
        wish.seed, wish.rounds, wish.messages, wish.seed
    );
    let folder = tempfile::Builder::new().prefix("dwell-kill-").tempdir()?;
    let stage = Stage::new(wish, folder.path())?;
    let mut parts = stage.start()?;
    let mut rng = Random::of(wish.seed, u64::MAX);
    let mut kills = Kills::default();
    let mut ledger = Ledger::default();
    for round in 0..wish.rounds {
        let share = |round: u32| wish.messages * u64::from(round) / u64::from(wish.rounds);
        let numbers = share(round)..share(round + 1);
        let rng_of_puts = Random::of(wish.seed, u64::from(round));
        let (puts, killed) = thread::scope(|scope| {
            let putting = scope.spawn(|| stage.put(numbers, rng_of_puts));
            let killed = stage.kill_some(parts, round, &mut rng, &mut kills);
            (putting.join().map_err(|_| io::Error::other("the thread that puts panicked")), killed)
        });
        parts = killed?;
        ledger.extend(puts??);
    }
    let left = stage.await_end(&ledger)?;
    // What they hold would still be written after the logs were read.
    let Parts { server, mut worker, mut receiver } = parts;
    worker.end();
    receiver.end();
    server.kill()?;
    let bounds = [
        (Way::Webhook, IN_FLIGHT * (kills.server + kills.receiver)),
        (Way::Worker, IN_FLIGHT * (kills.server + kills.worker)),
    ];
    for (way, most) in bounds {
        ledger.judge(way, &std::fs::read_to_string(stage.log(way)).unwrap_or_default(), most);
    }
    ledger.left(left);
    for violation in ledger.violations.iter().take(5) {
        println!("VIOLATION {violation}");
    }
    println!(
        "rounds {}, killed: server {}, worker {}, receiver {}; put {}, delivered {}, again {} of at most {}, violations {}",
        wish.rounds,
        kills.server,
        kills.worker,
        kills.receiver,
        ledger.dues.len(),
        ledger.delivered,
        ledger.again,
        bounds.iter().map(|(_, most)| most).sum::<u64>(),
        ledger.violations.len()
    );
    Ok(ledger.violations.is_empty())
}

impl Stage {
    fn new(wish: &Wish, folder: &Path) -> io::Result<Stage> {
        let (server_port, receiver_port) = (free_port(), free_port());
        let file = folder.join("dwell.toml");
        let [hooked, _] = QUEUES;
        let text = format!(
            "[[sinks]]\nname = \"receiver\"\nqueues = [\"{hooked}\"]\nkind = \"webhook\"\n\
             url = \"http://127.0.0.1:{receiver_port}/\"\nconcurrency = {IN_FLIGHT}\n"
        );
        std::fs::write(&file, text)?;
        let mut dwell = wish.dwell.clone();
        dwell.serve.extend(["--config".to_owned(), file.display().to_string()]);
        Ok(Stage {
            dwell,
            folder: folder.to_path_buf(),
            server_port,
            receiver_port,
            clock: SystemClock::new(),
        })
    }

    fn log(&self, way: Way) -> PathBuf {
        self.folder.join(match way {
            Way::Webhook => "receiver.log",
            Way::Worker => "worker.log",
        })
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.server_port)
    }

    fn start(&self) -> io::Result<Parts> {
        Ok(Parts { receiver: self.receiver()?, server: self.server()?, worker: self.worker()? })
    }

    fn server(&self) -> io::Result<Server> {
        Server::start(&self.dwell, &self.folder.join("data"), self.server_port)
    }

    fn worker(&self) -> io::Result<Part> {
        Part::start(&["work", "--server", &self.url()], &self.log(Way::Worker))
    }

    fn receiver(&self) -> io::Result<Part> {
        Part::start(&["receive", "--port", &self.receiver_port.to_string()], &self.log(Way::Webhook))
    }

    /// Kills one of the parts, others with it at times, and starts them again.
    fn kill_some(&self, parts: Parts, round: u32, rng: &mut Random, kills: &mut Kills) -> io::Result<Parts> {
        let Parts { mut server, mut worker, mut receiver } = parts;
        pause_ms(&self.clock, rng.between(SPREAD_MS / 4, SPREAD_MS));
        let mut is_hit = |number: u32| round % 3 == number || rng.percent(25);
        let (hits_server, hits_worker, hits_receiver) = (is_hit(0), is_hit(1), is_hit(2));
        let down_ms = rng.below(300);
        // A receiver is down for a while with the server up, so that the breaker opens.
        if hits_receiver {
            receiver.kill()?;
            kills.receiver += 1;
        }
        if hits_worker {
            worker.kill()?;
            kills.worker += 1;
        }
        if hits_server {
            server.kill()?;
            kills.server += 1;
            pause_ms(&self.clock, down_ms);
            server = self.server()?;
        } else {
            pause_ms(&self.clock, down_ms);
        }
        if hits_worker {
            worker = self.worker()?;
        }
        if hits_receiver {
            receiver = self.receiver()?;
        }
        Ok(Parts { server, worker, receiver })
    }

    /// Puts these messages, again and again until each is answered, under idempotency keys.
    fn put(&self, numbers: Range<u64>, mut rng: Random) -> io::Result<Vec<Due>> {
        let client = self.client()?;
        let mut dues = Vec::new();
        let mut puts = Vec::new();
        for number in numbers {
            let way = if number % 2 == 0 { Way::Webhook } else { Way::Worker };
            let now = self.clock.now().wall;
            let due = now.after(rng.below(SPREAD_MS)).map_err(io::Error::other)?;
            dues.push(Due { number, way, at_ms: due.as_ms() });
            puts.push(put(number, way, due)?);
        }
        for batch in puts.chunks(BATCH) {
            self.put_batch(&client, batch.to_vec())?;
        }
        Ok(dues)
    }

    fn put_batch(&self, client: &Client, mut left: Vec<Put>) -> io::Result<()> {
        let over_ms = self.clock.now().mono_ms + PATIENCE_MS;
        loop {
            let answers = client.blocking().put(left.clone());
            let errors: Vec<(Put, Error)> = left
                .into_iter()
                .zip(answers)
                .filter_map(|(put, answer)| Some((put, answer.err()?)))
                .collect();
            let Some((_, error)) = errors.first() else { return Ok(()) };
            if self.clock.now().mono_ms > over_ms {
                return Err(io::Error::other(format!("no put is answered: {error}")));
            }
            left = errors.into_iter().map(|(put, _)| put).collect();
            pause_ms(&self.clock, AGAIN_MS);
        }
    }

    fn client(&self) -> io::Result<Client> {
        Client::builder(&self.url()).build().map_err(|error| io::Error::other(error.to_string()))
    }

    /// Waits until nothing is left that could be delivered, for as long as that may take. Returns what is left.
    fn await_end(&self, ledger: &Ledger) -> io::Result<Vec<String>> {
        let client = self.client()?;
        let last_ms = ledger.dues.iter().map(|due| due.at_ms).max().unwrap_or_default();
        let over_ms = self.clock.now().mono_ms + PATIENCE_MS;
        loop {
            let mut left = Vec::new();
            let mut has_dead_alone = true;
            for queue in QUEUES {
                match client.blocking().stats(name(queue)) {
                    Ok(stats) if stats.counts == StateCounts::default() => {}
                    Ok(stats) => {
                        let alone = StateCounts { dead: stats.counts.dead, ..StateCounts::default() };
                        has_dead_alone &= stats.counts == alone;
                        left.push(format!("{queue}: {:?}", stats.counts));
                    }
                    Err(Error::UnknownQueue { .. }) => {}
                    Err(error) => {
                        has_dead_alone = false;
                        left.push(format!("{queue}: {error}"));
                    }
                }
            }
            let is_due = self.clock.now().wall.as_ms() > last_ms;
            if (is_due && has_dead_alone) || self.clock.now().mono_ms > over_ms {
                return Ok(left);
            }
            pause_ms(&self.clock, AGAIN_MS);
        }
    }
}

fn name(queue: &str) -> QueueName {
    queue.parse().expect("it is a name, and a constant")
}

fn put(number: u64, way: Way, due: Timestamp) -> io::Result<Put> {
    let idempotency_key = IdempotencyKey::new(&format!("number:{number}")).map_err(io::Error::other)?;
    let body = log::body(number, due.as_ms());
    Ok(Put {
        when: When::At(due),
        idempotency_key: Some(idempotency_key),
        ..Put::new(name(way.queue()), body.into_bytes())
    })
}

//! `kill`: rounds of `kill -9` of the real server under mixed load over HTTP, with an oracle that checks every answer.
//!
//! # Layout
//! - `beanstalkd/`: the same over beanstalkd's protocol, with its own ledger
//! - `delivery/`: server, worker and receiver killed while messages are delivered
//! - `client`: a thread that sends commands and reports to the oracle
//! - `wire`: commands as HTTP requests, and answers in the oracle's terms
//! - `audit`: reports all messages of the server to the oracle after a restart

mod audit;
mod beanstalkd;
mod client;
pub(crate) mod delivery;
mod wire;

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use dwell_model::Wake;
use dwell_testkit::Random;
use dwell_time::{Clock as _, SystemClock};

use self::client::Client;
use crate::oracle::{Oracle, Reading, Rules};
use crate::server::{Binary, ClientGate, OverOnDrop, Server};
use crate::workload::Pool;

/// The options of a run.
#[derive(Clone, Debug)]
pub(crate) struct KillOptions {
    /// The number of kills.
    pub(crate) rounds: u32,
    /// The seed of all random choices.
    pub(crate) seed: u64,
    /// Do not kill the server: only pause the clients at the end of each round. This is the control experiment, and also
    /// tests a server that stores nothing on disk.
    pub(crate) spare: bool,
    /// The protocol of the load.
    pub(crate) protocol: Protocol,
    /// The server under test.
    pub(crate) dwell: Binary,
}

/// The protocol of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Protocol {
    /// All commands of the contract
    Http,
    /// Jobs that are put, reserved, deleted, released, buried and kicked
    Beanstalkd,
}

/// The number of client threads.
const CLIENTS: usize = 8;
/// The timeout without any progress, after which the run fails.
const PATIENCE: Duration = Duration::from_secs(120);
/// The longest duration of a round, if the machine is too slow for the planned number of answers.
const ROUND: Duration = Duration::from_secs(20);

/// The state shared by all threads.
#[derive(Debug)]
struct KillShared {
    oracle: Mutex<Oracle>,
    pool: Mutex<Pool>,
    gate: ClientGate,
    clock: SystemClock,
}

impl KillShared {
    fn oracle(&self) -> MutexGuard<'_, Oracle> {
        // A thread that panicked fails the run anyway.
        self.oracle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The machine's wall clock is not stepped during a run, so it serves as both clocks.
    fn now(&self) -> Reading {
        let wall = self.clock.now().wall.as_ms();
        Reading { wall, mono: wall }
    }
}

/// Runs the rounds. Returns true if nothing was violated.
///
/// # Errors
/// If something other than a promise of dwell fails.
pub(crate) fn run(wish: &KillOptions) -> io::Result<bool> {
    match wish.protocol {
        Protocol::Http => over_http(wish),
        Protocol::Beanstalkd => beanstalkd::run(wish),
    }
}

fn over_http(wish: &KillOptions) -> io::Result<bool> {
    println!(
        "seed {}; the same choices again, though threads never meet twice in the same way: dwell-sim kill --rounds {} --seed {}",
        wish.seed, wish.rounds, wish.seed
    );
    let directory = tempfile::Builder::new().prefix("dwell-kill-").tempdir()?;
    let data = directory.path().join("data");
    // Leases run on the monotonic clock, but their ends are reported by the wall clock, which NTP slews.
    let rules = Rules { lease_tolerance_ms: 25, one_clock: true, ..Rules::default() };
    let shared = KillShared {
        oracle: Mutex::new(Oracle::new(rules)),
        pool: Mutex::new(Pool::default()),
        gate: ClientGate::new(CLIENTS),
        clock: SystemClock::new(),
    };
    let mut rng = Random::of(wish.seed, u64::MAX);
    let rounds = thread::scope(|scope| -> io::Result<u32> {
        let _over = OverOnDrop(&shared.gate);
        for number in 0..CLIENTS as u64 {
            let shared = &shared;
            scope.spawn(move || Client::new(shared, Random::of(wish.seed, number)).run());
        }
        let mut server = Server::start(&wish.dwell, &data, 0)?;
        for round in 0..=wish.rounds {
            audit::audit(&shared, &server.client()?)?;
            if round == wish.rounds || !shared.oracle().violations().is_empty() {
                return Ok(round);
            }
            shared.gate.open(server.client()?);
            shared.gate.await_answers(rng.between(20, 1_500), ROUND);
            server = if wish.spare {
                close(&shared.gate)?;
                server
            } else {
                pause_ms(&shared.clock, rng.below(4));
                server.kill()?;
                close(&shared.gate)?;
                shared.oracle().killed();
                Server::start(&wish.dwell, &data, 0)?
            };
        }
        unreachable!("the last round returns")
    })?;
    let oracle = shared.oracle();
    for violation in oracle.violations().iter().take(5) {
        println!("VIOLATION {violation}");
    }
    let counts = oracle.counts();
    println!(
        "rounds {rounds}, acknowledged {}, unknown {}, redelivered {}, violations {}",
        counts.acknowledged,
        counts.unknown,
        counts.redelivered,
        oracle.violations().len()
    );
    Ok(oracle.violations().is_empty())
}

/// Waits until no request is in flight.
fn close(gate: &ClientGate) -> io::Result<()> {
    if gate.close(PATIENCE) {
        return Ok(());
    }
    Err(io::Error::other("a client's request did not end with its server"))
}

/// A random pause, so that the kill does not always follow an answer.
fn pause_ms(clock: &SystemClock, ms: u64) {
    let mut sleeper = clock.sleeper();
    let until_ms = clock.now().mono_ms + ms;
    while clock.now().mono_ms < until_ms {
        sleeper.sleep(Wake { wall: None, mono_ms: Some(until_ms) });
    }
}

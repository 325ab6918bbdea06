//! `kill --protocol beanstalkd`: rounds of `kill -9` of the real server under load over beanstalkd's protocol.
//!
//! Every job that was `INSERTED` exists after the restart, with its id, tube, priority, delay, TTR and body; every job
//! that was `DELETED` does not. A command without a reply may or may not have taken effect.
//!
//! # Layout
//! - `wire`: the protocol's lines
//! - `ledger`: the answers so far, and the states of jobs that they allow
//! - `worker`: one connection that sends commands and reports to the ledger
//! - `audit`: checks all jobs of the server after a restart

mod audit;
mod ledger;
mod wire;
mod worker;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

use dwell_testkit::Random;
use dwell_time::{Clock as _, SystemClock};

use self::ledger::JobLedger;
use self::worker::Worker;
use super::{KillOptions, ROUND, pause_ms};
use crate::server::Server;

/// The number of connections that send commands.
const WORKERS: u64 = 6;

/// The state shared by all threads.
#[derive(Debug)]
struct BeanstalkdShared {
    ledger: Mutex<JobLedger>,
    clock: SystemClock,
    /// Whether connections end because the server is being killed.
    killing: AtomicBool,
}

impl BeanstalkdShared {
    fn ledger(&self) -> MutexGuard<'_, JobLedger> {
        // A thread that panicked fails the run anyway.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> i64 {
        self.clock.now().wall.as_ms()
    }
}

/// Runs the rounds. Returns true if nothing was violated.
///
/// # Errors
/// If something other than a promise of dwell fails.
pub(super) fn run(wish: &KillOptions) -> io::Result<bool> {
    println!(
        "seed {}; the same choices again, though threads never meet twice in the same way: dwell-sim kill --protocol \
         beanstalkd --rounds {} --seed {}",
        wish.seed, wish.rounds, wish.seed
    );
    if wish.spare {
        return Err(io::Error::other("--spare is there with --protocol http alone"));
    }
    let directory = tempfile::Builder::new().prefix("dwell-kill-").tempdir()?;
    let data = directory.path().join("data");
    let mut dwell = wish.dwell.clone();
    dwell.serve.extend(["--beanstalkd".to_owned(), "127.0.0.1:0".to_owned()]);
    let shared = BeanstalkdShared {
        ledger: Mutex::new(JobLedger::default()),
        clock: SystemClock::new(),
        killing: AtomicBool::new(false),
    };
    let mut rng = Random::of(wish.seed, u64::MAX);
    let mut server = Server::start(&dwell, &data, 0)?;
    let mut rounds = 0;
    loop {
        audit::audit(&shared, address(&server)?, rounds == wish.rounds)?;
        if rounds == wish.rounds || !shared.ledger().violations.is_empty() {
            break;
        }
        round(&shared, wish.seed, rounds, &mut rng, server)?;
        shared.ledger().killed();
        server = Server::start(&dwell, &data, 0)?;
        rounds += 1;
    }
    let ledger = shared.ledger();
    for violation in ledger.violations.iter().take(5) {
        println!("VIOLATION {violation}");
    }
    let counts = &ledger.counts;
    println!(
        "rounds {rounds}, inserted {}, deleted {}, unknown {}, violations {}",
        counts.inserted,
        counts.deleted,
        counts.unknown,
        ledger.violations.len()
    );
    Ok(ledger.violations.is_empty())
}

fn address(server: &Server) -> io::Result<SocketAddr> {
    server
        .beanstalkd()
        .ok_or_else(|| io::Error::other("the server does not say where it speaks beanstalkd's protocol"))
}

/// One round: load, and a kill at a random moment.
fn round(
    shared: &BeanstalkdShared,
    seed: u64,
    round: u32,
    rng: &mut Random,
    server: Server,
) -> io::Result<()> {
    let address = address(&server)?;
    let enough = rng.between(20, 1_500);
    shared.killing.store(false, Ordering::SeqCst);
    thread::scope(|scope| {
        let (answered, answers) = mpsc::channel();
        for number in 0..WORKERS {
            let rng = Random::of(seed, (u64::from(round) + 1) * WORKERS + number);
            let worker = Worker::connect(shared, rng, number, address, answered.clone())?;
            scope.spawn(move || worker.run());
        }
        drop(answered);
        let over_ms = shared.clock.now().mono_ms + ROUND.as_millis() as u64;
        let mut heard = 0;
        while heard < enough && shared.clock.now().mono_ms < over_ms {
            match answers.recv_timeout(ROUND) {
                Ok(count) => heard += count,
                // All workers have ended, each with a violation.
                Err(_) => break,
            }
        }
        pause_ms(&shared.clock, rng.below(4));
        shared.killing.store(true, Ordering::SeqCst);
        server.kill()?;
        Ok(())
    })
}

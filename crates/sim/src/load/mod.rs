//! `load`: puts a file of messages through the command line while the server is killed again and again and consumers take
//! due messages; at the end every line is accounted for.
//!
//! # Layout
//! - `ledger`: the state of each line, and the checks on it
//! - `order`: checks the order of a queue's messages
//! - `feeder`: runs `dwell put --from` and reads its answers
//! - `consumer`: takes and acks, across kills
//! - `inventory`: reads back what is left in the server at the end

mod consumer;
mod feeder;
mod inventory;
mod ledger;
mod order;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use dwell_model::Wake;
use dwell_testkit::Random;
use dwell_time::{Clock as _, SystemClock};

use self::consumer::Consumer;
use self::feeder::Feeder;
use self::ledger::LoadLedger;
use crate::jsonl;
use crate::server::{Binary, ClientGate, OverOnDrop, Server};

/// The options of a run.
#[derive(Clone, Debug)]
pub(crate) struct LoadOptions {
    /// The number of lines of the file.
    pub(crate) lines: u64,
    /// The number of kills while the file is put.
    pub(crate) kills: u32,
    /// The seed of all random choices.
    pub(crate) seed: u64,
    /// The server under test.
    pub(crate) dwell: Binary,
}

/// The number of consumers. Each has its share of the queues: a queue has only one consumer, so that its order can be checked.
const CONSUMERS: u32 = 4;
/// The lease of a take, in ms: longer than a restart takes, so that no ack is too late because of one.
const LEASE_MS: u64 = 10_000;
/// The timeout without any progress, after which the run fails.
const PATIENCE: Duration = Duration::from_secs(120);

/// Makes the file, puts it, kills, and checks. Returns true if nothing was violated.
///
/// # Errors
/// If something other than a promise of dwell fails: no binary, a full disk, a server that does not start.
pub(crate) fn run(wish: &LoadOptions) -> io::Result<bool> {
    let clock = SystemClock::new();
    let directory = tempfile::Builder::new().prefix("dwell-load-").tempdir()?;
    let file = directory.path().join("messages.jsonl");
    let written = jsonl::write(&file, wish.seed, wish.lines)?;
    println!(
        "seed {}: {} lines, {} bytes, {} with a key; replay with: dwell-sim load --lines {} --kills {} --seed {}",
        wish.seed, written.lines, written.bytes, written.keyed, wish.lines, wish.kills, wish.seed
    );

    let data = directory.path().join("data");
    let mut server = Server::start(&wish.dwell, &data, 0)?;
    let port = server.address().port();
    let ledger = Arc::new(Mutex::new(LoadLedger::new(wish.seed, wish.lines)));
    let gate = ClientGate::new(CONSUMERS as usize);
    let started_ms = clock.now().mono_ms;
    let answers = directory.path().join("answers.jsonl");
    let mut feeder = Feeder::start(&wish.dwell.path, &file, &answers, port, Arc::clone(&ledger))?;
    let mut peak_rss = 0;
    let mut restart_ms = 0;

    let (server, fed_ms) = thread::scope(|scope| -> io::Result<(Server, u64)> {
        let over = OverOnDrop(&gate);
        for number in 0..CONSUMERS {
            let consumer = Consumer::new(number, CONSUMERS, &gate, &ledger, &clock);
            scope.spawn(move || consumer.run());
        }
        gate.open(server.client()?);
        for at in moments(wish) {
            feeder.await_lines(at, PATIENCE)?;
            peak_rss = server.kill()?.max(peak_rss);
            if !gate.close(PATIENCE) {
                return Err(io::Error::other("a consumer's request did not end with its server"));
            }
            lock(&ledger).killed();
            let from_ms = clock.now().mono_ms;
            server = Server::start(&wish.dwell, &data, port)?;
            restart_ms = restart_ms.max(clock.now().mono_ms - from_ms);
            println!("killed after {at} answers, back after {} ms", clock.now().mono_ms - from_ms);
            gate.open(server.client()?);
        }
        feeder.finish(PATIENCE)?;
        let fed_ms = clock.now().mono_ms - started_ms;
        await_drained(&ledger, &clock)?;
        drop(over);
        Ok((server, fed_ms))
    })?;

    let took_ms = clock.now().mono_ms - started_ms;
    inventory::read_back(&server, &ledger)?;
    peak_rss = server.peak_rss().max(peak_rss);
    drop(server);
    let mut ledger = lock(&ledger);
    ledger.finish();
    report(&ledger, wish, fed_ms, took_ms, peak_rss, restart_ms);
    Ok(ledger.violations().is_empty())
}

fn report(
    ledger: &LoadLedger,
    wish: &LoadOptions,
    fed_ms: u64,
    took_ms: u64,
    peak_rss: u64,
    restart_ms: u64,
) {
    for violation in ledger.violations().iter().take(20) {
        println!("VIOLATION {violation}");
    }
    let counts = ledger.counts();
    let per_s = |count: u64, ms: u64| count.saturating_mul(1_000) / ms.max(1);
    println!(
        "fed in {} s ({} lines a second), {} deliveries ({} a second), longest restart {restart_ms} ms",
        fed_ms / 1_000,
        per_s(counts.answered, fed_ms),
        counts.delivered,
        per_s(counts.delivered, took_ms)
    );
    println!("server RSS: {} MiB at most", peak_rss / (1024 * 1024));
    println!(
        "{} left in the server, {} redelivered after a lease that a kill cut off, {} after one that was too slow",
        counts.left, counts.redelivered, counts.lapsed
    );
    println!(
        "{} lines, {} answered, {} delivered, {} redelivered, {} violations",
        wish.lines,
        counts.answered,
        counts.delivered_lines,
        counts.redelivered,
        ledger.violations().len()
    );
}

/// The numbers of answers after which the server is killed: anywhere in the file.
fn moments(wish: &LoadOptions) -> Vec<u64> {
    let mut rng = Random::of(wish.seed, u64::MAX);
    let mut moments: Vec<u64> = (0..wish.kills).map(|_| rng.below(wish.lines * 95 / 100 + 1)).collect();
    moments.sort_unstable();
    moments
}

/// Waits until every consumer has caught up with what is due, and until
/// messages whose leases were lost in a kill are ready again.
fn await_drained(ledger: &Mutex<LoadLedger>, clock: &SystemClock) -> io::Result<()> {
    let mut sleeper = clock.sleeper();
    let from_ms = clock.now().mono_ms + LEASE_MS + 1_000;
    let mut progress = (lock(ledger).counts().delivered, clock.now().mono_ms);
    loop {
        let wake = clock.now().mono_ms + 250;
        while clock.now().mono_ms < wake {
            sleeper.sleep(Wake { wall: None, mono_ms: Some(wake) });
        }
        if lock(ledger).caught_up_since(from_ms, CONSUMERS) {
            return Ok(());
        }
        let delivered = lock(ledger).counts().delivered;
        if delivered != progress.0 {
            progress = (delivered, wake);
        } else if wake > progress.1.max(from_ms) + PATIENCE.as_millis() as u64 {
            return Err(io::Error::other("consumers neither get anything nor catch up"));
        }
    }
}

fn lock(ledger: &Mutex<LoadLedger>) -> std::sync::MutexGuard<'_, LoadLedger> {
    // A thread that panicked fails the run anyway.
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

//! `load`: a file of messages goes in through the command line while the server is killed again and again
//! and consumers take what falls due; at the end every line is accounted for.
//!
//! # Layout
//! - `ledger`: what is known of each line, and what may not happen to it
//! - `order`: whether a queue's messages came in order
//! - `feeder`: `dwell put --from`, and its answers as they come
//! - `consumer`: takes and acks, across kills
//! - `inventory`: what is left in the server at the end

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
use self::ledger::Ledger;
use crate::jsonl;
use crate::server::{Binary, Gate, OverOnDrop, Server};

/// What to do.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    /// Lines of the file.
    pub(crate) lines: u64,
    /// How often the server is killed while the file goes in.
    pub(crate) kills: u32,
    /// Where chance comes from.
    pub(crate) seed: u64,
    /// What is tried.
    pub(crate) dwell: Binary,
}

/// Consumers, each with its share of the queues: so a queue is taken from by one alone, and its order shows.
const CONSUMERS: u32 = 4;
/// How long consumers hold a message: longer than a restart takes, so that no ack comes too late for it.
const LEASE_MS: u64 = 10_000;
/// How long nothing may happen before the run is given up.
const PATIENCE: Duration = Duration::from_secs(120);

/// Makes the file, feeds it, kills, and checks. True if nothing was violated.
///
/// # Errors
/// If something other than dwell's promises broke: no binary, a disk that is full, a server that does not start.
pub(crate) fn run(wish: &Wish) -> io::Result<bool> {
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
    let ledger = Arc::new(Mutex::new(Ledger::new(wish.seed, wish.lines)));
    let gate = Gate::new(CONSUMERS as usize);
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

fn report(ledger: &Ledger, wish: &Wish, fed_ms: u64, took_ms: u64, peak_rss: u64, restart_ms: u64) {
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

/// After how many answers the server is killed, each time: anywhere in the file.
fn moments(wish: &Wish) -> Vec<u64> {
    let mut rng = Random::of(wish.seed, u64::MAX);
    let mut moments: Vec<u64> = (0..wish.kills).map(|_| rng.below(wish.lines * 95 / 100 + 1)).collect();
    moments.sort_unstable();
    moments
}

/// Waits until every consumer has caught up with what is due, and until whatever a kill left leased to nobody
/// has come back.
fn await_drained(ledger: &Mutex<Ledger>, clock: &SystemClock) -> io::Result<()> {
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

fn lock(ledger: &Mutex<Ledger>) -> std::sync::MutexGuard<'_, Ledger> {
    // A thread that panicked fails the run by itself.
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

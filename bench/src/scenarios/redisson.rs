//! `redisson`: Redisson's keys, served by us and by its own scripts, on the same Redis.

use dwell_model::Timestamp;
use dwell_redis::Link;
use dwell_redisson::codec::Raw;
use dwell_redisson::{DelayedQueue, Keys, Mover, MoverOptions, When};
use dwell_testkit::redis::Server;
use tokio::runtime::Runtime;

use super::Scenario;
use crate::Result;
use crate::peers::redisson_scripts::RedissonScripts;
use crate::report::Better;
use crate::run::{Run, Side};
use crate::stopwatch::Stopwatch;
use crate::workload::Items;

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "redisson",
    what: "Redisson's delayed queue on its keys: ours beside its own scripts",
    run,
};

/// Offers per call, or concurrent offers.
const BATCH: usize = 64;
/// 2100: not due in any run.
const LATER_MS: i64 = 4_102_444_800_000;
/// 1970: due, one millisecond apart.
const DUE_MS: i64 = 1_000;

fn run(run: &mut Run) -> Result<()> {
    run.note(
        "one Redis of its own a round, nothing on disk; payloads of 128 bytes; clients share the machine",
    );
    let count = run.scaled(100_000);
    run.contest(
        &format!("offers, {BATCH} under way, {count} in all"),
        "per_s",
        Better::Higher,
        &mut [
            Side::new("dwell", |_| Ours::start()?.offer(&payloads(count), LATER_MS, 0)),
            Side::new("redisson-scripts", |_| Theirs::start()?.offer(&payloads(count), LATER_MS, 0)),
        ],
    )?;
    let due = run.scaled(10_000);
    for (later, work) in [(0, "alone"), (run.scaled(100_000), "offered last")] {
        let load = Load { due, later };
        let (mut rates, mut longest) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        for _ in 0..run.rounds() {
            for (side, measured) in [load.ours()?, load.theirs()?].into_iter().enumerate() {
                rates[side].push(measured.per_s);
                longest[side].push(measured.longest_us);
            }
        }
        let work = format!("{due} due, {work}, {later} due later");
        for (metric, better, [ours, theirs]) in
            [("per_s", Better::Higher, rates), ("longest_script_us", Better::Lower, longest)]
        {
            run.beside(&work, metric, better, ours, "redisson-scripts", theirs);
        }
    }
    Ok(())
}

fn payloads(count: u64) -> Vec<Vec<u8>> {
    Items::new(count).map(|item| item.body.to_vec()).collect()
}

/// Due elements that were offered after some that are not due.
#[derive(Clone, Copy)]
struct Load {
    due: u64,
    later: u64,
}

struct Measured {
    per_s: f64,
    longest_us: f64,
}

impl Load {
    fn ours(self) -> Result<Measured> {
        let ours = Ours::start()?;
        ours.offer(&payloads(self.later), LATER_MS, 0)?;
        ours.offer(&payloads(self.due), DUE_MS, 1)?;
        reset(&ours.server);
        let watch = Stopwatch::start();
        let mut mover =
            Mover::new(ours.link.clone(), keys()?, MoverOptions { layout: None, ..Default::default() });
        let (moved, _) = ours.runtime.block_on(mover.pass())?;
        let per_s = watch.per_second(moved as u64);
        self.measured(&ours.server, per_s)
    }

    fn theirs(self) -> Result<Measured> {
        let mut theirs = Theirs::start()?;
        theirs.offer(&payloads(self.later), LATER_MS, 0)?;
        theirs.offer(&payloads(self.due), DUE_MS, 1)?;
        reset(&theirs.server);
        let watch = Stopwatch::start();
        theirs.scripts.transfer(LATER_MS - 1)?;
        let per_s = watch.per_second(self.due);
        self.measured(&theirs.server, per_s)
    }

    fn measured(self, server: &Server, per_s: f64) -> Result<Measured> {
        let ready: u64 = redis::from_redis_value(server.command(&["LLEN", "bench"]))?;
        if ready != self.due {
            return Err(format!("{ready} of {} were moved", self.due).into());
        }
        let slow: Vec<redis::Value> = redis::from_redis_value(server.command(&["SLOWLOG", "GET", "-1"]))?;
        let mut longest_us = 0.0_f64;
        for entry in slow {
            if let redis::Value::Array(fields) = entry {
                longest_us = longest_us.max(redis::from_redis_value(fields[2].clone())?);
            }
        }
        Ok(Measured { per_s, longest_us })
    }
}

/// Clears the server's slow log, and makes it record every command from now on.
fn reset(server: &Server) {
    server.command(&["SLOWLOG", "RESET"]);
    server.command(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    server.command(&["CONFIG", "SET", "slowlog-max-len", "100000"]);
}

fn keys() -> Result<Keys> {
    Ok(Keys::new("bench")?)
}

struct Ours {
    server: Server,
    runtime: Runtime,
    link: Link,
}

impl Ours {
    fn start() -> Result<Ours> {
        let server = Server::start();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let link = runtime.block_on(Link::open(server.address()))?;
        Ok(Ours { server, runtime, link })
    }

    /// Offers per second; each is due `step_ms` after the one before.
    fn offer(&self, payloads: &[Vec<u8>], due_ms: i64, step_ms: i64) -> Result<f64> {
        let queue = DelayedQueue::new(self.link.clone(), keys()?, Raw);
        let mut dues = (0..).map(|n| due_ms + n * step_ms);
        let mut batches = Vec::new();
        for some in payloads.chunks(BATCH) {
            let mut batch = Vec::with_capacity(BATCH);
            for (payload, due_ms) in some.iter().zip(&mut dues) {
                batch.push((payload.clone(), When::At(Timestamp::from_ms(due_ms)?)));
            }
            batches.push(batch);
        }
        let watch = Stopwatch::start();
        for batch in &batches {
            self.runtime.block_on(queue.offer_many(batch))?;
        }
        Ok(watch.per_second(payloads.len() as u64))
    }
}

struct Theirs {
    server: Server,
    scripts: RedissonScripts,
}

impl Theirs {
    fn start() -> Result<Theirs> {
        let server = Server::start();
        let scripts = RedissonScripts::connect(&server.url())?;
        Ok(Theirs { server, scripts })
    }

    fn offer(&mut self, payloads: &[Vec<u8>], due_ms: i64, step_ms: i64) -> Result<f64> {
        let mut dues = (0..).map(|n| due_ms + n * step_ms);
        let watch = Stopwatch::start();
        for some in payloads.chunks(BATCH) {
            let batch: Vec<_> = some.iter().map(Vec::as_slice).zip(&mut dues).collect();
            self.scripts.offer(&batch)?;
        }
        Ok(watch.per_second(payloads.len() as u64))
    }
}

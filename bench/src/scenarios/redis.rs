//! `redis`: the native store compared with Redisson, on the same kind of Redis: a separate server per measurement,
//! without persistence.
//!
//! - `redisson-scripts`: Redisson's own scripts over one connection, called as its client calls them
//! - `redisson`: Redisson 4.7.0 in a JVM that lives for the whole run and has done each work before it is measured
//!
//! The comparison is of the same work for the user, but not of the same guarantees: Redisson's take removes an element
//! from the destination, so there is nothing to ack, and an element is lost with its consumer. Ours grants a lease, and
//! its ack is included. Both sides offer bodies of 128 random bytes, due at random within a day: ours with one call per
//! batch, Redisson, which has no batch call, with as many concurrent calls. The elements that are taken are spread at
//! random among the pending ones; up to 100 are moved and handed out per call, on all sides.

use dwell_model::QueueName;
use dwell_testkit::redis::Server;

use super::Scenario;
use crate::Result;
use crate::ours_redis::{Native, put_at};
use crate::peers::redisson::Redisson;
use crate::peers::redisson_scripts::{LIMIT, NAME, RedissonScripts};
use crate::report::Better;
use crate::run::{Run, Side};
use crate::stopwatch::{Stopwatch, wall_us};
use crate::workload::{DAY_MS, Item, Items, Tally};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "redis",
    what: "the native store on Redis beside Redisson's scripts and Redisson: puts, take + ack",
    run,
};

/// Messages per call, or concurrent offers.
const TOGETHER: usize = 64;
/// The number of messages taken from each backlog.
const TAKEN: u64 = 4_000;
/// The messages that are not taken are due at least this much later.
const APART_MS: i64 = 3_600_000;
/// Messages per call where time is not measured.
const FILL: usize = 1_024;

fn run(run: &mut Run) -> Result<()> {
    run.note("a Redis of its own a measurement, nothing on disk; 128 random bytes a body; clients share the machine");
    run.note("scripts are known to Redis before they are measured, on all sides");
    run.note("Redisson's take removes the element and has no ack; ours leases it, and acks are counted in");
    let mut java = match warm() {
        Ok(java) => {
            run.note(
                "redisson: 4.7.0 with its defaults, -Xms1g -Xmx1g, each work done once before it is measured",
            );
            Some(java)
        }
        Err(reason) => {
            run.note(format!("without Redisson itself: {reason}"));
            None
        }
    };
    for (together, count) in [(TOGETHER, run.scaled(100_000)), (1, run.scaled(20_000))] {
        let work = match together {
            1 => format!("put, one at a time, {count} in all"),
            _ => format!("put, batches of {together}, {count} in all"),
        };
        let mut sides = vec![
            Side::new("dwell", move |_| put_ours(count, together)),
            Side::new("redisson-scripts", move |_| put_scripts(count, together)),
        ];
        if let Some(java) = &mut java {
            sides.push(Side::new("redisson", move |_| {
                java.offer(Server::start().port(), NAME, count, together)
            }));
        }
        run.contest(&work, "per_s", Better::Higher, &mut sides)?;
    }
    for pending in [run.scaled(10_000), run.scaled(300_000)] {
        let backlog = Backlog::new(pending, run.scaled(TAKEN))?;
        let work = format!("take + ack {} of {pending} pending", backlog.due);
        let mut sides = vec![
            Side::new("dwell", |_| backlog.ours()),
            Side::new("redisson-scripts", |_| backlog.scripts()),
        ];
        if let Some(java) = &mut java {
            sides.push(Side::new("redisson", |_| backlog.redisson(java)));
        }
        run.contest(&work, "per_s", Better::Higher, &mut sides)?;
    }
    Ok(())
}

/// Lets Java's compiler see each work before it is measured.
fn warm() -> Result<Redisson> {
    let mut java = Redisson::start()?;
    java.offer(Server::start().port(), NAME, 50_000, TOGETHER)?;
    java.offer(Server::start().port(), NAME, 10_000, 1)?;
    Backlog::new(10_000, 5_000)?.redisson(&mut java)?;
    Ok(java)
}

fn put_ours(count: u64, together: usize) -> Result<f64> {
    let (native, queue) = (Native::start()?, queue()?);
    native.load_scripts()?;
    let (items, today_ms) = (items(count), today_ms());
    let mut batches = Vec::with_capacity(items.len() / together + 1);
    for batch in items.chunks(together) {
        let puts = batch.iter().map(|item| put_at(&queue, &item.body, today_ms + item.due_ms as i64));
        batches.push(puts.collect::<Result<Vec<_>>>()?);
    }
    let watch = Stopwatch::start();
    for batch in batches {
        native.put(batch)?;
    }
    Ok(watch.per_second(count))
}

fn put_scripts(count: u64, together: usize) -> Result<f64> {
    let server = Server::start();
    let mut scripts = RedissonScripts::connect(&server.url())?;
    let (items, today_ms) = (items(count), today_ms());
    let watch = Stopwatch::start();
    for batch in items.chunks(together) {
        let offers = batch.iter().map(|item| (&item.body[..], today_ms + item.due_ms as i64));
        scripts.offer(&offers.collect::<Vec<_>>())?;
    }
    Ok(watch.per_second(count))
}

fn items(count: u64) -> Vec<Item> {
    Items::new(count).collect()
}

fn queue() -> Result<QueueName> {
    Ok(NAME.parse()?)
}

/// An instant before which nothing is due, in any run.
fn today_ms() -> i64 {
    wall_us() / 1_000 + APART_MS
}

/// Pending messages, the earliest of which are due.
struct Backlog {
    items: Vec<Item>,
    due: u64,
    /// The last instant of those that are due.
    last_ms: u64,
    /// The sum of those that are due.
    tally: Tally,
}

impl Backlog {
    fn new(pending: u64, due: u64) -> Result<Backlog> {
        let items = items(pending);
        let mut dues: Vec<u64> = items.iter().map(|item| item.due_ms).collect();
        dues.sort_unstable();
        let last_ms = *dues.get(due as usize - 1).ok_or("more are due than there are")?;
        let (mut tally, mut count) = (Tally::default(), 0);
        for item in items.iter().filter(|item| item.due_ms <= last_ms) {
            tally.add(&item.body);
            count += 1;
        }
        Ok(Backlog { items, due: count, last_ms, tally })
    }

    /// Bodies and instants, in the order in which they are put: the earliest are past, the others hours away.
    fn dues(&self) -> impl Iterator<Item = (&[u8], i64)> {
        let now_ms = wall_us() / 1_000;
        self.items.iter().map(move |item| {
            let from_last_ms = item.due_ms as i64 - self.last_ms as i64;
            let apart_ms = if from_last_ms <= 0 { -(DAY_MS as i64) } else { APART_MS };
            (&item.body[..], now_ms + from_last_ms + apart_ms)
        })
    }

    fn ours(&self) -> Result<f64> {
        let (native, queue) = (Native::start()?, queue()?);
        native.load_scripts()?;
        let puts = self.dues().map(|(body, due_ms)| put_at(&queue, body, due_ms));
        for batch in puts.collect::<Result<Vec<_>>>()?.chunks(FILL) {
            native.put(batch.to_vec())?;
        }
        let mut tally = Tally::default();
        let watch = Stopwatch::start();
        loop {
            let receipts = native.take(&queue, LIMIT, &mut tally)?;
            if receipts.is_empty() {
                break;
            }
            native.ack(receipts)?;
        }
        let per_s = watch.per_second(self.due);
        self.check(tally)?;
        Ok(per_s)
    }

    fn scripts(&self) -> Result<f64> {
        let (_server, mut scripts) = self.offered()?;
        let mut tally = Tally::default();
        let watch = Stopwatch::start();
        loop {
            let more = scripts.transfer_once(wall_us() / 1_000)?;
            scripts.poll(LIMIT)?.iter().for_each(|body| tally.add(body));
            if !more {
                break;
            }
        }
        let per_s = watch.per_second(self.due);
        self.check(tally)?;
        Ok(per_s)
    }

    /// On the Java side, Java counts the elements.
    fn redisson(&self, java: &mut Redisson) -> Result<f64> {
        let (server, _) = self.offered()?;
        java.take(server.port(), NAME, self.due)
    }

    /// Starts a Redis with the backlog as Redisson's clients would leave it.
    fn offered(&self) -> Result<(Server, RedissonScripts)> {
        let server = Server::start();
        let mut scripts = RedissonScripts::connect(&server.url())?;
        for batch in self.dues().collect::<Vec<_>>().chunks(FILL) {
            scripts.offer(batch)?;
        }
        Ok((server, scripts))
    }

    fn check(&self, tally: Tally) -> Result<()> {
        if tally == self.tally {
            return Ok(());
        }
        Err(format!("{} of {} that were due came, or others", tally.count, self.due).into())
    }
}

//! `engine-put`: durable puts in batches, due at random within a day.

use std::cell::RefCell;
use std::time::Duration;

use dwell_time::ManualClock;
use hdrhistogram::Histogram;

use super::Scenario;
use crate::Result;
use crate::ours::{Ours, start};
use crate::peers::bare::Appender;
use crate::peers::{CACHE_BYTES, STORES};
use crate::report::Better;
use crate::run::{Run, Side};
use crate::stopwatch::Stopwatch;
use crate::workload::{Item, Items};

pub(crate) const SCENARIO: Scenario =
    Scenario { name: "engine-put", what: "durable puts, 128-byte bodies, batches of 1,024", run };

fn run(run: &mut Run) -> Result<()> {
    let count = run.scaled(10_000_000);
    let cache_bytes = run.scaled(CACHE_BYTES);
    run.note(format!("{count} messages of 128 random bytes, due at random within a day, one caller, a sync a batch of 1,024"));
    run.note(format!("cache of each peer: {cache_bytes} bytes"));
    let micros = RefCell::new(Histogram::<u64>::new(3)?);

    let mut sides = vec![
        Side::new("dwell", |run| {
            let ours = Ours::open(&run.empty_folder("dwell")?, &ManualClock::new(start()))?;
            put_all(run, "put: dwell", count, &mut micros.borrow_mut(), |items| ours.put(items))
        }),
        Side::new("bare", |run| {
            let mut bare = Appender::create(&run.empty_folder("bare")?)?;
            put_all(run, "put: bare", count, &mut unused()?, |items| bare.put(items))
        }),
    ];
    for store in STORES {
        sides.push(Side::new(store.name, move |run| {
            let mut peer = (store.open)(&run.empty_folder(store.name)?, cache_bytes)?;
            put_all(run, &format!("put: {}", store.name), count, &mut unused()?, |items| peer.put(items))
        }));
    }
    run.contest("put", "per_s", Better::Higher, &mut sides)?;
    drop(sides);
    run.latencies("put, a batch", &micros.borrow());
    run.note("put-steady, put-keyed: not yet; due files are off by default");
    Ok(())
}

fn unused() -> Result<Histogram<u64>> {
    Ok(Histogram::new(3)?)
}

/// Puts `count` items and answers how many a second; making the items is not counted.
fn put_all(
    run: &Run,
    label: &str,
    count: u64,
    micros: &mut Histogram<u64>,
    mut put: impl FnMut(&[Item]) -> Result<()>,
) -> Result<f64> {
    let (mut items, mut batch, mut spent) = (Items::new(count), Vec::new(), Duration::ZERO);
    let bar = run.progress(label, count);
    while items.batch(&mut batch) {
        let watch = Stopwatch::start();
        put(&batch)?;
        let took = watch.elapsed();
        spent += took;
        micros.record(u64::try_from(took.as_micros())?)?;
        bar.inc(batch.len() as u64);
    }
    bar.finish_and_clear();
    Ok(count as f64 / spent.as_secs_f64())
}

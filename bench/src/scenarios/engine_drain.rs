//! `engine-drain`: taking and acking a backlog that has fallen due, each batch of acks synced.

use std::time::Duration;

use dwell_time::ManualClock;

use super::Scenario;
use crate::Result;
use crate::ours::{Ours, start};
use crate::page_cache::drop_caches;
use crate::peers::bare::Drain;
use crate::peers::{CACHE_BYTES, STORES};
use crate::report::Better;
use crate::run::{Run, Side};
use crate::stopwatch::Stopwatch;
use crate::workload::{BATCH, DAY_MS, Item, Items, Tally};

pub(crate) const SCENARIO: Scenario =
    Scenario { name: "engine-drain", what: "take and ack of what has fallen due, acks synced", run };

fn run(run: &mut Run) -> Result<()> {
    let count = run.scaled(10_000_000);
    let cache_bytes = run.scaled(CACHE_BYTES);
    run.note(format!(
        "{count} messages of 128 random bytes, put in random order of due; batches of 1,024, one caller"
    ));
    run.note(
        "every side is closed, its files dropped from the page cache, and opened again before it is drained",
    );
    run.note(format!("cache of each peer: {cache_bytes} bytes"));
    let expected = Items::new(count).tally();

    let mut sides = vec![
        Side::new("dwell", |run| {
            let folder = run.empty_folder("dwell")?;
            let clock = ManualClock::new(start());
            let ours = Ours::open(&folder, &clock)?;
            fill(run, "fill: dwell", count, |items| ours.put(items))?;
            ours.close()?;
            drop_caches(&folder)?;
            let ours = Ours::open(&folder, &clock)?;
            clock.advance(DAY_MS);
            drain(run, "drain: dwell", expected, |tally| ours.take(BATCH, tally))
        }),
        Side::new("bare", |run| {
            let mut bare = Drain::prepare(&run.empty_folder("bare")?, Items::new(count))?;
            drain(run, "drain: bare", expected, |tally| bare.take(tally))
        }),
    ];
    for store in STORES {
        sides.push(Side::new(store.name, move |run| {
            let folder = run.empty_folder(store.name)?;
            let mut peer = (store.open)(&folder, cache_bytes)?;
            fill(run, &format!("fill: {}", store.name), count, |items| peer.put(items))?;
            drop(peer);
            drop_caches(&folder)?;
            let mut peer = (store.open)(&folder, cache_bytes)?;
            drain(run, &format!("drain: {}", store.name), expected, |tally| peer.take(BATCH, tally))
        }));
    }
    run.contest("drain, from the journal", "per_s", Better::Higher, &mut sides)?;
    drop(sides);
    run.note("drain from due files: not yet; there are none");
    Ok(())
}

/// Puts the items, which is not measured here.
fn fill(run: &Run, label: &str, count: u64, mut put: impl FnMut(&[Item]) -> Result<()>) -> Result<()> {
    let (mut items, mut batch) = (Items::new(count), Vec::new());
    let bar = run.progress(label, count);
    while items.batch(&mut batch) {
        put(&batch)?;
        bar.inc(batch.len() as u64);
    }
    bar.finish_and_clear();
    Ok(())
}

/// Takes batch after batch until nothing is left, and checks that all of it came.
fn drain(
    run: &Run,
    label: &str,
    expected: Tally,
    mut take: impl FnMut(&mut Tally) -> Result<usize>,
) -> Result<f64> {
    let mut tally = Tally::default();
    let mut spent = Duration::ZERO;
    let bar = run.progress(label, expected.count);
    loop {
        let watch = Stopwatch::start();
        let count = take(&mut tally)?;
        spent += watch.elapsed();
        if count == 0 {
            break;
        }
        bar.inc(count as u64);
    }
    bar.finish_and_clear();
    if tally != expected {
        return Err(
            format!("{label}: {} of {} came, or with other bytes", tally.count, expected.count).into()
        );
    }
    Ok(expected.count as f64 / spent.as_secs_f64())
}

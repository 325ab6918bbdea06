//! `engine-drain`: taking and acking a backlog that is due, with each batch of acks synced.

use std::cell::RefCell;
use std::time::Duration;

use dwell_time::ManualClock;
use serde_json::Value;

use super::Scenario;
use crate::Result;
use crate::mix::Mix;
use crate::ours::{MEMORY_LIMIT, Ours, start};
use crate::own_process::{PEAK_RSS, number};
use crate::page_cache::drop_caches;
use crate::parts::{BuildPlace, drain, fill};
use crate::peers::bare::Drain;
use crate::peers::{CACHE_BYTES, Kind, STORES};
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
        "every side is closed, its files dropped from the page cache, and opened again before it is drained; to open ours \
         reads the journal, and so its bodies come from the page cache then, where bare reads them from the disk",
    );
    run.note(format!("cache of each peer: {cache_bytes} bytes"));
    let expected = Items::new(count).tally();

    let mut sides = vec![
        Side::new("dwell", |run| {
            let folder = run.empty_folder("dwell")?;
            let clock = ManualClock::new(start());
            let ours = Ours::open(&folder, &clock)?;
            fill_all(run, "fill: dwell", count, |items| ours.put(items))?;
            ours.close()?;
            drop_caches(&folder)?;
            let ours = Ours::open(&folder, &clock)?;
            clock.advance(DAY_MS);
            drain_all(run, "drain: dwell", expected, |tally| ours.take(BATCH, tally))
        }),
        Side::new("bare", |run| {
            let mut bare = Drain::prepare(&run.empty_folder("bare")?, Items::new(count))?;
            drain_all(run, "drain: bare", expected, |tally| bare.take(tally))
        }),
    ];
    sides.extend(fjall().map(|store| store_side(store, count, cache_bytes, expected)));
    run.contest("drain, from the journal", "per_s", Better::Higher, &mut sides)?;
    drop(sides);
    from_tables(run, count, cache_bytes, expected)
}

/// The same with bounded memory: the rest is in tables.
fn from_tables(run: &mut Run, count: u64, cache_bytes: u64, expected: Tally) -> Result<()> {
    let memory_limit = run.scaled(MEMORY_LIMIT);
    let found = RefCell::new(Vec::new());
    let mut sides = vec![
        Side::new("dwell", |run| {
            let folder = run.empty_folder("dwell")?;
            let mix = Mix::plain(count, DAY_MS);
            let place = BuildPlace { folder, memory_limit, mix, bodies: None };
            let filled = place.ask(&fill::PART, 0, fill::all(count))?;
            drop_caches(&place.folder)?;
            let mut drained = place.ask(&drain::PART, DAY_MS, drain::queues(0..1))?;
            drained["cold"] = filled["counters"]["cold"].clone();
            let per_s = number(&drained, "per_s");
            found.borrow_mut().push(drained);
            per_s
        }),
        Side::new("bare", |run| {
            let mut bare = Drain::prepare(&run.empty_folder("bare")?, Items::new(count))?;
            drain_all(run, "drain: bare", expected, |tally| bare.take(tally))
        }),
    ];
    sides.extend(fjall().map(|store| store_side(store, count, cache_bytes, expected)));
    run.contest("drain, from tables", "per_s", Better::Higher, &mut sides)?;
    drop(sides);
    let found = found.into_inner();
    let each = |of: &dyn Fn(&Value) -> Result<f64>| found.iter().map(of).collect::<Result<Vec<f64>>>();
    let cold = each(&|found| number(found, "cold"))?;
    run.note(format!(
        "from tables: memory limit {memory_limit} bytes; {} of {count} messages lay in tables alone, the youngest \
         in the journal too",
        cold.last().copied().unwrap_or_default()
    ));
    run.alone("drain, from tables", PEAK_RSS, each(&|found| number(found, PEAK_RSS))?);
    let a_message = |field: &'static str| {
        let found = each(&|found| Ok(number(&found["counters"], field)? / count as f64));
        found.map(|samples| (field, samples))
    };
    for (field, samples) in [a_message("read_bytes")?, a_message("written_bytes")?] {
        run.alone("drain, from tables, a message", field, samples);
    }
    Ok(())
}

/// The only peer that fills within a minute: redb and SQLite would take six each, at their rates in `engine-put`.
fn fjall() -> impl Iterator<Item = &'static Kind> {
    STORES.iter().filter(|store| store.name == "fjall")
}

/// A peer, closed and opened again before it is drained.
fn store_side<'a>(store: &'a Kind, count: u64, cache_bytes: u64, expected: Tally) -> Side<'a> {
    Side::new(store.name, move |run| {
        let folder = run.empty_folder(store.name)?;
        let mut peer = (store.open)(&folder, cache_bytes)?;
        fill_all(run, &format!("fill: {}", store.name), count, |items| peer.put(items))?;
        drop(peer);
        drop_caches(&folder)?;
        let mut peer = (store.open)(&folder, cache_bytes)?;
        drain_all(run, &format!("drain: {}", store.name), expected, |tally| peer.take(BATCH, tally))
    })
}

/// Puts the items, which is not measured here.
fn fill_all(run: &Run, label: &str, count: u64, mut put: impl FnMut(&[Item]) -> Result<()>) -> Result<()> {
    let (mut items, mut batch) = (Items::new(count), Vec::new());
    let bar = run.progress(label, count);
    while items.batch(&mut batch) {
        put(&batch)?;
        bar.inc(batch.len() as u64);
    }
    bar.finish_and_clear();
    Ok(())
}

/// Takes batch after batch until nothing is left, and checks that every item has come.
fn drain_all(
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

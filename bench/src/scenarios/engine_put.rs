//! `engine-put`: durable puts in batches, due at random within a day.

use std::cell::RefCell;
use std::time::Duration;

use dwell_time::ManualClock;
use hdrhistogram::Histogram;

use super::Scenario;
use crate::Result;
use crate::mix::Mix;
use crate::ours::{MEMORY_LIMIT, Ours, start};
use crate::own_process::{PEAK_RSS, count as whole, number};
use crate::parts::{BuildPlace, DISK_BYTES, fill};
use crate::peers::bare::Appender;
use crate::peers::{CACHE_BYTES, STORES};
use crate::report::Better;
use crate::resources::{need_disk, touch_memory};
use crate::run::{Run, Side};
use crate::stopwatch::Stopwatch;
use crate::workload::{DAY_MS, Item, Items};

/// The approximate memory per message in bytes while nothing is flushed.
const MESSAGE_BYTES: u64 = 160;

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
    in_touched_memory(run, count)?;
    steady(run, count)?;
    if run.wants("put-keyed") { keyed(run) } else { Ok(()) }
}

/// The same with memory that this process has used before.
///
/// Where a virtual machine returns free memory to its host, the first access to a page costs several times what it
/// costs where the kernel has it at hand. Puts without a memory limit touch a page for every 27 messages, the bare file
/// none.
fn in_touched_memory(run: &mut Run, count: u64) -> Result<()> {
    let bytes = usize::try_from(count * MESSAGE_BYTES)?;
    let mut page_micros = Vec::new();
    let mut sides = [
        Side::new("dwell", |run| {
            page_micros.push(touch_memory(bytes));
            let ours = Ours::open(&run.empty_folder("dwell")?, &ManualClock::new(start()))?;
            put_all(run, "put: dwell", count, &mut unused()?, |items| ours.put(items))
        }),
        Side::new("bare", |run| {
            touch_memory(bytes);
            let mut bare = Appender::create(&run.empty_folder("bare")?)?;
            put_all(run, "put: bare", count, &mut unused()?, |items| bare.put(items))
        }),
    ];
    run.contest("put, memory touched before", "per_s", Better::Higher, &mut sides)?;
    drop(sides);
    if !page_micros.is_empty() {
        run.alone("put, memory touched before: to touch it", "us_a_page", page_micros);
    }
    Ok(())
}

/// The same with bounded memory: generations are flushed meanwhile.
fn steady(run: &mut Run, count: u64) -> Result<()> {
    let memory_limit = run.scaled(MEMORY_LIMIT);
    let found = RefCell::new(Vec::new());
    let mut sides = [
        Side::new("dwell", |run| {
            let place = BuildPlace {
                folder: run.empty_folder("dwell")?,
                memory_limit,
                mix: Mix::plain(count, DAY_MS),
                bodies: None,
            };
            let mut parameters = fill::all(count);
            parameters["generations"] = 3.into();
            let filled = place.ask(&fill::PART, 0, parameters)?;
            let per_s = number(&filled, "per_s")?;
            found.borrow_mut().push(filled);
            Ok(per_s)
        }),
        Side::new("bare", |run| {
            let mut bare = Appender::create(&run.empty_folder("bare")?)?;
            put_all(run, "put: bare", count, &mut unused()?, |items| bare.put(items))
        }),
    ];
    run.contest("put-steady", "per_s", Better::Higher, &mut sides)?;
    drop(sides);
    let found = found.into_inner();
    let flushed = found.last().map(|found| whole(&found["counters"], "flushes")).transpose()?;
    run.note(format!(
        "put-steady: memory limit {memory_limit} bytes; {} generations were flushed in the last round",
        flushed.unwrap_or_default()
    ));
    for (metric, field) in
        [("p50_ms", "p50_ms"), ("p99_ms", "p99_ms"), ("max_ms", "max_ms"), (PEAK_RSS, PEAK_RSS)]
    {
        let samples = found.iter().map(|found| number(found, field)).collect::<Result<Vec<f64>>>()?;
        run.alone("put-steady, a batch", metric, samples);
    }
    Ok(())
}

/// Puts with and without keys, in addition to a hundred million with keys.
fn keyed(run: &mut Run) -> Result<()> {
    let (pending, count) = (run.scaled(100_000_000), run.scaled(1_000_000));
    let memory_limit = run.scaled(MEMORY_LIMIT);
    need_disk(run.folder(), pending * DISK_BYTES)?;
    let mix = Mix { keyed: 1, ..Mix::plain(pending, DAY_MS) };
    let place = BuildPlace { folder: run.empty_folder("dwell")?, memory_limit, mix, bodies: None };
    let mut peaks = vec![number(&place.ask(&fill::PART, 0, fill::all(pending))?, PEAK_RSS)?];
    let (mut with, mut without, mut times) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..run.rounds() as u64 {
        let from = pending + round * 2 * count;
        for (keyed, from, rates) in [(0, from, &mut without), (1, from + count, &mut with)] {
            let place = BuildPlace { mix: Mix { keyed, ..mix }, ..place.clone() };
            let filled = place.ask(&fill::PART, 0, fill::range(from..from + count))?;
            rates.push(number(&filled, "per_s")?);
            peaks.push(number(&filled, PEAK_RSS)?);
        }
        times.push(with[with.len() - 1] / without[without.len() - 1]);
    }
    run.note(format!(
        "put-keyed: {count} a round beside {pending} pending messages with keys, memory limit {memory_limit} bytes"
    ));
    run.alone("put-keyed", "per_s", with);
    run.alone("put without a key, beside them", "per_s", without);
    run.alone("put-keyed over put without a key", "times", times);
    run.alone("put-keyed, the most", PEAK_RSS, vec![peaks.into_iter().fold(0.0, f64::max)]);
    run.empty_folder("dwell")?;
    Ok(())
}

fn unused() -> Result<Histogram<u64>> {
    Ok(Histogram::new(3)?)
}

/// Puts `count` items. Returns the number per second, without the time to create the items.
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

//! `engine-put-1`: one message per put, each synced before it is answered: one caller, and 64 concurrent ones.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dwell_engine::Engine;
use dwell_store::Store as _;
use dwell_time::ManualClock;
use hdrhistogram::Histogram;

use super::Scenario;
use crate::Result;
use crate::ours::{Ours, puts, start};
use crate::peers::bare::Appender;
use crate::peers::{CACHE_BYTES, STORES};
use crate::report::Better;
use crate::run::{Run, Side};
use crate::stopwatch::Stopwatch;
use crate::workload::{Item, Items};

pub(crate) const SCENARIO: Scenario =
    Scenario { name: "engine-put-1", what: "one message a put, each synced: one caller, and 64", run };

const CALLERS: u64 = 64;

fn run(run: &mut Run) -> Result<()> {
    let count = run.scaled(20_000);
    let many = count * 20;
    run.note(format!("one caller: {count} puts of 128 random bytes, {CALLERS} callers: {many}"));
    let items: Vec<Item> = Items::new(count).collect();

    let mut sides = vec![
        Side::new("dwell", |run| {
            let ours = Ours::open(&run.empty_folder("dwell")?, &ManualClock::new(start()))?;
            p50_ms(&items, |item| ours.put(item))
        }),
        Side::new("bare", |run| {
            let mut bare = Appender::create(&run.empty_folder("bare")?)?;
            p50_ms(&items, |item| bare.put(item))
        }),
    ];
    for store in STORES {
        let items = &items;
        sides.push(Side::new(store.name, move |run| {
            let mut peer = (store.open)(&run.empty_folder(store.name)?, run.scaled(CACHE_BYTES))?;
            p50_ms(items, |item| peer.put(item))
        }));
    }
    run.contest("put, one caller", "p50_ms", Better::Lower, &mut sides)?;
    drop(sides);

    let one = RefCell::new(Vec::new());
    let mut alone = [Side::new("dwell", |run| {
        let ours = Ours::open(&run.empty_folder("dwell")?, &ManualClock::new(start()))?;
        let watch = Stopwatch::start();
        items.chunks(1).try_for_each(|item| ours.put(item))?;
        let rate = watch.per_second(count);
        one.borrow_mut().push(rate);
        Ok(rate)
    })];
    run.contest("put, one caller", "per_s", Better::Higher, &mut alone)?;

    let scale = RefCell::new(Vec::new());
    let mut together = [Side::new("dwell", |run| {
        let ours = Ours::open(&run.empty_folder("dwell")?, &ManualClock::new(start()))?;
        let rate = put_together(ours.engine(), many)?;
        let round = scale.borrow().len();
        // Empty if the row for one caller is not requested.
        scale.borrow_mut().extend(one.borrow().get(round).map(|one| rate / one));
        Ok(rate)
    })];
    run.contest("put, 64 callers", "per_s", Better::Higher, &mut together)?;
    run.alone("put, 64 callers over one", "times", scale.take());
    Ok(())
}

fn p50_ms(items: &[Item], mut put: impl FnMut(&[Item]) -> Result<()>) -> Result<f64> {
    let mut nanos = Histogram::<u64>::new(3)?;
    for item in items.chunks(1) {
        let watch = Stopwatch::start();
        put(item)?;
        nanos.record(u64::try_from(watch.elapsed().as_nanos())?)?;
    }
    Ok(nanos.value_at_quantile(0.5) as f64 / 1_000_000.0)
}

/// `count` puts by concurrent callers, each of which puts its next message when the last one is answered.
///
/// They are tasks, as in the server.
fn put_together(engine: &Engine, count: u64) -> Result<f64> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    let items: Arc<Vec<Item>> = Arc::new(Items::new(count).collect());
    let next = Arc::new(AtomicU64::new(0));
    let watch = Stopwatch::start();
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (engine, items, next) = (engine.clone(), Arc::clone(&items), Arc::clone(&next));
            runtime.spawn(async move {
                loop {
                    let place =
                        usize::try_from(next.fetch_add(1, Ordering::Relaxed)).expect("it fits memory");
                    let Some(item) = items.get(place..=place) else {
                        return Ok::<(), dwell_store::Error>(());
                    };
                    for answer in engine.put(puts(item)).await {
                        answer?;
                    }
                }
            })
        })
        .collect();
    let ended: std::result::Result<(), dwell_store::Error> = runtime.block_on(async {
        for caller in callers {
            caller.await.expect("a caller does not panic")?;
        }
        Ok(())
    });
    ended?;
    Ok(watch.per_second(count))
}

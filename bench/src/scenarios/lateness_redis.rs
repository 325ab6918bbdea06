//! `lateness-redis`: how late messages reach takes that wait on the native store, with others pending and puts going
//! on, at a load that one Redis carries beside its clients on two cores.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use dwell_model::{QueueName, Receipt};
use dwell_redis::RedisStore;
use dwell_store::{Store as _, Take};
use hdrhistogram::Histogram;
use tokio::sync::mpsc;

use super::Scenario;
use crate::Result;
use crate::ours_redis::{Native, acks, put_at};
use crate::run::Run;
use crate::stopwatch::{Stopwatch, wall_us};
use crate::workload::{BATCH, Item, Items};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "lateness-redis",
    what: "lateness on Redis: 300,000 pending, 4,000 due and 1,000 puts a second",
    run,
};

const DUE_PER_MS: u64 = 4;
const PUTS_PER_S: u64 = 1_000;
/// How often a batch of puts goes out, and how many there are in it.
const PUT_EVERY: Duration = Duration::from_millis(10);
const PUTS: u64 = PUTS_PER_S / 100;
const TAKERS: usize = 4;
/// From the last put to the first that is due.
const LEAD_MS: i64 = 2_000;

type Told<T> = std::result::Result<T, String>;

fn run(run: &mut Run) -> Result<()> {
    let (pending, seconds) = (run.scaled(300_000), run.scaled(20));
    let count = seconds * 1_000 * DUE_PER_MS;
    run.note(format!(
        "{pending} pending in another queue, due within a day; {count} messages of 128 bytes due at {} a second to {TAKERS} \
         waiting takes of one process, acked in batches; {PUTS_PER_S} puts a second in batches of {PUTS}",
        DUE_PER_MS * 1_000
    ));
    run.note("lateness: when the take had its answer, less due; Redis, which keeps nothing on disk, and its clients share the machine and its clock");
    let mut all = Histogram::<u64>::new(3)?;
    let (mut put_rates, mut shares) = (Vec::new(), Vec::new());
    for round in 1..=run.rounds() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let native = Native::start_on(runtime)?;
        let (late, puts, share) = once(&native, pending, count)?;
        eprintln!(
            "lateness-redis: round {round}: p50 {} us, p99 {} us, {puts:.0} puts a second, Redis busy {share:.0} %",
            late.value_at_quantile(0.5),
            late.value_at_quantile(0.99)
        );
        all.add(&late)?;
        put_rates.push(puts);
        shares.push(share);
    }
    run.latencies("lateness", &all);
    run.alone("puts meanwhile", "per_s", put_rates);
    run.alone("Redis, of one core", "percent", shares);
    Ok(())
}

fn once(native: &Native, pending: u64, count: u64) -> Result<(Histogram<u64>, f64, f64)> {
    let (far, hot, fresh): (QueueName, QueueName, QueueName) =
        ("far".parse()?, "hot".parse()?, "fresh".parse()?);
    let day_ms = wall_us() / 1_000 + 86_400_000;
    let watch = Stopwatch::start();
    put_all(native, &far, pending, |item| day_ms + item.due_ms as i64)?;
    let estimate_ms = watch.elapsed().as_secs_f64() * 1_000.0 * count as f64 / pending as f64;
    // Twice what the puts so far let expect, lest the first be due before the last is put.
    let first_ms = wall_us() / 1_000 + (estimate_ms * 2.0) as i64 + LEAD_MS;
    put_all(native, &hot, count, |item| first_ms + (item.number / DUE_PER_MS) as i64)?;
    if wall_us() / 1_000 > first_ms - LEAD_MS / 2 {
        return Err("the puts took longer than was estimated; the machine is not quiet".into());
    }
    let (taken, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (receipts, to_ack) = mpsc::unbounded_channel();
    native.runtime.block_on(async {
        let take = |_| {
            let (store, queue) = (Arc::clone(&native.store), hot.clone());
            tokio::spawn(take_all(store, queue, count, Arc::clone(&taken), receipts.clone()))
        };
        let takers: Vec<_> = (0..TAKERS).map(take).collect();
        drop(receipts);
        let acker = tokio::spawn(ack_all(Arc::clone(&native.store), to_ack));
        sleep_until(first_ms).await;
        let busy = busy_s(native)?;
        let watch = Stopwatch::start();
        let putter = tokio::spawn(put_on(Arc::clone(&native.store), fresh, day_ms, Arc::clone(&over)));
        let mut late = Histogram::<u64>::new(3)?;
        for taker in takers {
            late.add(&taker.await??)?;
        }
        over.store(true, Ordering::Relaxed);
        let share = (busy_s(native)? - busy) / watch.elapsed().as_secs_f64() * 100.0;
        let puts = putter.await??;
        acker.await??;
        Ok((late, puts, share))
    })
}

/// Seconds of processor time that Redis has had.
fn busy_s(native: &Native) -> Result<f64> {
    let mut busy = 0.0;
    for field in ["used_cpu_user", "used_cpu_sys"] {
        busy += native.server.info(field).ok_or("INFO does not say it")?.parse::<f64>()?;
    }
    Ok(busy)
}

async fn sleep_until(wall_ms: i64) {
    let ahead_ms = u64::try_from(wall_ms - wall_us() / 1_000).unwrap_or(0);
    tokio::time::sleep(Duration::from_millis(ahead_ms)).await;
}

fn put_all(native: &Native, queue: &QueueName, count: u64, due_ms: impl Fn(&Item) -> i64) -> Result<()> {
    let (mut items, mut batch) = (Items::new(count), Vec::with_capacity(BATCH));
    while items.batch(&mut batch) {
        let puts = batch.iter().map(|item| put_at(queue, &item.body, due_ms(item)));
        native.put(puts.collect::<Result<Vec<_>>>()?)?;
    }
    Ok(())
}

/// Takes until all have been taken; how late each came, in microseconds.
async fn take_all(
    store: Arc<RedisStore>,
    queue: QueueName,
    count: u64,
    taken: Arc<AtomicU64>,
    receipts: mpsc::UnboundedSender<Vec<Receipt>>,
) -> Told<Histogram<u64>> {
    let mut late = Histogram::<u64>::new(3).map_err(|error| error.to_string())?;
    let mut empty = 0;
    while taken.load(Ordering::Relaxed) < count {
        let take = Take::from(queue.clone()).max(256).wait_ms(1_000);
        let deliveries = store.take(take).await.map_err(|error| error.to_string())?;
        let now_us = wall_us();
        empty = if deliveries.is_empty() { empty + 1 } else { 0 };
        if empty > 120 {
            return Err("nothing comes any more".to_owned());
        }
        for delivery in &deliveries {
            let late_us = now_us - delivery.message.standing.due.as_ms() * 1_000;
            let late_us = u64::try_from(late_us).map_err(|_| "a message came early".to_owned())?;
            late.record(late_us).map_err(|error| error.to_string())?;
        }
        taken.fetch_add(deliveries.len() as u64, Ordering::Relaxed);
        if !deliveries.is_empty() {
            let held = deliveries.into_iter().map(|delivery| delivery.receipt).collect();
            receipts.send(held).map_err(|_| "the acker has ended".to_owned())?;
        }
    }
    Ok(late)
}

/// Acks what was taken, all that there is at a time.
async fn ack_all(store: Arc<RedisStore>, mut to_ack: mpsc::UnboundedReceiver<Vec<Receipt>>) -> Told<()> {
    while let Some(mut held) = to_ack.recv().await {
        while let Ok(more) = to_ack.try_recv() {
            held.extend(more);
        }
        for settled in store.settle(acks(held)).await {
            settled.map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

/// Puts at a steady rate; answers how many a second were put.
async fn put_on(store: Arc<RedisStore>, queue: QueueName, due_ms: i64, over: Arc<AtomicBool>) -> Told<f64> {
    let (watch, mut rounds) = (Stopwatch::start(), 0_u32);
    while !over.load(Ordering::Relaxed) {
        let puts = (0..PUTS).map(|_| put_at(&queue, &[7; 128], due_ms)).collect::<Result<Vec<_>>>();
        for answer in store.put(puts.map_err(|error| error.to_string())?).await {
            answer.map_err(|error| error.to_string())?;
        }
        rounds += 1;
        tokio::time::sleep((PUT_EVERY * rounds).saturating_sub(watch.elapsed())).await;
    }
    Ok(watch.per_second(u64::from(rounds) * PUTS))
}

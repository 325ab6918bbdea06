//! Contention of producers and consumers, lateness, and the cost of a thousand waiting threads.

use std::hint::black_box;
use std::thread;
use std::time::Duration;

use dwell_time::DelayQueue;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::fill::Queue;
use super::heap::Heap;
use super::jdk::Jdk;
use super::ours::Ours;
use super::{Random, SEED, Samples, add_rows};
use crate::Result;
use crate::own_process::{self, Part, count, number, text};
use crate::report::Better;
use crate::run::Run;
use crate::stopwatch::{Stopwatch, pause};

/// The numbers of producers and consumers.
const TEAMS: [(u64, u64); 8] = [(1, 1), (2, 1), (4, 1), (8, 1), (1, 4), (2, 4), (4, 4), (8, 4)];
/// The delays of contended items are below this.
const SPAN_NS: u64 = 1_000_000;

pub(super) fn compare(run: &mut Run, jdk: Option<&Jdk>) -> Result<()> {
    for (producers, consumers) in TEAMS {
        contention(run, jdk, producers, consumers)?;
    }
    lateness(run, jdk)?;
    waiting(run, jdk)
}

fn contention(run: &mut Run, jdk: Option<&Jdk>, producers: u64, consumers: u64) -> Result<()> {
    let row = format!("{producers} put, {consumers} take");
    if !run.wants(&row) {
        return Ok(());
    }
    let n = run.scaled(4_000_000) / 8 * 8;
    let (mut ours, mut jdks, mut heaps) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=run.rounds() {
        for (side, samples) in [(Ours::NAME, &mut ours), (Heap::NAME, &mut heaps)] {
            let asked = json!({ "side": side, "producers": producers, "consumers": consumers, "n": n });
            samples.push(number(&own_process::ask(&CONTENTION, &asked)?, "per_s")?);
        }
        if let Some(jdk) = jdk {
            let ns = jdk.measure("contention", &[producers, consumers, n])?;
            jdks.push(n as f64 * 1e9 / ns.first().ok_or("the JDK's side prints a number")?);
        }
        eprintln!(
            "{producers} producers, {consumers} consumers, round {round}: ours {:.2} M/s",
            ours[round - 1] / 1e6
        );
    }
    let sides = [("ours", ours), ("jdk", jdks), ("binary-heap", heaps)];
    let sides = sides.into_iter().map(|(name, values)| Samples { name, values }).collect();
    add_rows(run, &row, "per_s", Better::Higher, sides);
    Ok(())
}

/// Items per second of one `side`: `producers` and `consumers` with `n` items, after a warm-up with a quarter of the
/// work.
pub(super) const CONTENTION: Part = Part { name: "delay-queue-contention", run: measure_contention };

fn measure_contention(parameters: &Value) -> Result<Value> {
    let asked = |field| count(parameters, field);
    let (side, producers, consumers, n) =
        (text(parameters, "side")?, asked("producers")?, asked("consumers")?, asked("n")?);
    let contend = match side {
        Ours::NAME => contend_ours,
        Heap::NAME => contend_heap,
        _ => return Err(format!("there is no side '{side}'").into()),
    };
    contend(producers, consumers, n / 32 * 8);
    Ok(json!({ "per_s": contend(producers, consumers, n) }))
}

fn contend_ours(producers: u64, consumers: u64, n: u64) -> f64 {
    let queue = DelayQueue::new();
    let put = |value, delay_ns| {
        black_box(queue.put(value, Duration::from_nanos(delay_ns)).expect("nobody closes it"));
    };
    contend(producers, consumers, n, put, || queue.take().expect("nobody closes it"))
}

fn contend_heap(producers: u64, consumers: u64, n: u64) -> f64 {
    let heap = Heap::new();
    contend(producers, consumers, n, |value, delay| heap.put_in(delay, value), || heap.take())
}

/// The items per second, from the first put to the last take.
fn contend(
    producers: u64,
    consumers: u64,
    n: u64,
    put: impl Fn(u64, u64) + Sync,
    take: impl Fn() -> u64 + Sync,
) -> f64 {
    let watch = Stopwatch::start();
    thread::scope(|scope| {
        for producer in 0..producers {
            let put = &put;
            scope.spawn(move || {
                let mut random = Random(SEED + producer);
                (0..n / producers).for_each(|value| put(value, random.below(SPAN_NS)));
            });
        }
        for _ in 0..consumers {
            scope.spawn(|| {
                (0..n / consumers).for_each(|_| {
                    black_box(take());
                })
            });
        }
    });
    watch.per_second(n)
}

const RATE: u64 = 10_000;
/// The works of lateness: with the default, with a spin, with a task.
const LATE: [&str; 3] = ["lateness", "lateness, spinning for the last 70 us", "lateness, a task"];

fn lateness(run: &mut Run, jdk: Option<&Jdk>) -> Result<()> {
    if !LATE.iter().any(|row| run.wants(row)) {
        return Ok(());
    }
    let n = run.scaled(50_000);
    run.note(format!("lateness: {n} items at {RATE} a second, delayed 5 to 50 ms, one consumer"));
    let mut ours: [Vec<f64>; 3] = Default::default();
    let mut spinning: [Vec<f64>; 3] = Default::default();
    let mut tasks: [Vec<f64>; 3] = Default::default();
    let mut jdks: [Vec<f64>; 3] = Default::default();
    for _ in 0..run.rounds() {
        for (way, into) in WAYS.iter().zip([&mut ours, &mut spinning, &mut tasks]) {
            let late = own_process::ask(&LATENESS, &json!({ "way": way, "n": n }))?;
            for (samples, (metric, _)) in into.iter_mut().zip(QUANTILES) {
                samples.push(number(&late, metric)?);
            }
        }
        if let Some(jdk) = jdk {
            for (samples, ns) in jdks.iter_mut().zip(jdk.measure("lateness", &[RATE, n])?) {
                samples.push(ns / 1_000.0);
            }
        }
    }
    for (((metric, _), ours), jdks) in QUANTILES.into_iter().zip(ours).zip(jdks) {
        let sides = [("ours", ours), ("jdk", jdks)];
        let sides = sides.into_iter().map(|(name, values)| Samples { name, values }).collect();
        add_rows(run, LATE[0], metric, Better::Lower, sides);
    }
    for (((metric, _), spinning), tasks) in QUANTILES.into_iter().zip(spinning).zip(tasks) {
        run.alone(LATE[1], metric, spinning);
        run.alone(LATE[2], metric, tasks);
    }
    Ok(())
}

const QUANTILES: [(&str, f64); 3] = [("p50_us", 0.5), ("p99_us", 0.99), ("p99.9_us", 0.999)];
/// How a consumer waits, in the order of [`LATE`].
const WAYS: [&str; 3] = ["thread", "spinning", "task"];

/// The lateness of `n` items in microseconds, at the quantiles, if a consumer waits this `way`; after half a second of
/// warm-up.
pub(super) const LATENESS: Part = Part { name: "delay-queue-lateness", run: measure_lateness };

fn measure_lateness(parameters: &Value) -> Result<Value> {
    let (way, n) = (text(parameters, "way")?, count(parameters, "n")?);
    let late = |n| {
        let spin = if way == WAYS[1] { Duration::from_micros(70) } else { Duration::ZERO };
        let queue = DelayQueue::builder().spin(spin).build();
        match way {
            "thread" | "spinning" => be_late(&queue, n, || queue.take().expect("nobody closes it")),
            "task" => {
                be_late(&queue, n, || pollster::block_on(queue.take_async()).expect("nobody closes it"))
            }
            _ => Err(format!("there is no way '{way}'").into()),
        }
    };
    late(RATE / 2)?;
    let late = late(n)?;
    let quantiles = QUANTILES.map(|(metric, quantile)| {
        (metric.to_owned(), (late.value_at_quantile(quantile) as f64 / 1_000.0).into())
    });
    Ok(Value::Object(quantiles.into_iter().collect()))
}

/// The lateness of each of n items in nanoseconds.
fn be_late(
    queue: &DelayQueue<std::time::Instant>,
    n: u64,
    take: impl Fn() -> std::time::Instant + Sync,
) -> Result<Histogram<u64>> {
    let mut late = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3)?;
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random(SEED);
            let watch = Stopwatch::start();
            for item in 0..n {
                // A batch per millisecond, since no sleep is as short as 100 us.
                if item % (RATE / 1_000) == 0 {
                    pause(Duration::from_nanos(item * 1_000_000_000 / RATE).saturating_sub(watch.elapsed()));
                }
                let due = queue.now() + Duration::from_nanos(5_000_000 + random.below(45_000_000));
                queue.put_at(due, due).expect("nobody closes it");
            }
        });
        for _ in 0..n {
            let due = take();
            late.saturating_record(u64::try_from((queue.now() - due).as_nanos()).unwrap_or(u64::MAX));
        }
    });
    Ok(late)
}

/// Threads that wait behind one head that is an hour away: processor time per second.
fn waiting(run: &mut Run, jdk: Option<&Jdk>) -> Result<()> {
    const THREADS: u64 = 1_000;
    const MS: u64 = 2_000;
    const ROW: &str = "1000 threads wait";
    if !run.wants(ROW) {
        return Ok(());
    }
    let (mut ours, mut jdks) = (Vec::new(), Vec::new());
    for _ in 0..run.rounds() {
        let queue = DelayQueue::new();
        queue.put(0, Duration::from_secs(3_600)).expect("nobody closes it");
        ours.push(thread::scope(|scope| {
            for _ in 0..THREADS {
                let thread = thread::Builder::new().stack_size(64 * 1024);
                thread.spawn_scoped(scope, || queue.take()).expect("a thousand threads are granted");
            }
            while queue.waiting() < THREADS as usize {
                pause(Duration::from_millis(1));
            }
            pause(Duration::from_millis(1_000));
            let before = processor_ns();
            pause(Duration::from_millis(MS));
            let spent = processor_ns() - before;
            queue.close();
            spent as f64 / 1e3 / (MS as f64 / 1e3)
        }));
        if let Some(jdk) = jdk {
            let ns = jdk.measure("waiting", &[THREADS, MS])?;
            jdks.push(ns.first().ok_or("the JDK's side prints a number")? / 1_000.0);
        }
    }
    let sides = [("ours", ours), ("jdk", jdks)];
    let sides = sides.into_iter().map(|(name, values)| Samples { name, values }).collect();
    add_rows(run, ROW, "cpu_us_per_s", Better::Lower, sides);
    Ok(())
}

/// The processor time of this process.
fn processor_ns() -> u64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    spent.tv_sec as u64 * 1_000_000_000 + spent.tv_nsec as u64
}

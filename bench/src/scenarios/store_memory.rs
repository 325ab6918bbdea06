//! `store-memory`: the memory store, and what ordering has a part in it.
//!
//! The store's own rows have no peer. The rows below them are its order of instants alone, one item a call: the timing
//! queue, and what one would take instead, a `BinaryHeap` of (instant, sequence, slot), on the same instants in the same
//! run. Divided by what the store takes a message, they say how much a heap in its place would cost.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::sync::Arc;

use dwell_model::Limits;
use dwell_store::{Action, Blocking, MemoryStore, Settle, Take};
use dwell_time::{ManualClock, TimingQueue};

use super::Scenario;
use crate::Result;
use crate::ours::{puts, queue, start};
use crate::report::Better;
use crate::run::Run;
use crate::stopwatch::Stopwatch;
use crate::workload::{BATCH, DAY_MS, Items, Tally};

pub(crate) const SCENARIO: Scenario =
    Scenario { name: "store-memory", what: "the memory store, and its order beside a heap", run };

fn run(run: &mut Run) -> Result<()> {
    let n = run.scaled(1_000_000);
    let (mut put, mut taken) = (Vec::new(), Vec::new());
    let (mut order, mut heap) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for round in 1..=run.rounds() {
        let rates = store(n)?;
        put.push(rates[0]);
        taken.push(rates[1]);
        let dues: Vec<i64> = Items::new(n).map(|item| item.due_ms as i64).collect();
        for (samples, rate) in order.iter_mut().zip(timing_queue(&dues)) {
            samples.push(rate);
        }
        for (samples, rate) in heap.iter_mut().zip(binary_heap(&dues)) {
            samples.push(rate);
        }
        eprintln!("store-memory: round {round}: {:.0} puts/s, {:.0} takes and acks/s", rates[0], rates[1]);
    }
    run.alone(&format!("put, {n} in, {BATCH} a call"), "per_s", put);
    run.alone(&format!("take + ack, {BATCH} a call"), "per_s", taken);
    for ((what, ours), theirs) in ["insert", "pop"].into_iter().zip(order).zip(heap) {
        run.beside(&format!("its order alone: {what}"), "per_s", Better::Higher, ours, "binary-heap", theirs);
    }
    Ok(())
}

/// Puts, and takes with their acks, a second.
fn store(n: u64) -> Result<[f64; 2]> {
    let clock = ManualClock::new(start());
    let store = Blocking::new(Arc::new(MemoryStore::new(Limits::default(), Arc::new(clock.clone()))));
    let (mut items, mut batch, mut put) = (Items::new(n), Vec::new(), Tally::default());
    let watch = Stopwatch::start();
    while items.batch(&mut batch) {
        for answer in store.put(puts(&batch)) {
            answer?;
        }
        batch.iter().for_each(|item| put.add(&item.body));
    }
    let puts_per_s = watch.per_second(n);
    clock.advance(DAY_MS);
    let mut taken = Tally::default();
    let watch = Stopwatch::start();
    while taken.count < n {
        let deliveries = store.take(Take::from(queue()).max(BATCH))?;
        if deliveries.is_empty() {
            return Err(format!("{} of {n} messages came out", taken.count).into());
        }
        let acks = deliveries.into_iter().map(|delivery| {
            taken.add(&delivery.message.body);
            Settle { receipt: delivery.receipt, action: Action::Ack }
        });
        for answer in store.settle(acks.collect()) {
            answer?;
        }
    }
    let takes_per_s = watch.per_second(n);
    if taken != put {
        return Err("what came out is not what was put".into());
    }
    Ok([puts_per_s, takes_per_s])
}

/// Inserts and pops a second.
fn timing_queue(dues: &[i64]) -> [f64; 2] {
    let mut queue = TimingQueue::new();
    let watch = Stopwatch::start();
    for (due, slot) in dues.iter().zip(0_u32..) {
        black_box(queue.insert(*due, slot));
    }
    let inserts = watch.per_second(dues.len() as u64);
    let watch = Stopwatch::start();
    while let Some(item) = queue.pop() {
        black_box(item);
    }
    [inserts, watch.per_second(dues.len() as u64)]
}

/// The same of a heap, which can neither cancel nor move what is in it.
fn binary_heap(dues: &[i64]) -> [f64; 2] {
    let mut heap = BinaryHeap::new();
    let watch = Stopwatch::start();
    for ((due, slot), sequence) in dues.iter().zip(0_u32..).zip(0_u64..) {
        heap.push(Reverse((*due, sequence, slot)));
    }
    let inserts = watch.per_second(dues.len() as u64);
    let watch = Stopwatch::start();
    while let Some(item) = heap.pop() {
        black_box(item);
    }
    [inserts, watch.per_second(dues.len() as u64)]
}

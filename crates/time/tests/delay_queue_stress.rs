//! Eight producers, eight consumers, cancels and reschedules at random: each item leaves exactly once, never early,
//! and each consumer sees its items in order.
//!
//! Items: `DWELL_STRESS_ITEMS` (200,000 by default; the full set is 5,000,000), seed: `DWELL_STRESS_SEED`.
//! A failure names the command that replays the workload; threads interleave as they like.

#![cfg(not(shuttle))]
#![allow(clippy::unwrap_used, reason = "a test, in its helpers too")]

mod support;

use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dwell_time::{DelayQueue, Handle};
use support::{PATIENCE, Random, await_that};

const PRODUCERS: u64 = 8;
const CONSUMERS: u64 = 8;
/// All delays are below this.
const SPAN_NS: u64 = 5_000_000;
/// Stands for a placement that is being changed.
const IN_FLUX: u64 = u64::MAX;

/// What is known about an item from outside the queue.
struct Record {
    /// The number of times that it has left, by take or by cancel.
    left: AtomicU8,
    /// Its instant, in nanoseconds after the start.
    due: AtomicI64,
    /// The time at which the call that gave it this instant had returned.
    placed: AtomicU64,
}

struct Stress {
    queue: DelayQueue<usize>,
    records: Vec<Record>,
    start: Instant,
    seed: u64,
}

impl Stress {
    fn now(&self) -> u64 {
        u64::try_from((self.queue.now() - self.start).as_nanos()).unwrap()
    }

    fn fail(&self, what: &str) -> ! {
        panic!(
            "{what}\nreplay: DWELL_STRESS_SEED={} DWELL_STRESS_ITEMS={} cargo test -p dwell-time --test delay_queue_stress",
            self.seed,
            self.records.len()
        );
    }

    fn leave(&self, item: usize) {
        if self.records[item].left.fetch_add(1, Ordering::SeqCst) != 0 {
            self.fail(&format!("item {item} left twice"));
        }
    }

    /// Places an item while its record is marked as being changed.
    fn place<R>(&self, item: usize, due: u64, call: impl FnOnce(Instant) -> R) -> R {
        let record = &self.records[item];
        record.placed.store(IN_FLUX, Ordering::SeqCst);
        let answer = call(self.start + Duration::from_nanos(due));
        record.due.store(due.try_into().unwrap(), Ordering::SeqCst);
        record.placed.store(self.now(), Ordering::SeqCst);
        answer
    }

    fn produce(&self, items: std::ops::Range<usize>) {
        let mut random = Random(self.seed ^ (items.start as u64 + 1) << 20);
        let mut recent: Vec<(usize, Handle)> = Vec::new();
        for item in items {
            let due = self.now() + random.below(SPAN_NS);
            let handle = self.place(item, due, |at| self.queue.put_at(item, at).unwrap());
            recent.push((item, handle));
            let (other, handle) = recent[random.below(recent.len() as u64) as usize];
            match random.below(10) {
                0 => {
                    if let Some(cancelled) = self.queue.cancel(handle) {
                        assert_eq!(cancelled, other, "a handle names its own item");
                        self.leave(other);
                    }
                }
                1 => {
                    let due = self.now() + random.below(SPAN_NS);
                    let (old_due, old_placed) = (&self.records[other].due, &self.records[other].placed);
                    let before = (old_due.load(Ordering::SeqCst), old_placed.load(Ordering::SeqCst));
                    if !self.place(other, due, |at| self.queue.reschedule_at(handle, at)) {
                        old_due.store(before.0, Ordering::SeqCst);
                        old_placed.store(before.1, Ordering::SeqCst);
                    }
                }
                _ => {}
            }
            if recent.len() > 1_000 {
                recent.swap_remove(random.below(1_000) as usize);
            }
        }
    }

    /// Takes until the queue is closed. Returns the number of items taken.
    fn consume(&self) -> u64 {
        let mut count = 0;
        // The instant of the last item, and the time at which its take began.
        let mut last: Option<(i64, u64)> = None;
        loop {
            let began = self.now();
            let Ok(item) = self.queue.take() else { return count };
            let ended = self.now();
            self.leave(item);
            count += 1;
            let record = &self.records[item];
            let placed = record.placed.load(Ordering::SeqCst);
            let due = record.due.load(Ordering::SeqCst);
            // A record that was changed while it was read proves nothing.
            if placed == IN_FLUX || record.placed.load(Ordering::SeqCst) != placed {
                last = None;
                continue;
            }
            if i64::try_from(ended).unwrap() < due {
                self.fail(&format!("item {item}, due at {due} ns, left at {ended} ns"));
            }
            if let Some((last_due, last_began)) = last
                && due < last_due
                && placed < last_began
            {
                self.fail(&format!(
                    "item {item}, due at {due} ns and in since {placed} ns, left after one due at {last_due} ns \
                     that was taken from {last_began} ns on"
                ));
            }
            last = Some((due, began));
        }
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

#[test]
fn each_item_once_never_early_in_order_per_consumer() {
    let items = setting("DWELL_STRESS_ITEMS", 200_000);
    let queue = DelayQueue::new();
    let stress = Stress {
        start: queue.now(),
        queue,
        records: (0..items)
            .map(|_| Record {
                left: AtomicU8::new(0),
                due: AtomicI64::new(0),
                placed: AtomicU64::new(IN_FLUX),
            })
            .collect(),
        seed: setting("DWELL_STRESS_SEED", 0x5DEE_CE66_D1CE),
    };
    let taken: u64 = thread::scope(|scope| {
        let share = items.div_ceil(PRODUCERS);
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|n| {
                let range = (n * share).min(items) as usize..((n + 1) * share).min(items) as usize;
                scope.spawn(|| stress.produce(range))
            })
            .collect();
        let consumers: Vec<_> = (0..CONSUMERS).map(|_| scope.spawn(|| stress.consume())).collect();
        for producer in producers {
            producer.join().unwrap();
        }
        await_that("the consumers to empty the queue", || stress.queue.is_empty());
        stress.queue.close();
        consumers.into_iter().map(|consumer| consumer.join().unwrap()).sum()
    });
    if let Some(lost) = stress.records.iter().position(|record| record.left.load(Ordering::SeqCst) != 1) {
        stress.fail(&format!("item {lost} was lost"));
    }
    assert!(taken <= items && taken > items / 2, "{taken} of {items} were taken, the others cancelled");
    assert!(stress.queue.take_timeout(PATIENCE).is_err());
}

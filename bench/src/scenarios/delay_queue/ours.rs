//! Our side.

use std::hint::black_box;
use std::time::{Duration, Instant};

use dwell_time::{DelayQueue, Handle};

use super::fill::Queue;

pub(super) struct Ours {
    queue: DelayQueue<u64>,
    start: Instant,
    handles: Vec<Handle>,
}

impl Queue for Ours {
    const NAME: &'static str = "ours";

    fn new() -> Ours {
        let queue = DelayQueue::new();
        Ours { start: queue.now(), queue, handles: Vec::new() }
    }

    fn start(&mut self) {
        self.start = self.queue.now();
    }

    fn offer(&mut self, due_ns: u64, value: u64) {
        let put = self.queue.put_at(value, self.start + Duration::from_nanos(due_ns));
        black_box(put.expect("it is neither closed nor too far"));
    }

    fn drain(&mut self, n: u64) -> u64 {
        let polled = std::iter::from_fn(|| self.queue.poll()).map(black_box).take(n as usize);
        polled.count() as u64
    }

    fn offer_to_be_cancelled(&mut self, due_ns: u64, value: u64) {
        let put = self.queue.put_at(value, self.start + Duration::from_nanos(due_ns));
        self.handles.push(put.expect("it is neither closed nor too far"));
    }

    fn cancel_every_other(&mut self) -> u64 {
        let cancelled = self.handles.iter().step_by(2).filter(|handle| self.queue.cancel(**handle).is_some());
        cancelled.count() as u64
    }
}

/// Our side, taking up to a batch of items per call.
pub(super) struct Batches(Ours);

const BATCH: usize = 1_024;

impl Queue for Batches {
    const NAME: &'static str = "ours";

    fn new() -> Batches {
        Batches(Ours::new())
    }

    fn start(&mut self) {
        self.0.start();
    }

    fn offer(&mut self, due_ns: u64, value: u64) {
        self.0.offer(due_ns, value);
    }

    fn drain(&mut self, n: u64) -> u64 {
        let mut count = 0;
        while count < n {
            match black_box(self.0.queue.drain_due(BATCH)).len() as u64 {
                0 => break,
                drained => count += drained,
            }
        }
        count
    }
}

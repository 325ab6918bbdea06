//! `tokio_util::time::DelayQueue`: a timer wheel of milliseconds with one owner, polled inside a runtime.

use std::future::poll_fn;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;
use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue::Key;

use super::fill::Queue;
use crate::stopwatch;

pub(super) struct TokioUtil {
    runtime: Runtime,
    queue: DelayQueue<u64>,
    start: Instant,
    keys: Vec<Key>,
}

impl Queue for TokioUtil {
    const NAME: &'static str = "tokio-util";

    fn new() -> TokioUtil {
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime needs no more");
        let (queue, start) = {
            let _inside = runtime.enter();
            (DelayQueue::new(), now())
        };
        TokioUtil { runtime, queue, start, keys: Vec::new() }
    }

    fn start(&mut self) {
        self.start = now();
    }

    fn offer(&mut self, due_ns: u64, value: u64) {
        self.queue.insert_at(value, self.start + Duration::from_nanos(due_ns));
    }

    fn fill(&mut self, n: u64, lead: u64, span: u64) {
        let handle = self.runtime.handle().clone();
        let _inside = handle.enter();
        super::fill::offer_all(self, n, lead, span);
    }

    fn drain(&mut self, n: u64) -> u64 {
        let queue = &mut self.queue;
        // Unconstrained: the runtime would make it yield every 128 items.
        self.runtime.block_on(tokio::task::unconstrained(async {
            let mut count = 0;
            while count < n && poll_fn(|context| queue.poll_expired(context)).await.is_some() {
                count += 1;
            }
            count
        }))
    }

    fn offer_to_be_cancelled(&mut self, due_ns: u64, value: u64) {
        self.keys.push(self.queue.insert_at(value, self.start + Duration::from_nanos(due_ns)));
    }

    fn cancel_every_other(&mut self) -> u64 {
        let mut cancelled = 0;
        for key in self.keys.iter().step_by(2) {
            cancelled += u64::from(self.queue.try_remove(key).is_some());
        }
        cancelled
    }
}

fn now() -> Instant {
    Instant::from_std(stopwatch::now())
}

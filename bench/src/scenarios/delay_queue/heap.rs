//! The hand-written queue: a `BinaryHeap` under a mutex, and a condition variable for the waiters.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use super::fill::Queue;
use crate::stopwatch::Stopwatch;

#[derive(Default)]
struct HeapState {
    heap: BinaryHeap<Reverse<(u64, u64, u64)>>,
    sequence: u64,
}

pub(super) struct Heap {
    state: Mutex<HeapState>,
    changed: Condvar,
    watch: Stopwatch,
}

impl Heap {
    fn put(&self, due_ns: u64, value: u64) {
        let mut state = self.state();
        state.sequence += 1;
        let entry = (due_ns, state.sequence, value);
        let is_head = state.heap.peek().is_none_or(|Reverse(head)| entry < *head);
        state.heap.push(Reverse(entry));
        drop(state);
        if is_head {
            self.changed.notify_one();
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.watch.elapsed().as_nanos()).expect("a bench takes less than 584 years")
    }

    fn poll(&self) -> Option<u64> {
        let mut state = self.state();
        let Reverse((due, ..)) = state.heap.peek()?;
        if *due > self.now() {
            return None;
        }
        state.heap.pop().map(|Reverse((.., value))| value)
    }

    /// Puts `value`, due in `delay_ns` nanoseconds.
    pub(super) fn put_in(&self, delay_ns: u64, value: u64) {
        self.put(self.now() + delay_ns, value);
    }

    /// Blocks until an item is due. Every waiter has a timer, as in a typical hand-written queue.
    pub(super) fn take(&self) -> u64 {
        let mut state = self.state();
        loop {
            let Some(Reverse((due, ..))) = state.heap.peek() else {
                state = self.changed.wait(state).expect("nobody panics under the lock");
                continue;
            };
            let left = due.saturating_sub(self.now());
            if left == 0 {
                let taken = state.heap.pop().map(|Reverse((.., value))| value);
                let more = !state.heap.is_empty();
                drop(state);
                if more {
                    self.changed.notify_one();
                }
                return taken.expect("the head was seen a moment ago");
            }
            let waited = self.changed.wait_timeout(state, Duration::from_nanos(left));
            state = waited.expect("nobody panics under the lock").0;
        }
    }

    fn state(&self) -> MutexGuard<'_, HeapState> {
        self.state.lock().expect("nobody panics under the lock")
    }
}

impl Queue for Heap {
    const NAME: &'static str = "binary-heap";

    fn new() -> Heap {
        Heap { state: Mutex::default(), changed: Condvar::new(), watch: Stopwatch::start() }
    }

    fn start(&mut self) {
        self.watch = Stopwatch::start();
    }

    fn offer(&mut self, due_ns: u64, value: u64) {
        self.put(due_ns, value);
    }

    fn drain(&mut self, n: u64) -> u64 {
        let polled = std::iter::from_fn(|| self.poll()).map(black_box).take(n as usize);
        polled.count() as u64
    }
}

//! A call that takes items out of the queue moves them to a larger buffer only while other calls can have the lock.

#![cfg(not(shuttle))]
#![allow(clippy::unwrap_used, reason = "a test, in its helpers too")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use dwell_time::{DelayQueue, Stopwatch};

/// An allocation of this size in bytes holds more items than one turn with the lock may move.
const LARGE: usize = 64 * 1024;
/// Longer than a thread needs to get the lock, and short enough for a failing test.
const PATIENCE_US: u64 = 3_000_000;

/// How often a large allocation was made while it was watched, and how often another thread got at the queue meanwhile.
static ASKED: AtomicUsize = AtomicUsize::new(0);
static ANSWERED: AtomicUsize = AtomicUsize::new(0);
static IS_WATCHED: AtomicBool = AtomicBool::new(false);

/// The system's allocator, which delays a large allocation until another thread has used the queue.
struct Waits;

#[global_allocator]
static ALLOCATOR: Waits = Waits;

#[expect(unsafe_code, reason = "an allocator of one's own tells when a vector grows")]
// SAFETY: every call is passed unchanged to the system's allocator.
unsafe impl GlobalAlloc for Waits {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= LARGE && IS_WATCHED.load(Ordering::SeqCst) {
            let asked = ASKED.fetch_add(1, Ordering::SeqCst) + 1;
            let stopwatch = Stopwatch::start();
            while ANSWERED.load(Ordering::SeqCst) < asked && stopwatch.elapsed_us() < PATIENCE_US {
                thread::yield_now();
            }
            // The next allocation does not wait again.
            IS_WATCHED.store(ANSWERED.load(Ordering::SeqCst) >= asked, Ordering::SeqCst);
        }
        // SAFETY: the caller upholds the contract of `alloc`, which is the same here.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of `dealloc`, which is the same here.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// One test, since the allocator belongs to the process.
#[test]
fn who_takes_many_makes_room_for_them_without_the_lock() {
    const ITEMS: u64 = 100_000;
    type TakeMany = fn(&DelayQueue<u64>) -> usize;
    let ways: [(&str, TakeMany); 2] =
        [("drain", |queue| queue.drain().len()), ("drain_due", |queue| queue.drain_due(usize::MAX).len())];
    for (name, take_many) in ways {
        let queue = DelayQueue::new();
        for n in 0..ITEMS {
            queue.put(n, Duration::ZERO).unwrap();
        }
        let done = AtomicBool::new(false);
        ASKED.store(0, Ordering::SeqCst);
        ANSWERED.store(0, Ordering::SeqCst);
        let watched = thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    let asked = ASKED.load(Ordering::SeqCst);
                    if asked > ANSWERED.load(Ordering::SeqCst) {
                        queue.waiting();
                        ANSWERED.store(asked, Ordering::SeqCst);
                    }
                    thread::yield_now();
                }
            });
            IS_WATCHED.store(true, Ordering::SeqCst);
            let count = take_many(&queue);
            let watched = IS_WATCHED.swap(false, Ordering::SeqCst);
            done.store(true, Ordering::SeqCst);
            assert_eq!(count as u64, ITEMS);
            watched
        });
        assert!(ASKED.load(Ordering::SeqCst) > 1, "{name}: it grew");
        assert!(watched, "{name}: nobody got at the queue while room was made");
    }
}

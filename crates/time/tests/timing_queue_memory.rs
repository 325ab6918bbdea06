//! The memory that the timing queue allocates, as counted by an allocator: at most 24 bytes an entry over the payload,
//! whatever the order in which the entries came, cancel handles and unused room included.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::alloc::System;

use dwell_time::TimingQueue;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const PAYLOAD: usize = size_of::<u64>();

/// One test, since the count is that of the process.
#[test]
fn at_most_24_bytes_an_entry_over_the_payload_and_nothing_for_those_that_left() {
    fill_and_count();
    fill_and_cancel();
}

fn fill_and_count() {
    type Pattern = fn(u64, u64) -> i64;
    let patterns: [(&str, Pattern); 10] = [
        ("random", |_, random| (random % 86_400_000_000_000) as i64),
        ("all equal", |_, _| 7),
        ("ascending", |n, _| n as i64),
        ("descending", |n, _| -(n as i64)),
        ("near and far", |n, _| (n % 2 * 31_536_000_000_000_000 + n) as i64),
        ("sawtooth", |n, _| (n % 997) as i64),
        ("few instants", |_, random| (random % 16) as i64),
        ("falling in threes", |n, _| -((n / 3) as i64)),
        ("falling in groups of 130", |n, _| -((n / 130) as i64)),
        // The instants of the pages that are full of equal ones, and falling ones between them.
        ("equal, then falling between", |n, _| match n % 100_000 {
            at @ 0..8_256 => (n / 100_000 * 1_000_000 + at / 8_256) as i64,
            at => ((n / 100_000 + 1) * 1_000_000 - at) as i64,
        }),
    ];
    for (name, due) in patterns {
        for count in [1_000_000_u64, 5_000_000] {
            let region = Region::new(ALLOCATOR);
            let mut queue = TimingQueue::new();
            let mut random = 88_172_645_463_325_252_u64;
            for n in 0..count {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                queue.insert(due(n, random), n);
            }
            let change = region.change();
            let bytes = change.bytes_allocated as i64 - change.bytes_deallocated as i64;
            let each = bytes as f64 / count as f64 - PAYLOAD as f64;
            println!("{name}: {each:.1} bytes an entry over the payload, {count} entries");
            assert!(each <= 24.0, "{name}: {each:.1} bytes an entry over the payload, {count} entries");
            assert_eq!(queue.len() as u64, count);
        }
    }
}

/// A queue that is filled and cancelled again and again does not grow.
fn fill_and_cancel() {
    let mut queue = TimingQueue::new();
    let mut sizes = Vec::new();
    for round in 0..20_i64 {
        let region = Region::new(ALLOCATOR);
        let handles: Vec<_> = (0..100_000).map(|n| queue.insert(round * 7 + n * n % 1_000_003, n)).collect();
        for (n, handle) in handles.into_iter().enumerate() {
            // A few stay, so that pages become sparse rather than empty.
            if n % 1_000 != 0 {
                queue.cancel(handle).unwrap();
            }
        }
        let change = region.change();
        sizes.push(change.bytes_allocated as i64 - change.bytes_deallocated as i64);
    }
    let grown: i64 = sizes[1..].iter().sum();
    assert!(grown < 1_000_000, "2,000 entries stayed and took {grown} bytes more: {sizes:?}");
}

//! The memory of the process, as the system counts it, against `memory_limit`. A separate process, since other tests
//! would count too.
//!
//! What is allocated stays within the limit. What the process holds may be more: glibc's allocator keeps the memory
//! that a thread has freed in an arena of that thread, and gives it to no other. So it is measured twice, once with a
//! single arena.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use dwell_engine::{Counters, Durability, Engine, Options};
use dwell_model::{Key, QueueName};
use dwell_store::{Action, Put, Selection, Settle, Take, When};

const LIMIT: u64 = 32 * 1024 * 1024;
const MESSAGES: u64 = 400_000;
const BATCH: u64 = 1_000;
/// They would take three times the limit.
const DEAD: u64 = 200_000;

/// Resident memory of this process, in bytes.
fn rss() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

fn put(number: u64) -> Put {
    let queue = format!("queue-{}", number % 50).parse().unwrap();
    let put = Put::new(queue, vec![b'x'; 64]).after_ms(60_000 + number * 7_919 % 31_536_000 * 1_000);
    if number.is_multiple_of(3) { put.key(Key::new(&format!("key-{number}")).unwrap()) } else { put }
}

/// Buries messages, and revives all of them; returns the peak memory of the process during that.
fn bury_and_revive(engine: &Engine) -> u64 {
    let (store, queue) = (engine.blocking(), "dying".parse::<QueueName>().unwrap());
    let mut most = 0;
    for _ in 0..DEAD / BATCH {
        let puts = (0..BATCH).map(|_| Put::new(queue.clone(), vec![b'x'; 64])).collect();
        assert!(store.put(puts).into_iter().all(|answer| answer.is_ok()));
        let taken = store.take(Take::from(queue.clone()).max(BATCH as usize)).unwrap();
        let action = Action::Bury { reason: None, priority: None };
        let settles = taken.into_iter().map(|one| Settle { receipt: one.receipt, action: action.clone() });
        assert!(store.settle(settles.collect()).into_iter().all(|settled| settled.is_ok()));
        most = most.max(rss());
    }
    let (say, hear) = mpsc::channel();
    let reviving =
        thread::spawn(move || say.send(store.revive(queue, Selection::All, When::AfterMs(86_400_000))));
    let swept = (0..60_000).find_map(|_| {
        most = most.max(rss());
        hear.recv_timeout(Duration::from_millis(2)).ok()
    });
    assert_eq!(swept.unwrap().unwrap().done, DEAD);
    reviving.join().unwrap().unwrap();
    most
}

/// Set if all threads share an arena.
const ONE_ARENA: &str = "DWELL_TEST_ONE_ARENA";

#[cfg(target_env = "gnu")]
#[test]
fn with_one_arena_for_all_threads_it_stays_within_the_limit() {
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "what_the_system_counts_stays_near_the_limit", "--nocapture"]);
    let output = again.env("MALLOC_ARENA_MAX", "1").env(ONE_ARENA, "yes").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("1 passed"), "{said}");
}

#[test]
fn what_the_system_counts_stays_near_the_limit() {
    let dir = std::env::temp_dir().join(format!("dwell-engine-memory-{}", std::process::id()));
    drop(std::fs::remove_dir_all(&dir));
    let options = Options {
        memory_limit: LIMIT,
        segment_bytes: 8 * 1024 * 1024,
        durability: Durability::Os,
        ..Options::default()
    };
    let engine = Engine::open(&dir, options).unwrap();
    let store = engine.blocking();
    let before = rss();
    let mut most = 0;
    for batch in 0..MESSAGES / BATCH {
        let puts = (0..BATCH).map(|at| put(batch * BATCH + at)).collect();
        assert!(store.put(puts).into_iter().all(|answer| answer.is_ok()));
        most = most.max(rss().saturating_sub(before));
    }
    assert!(store.take(Take::from("queue-1".parse().unwrap())).unwrap().is_empty());
    let most_sweeping = bury_and_revive(&engine).saturating_sub(before);
    let counters = engine.counters();
    let Counters { resident, cold, flushes, resident_bytes, file_bytes, .. } = counters;
    println!("{most} bytes more at most, {most_sweeping} while messages die and are revived; {counters:?}");
    assert_eq!(resident + cold, MESSAGES + DEAD);
    assert!(flushes > 5 && cold > MESSAGES / 2, "{counters:?}");
    assert!(resident_bytes + file_bytes <= LIMIT, "{counters:?}");
    // Calls in progress and stacks; and without a single arena what the allocator keeps for each thread: the shard's,
    // one that flushes, and two that merge at the same time.
    let is_one_arena = std::env::var_os(ONE_ARENA).is_some();
    let besides = if is_one_arena { LIMIT / 8 } else { LIMIT / 2 + 32 * 1024 * 1024 };
    assert!(most <= LIMIT + besides, "{most} bytes for {counters:?}");
    // Messages that die and are revived in turn leave gaps that later allocations cannot use.
    let gaps = LIMIT / 16;
    assert!(most_sweeping <= LIMIT + besides + gaps, "{most_sweeping} bytes for {counters:?}");
    engine.close().unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
}

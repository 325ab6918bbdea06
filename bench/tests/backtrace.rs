//! Backtraces of a release build name the lines of our own crates: the profile omits only those of dependencies.

#![cfg(not(debug_assertions))]

use std::backtrace::Backtrace;
use std::time::Duration;

use dwell_time::DelayQueue;

#[test]
fn a_release_build_names_our_lines() {
    let queue = DelayQueue::new();
    queue.put((), Duration::from_secs(60)).expect("a minute is not too far");
    let (line, mut trace) = (line!() + 1, String::new());
    queue.for_each(|_, ()| trace = Backtrace::force_capture().to_string());
    let named = [format!("tests/backtrace.rs:{line}:"), "src/delay_queue/mod.rs:".to_owned()];
    assert!(named.iter().all(|place| trace.contains(place)), "{trace}");
}

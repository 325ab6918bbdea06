//! The store on a cluster of three keeps the contract.

mod support;

use std::thread;

use dwell_store::conformance::model;
use support::RedisHarness;

dwell_store::conformance_suite!(RedisHarness::on_a_cluster);

/// The number of concurrent lives: each waits for the cluster most of its time. They share nothing, each life having
/// its own prefix.
const SIDE_BY_SIDE: u64 = 4;

#[test]
fn behaves_as_the_model_does() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("it is a number"));
    let (cases, seed) = (number("DWELL_CASES").unwrap_or(100), number("DWELL_SEED").unwrap_or(1));
    let test = thread::current().name().expect("tests have names").to_owned();
    let lives = |lane: u64| {
        let (first, end) = (cases * lane / SIDE_BY_SIDE, cases * (lane + 1) / SIDE_BY_SIDE);
        move || model::try_run(RedisHarness::on_a_cluster, end - first, 200, seed + first)
    };
    let lanes = (0..SIDE_BY_SIDE).map(|lane| {
        // The instructions to replay a life name the thread.
        thread::Builder::new().name(test.clone()).spawn(lives(lane)).expect("a thread can be started")
    });
    for lane in lanes.collect::<Vec<_>>() {
        if let Err(failure) = lane.join().expect("it catches what its lives do") {
            panic!("{failure}");
        }
    }
}

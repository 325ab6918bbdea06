//! Real Redis servers for tests: started on free loopback ports, stopped when they are dropped.
//!
//! They need `redis-server` in the path; `scripts/test` installs it. They are for tests alone: a server that does not
//! start is a panic.

#![expect(clippy::missing_panics_doc, reason = "for tests: a server that does not start is a panic")]

mod cluster;
mod sentinel;
mod server;

pub use cluster::Cluster;
pub use sentinel::Sentinels;
pub use server::{Server, free_port};

use dwell_model::Wake;
use dwell_time::{Clock, SystemClock};
use redis::Value;

/// How long a server may take to start, to stop, or to agree with others.
const PATIENCE_MS: u64 = 30_000;

/// Asks again until `holds`, at most half a minute.
///
/// # Panics
/// If it never does.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    let mut sleeper = clock.sleeper();
    let end_ms = clock.now().mono_ms + PATIENCE_MS;
    while !holds() {
        let now_ms = clock.now().mono_ms;
        assert!(now_ms < end_ms, "waited in vain: {what}");
        // A process on the far side tells nobody when it is ready.
        sleeper.sleep(Wake { wall: None, mono_ms: Some(now_ms + 10) });
    }
}

/// A reply that is a text.
///
/// # Panics
/// If it is none.
#[track_caller]
pub fn text(reply: Value) -> String {
    redis::from_redis_value(reply).expect("the reply is a text")
}

/// A reply that is this number.
pub fn number(number: i64) -> Value {
    Value::Int(number)
}

/// Keeps a line about what a test has counted, in the folder `counted` of `folder`, which `scripts/test` prints: what a
/// test prints is seen by nobody while it passes.
pub fn count(folder: &str, name: &str, line: &str) {
    println!("{line}");
    let folder = std::path::Path::new(folder).join("counted");
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    std::fs::write(folder.join(name), format!("{line}\n")).expect("a file can be written");
}

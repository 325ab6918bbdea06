//! `delay-queue`: `DelayQueue<T>` compared with those of the JDK and tokio-util, and with a `BinaryHeap` under a mutex.
//!
//! All do the same work, with the same xorshift delays and a payload of 8 bytes. The JDK's side is
//! `bench/peers/DelayQueuePeer.java`, compiled and run here, in a process per measurement, with a warm-up. Measurements
//! that depend on threads or memory run in a separate process on all sides, with the same warm-up as the JDK's.
//!
//! - `jdk`, `heap`, `tokio_util`: the other sides
//! - `ours`: our side
//! - `fill`: offer, poll, cancel; one item per call, and in batches
//! - `threads`: contention of producers and consumers, lateness, the cost of a thousand waiting threads
//! - `bytes`: memory per entry

mod bytes;
mod fill;
mod heap;
mod jdk;
mod ours;
mod threads;
#[cfg(feature = "peers")]
mod tokio_util;

use super::Scenario;
use crate::Result;
use crate::own_process::Part;
use crate::report::Better;
use crate::run::Run;

use jdk::Jdk;

pub(crate) const SCENARIO: Scenario =
    Scenario { name: "delay-queue", what: "DelayQueue<T> beside the JDK's, tokio-util's and a heap", run };

/// The measurements that run in a separate process.
pub(crate) const PARTS: &[Part] = &[bytes::PART, threads::CONTENTION, threads::LATENESS];

fn run(run: &mut Run) -> Result<()> {
    let jdk = match Jdk::compile(run) {
        Ok(jdk) => Some(jdk),
        Err(reason) => {
            run.note(format!("without the JDK's side: {reason}"));
            None
        }
    };
    bytes::compare(run, jdk.as_ref())?;
    fill::compare(run, jdk.as_ref())?;
    threads::compare(run, jdk.as_ref())
}

/// One side's samples of one number, one per round.
struct Samples {
    name: &'static str,
    values: Vec<f64>,
}

/// Adds a row for each peer, or one without a peer if there is none. The first samples are ours.
fn add_rows(run: &mut Run, work: &str, metric: &str, better: Better, sides: Vec<Samples>) {
    let mut sides = sides.into_iter();
    let Some(ours) = sides.next() else { return };
    let mut has_peer = false;
    for theirs in sides.filter(|theirs| !theirs.values.is_empty()) {
        run.beside(work, metric, better, ours.values.clone(), theirs.name, theirs.values);
        has_peer = true;
    }
    if !has_peer {
        run.alone(work, metric, ours.values);
    }
}

/// xorshift64, as on the JDK's side.
struct Random(u64);

const SEED: u64 = 88_172_645_463_325_252;

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

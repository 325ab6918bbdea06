//! Opens the engine after much of its content has expired, and takes what is left.
//!
//! Measures the time to the first message, and the latency of other calls meanwhile. Parameters: `alive`, the number of
//! messages of the mix's first queue that have not expired.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use dwell_model::QueueName;
use dwell_store::{Put, Take};
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::OpenedEngine;
use crate::Result;
use crate::own_process::{Part, count};
use crate::stopwatch::Stopwatch;
use crate::workload::BODY_BYTES;

pub(crate) const PART: Part = Part { name: "expired", run };

/// The minimum number of other calls, during the take and after it,
const OTHERS: usize = 500;
/// and the pause after each of them.
const PAUSE: Duration = Duration::from_millis(1);

fn run(parameters: &Value) -> Result<Value> {
    let watch = Stopwatch::start();
    let opened = OpenedEngine::open(parameters)?;
    let open_ms = watch.elapsed().as_secs_f64() * 1_000.0;
    let alive = count(parameters, "alive")?;
    let other: QueueName = "other".parse().expect("it is a queue's name");
    let mut micros: Histogram<u64> = Histogram::new(3)?;
    let (taken, first_ms) = thread::scope(|scope| -> Result<(u64, f64)> {
        let (say, hear) = mpsc::channel();
        let (calls, queue) = (opened.ours.calls(), opened.mix.queue_name(0));
        scope.spawn(move || {
            let watch = Stopwatch::start();
            let first = calls.take(Take::from(queue.clone()).max(1)).map(|taken| taken.len() as u64);
            let first_ms = watch.elapsed().as_secs_f64() * 1_000.0;
            let all = first.and_then(|first| {
                let mut all = first;
                loop {
                    match calls.take(Take::from(queue.clone()).max(1_000))?.len() as u64 {
                        0 => return Ok(all),
                        some => all += some,
                    }
                }
            });
            // Errors are passed as text, since they cross threads. The receiver is gone if the other calls failed.
            let _ = say.send((all.map_err(|error| error.to_string()), first_ms));
        });
        let (mut left, mut answer) = (OTHERS, None);
        while left > 0 || answer.is_none() {
            let watch = Stopwatch::start();
            let one = |_| vec![Put::new(other.clone(), vec![0; BODY_BYTES])];
            opened.ours.put_patiently(one(0), one)?;
            opened.ours.take_from(Take::from(other.clone()).max(1), |_| {})?;
            micros.record(u64::try_from(watch.elapsed().as_micros())?)?;
            left = left.saturating_sub(1);
            answer = answer.or_else(|| hear.recv_timeout(PAUSE).ok());
        }
        let (all, first_ms) = answer.expect("it was waited for");
        Ok((all?, first_ms))
    })?;
    if taken != alive {
        return Err(format!("{taken} were handed out, and {alive} have not expired").into());
    }
    let stats = opened.ours.calls().stats(opened.mix.queue_name(0))?;
    let ms = |micros: u64| micros as f64 / 1_000.0;
    opened.close(json!({
        "open_ms": open_ms,
        "first_ms": first_ms,
        "dead": stats.counts.dead,
        "others_p99_ms": ms(micros.value_at_quantile(0.99)),
        "others_max_ms": ms(micros.max()),
    }))
}

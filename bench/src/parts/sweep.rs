//! Sweeps: bulk operations that remove or revive all messages of a queue, and their latency.
//!
//! Parameters: `dead`, the number of messages of the third and of the fourth queue that are buried first, if there are
//! as many. Then the first queue is purged, the second is deleted, the dead messages of the third are revived, and
//! those of the fourth are discarded. From the start of each sweep other calls are made: a synced put to another queue,
//! until the sweep is answered, and at least a hundred times.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use dwell_model::QueueName;
use dwell_store::{Action, Put, Selection, Settle, Take, When};
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::OpenedEngine;
use crate::Result;
use crate::own_process::{Part, count};
use crate::run::progress;
use crate::stopwatch::Stopwatch;
use crate::workload::{BATCH, BODY_BYTES};

pub(crate) const PART: Part = Part { name: "sweep", run };

/// The minimum number of other calls during a sweep and after it,
const OTHERS: usize = 100;
/// and the pause after each of them.
const PAUSE: Duration = Duration::from_millis(1);

fn run(parameters: &Value) -> Result<Value> {
    let opened = OpenedEngine::open(parameters)?;
    let most = count(parameters, "dead")?;
    let [purged, deleted, revived, discarded] = std::array::from_fn(|queue| opened.mix.queue_name(queue));
    let (third, fourth) = (bury(&opened, &revived, most)?, bury(&opened, &discarded, most)?);
    let calls = opened.ours.calls();
    let sweeps = json!({
        "purge": timed(&opened, || Ok(calls.purge(purged)?))?,
        "delete_queue": timed(&opened, || Ok(calls.delete_queue(deleted)?))?,
        "revive_all": timed(&opened, || Ok(calls.revive(revived, Selection::All, When::AfterMs(0))?.done))?,
        "discard_all": timed(&opened, || Ok(calls.discard(discarded, Selection::All)?.done))?,
    });
    for (sweep, expected) in [("revive_all", third), ("discard_all", fourth)] {
        if sweeps[sweep]["swept"] != expected {
            return Err(format!("{sweep} of {expected} swept {}", sweeps[sweep]["swept"]).into());
        }
    }
    opened.close(sweeps)
}

/// Buries up to `most` messages of a queue that are due. Returns their number.
fn bury(opened: &OpenedEngine, queue: &QueueName, most: u64) -> Result<u64> {
    let (calls, bar) = (opened.ours.calls(), progress("bury", most));
    let mut buried = 0;
    while buried < most {
        let max = BATCH.min(usize::try_from(most - buried)?);
        let taken = calls.take(Take::from(queue.clone()).max(max))?;
        if taken.is_empty() {
            break;
        }
        buried += taken.len() as u64;
        bar.inc(taken.len() as u64);
        let settles = taken.into_iter().map(|delivery| Settle {
            receipt: delivery.receipt,
            action: Action::Bury { reason: None, priority: None },
        });
        for answer in calls.settle(settles.collect()) {
            answer?;
        }
    }
    bar.finish_and_clear();
    Ok(buried)
}

/// The number of messages swept, the time of the sweep, and the latency of other calls during and after it.
fn timed(opened: &OpenedEngine, sweep: impl FnOnce() -> Result<u64> + Send) -> Result<Value> {
    let other: QueueName = "other".parse().expect("it is a queue's name");
    let mut micros: Histogram<u64> = Histogram::new(3)?;
    let (swept, answer_ms) = thread::scope(|scope| -> Result<(u64, f64)> {
        let (say, hear) = mpsc::channel();
        scope.spawn(move || {
            let watch = Stopwatch::start();
            // Errors are passed as text, since they cross threads.
            let swept = sweep().map_err(|error| error.to_string());
            // The receiver is gone if the other calls failed.
            let _ = say.send((swept, watch.elapsed().as_secs_f64() * 1_000.0));
        });
        let (mut left, mut answer) = (OTHERS, None);
        while left > 0 || answer.is_none() {
            let watch = Stopwatch::start();
            let one = |_| vec![Put::new(other.clone(), vec![0; BODY_BYTES])];
            opened.ours.put_patiently(one(0), one)?;
            micros.record(u64::try_from(watch.elapsed().as_micros())?)?;
            left = left.saturating_sub(1);
            answer = answer.or_else(|| hear.recv_timeout(PAUSE).ok());
        }
        let (swept, answer_ms) = answer.expect("it was waited for");
        Ok((swept?, answer_ms))
    })?;
    let ms = |micros: u64| micros as f64 / 1_000.0;
    Ok(json!({
        "swept": swept,
        "answer_ms": answer_ms,
        "others_p99_ms": ms(micros.value_at_quantile(0.99)),
        "others_max_ms": ms(micros.max()),
    }))
}

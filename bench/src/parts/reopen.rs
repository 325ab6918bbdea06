//! Opens the engine, takes one message and gives it back: the time to open it, and to the first delivery.

use dwell_store::{Action, Settle, Take};
use serde_json::{Value, json};

use super::OpenedEngine;
use crate::Result;
use crate::own_process::Part;
use crate::stopwatch::Stopwatch;

pub(crate) const PART: Part = Part { name: "reopen", run };

fn run(parameters: &Value) -> Result<Value> {
    let watch = Stopwatch::start();
    let opened = OpenedEngine::open(parameters)?;
    let open_ms = watch.elapsed().as_secs_f64() * 1_000.0;
    let taken =
        opened.ours.calls().take(Take::from_all(opened.mix.queue_names()))?.pop().ok_or("nothing is due")?;
    let first_ms = watch.elapsed().as_secs_f64() * 1_000.0;
    let action = Action::Release { after_ms: None, priority: None };
    opened.ours.calls().settle_one(Settle { receipt: taken.receipt, action })?;
    let report = opened.ours.engine().report().clone();
    opened.close(json!({
        "open_ms": open_ms,
        "first_ms": first_ms,
        "messages": report.messages,
        "records": report.records,
        "segments": report.segments,
    }))
}

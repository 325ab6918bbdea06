//! Puts a mix, in batches of 1,024, each synced before it is answered.
//!
//! Parameters: `from` and `to` in the mix. `generations`, optional: it continues until this many were flushed. `stay`:
//! it continues until the journal has its maximum length, reports so, and then waits to be killed.

use std::ops::Range;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::OpenedEngine;
use crate::Result;
use crate::mix::Ids;
use crate::own_process::{Part, count, say};
use crate::resources::space_bytes;
use crate::run::progress;
use crate::stopwatch::{Stopwatch, pause};
use crate::workload::BATCH;

pub(crate) const PART: Part = Part { name: "fill", run };

/// The parameters for the first `count` messages.
pub(crate) fn all(count: u64) -> Value {
    range(0..count)
}

/// The parameters for these messages.
pub(crate) fn range(numbers: Range<u64>) -> Value {
    json!({ "from": numbers.start, "to": numbers.end })
}

fn run(parameters: &Value) -> Result<Value> {
    let opened = OpenedEngine::open(parameters)?;
    let (from, to) = (count(parameters, "from")?, count(parameters, "to")?);
    let stays = parameters["stay"] == true;
    let mut filling = Filling::new(&opened)?;
    let bar = progress("fill", to - from);
    let mut at = from;
    let generations = parameters["generations"].as_u64().unwrap_or_default();
    while at < to || filling.flushes < generations {
        let end = if at < to { to.min(at + BATCH as u64) } else { at + BATCH as u64 };
        filling.put(at..end)?;
        bar.inc(end - at);
        at = end;
    }
    bar.finish_and_clear();
    let found = json!({
        "put": at - from,
        "per_s": (at - from) as f64 / filling.spent.as_secs_f64(),
        "p50_ms": filling.micros.value_at_quantile(0.5) as f64 / 1_000.0,
        "p99_ms": filling.micros.value_at_quantile(0.99) as f64 / 1_000.0,
        "max_ms": filling.micros.max() as f64 / 1_000.0,
        "waits": filling.waits,
        "ids": filling.ids.map(|ids| ids.json()),
        "space_bytes": space_bytes(&opened.folder)?,
    });
    if stays {
        // Until just before the next flush is complete, which would cut the journal.
        while filling.flushes > 0 && filling.since * 100 < filling.longest * 97 {
            let before = filling.flushes;
            filling.put(at..at + BATCH as u64)?;
            at += BATCH as u64;
            if filling.flushes > before {
                // The journal has not reached this length again, so the target is lowered.
                filling.longest -= filling.longest / 8;
            }
        }
        say(&found)?;
        pause(Duration::from_secs(3_600));
        return Err("nobody has ended this".into());
    }
    opened.close(found)
}

struct Filling<'a> {
    opened: &'a OpenedEngine,
    ids: Option<Ids>,
    spent: Duration,
    micros: Histogram<u64>,
    waits: u64,
    flushes: u64,
    /// The number of puts since the last flush was complete, and the maximum between two.
    since: u64,
    longest: u64,
}

impl<'a> Filling<'a> {
    fn new(opened: &'a OpenedEngine) -> Result<Filling<'a>> {
        let micros = Histogram::new(3)?;
        let spent = Duration::ZERO;
        Ok(Filling { opened, ids: None, spent, micros, waits: 0, flushes: 0, since: 0, longest: 0 })
    }

    fn put(&mut self, numbers: Range<u64>) -> Result<()> {
        let mix = &self.opened.mix;
        let puts = mix.puts(numbers.clone());
        let again = |at: usize| mix.puts(numbers.start + at as u64..numbers.end);
        let watch = Stopwatch::start();
        let (answers, waits) = self.opened.ours.put_patiently(puts, again)?;
        let took = watch.elapsed();
        self.spent += took;
        self.micros.record(u64::try_from(took.as_micros())?)?;
        self.waits += waits;
        for (answer, number) in answers.iter().zip(numbers.clone()) {
            let ids = *self.ids.get_or_insert_with(|| Ids::from_one(answer.id, number));
            if ids.id(number, self.opened.mix.due(number))? != answer.id {
                return Err(format!("the id of message {number} does not follow from those before").into());
            }
        }
        self.since += numbers.end - numbers.start;
        let flushes = self.opened.counters().flushes;
        if flushes > self.flushes {
            // The first one started from an empty directory, and is shorter or longer than the others.
            self.longest = if self.flushes == 0 { self.since } else { self.longest.max(self.since) };
            (self.flushes, self.since) = (flushes, 0);
        }
        Ok(())
    }
}

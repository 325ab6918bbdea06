//! Gets single random messages, by id and by key: the latency and the number of reads of each.
//!
//! Parameters: `ids`, `gets` of each kind, and `skip`: messages that were moved or cancelled are skipped. On reads from
//! the disk, the kernel's readahead would soon hold all of a small backlog, so the page cache is dropped regularly.

use dwell_testkit::Random;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::OpenedEngine;
use super::change::is_changed;
use crate::Result;
use crate::mix::{Ids, Mix};
use crate::own_process::{Part, count};
use crate::page_cache::drop_caches;
use crate::run::progress;
use crate::stopwatch::Stopwatch;
use dwell_store::Target;

pub(crate) const PART: Part = Part { name: "get", run };

/// The number of gets after which the page cache is dropped.
const GETS_A_DROP: usize = 16;

fn run(parameters: &Value) -> Result<Value> {
    let opened = OpenedEngine::open(parameters)?;
    let (ids, gets) = (Ids::parse(&parameters["ids"])?, count(parameters, "gets")?);
    // An interrupted flush resumes with the first call, and its reads would be counted.
    let first = Target::Id(ids.id(0, opened.mix.due(0))?);
    drop(opened.ours.calls().get(opened.mix.queue_name(opened.mix.queue(0)), vec![first], false));
    opened.settle_down()?;
    let skips = parameters["skip"] == true;
    let mix = opened.mix;
    let mut random = Random::new(17);
    let mut draw = |step: u64| loop {
        let number = random.next() % mix.count.div_ceil(step) * step;
        if number < mix.count && !(skips && is_changed(number)) {
            break number;
        }
    };
    let mut found = json!({});
    let by_id: Vec<u64> = (0..gets).map(|_| draw(1)).collect();
    found["by_id"] =
        all(&opened, "get by id", &by_id, |number| Ok(Target::Id(ids.id(number, mix.due(number))?)))?;
    if mix.keyed > 0 {
        let by_key: Vec<u64> = (0..gets).map(|_| draw(mix.keyed)).collect();
        let key = |number| Ok(Target::Key(mix.key(number).ok_or("a message has no key")?));
        found["by_key"] = all(&opened, "get by key", &by_key, key)?;
    }
    opened.close(found)
}

fn all(
    opened: &OpenedEngine,
    label: &str,
    numbers: &[u64],
    target: impl Fn(u64) -> Result<Target>,
) -> Result<Value> {
    let (mut micros, mut reads) = (Histogram::<u64>::new(3)?, Histogram::<u64>::new(3)?);
    let bar = progress(label, numbers.len() as u64);
    for (at, number) in numbers.iter().enumerate() {
        if at % GETS_A_DROP == 0 {
            drop_caches(&opened.folder)?;
        }
        let (queue, target) = (opened.mix.queue_name(opened.mix.queue(*number)), target(*number)?);
        let before = opened.counters().disk.reads;
        let watch = Stopwatch::start();
        let answer =
            opened.ours.calls().get(queue, vec![target], false).pop().ok_or("a get has an answer")?;
        micros.record(u64::try_from(watch.elapsed().as_micros())?)?;
        reads.record(opened.counters().disk.reads - before)?;
        if answer?.body[..] != Mix::body(*number) {
            return Err(format!("{label}: message {number} has another body").into());
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(json!({
        "p50_us": micros.value_at_quantile(0.5),
        "p99_us": micros.value_at_quantile(0.99),
        "reads_mean": reads.mean(),
        "reads_p99": reads.value_at_quantile(0.99),
        "reads_max": reads.max(),
    }))
}

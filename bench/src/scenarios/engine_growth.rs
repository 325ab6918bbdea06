//! `engine-growth`: what a message costs, and what memory is taken, with 1 M, 10 M and 100 M pending.

use serde_json::{Value, json};

use super::Scenario;
use crate::Result;
use crate::mix::Mix;
use crate::ours::MEMORY_LIMIT;
use crate::own_process::{PEAK_RSS, number};
use crate::page_cache::drop_caches;
use crate::parts::{DISK_BYTES, Place, drain, fill, get, reopen};
use crate::resources::need_disk;
use crate::run::Run;
use crate::workload::DAY_MS;

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "engine-growth",
    what: "put, get, restart and drain with 1 M, 10 M and 100 M pending",
    run,
};

const SIZES: [u64; 3] = [1_000_000, 10_000_000, 100_000_000];
const GETS: u64 = 5_000;

/// What a part's result says that one message costs.
type Cost = fn(&Value) -> Result<f64>;

/// What is measured at each size, in microseconds a message, the restart's in microseconds; and the part that it comes from.
const COSTS: [(&str, usize, Cost); 4] = [
    ("put", 0, |found| Ok(1e6 / number(found, "per_s")?)),
    ("get, the median", 1, |found| number(&found["by_id"], "p50_us")),
    ("drain", 3, |found| Ok(1e6 / number(found, "per_s")?)),
    ("restart, to the first delivery", 2, |found| Ok(number(found, "first_ms")? * 1e3)),
];

fn run(run: &mut Run) -> Result<()> {
    run.measure_once();
    let memory_limit = run.scaled(MEMORY_LIMIT);
    let sizes = SIZES.map(|size| run.scaled(size));
    need_disk(run.folder(), sizes[2] * DISK_BYTES)?;
    run.note(format!(
        "memory limit {memory_limit} bytes; bodies of 128 bytes, due within a day, one queue; batches of 1,024, synced; \
         {} gets by id; each step in a process of its own, with the page cache dropped before",
        run.scaled(GETS)
    ));
    let mut found = Vec::new();
    for count in sizes {
        let steps = once(run, count, memory_limit)?;
        for (work, step, cost) in COSTS {
            run.alone(&format!("{work}, {count} pending"), "us", vec![cost(&steps[step])?]);
        }
        run.alone(&format!("get, {count} pending"), "reads", vec![number(&steps[1]["by_id"], "reads_mean")?]);
        let peaks = steps.iter().map(|step| number(step, PEAK_RSS)).collect::<Result<Vec<f64>>>()?;
        for (work, peak) in ["put", "get", "restart", "drain"].iter().zip(peaks) {
            run.alone(&format!("{work}, {count} pending"), PEAK_RSS, vec![peak]);
        }
        found.push(steps);
    }
    for (work, step, cost) in COSTS {
        let costs = found.iter().map(|steps| cost(&steps[step])).collect::<Result<Vec<f64>>>()?;
        for smaller in 0..2 {
            let work = format!("{work}, {} pending over {}", sizes[2], sizes[smaller]);
            run.alone(&work, "times", vec![costs[2] / costs[smaller]]);
        }
    }
    Ok(())
}

/// Put, get, restart, drain.
fn once(run: &Run, count: u64, memory_limit: u64) -> Result<[Value; 4]> {
    let mix = Mix::plain(count, DAY_MS);
    let place = Place { folder: run.empty_folder("dwell")?, memory_limit, mix, bodies: None };
    eprintln!("{count} pending");
    let put = place.ask(&fill::PART, 0, fill::all(count))?;
    drop_caches(&place.folder)?;
    let got =
        place.ask(&get::PART, 0, json!({ "ids": put["ids"], "gets": run.scaled(GETS), "skip": false }))?;
    drop_caches(&place.folder)?;
    let reopened = place.ask(&reopen::PART, DAY_MS, json!({}))?;
    drop_caches(&place.folder)?;
    let drained = place.ask(&drain::PART, DAY_MS, drain::queues(0..1))?;
    run.empty_folder("dwell")?;
    Ok([put, got, reopened, drained])
}

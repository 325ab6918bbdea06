//! `engine-far`: 100 M messages due over a year in 50 queues, a third of them with keys: put, moved, cancelled, got,
//! and a month of them delivered. Then the disk space after cancelling and moving.

use serde_json::{Value, json};

use super::Scenario;
use crate::Result;
use crate::body_writes::BodyWrites;
use crate::mix::Mix;
use crate::ours::MEMORY_LIMIT;
use crate::own_process::{PEAK_RSS, number};
use crate::page_cache::drop_caches;
use crate::parts::{BuildPlace, DISK_BYTES, change, drain, fill, get};
use crate::resources::need_disk;
use crate::run::Run;
use crate::workload::{BODY_BYTES, DAY_MS};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "engine-far",
    what: "100 M due over a year, 50 queues, keys: put, move, cancel, get, and a month goes by",
    run,
};

const YEAR_MS: u64 = 365 * DAY_MS;
const GETS: u64 = 10_000;
const STEPS: u64 = 30 * 24;
/// A message's body, id and due, and the key of 18 bytes that a third of them have.
const LIVE_BYTES: u64 = BODY_BYTES as u64 + 16 + 8 + 6;

fn run(run: &mut Run) -> Result<()> {
    run.measure_once();
    let (count, memory_limit) = (run.scaled(100_000_000), run.scaled(MEMORY_LIMIT));
    need_disk(run.folder(), count * DISK_BYTES)?;
    run.note(format!(
        "{count} messages of 128 bytes, due within a year, in 50 queues, a third of them with keys; memory limit \
         {memory_limit} bytes; 5 % rescheduled, 5 % cancelled in batches, by key where there is one; {} gets of each kind, \
         one at a time; each step in a process of its own, with the page cache dropped before",
        run.scaled(GETS)
    ));
    year(run, count, memory_limit)?;
    cancelled(run, count.div_ceil(10), memory_limit)?;
    moved(run, run.scaled(1_000_000), memory_limit)
}

fn year(run: &mut Run, count: u64, memory_limit: u64) -> Result<()> {
    let mix = Mix { queues: 50, keyed: 3, ..Mix::plain(count, YEAR_MS) };
    let bodies = run.empty_folder("bodies")?.join("writes");
    let place =
        BuildPlace { folder: run.empty_folder("dwell")?, memory_limit, mix, bodies: Some(bodies.clone()) };
    let filled = place.ask(&fill::PART, 0, fill::all(count))?;
    drop_caches(&place.folder)?;
    let changes = json!({ "ids": filled["ids"], "cancel": 1, "move": true });
    let changed = place.ask(&change::PART, 0, changes)?;
    drop_caches(&place.folder)?;
    let gets = json!({ "ids": filled["ids"], "gets": run.scaled(GETS), "skip": true });
    let got = place.ask(&get::PART, 0, gets)?;
    drop_caches(&place.folder)?;
    let month = place.ask(&drain::MONTH, 0, json!({ "steps": STEPS }))?;

    let one = |found: &Value, field: &str| number(found, field).map(|number| vec![number]);
    run.alone("put", "per_s", one(&filled, "per_s")?);
    run.alone("put, a batch", "p99_ms", one(&filled, "p99_ms")?);
    run.alone("put, a batch", "max_ms", one(&filled, "max_ms")?);
    run.alone("reschedule", "per_s", one(&changed, "moved_per_s")?);
    run.alone("cancel", "per_s", one(&changed, "cancelled_per_s")?);
    for (work, found) in [("get by id", &got["by_id"]), ("get by key", &got["by_key"])] {
        for field in ["p50_us", "p99_us", "reads_mean", "reads_p99", "reads_max"] {
            run.alone(work, field, one(found, field)?);
        }
    }
    run.alone("a month: take and ack", "per_s", one(&month, "per_s")?);
    for (work, found) in [("put", &filled), ("change", &changed), ("get", &got), ("a month", &month)] {
        run.alone(work, PEAK_RSS, one(found, PEAK_RSS)?);
    }
    run.alone(
        "space after the changes, a message",
        "bytes",
        vec![number(&changed, "space_bytes")? / count as f64],
    );
    run.alone("tables, after the changes", "files", one(&changed["counters"], "tables")?);
    let writes = BodyWrites::go_on(&bodies, count)?;
    for (work, is_moved) in [("unmoved", false), ("rescheduled", true)] {
        let (mean, most) = writes.mean_and_most(|number| change::is_moved(number) == is_moved);
        run.alone(&format!("{work}, a message, mean"), "body_writes", vec![mean]);
        run.alone(&format!("{work}, a message, most"), "body_writes", vec![most.into()]);
    }
    run.empty_folder("dwell")?;
    Ok(())
}

/// 95 % are cancelled: the space is reclaimed.
fn cancelled(run: &mut Run, count: u64, memory_limit: u64) -> Result<()> {
    let mix = Mix { queues: 50, keyed: 3, ..Mix::plain(count, YEAR_MS) };
    let place = BuildPlace { folder: run.empty_folder("dwell")?, memory_limit, mix, bodies: None };
    let filled = place.ask(&fill::PART, 0, fill::all(count))?;
    let changes = json!({ "ids": filled["ids"], "cancel": 19, "move": false });
    let changed = place.ask(&change::PART, 0, changes)?;
    let live = count / 20 * LIVE_BYTES;
    let space = number(&changed, "space_bytes")?;
    run.note(format!(
        "95 % of {count} cancelled: {} live messages of {LIVE_BYTES} bytes on average with id, due and key",
        count / 20
    ));
    run.alone("95 % cancelled", "space_bytes", vec![space]);
    run.alone("95 % cancelled, live", "bytes", vec![live as f64]);
    run.alone("95 % cancelled, space less twice live", "bytes", vec![space - 2.0 * live as f64]);
    run.alone("95 % cancelled", "per_s", vec![number(&changed, "cancelled_per_s")?]);
    run.alone("95 % cancelled", PEAK_RSS, vec![number(&changed, PEAK_RSS)?]);
    run.empty_folder("dwell")?;
    Ok(())
}

/// One message is rescheduled again and again: the space does not grow.
fn moved(run: &mut Run, times: u64, memory_limit: u64) -> Result<()> {
    let place = BuildPlace {
        folder: run.empty_folder("dwell")?,
        memory_limit,
        mix: Mix::plain(1, YEAR_MS),
        bodies: None,
    };
    let moved = place.ask(&change::ONE, 0, json!({ "times": times }))?;
    run.alone(&format!("one message rescheduled {times} times"), "per_s", vec![number(&moved, "per_s")?]);
    for field in ["space_bytes", "most_space_bytes"] {
        run.alone(&format!("one message rescheduled {times} times"), field, vec![number(&moved, field)?]);
    }
    run.empty_folder("dwell")?;
    Ok(())
}

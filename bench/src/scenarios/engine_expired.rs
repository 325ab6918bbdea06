//! `engine-expired`: 10 M messages that expired while the store was closed. It is opened, and the first take searches
//! for the remaining ones.

use serde_json::json;

use super::Scenario;
use crate::Result;
use crate::mix::Mix;
use crate::ours::MEMORY_LIMIT;
use crate::own_process::{PEAK_RSS, count, number};
use crate::page_cache::drop_caches;
use crate::parts::{BuildPlace, DISK_BYTES, expired, fill};
use crate::resources::need_disk;
use crate::run::Run;
use crate::workload::DAY_MS;

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "engine-expired",
    what: "the first take after 10 M messages have expired while the store was closed",
    run,
};

/// The number of messages without an expiry, spread among the others.
const ALIVE: u64 = 100;

fn run(run: &mut Run) -> Result<()> {
    run.measure_once();
    let (total, memory_limit) = (run.scaled(10_000_000), run.scaled(MEMORY_LIMIT));
    need_disk(run.folder(), total * DISK_BYTES)?;
    run.note(format!(
        "{total} messages of 128 bytes in one queue, due within a day, that expire at one instant after it; {ALIVE} others \
         do not expire; memory limit {memory_limit} bytes; others: a synced put, take and ack of another queue, one at a \
         time, while the take looks for what is left, 500 at least"
    ));
    let lasting = Mix::plain(total + ALIVE, DAY_MS);
    let place = BuildPlace {
        folder: run.empty_folder("dwell")?,
        memory_limit,
        mix: Mix { expires_ms: 2 * DAY_MS, ..lasting },
        bodies: None,
    };
    place.ask(&fill::PART, 0, fill::all(total))?;
    let alive = BuildPlace { mix: lasting, ..place.clone() };
    alive.ask(&fill::PART, 0, fill::range(total..total + ALIVE))?;
    drop_caches(&place.folder)?;
    let found = place.ask(&expired::PART, 3 * DAY_MS, json!({ "alive": ALIVE }))?;
    if count(&found, "dead")? != total {
        return Err(format!("{} of {total} are dead", found["dead"]).into());
    }
    let work = format!("take behind {total}");
    run.alone("open", "ms", vec![number(&found, "open_ms")?]);
    run.alone(&work, "ms", vec![number(&found, "first_ms")?]);
    run.alone(&format!("others beside {work}"), "p99_ms", vec![number(&found, "others_p99_ms")?]);
    run.alone(&format!("others beside {work}"), "max_ms", vec![number(&found, "others_max_ms")?]);
    run.alone(&work, PEAK_RSS, vec![number(&found, PEAK_RSS)?]);
    run.empty_folder("dwell")?;
    Ok(())
}

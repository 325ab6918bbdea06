//! `engine-retention`: 10 M dead messages in tables, of which the queue then keeps a thousand, or none; another queue is
//! used meanwhile.

use serde_json::json;

use super::Scenario;
use crate::Result;
use crate::mix::Mix;
use crate::ours::MEMORY_LIMIT;
use crate::own_process::{PEAK_RSS, number};
use crate::page_cache::drop_caches;
use crate::parts::{BuildPlace, DISK_BYTES, fill, retention};
use crate::resources::need_disk;
use crate::run::Run;
use crate::workload::DAY_MS;

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "engine-retention",
    what: "10 M dead messages go by a lowered dead_max, and by dead_ttl",
    run,
};

/// What a lowered `dead_max` leaves.
const LEFT: u64 = 1_000;
/// A `dead_ttl` that is over for all of them, in ms: they have been dead for a day.
const DEAD_TTL_MS: u64 = 3_600_000;

fn run(run: &mut Run) -> Result<()> {
    run.measure_once();
    let (dead, memory_limit) = (run.scaled(10_000_000), run.scaled(MEMORY_LIMIT));
    need_disk(run.folder(), dead * DISK_BYTES)?;
    run.note(format!(
        "{dead} messages of 128 bytes in one queue, all buried, ten thousand an instant; memory limit {memory_limit} bytes; \
         the store is opened again with cold caches, and one setting is made; ms: from the call that makes it until the \
         queue counts what is left; others: a synced put, take and ack of another queue, one at a time, meanwhile, 500 at \
         least; counts of discards, and which messages are left, are checked"
    ));
    let settings = [
        (format!("dead_max of {LEFT} behind {dead}"), json!({ "dead_max": LEFT, "left": LEFT })),
        (format!("dead_ttl over for {dead}"), json!({ "dead_ttl_ms": DEAD_TTL_MS, "left": 0 })),
    ];
    for (work, mut parameters) in settings {
        let [bury, others, before, after] =
            ["bury before", "others beside", "before", "after"].map(|what| format!("{what} {work}"));
        if ![&work, &bury, &others, &before, &after].into_iter().any(|row| run.wants(row)) {
            continue;
        }
        let mix = Mix::plain(dead, DAY_MS);
        let place = BuildPlace { folder: run.empty_folder("dwell")?, memory_limit, mix, bodies: None };
        place.ask(&fill::PART, 0, fill::all(dead))?;
        let buried = place.ask(&retention::BURY, DAY_MS, json!({ "dead": dead }))?;
        drop_caches(&place.folder)?;
        parameters["dead"] = dead.into();
        let found = place.ask(&retention::PART, 2 * DAY_MS, parameters)?;
        run.alone(&bury, "per_s", vec![number(&buried, "per_s")?]);
        run.alone(&before, "space_bytes", vec![number(&buried, "space_bytes")?]);
        run.alone(&work, "set_ms", vec![number(&found, "set_ms")?]);
        run.alone(&work, "ms", vec![number(&found, "gone_ms")?]);
        run.alone(&others, "count", vec![number(&found, "others")?]);
        run.alone(&others, "p99_ms", vec![number(&found, "others_p99_ms")?]);
        run.alone(&others, "max_ms", vec![number(&found, "others_max_ms")?]);
        run.alone(&after, "space_bytes", vec![number(&found, "space_bytes")?]);
        run.alone(&work, PEAK_RSS, vec![number(&found, PEAK_RSS)?]);
        run.alone(&work, "memory_limit_bytes", vec![memory_limit as f64]);
    }
    run.empty_folder("dwell")?;
    Ok(())
}

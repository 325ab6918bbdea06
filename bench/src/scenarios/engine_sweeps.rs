//! `engine-sweeps`: the latency of purge, delete-queue, revive-all and discard-all with 100 M pending messages, and of
//! other calls meanwhile.

use serde_json::json;

use super::Scenario;
use crate::Result;
use crate::mix::Mix;
use crate::ours::MEMORY_LIMIT;
use crate::own_process::{PEAK_RSS, number};
use crate::page_cache::drop_caches;
use crate::parts::{BuildPlace, DISK_BYTES, fill, sweep};
use crate::resources::need_disk;
use crate::run::Run;
use crate::workload::DAY_MS;

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "engine-sweeps",
    what: "purge, delete-queue, revive-all and discard-all with 100 M pending",
    run,
};

const QUEUES: u64 = 4;
const DEAD: u64 = 1_000_000;

fn run(run: &mut Run) -> Result<()> {
    run.measure_once();
    let (count, dead, memory_limit) = (run.scaled(100_000_000), run.scaled(DEAD), run.scaled(MEMORY_LIMIT));
    need_disk(run.folder(), count * DISK_BYTES)?;
    run.note(format!(
        "{count} messages of 128 bytes in {QUEUES} queues, all due; memory limit {memory_limit} bytes; the first queue is \
         purged, the second deleted; of the third and the fourth {dead} are dead, which are revived and discarded; others: \
         synced puts to another queue, one at a time, while each goes on, a hundred at least"
    ));
    let mix = Mix { queues: QUEUES, ..Mix::plain(count, DAY_MS) };
    let place = BuildPlace { folder: run.empty_folder("dwell")?, memory_limit, mix, bodies: None };
    place.ask(&fill::PART, 0, fill::all(count))?;
    drop_caches(&place.folder)?;
    let found = place.ask(&sweep::PART, DAY_MS, json!({ "dead": dead }))?;
    for (field, work) in [
        ("purge", "purge"),
        ("delete_queue", "delete-queue"),
        ("revive_all", "revive-all"),
        ("discard_all", "discard-all"),
    ] {
        let work = format!("{work} of {}", found[field]["swept"]);
        run.alone(&work, "ms", vec![number(&found[field], "answer_ms")?]);
        run.alone(&format!("others beside {work}"), "p99_ms", vec![number(&found[field], "others_p99_ms")?]);
        run.alone(&format!("others beside {work}"), "max_ms", vec![number(&found[field], "others_max_ms")?]);
    }
    run.alone("sweeps", PEAK_RSS, vec![number(&found, PEAK_RSS)?]);
    run.empty_folder("dwell")?;
    Ok(())
}

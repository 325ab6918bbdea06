//! `engine-backlog`: 100 M messages that became due and were not taken, half of them at one millisecond, with one queue
//! paused. Then they are drained, with one priority, and with three.

use dwell_model::{Pause, Setting, SettingChange};
use dwell_time::ManualClock;
use serde_json::Value;

use super::Scenario;
use crate::Result;
use crate::mix::Mix;
use crate::ours::{MEMORY_LIMIT, Ours, start};
use crate::own_process::{PEAK_RSS, number};
use crate::page_cache::drop_caches;
use crate::parts::{BuildPlace, DISK_BYTES, drain, fill, reopen};
use crate::resources::need_disk;
use crate::run::Run;
use crate::workload::DAY_MS;

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "engine-backlog",
    what: "100 M due that nobody takes, a queue paused, then drained; one priority, and three",
    run,
};

/// The first of these queues is paused.
const QUEUES: u64 = 4;

fn run(run: &mut Run) -> Result<()> {
    run.measure_once();
    let (count, memory_limit) = (run.scaled(100_000_000), run.scaled(MEMORY_LIMIT));
    need_disk(run.folder(), count * DISK_BYTES)?;
    run.note(format!(
        "{count} messages of 128 bytes in {QUEUES} queues, half of them due at one millisecond, the others within a day; \
         memory limit {memory_limit} bytes; batches of 1,024, acks synced; one queue is paused until the others are empty; \
         each step in a process of its own, with the page cache dropped before"
    ));
    let plain = drain_plain(run, run.scaled(10_000_000), memory_limit)?;
    run.alone("drain as engine-drain does, from tables", "per_s", vec![plain]);
    for priorities in [1, 3] {
        let mix = Mix { queues: QUEUES, at_once: 2, priorities, ..Mix::plain(count, DAY_MS) };
        let place = BuildPlace { folder: run.empty_folder("dwell")?, memory_limit, mix, bodies: None };
        let name =
            if priorities == 1 { "one priority".to_owned() } else { format!("{priorities} priorities") };
        eprintln!("{name}");
        pause_first(&place)?;
        let filled = place.ask(&fill::PART, 0, fill::all(count))?;
        drop_caches(&place.folder)?;
        // Everything is due. One message is taken, and given back.
        let waited = place.ask(&reopen::PART, DAY_MS, serde_json::json!({}))?;
        drop_caches(&place.folder)?;
        let running = place.ask(&drain::PART, DAY_MS, drain::queues(1..QUEUES))?;
        drop_caches(&place.folder)?;
        let paused = place.ask(&drain::PART, DAY_MS, drain::queues(0..1))?;
        let rate = |found: &Value| number(found, "per_s");
        run.alone(&format!("put, {name}"), "per_s", vec![rate(&filled)?]);
        run.alone(&format!("drain, {name}, the others"), "per_s", vec![rate(&running)?]);
        run.alone(&format!("drain, {name}, the one that was paused"), "per_s", vec![rate(&paused)?]);
        let all = count as f64
            / (number(&running, "taken")? / rate(&running)? + number(&paused, "taken")? / rate(&paused)?);
        run.alone(&format!("drain, {name}, all"), "per_s", vec![all]);
        run.alone(&format!("drain, {name}, over engine-drain's"), "times", vec![all / plain]);
        for (step, found) in
            [("put", &filled), ("due", &waited), ("drain", &running), ("drain of the paused", &paused)]
        {
            run.alone(&format!("{step}, {name}"), PEAK_RSS, vec![number(found, PEAK_RSS)?]);
        }
    }
    run.empty_folder("dwell")?;
    Ok(())
}

/// The rate of a drain of one queue whose messages were due within a day.
fn drain_plain(run: &Run, count: u64, memory_limit: u64) -> Result<f64> {
    let mix = Mix::plain(count, DAY_MS);
    let place = BuildPlace { folder: run.empty_folder("dwell")?, memory_limit, mix, bodies: None };
    eprintln!("as engine-drain does");
    place.ask(&fill::PART, 0, fill::all(count))?;
    drop_caches(&place.folder)?;
    number(&place.ask(&drain::PART, DAY_MS, drain::queues(0..1))?, "per_s")
}

fn pause_first(place: &BuildPlace) -> Result<()> {
    let ours = Ours::open_bounded(&place.folder, &ManualClock::new(start()), place.memory_limit)?;
    let paused = SettingChange::Set(Setting::Pause(Pause::Indefinite));
    ours.calls().configure(place.mix.queue_name(0), vec![paused])?;
    ours.close()
}

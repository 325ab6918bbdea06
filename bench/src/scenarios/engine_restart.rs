//! `engine-restart`: the time to the first delivery after `kill -9`, with the journal at its maximum length.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use serde_json::{Value, json};

use super::Scenario;
use crate::Result;
use crate::mix::Mix;
use crate::ours::MEMORY_LIMIT;
use crate::own_process::{PEAK_RSS, Running, number};
use crate::page_cache::drop_caches;
use crate::parts::{BuildPlace, DISK_BYTES, drain, fill, reopen};
use crate::report::Better;
use crate::resources::need_disk;
use crate::run::Run;
use crate::stopwatch::Stopwatch;
use crate::workload::DAY_MS;

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "engine-restart",
    what: "kill -9 with a long journal, and the first delivery after it: 10 M and 100 M pending",
    run,
};

fn run(run: &mut Run) -> Result<()> {
    let rounds = run.rounds();
    run.measure_once();
    let memory_limit = run.scaled(MEMORY_LIMIT);
    let sizes = [10_000_000, 100_000_000].map(|size| run.scaled(size));
    need_disk(run.folder(), sizes[1] * DISK_BYTES)?;
    run.note(format!(
        "memory limit {memory_limit} bytes; bodies of 128 bytes, due within a day, half of them due at the restart; killed \
         once, just before a flush would have cut the journal short, and once more when a twentieth was taken and \
         acked; opened {rounds} times, with the page cache dropped before, on both sides"
    ));
    run.note("bare: the journal's files as they were when it was killed, read from front to back");
    for count in sizes {
        once(run, count, memory_limit, rounds)?;
    }
    Ok(())
}

fn once(run: &mut Run, count: u64, memory_limit: u64, rounds: usize) -> Result<()> {
    let mix = Mix::plain(count, DAY_MS);
    let place = BuildPlace { folder: run.empty_folder("dwell")?, memory_limit, mix, bodies: None };
    eprintln!("{count} pending");
    let mut parameters = fill::all(count);
    parameters["stay"] = true.into();
    let mut filling = Running::start(&fill::PART, &place.parameters(0, parameters))?;
    filling.hear()?.ok_or("the part that fills has failed")?;
    filling.kill()?;
    restart(run, &place, &format!("{count} pending"), rounds)?;
    // And with a journal of settlements of messages in tables.
    let mut draining = Running::start(&drain::PART, &place.parameters(DAY_MS / 2, drain_some(count / 20)))?;
    draining.hear()?.ok_or("the part that drains has failed")?;
    draining.kill()?;
    restart(run, &place, &format!("{count} pending, {} of them acked", count / 20), rounds)?;
    run.empty_folder("opened")?;
    run.empty_folder("dwell")?;
    Ok(())
}

fn drain_some(most: u64) -> Value {
    let mut parameters = drain::queues(0..1);
    parameters["most"] = most.into();
    parameters
}

/// Opens copies of the folder that a killed process left.
fn restart(run: &mut Run, place: &BuildPlace, what: &str, rounds: usize) -> Result<()> {
    let (mut opens, mut firsts, mut bares, mut peaks) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut records = 0.0;
    for round in 0..rounds {
        let killed = place.folder.clone();
        // The first opening reads what the killed process left, later ones would not: so each gets a copy.
        let copy = BuildPlace { folder: run.empty_folder("opened")?, ..place.clone() };
        copy_all(&killed, &copy.folder)?;
        drop_caches(&copy.folder)?;
        bares.push(read_journal_ms(&copy.folder)?);
        drop_caches(&copy.folder)?;
        let reopened = copy.ask(&reopen::PART, DAY_MS / 2, json!({}))?;
        opens.push(number(&reopened, "open_ms")?);
        firsts.push(number(&reopened, "first_ms")?);
        peaks.push(number(&reopened, PEAK_RSS)?);
        records = number(&reopened, "records")?;
        eprintln!(
            "round {}: first delivery after {:.0} ms, bare {:.0} ms",
            round + 1,
            firsts[round],
            bares[round]
        );
    }
    run.note(format!("{what}: the journal held {records} records"));
    let beyond = firsts.iter().zip(&bares).map(|(first, bare)| first - 2.0 * bare).collect();
    run.beside(&format!("first delivery, {what}"), "ms", Better::Lower, firsts, "bare", bares);
    run.alone(&format!("first delivery less twice bare, {what}"), "ms", beyond);
    run.alone(&format!("open, {what}"), "ms", opens);
    run.alone(&format!("restart, {what}"), PEAK_RSS, peaks);
    Ok(())
}

/// Links the immutable files, and copies the journal and the manifest.
fn copy_all(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_sealed =
            ["due-", "numbers-", "keys-"].iter().any(|kind| name.to_string_lossy().starts_with(kind));
        if is_sealed {
            fs::hard_link(entry.path(), to.join(name))?;
        } else {
            fs::copy(entry.path(), to.join(name))?;
        }
    }
    Ok(())
}

fn read_journal_ms(folder: &Path) -> Result<f64> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("journal-") {
            paths.push(entry.path());
        }
    }
    paths.sort();
    let (mut piece, watch) = (vec![0; 1 << 20], Stopwatch::start());
    for path in paths {
        let mut file = File::open(path)?;
        while file.read(&mut piece)? > 0 {}
    }
    Ok(watch.elapsed().as_secs_f64() * 1_000.0)
}

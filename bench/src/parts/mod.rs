//! Parts of scenarios that run in child processes: each opens the engine in a folder, does one thing, and closes it.
//!
//! Parameters of all: `folder`, `memory_limit`, `at_ms` (the clock's reading, relative to the first instant), and
//! `bodies`, a file in which body writes are counted, or null.

pub(crate) mod change;
pub(crate) mod drain;
pub(crate) mod expired;
pub(crate) mod fill;
pub(crate) mod get;
pub(crate) mod reopen;
pub(crate) mod sweep;

use std::path::{Path, PathBuf};
use std::time::Duration;

use dwell_engine::{Counters, Options};
use dwell_time::ManualClock;
use serde_json::{Value, json};

use crate::Result;
use crate::body_writes::BodyWrites;
use crate::mix::Mix;
use crate::ours::{Ours, start};
use crate::own_process::{self, Part, count, text};
use crate::stopwatch::{Stopwatch, pause};

/// All parts.
pub(crate) const PARTS: &[Part] = &[
    fill::PART,
    get::PART,
    change::PART,
    change::ONE,
    drain::PART,
    drain::MONTH,
    reopen::PART,
    sweep::PART,
    expired::PART,
];

/// An upper bound for the disk space of a mix's message in bytes: in the journal, in tables and runs, and while
/// these are merged.
///
/// For checks of the free space.
pub(crate) const DISK_BYTES: u64 = 320;

/// The folder and the parameters that a part works with.
#[derive(Clone, Debug)]
pub(crate) struct BuildPlace {
    pub(crate) folder: PathBuf,
    pub(crate) memory_limit: u64,
    pub(crate) mix: Mix,
    /// The file in which body writes are counted, if they are.
    pub(crate) bodies: Option<PathBuf>,
}

impl BuildPlace {
    /// Runs `part` there, with additional parameters `more`.
    pub(crate) fn ask(&self, part: &Part, at_ms: u64, more: Value) -> Result<Value> {
        own_process::ask(part, &self.parameters(at_ms, more))
    }

    pub(crate) fn parameters(&self, at_ms: u64, more: Value) -> Value {
        let mut all = json!({
            "folder": self.folder,
            "memory_limit": self.memory_limit,
            "mix": self.mix.json(),
            "bodies": self.bodies,
            "at_ms": at_ms,
        });
        if let (Some(all), Value::Object(more)) = (all.as_object_mut(), more) {
            all.extend(more);
        }
        all
    }
}

/// The engine of a part.
pub(crate) struct OpenedEngine {
    pub(crate) ours: Ours,
    pub(crate) clock: ManualClock,
    pub(crate) mix: Mix,
    pub(crate) folder: PathBuf,
    bodies: Option<(BodyWrites, PathBuf)>,
}

impl OpenedEngine {
    pub(crate) fn open(parameters: &Value) -> Result<OpenedEngine> {
        let mix = Mix::parse(&parameters["mix"])?;
        let folder = PathBuf::from(text(parameters, "folder")?);
        let clock = ManualClock::new(start());
        clock.advance(count(parameters, "at_ms")?);
        let bodies = match parameters["bodies"].as_str() {
            None => None,
            Some(file) => Some((BodyWrites::go_on(Path::new(file), mix.count)?, PathBuf::from(file))),
        };
        let disk = bodies.as_ref().map_or_else(|| Options::default().disk, |(writes, _)| writes.disk());
        let ours = Ours::open_with(&folder, &clock, count(parameters, "memory_limit")?, disk)?;
        Ok(OpenedEngine { ours, clock, mix, folder, bodies })
    }

    pub(crate) fn counters(&self) -> Counters {
        self.ours.engine().counters()
    }

    /// Waits until background work is done: nothing was read or written for a fifth of a second.
    pub(crate) fn settle_down(&self) -> Result<()> {
        let watch = Stopwatch::start();
        let (mut last, mut quiet) = (self.counters().disk, 0);
        while quiet < 4 {
            if watch.elapsed() > Duration::from_secs(600) {
                return Err("the engine is busy by itself for ten minutes".into());
            }
            pause(Duration::from_millis(50));
            let now = self.counters().disk;
            quiet = if now == last { quiet + 1 } else { 0 };
            last = now;
        }
        Ok(())
    }

    /// Closes the engine. Returns the part's result, with the engine's counters.
    pub(crate) fn close(self, mut found: Value) -> Result<Value> {
        let counters = self.counters();
        self.ours.close()?;
        if let Some((writes, file)) = &self.bodies {
            writes.keep(file)?;
        }
        found["counters"] = json!({
            "flushes": counters.flushes,
            "tables": counters.tables,
            "resident": counters.resident,
            "cold": counters.cold,
            "reads": counters.disk.reads,
            "read_bytes": counters.disk.read_bytes,
            "written_bytes": counters.disk.written_bytes,
        });
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: u64 = 3_600_000;

    /// A temporary folder for a test, with memory for a few hundred messages.
    fn place(name: &str, mix: Mix) -> BuildPlace {
        let folder = std::env::temp_dir().join(format!("dwell-bench-part-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("dwell")).unwrap();
        let bodies = Some(folder.join("bodies"));
        BuildPlace { folder: folder.join("dwell"), memory_limit: 256 * 1024, mix, bodies }
    }

    fn ask(place: &BuildPlace, part: &Part, at_ms: u64, more: Value) -> Value {
        (part.run)(&place.parameters(at_ms, more)).unwrap()
    }

    /// Each part checks its messages, and fails if one is missing, early, late, out of order or has another body.
    #[test]
    fn a_month_after_changes_brings_what_it_should() {
        let mix = Mix { queues: 5, keyed: 3, ..Mix::plain(20_000, 60 * 24 * HOUR_MS) };
        let place = place("month", mix);
        let filled = ask(&place, &fill::PART, 0, fill::all(mix.count));
        assert!(count(&filled["counters"], "flushes").unwrap() >= 1, "{filled}");
        let changes = json!({ "ids": filled["ids"], "cancel": 1, "move": true });
        let changed = ask(&place, &change::PART, 0, changes);
        let gets = json!({ "ids": filled["ids"], "gets": 50, "skip": true });
        let got = ask(&place, &get::PART, 0, gets);
        assert!(count(&got["by_key"], "reads_max").unwrap() >= 1, "{got}");
        let month = ask(&place, &drain::MONTH, 0, json!({ "steps": 30 * 24 }));
        let taken = count(&month, "taken").unwrap();
        assert!((9_000..10_000).contains(&taken), "{changed} {month}");
        let bodies = BodyWrites::go_on(place.bodies.as_deref().unwrap(), mix.count).unwrap();
        let (mean, most) = bodies.mean_and_most(|number| !change::is_moved(number));
        assert!(mean > 1.0 && most >= 2, "bodies are written to the journal, and to files: {mean} {most}");
        std::fs::remove_dir_all(place.folder.parent().unwrap()).unwrap();
    }

    #[test]
    fn a_backlog_with_priorities_is_drained_in_order() {
        let mix = Mix { queues: 2, at_once: 2, priorities: 3, ..Mix::plain(20_000, HOUR_MS) };
        let place = place("backlog", mix);
        ask(&place, &fill::PART, 0, fill::range(0..10_000));
        ask(&place, &fill::PART, 0, fill::range(10_000..20_000));
        ask(&place, &reopen::PART, HOUR_MS, json!({}));
        let taken: u64 = [0..1, 1..2]
            .into_iter()
            .map(|queues| ask(&place, &drain::PART, HOUR_MS, drain::queues(queues)))
            .map(|drained| count(&drained, "taken").unwrap())
            .sum();
        assert_eq!(taken, 20_000);
        std::fs::remove_dir_all(place.folder.parent().unwrap()).unwrap();
    }
}

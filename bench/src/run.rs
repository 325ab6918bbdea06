//! The context of a scenario: its size, its rounds, a folder, progress, and a place for its results.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};

use crate::Result;
use crate::arguments::Arguments;
use crate::machine;
use crate::report::{Better, Report, Row};
use crate::stopwatch::Stopwatch;

/// One run of one scenario.
#[derive(Debug)]
pub(crate) struct Run {
    divisor: u64,
    rounds: usize,
    only: Option<String>,
    machine: String,
    folder: PathBuf,
    notes: Vec<String>,
    rows: Vec<Row>,
}

impl Run {
    /// Creates the folder for the data.
    pub(crate) fn new(arguments: &Arguments) -> Result<Run> {
        let folder = arguments.dir.join(format!("dwell-bench-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        Ok(Run {
            divisor: arguments.divisor,
            rounds: arguments.rounds,
            only: arguments.only.clone(),
            machine: machine::describe(&arguments.dir),
            folder,
            notes: Vec::new(),
            rows: Vec::new(),
        })
    }

    /// `full` divided by the run's divisor: for amounts of work and limits of memory.
    pub(crate) fn scaled(&self, full: u64) -> u64 {
        full.div_ceil(self.divisor)
    }

    /// The folder in which the others are created.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Measures each side once, whatever the number of rounds: for long measurements.
    pub(crate) fn measure_once(&mut self) {
        self.rounds = 1;
    }

    /// Whether rows of this work are requested. Other rows are dropped; a scenario may skip them.
    pub(crate) fn wants(&self, work: &str) -> bool {
        self.only.as_ref().is_none_or(|only| match only.strip_prefix('=') {
            Some(whole) => work == whole,
            None => work.contains(only.as_str()),
        })
    }

    /// The number of times that each side is measured.
    pub(crate) fn rounds(&self) -> usize {
        self.rounds
    }

    /// Creates an empty folder with this name. Removes an older one.
    pub(crate) fn empty_folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.join(name);
        remove(&folder)?;
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// Adds a note that readers of the numbers need, such as a memory setting.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Measures the sides in turn, round after round.
    ///
    /// Each side returns one number per round. A side that took over a minute is not measured again, and its row states
    /// the number of rounds.
    ///
    /// The first side is ours. There is a row for each other side, or one without a peer if there is none.
    pub(crate) fn contest(
        &mut self,
        work: &str,
        metric: &str,
        better: Better,
        sides: &mut [Side<'_>],
    ) -> Result<()> {
        if !self.wants(work) {
            return Ok(());
        }
        let mut samples = vec![Vec::new(); sides.len()];
        let mut slow = vec![false; sides.len()];
        for round in 1..=self.rounds {
            for (index, side) in sides.iter_mut().enumerate() {
                if slow[index] {
                    continue;
                }
                let watch = Stopwatch::start();
                let sample = (side.measure)(self)?;
                slow[index] = watch.elapsed() > Duration::from_secs(60);
                samples[index].push(sample);
                eprintln!("{work}: {} round {round} of {}: {sample:.1} {metric}", side.name, self.rounds);
            }
        }
        let mut samples = samples.into_iter();
        let ours = samples.next().unwrap_or_default();
        if sides.len() == 1 {
            self.rows.push(Row::alone(work, metric, ours));
        } else {
            let peers = sides.iter().skip(1).zip(samples);
            self.rows
                .extend(peers.map(|(side, theirs)| {
                    Row::beside(work, metric, better, ours.clone(), side.name, theirs)
                }));
        }
        Ok(())
    }

    /// Adds a row with a number of ours that has no peer, a sample per round.
    pub(crate) fn alone(&mut self, work: &str, metric: &str, ours: Vec<f64>) {
        if self.wants(work) {
            self.rows.push(Row::alone(work, metric, ours));
        }
    }

    /// Adds a row with our number and a peer's, a sample per round, for a scenario that measures several at once.
    pub(crate) fn beside(
        &mut self,
        work: &str,
        metric: &str,
        better: Better,
        ours: Vec<f64>,
        peer: &'static str,
        theirs: Vec<f64>,
    ) {
        if self.wants(work) {
            self.rows.push(Row::beside(work, metric, better, ours, peer, theirs));
        }
    }

    /// Adds rows with latencies over all rounds: median, high quantiles and maximum.
    pub(crate) fn latencies(&mut self, work: &str, micros: &Histogram<u64>) {
        for (metric, quantile) in [("p50_ms", 0.5), ("p99_ms", 0.99), ("max_ms", 1.0)] {
            self.alone(work, metric, vec![micros.value_at_quantile(quantile) as f64 / 1_000.0]);
        }
    }

    /// Shows the progress of `label` on a terminal.
    pub(crate) fn progress(&self, label: &str, total: u64) -> ProgressBar {
        progress(label, total)
    }

    /// Ends the run: removes its folder, and returns its results.
    pub(crate) fn finish(mut self, scenario: &str) -> Report {
        Report {
            scenario: scenario.to_owned(),
            machine: std::mem::take(&mut self.machine),
            divisor: self.divisor,
            rounds: self.rounds,
            only: self.only.take(),
            notes: std::mem::take(&mut self.notes),
            rows: std::mem::take(&mut self.rows),
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.folder) {
            eprintln!("dwell-bench: {} is left behind: {error}", self.folder.display());
        }
    }
}

/// One side of a contest.
pub(crate) struct Side<'a> {
    pub(crate) name: &'static str,
    #[expect(clippy::type_complexity, reason = "a closure, and named nowhere else")]
    pub(crate) measure: Box<dyn FnMut(&Run) -> Result<f64> + 'a>,
}

impl<'a> Side<'a> {
    pub(crate) fn new(name: &'static str, measure: impl FnMut(&Run) -> Result<f64> + 'a) -> Side<'a> {
        Side { name, measure: Box::new(measure) }
    }
}

/// Shows the progress of `label` on a terminal.
pub(crate) fn progress(label: &str, total: u64) -> ProgressBar {
    let bar = ProgressBar::new(total).with_message(label.to_owned());
    let style = ProgressStyle::with_template("{msg:24} {wide_bar} {human_pos}/{human_len} {per_sec} {eta}");
    bar.set_style(style.expect("the template is written above"));
    bar
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

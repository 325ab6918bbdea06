//! `dwell top`

use std::cmp::Reverse;
use std::io::{self, Write};

use anstyle::Style;
use clap::{Args, ValueEnum};
use dwell_model::Wake;
use dwell_time::{Clock as _, SystemClock};
use dwell_wire::{Census, Overview, Series, TopQueue};
use pollster::block_on;

use super::queues::{HEADING, row};
use super::{Context, Outcome};
use crate::exit::{Exit, Failure};
use crate::human::{BAD, FAINT, GOOD, NAME, PLAIN, STRONG, WAITING};
use crate::table::{self, Cell};

/// The interval between refreshes.
const EVERY_MS: u64 = 1_000;
/// How long to wait for the server's first count of all queues, and the interval between requests for it.
const FIRST_MS: u64 = 30_000;
const AGAIN_MS: u64 = 100;
/// Moves the cursor to the upper left corner, and clears below.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Show all queues at a glance, refreshed every second
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell top                     until Ctrl-C
  dwell top --by dead --once
  dwell top --once --json | jq .census.counts")]
pub(crate) struct Top {
    /// Show it once and end
    #[arg(long)]
    once: bool,
    /// The count that queues are sorted by
    #[arg(long, value_enum, default_value_t = By::Ready, value_name = "COUNT")]
    by: By,
    /// The maximum number of queues shown, 1 to 100
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u8).range(1..=100), value_name = "N")]
    rows: u8,
}

/// What queues are sorted by.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum By {
    Scheduled,
    Ready,
    Leased,
    Dead,
    Waiting,
}

impl By {
    fn of(self, queue: &TopQueue) -> u64 {
        match self {
            By::Scheduled => queue.counts.scheduled,
            By::Ready => queue.counts.ready,
            By::Leased => queue.counts.leased,
            By::Dead => queue.counts.dead,
            By::Waiting => queue.waiting,
        }
    }
}

impl Top {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        let clock = SystemClock::new();
        let mut sleeper = clock.sleeper();
        let began_ms = clock.now().mono_ms;
        loop {
            let asked_ms = clock.now().mono_ms;
            let asked = block_on(client.store().overview()).map_err(Failure::from);
            let next_ms = match asked {
                // The server's walk over all queues has not ended yet.
                Ok(Overview { census: None, .. }) if asked_ms - began_ms < FIRST_MS => asked_ms + AGAIN_MS,
                Ok(overview) => {
                    context.output.show(&overview, |out| {
                        if !self.once {
                            write!(out, "{CLEAR}")?;
                        }
                        self.write(out, client.store().server(), &overview)
                    })?;
                    asked_ms + EVERY_MS
                }
                // It runs until it is interrupted: a server that restarts is shown again.
                Err(failure) if !self.once && failure.exit == Exit::Unreachable => {
                    context.output.failure(&failure);
                    asked_ms + EVERY_MS
                }
                Err(failure) => return Err(failure),
            };
            if self.once && next_ms == asked_ms + EVERY_MS {
                return Ok(Exit::Ok);
            }
            sleeper.sleep(Wake { wall: None, mono_ms: Some(next_ms) });
        }
    }

    fn write(&self, out: &mut dyn Write, server: &str, overview: &Overview) -> io::Result<()> {
        write!(out, "{STRONG}{server}{STRONG:#}")?;
        let Some(census) = &overview.census else {
            return writeln!(out, "  {FAINT}its queues are being counted{FAINT:#}");
        };
        let age_s = overview.now.ms_since(census.as_of) / 1_000;
        writeln!(out, "  {FAINT}counted {age_s} s ago{FAINT:#}")?;
        totals(out, census)?;
        if let Some(series) = overview.recent.first() {
            rates(out, series)?;
        }
        due(out, census)?;
        let rows = self.rows(&census.top);
        if rows.is_empty() {
            return Ok(());
        }
        writeln!(out)?;
        table::write(out, &HEADING, &rows)
    }

    fn rows(&self, top: &[TopQueue]) -> Vec<Vec<Cell>> {
        let mut queues: Vec<&TopQueue> = top.iter().collect();
        queues.sort_by_key(|queue| Reverse(self.by.of(queue)));
        queues.into_iter().take(self.rows.into()).map(row_of).collect()
    }
}

fn totals(out: &mut dyn Write, census: &Census) -> io::Result<()> {
    let counts = &census.counts;
    let parts: [(&str, u64, Style); 6] = [
        ("queues", census.queues, STRONG),
        ("scheduled", counts.scheduled, NAME),
        ("ready", counts.ready, GOOD),
        ("leased", counts.leased, WAITING),
        ("dead", counts.dead, BAD),
        ("waiting takes", census.waiting, PLAIN),
    ];
    for (at, (name, count, style)) in parts.into_iter().enumerate() {
        let gap = if at == 0 { "" } else { "   " };
        write!(out, "{gap}{FAINT}{name}{FAINT:#} {style}{count}{style:#}")?;
    }
    if census.unread > 0 {
        write!(out, "   {BAD}{} queues cannot be read{BAD:#}", census.unread)?;
    }
    writeln!(out)
}

/// The rates of the last complete step.
fn rates(out: &mut dyn Write, series: &Series) -> io::Result<()> {
    let last = |counts: &[u64]| counts.len().checked_sub(2).map_or(0, |at| counts[at]);
    let a_second = |counts: &[u64]| last(counts) as f64 * 1_000.0 / series.step_ms as f64;
    let parts = [
        ("puts", &series.puts),
        ("takes", &series.takes),
        ("acks", &series.acks),
        ("retries", &series.retries),
        ("deaths", &series.deaths),
    ];
    for (at, (name, counts)) in parts.into_iter().enumerate() {
        let gap = if at == 0 { "" } else { "   " };
        write!(out, "{gap}{FAINT}{name}{FAINT:#} {:.1}/s", a_second(counts))?;
    }
    let lateness = series.lateness_p99_ms.len().checked_sub(2).and_then(|at| series.lateness_p99_ms[at]);
    if let Some(ms) = lateness {
        write!(out, "   {FAINT}lateness p99{FAINT:#} {ms} ms")?;
    }
    writeln!(out)
}

/// The number of messages due within a minute, an hour, a day and thirty days.
fn due(out: &mut dyn Write, census: &Census) -> io::Result<()> {
    let within = ["1 min", "1 h", "24 h", "30 d"];
    write!(out, "{FAINT}falls due within{FAINT:#}")?;
    for (name, count) in within.iter().zip(&census.forecast.due_by) {
        write!(out, "   {FAINT}{name}{FAINT:#} {count}")?;
    }
    writeln!(out)
}

fn row_of(queue: &TopQueue) -> Vec<Cell> {
    row(&queue.queue, &queue.counts, queue.waiting, queue.next_due, &queue.pause)
}

//! The README's table: a few rows that were chosen in advance, whatever their results.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::measured::{Measured, ResultRow};
use super::page::escaped;
use crate::Result;

const BEGIN: &str =
    "<!-- bench: made by `cargo run --release -p dwell-bench -- results`; edit nothing below -->";
const END: &str = "<!-- bench: end -->";

/// A row of a scenario, and its title in the README.
struct Headline {
    scenario: &'static str,
    work: &'static str,
    metric: &'static str,
    peer: Option<&'static str>,
    words: &'static str,
}

const fn headline(
    scenario: &'static str,
    work: &'static str,
    metric: &'static str,
    peer: Option<&'static str>,
    words: &'static str,
) -> Headline {
    Headline { scenario, work, metric, peer, words }
}

const HEADLINES: &[Headline] = &[
    headline("engine-put", "put", "per_s", Some("fjall"), "durable puts a second, in batches of 1,024"),
    headline("engine-put", "put", "per_s", Some("sqlite"), "the same"),
    headline(
        "engine-put-1",
        "put, one caller",
        "p50_ms",
        Some("bare"),
        "one durable put, ms; bare is append and fdatasync",
    ),
    headline(
        "engine-drain",
        "drain, from the journal",
        "per_s",
        Some("fjall"),
        "takes with durable acks a second",
    ),
    headline(
        "wire",
        "1 connection, 1 put at a time",
        "per_s",
        Some("beanstalkd-f0"),
        "durable puts a second, beanstalkd's protocol",
    ),
    headline(
        "wire",
        "64 connections, 64 puts at a time",
        "per_s",
        Some("beanstalkd-f0"),
        "the same, 64 connections that pipeline 64",
    ),
    headline("storm", "HTTP", "seconds", None, "500,000 due at one instant over HTTP, all handed over, s"),
    headline(
        "lateness",
        "lateness, HTTP",
        "p50_ms",
        None,
        "lateness over HTTP, 20,000 due a second, ms, median",
    ),
    headline("lateness", "lateness, HTTP", "p99_ms", None, "the same, 99th percentile"),
    headline(
        "delay-queue",
        "offer + poll, 1000000 pending",
        "per_s",
        Some("jdk"),
        "`DelayQueue<T>` in a process: put and take a second, 1 M pending",
    ),
    headline("delay-queue", "4 put, 1 take", "per_s", Some("jdk"), "the same: four threads put, one takes"),
    headline("delay-queue", "lateness", "p99_us", Some("jdk"), "the same: lateness, µs, 99th percentile"),
    headline(
        "redis",
        "put, batches of 64, 100000 in all",
        "per_s",
        Some("redisson-scripts"),
        "on Redis: puts a second, in batches of 64",
    ),
    headline(
        "redis",
        "take + ack 4000 of 300000 pending",
        "per_s",
        Some("redisson-scripts"),
        "on Redis: takes with acks a second, 300,000 pending",
    ),
];

/// The README with a new table. A headline whose scenario was not run is left out.
///
/// # Errors
/// If the README has no marks, or a run lacks the row of a headline.
pub(crate) fn into_readme(readme: &str, runs: &[Measured]) -> Result<String> {
    let marks = "the README has no two marks for the table";
    let (before, rest) = readme.split_once(BEGIN).ok_or(marks)?;
    let (_, after) = rest.split_once(END).ok_or(marks)?;
    Ok(format!("{before}{BEGIN}\n{}{END}{after}", table(runs)?))
}

fn table(runs: &[Measured]) -> Result<String> {
    let mut table = "| what | dwell | peer | theirs | times better |\n|---|--:|---|--:|--:|\n".to_owned();
    let mut machines = BTreeSet::new();
    for headline in HEADLINES {
        let Some(run) = runs.iter().find(|run| run.scenario == headline.scenario) else { continue };
        let row = run.rows.iter().find(|row| headline.is(row));
        let row = row.ok_or_else(|| format!("{} has no row `{}`", run.scenario, headline.work))?;
        machines.insert(run.machine.as_str());
        let peer = row.peer.as_deref().map(escaped).unwrap_or_default();
        let _ = writeln!(
            table,
            "| {} | {} | {peer} | {} | {} |",
            headline.words, row.ours, row.theirs, row.ratio
        );
    }
    let machines: Vec<&str> = machines.into_iter().collect();
    let _ = writeln!(table, "\nMeasured on {}.", machines.join("; and on "));
    Ok(table)
}

impl Headline {
    fn is(&self, row: &ResultRow) -> bool {
        (row.work.as_str(), row.metric.as_str(), row.peer.as_deref()) == (self.work, self.metric, self.peer)
    }
}

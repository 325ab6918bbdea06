//! `dwell engine stats`

use std::io::{self, Write};

use clap::Args;
use dwell_engine::offline::{self, DirectoryStats, TableStats};
use dwell_time::{Clock as _, SystemClock};
use serde::Serialize;

use super::bar::Bar;
use super::{Context, DirArgs, Outcome, bytes, looked_at};
use crate::exit::Exit;
use crate::human::{BAD, FAINT, GOOD, NAME, PLAIN, STRONG, WAITING, instant, pairs};
use crate::table::{self, Cell};

/// Show its contents: by kind of file, by queue, by table
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell engine stats dwell-data
  dwell engine stats dwell-data --files        each table, too

States are those that an opening now would find. Nothing is changed.")]
pub(crate) struct Stats {
    #[command(flatten)]
    dir: DirArgs,
    /// Show each table
    #[arg(long)]
    files: bool,
}

#[derive(Serialize)]
struct StatsJson {
    messages: u64,
    in_tables: u64,
    opened: u32,
    made: String,
    was_closed: bool,
    journal_start: u64,
    kinds: Vec<KindJson>,
    queues: Vec<QueueJson>,
    tables: Vec<TableRow>,
}

#[derive(Serialize)]
struct KindJson {
    kind: &'static str,
    files: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct QueueJson {
    queue: String,
    scheduled: u64,
    ready: u64,
    leased: u64,
    dead: u64,
    tables: u64,
    tables_live: u64,
    tables_settled: u64,
    tables_body_bytes: u64,
}

#[derive(Serialize)]
struct TableRow {
    file: String,
    bytes: u64,
    entries: u32,
    live: u32,
    earliest: String,
    latest: String,
}

impl Stats {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let disk = looked_at();
        let total = bytes(&disk, &self.dir.dir, |kind| u64::from(kind == "journal"));
        let bar = Bar::over_reads(&disk, total, context.output.has_progress());
        let stats = offline::stats(&disk, &self.dir.dir, SystemClock::new().now())?;
        drop(bar);
        context.output.show(&shown(&stats), |out| self.write(out, &stats))?;
        Ok(Exit::Ok)
    }

    fn write(&self, out: &mut dyn Write, stats: &DirectoryStats) -> io::Result<()> {
        let closed = if stats.was_closed { "in good order" } else { "not in good order" };
        let rows = [
            (
                "messages",
                format!("{STRONG}{}{STRONG:#}, {} of them in tables alone", stats.messages, stats.cold),
            ),
            ("made", instant(stats.made)),
            ("opened", format!("{} times, closed {closed}", stats.incarnation)),
        ];
        pairs(out, &rows)?;
        writeln!(out)?;
        let kinds: Vec<Vec<Cell>> = stats
            .kinds
            .iter()
            .filter(|(_, size)| size.files > 0)
            .map(|(kind, size)| {
                vec![Cell::text(kind, NAME), Cell::count(size.files, PLAIN), Cell::count(size.bytes, PLAIN)]
            })
            .collect();
        table::write(out, &["kind", "files", "bytes"], &kinds)?;
        if !stats.queues.is_empty() {
            writeln!(out)?;
            let queues: Vec<Vec<Cell>> = stats
                .queues
                .iter()
                .map(|(queue, files)| {
                    let counts = queue.counts;
                    vec![
                        Cell::text(&queue.name, STRONG),
                        Cell::count(counts.scheduled, NAME),
                        Cell::count(counts.ready, GOOD),
                        Cell::count(counts.leased, WAITING),
                        Cell::count(counts.dead, BAD),
                        Cell::count(files.files, PLAIN),
                        Cell::count(files.live, PLAIN),
                        Cell::count(files.settled, FAINT),
                    ]
                })
                .collect();
            let heading = ["queue", "scheduled", "ready", "leased", "dead", "tables", "live", "settled"];
            table::write(out, &heading, &queues)?;
        }
        if self.files && !stats.tables.is_empty() {
            writeln!(out)?;
            let files: Vec<Vec<Cell>> = stats
                .tables
                .iter()
                .map(|file| {
                    let TableStats { file, bytes, entries, live, earliest, latest } = file;
                    vec![
                        Cell::text(file, NAME),
                        Cell::count(*bytes, PLAIN),
                        Cell::count(u64::from(*entries), PLAIN),
                        Cell::count(u64::from(*live), STRONG),
                        Cell::text(earliest, PLAIN),
                        Cell::text(latest, PLAIN),
                    ]
                })
                .collect();
            table::write(out, &["table", "bytes", "entries", "live", "earliest due", "latest due"], &files)?;
        }
        Ok(())
    }
}

fn shown(stats: &DirectoryStats) -> StatsJson {
    let kinds =
        stats.kinds.iter().map(|(kind, size)| KindJson { kind, files: size.files, bytes: size.bytes });
    let queues = stats.queues.iter().map(|(queue, files)| QueueJson {
        queue: queue.name.to_string(),
        scheduled: queue.counts.scheduled,
        ready: queue.counts.ready,
        leased: queue.counts.leased,
        dead: queue.counts.dead,
        tables: files.files,
        tables_live: files.live,
        tables_settled: files.settled,
        tables_body_bytes: files.body_bytes,
    });
    let tables = stats.tables.iter().map(|file| TableRow {
        file: file.file.clone(),
        bytes: file.bytes,
        entries: file.entries,
        live: file.live,
        earliest: file.earliest.to_string(),
        latest: file.latest.to_string(),
    });
    StatsJson {
        messages: stats.messages,
        in_tables: stats.cold,
        opened: stats.incarnation,
        made: stats.made.to_string(),
        was_closed: stats.was_closed,
        journal_start: stats.start,
        kinds: kinds.collect(),
        queues: queues.collect(),
        tables: tables.collect(),
    }
}

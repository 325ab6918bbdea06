//! `dwell engine repair`

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use dwell_engine::disk::{CountedDisk, Disk, RealDisk};
use dwell_engine::offline::{self, Lost, RepairReport};
use dwell_time::{Clock as _, SystemClock};
use serde::Serialize;

use super::bar::Bar;
use super::{Context, DirArgs, Outcome, ShownCut, bytes, check, lies_in, looked_at, seed};
use crate::exit::{Exit, Failure};
use crate::human::{BAD, FAINT, STRONG, WAITING};

/// Save what can be saved of a damaged directory into a new one
#[derive(Debug, Args)]
#[command(after_help = "Example:
  dwell engine repair dwell-data dwell-data.repaired

The damaged directory is only read. What was lost is listed, by file and range
of bytes. Where the record that ended a message is lost, the message comes
again; a receipt from before holds as long as its lease. It ends with 0 where
nothing was lost, and with 1 where something was; the new directory can be
served either way.")]
pub(crate) struct Repair {
    #[command(flatten)]
    dir: DirArgs,
    /// The new directory: empty, or one that does not exist yet
    #[arg(value_name = "NEWDIR")]
    new_dir: PathBuf,
}

#[derive(Serialize)]
struct RepairJson<'a> {
    messages: u64,
    sound: bool,
    entries: u64,
    batches: u64,
    records: u64,
    lost: Vec<ShownLost<'a>>,
    found: u64,
    idle_records: u64,
    idle_sweeps: u64,
    keyless: Vec<u64>,
    without_manifest: bool,
    cuts: Vec<ShownCut<'a>>,
    incarnation: u32,
    check: check::CheckJson<'a>,
}

#[derive(Serialize)]
struct ShownLost<'a> {
    file: &'a Path,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<u64>,
    reason: &'a str,
}

impl<'a> From<&'a Lost> for ShownLost<'a> {
    fn from(lost: &'a Lost) -> ShownLost<'a> {
        let (from, to) = lost.range.unzip();
        ShownLost { file: &lost.file, from, to, messages: lost.messages, reason: &lost.reason }
    }
}

impl Repair {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let (dir, new_dir) = (&self.dir.dir, &self.new_dir);
        if lies_in(new_dir, dir) {
            return Err(Failure::usage("the new directory lies in the damaged one: name one elsewhere"));
        }
        let disk = looked_at();
        let new_disk: Arc<dyn Disk> = Arc::new(CountedDisk::new(Arc::new(RealDisk)));
        let total = bytes(&disk, dir, |kind| u64::from(matches!(kind, "journal" | "tables")));
        let bar = Bar::over_reads(&disk, total, context.output.has_progress());
        let now = SystemClock::new().now();
        let report = offline::repair(&disk, dir, &new_disk, new_dir, now, seed()?)?;
        drop(bar);
        let shown = RepairJson {
            messages: report.messages,
            sound: report.check.is_sound(),
            entries: report.entries,
            batches: report.batches,
            records: report.records,
            lost: report.lost.iter().map(ShownLost::from).collect(),
            found: report.found,
            idle_records: report.idle_records,
            idle_sweeps: report.idle_sweeps,
            keyless: report.keyless.iter().map(|number| number.get()).collect(),
            without_manifest: report.without_manifest,
            cuts: report.cuts.iter().map(ShownCut::from).collect(),
            incarnation: report.incarnation,
            check: check::CheckJson::from(&report.check),
        };
        context.output.show(&shown, |out| write(out, &report, new_dir))?;
        let is_whole = report.lost.is_empty() && report.check.is_sound();
        Ok(if is_whole { Exit::Ok } else { Exit::Refused })
    }
}

fn write(out: &mut dyn Write, report: &RepairReport, new_dir: &Path) -> io::Result<()> {
    for lost in &report.lost {
        let range = lost.range.map_or(String::new(), |(from, to)| format!(" from byte {from} to {to}"));
        let messages = match lost.messages {
            Some(1) => "1 message".to_owned(),
            Some(messages) => format!("{messages} messages"),
            None => "it is not known how many messages".to_owned(),
        };
        writeln!(out, "{BAD}lost{BAD:#} {}{range}: {messages}: {}", lost.file.display(), lost.reason)?;
    }
    if report.without_manifest {
        writeln!(
            out,
            "{WAITING}what was settled in tables is not known without the manifest, and comes again{WAITING:#}"
        )?;
    }
    let notes = [
        (report.found, "of the messages that tables have lost were found in the journal, and are saved"),
        (report.idle_records, "records are about messages that are not there any more"),
        (report.idle_sweeps, "purges and the like were left out: what they removed may be there again"),
        (report.keyless.len() as u64, "messages lost their key, which has a new owner"),
    ];
    for (count, what) in notes.into_iter().filter(|(count, _)| *count > 0) {
        writeln!(out, "{FAINT}{count} {what}{FAINT:#}")?;
    }
    writeln!(out, "{STRONG}{}{STRONG:#} messages saved into {}:", report.messages, new_dir.display())?;
    check::write(out, &report.check)
}

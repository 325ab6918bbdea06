//! `dwell engine check`

use std::io::{self, Write};
use std::path::Path;

use clap::Args;
use dwell_engine::offline::{self, CheckReport};
use serde::Serialize;

use super::bar::Bar;
use super::{Context, DirArgs, Outcome, ShownCut, ShownFlaw, bytes, looked_at};
use crate::exit::{Exit, Failure};
use crate::human::{BAD, FAINT, GOOD, STRONG};

/// Verify every checksum, and that the files agree with each other
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell engine check dwell-data
  dwell engine check dwell-data --json | jq -c '.flaws[]'

Nothing is changed. It ends with 0 where nothing is wrong, and with 1 where
something is; what was being written when the machine stopped is not wrong, and
reported all the same. `dwell engine repair` saves what can be saved.")]
pub(crate) struct Check {
    #[command(flatten)]
    dir: DirArgs,
}

/// A report as JSON.
#[derive(Serialize)]
pub(super) struct CheckJson<'a> {
    sound: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<u64>,
    files: u64,
    bytes: u64,
    entries: u64,
    live: u64,
    pairs: u64,
    batches: u64,
    records: u64,
    flaws: Vec<ShownFlaw<'a>>,
    flaws_in_all: u64,
    cuts: Vec<ShownCut<'a>>,
    leftovers: &'a [String],
}

impl<'a> From<&'a CheckReport> for CheckJson<'a> {
    fn from(report: &'a CheckReport) -> CheckJson<'a> {
        let flaws = report.flaws.iter().map(|flaw| ShownFlaw {
            file: &flaw.file,
            offset: flaw.offset,
            reason: &flaw.reason,
        });
        CheckJson {
            sound: report.is_sound(),
            messages: report.messages,
            files: report.files,
            bytes: report.bytes,
            entries: report.entries,
            live: report.live,
            pairs: report.pairs,
            batches: report.batches,
            records: report.records,
            flaws: flaws.collect(),
            flaws_in_all: report.flaws_in_all,
            cuts: report.cuts.iter().map(ShownCut::from).collect(),
            leftovers: &report.leftovers,
        }
    }
}

impl Check {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let report = checked(context, &self.dir.dir)?;
        context.output.show(&CheckJson::from(&report), |out| write(out, &report))?;
        Ok(if report.is_sound() { Exit::Ok } else { Exit::Refused })
    }
}

/// Checks a directory while a bar is shown.
pub(super) fn checked(context: &Context, dir: &Path) -> Result<CheckReport, Failure> {
    let disk = looked_at();
    let total = bytes(&disk, dir, |kind| if kind == "tables" { 1 } else { 2 });
    let _bar = Bar::over_reads(&disk, total, context.output.has_progress());
    Ok(offline::check(&disk, dir)?)
}

/// A report for people.
pub(super) fn write(out: &mut dyn Write, report: &CheckReport) -> io::Result<()> {
    for flaw in &report.flaws {
        let at = flaw.offset.map_or(String::new(), |offset| format!(" at byte {offset}"));
        writeln!(out, "{BAD}{}{at}{BAD:#}: {}", flaw.file.display(), flaw.reason)?;
    }
    let untold = report.flaws_in_all - report.flaws.len() as u64;
    if untold > 0 {
        writeln!(out, "{BAD}and {untold} more{BAD:#}")?;
    }
    for cut in &report.cuts {
        let dwell_engine::Cut { file, offset, bytes, reason } = cut;
        writeln!(
            out,
            "{FAINT}{} at byte {offset}: {bytes} bytes that were not synced: {reason}{FAINT:#}",
            file.display()
        )?;
    }
    for name in &report.leftovers {
        writeln!(
            out,
            "{FAINT}{name} is needed by nobody, and harmless: the next opening removes it{FAINT:#}"
        )?;
    }
    let CheckReport { files, bytes, batches, entries, .. } = report;
    if report.is_sound() {
        write!(out, "{GOOD}sound{GOOD:#}")?;
    } else {
        write!(out, "{BAD}damaged{BAD:#}")?;
    }
    if let Some(messages) = report.messages {
        write!(out, "  {STRONG}{messages}{STRONG:#} messages")?;
    }
    writeln!(out, "  {files} files, {bytes} bytes: {batches} batches, {entries} entries in tables")?;
    if !report.is_sound() {
        writeln!(
            out,
            "{FAINT}restore a backup, or save what is whole: dwell engine repair DIR NEWDIR{FAINT:#}"
        )?;
    }
    Ok(())
}

//! `dwell redisson doctor`

use std::io::{self, IsTerminal as _, Write};

use clap::Args;
use dwell_redisson::{Doctor, DoctorOptions, Report};
use serde::Serialize;

use super::{Context, Java, Outcome, QueuesArgs, runtime};
use crate::args::duration_ms;
use crate::exit::{Exit, Failure};
use crate::human::{BAD, FAINT, GOOD, STRONG, WAITING, instant, pairs};

/// Find out what is wrong with a delayed queue; with --fix, repair it
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell redisson doctor --queue orders
  dwell redisson doctor --queue orders --fix          shows the plan, and asks
  dwell redisson doctor --queue orders --fix --yes    shows the plan, and does it

It ends with 0 where nothing is wrong, and with 1 where something is, or is left after --fix. Nothing is
deleted: what cannot stay in the queue is set aside, in a hash beside it.")]
pub(crate) struct Examine {
    #[command(flatten)]
    queues: QueuesArgs,
    /// What the Java clients read; by default, the layout of most pending elements
    #[arg(long, value_enum, default_value_t = Java::Any)]
    java: Java,
    /// How long an element that is due may wait before it is overdue
    #[arg(long, value_parser = duration_ms, default_value = "5s", value_name = "DURATION")]
    overdue: u64,
    /// Repair what can be repaired
    #[arg(long)]
    fix: bool,
    /// Do not ask for confirmation
    #[arg(long, requires = "fix")]
    yes: bool,
}

/// The content of a report, and the planned repairs.
#[derive(Serialize)]
struct DoctorJson<'a> {
    #[serde(flatten)]
    report: &'a Report,
    healthy: bool,
    plan: Vec<DoctorStep>,
}

#[derive(Serialize)]
struct DoctorStep {
    kind: &'static str,
    count: usize,
    fix: &'static str,
}

/// The repairs that were made.
#[derive(Serialize)]
struct Fixed<'a> {
    queue: &'a str,
    kind: &'static str,
    fixed: usize,
}

impl Examine {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        if self.fix && !self.yes && !(io::stdin().is_terminal() && context.output.is_human()) {
            return Err(Failure::usage("nobody can be asked here: say --fix --yes, or look without --fix"));
        }
        let queues = self.queues.keys()?;
        let runtime = runtime()?;
        runtime.block_on(async {
            let link = self.queues.link().await?;
            let mut exit = Exit::Ok;
            for keys in queues {
                let options = DoctorOptions {
                    overdue_ms: self.overdue,
                    layout: self.java.layout(),
                    ..DoctorOptions::default()
                };
                if !self.examine(context, &Doctor::new(link.clone(), keys, options)).await? {
                    exit = Exit::Refused;
                }
            }
            Ok(exit)
        })
    }

    /// Checks one queue, and repairs it if asked to. Returns whether it is healthy at the end.
    async fn examine(&self, context: &Context, doctor: &Doctor) -> Result<bool, Failure> {
        let report = doctor.examine().await?;
        show(context, &report)?;
        let has_plan = report.plan().next().is_some();
        if !self.fix
            || !has_plan
            || (!self.yes && !context.output.confirm(|out| write!(out, "carry out this plan?"))?)
        {
            return Ok(report.is_healthy());
        }
        for (finding, _) in report.plan() {
            let fixed = doctor.fix(finding).await?;
            let line = Fixed { queue: &report.queue, kind: finding.kind.as_str(), fixed };
            context.output.show(&line, |out| {
                writeln!(out, "{GOOD}{fixed}{GOOD:#} of {} {} mended", finding.count, finding.kind)
            })?;
        }
        let after = doctor.examine().await?;
        show(context, &after)?;
        Ok(after.is_healthy())
    }
}

fn show(context: &Context, report: &Report) -> Result<(), Failure> {
    let plan = report.plan().map(|(finding, fix)| DoctorStep {
        kind: finding.kind.as_str(),
        count: finding.count,
        fix: fix.plan(),
    });
    let shown = DoctorJson { report, healthy: report.is_healthy(), plan: plan.collect() };
    context.output.show(&shown, |out| {
        writeln!(out, "{STRONG}{}{STRONG:#}", report.queue)?;
        let mut rows = vec![
            ("pending", report.scheduled.to_string()),
            ("ready", report.ready.to_string()),
            ("leased", report.leased.to_string()),
            ("movers listening", report.listeners.to_string()),
        ];
        rows.extend(report.next_due.map(|at| ("next due", instant(at))));
        pairs(out, &rows)?;
        findings(out, report)?;
        if !shown.plan.is_empty() {
            writeln!(out, "{STRONG}plan{STRONG:#}")?;
        }
        for (at, step) in shown.plan.iter().enumerate() {
            writeln!(out, "  {}. {} {}: {}", at + 1, step.count, step.kind, step.fix)?;
        }
        Ok(())
    })
}

fn findings(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    if report.is_healthy() {
        writeln!(out, "{GOOD}nothing is wrong{GOOD:#}")?;
    }
    for finding in &report.findings {
        let style = if finding.kind.is_trouble() { BAD } else { WAITING };
        writeln!(out, "{style}{} {}{style:#}: {}", finding.count, finding.kind, finding.kind.meaning())?;
        for sample in &finding.samples {
            writeln!(out, "  {FAINT}{sample}{FAINT:#}")?;
        }
    }
    Ok(())
}

//! `dwell schedules`

use std::borrow::Cow;
use std::io;

use clap::builder::PossibleValue;
use clap::{Args, Subcommand, ValueEnum};
use dwell_model::{QueueName, Timestamp, format_duration_ms};
use dwell_wire::{Schedule, ScheduleFields, ScheduleOutcome};
use pollster::block_on;
use serde::Serialize;

use super::{Context, Outcome};
use crate::args::duration_ms;
use crate::exit::{Exit, Failure};
use crate::human::{BAD, FAINT, GOOD, PLAIN, STRONG, WAITING, instant, pairs};
use crate::table::{self, Cell};

/// Define, list, run and pause schedules
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell schedules put report --queue reports --cron '30 9 * * MON-FRI'
  dwell schedules put tick --queue ticks --every 5m --body tock
  dwell schedules list
  dwell schedules next report --count 3
  dwell schedules run report          a run now, besides those of its instants
  dwell schedules pause report

Schedules are the store's: every server over it runs them, each instant once.
Five fields of cron are Unix's; six or seven are Spring's or Quartz's, which
--dialect tells apart.")]
pub(crate) struct Schedules {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List them with their next instants
    List,
    /// Print the next instants of one
    Next(Next),
    /// Define one, in place of the one with the same name
    Put(Box<Define>),
    /// Put a run of one now
    Run(Named),
    /// Stop running one until it is resumed
    Pause(Named),
    /// Run one again, from its next instant on
    Resume(Named),
    /// Remove one; runs that were put stay
    Delete(Named),
}

#[derive(Debug, Args)]
struct Named {
    /// The schedule
    name: String,
}

#[derive(Debug, Args)]
struct Next {
    /// The schedule
    name: String,
    /// The number of instants
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000), value_name = "COUNT")]
    count: u32,
}

#[derive(Debug, Args)]
struct Define {
    /// The schedule
    name: String,
    /// The queue of its runs
    #[arg(long)]
    queue: QueueName,
    /// When it runs, as an expression of five, six or seven fields
    #[arg(long, required_unless_present = "every", conflicts_with = "every", value_name = "EXPRESSION")]
    cron: Option<String>,
    /// The dialect of the expression
    #[arg(long, value_enum, requires = "cron", value_name = "DIALECT")]
    dialect: Option<Dialect>,
    /// The expression's time zone; UTC if it is left out
    #[arg(long, requires = "cron", value_name = "ZONE")]
    zone: Option<String>,
    /// At even intervals, counted from 1970
    #[arg(long, value_parser = duration_ms, allow_hyphen_values = true, value_name = "DURATION")]
    every: Option<u64>,
    /// The body of its runs; empty if it is left out
    #[arg(long, allow_hyphen_values = true, value_name = "TEXT")]
    body: Option<String>,
    /// A file with the body of its runs
    #[arg(long, conflicts_with = "body", value_name = "FILE")]
    body_file: Option<std::path::PathBuf>,
    /// What happens to instants at which no server was running
    #[arg(long, value_enum, default_value_t = Missed::One, value_name = "WHAT")]
    missed: Missed,
    /// What happens to a run while an earlier one is not done
    #[arg(long, value_enum, default_value_t = Overlap::Skip, value_name = "WHAT")]
    overlap: Overlap,
    /// Delay each run by up to this; the delay differs between instants
    #[arg(long, value_parser = duration_ms, allow_hyphen_values = true, value_name = "DURATION")]
    jitter: Option<u64>,
}

/// The dialect of a cron expression.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Dialect {
    Unix,
    Spring,
    Quartz,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Missed {
    /// One run for all of them
    One,
    /// None
    Skip,
    /// Each, at most 1,000
    All,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Overlap {
    /// It is skipped
    Skip,
    /// It is put in addition to the earlier one
    Allow,
    /// It replaces the earlier one
    Replace,
}

#[derive(Serialize)]
struct Defined<'a> {
    name: &'a str,
    outcome: ScheduleOutcome,
}

#[derive(Serialize)]
struct Instant {
    instant: Timestamp,
}

#[derive(Serialize)]
struct Deleted<'a> {
    name: &'a str,
    removed: u64,
}

impl Schedules {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        let client = client.store();
        match self.what {
            What::List => list(context, &block_on(client.schedules())?),
            What::Next(Next { name, count }) => {
                let found = block_on(client.next_runs(&name, count as usize))?;
                for at in found.instants {
                    context.output.show(&Instant { instant: at }, |out| writeln!(out, "{}", instant(at)))?;
                }
                Ok(Exit::Ok)
            }
            What::Put(define) => {
                let body = define.read_body()?;
                let defined = block_on(client.put_schedule(&define.name, &define.fields(&body)))?;
                let outcome = defined.outcome;
                let word = match outcome {
                    ScheduleOutcome::Created => "created",
                    ScheduleOutcome::Changed => "changed",
                    ScheduleOutcome::Unchanged => "unchanged",
                };
                let name = define.name.as_str();
                context.output.show(&Defined { name, outcome }, |out| {
                    writeln!(out, "{STRONG}{name}{STRONG:#}  {GOOD}{word}{GOOD:#}")
                })?;
                Ok(Exit::Ok)
            }
            What::Run(Named { name }) => {
                let answer = block_on(client.run_schedule(&name))?;
                context.output.show(&answer, |out| {
                    writeln!(out, "{STRONG}{}{STRONG:#}  due {}", answer.id, instant(answer.due))
                })?;
                Ok(Exit::Ok)
            }
            What::Pause(Named { name }) => show(context, &block_on(client.pause_schedule(&name))?),
            What::Resume(Named { name }) => show(context, &block_on(client.resume_schedule(&name))?),
            What::Delete(Named { name }) => {
                let removed = block_on(client.delete_schedule(&name))?.removed;
                let deleted = Deleted { name: &name, removed };
                context.output.show(&deleted, |out| writeln!(out, "{STRONG}{name}{STRONG:#}  deleted"))?;
                Ok(Exit::Ok)
            }
        }
    }
}

impl Define {
    fn read_body(&self) -> Result<Vec<u8>, Failure> {
        match (&self.body, &self.body_file) {
            (Some(text), _) => Ok(text.clone().into_bytes()),
            (None, Some(file)) => {
                std::fs::read(file).map_err(|error| Failure::file("input", file.display(), &error))
            }
            (None, None) => Ok(Vec::new()),
        }
    }

    fn fields<'a>(&'a self, body: &'a [u8]) -> ScheduleFields<'a> {
        let word = |value: Option<PossibleValue>| -> Option<Cow<'a, str>> {
            value.map(|value| value.get_name().to_owned().into())
        };
        let (body, body_base64) = dwell_wire::shown_body(body);
        ScheduleFields {
            queue: Some(self.queue.as_str().into()),
            cron: self.cron.as_deref().map(Into::into),
            dialect: self.dialect.and_then(|dialect| word(dialect.to_possible_value())),
            zone: self.zone.as_deref().map(Into::into),
            every_ms: self.every,
            body: body.filter(|body| !body.is_empty()),
            body_base64,
            missed: word(self.missed.to_possible_value()),
            overlap: word(self.overlap.to_possible_value()),
            jitter_ms: self.jitter,
            ..ScheduleFields::default()
        }
    }
}

fn list(context: &Context, found: &dwell_wire::Schedules<'_>) -> Outcome {
    if context.output.is_human() {
        let rows: Vec<Vec<Cell>> = found.schedules.iter().map(row).collect();
        if !rows.is_empty() {
            let heading = ["schedule", "queue", "when", "next", ""];
            context.output.print(|out| table::write(out, &heading, &rows))?;
        }
    } else {
        found.schedules.iter().try_for_each(|schedule| context.output.show(schedule, |_| Ok(())))?;
    }
    for problem in &found.unread {
        context.output.remark(&format!("{BAD}{}{BAD:#}: {}", problem.code, problem.detail));
    }
    Ok(Exit::Ok)
}

/// Its times, in one line.
fn when(schedule: &Schedule<'_>) -> String {
    match (&schedule.cron, schedule.every_ms) {
        (Some(cron), _) => format!("{cron}  {}", schedule.zone.as_deref().unwrap_or("UTC")),
        (None, Some(ms)) => format!("every {}", format_duration_ms(ms)),
        (None, None) => String::new(),
    }
}

fn row(schedule: &Schedule<'_>) -> Vec<Cell> {
    let (style, state) = if schedule.paused { (WAITING, "paused") } else { (FAINT, "") };
    vec![
        Cell::text(&schedule.name, STRONG),
        Cell::text(&schedule.queue, PLAIN),
        Cell::text(when(schedule), PLAIN),
        Cell::text(schedule.next.map(instant).unwrap_or_default(), PLAIN),
        Cell::text(state, style),
    ]
}

fn show(context: &Context, schedule: &Schedule<'_>) -> Outcome {
    context.output.show(schedule, |out| detail(out, schedule))?;
    Ok(Exit::Ok)
}

fn detail(out: &mut dyn io::Write, schedule: &Schedule<'_>) -> io::Result<()> {
    let state = if schedule.paused { "paused" } else { "running" };
    writeln!(out, "{STRONG}{}{STRONG:#}  {state}", schedule.name)?;
    let mut rows = vec![("queue", schedule.queue.to_string()), ("when", when(schedule))];
    rows.extend(schedule.next.map(|next| ("next", instant(next))));
    pairs(out, &rows)
}

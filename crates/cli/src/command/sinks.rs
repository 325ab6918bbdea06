//! `dwell sinks`

use std::io;

use clap::{Args, Subcommand};
use dwell_wire::Sink;
use pollster::block_on;
use serde::Serialize;

use super::{Context, Outcome};
use crate::exit::Exit;
use crate::human::{BAD, FAINT, GOOD, NAME, PLAIN, STRONG, WAITING, one_line, pairs};
use crate::table::{self, Cell};

/// List the sinks that a server runs, test and pause them
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell sinks list
  dwell sinks test shop
  dwell sinks pause shop          until `dwell sinks resume shop`, or a restart

Sinks stand in the server's configuration as [[sinks]]; SIGHUP brings changes
in. `test` connects, TLS included, and sends no message; a sink that does not
reach its destination ends it with exit code 1.")]
pub(crate) struct Sinks {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List them with their counts
    List,
    /// Connect to a sink's destination, without a message
    Test(Named),
    /// Pause a sink: it takes nothing more, and finishes what it has taken
    Pause(Named),
    /// Resume a sink
    Resume(Named),
}

#[derive(Debug, Args)]
struct Named {
    /// The sink
    name: String,
}

#[derive(Serialize)]
struct Tested<'a> {
    name: &'a str,
    #[serde(flatten)]
    tested: dwell_wire::SinkTested,
}

impl Sinks {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        let client = client.store();
        match self.what {
            What::List => list(context, &block_on(client.sinks())?),
            What::Test(Named { name }) => test(context, &name, block_on(client.test_sink(&name))?),
            What::Pause(Named { name }) => show(context, &block_on(client.pause_sink(&name))?),
            What::Resume(Named { name }) => show(context, &block_on(client.resume_sink(&name))?),
        }
    }
}

fn list(context: &Context, sinks: &[Sink]) -> Outcome {
    if !context.output.is_human() {
        sinks.iter().try_for_each(|sink| context.output.show(sink, |_| Ok(())))?;
        return Ok(Exit::Ok);
    }
    let rows: Vec<Vec<Cell>> = sinks.iter().map(row).collect();
    if !rows.is_empty() {
        let heading = ["sink", "destination", "in flight", "delivered", "failed", "state"];
        context.output.print(|out| table::write(out, &heading, &rows))?;
    }
    Ok(Exit::Ok)
}

fn row(sink: &Sink) -> Vec<Cell> {
    let in_flight: u64 = sink.queues.iter().map(|queue| queue.in_flight).sum();
    let is_open = sink.queues.iter().any(|queue| queue.breaker != "closed");
    let (style, state) = match &*sink.state {
        "running" if is_open => (WAITING, "waiting for its destination".to_owned()),
        "running" => (GOOD, "running".to_owned()),
        "paused" => (WAITING, with_reason(sink)),
        _ => (BAD, with_reason(sink)),
    };
    vec![
        Cell::text(&sink.name, STRONG),
        Cell::text(&sink.destination, PLAIN),
        Cell::count(in_flight, NAME),
        Cell::count(sink.delivered, GOOD),
        Cell::count(sink.failed.values().sum(), BAD),
        Cell::text(state, style),
    ]
}

/// Its state and the reason, a part of which may be the destination's text.
fn with_reason(sink: &Sink) -> String {
    match &sink.reason {
        Some(reason) => format!("{}: {}", sink.state, one_line(reason, 60)),
        None => sink.state.to_string(),
    }
}

fn show(context: &Context, sink: &Sink) -> Outcome {
    context.output.show(sink, |out| detail(out, sink))?;
    Ok(Exit::Ok)
}

fn detail(out: &mut dyn io::Write, sink: &Sink) -> io::Result<()> {
    writeln!(out, "{STRONG}{}{STRONG:#}  {}", sink.name, sink.state)?;
    let mut rows = vec![
        ("kind", sink.kind.to_string()),
        ("destination", sink.destination.clone()),
        ("delivered", sink.delivered.to_string()),
    ];
    rows.extend(sink.reason.as_ref().map(|reason| ("reason", one_line(reason, 1_000))));
    rows.extend(sink.failed.iter().map(|(code, count)| ("failed", format!("{code}: {count}"))));
    rows.extend(
        sink.queues.iter().map(|queue| ("queue", format!("{}  breaker {}", queue.queue, queue.breaker))),
    );
    pairs(out, &rows)
}

/// A destination that cannot be reached is a refusal, so that a script sees it.
fn test(context: &Context, name: &str, tested: dwell_wire::SinkTested) -> Outcome {
    let exit = if tested.reached == Some(false) { Exit::Refused } else { Exit::Ok };
    let shown = Tested { name, tested };
    context.output.show(&shown, |out| match (shown.tested.reached, &shown.tested.error) {
        (Some(true), _) => writeln!(out, "{STRONG}{name}{STRONG:#}  {GOOD}reached{GOOD:#}"),
        (None, _) => {
            writeln!(out, "{STRONG}{name}{STRONG:#}  {FAINT}each message names its own destination{FAINT:#}")
        }
        (Some(false), error) => {
            let error = error.as_deref().unwrap_or("no reason is given");
            writeln!(out, "{STRONG}{name}{STRONG:#}  {BAD}not reached{BAD:#}: {error}")
        }
    })?;
    Ok(exit)
}

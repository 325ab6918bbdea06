//! `dwell forecast`

use std::io::{self, Write};

use clap::{Args, ValueEnum};
use dwell_model::{QueueName, Timestamp, format_duration_ms};
use dwell_wire::Forecast as Counted;
use pollster::block_on;

use super::{Context, Outcome};
use crate::exit::Exit;
use crate::human::{FAINT, NAME, STRONG};

/// The longest bar, in characters.
const LONGEST: u64 = 50;

/// Show how many messages fall due, a bar per step
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell forecast                       all queues, minute by minute for an hour
  dwell forecast orders --span month")]
pub(crate) struct Forecast {
    /// The queue; without it all queues
    queue: Option<QueueName>,
    /// How far to look, from now on
    #[arg(long, value_enum, default_value_t = Span::Hour, value_name = "SPAN")]
    span: Span,
}

/// How far to look.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Span {
    /// 60 seconds
    Minute,
    /// 60 minutes
    Hour,
    /// 24 hours
    Day,
    /// 30 days
    Month,
}

impl From<Span> for dwell_wire::Span {
    fn from(span: Span) -> dwell_wire::Span {
        match span {
            Span::Minute => dwell_wire::Span::Minute,
            Span::Hour => dwell_wire::Span::Hour,
            Span::Day => dwell_wire::Span::Day,
            Span::Month => dwell_wire::Span::Month,
        }
    }
}

impl Forecast {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        let span = self.span.into();
        let counted = block_on(client.store().forecast_span(self.queue.as_ref(), span))?;
        context.output.show(&counted, |out| bars(out, &counted, span))?;
        Ok(Exit::Ok)
    }
}

/// Writes a bar per step, in UTC, and the number that fall due later.
fn bars(out: &mut dyn Write, counted: &Counted, span: dwell_wire::Span) -> io::Result<()> {
    let whose = counted.queue.as_ref().map_or("all queues", QueueName::as_str);
    let (_, step_ms) = span.steps();
    let scheduled = counted.scheduled;
    writeln!(
        out,
        "{STRONG}{whose}{STRONG:#}  {scheduled} scheduled, a bar is {}",
        format_duration_ms(step_ms)
    )?;
    let counts = by_step(&counted.due_by);
    let most = counts.iter().copied().max().unwrap_or(0);
    let digits = most.to_string().len();
    for (edge, count) in counted.edges.iter().zip(counts) {
        let begins = step_before(*edge, step_ms).to_string();
        let bar = bar(count, most);
        writeln!(out, "{FAINT}{}{FAINT:#}  {count:>digits$} {NAME}{bar}{NAME:#}", label(&begins, span))?;
    }
    let later = scheduled.saturating_sub(counted.due_by.last().copied().unwrap_or(0));
    writeln!(out, "{later} later")?;
    if counted.within > 0 {
        writeln!(out, "{FAINT}each count may be off by {}{FAINT:#}", counted.within)?;
    }
    Ok(())
}

/// The number that fall due in each step, from the number due by the end of each.
fn by_step(due_by: &[u64]) -> Vec<u64> {
    let before = [0].into_iter().chain(due_by.iter().copied());
    due_by.iter().zip(before).map(|(by, before)| by.saturating_sub(before)).collect()
}

fn step_before(edge: Timestamp, step_ms: u64) -> Timestamp {
    Timestamp::MIN.saturating_after(edge.as_ms().unsigned_abs().saturating_sub(step_ms))
}

/// The part of an instant such as `2026-11-27T12:11:00.000Z` that distinguishes the steps of a span.
fn label(begins: &str, span: dwell_wire::Span) -> &str {
    let part = match span {
        dwell_wire::Span::Minute => 11..19,
        dwell_wire::Span::Hour => 11..16,
        dwell_wire::Span::Day => 5..16,
        dwell_wire::Span::Month => 0..10,
    };
    begins.get(part).unwrap_or(begins)
}

/// A bar, to an eighth of a character; every count above 0 is visible.
fn bar(count: u64, most: u64) -> String {
    const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    if count == 0 {
        return String::new();
    }
    let eighths = (u128::from(count) * u128::from(LONGEST) * 8 / u128::from(most)).max(1);
    let mut bar = "█".repeat((eighths / 8) as usize);
    if let Some(part) = (eighths % 8).checked_sub(1) {
        bar.push(EIGHTHS[part as usize]);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_counts() {
        assert_eq!(bar(0, 10), "");
        assert_eq!(bar(10, 10), "█".repeat(50));
        assert_eq!(bar(5, 10), "█".repeat(25));
        assert_eq!(bar(1, u64::MAX), "▏");
        assert_eq!(bar(u64::MAX, u64::MAX), "█".repeat(50));
        assert_eq!(bar(1, 100), "▌");
    }

    #[test]
    fn counts_by_step_are_what_is_added_by_each() {
        assert_eq!(by_step(&[1, 1, 4]), [1, 0, 3]);
        // From counts that are inexact.
        assert_eq!(by_step(&[3, 2]), [3, 0]);
        assert_eq!(by_step(&[]), [0; 0]);
    }

    #[test]
    fn steps_are_named_by_their_beginning() {
        let edge: Timestamp = "2026-11-27T12:12:00Z".parse().unwrap();
        let begins = step_before(edge, 60_000).to_string();
        let labels = dwell_wire::Span::ALL.map(|(_, span)| label(&begins, span).to_owned());
        assert_eq!(labels, ["12:11:00", "12:11", "11-27T12:11", "2026-11-27"]);
    }
}

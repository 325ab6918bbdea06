//! The report of a bench.

use std::collections::BTreeMap;
use std::io::{self, Write};

use dwell_model::format_duration_ms;
use hdrhistogram::Histogram;
use serde::Serialize;

use super::BenchOptions;
use super::peer::Peer;
use super::tally::{BenchCounters, Done};
use crate::command::{Context, Outcome};
use crate::exit::Exit;
use crate::human::{BAD, FAINT, PLAIN, STRONG};
use crate::table::{self, Cell};

#[derive(Debug, Serialize)]
pub(super) struct BenchReport {
    protocol: &'static str,
    server: String,
    queue: String,
    connections: usize,
    batch: usize,
    body_bytes: usize,
    delay_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<u32>,
    /// Whether it was stopped early.
    interrupted: bool,
    put: WorkRow,
    #[serde(skip_serializing_if = "Option::is_none")]
    take: Option<WorkRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ack: Option<WorkRow>,
    /// Transient refusals, by code.
    refused: BTreeMap<String, u64>,
    /// Messages that were in the queue at the end, and were removed; and those that could not be.
    removed: u64,
    left: u64,
}

/// One kind of operation: count, rate, and latency of a call; for takes, the lateness of messages.
#[derive(Debug, Serialize)]
struct WorkRow {
    messages: u64,
    per_s: f64,
    p50_us: Option<u64>,
    p99_us: Option<u64>,
    max_us: Option<u64>,
}

impl WorkRow {
    fn new(done: Done, took: &Histogram<u64>) -> WorkRow {
        WorkRow {
            messages: done.messages,
            per_s: (done.per_s() * 10.0).round() / 10.0,
            p50_us: percentile(took, 50.0),
            p99_us: percentile(took, 99.0),
            max_us: percentile(took, 100.0),
        }
    }

    fn cells(&self, name: &str, what: &str) -> Vec<Cell> {
        let time = |value: Option<u64>| Cell::right(value.map_or_else(|| "-".to_owned(), us), PLAIN);
        vec![
            Cell::text(name, STRONG),
            Cell::right(count(self.messages), PLAIN),
            Cell::right(count(self.per_s.round() as u64), STRONG),
            time(self.p50_us),
            time(self.p99_us),
            time(self.max_us),
            Cell::text(what, FAINT),
        ]
    }
}

/// The percentile of the values; `None` if there are no values.
pub(super) fn percentile(took: &Histogram<u64>, percent: f64) -> Option<u64> {
    (!took.is_empty()).then(|| took.value_at_percentile(percent))
}

impl BenchReport {
    pub(super) fn new(
        wish: &BenchOptions,
        peer: &impl Peer,
        tally: &BenchCounters,
        removed: u64,
        left: u64,
    ) -> BenchReport {
        let counts = tally.counts();
        let taking = |row: WorkRow| (!wish.put_only).then_some(row);
        BenchReport {
            protocol: peer.protocol(),
            server: peer.address().to_owned(),
            queue: peer.queue().to_string(),
            connections: wish.connections,
            batch: wish.batch,
            body_bytes: wish.body,
            delay_ms: wish.delay_ms,
            rate: wish.rate,
            interrupted: tally.is_interrupted(),
            put: WorkRow::new(counts.put, &counts.put_us),
            take: taking(WorkRow::new(counts.taken, &counts.late_us)),
            ack: taking(WorkRow::new(counts.acked, &counts.ack_us)),
            refused: counts.refused.clone(),
            removed,
            left,
        }
    }

    /// Shows it; messages left behind are a failure.
    pub(super) fn show(&self, context: &Context) -> Outcome {
        context.output.show(self, |out| self.human(out))?;
        Ok(if self.left == 0 { Exit::Ok } else { Exit::Refused })
    }

    fn human(&self, out: &mut dyn Write) -> io::Result<()> {
        let BenchReport { protocol, server, connections, batch, body_bytes, .. } = self;
        let due = if self.delay_ms == 0 {
            "at once".to_owned()
        } else {
            format!("after {}", format_duration_ms(self.delay_ms))
        };
        writeln!(
            out,
            "{FAINT}{protocol} at {server}: {connections} connections that put and {} that take, {batch} messages a call, bodies of {body_bytes} bytes, due {due}{FAINT:#}",
            if self.take.is_some() { *connections } else { 0 }
        )?;
        let mut rows = vec![self.put.cells("put", "a call")];
        rows.extend(self.take.as_ref().map(|row| row.cells("take", "from due to received")));
        rows.extend(self.ack.as_ref().map(|row| row.cells("ack", "a call")));
        table::write(out, &["", "messages", "a second", "p50", "p99", "max", "time of"], &rows)?;
        for (code, times) in &self.refused {
            writeln!(out, "{BAD}refused{BAD:#} {}  {code}", count(*times))?;
        }
        if self.interrupted {
            writeln!(out, "{FAINT}stopped before its time{FAINT:#}")?;
        }
        writeln!(out, "{FAINT}removed in the end: {}{FAINT:#}", count(self.removed))?;
        if self.left > 0 {
            writeln!(
                out,
                "{BAD}left{BAD:#} in '{}'; `dwell delete-queue` removes it when leases are over",
                self.queue
            )?;
        }
        Ok(())
    }
}

/// A count with thousands separators.
pub(super) fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Microseconds, rounded to the digits that matter.
pub(super) fn us(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..10_000 => format!("{:.1} ms", us as f64 / 1e3),
        10_000..10_000_000 => format!("{} ms", us / 1_000),
        _ => format!("{:.1} s", us as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_was_recorded() {
        let mut took = Histogram::new(3).unwrap();
        assert_eq!(percentile(&took, 50.0), None);
        (1..=30).for_each(|value| took.record(value).unwrap());
        assert_eq!(
            [50.0, 99.0, 100.0].map(|percent| percentile(&took, percent)),
            [Some(15), Some(30), Some(30)]
        );
    }

    #[test]
    fn numbers_are_read_at_a_glance() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(number), text);
        }
        for (number, text) in [
            (7, "7 µs"),
            (1_250, "1.2 ms"),
            (45_600, "45 ms"),
            (12_345_678, "12.3 s"),
            (9_999_999, "9999 ms"),
        ] {
            assert_eq!(us(number), text);
        }
    }
}

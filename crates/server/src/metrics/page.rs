//! The metrics page: names, help texts, and the OpenMetrics 1.0 text that Prometheus reads.

use std::fmt;
use std::sync::Arc;

use axum::http::HeaderValue;
use dwell_delivery::schedule::Runs;
use dwell_delivery::sinks::webhook;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::Counter;
use super::census::{Census, QueueGauges};
use super::process::Process;
use super::queues::{DEATHS, DISCARDS, Meter, OTHER};
use super::source::{Sample, SampleValue};
use crate::delivery::Sink;

/// The content type of the format.
pub(crate) const CONTENT_TYPE: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// The server's own metrics: name, type, and one sentence. Those of other sources are not listed.
const NAMES: &[(&str, MetricType, &str)] = &[
    ("dwell_build", MetricType::Info, "The version that runs"),
    ("dwell_up", MetricType::Gauge, "1 while the store answers, 0 while it does not"),
    ("dwell_queues", MetricType::Gauge, "Queues there are"),
    ("dwell_messages", MetricType::Gauge, "Messages by queue and state"),
    ("dwell_ready_urgent", MetricType::Gauge, "Ready messages with a priority below 1024, by queue"),
    ("dwell_waiting_takes", MetricType::Gauge, "Takes that wait, by queue"),
    ("dwell_puts", MetricType::Counter, "Messages put, by queue"),
    ("dwell_takes", MetricType::Counter, "Messages handed out, by queue"),
    ("dwell_acks", MetricType::Counter, "Messages acked, by queue"),
    ("dwell_retries", MetricType::Counter, "Messages given back after a failed attempt, by queue"),
    ("dwell_releases", MetricType::Counter, "Messages given back without spending an attempt, by queue"),
    ("dwell_buries", MetricType::Counter, "Messages buried, by queue"),
    ("dwell_extends", MetricType::Counter, "Leases extended, by queue"),
    ("dwell_cancels", MetricType::Counter, "Messages cancelled, by queue"),
    ("dwell_deaths", MetricType::Counter, "Messages that have died, by queue and reason"),
    (
        "dwell_discarded",
        MetricType::Counter,
        "Dead or expired messages that were removed, by queue and reason",
    ),
    (
        "dwell_lateness_seconds",
        MetricType::Histogram,
        "Handed out so long after the latest of due, put and last made ready, by queue",
    ),
    ("dwell_events", MetricType::Counter, "What has happened to messages, in all queues together"),
    ("dwell_refusals", MetricType::Counter, "What was refused, by error code"),
    ("dwell_http_answers", MetricType::Counter, "HTTP requests answered, by status"),
    ("dwell_connections", MetricType::Gauge, "Open connections by protocol"),
    ("dwell_connections_opened", MetricType::Counter, "Connections opened by protocol"),
    ("dwell_held_bytes", MetricType::Gauge, "Bytes that bodies of requests and answers hold"),
    ("dwell_sink_delivered", MetricType::Counter, "Messages that a sink's destination has confirmed"),
    ("dwell_sink_failed", MetricType::Counter, "Deliveries of a sink that have failed, by code"),
    ("dwell_sink_uncertain", MetricType::Counter, "Requests of a sink that may or may not have arrived"),
    (
        "dwell_sink_lateness_seconds",
        MetricType::Histogram,
        "From the latest of due, put and last made ready, to confirmed, by sink",
    ),
    ("dwell_sink_paused", MetricType::Gauge, "1 while a sink is paused"),
    ("dwell_sink_in_flight", MetricType::Gauge, "Messages that a sink has in hand, by queue"),
    (
        "dwell_sink_lost",
        MetricType::Counter,
        "Outcomes that came after the lease was over, by sink and queue",
    ),
    ("dwell_sink_breaker", MetricType::Gauge, "1 for the state that a sink's breaker is in, by queue"),
    ("dwell_schedule_runs", MetricType::Counter, "Runs of schedules that this server has put"),
    ("dwell_schedule_missed", MetricType::Counter, "Instants of schedules that were missed and are not run"),
    ("dwell_schedule_skipped", MetricType::Counter, "Runs left out while an earlier one was not done"),
    ("dwell_schedule_failed", MetricType::Counter, "Runs that the store has refused for good"),
    (
        "dwell_schedule_unreadable",
        MetricType::Counter,
        "Times that a schedule was met which this version cannot read",
    ),
    ("process_resident_memory_bytes", MetricType::Gauge, "Memory in use"),
    ("process_open_fds", MetricType::Gauge, "Open files and sockets"),
    ("process_max_fds", MetricType::Gauge, "Files and sockets that may be open"),
];

/// All values of a page.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) is_up: bool,
    pub(super) census: Option<Arc<Census>>,
    pub(super) queues: Vec<(String, Arc<Meter>)>,
    /// Whether the store has ever reported deaths. Until then these counts are left out, since the next page would show
    /// a jump from 0.
    pub(super) has_deaths: bool,
    /// Counts of events in all queues together.
    pub(super) events: Vec<(&'static str, u64)>,
    pub(super) connections: [(&'static str, u64, u64); 2],
    pub(super) statuses: Vec<(u16, u64)>,
    pub(super) refusals: Vec<(&'static str, u64)>,
    pub(super) samples: Vec<Sample>,
    pub(super) sinks: Vec<Arc<Sink>>,
    pub(super) runs: Runs,
    pub(super) held_bytes: u64,
    pub(super) process: Process,
}

impl Snapshot {
    pub(super) fn text(self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut page = String::new();
        text::encode(&mut page, &registry).expect("a String takes all");
        page
    }

    fn standings(&self) -> impl Iterator<Item = (&str, &QueueGauges)> {
        self.census.iter().flat_map(|census| {
            let shown = census.shown.iter().map(|(name, standing)| (name.as_str(), standing));
            shown.chain([(OTHER, &census.other)])
        })
    }

    /// One value for each queue that is shown.
    fn each_standing(&self, metric: &mut MetricEncoder<'_>, read: fn(&QueueGauges) -> u64) -> fmt::Result {
        for (queue, standing) in self.standings() {
            metric.encode_family(&[("queue", queue)])?.encode_gauge(&read(standing))?;
        }
        Ok(())
    }

    fn each_meter(&self, metric: &mut MetricEncoder<'_>, read: fn(&Meter) -> u64) -> fmt::Result {
        for (queue, meter) in &self.queues {
            counter(&mut metric.encode_family(&[("queue", queue.as_str())])?, read(meter))?;
        }
        Ok(())
    }

    fn messages(&self, metric: &mut MetricEncoder<'_>) -> fmt::Result {
        for (queue, standing) in self.standings() {
            let counts = &standing.counts;
            for (state, count) in [
                ("scheduled", counts.scheduled),
                ("ready", counts.ready),
                ("leased", counts.leased),
                ("dead", counts.dead),
            ] {
                metric.encode_family(&[("queue", queue), ("state", state)])?.encode_gauge(&count)?;
            }
        }
        Ok(())
    }

    /// Counts of each queue by reason.
    fn by_reason<const N: usize>(
        &self,
        metric: &mut MetricEncoder<'_>,
        reasons: [&'static str; N],
        read: fn(&Meter) -> &[Counter; N],
    ) -> fmt::Result {
        if !self.has_deaths {
            return Ok(());
        }
        for (queue, meter) in &self.queues {
            for (reason, count) in reasons.into_iter().zip(read(meter)) {
                let labels = [("queue", queue.as_str()), ("reason", reason)];
                counter(&mut metric.encode_family(&labels)?, count.get())?;
            }
        }
        Ok(())
    }

    fn lateness(&self, metric: &mut MetricEncoder<'_>) -> fmt::Result {
        for (queue, meter) in &self.queues {
            let (buckets, sum) = meter.lateness.read(0.001);
            histogram(&mut metric.encode_family(&[("queue", queue.as_str())])?, &buckets, sum)?;
        }
        Ok(())
    }

    fn each_sink(&self, metric: &mut MetricEncoder<'_>, read: fn(&webhook::Meter) -> u64) -> fmt::Result {
        for sink in &self.sinks {
            counter(&mut metric.encode_family(&[("sink", sink.name())])?, read(sink.webhook().meter()))?;
        }
        Ok(())
    }

    fn sink_lateness(&self, metric: &mut MetricEncoder<'_>) -> fmt::Result {
        for sink in &self.sinks {
            let lateness = sink.webhook().meter().lateness();
            let seconds = |ms: u64| ms as f64 * 0.001;
            let bucket = |(bound, count): &(Option<u64>, u64)| (bound.map_or(f64::INFINITY, seconds), *count);
            let buckets: Vec<(f64, u64)> = lateness.buckets.iter().map(bucket).collect();
            let labels = [("sink", sink.name())];
            histogram(&mut metric.encode_family(&labels)?, &buckets, seconds(lateness.sum_ms))?;
        }
        Ok(())
    }

    fn sink_breakers(&self, metric: &mut MetricEncoder<'_>) -> fmt::Result {
        for sink in &self.sinks {
            for (queue, stats) in sink.queues() {
                let now = stats.breaker();
                for state in ["closed", "half_open", "open"] {
                    let labels = [("sink", sink.name()), ("queue", queue.as_str()), ("state", state)];
                    metric.encode_family(&labels)?.encode_gauge(&u64::from(state == now))?;
                }
            }
        }
        Ok(())
    }

    fn encode_one(&self, name: &str, metric: &mut MetricEncoder<'_>) -> fmt::Result {
        match name {
            "dwell_build" => metric.encode_info(&[("version", env!("CARGO_PKG_VERSION"))]),
            "dwell_up" => metric.encode_gauge(&u64::from(self.is_up)),
            "dwell_queues" => match &self.census {
                Some(census) => metric.encode_gauge(&census.queues),
                None => Ok(()),
            },
            "dwell_messages" => self.messages(metric),
            "dwell_ready_urgent" => self.each_standing(metric, |standing| standing.counts.ready_urgent),
            "dwell_waiting_takes" => self.each_standing(metric, |standing| standing.waiting),
            "dwell_puts" => self.each_meter(metric, |meter| meter.puts.get()),
            "dwell_takes" => self.each_meter(metric, |meter| meter.takes.get()),
            "dwell_acks" => self.each_meter(metric, |meter| meter.acks.get()),
            "dwell_retries" => self.each_meter(metric, |meter| meter.retries.get()),
            "dwell_releases" => self.each_meter(metric, |meter| meter.releases.get()),
            "dwell_buries" => self.each_meter(metric, |meter| meter.buries.get()),
            "dwell_extends" => self.each_meter(metric, |meter| meter.extends.get()),
            "dwell_cancels" => self.each_meter(metric, |meter| meter.cancels.get()),
            "dwell_deaths" => self.by_reason(metric, DEATHS, |meter| &meter.deaths),
            "dwell_discarded" => self.by_reason(metric, DISCARDS, |meter| &meter.discards),
            "dwell_lateness_seconds" => self.lateness(metric),
            "dwell_events" => self.events.iter().try_for_each(|(event, count)| {
                counter(&mut metric.encode_family(&[("event", *event)])?, *count)
            }),
            "dwell_refusals" => self.refusals.iter().try_for_each(|(code, count)| {
                counter(&mut metric.encode_family(&[("code", *code)])?, *count)
            }),
            "dwell_http_answers" => self.statuses.iter().try_for_each(|(status, count)| {
                counter(&mut metric.encode_family(&[("status", u32::from(*status))])?, *count)
            }),
            "dwell_connections" => self.connections.iter().try_for_each(|(protocol, open, _)| {
                metric.encode_family(&[("protocol", *protocol)])?.encode_gauge(open)
            }),
            "dwell_connections_opened" => self.connections.iter().try_for_each(|(protocol, _, opened)| {
                counter(&mut metric.encode_family(&[("protocol", *protocol)])?, *opened)
            }),
            "dwell_held_bytes" => metric.encode_gauge(&self.held_bytes),
            "dwell_sink_delivered" => self.each_sink(metric, |meter| meter.delivered()),
            "dwell_sink_uncertain" => self.each_sink(metric, |meter| meter.uncertain()),
            "dwell_sink_failed" => self.sinks.iter().try_for_each(|sink| {
                sink.webhook().meter().failed().iter().try_for_each(|(code, count)| {
                    let labels = [("sink", sink.name()), ("code", code.as_str())];
                    counter(&mut metric.encode_family(&labels)?, *count)
                })
            }),
            "dwell_sink_lateness_seconds" => self.sink_lateness(metric),
            "dwell_sink_paused" => self.sinks.iter().try_for_each(|sink| {
                metric.encode_family(&[("sink", sink.name())])?.encode_gauge(&u64::from(sink.is_paused()))
            }),
            "dwell_sink_in_flight" => self.sinks.iter().try_for_each(|sink| {
                sink.queues().iter().try_for_each(|(queue, stats)| {
                    let labels = [("sink", sink.name()), ("queue", queue.as_str())];
                    metric.encode_family(&labels)?.encode_gauge(&stats.running())
                })
            }),
            "dwell_sink_lost" => self.sinks.iter().try_for_each(|sink| {
                sink.queues().iter().try_for_each(|(queue, stats)| {
                    let labels = [("sink", sink.name()), ("queue", queue.as_str())];
                    counter(&mut metric.encode_family(&labels)?, stats.lost())
                })
            }),
            "dwell_sink_breaker" => self.sink_breakers(metric),
            "dwell_schedule_runs" => counter(metric, self.runs.put),
            "dwell_schedule_missed" => counter(metric, self.runs.missed),
            "dwell_schedule_skipped" => counter(metric, self.runs.skipped),
            "dwell_schedule_failed" => counter(metric, self.runs.failed),
            "dwell_schedule_unreadable" => counter(metric, self.runs.unreadable),
            "process_resident_memory_bytes" => some(metric, self.process.resident_bytes),
            "process_open_fds" => some(metric, self.process.open_files),
            "process_max_fds" => some(metric, self.process.max_files),
            _ => unreachable!("each name has its arm; a test makes a page of all"),
        }
    }
}

fn counter(metric: &mut MetricEncoder<'_>, count: u64) -> fmt::Result {
    metric.encode_counter::<NoLabelSet, u64, f64>(&count, None)
}

fn histogram(metric: &mut MetricEncoder<'_>, buckets: &[(f64, u64)], sum: f64) -> fmt::Result {
    let count = buckets.iter().map(|(_, count)| count).sum();
    metric.encode_histogram::<NoLabelSet>(sum, count, buckets, None)
}

fn some(metric: &mut MetricEncoder<'_>, value: Option<u64>) -> fmt::Result {
    value.map_or(Ok(()), |value| metric.encode_gauge(&value))
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (name, kind, help) in NAMES {
            self.encode_one(name, &mut encoder.encode_descriptor(name, help, None, *kind)?)?;
        }
        for Sample { name, help, value } in &self.samples {
            match value {
                SampleValue::Counter(count) => {
                    counter(&mut encoder.encode_descriptor(name, help, None, MetricType::Counter)?, *count)?;
                }
                SampleValue::Gauge(now) => {
                    encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(now)?;
                }
                SampleValue::Histogram { buckets, sum } => {
                    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
                    histogram(&mut metric, buckets, *sum)?;
                }
            }
        }
        Ok(())
    }
}

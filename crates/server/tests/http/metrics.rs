//! `/metrics`: its format, its counts, and that many queues neither lengthen the page nor delay others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dwell_model::{Limits, QueueName};
use dwell_server::{Sample, SampleValue};
use dwell_store::{Put, Store};
use dwell_time::{Clock as _, SystemClock};
use serde_json::json;

use crate::support::{Connection, Running, start, start_showing, start_with, until};

/// A page, by series: name and labels in their text form.
type Page = BTreeMap<String, f64>;

async fn page(server: &Running) -> Page {
    let answer = server.get("/metrics").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(answer.header("content-type"), Some(content_type));
    parse(answer.text())
}

/// Parses a page by the rules of OpenMetrics 1.0, as far as they concern counters, gauges, infos and histograms.
fn parse(text: &str) -> Page {
    let mut page = Page::new();
    let mut family = (String::new(), String::new());
    let mut families = BTreeSet::new();
    let body = text.strip_suffix("# EOF\n").expect("it ends with its end, and nothing follows");
    for line in body.lines() {
        if let Some(meta) = line.strip_prefix("# ") {
            let (word, rest) = meta.split_once(' ').unwrap();
            let (name, value) = rest.split_once(' ').unwrap();
            match word {
                "HELP" => assert!(families.insert(name.to_owned()), "{name} comes in one block"),
                "TYPE" => family = (name.to_owned(), value.to_owned()),
                _ => panic!("{line}"),
            }
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}').unwrap()),
            None => (series, ""),
        };
        check_labels(labels);
        let suffix = name.strip_prefix(&family.0).unwrap_or_else(|| panic!("{line} is not of {family:?}"));
        let allowed: &[&str] = match family.1.as_str() {
            "counter" => &["_total"],
            "gauge" => &[""],
            "info" => &["_info"],
            "histogram" => &["_bucket", "_sum", "_count"],
            other => panic!("type {other}"),
        };
        assert!(allowed.contains(&suffix), "{line} in a {}", family.1);
        assert!(value >= 0.0, "{line}");
        assert!(page.insert(series.to_owned(), value).is_none(), "{series} is there twice");
    }
    check_histograms(&page);
    page
}

/// `name="value",…` with no quote, backslash or newline in a value that is not escaped.
fn check_labels(labels: &str) {
    let mut rest = labels;
    while !rest.is_empty() {
        let (name, value) = rest.split_once("=\"").unwrap_or_else(|| panic!("{labels}"));
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{labels}");
        let mut escaped = false;
        let end = value.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        rest = &value[end.unwrap_or_else(|| panic!("{labels}")) + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
}

/// Buckets rise, and the last is the count.
fn check_histograms(page: &Page) {
    let mut all: BTreeMap<(String, String), Vec<(f64, f64)>> = BTreeMap::new();
    for (series, count) in page.iter() {
        let Some((name, labels)) = series.split_once("_bucket{") else { continue };
        let (before, bound) = labels.split_once("le=\"").unwrap();
        let (bound, after) = bound.split_once('"').unwrap();
        let rest = format!("{before}{after}").replace('}', "");
        let labels = rest.trim_matches(',').to_owned();
        let bound = bound.replace("+Inf", "inf").parse().unwrap();
        all.entry((name.to_owned(), labels)).or_default().push((bound, *count));
    }
    assert!(!all.is_empty());
    for ((name, labels), mut buckets) in all {
        let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let series = format!("{name}_count{labels}");
        let count = page.get(&series).unwrap_or_else(|| panic!("{series} is missing"));
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{series}: {buckets:?}");
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, *count)), "{series}");
    }
}

#[tokio::test]
async fn counts_what_happens_to_a_message() {
    let server = start().await;
    server.put("", b"one").await;
    server.put("?delay=1h", b"two").await;
    server.clock.advance(40);
    let taken = server.take("").await;
    server.post(&format!("/v1/receipts/{}/retry", taken["receipt"].as_str().unwrap())).await;
    server.post(&format!("/v1/receipts/{}/ack", taken["receipt"].as_str().unwrap())).await;
    server.get("/v1/queues/nobody").await;
    server.post("/v1/queues/q/take?mx=1").await;
    let items = json!([{"body": "three"}, {"bdy": "four"}]);
    server.post_json("/v1/queues/q/messages:batch", &items).await;

    let page = page(&server).await;
    for (series, value) in [
        ("dwell_up", 1.0),
        ("dwell_queues", 1.0),
        ("dwell_messages{queue=\"q\",state=\"scheduled\"}", 2.0),
        ("dwell_messages{queue=\"q\",state=\"ready\"}", 1.0),
        ("dwell_messages{queue=\"~other\",state=\"ready\"}", 0.0),
        ("dwell_puts_total{queue=\"q\"}", 3.0),
        ("dwell_takes_total{queue=\"q\"}", 1.0),
        ("dwell_retries_total{queue=\"q\"}", 1.0),
        ("dwell_acks_total{queue=\"q\"}", 0.0),
        ("dwell_lateness_seconds_count{queue=\"q\"}", 1.0),
        ("dwell_lateness_seconds_sum{queue=\"q\"}", 0.04),
        ("dwell_lateness_seconds_bucket{le=\"0.025\",queue=\"q\"}", 0.0),
        ("dwell_lateness_seconds_bucket{le=\"0.05\",queue=\"q\"}", 1.0),
        ("dwell_refusals_total{code=\"lease_lost\"}", 1.0),
        ("dwell_refusals_total{code=\"unknown_queue\"}", 1.0),
        ("dwell_refusals_total{code=\"unknown_parameter\"}", 1.0),
        ("dwell_refusals_total{code=\"unknown_field\"}", 1.0),
        ("dwell_http_answers_total{status=\"201\"}", 2.0),
        ("dwell_http_answers_total{status=\"410\"}", 1.0),
        ("dwell_connections{protocol=\"http\"}", 1.0),
    ] {
        assert_eq!(page.get(series), Some(&value), "{series} in {page:#?}");
    }
    assert!(page["process_resident_memory_bytes"] > 1e6);
    server.stop().await;
}

#[tokio::test]
async fn what_the_engine_counts_is_shown() {
    let samples = || {
        vec![
            Sample { name: "dwell_engine_syncs", help: "Syncs", value: SampleValue::Counter(7) },
            Sample { name: "dwell_engine_journal_bytes", help: "Bytes", value: SampleValue::Gauge(9) },
            Sample {
                name: "dwell_engine_sync_seconds",
                help: "Lengths of syncs",
                value: SampleValue::Histogram { buckets: vec![(0.001, 3), (f64::INFINITY, 1)], sum: 0.5 },
            },
        ]
    };
    let server = start_showing(Arc::new(samples)).await;
    let page = page(&server).await;
    assert_eq!(page["dwell_engine_syncs_total"], 7.0);
    assert_eq!(page["dwell_engine_journal_bytes"], 9.0);
    assert_eq!(page["dwell_engine_sync_seconds_bucket{le=\"+Inf\"}"], 4.0);
    server.stop().await;
}

/// With far more queues than have series of their own: the page stays under a mebibyte, and a concurrent put takes less
/// than a fixed time, which is far less than an uninterrupted walk over all queues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_queues() {
    const QUEUES: usize = 100_000;
    /// A page of the walk has 256 queues. This is two hundred times the duration of a page, for a busy machine.
    const LONGEST_PUT_MS: u64 = 500;
    let server = start().await;
    for from in (0..QUEUES).step_by(10_000) {
        let name = |at: usize| QueueName::new(&format!("queue-{at:0190}")).unwrap();
        let puts = (from..from + 10_000).map(|at| Put::new(name(at), "x")).collect();
        assert!(server.store.put(puts).await.iter().all(Result::is_ok));
    }
    // Counted as well, so that every family has more queues than series.
    for from in 0..20 {
        let items: Vec<_> =
            (0..50).map(|at| json!({"queue": format!("seen-{}", from * 50 + at), "body": "x"})).collect();
        assert_eq!(server.post_json("/v1/messages:batch", &json!(items)).await.status, 200);
    }
    let address = server.address;
    let scrape = tokio::spawn(async move {
        let mut connection = Connection::open(address).await;
        connection.request("GET", "/metrics", &[], b"").await;
        connection.answer().await
    });
    let clock = SystemClock::new();
    let (mut slowest_ms, mut puts) = (0, 0);
    let mut connection = Connection::open(address).await;
    while !scrape.is_finished() || puts == 0 {
        let began_ms = clock.now().mono_ms;
        connection.request("POST", "/v1/queues/busy/messages", &[], b"x").await;
        assert_eq!(connection.answer().await.status, 201);
        slowest_ms = slowest_ms.max(clock.now().mono_ms - began_ms);
        puts += 1;
    }
    let answer = scrape.await.unwrap();
    assert!(slowest_ms < LONGEST_PUT_MS, "a put took {slowest_ms} ms, of {puts} during one page");
    assert!(answer.body.len() < 1024 * 1024, "{} bytes", answer.body.len());
    let page = parse(answer.text());
    assert_eq!(page["dwell_up"], 1.0);
    assert!(page["dwell_queues"] >= (QUEUES + 1_000) as f64);
    let sum: f64 = page.iter().filter(|(s, _)| s.starts_with("dwell_messages")).map(|(_, n)| n).sum();
    assert!(sum >= (QUEUES + 1_000) as f64, "all messages are in some series: {sum}");
    assert!(page["dwell_puts_total{queue=\"~other\"}"] >= 900.0);
    for family in ["dwell_puts_total", "dwell_lateness_seconds_count", "dwell_messages{"] {
        let series = page.keys().filter(|series| series.starts_with(family)).count();
        assert!(series <= 4 * 201, "{family} has {series} series");
    }
    server.stop().await;
}

#[tokio::test]
async fn connections_are_counted_while_they_are_open() {
    let server = start().await;
    let open = |page: &Page| page["dwell_connections{protocol=\"http\"}"];
    let idle: Vec<Connection> = {
        let mut idle = Vec::new();
        for _ in 0..5 {
            idle.push(Connection::open(server.address).await);
        }
        idle
    };
    until("they are counted", || async { open(&page(&server).await) == 6.0 }).await;
    drop(idle);
    until("they are gone", || async { open(&page(&server).await) == 1.0 }).await;
    assert!(page(&server).await["dwell_connections_opened_total{protocol=\"http\"}"] >= 6.0);
    server.stop().await;
}

#[tokio::test]
async fn every_metric_is_in_the_documentation_and_nothing_else_is() {
    let server = start().await;
    server.put("", b"x").await;
    server.get("/nowhere").await;
    let text = server.get("/metrics").await;
    let shown: BTreeSet<&str> = text
        .text()
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .filter_map(|rest| rest.split(' ').next())
        .collect();
    let document = include_str!("../../../../docs/metrics.md");
    let documented: BTreeSet<&str> = document
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter_map(|rest| rest.split('`').next())
        .filter(|name| !name.starts_with("dwell_engine_"))
        .collect();
    assert_eq!(shown, documented);
    server.stop().await;
}

#[tokio::test]
async fn what_never_becomes_a_request_is_counted_as_refused() {
    let server = start().await;
    let long = format!("GET /health/live HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(1_000));
    for (bytes, status) in [("no HTTP at all\r\n\r\n", 400), (long.as_str(), 431)] {
        let mut connection = Connection::open(server.address).await;
        let _ = connection.try_write(bytes.as_bytes()).await;
        assert_eq!(connection.answer_head().await.status, status);
    }
    until("both are counted", || async {
        let page = page(&server).await;
        let refused = |code: &str| page.get(&format!("dwell_refusals_total{{code=\"{code}\"}}")).copied();
        refused("malformed_head") == Some(1.0) && refused("head_too_large") == Some(1.0)
    })
    .await;
    server.stop().await;
}

#[tokio::test]
async fn connections_past_their_limit_are_counted_as_refused() {
    let server = start_with(Limits::default(), |config| config.http.max_connections = 1).await;
    let mut only = Connection::open(server.address).await;
    only.request("GET", "/health/live", &[], b"").await;
    assert_eq!(only.answer().await.status, 200);
    for _ in 0..2 {
        let mut refused = Connection::open(server.address).await;
        refused.request("GET", "/health/live", &[], b"").await;
        assert_eq!(refused.answer().await.status, 503);
    }
    only.request("GET", "/metrics", &[], b"").await;
    let page = parse(only.answer().await.text());
    assert_eq!(page["dwell_refusals_total{code=\"too_many_connections\"}"], 2.0);
    server.stop().await;
}

//! `stats`: the server's figures; counts of jobs from the store, counts of commands since the server began.

use std::fmt::Write as _;

use crate::beanstalkd::host;
use crate::beanstalkd::reply::{Replies, Word};
use crate::beanstalkd::session::Session;

/// The version of beanstalkd whose protocol this is. Clients parse a number from it.
const SPOKEN: &str = "1.13";

pub(super) async fn run(session: &Session, replies: &mut Replies) {
    let shared = &session.shared;
    let census = match shared.census().await {
        Ok(census) => census,
        Err(error) => return replies.word(Word::from(&error)),
    };
    let (jobs, counters) = (&census.counts, &shared.counters);
    let mut text = String::with_capacity(1_200);
    let mut field = |name: &str, value: &dyn std::fmt::Display| {
        writeln!(text, "{name}: {value}").expect("a buffer in memory takes all");
    };
    field("current-jobs-urgent", &jobs.ready_urgent);
    field("current-jobs-ready", &jobs.ready);
    field("current-jobs-reserved", &jobs.leased);
    field("current-jobs-delayed", &jobs.scheduled);
    field("current-jobs-buried", &jobs.dead);
    for (name, count) in counters.commands() {
        field(name, &count);
    }
    field("job-timeouts", &counters.timeouts.get());
    field("total-jobs", &counters.jobs.get());
    field("max-job-size", &shared.store.limits().body_len);
    field("current-tubes", &census.tubes.len());
    field("current-connections", &counters.connections.get());
    field("current-producers", &counters.producers.get());
    field("current-workers", &counters.workers.get());
    field("current-waiting", &counters.waiting.get());
    field("total-connections", &counters.connections_ever.get());
    field("pid", &std::process::id());
    field("version", &format_args!("\"{SPOKEN}\""));
    let (user, system) = host::cpu_times();
    field("rusage-utime", &user);
    field("rusage-stime", &system);
    field("uptime", &(shared.up_ms() / 1_000));
    // beanstalkd's log; the state of dwell's journal is not shown here.
    for name in ["oldest-index", "current-index", "records-migrated", "records-written", "max-size"] {
        field(&format!("binlog-{name}"), &0);
    }
    field("draining", &shared.is_draining());
    field("id", &format_args!("{:016x}", shared.instance));
    field("hostname", &format_args!("\"{}\"", host::name()));
    field("os", &format_args!("\"{}\"", host::system_version()));
    field("platform", &format_args!("\"{}\"", std::env::consts::ARCH));
    field("dwell-version", &format_args!("\"{}\"", env!("CARGO_PKG_VERSION")));
    replies.yaml(&format!("---\n{text}"));
}

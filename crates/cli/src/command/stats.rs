//! `dwell stats`

use std::borrow::Cow;
use std::io::{self, Write};

use clap::Args;
use dwell_client::{QueueStats, StateCounts};
use dwell_model::QueueName;
use serde::Serialize;

use super::queues::{Listed, each_queue};
use super::{Context, Outcome};
use crate::exit::Exit;
use crate::human::{STRONG, WAITING, instant, pairs, pause};

/// Show how many messages a queue, or the whole server, has in each state
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell stats                 the server: version, queues, messages in all
  dwell stats orders")]
pub(crate) struct Stats {
    /// The queue; without it the server
    queue: Option<QueueName>,
}

#[derive(Serialize)]
struct ServerStats {
    version: Cow<'static, str>,
    queues: u64,
    counts: StateCounts,
    waiting: u64,
    /// How many queues cannot be read now. The other figures leave them out.
    #[serde(skip_serializing_if = "is_none")]
    unread: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_none(count: &u64) -> bool {
    *count == 0
}

impl Stats {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        if let Some(name) = self.queue {
            let queue = client.stats(&name)?;
            context.output.show(&queue, |out| detail(out, &queue))?;
            return Ok(Exit::Ok);
        }
        let none = StateCounts { scheduled: 0, ready: 0, ready_urgent: 0, leased: 0, dead: 0 };
        let version = client.info()?.version;
        let mut stats = ServerStats { version, queues: 0, counts: none, waiting: 0, unread: 0 };
        each_queue(&client, |queue| {
            let Listed::Read(queue) = queue else {
                stats.unread += 1;
                return Ok(());
            };
            stats.queues += 1;
            stats.waiting += queue.waiting;
            stats.counts.scheduled += queue.counts.scheduled;
            stats.counts.ready += queue.counts.ready;
            stats.counts.ready_urgent += queue.counts.ready_urgent;
            stats.counts.leased += queue.counts.leased;
            stats.counts.dead += queue.counts.dead;
            Ok(())
        })?;
        context.output.show(&stats, |out| {
            writeln!(out, "{STRONG}{}{STRONG:#}", client.server())?;
            let mut rows = vec![("version", stats.version.to_string()), ("queues", stats.queues.to_string())];
            if stats.unread > 0 {
                rows.push(("queues that can not be read", stats.unread.to_string()));
            }
            rows.extend(counts(&stats.counts, stats.waiting));
            pairs(out, &rows)
        })?;
        Ok(Exit::Ok)
    }
}

fn counts(counts: &StateCounts, waiting: u64) -> [(&'static str, String); 5] {
    [
        ("scheduled", counts.scheduled.to_string()),
        ("ready", format!("{} ({} with a priority below 1024)", counts.ready, counts.ready_urgent)),
        ("leased", counts.leased.to_string()),
        ("dead", counts.dead.to_string()),
        ("waiting takes", waiting.to_string()),
    ]
}

/// A queue's counts.
pub(super) fn detail(out: &mut dyn Write, queue: &QueueStats) -> io::Result<()> {
    writeln!(out, "{STRONG}{}{STRONG:#}  {WAITING}{}{WAITING:#}", queue.queue, pause(queue))?;
    let mut rows = Vec::from(counts(&queue.counts, queue.waiting));
    rows.extend(queue.next_due.map(|at| ("next due", instant(at))));
    pairs(out, &rows)
}

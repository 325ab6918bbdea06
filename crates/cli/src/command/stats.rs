//! `dwell stats`

use std::borrow::Cow;
use std::io::{self, Write};

use clap::Args;
use dwell_model::QueueName;
use dwell_wire::{QueueStats, StateCounts};
use pollster::block_on;
use serde::Serialize;

use super::queues::each_queue;
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
            return context.show_queue(client.stats(name)?);
        }
        let version = block_on(client.store().info())?.version.clone();
        let mut counts_of_all = dwell_store::StateCounts::default();
        let (mut queues, mut waiting, mut unread) = (0, 0, 0);
        each_queue(&client, |queue| {
            if queue.unread.is_some() {
                unread += 1;
                return Ok(());
            }
            queues += 1;
            waiting += queue.waiting;
            counts_of_all = counts_of_all + queue.counts;
            Ok(())
        })?;
        let stats = ServerStats { version, queues, counts: counts_of_all.into(), waiting, unread };
        context.output.show(&stats, |out| {
            writeln!(out, "{STRONG}{}{STRONG:#}", client.store().server())?;
            let mut rows = vec![("version", stats.version.to_string()), ("queues", stats.queues.to_string())];
            if stats.unread > 0 {
                rows.push(("queues that cannot be read", stats.unread.to_string()));
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
    writeln!(out, "{STRONG}{}{STRONG:#}  {WAITING}{}{WAITING:#}", queue.queue, pause(&queue.settings.pause))?;
    let mut rows = Vec::from(counts(&queue.counts, queue.waiting));
    rows.extend(queue.next_due.map(|at| ("next due", instant(at))));
    pairs(out, &rows)
}

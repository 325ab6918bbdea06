//! `dwell queues`

use clap::Args;
use dwell_model::{QueueName, Timestamp};
use dwell_store::QueueStats;
use dwell_wire::{StateCounts, UnreadQueue};

use super::{Context, Outcome};
use crate::access::Server;
use crate::exit::{Exit, Failure};
use crate::human::{BAD, FAINT, GOOD, NAME, PLAIN, STRONG, WAITING, instant, pause};
use crate::table::{self, Cell};

/// The number of queues per page.
const PAGE: usize = 1_000;

/// List all queues with their counts
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell queues
  dwell queues --json | jq -r 'select(.counts.dead > 0) | .queue'")]
pub(crate) struct Queues {}

impl Queues {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        let mut rows = Vec::new();
        let is_human = context.output.is_human();
        each_queue(&client, |queue| match &queue.unread {
            None if is_human => {
                let queue = dwell_wire::QueueStats::from(queue);
                let (next_due, paused) = (queue.next_due, &queue.settings.pause);
                rows.push(row(&queue.queue, &queue.counts, queue.waiting, next_due, paused));
                Ok(())
            }
            None => context.output.show(&dwell_wire::QueueStats::from(queue), |_| Ok(())),
            Some(error) if is_human => {
                context.output.remark(&format!("{} is not shown: {error}", queue.name));
                Ok(())
            }
            Some(error) => {
                let unread = UnreadQueue { error: error.into(), queue: queue.name };
                context.output.show(&unread, |_| Ok(()))
            }
        })?;
        if !rows.is_empty() {
            context.output.print(|out| table::write(out, &HEADING, &rows))?;
        }
        Ok(Exit::Ok)
    }
}

/// Visits all queues by name, a page at a time.
pub(super) fn each_queue(
    client: &Server,
    mut visit: impl FnMut(QueueStats) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut after = None;
    loop {
        let page = client.queues(after, PAGE)?;
        // A page that is not full is the last one.
        after = page.last().filter(|_| page.len() == PAGE).map(|last| last.name.clone());
        page.into_iter().try_for_each(&mut visit)?;
        if after.is_none() {
            return Ok(());
        }
    }
}

/// The columns of [`row`].
pub(super) const HEADING: [&str; 8] =
    ["queue", "scheduled", "ready", "leased", "dead", "waiting", "next due", ""];

/// A queue as a row of a table.
pub(super) fn row(
    queue: &QueueName,
    counts: &StateCounts,
    waiting: u64,
    next_due: Option<Timestamp>,
    paused: &str,
) -> Vec<Cell> {
    vec![
        Cell::text(queue, STRONG),
        Cell::count(counts.scheduled, NAME),
        Cell::count(counts.ready, GOOD),
        Cell::count(counts.leased, WAITING),
        Cell::count(counts.dead, BAD),
        Cell::count(waiting, PLAIN),
        Cell::text(next_due.map(instant).unwrap_or_default(), PLAIN),
        Cell::text(pause(paused), FAINT),
    ]
}

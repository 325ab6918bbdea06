//! `dwell queues`

use clap::Args;
use dwell_client::{Client, QueueStats, UnreadQueue};

use super::{Context, Outcome};
use crate::exit::{Exit, Failure};
use crate::human::{BAD, FAINT, GOOD, NAME, PLAIN, STRONG, WAITING, instant, pause};
use crate::table::{self, Cell};

/// So many queues are asked for at a time.
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
        each_queue(&client, |queue| match queue {
            Listed::Read(queue) if is_human => {
                rows.push(row(&queue));
                Ok(())
            }
            Listed::Read(queue) => context.output.show(&queue, |_| Ok(())),
            Listed::Unread(queue) if is_human => {
                let UnreadQueue { queue, error } = queue;
                context.output.remark(&format!("{queue} is not shown: {}", error.detail));
                Ok(())
            }
            Listed::Unread(queue) => context.output.show(&queue, |_| Ok(())),
        })?;
        if !rows.is_empty() {
            let heading = ["queue", "scheduled", "ready", "leased", "dead", "waiting", "next due", ""];
            context.output.print(|out| table::write(out, &heading, &rows))?;
        }
        Ok(Exit::Ok)
    }
}

/// A queue of a list.
pub(super) enum Listed {
    Read(QueueStats),
    /// The queue exists and cannot be read now.
    Unread(UnreadQueue),
}

/// Visits all queues, a page at a time: those that can be read by name, then the others.
pub(super) fn each_queue(
    client: &Client,
    mut visit: impl FnMut(Listed) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut cursor = None;
    loop {
        let page = client.queues(cursor.as_ref(), PAGE)?;
        let (queues, unread) = (page.queues.into_iter(), page.unread.into_iter());
        queues.map(Listed::Read).chain(unread.map(Listed::Unread)).try_for_each(&mut visit)?;
        cursor = page.next;
        if cursor.is_none() {
            return Ok(());
        }
    }
}

fn row(queue: &QueueStats) -> Vec<Cell> {
    let counts = &queue.counts;
    vec![
        Cell::text(&queue.queue, STRONG),
        Cell::count(counts.scheduled, NAME),
        Cell::count(counts.ready, GOOD),
        Cell::count(counts.leased, WAITING),
        Cell::count(counts.dead, BAD),
        Cell::count(queue.waiting, PLAIN),
        Cell::text(queue.next_due.map(instant).unwrap_or_default(), PLAIN),
        Cell::text(pause(queue), FAINT),
    ]
}

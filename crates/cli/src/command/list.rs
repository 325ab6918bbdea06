//! `dwell list`

use std::fmt::Display;

use anstyle::Style;
use clap::{Args, ValueEnum};
use dwell_model::{MessageId, QueueName, StateKind, Timestamp};
use dwell_wire::Message;
use pollster::block_on;

use super::{Context, Outcome};
use crate::exit::Exit;
use crate::human::{FAINT, PLAIN, STRONG, excerpt, instant, state_style};
use crate::table::{self, Cell};

/// The number of messages per page.
const PAGE: usize = 500;

/// List the messages of a queue that are in one state, by due instant
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell list orders                            scheduled ones, the next 100
  dwell list orders --state dead --all --json | jq -r .last_error")]
pub(crate) struct List {
    /// The queue
    queue: QueueName,
    /// The state
    #[arg(long, value_enum, default_value_t = ListState::Scheduled)]
    state: ListState,
    /// The maximum number of messages
    #[arg(long, default_value_t = 100)]
    max: usize,
    /// List all of them
    #[arg(long, conflicts_with = "max")]
    all: bool,
    /// Leave the bodies out
    #[arg(long)]
    no_body: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ListState {
    Scheduled,
    Ready,
    Leased,
    Dead,
}

impl From<ListState> for StateKind {
    fn from(state: ListState) -> StateKind {
        match state {
            ListState::Scheduled => StateKind::Scheduled,
            ListState::Ready => StateKind::Ready,
            ListState::Leased => StateKind::Leased,
            ListState::Dead => StateKind::Dead,
        }
    }
}

fn remark_unread(context: &Context, id: MessageId, why: impl Display) {
    context.output.remark(&format!("{id} is not shown: {why}"));
}

impl List {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        let mut left = if self.all { usize::MAX } else { self.max };
        let mut cursor = None;
        let mut shown = 0;
        while left > 0 {
            let (state, max) = (self.state.into(), left.min(PAGE));
            let (count, next) = if self.no_body {
                let page = client.store().list_without_bodies(&self.queue, state, cursor, max);
                let page = block_on(page)?;
                self.show(context, &page.messages)?;
                for unread in &page.unread {
                    remark_unread(context, unread.id, &unread.error.detail);
                }
                (page.messages.len(), page.next)
            } else {
                let page = client.list(self.queue.clone(), state, cursor, max)?;
                let messages: Vec<_> =
                    page.messages.iter().map(|message| Message::of(message, true)).collect();
                self.show(context, &messages)?;
                for (id, error) in &page.unread {
                    remark_unread(context, *id, error);
                }
                (messages.len(), page.next)
            };
            left -= count.min(left);
            shown += count;
            cursor = next;
            if cursor.is_none() {
                break;
            }
        }
        if cursor.is_some() {
            context.output.remark("there are more: --max or --all");
        }
        if shown == 0 {
            let state = StateKind::from(self.state);
            context.output.remark(&format!("no {state} messages; --state shows others"));
        }
        Ok(if shown == 0 { Exit::Nothing } else { Exit::Ok })
    }

    fn show(&self, context: &Context, messages: &[Message<'_>]) -> Result<(), crate::exit::Failure> {
        if !context.output.is_human() {
            return messages.iter().try_for_each(|message| context.output.show(message, |_| Ok(())));
        }
        if messages.is_empty() {
            return Ok(());
        }
        let style = state_style(self.state.into());
        if matches!(self.state, ListState::Leased) {
            let rows: Vec<Vec<Cell>> = messages.iter().map(|message| leased(message, style)).collect();
            let heading = ["id", "until", "granted", "takes", "holder", "key"];
            return context.output.print(|out| table::write(out, &heading, &rows));
        }
        let rows: Vec<Vec<Cell>> = messages
            .iter()
            .map(|message| {
                let note = message.dead_reason.map_or(String::new(), |reason| reason.as_str().to_owned());
                vec![
                    Cell::text(message.id, style),
                    Cell::text(instant(message.due), PLAIN),
                    Cell::count(message.attempt.into(), PLAIN),
                    Cell::text(message.key.as_ref().map_or("", |key| key.as_str()), STRONG),
                    Cell::text(note, FAINT),
                    Cell::text(if self.no_body { String::new() } else { excerpt(message, 40) }, PLAIN),
                ]
            })
            .collect();
        let heading = ["id", "due", "attempt", "key", "", "body"];
        context.output.print(|out| table::write(out, &heading, &rows))
    }
}

/// The lease for an operator who may end it: its deadline, its beginning, the number of takes, the holder.
fn leased(message: &Message<'_>, style: Style) -> Vec<Cell> {
    let at =
        |at: Option<Timestamp>| Cell::text(at.map_or(String::new(), |at| instant(at).to_string()), PLAIN);
    vec![
        Cell::text(message.id, style),
        at(message.lease_until),
        at(message.lease_granted),
        Cell::count(message.counts.takes.into(), PLAIN),
        Cell::text(message.holder.as_ref().map_or("", |holder| holder.as_str()), STRONG),
        Cell::text(message.key.as_ref().map_or("", |key| key.as_str()), FAINT),
    ]
}

//! `stats-job <id>`: one job, as the store has it.

use std::fmt::Write as _;

use dwell_model::{Message, State, Timestamp};

use super::{Command, peek};
use crate::admission::NoRoom;
use crate::beanstalkd::arguments::Arguments;
use crate::beanstalkd::frame::Malformed;
use crate::beanstalkd::reply::{Replies, Word};
use crate::beanstalkd::session::Session;

pub(super) fn parse(rest: Arguments<'_>) -> Result<Command, Malformed> {
    rest.only_u64().map(Command::StatsJob)
}

pub(super) async fn run(session: &Session, number: u64, replies: &mut Replies) {
    match peek::without_body(session, number).await {
        Ok(Ok((_, message))) => {
            let settings = session.shared.store.stats(message.queue.clone()).await;
            let queue_lease_ms = settings.map_or(0, |stats| stats.settings.lease_ms);
            replies.yaml(&yaml(&message, queue_lease_ms, session.shared.clock.now().wall));
        }
        Ok(Err(error)) => replies.word(Word::from(&error)),
        Err(NoRoom) => session.shared.no_room(replies),
    }
}

fn yaml(message: &Message, queue_lease_ms: u64, now: Timestamp) -> String {
    let standing = &message.standing;
    let counts = &standing.counts;
    let (state, left_ms) = match &standing.state {
        State::Scheduled => ("delayed", standing.due.ms_since(now)),
        State::Ready => ("ready", 0),
        State::Leased(lease) => ("reserved", lease.deadline.ms_since(now)),
        State::Dead(_) => ("buried", 0),
    };
    let delay_ms = message.id.due_at_put().ms_since(message.created);
    let lease_ms = message.lease_ms.unwrap_or(queue_lease_ms);
    let mut text = String::with_capacity(256);
    let mut field = |name: &str, value: u64| {
        writeln!(text, "{name}: {value}").expect("a buffer in memory takes all");
    };
    field("pri", u64::from(standing.priority));
    field("age", now.ms_since(message.created) / 1_000);
    field("delay", delay_ms / 1_000);
    field("ttr", lease_ms.div_ceil(1_000));
    field("time-left", left_ms / 1_000);
    // The file of beanstalkd's log that holds the job; dwell does not show its files.
    field("file", 0);
    field("reserves", u64::from(counts.takes));
    field("timeouts", u64::from(counts.lapses));
    field("releases", u64::from(counts.releases));
    field("buries", u64::from(counts.buries));
    field("kicks", u64::from(counts.revives));
    format!("---\nid: {}\ntube: \"{}\"\nstate: {state}\n{text}", message.number, message.queue)
}

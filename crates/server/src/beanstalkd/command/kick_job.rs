//! `kick-job <id>`: revives a buried job, or makes a delayed one due now.

use dwell_model::{Message, QueueName, StateKind};
use dwell_store::{Error, Rescheduled, Selection, Target, When};

use super::{Command, peek};
use crate::admission::NoRoom;
use crate::beanstalkd::arguments::Arguments;
use crate::beanstalkd::frame::Malformed;
use crate::beanstalkd::reply::{Replies, Word};
use crate::beanstalkd::session::Session;

pub(super) fn parse(rest: Arguments<'_>) -> Result<Command, Malformed> {
    rest.only_u64().map(Command::KickJob)
}

pub(super) async fn run(session: &Session, number: u64, replies: &mut Replies) {
    match peek::without_body(session, number).await {
        Ok(found) => replies.outcome(kick(session, found).await),
        Err(NoRoom) => session.shared.no_room(replies),
    }
}

async fn kick(session: &Session, found: Result<(QueueName, Message), Error>) -> Result<Word, Error> {
    let store = &session.shared.store;
    let (queue, message) = found?;
    match message.standing.state.kind() {
        StateKind::Dead => {
            let swept = store.revive(queue, Selection::Ids(vec![message.id]), When::Now).await?;
            match swept.refused.into_iter().next() {
                None => Ok(Word::Kicked),
                Some((_, error)) => Err(error),
            }
        }
        StateKind::Scheduled => {
            let moves = vec![(Target::Id(message.id), When::Now)];
            let answers = store.reschedule(queue, moves).await;
            match answers.into_iter().next().expect("an answer for each move")? {
                Rescheduled::Moved(..) => Ok(Word::Kicked),
                _ => Ok(Word::NotFound),
            }
        }
        StateKind::Ready | StateKind::Leased => Ok(Word::NotFound),
    }
}

//! `peek <id>`: a job in any state, in any tube.

use bytes::Bytes;
use dwell_model::{Message, QueueName};
use dwell_store::{Error, Target};

use super::Command;
use crate::admission::NoRoom;
use crate::beanstalkd::arguments::Arguments;
use crate::beanstalkd::frame::Malformed;
use crate::beanstalkd::reply::{Replies, Word};
use crate::beanstalkd::session::Session;

pub(super) fn parse(rest: Arguments<'_>) -> Result<Command, Malformed> {
    rest.only_u64().map(Command::Peek)
}

pub(super) async fn run(session: &Session, number: u64, replies: &mut Replies) {
    found(session, async { get(session, number).await.map(|(_, message)| Some(message)) }, replies).await;
}

/// The job and its tube.
async fn get(session: &Session, number: u64) -> Result<(QueueName, Message), Error> {
    let located = session.locate_one(number).await?;
    let Some((queue, id)) = located else {
        return Err(Error::MessageNotFound { queue: session.used().clone() });
    };
    let answers = session.shared.store.get(queue.clone(), vec![Target::Id(id)], false).await;
    let message = answers.into_iter().next().expect("an answer for each target")?;
    Ok((queue, message))
}

/// The job without its body, and its tube. The body is read, and counts while it is held.
///
/// # Errors
/// [`NoRoom`] for the body.
pub(super) async fn without_body(
    session: &Session,
    number: u64,
) -> Result<Result<(QueueName, Message), Error>, NoRoom> {
    let bytes = |found: &Result<(QueueName, Message), Error>| {
        found.as_ref().map_or(0, |(_, message)| message.body.len())
    };
    let (found, _held) = session.shared.memory.bring(get(session, number), bytes).await?;
    Ok(found.map(|(queue, message)| (queue, message.with_body(Bytes::new()))))
}

/// The reply of all peeks, for what `look` finds.
pub(super) async fn found(
    session: &Session,
    look: impl Future<Output = Result<Option<Message>, Error>>,
    replies: &mut Replies,
) {
    match session.shared.bring(look, replies).await {
        Some(Ok(Some(message))) => replies.found(&message),
        Some(Ok(None)) => replies.word(Word::NotFound),
        Some(Err(error)) => replies.word(Word::from(&error)),
        None => {}
    }
}

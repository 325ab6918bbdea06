//! `reserve-job <id>`: this very job, be it ready, delayed or buried, also from a paused or unwatched tube.

use super::Command;
use crate::beanstalkd::arguments::Arguments;
use crate::beanstalkd::frame::Malformed;
use crate::beanstalkd::reply::{Replies, Word};
use crate::beanstalkd::session::Session;

pub(super) fn parse(rest: Arguments<'_>) -> Result<Command, Malformed> {
    rest.only_u64().map(Command::ReserveJob)
}

pub(super) async fn run(session: &mut Session, number: u64, replies: &mut Replies) {
    let taken = match session.locate_one(number).await {
        Ok(Some((queue, id))) => session.shared.store.take_id(queue, id, None, true).await,
        Ok(None) => return replies.word(Word::NotFound),
        Err(error) => Err(error),
    };
    match taken {
        Ok(delivery) => {
            session.is_worker();
            session.reserved(&[delivery], replies);
        }
        Err(error) => replies.word(Word::from(&error)),
    }
}

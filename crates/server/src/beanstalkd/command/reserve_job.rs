//! `reserve-job <id>`: this very job, be it ready, delayed or buried, also from a paused or unwatched tube.

use dwell_store::{Delivery, Error};

use super::Command;
use crate::admission::NoRoom;
use crate::beanstalkd::arguments::Arguments;
use crate::beanstalkd::frame::Malformed;
use crate::beanstalkd::reply::{Replies, Word};
use crate::beanstalkd::session::Session;

pub(super) fn parse(rest: Arguments<'_>) -> Result<Command, Malformed> {
    rest.only_u64().map(Command::ReserveJob)
}

pub(super) async fn run(session: &mut Session, number: u64, replies: &mut Replies) {
    if session.may_reserve() == 0 {
        session.shared.metrics.refused("too_many_leased");
        return replies.word(Word::OutOfMemory);
    }
    let taken = match session.locate_one(number).await {
        Ok(Some((queue, id))) => {
            let take = session.shared.store.take_id(queue, id, None, true);
            let bytes =
                |taken: &Result<Delivery, Error>| taken.as_ref().map_or(0, |job| job.message.body.len());
            match session.shared.memory.bring(take, bytes).await {
                Ok((taken, held)) => taken.map(|taken| (taken, held)),
                Err(NoRoom) => return session.shared.no_room(replies),
            }
        }
        Ok(None) => return replies.word(Word::NotFound),
        Err(error) => Err(error),
    };
    match taken {
        Ok((delivery, held)) => {
            session.is_worker();
            session.reserved(&[delivery], replies);
            replies.hold(held);
        }
        Err(error) => replies.word(Word::from(&error)),
    }
}

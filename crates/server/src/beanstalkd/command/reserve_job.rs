//! `reserve-job <id>`: takes this job, whether it is ready, delayed or buried, also from a paused or unwatched tube.

use dwell_store::LeaseTerms;

use super::Command;
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
    // Reserving ends a delay and revives a buried job, so the job must not be refused after that.
    let body_limit = session.shared.store.limits().body_len;
    let Ok(mut held) = session.shared.memory.set_aside(body_limit).await else {
        return session.shared.no_room(replies);
    };
    let terms = LeaseTerms { session: true, ..LeaseTerms::default() };
    let taken = match session.locate_one(number).await {
        Ok(Some((queue, id))) => session.shared.store.take_id(queue, id, terms).await,
        Ok(None) => return replies.word(Word::NotFound),
        Err(error) => Err(error),
    };
    match taken {
        Ok(delivery) => {
            held.resize(delivery.message.body.len() as u64);
            session.is_worker();
            session.reserved(&[delivery], replies);
            replies.hold(held);
        }
        Err(error) => replies.word(Word::from(&error)),
    }
}

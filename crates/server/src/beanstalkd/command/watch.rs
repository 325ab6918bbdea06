//! `watch <tube>`: adds a tube to the watch list.

use dwell_model::QueueName;

use super::Command;
use crate::beanstalkd::arguments::Arguments;
use crate::beanstalkd::frame::Malformed;
use crate::beanstalkd::reply::{Replies, Word};
use crate::beanstalkd::session::Session;

pub(super) fn parse(rest: Arguments<'_>) -> Result<Command, Malformed> {
    rest.only_tube().map(Command::Watch)
}

pub(super) async fn run(session: &mut Session, tube: QueueName, replies: &mut Replies) {
    // A reserve that names it would be refused, and has no reply for that.
    if tube.is_reserved() {
        session.shared.metrics.refused("queue_reserved");
        return replies.word(Word::BadFormat);
    }
    session.shared.begin_anew(&tube).await;
    if !session.watch(tube) {
        return replies.word(Word::OutOfMemory);
    }
    session.shared.forget_gone_tubes().await;
    replies.line(format_args!("WATCHING {}", session.watched().len()));
}

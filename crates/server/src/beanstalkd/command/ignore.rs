//! `ignore <tube>`: removes a tube from the watch list; the last one stays.

use dwell_model::QueueName;

use super::Command;
use crate::beanstalkd::arguments::Arguments;
use crate::beanstalkd::frame::Malformed;
use crate::beanstalkd::reply::{Replies, Word};
use crate::beanstalkd::session::Session;

pub(super) fn parse(rest: Arguments<'_>) -> Result<Command, Malformed> {
    rest.only_tube().map(Command::Ignore)
}

pub(super) fn run(session: &mut Session, tube: &QueueName, replies: &mut Replies) {
    if session.ignore(tube) {
        replies.line(format_args!("WATCHING {}", session.watched().len()));
    } else {
        replies.word(Word::NotIgnored);
    }
}

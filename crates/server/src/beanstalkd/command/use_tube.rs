//! `use <tube>`: sets the tube of later puts, peeks and kicks.

use dwell_model::QueueName;

use super::Command;
use crate::beanstalkd::arguments::Arguments;
use crate::beanstalkd::frame::Malformed;
use crate::beanstalkd::reply::Replies;
use crate::beanstalkd::session::Session;

pub(super) fn parse(rest: Arguments<'_>) -> Result<Command, Malformed> {
    rest.only_tube().map(Command::Use)
}

pub(super) async fn run(session: &mut Session, tube: QueueName, replies: &mut Replies) {
    session.shared.begin_anew(&tube).await;
    session.use_tube(tube);
    session.shared.forget_gone_tubes().await;
    replies.line(format_args!("USING {}", session.used()));
}

//! `list-tube-used`: the tube in use.

use crate::beanstalkd::reply::Replies;
use crate::beanstalkd::session::Session;

pub(super) fn run(session: &Session, replies: &mut Replies) {
    replies.line(format_args!("USING {}", session.used()));
}

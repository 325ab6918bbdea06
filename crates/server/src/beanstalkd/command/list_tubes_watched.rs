//! `list-tubes-watched`: the tubes that reserves take from, in the order of their `watch`.

use crate::beanstalkd::reply::Replies;
use crate::beanstalkd::session::Session;

pub(super) fn run(session: &Session, replies: &mut Replies) {
    replies.names(session.watched().map(|tube| tube.as_str()));
}

//! `list-tubes`: all tubes with jobs or connections, by name.

use crate::beanstalkd::reply::{Replies, Word};
use crate::beanstalkd::session::Session;

pub(super) async fn run(session: &Session, replies: &mut Replies) {
    match session.shared.census().await {
        Ok(census) => replies.names(census.tubes.iter().map(|tube| tube.as_str())),
        Err(error) => replies.word(Word::from(&error)),
    }
}

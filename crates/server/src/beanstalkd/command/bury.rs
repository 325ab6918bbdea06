//! `bury <id> <pri>`: the holder sets a job aside.

use dwell_store::Action;

use super::Command;
use crate::beanstalkd::arguments::Arguments;
use crate::beanstalkd::frame::Malformed;
use crate::beanstalkd::reply::{Replies, Word};
use crate::beanstalkd::session::Session;

pub(super) fn parse(mut rest: Arguments<'_>) -> Result<Command, Malformed> {
    let (number, priority) = (rest.u64()?, rest.u32()?);
    rest.end()?;
    Ok(Command::Bury { number, priority })
}

pub(super) async fn run(session: &mut Session, number: u64, priority: u32, replies: &mut Replies) {
    let settled = session.settle(number, Action::Bury { reason: None, priority: Some(priority) }).await;
    replies.outcome(settled.map(|_| Word::Buried));
}

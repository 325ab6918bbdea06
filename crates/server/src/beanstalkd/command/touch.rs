//! `touch <id>`: the holder's lease begins anew.

use dwell_store::Action;

use super::Command;
use crate::beanstalkd::arguments::Arguments;
use crate::beanstalkd::frame::Malformed;
use crate::beanstalkd::reply::{Replies, Word};
use crate::beanstalkd::session::Session;

pub(super) fn parse(rest: Arguments<'_>) -> Result<Command, Malformed> {
    rest.only_u64().map(Command::Touch)
}

pub(super) async fn run(session: &mut Session, number: u64, replies: &mut Replies) {
    let settled = session.settle(number, Action::Extend { lease_ms: None }).await;
    replies.outcome(settled.map(|_| Word::Touched));
}

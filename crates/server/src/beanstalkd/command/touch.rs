//! `touch <id>`: restarts the holder's lease.

use dwell_store::Action;

use super::Command;
use super::settle::Settling;
use crate::beanstalkd::arguments::Arguments;
use crate::beanstalkd::frame::Malformed;
use crate::beanstalkd::reply::Word;

pub(super) fn parse(rest: Arguments<'_>) -> Result<Command, Malformed> {
    rest.only_u64().map(Command::Touch)
}

pub(super) fn settling(number: u64) -> Settling {
    let action = Action::Extend { lease_ms: None };
    Settling { number, action, done: Word::Touched }
}

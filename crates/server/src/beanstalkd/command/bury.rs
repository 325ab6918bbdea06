//! `bury <id> <pri>`: the holder sets a job aside.

use dwell_store::Action;

use super::Command;
use super::settle::Settling;
use crate::beanstalkd::arguments::Arguments;
use crate::beanstalkd::frame::Malformed;
use crate::beanstalkd::reply::Word;

pub(super) fn parse(mut rest: Arguments<'_>) -> Result<Command, Malformed> {
    let (number, priority) = (rest.u64()?, rest.u32()?);
    rest.end()?;
    Ok(Command::Bury { number, priority })
}

pub(super) fn settling(number: u64, priority: u32) -> Settling {
    let action = Action::Bury { reason: None, priority: Some(priority) };
    Settling { number, action, done: Word::Buried }
}

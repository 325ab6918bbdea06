//! `release <id> <pri> <delay>`: the holder gives a job back.

use dwell_store::Action;

use super::Command;
use super::settle::Settling;
use crate::beanstalkd::arguments::Arguments;
use crate::beanstalkd::frame::Malformed;
use crate::beanstalkd::reply::Word;

pub(super) fn parse(mut rest: Arguments<'_>) -> Result<Command, Malformed> {
    let (number, priority, delay_s) = (rest.u64()?, rest.u32()?, rest.u32()?);
    rest.end()?;
    Ok(Command::Release { number, priority, delay_s })
}

pub(super) fn settling(number: u64, priority: u32, delay_s: u32) -> Settling {
    let after_ms = (delay_s > 0).then_some(u64::from(delay_s) * 1_000);
    let action = Action::Release { after_ms, priority: Some(priority) };
    Settling { number, action, done: Word::Released }
}

//! `pause-tube <tube> <delay>`: no job is reserved from it for this many seconds; 0 ends a pause.

use dwell_model::{Pause, QueueName, Setting, SettingChange, SettingName};
use dwell_store::Error;

use super::Command;
use crate::beanstalkd::arguments::Arguments;
use crate::beanstalkd::frame::Malformed;
use crate::beanstalkd::reply::{Replies, Word};
use crate::beanstalkd::session::Session;

pub(super) fn parse(mut rest: Arguments<'_>) -> Result<Command, Malformed> {
    let (tube, delay_s) = (rest.tube()?, rest.u32()?);
    rest.end()?;
    Ok(Command::PauseTube { tube, delay_s })
}

pub(super) async fn run(session: &Session, tube: QueueName, delay_s: u32, replies: &mut Replies) {
    replies.outcome(pause(session, tube, delay_s).await);
}

async fn pause(session: &Session, tube: QueueName, delay_s: u32) -> Result<Word, Error> {
    let shared = &session.shared;
    if shared.tube(&tube).await?.is_none() {
        return Ok(Word::NotFound);
    }
    let (change, until) = if delay_s == 0 {
        (SettingChange::Reset(SettingName::Pause), None)
    } else {
        let until = shared.clock.now().wall.saturating_after(u64::from(delay_s) * 1_000);
        (SettingChange::Set(Setting::Pause(Pause::Until(until))), Some(until))
    };
    shared.store.configure(tube.clone(), vec![change]).await?;
    shared.tubes.paused(&tube, delay_s, until);
    shared.forget_gone_tubes().await;
    Ok(Word::Paused)
}

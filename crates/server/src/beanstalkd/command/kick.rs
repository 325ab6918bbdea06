//! `kick <bound>`: buried jobs of the tube in use come back, oldest first; if there are none, delayed ones are
//! due now, soonest first.

use dwell_model::StateKind;
use dwell_store::{Error, Rescheduled, Selection, Target, When};

use super::Command;
use crate::beanstalkd::arguments::Arguments;
use crate::beanstalkd::frame::Malformed;
use crate::beanstalkd::reply::{Replies, Word};
use crate::beanstalkd::session::Session;

pub(super) fn parse(rest: Arguments<'_>) -> Result<Command, Malformed> {
    rest.only_u64().map(Command::Kick)
}

pub(super) async fn run(session: &Session, bound: u64, replies: &mut Replies) {
    match kick(session, bound).await {
        Ok(kicked) => replies.line(format_args!("KICKED {kicked}")),
        Err(error) => replies.word(Word::from(&error)),
    }
}

async fn kick(session: &Session, bound: u64) -> Result<u64, Error> {
    let tube = session.used().clone();
    let swept = session.shared.store.revive(tube, Selection::Oldest(bound), When::Now).await?;
    if swept.done > 0 { Ok(swept.done) } else { kick_delayed(session, bound).await }
}

async fn kick_delayed(session: &Session, bound: u64) -> Result<u64, Error> {
    let (store, tube) = (&session.shared.store, session.used());
    let mut kicked = 0;
    let mut after = None;
    while kicked < bound {
        let max = usize::try_from(bound - kicked).unwrap_or(usize::MAX).min(session.shared.batch());
        let page = match store.list(tube.clone(), StateKind::Scheduled, after, max).await {
            Ok(page) => page,
            Err(Error::UnknownQueue { .. }) => break,
            Err(error) => return Err(error),
        };
        let moves = page.messages.iter().map(|message| (Target::Id(message.id), When::Now)).collect();
        for answer in store.reschedule(tube.clone(), moves).await {
            if let Rescheduled::Moved(..) = answer? {
                kicked += 1;
            }
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    Ok(kicked)
}

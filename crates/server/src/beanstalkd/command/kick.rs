//! `kick <bound>`: revives buried jobs of the tube in use, oldest first; if there are none, makes delayed ones due now,
//! soonest first.

use dwell_model::StateKind;
use dwell_store::{Error, Page, Rescheduled, Selection, Target, When};

use super::Command;
use crate::admission::NoRoom;
use crate::beanstalkd::arguments::Arguments;
use crate::beanstalkd::frame::Malformed;
use crate::beanstalkd::reply::{Replies, Word};
use crate::beanstalkd::session::Session;

pub(super) fn parse(rest: Arguments<'_>) -> Result<Command, Malformed> {
    rest.only_u64().map(Command::Kick)
}

/// The number of delayed jobs per page: each is read with its body.
const PAGE: usize = 256;

pub(super) async fn run(session: &Session, bound: u64, replies: &mut Replies) {
    match kick(session, bound).await {
        Ok(Some(kicked)) => replies.line(format_args!("KICKED {kicked}")),
        Ok(None) => session.shared.no_room(replies),
        Err(error) => replies.word(Word::from(&error)),
    }
}

/// The number of kicked jobs; `None` if there was no room to read them.
async fn kick(session: &Session, bound: u64) -> Result<Option<u64>, Error> {
    let tube = session.used().clone();
    let swept = session.shared.store.revive(tube, Selection::Oldest(bound), When::Now).await?;
    if swept.done > 0 { Ok(Some(swept.done)) } else { kick_delayed(session, bound).await }
}

async fn kick_delayed(session: &Session, bound: u64) -> Result<Option<u64>, Error> {
    let (store, tube) = (&session.shared.store, session.used());
    let mut kicked = 0;
    let mut after = None;
    while kicked < bound {
        let left = usize::try_from(bound - kicked).unwrap_or(usize::MAX);
        let list =
            store.list(tube.clone(), StateKind::Scheduled, after, left.min(PAGE).min(session.shared.batch()));
        let bytes = |page: &Result<Page, Error>| {
            page.iter().flat_map(|page| &page.messages).map(|message| message.body.len()).sum()
        };
        let (moves, next) = match session.shared.memory.bring(list, bytes).await {
            Ok((Ok(page), _held)) => {
                let moves = page.messages.iter().map(|message| (Target::Id(message.id), When::Now));
                (moves.collect(), page.next)
            }
            Ok((Err(Error::UnknownQueue { .. }), _)) => break,
            Ok((Err(error), _)) => return Err(error),
            // Those that were kicked so far count.
            Err(NoRoom) => return Ok(Some(kicked).filter(|kicked| *kicked > 0)),
        };
        for answer in store.reschedule(tube.clone(), moves).await {
            if let Rescheduled::Moved(..) = answer? {
                kicked += 1;
            }
        }
        after = next;
        if after.is_none() {
            break;
        }
    }
    Ok(Some(kicked))
}

//! `list-tubes`: all tubes with jobs or connections, by name.

use std::future::ready;
use std::sync::Arc;

use dwell_store::Error;

use crate::admission::NoRoom;
use crate::beanstalkd::census::Census;
use crate::beanstalkd::reply::{Replies, Word};
use crate::beanstalkd::session::Session;

pub(super) async fn run(session: &Session, replies: &mut Replies) {
    // What is found is held while there is no room to tell of it: it is looked for only where there is.
    let Ok(_) = session.shared.memory.bring(ready(()), |()| 0).await else {
        return session.shared.no_room(replies);
    };
    // Not within the next call, which leaves its future alone while there is no room: others wait for this one's walk.
    let census = session.shared.census().await;
    // A name has four bytes around it.
    let bytes = |census: &Result<Arc<Census>, Error>| {
        census.iter().flat_map(|census| &census.tubes).map(|tube| tube.as_str().len() + 4).sum()
    };
    match session.shared.memory.bring(ready(census), bytes).await {
        Ok((Ok(census), held)) => {
            replies.names(census.tubes.iter().map(|tube| tube.as_str()));
            replies.hold(held);
        }
        Ok((Err(error), _)) => replies.word(Word::from(&error)),
        Err(NoRoom) => session.shared.no_room(replies),
    }
}

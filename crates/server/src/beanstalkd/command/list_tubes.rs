//! `list-tubes`: all tubes with jobs or connections, by name.

use std::future::ready;
use std::sync::Arc;

use dwell_store::Error;

use crate::admission::NoRoom;
use crate::beanstalkd::census::Census;
use crate::beanstalkd::reply::{Replies, Word};
use crate::beanstalkd::session::Session;

pub(super) async fn run(session: &Session, replies: &mut Replies) {
    // The names are held until there is room for the reply, so the walk begins only when there is some.
    let Ok(_) = session.shared.memory.bring(ready(()), |()| 0).await else {
        return session.shared.no_room(replies);
    };
    // Not inside the next call, which does not poll its future while there is no room: other requests wait for this
    // walk.
    let census = session.shared.census().await;
    // Each name has four more bytes in the reply.
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

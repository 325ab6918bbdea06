//! Runs of `release`, `bury` and `touch`: the holder's settlements other than deletes, in one call to the store.

use dwell_store::Action;

use crate::beanstalkd::reply::{Replies, Word};
use crate::beanstalkd::session::Session;

/// One settlement of a run.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::beanstalkd) struct Settling {
    pub(in crate::beanstalkd) number: u64,
    pub(super) action: Action,
    /// The reply on success.
    pub(super) done: Word,
}

/// Settles a run of different jobs; replies to each in order.
pub(in crate::beanstalkd) async fn settle_all(
    session: &mut Session,
    run: Vec<Settling>,
    replies: &mut Replies,
) {
    let words: Vec<Word> = run.iter().map(|one| one.done).collect();
    let settled = session.settle(run.into_iter().map(|one| (one.number, one.action)).collect()).await;
    for (word, settled) in words.into_iter().zip(settled) {
        replies.outcome(settled.map(|()| word));
    }
}

//! `peek-buried`: the job of the tube in use that has been buried longest.

use dwell_model::{State, StateKind, Timestamp};

use super::peek::found;
use crate::beanstalkd::reply::Replies;
use crate::beanstalkd::session::Session;

pub(super) async fn run(session: &Session, replies: &mut Replies) {
    let first = session.first_of(StateKind::Dead, |message| {
        let since = match message.standing.state {
            State::Dead(death) => death.at,
            _ => Timestamp::MAX,
        };
        (since, message.id)
    });
    found(first.await, replies);
}

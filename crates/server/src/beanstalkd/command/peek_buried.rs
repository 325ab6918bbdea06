//! `peek-buried`: the job of the tube in use that has been buried longest.

use dwell_model::StateKind;

use super::peek::found;
use crate::beanstalkd::reply::Replies;
use crate::beanstalkd::session::Session;

pub(super) async fn run(session: &Session, replies: &mut Replies) {
    found(session, session.first_of(StateKind::Dead), replies).await;
}

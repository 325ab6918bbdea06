//! `peek-delayed`: the job of the tube in use that falls due next.

use dwell_model::StateKind;

use super::peek::found;
use crate::beanstalkd::reply::Replies;
use crate::beanstalkd::session::Session;

pub(super) async fn run(session: &Session, replies: &mut Replies) {
    found(session, session.first_of(StateKind::Scheduled), replies).await;
}

//! `stats-tube <tube>`: one tube; counts of jobs from the store, counts of commands since the server began.

use dwell_model::{Pause, QueueName};

use super::Command;
use crate::beanstalkd::arguments::Arguments;
use crate::beanstalkd::frame::Malformed;
use crate::beanstalkd::reply::{Replies, Word};
use crate::beanstalkd::session::Session;

pub(super) fn parse(rest: Arguments<'_>) -> Result<Command, Malformed> {
    rest.only_tube().map(Command::StatsTube)
}

/// The value for a pause without an end.
const FOR_EVER_S: u64 = u32::MAX as u64;

pub(super) async fn run(session: &Session, tube: QueueName, replies: &mut Replies) {
    let shared = &session.shared;
    let (stats, own) = match shared.tube(&tube).await {
        Ok(Some(found)) => found,
        Ok(None) => return replies.word(Word::NotFound),
        Err(error) => return replies.word(Word::from(&error)),
    };
    let now = shared.clock.now().wall;
    let (counts, waiting, pause) = stats.map_or_else(
        || (Default::default(), 0, Pause::Running),
        |stats| (stats.counts, stats.waiting, stats.settings.pause),
    );
    let (pause_s, left_s) = match pause {
        Pause::Until(end) if now < end => {
            let left_s = end.ms_since(now) / 1_000;
            // The length of a pause that was made over another protocol is not known.
            let pause_s = own.pause.filter(|(until, _)| *until == end).map_or(left_s, |(_, s)| u64::from(s));
            (pause_s, left_s)
        }
        Pause::Indefinite => (FOR_EVER_S, FOR_EVER_S),
        Pause::Running | Pause::Until(_) => (0, 0),
    };
    replies.yaml(&format!(
        "---\n\
         name: \"{tube}\"\n\
         current-jobs-urgent: {}\n\
         current-jobs-ready: {}\n\
         current-jobs-reserved: {}\n\
         current-jobs-delayed: {}\n\
         current-jobs-buried: {}\n\
         total-jobs: {}\n\
         current-using: {}\n\
         current-watching: {}\n\
         current-waiting: {waiting}\n\
         cmd-delete: {}\n\
         cmd-pause-tube: {}\n\
         pause: {pause_s}\n\
         pause-time-left: {left_s}\n",
        counts.ready_urgent,
        counts.ready,
        counts.leased,
        counts.scheduled,
        counts.dead,
        own.total_jobs,
        own.using,
        own.watching,
        own.deletes,
        own.pauses,
    ));
}

//! `reserve` and `reserve-with-timeout <seconds>`: the most urgent due job of all watched tubes.
//!
//! A reserve that would still wait in the last second of a lease of its connection answers `DEADLINE_SOON`, so that the
//! job can be finished or touched. A job that is ready is handed out even then.

use dwell_store::{Delivery, Take};

use super::Command;
use crate::beanstalkd::arguments::Arguments;
use crate::beanstalkd::frame::Malformed;
use crate::beanstalkd::reply::{Replies, Word};
use crate::beanstalkd::session::Session;

/// beanstalkd's name for it: SAFETY_MARGIN.
const LAST_SECOND_MS: u64 = 1_000;

/// The length of one take of a wait without an end: an hour.
const LONGEST_WAIT_MS: u64 = 3_600_000;

/// The maximum body bytes of one take for several reserves.
const MAX_BYTES: usize = 1024 * 1024;

pub(super) fn parse_with_timeout(mut rest: Arguments<'_>) -> Result<Command, Malformed> {
    let timeout_s = if rest.skip_negative() { None } else { Some(rest.u32()?) };
    rest.end()?;
    Ok(Command::Reserve { timeout_s })
}

/// One reserve, or several that arrived together.
#[derive(Clone, Copy, Debug)]
pub(in crate::beanstalkd) struct ReserveRequest {
    /// The number of reserves.
    pub(in crate::beanstalkd) count: usize,
    /// The timeout of the first of them, on the session's clock; `None` for never.
    pub(in crate::beanstalkd) until_ms: Option<u64>,
}

/// The next step of a reserve that has found nothing.
#[derive(Debug)]
pub(in crate::beanstalkd) enum Reserved {
    /// Make this take, which may wait.
    Take(Take),
    /// Reply with this.
    Answer(Word),
}

impl ReserveRequest {
    /// The next step at `now_ms`, on the session's clock. `empty` says that an earlier take has found nothing.
    pub(in crate::beanstalkd) fn step(
        self,
        session: &Session,
        may_wait: bool,
        empty: bool,
        now_ms: u64,
    ) -> Reserved {
        let soon_ms = session.held.soonest_ms().map(|deadline| deadline.saturating_sub(LAST_SECOND_MS));
        if empty && soon_ms.is_some_and(|soon| soon <= now_ms) {
            return Reserved::Answer(Word::DeadlineSoon);
        }
        if empty && (!may_wait || self.until_ms.is_some_and(|until| until <= now_ms)) {
            return Reserved::Answer(Word::TimedOut);
        }
        let left_ms = [self.until_ms, soon_ms]
            .into_iter()
            .flatten()
            .min()
            .map_or(LONGEST_WAIT_MS, |end| end.saturating_sub(now_ms));
        let wait_ms = if may_wait { left_ms.min(LONGEST_WAIT_MS) } else { 0 };
        let take = Take::from_all(session.watched().cloned()).max(self.count).max_bytes(MAX_BYTES);
        Reserved::Take(take.wait_ms(wait_ms).session())
    }
}

impl Session {
    /// Records these jobs as held by this connection.
    pub(in crate::beanstalkd) fn reserved(&mut self, deliveries: &[Delivery], replies: &mut Replies) {
        let now_ms = self.now_ms();
        for delivery in deliveries {
            self.held.add(delivery, now_ms);
            replies.reserved(&delivery.message);
        }
    }
}

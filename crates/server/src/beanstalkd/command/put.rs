//! `put <pri> <delay> <ttr> <bytes>`, then the body: a message into the tube in use.

use bytes::Bytes;
use dwell_model::{AttemptLimit, QueueName};
use dwell_store::{Error, Put, When};

use crate::beanstalkd::arguments::Arguments;
use crate::beanstalkd::frame::Malformed;
use crate::beanstalkd::reply::{Replies, Word};
use crate::beanstalkd::session::Session;

/// The line of a put, before its body.
#[derive(Clone, Copy, Debug)]
pub(in crate::beanstalkd) struct PutLine {
    priority: u32,
    delay_s: u32,
    ttr_s: u32,
    len: u32,
}

/// A put with its body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PutJob {
    pub(crate) priority: u32,
    pub(crate) delay_s: u32,
    /// At least 1.
    pub(crate) ttr_s: u32,
    pub(crate) body: Bytes,
}

impl PutLine {
    pub(in crate::beanstalkd) const VERB: &str = "put ";

    /// Parses a line; `None` if it is another command's. The inner result says whether nothing follows the size, which
    /// only matters when the size is accepted.
    #[expect(clippy::type_complexity, reason = "each layer is a question that the parser asks in turn")]
    pub(in crate::beanstalkd) fn parse(
        line: &str,
    ) -> Option<Result<(PutLine, Result<(), Malformed>), Malformed>> {
        let mut rest = Arguments::new(line.strip_prefix(PutLine::VERB)?);
        let mut read = || {
            let (priority, delay_s, ttr_s, len) = (rest.u32()?, rest.u32()?, rest.u32()?, rest.u32()?);
            Ok((PutLine { priority, delay_s, ttr_s: ttr_s.max(1), len }, rest.end()))
        };
        Some(read())
    }

    /// The length of the body, in bytes.
    pub(in crate::beanstalkd) fn len(self) -> usize {
        self.len as usize
    }

    pub(in crate::beanstalkd) fn with_body(self, body: Bytes) -> PutJob {
        PutJob { priority: self.priority, delay_s: self.delay_s, ttr_s: self.ttr_s, body }
    }
}

impl PutJob {
    fn into_message(self, queue: QueueName) -> Put {
        let put = Put::new(queue, self.body).priority(self.priority);
        let when = if self.delay_s == 0 { When::Now } else { When::AfterMs(u64::from(self.delay_s) * 1_000) };
        Put {
            when,
            lease_ms: Some(u64::from(self.ttr_s) * 1_000),
            max_attempts: Some(AttemptLimit::Unlimited),
            ..put
        }
    }
}

/// Puts a run of jobs in one call to the store, so that they share one sync; replies to each.
pub(in crate::beanstalkd) async fn put_all(session: &mut Session, jobs: Vec<PutJob>, replies: &mut Replies) {
    session.is_producer();
    if session.shared.is_draining() {
        jobs.iter().for_each(|_| replies.word(Word::Draining));
        return;
    }
    let tube = session.used().clone();
    let puts = jobs.into_iter().map(|job| job.into_message(tube.clone())).collect();
    let mut inserted = 0;
    for answer in session.shared.store.put(puts).await {
        match answer {
            Ok(answer) => {
                inserted += 1;
                replies.line(format_args!("INSERTED {}", answer.number));
            }
            Err(Error::Closed) => replies.word(Word::Draining),
            Err(error) => replies.word(Word::from(&error)),
        }
    }
    session.shared.count_jobs(&tube, inserted);
}

//! Calls on partitions. A script receives the number of partitions of its queue, and answers nothing but the correct
//! one if that is wrong.

use std::sync::atomic::Ordering;

use dwell_model::{Invalid, QueueName, Timestamp};
use dwell_store::{Error, When};

use super::Inner;
use super::inspect::Retries;
use super::layout::Partition;
use super::message::instant;
use super::pack::{Fields, Pack, PackReply};
use super::script_call::{NumberedCaller, foreign, locked};
use super::scripts::Script;

/// The maximum bytes of bodies that one script reads or writes, except that one body is always allowed: more would
/// block Redis for more than about a millisecond.
pub(super) const BODIES: usize = 256 * 1024;

/// How many calls process what time has brought about, before a call that does not depend on it goes on without.
const ROUNDS: u32 = 8;

/// How many queues whose number of partitions differs from the default are remembered at least; up to twice as many for
/// a while. One that was dropped costs one script more. A take names far fewer.
pub(super) const KNOWN_QUEUES: usize = 16_384;

/// Why a call on a partition has no answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// The queue has another number of partitions than assumed, or there is room for more leases: it is known by now.
    /// Nothing was done.
    Partitions,
    Failed(Error),
}

impl From<Error> for NoAnswer {
    fn from(error: Error) -> NoAnswer {
        NoAnswer::Failed(error)
    }
}

/// Retries a call on a queue until its number of partitions is known.
///
/// A macro, since a future made by a closure that borrows is not known to be `Send`.
macro_rules! with_partitions {
    ($inner:expr, $queue:expr, |$partitions:ident| $call:expr) => {{
        let mut tries = 0;
        loop {
            let $partitions = $inner.partitions($queue);
            let answer: std::result::Result<_, $crate::native::partition::NoAnswer> = async { $call }.await;
            match answer {
                Ok(answer) => break Ok(answer),
                Err($crate::native::partition::NoAnswer::Failed(error)) => break Err(error),
                Err($crate::native::partition::NoAnswer::Partitions) if tries < 16 => tries += 1,
                // A client that changes it this often keeps the queue from being served.
                Err($crate::native::partition::NoAnswer::Partitions) => {
                    let reason =
                        format!("the number of partitions of queue '{}' changes all the time", $queue);
                    break Err(dwell_store::Error::Unavailable { reason: reason.into() });
                }
            }
        }
    }};
}
pub(super) use with_partitions;

/// An answer, and the server's clock when it was given.
pub(super) struct PartitionAnswer {
    pub(super) reply: PackReply,
    pub(super) now: Timestamp,
    /// The number of leases that ran out during the call.
    pub(super) lapsed: u64,
}

impl Inner {
    /// The number of partitions of a queue, as far as is known here.
    pub(super) fn partitions(&self, queue: &QueueName) -> u16 {
        locked(&self.known_partitions).get(queue).copied().unwrap_or(self.limits.defaults.partitions)
    }

    pub(super) fn note_partitions(&self, queue: &QueueName, partitions: u16) {
        let mut known_partitions = locked(&self.known_partitions);
        if partitions == self.limits.defaults.partitions {
            known_partitions.forget(queue);
        } else {
            known_partitions.meet(queue.clone(), partitions);
        }
    }

    /// Calls a script on a partition of a queue that is spread over `partitions`.
    pub(super) async fn on(
        &self,
        at: &Partition,
        partitions: u16,
        script: Script,
        arguments: Fields,
    ) -> std::result::Result<PartitionAnswer, NoAnswer> {
        self.on_within(at, partitions, script, arguments, Retries::Usual).await
    }

    pub(super) async fn on_within(
        &self,
        at: &Partition,
        partitions: u16,
        script: Script,
        arguments: Fields,
        patience: Retries,
    ) -> std::result::Result<PartitionAnswer, NoAnswer> {
        let lane = self.wire.lane(script);
        self.on_lane(lane.as_ref(), at, partitions, script, arguments, patience).await
    }

    /// The same on the given lane, for callers that may have to repeat the call.
    pub(super) async fn on_lane(
        &self,
        lane: Option<&NumberedCaller<'_>>,
        at: &Partition,
        partitions: u16,
        script: Script,
        arguments: Fields,
        patience: Retries,
    ) -> std::result::Result<PartitionAnswer, NoAnswer> {
        if at.index >= partitions {
            // It was believed to have the partition when the call began.
            return Err(NoAnswer::Partitions);
        }
        self.ask_on_lane(lane, at, script, arguments.with("W", u32::from(partitions)), patience).await
    }

    /// The same, whatever the number of partitions of the queue.
    pub(super) async fn ask(
        &self,
        at: &Partition,
        script: Script,
        arguments: Fields,
    ) -> std::result::Result<PartitionAnswer, NoAnswer> {
        self.ask_within(at, script, arguments, Retries::Usual).await
    }

    pub(super) async fn ask_within(
        &self,
        at: &Partition,
        script: Script,
        arguments: Fields,
        patience: Retries,
    ) -> std::result::Result<PartitionAnswer, NoAnswer> {
        let lane = self.wire.lane(script);
        self.ask_on_lane(lane.as_ref(), at, script, arguments, patience).await
    }

    async fn ask_on_lane(
        &self,
        lane: Option<&NumberedCaller<'_>>,
        at: &Partition,
        script: Script,
        arguments: Fields,
        patience: Retries,
    ) -> std::result::Result<PartitionAnswer, NoAnswer> {
        let believed = arguments.uint("W").and_then(|partitions| u16::try_from(partitions).ok());
        let arguments = arguments.with("D", self.defaults.clone());
        let (mut lapsed, mut rounds) = (0_u64, 0);
        loop {
            let arguments = arguments.clone().maybe("ended", Some(lapsed).filter(|ended| *ended > 0));
            let arguments = arguments.flag("late", rounds >= ROUNDS).with("c", &self.name_of_call()[..]);
            let counts = self.lease_counts();
            let reply = self.wire.call(at, script, arguments, patience, lane).await?;
            if let Some(ended) = reply.get("lapsed").uint().filter(|ended| *ended > 0) {
                lapsed += ended;
                self.leases_ended(&at.queue, ended, counts);
            }
            locked(&self.deaths).note(&at.queue, &reply);
            if reply.get("retain").is_set() {
                locked(&self.retaining).insert(at.clone());
            }
            if let Some(given_up) = reply.get("given_up").uint() {
                self.given_up.fetch_max(given_up, Ordering::Relaxed);
            }
            if let Some(partitions) =
                reply.get("partitions").uint().and_then(|partitions| u16::try_from(partitions).ok())
            {
                // The first partition decides, unless it may have lost the queue's number of partitions.
                let is_less = believed.is_some_and(|believed| partitions < believed);
                if at.index == 0 && !reply.get("moves").is_set() && !is_less {
                    self.note_partitions(&at.queue, partitions);
                } else {
                    self.learn_partitions(at, believed).await?;
                }
                return Err(NoAnswer::Partitions);
            }
            if reply.get("more").is_set() {
                rounds += 1;
                continue;
            }
            let now = instant(reply.get("now")).ok_or_else(|| unreadable(&at.queue))?;
            return Ok(PartitionAnswer { reply, now, lapsed });
        }
    }

    /// A name that no other call of this or another process has.
    fn name_of_call(&self) -> [u8; 14] {
        let mut name = [0; 14];
        name[..8].copy_from_slice(&self.wire.process);
        // 48 bits: no process lives long enough to exhaust them.
        name[8..].copy_from_slice(&self.calls.fetch_add(1, Ordering::Relaxed).to_be_bytes()[2..]);
        name
    }

    /// Unregisters an empty queue: at once where the number of queues is near its limit, otherwise later.
    pub(super) async fn note_bare(&self, queue: &QueueName) {
        if self.is_near_queue_limit(0) {
            // If this fails it stays registered; the next listing of queues checks it again.
            let _ = self.retire(queue).await;
        } else {
            locked(&self.bare).insert(queue.clone());
        }
    }

    /// Whether the number of queues is near its limit, or `more` queues would bring it there.
    pub(super) fn is_near_queue_limit(&self, more: usize) -> bool {
        let count = self.queue_count.load(Ordering::Relaxed).saturating_add(more as u64);
        count.saturating_mul(2) >= self.limits.queues as u64
    }
}

/// The share of one partition in a queue's cap: the same for each.
pub(super) fn share(cap: usize, partitions: u16) -> usize {
    cap.div_ceil(usize::from(partitions.max(1)))
}

pub(super) fn unreadable(queue: &QueueName) -> Error {
    foreign(&format!("the answer of a script for queue '{queue}' is in no form of this version"))
}

/// Adds an instant to the arguments of a script.
pub(super) fn when(fields: Fields, when: When) -> Fields {
    let (kind, value): (u32, Pack) = match when {
        When::Now => (0, Pack::Int(0)),
        When::At(due) => (1, Pack::Int(due.as_ms())),
        When::AfterMs(delay_ms) => (2, delay_ms.into()),
        When::Level(level) => (3, level.into()),
    };
    fields.with("w", kind).with("v", value)
}

/// The error of one item that a script could not process, since foreign data is in the way.
pub(super) fn foreign_item(reply: &PackReply) -> Option<Error> {
    let is_foreign = reply.at(0).text() == Some("foreign");
    is_foreign.then(|| foreign(reply.at(1).text().unwrap_or_default()))
}

/// Why an instant was refused: {'level', levels} or {'range', delay}.
pub(super) fn refused_instant(refusal: &PackReply, asked: When, now: Timestamp) -> Option<Error> {
    match refusal.at(0).text()? {
        "level" => {
            let When::Level(level) = asked else { return None };
            let levels = refusal.at(1).uint()?.try_into().ok()?;
            Some(Invalid::UnknownLevel { level, levels }.into())
        }
        "range" => {
            let delay_ms = match asked {
                When::AfterMs(delay_ms) => delay_ms,
                _ => refusal.at(1).uint()?,
            };
            Some(out_of_range(now, delay_ms))
        }
        _ => None,
    }
}

/// The model's error for a delay that ends past the year 9999.
pub(super) fn out_of_range(now: Timestamp, delay_ms: u64) -> Error {
    match now.after(delay_ms) {
        Err(refusal) => refusal.into(),
        Ok(due) => Invalid::DueOutOfRange { ms: due.as_ms() }.into(),
    }
}

#[cfg(test)]
mod tests {
    use dwell_model::{Limits, Setting, SettingChange};
    use dwell_store::{Put, Store as _, Take};

    use super::*;
    use crate::RedisStore;
    use dwell_testkit::redis::Server;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn how_queues_are_spread_that_were_asked_for_once_is_not_kept_for_ever() {
        const PUTS: usize = 30;
        let server = Server::start();
        let store = RedisStore::open(server.address(), Limits::default()).await.unwrap();
        let wide = QueueName::new("wide").unwrap();
        store.configure(wide.clone(), vec![SettingChange::Set(Setting::Partitions(3))]).await.unwrap();
        for put in store.put(vec![Put::new(wide.clone(), "m"); PUTS]).await {
            put.unwrap();
        }
        for n in 0..3 * KNOWN_QUEUES {
            store.inner.note_partitions(&QueueName::new(&format!("q{n}")).unwrap(), 3);
        }
        let kept = locked(&store.inner.known_partitions).len();
        let places = store.kept_for_test().1;
        assert!(kept <= 2 * KNOWN_QUEUES && kept <= places, "{kept} are remembered, {places} with all else");
        // A number of partitions that was dropped is returned again, and the queue is served as before.
        assert_eq!(store.inner.partitions(&wide), 1);
        let taken = store.take(Take::from(wide.clone()).max(PUTS)).await.unwrap();
        assert_eq!((taken.len(), store.inner.partitions(&wide)), (PUTS, 3));
    }
}

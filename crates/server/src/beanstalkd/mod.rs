//! beanstalkd's protocol, on any store: a tube is a queue, a job's id is the message's number, its TTR the
//! length of its lease.
//!
//! # Layout
//! - `frame`: bytes to commands, without I/O; `arguments`: numbers and names on a line; `reply`: replies to bytes
//! - `command/`: a file for each command; `command/mod.rs` is the index of verbs
//! - `connection/`: the loop over a socket: reads, runs of commands that share a call to the store, waits, writes
//! - `session`: a connection's state; `reserved_jobs`: the jobs it holds; `tubes`: which tubes are used and watched
//! - `census`: the walk over all queues; `counters`, `host`: the figures of `stats`; `command_log`: the log of commands
//!
//! The protocol, and how it differs from beanstalkd, is documented in `docs/beanstalkd.md`.

mod arguments;
mod census;
mod command;
mod command_log;
mod connection;
mod counters;
mod frame;
mod host;
mod reply;
mod reserved_jobs;
mod session;
mod tubes;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use dwell_model::{Message, Pause, QueueName, SettingChange, SettingName};
use dwell_store::{Error, QueueStats, Store};
use dwell_time::Clock;
use tokio::sync::watch;

#[cfg(feature = "fuzzing")]
pub(crate) use command::{Command, PutJob};
pub(crate) use connection::serve;
#[cfg(feature = "fuzzing")]
pub(crate) use frame::{Frame, MAX_LINE, Parser};

use self::census::{Census, Walks};
use self::counters::Counters;
use self::reply::{Replies, Word};
use self::tubes::{Tube, Tubes};
use crate::admission::{Memory, NoRoom};
use crate::config::BeanstalkdConfig;
use crate::metrics::Metrics;
use crate::returns::Returns;

/// The reply to a connection past the limit.
pub(crate) const NO_PLACE: &[u8] = b"OUT_OF_MEMORY\r\n";

/// The state that all connections share.
pub(crate) struct BeanstalkdShared {
    store: Arc<dyn Store>,
    config: BeanstalkdConfig,
    clock: Arc<dyn Clock>,
    returns: Returns,
    draining: watch::Receiver<bool>,
    metrics: Arc<Metrics>,
    memory: Arc<Memory>,
    counters: Counters,
    /// The number of jobs that all connections hold.
    held_by_all: Arc<AtomicUsize>,
    tubes: Arc<Tubes>,
    walks: Walks,
    /// Distinguishes one run of a server from the next.
    instance: u64,
    began_ms: u64,
}

impl BeanstalkdShared {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        config: BeanstalkdConfig,
        clock: Arc<dyn Clock>,
        returns: Returns,
        draining: watch::Receiver<bool>,
        metrics: Arc<Metrics>,
        memory: Arc<Memory>,
    ) -> BeanstalkdShared {
        let began_ms = clock.now().mono_ms;
        // The standard library seeds it from the system's randomness.
        let instance = RandomState::new().hash_one(std::process::id());
        let (counters, tubes, walks) = (Counters::default(), Arc::default(), Walks::default());
        BeanstalkdShared {
            store,
            config,
            clock,
            returns,
            draining,
            metrics,
            memory,
            counters,
            held_by_all: Arc::default(),
            tubes,
            walks,
            instance,
            began_ms,
        }
    }

    fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    /// Returns once the server has begun to shut down.
    async fn drained(&self) {
        // The sender lives as long as the server; if it is dropped, so is the server.
        let _ = self.draining.clone().wait_for(|draining| *draining).await;
    }

    /// Milliseconds since the server began.
    fn up_ms(&self) -> u64 {
        self.clock.now().mono_ms.saturating_sub(self.began_ms)
    }

    /// Replies that there is no room for what a command would return.
    fn no_room(&self, replies: &mut Replies) {
        self.metrics.refused("overloaded");
        replies.word(Word::OutOfMemory);
    }

    /// Makes a call for one job, once there is room for its body, which counts from then on.
    async fn bring(
        &self,
        call: impl Future<Output = Result<Option<Message>, Error>>,
        replies: &mut Replies,
    ) -> Option<Result<Option<Message>, Error>> {
        let bytes =
            |found: &Result<Option<Message>, Error>| found.iter().flatten().map(|job| job.body.len()).sum();
        match self.memory.bring(call, bytes).await {
            Ok((found, held)) => {
                replies.hold(held);
                Some(found)
            }
            Err(NoRoom) => {
                self.no_room(replies);
                None
            }
        }
    }

    /// The maximum number of items per call to the store.
    fn batch(&self) -> usize {
        self.store.limits().batch.max(1)
    }

    /// Counts jobs that were put.
    fn count_jobs(&self, tube: &QueueName, jobs: u64) {
        self.counters.jobs.add(jobs);
        self.tubes.put(tube, jobs);
    }

    /// A tube with jobs or connections, or the default one, which always exists, as the store and as the connections
    /// know it.
    async fn tube(&self, name: &QueueName) -> Result<Option<(Option<QueueStats>, Tube)>, Error> {
        let stats = match self.store.stats(name.clone()).await {
            Ok(stats) => Some(stats),
            Err(Error::UnknownQueue { .. }) => None,
            Err(error) => return Err(error),
        };
        let own = self.tubes.get(name).unwrap_or_default();
        let exists =
            own.is_connected() || *name == session::default_tube() || stats.as_ref().is_some_and(has_jobs);
        Ok(exists.then_some((stats, own)))
    }

    /// All tubes, as they are after this was called.
    async fn census(&self) -> Result<Arc<Census>, Error> {
        self.walks.census(&*self.store, || self.tubes.connected()).await
    }

    /// Called before a connection uses or watches a tube. A tube that had neither jobs nor connections is new, even if
    /// one had this name before: the remaining pause of that one ends. A pause that was made over another protocol
    /// stays.
    async fn begin_anew(&self, name: &QueueName) {
        let Some(until) = self.tubes.left_paused(name).filter(|_| *name != session::default_tube()) else {
            return;
        };
        match self.store.stats(name.clone()).await {
            Ok(stats) if has_jobs(&stats) => return,
            Ok(stats) if stats.settings.pause == Pause::Until(until) => {
                let end = SettingChange::Reset(SettingName::Pause);
                if self.store.configure(name.clone(), vec![end]).await.is_err() {
                    return;
                }
            }
            Ok(_) | Err(Error::UnknownQueue { .. }) => {}
            Err(_) => return,
        }
        self.tubes.unpaused(name, until);
    }

    /// Forgets tubes without jobs and connections, from time to time.
    async fn forget_gone_tubes(&self) {
        let candidates = self.tubes.to_look_at();
        if candidates.is_empty() {
            return;
        }
        let mut gone = Vec::new();
        for name in candidates {
            if matches!(self.store.stats(name.clone()).await, Err(Error::UnknownQueue { .. })) {
                gone.push(name);
            }
        }
        self.tubes.forget(&gone);
    }
}

impl fmt::Debug for BeanstalkdShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("config", &self.config).finish_non_exhaustive()
    }
}

/// A queue that only has settings is not a tube.
fn has_jobs(queue: &QueueStats) -> bool {
    let counts = &queue.counts;
    counts.scheduled + counts.ready + counts.leased + counts.dead > 0
}

#[cfg(test)]
mod tests {
    use dwell_model::Limits;
    use dwell_store::{MemoryStore, Put};
    use dwell_time::SystemClock;

    use super::*;

    #[tokio::test]
    async fn tubes_that_are_gone_with_their_last_job_leave_nothing() {
        let clock = Arc::new(SystemClock::new());
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Limits::default(), Arc::clone(&clock) as _));
        let (returns, _returned) = Returns::start(Arc::clone(&store));
        let (_drain, draining) = watch::channel(false);
        let config = BeanstalkdConfig::default();
        let (metrics, memory) = (Arc::default(), Memory::new(1 << 20));
        let shared =
            BeanstalkdShared::new(Arc::clone(&store), config, clock, returns, draining, metrics, memory);
        let shared = Arc::new(shared);
        let mut session = session::Session::new(Arc::clone(&shared), String::new());
        for at in 0..10_000 {
            let queue = QueueName::new(&format!("q{at}")).unwrap();
            let put = store.put(vec![Put::new(queue, "x")]).await.pop().unwrap().unwrap();
            let mut replies = Replies::default();
            command::delete_all(&mut session, &[put.number.get()], &mut replies).await;
            assert_eq!(&replies.bytes[..], b"DELETED\r\n");
        }
        assert!(shared.tubes.len() < 4_096, "{} tubes are known of that are gone", shared.tubes.len());
    }
}

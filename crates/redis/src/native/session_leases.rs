//! Session leases: which processes are alive, and what happens to the leases of one that is not.
//!
//! 1. A process dies. The directory records where it binds leases and when it last sent a heartbeat. A process that
//!    sends its own heartbeat receives the names of those that were silent for too long, and frees what was bound to
//!    them.
//! 2. Redis is away for long, or its clock steps. Then all processes were silent, and none of them need be dead:
//!    `hello.lua` counts silence from the first heartbeat that arrives afterwards.
//! 3. A process was silent and is alive: its leases were freed and its entry was removed. The reply to its next
//!    heartbeat says so, and it registers again where it binds leases, some partitions at a time. Until that
//!    heartbeat it binds none elsewhere.
//! 4. A process binds leases in ever other partitions. Where it has bound none for a while and holds none any more,
//!    the directory removes the entry. Meanwhile nothing is bound there; a take that wants to waits, and registers
//!    the partition again.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use dwell_store::{Error, Result};
use futures_util::stream::{self, StreamExt as _};

use super::Inner;
use super::inspect::Retries;
use super::layout::Partition;
use super::pack::{Fields, Pack, PackReply};
use super::script_call::locked;
use super::scripts::Script;

/// A process that was silent for this long, in ms, is considered dead.
const SILENT_MS: u32 = 15_000;

/// How long after its last heartbeat a process may rely on its entry in the directory, in ms.
const TRUSTED_MS: u64 = 10_000;

/// The maximum number of partitions that one script enters or removes for a process.
const PLACES: usize = 512;

/// A partition where nothing was bound for this long, in ms, is checked for session leases, and again after as long
/// while it has some.
const IDLE_MS: u64 = 60_000;
const HELD_MS: u64 = 10 * 60_000;

/// The delay before a release that failed is retried.
const AGAIN: Duration = Duration::from_millis(100);

/// The partitions where this process binds leases.
#[derive(Debug, Default)]
pub(super) struct SessionLeases {
    /// Those that the directory has entered, and when something was last bound there, on the store's clock.
    entered: HashMap<Partition, u64>,
    /// Those that it had entered before it removed this process.
    lost: HashSet<Partition>,
    /// The partitions where takes under way may bind leases, and the number of such takes.
    binding: HashMap<Partition, usize>,
    /// The partitions that the directory is about to remove.
    leaving: HashSet<Partition>,
    /// The number of times that it has removed this process.
    forgotten: u64,
    /// When it last received a heartbeat of this process, on the clock for timeouts.
    heard_ms: u64,
}

impl SessionLeases {
    /// Whether leases may be bound in a partition, by what is known here.
    fn is_known(&self, at: &Partition, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.heard_ms) < TRUSTED_MS && self.entered.contains_key(at)
    }

    /// The number of partitions that are remembered.
    pub(super) fn places(&self) -> usize {
        self.entered.len() + self.lost.len() + self.binding.len() + self.leaving.len()
    }
}

/// A take that may bind leases is under way: the directory keeps the entries of its partitions.
pub(super) struct SessionTake<'a> {
    inner: &'a Inner,
    places: Vec<Partition>,
}

impl Drop for SessionTake<'_> {
    fn drop(&mut self) {
        let now_ms = self.inner.clock.now().mono_ms;
        let mut session = locked(&self.inner.session);
        for at in &self.places {
            if let Some(used_ms) = session.entered.get_mut(at) {
                *used_ms = now_ms;
            }
            if let Some(takes) = session.binding.get_mut(at) {
                *takes -= 1;
                if *takes == 0 {
                    session.binding.remove(at);
                }
            }
        }
        let was_last = session.binding.is_empty();
        drop(session);
        if was_last {
            self.inner.left.notify_waiters();
        }
    }
}

/// Partitions that the directory is about to remove: nothing is bound there until the outcome is known.
struct Leaving<'a> {
    inner: &'a Inner,
    places: Vec<Partition>,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut session = locked(&self.inner.session);
        for at in &self.places {
            session.leaving.remove(at);
        }
        drop(session);
        self.inner.left.notify_waiters();
    }
}

impl Inner {
    /// Registers that leases of this process may be bound in some partitions, for as long as the returned guard is
    /// kept and some time after. No lease may be bound once the process has begun to leave.
    pub(super) async fn enter_session_leases<'a>(
        &self,
        places: impl IntoIterator<Item = &'a Partition>,
    ) -> Result<SessionTake<'_>> {
        let places: Vec<Partition> = places.into_iter().cloned().collect();
        let (binding, unknown) = loop {
            let left = self.left.notified();
            tokio::pin!(left);
            left.as_mut().enable();
            {
                let mut session = locked(&self.session);
                // Under this lock: a process that leaves waits for all takes that have come before.
                if self.has_left.load(Ordering::SeqCst) {
                    return Err(Error::Closed);
                }
                if !places.iter().any(|at| session.leaving.contains(at)) {
                    places.iter().for_each(|at| *session.binding.entry(at.clone()).or_default() += 1);
                    let now_ms = self.wire.mono_ms();
                    let unknown = places.iter().filter(|at| !session.is_known(at, now_ms));
                    let unknown: Vec<Partition> = unknown.cloned().collect();
                    break (SessionTake { inner: self, places }, unknown);
                }
            }
            left.await;
        };
        for some in unknown.chunks(PLACES) {
            self.say_hello(some, &Fields::new(), Retries::Usual).await?;
        }
        Ok(binding)
    }

    /// Registers this process. What a process of the same name had bound before is freed. Returns the default number of
    /// partitions of the other processes if it differs: then nothing was done.
    pub(super) async fn introduce(&self, client: Option<&str>) -> Result<Option<u64>> {
        let reply = self.wire.directory(Script::Names, Fields::new().with("max", 0_u32)).await?;
        self.note_count(&reply);
        let introduction = Fields::new()
            .with("partitions", u32::from(self.limits.defaults.partitions))
            .maybe("client", client);
        let reply = self.say_hello(&[], &introduction, Retries::Usual).await?;
        if let Some(there) = reply.get("partitions").uint() {
            return Ok(Some(there));
        }
        if let Some(before) = reply.get("before").bytes() {
            // Leases that are not freed now are freed when that process has been silent for long.
            let _ = self.free_session_leases(before).await;
        }
        Ok(None)
    }

    /// Sends a heartbeat, and returns the processes that have been silent for too long.
    pub(super) async fn be_heard(&self) -> Result<Vec<Bytes>> {
        let reply = self.say_hello(&[], &Fields::new(), Retries::Once).await?;
        while !locked(&self.session).lost.is_empty() {
            self.say_hello(&[], &Fields::new(), Retries::Once).await?;
        }
        let gone = reply.get("gone").items().iter().filter_map(|gone| gone.bytes().cloned());
        Ok(gone.filter(|gone| gone.as_ref() != self.wire.process).collect())
    }

    /// The directory may have lost where this process binds leases: the next heartbeat registers it again.
    pub(super) fn enter_session_leases_again(&self) {
        let mut session = locked(&self.session);
        let entered = std::mem::take(&mut session.entered);
        session.lost.extend(entered.into_keys());
    }

    /// Sends a heartbeat, and registers that this process may bind leases in some partitions, at most as many as one
    /// script takes, and in some of those that the directory has lost.
    async fn say_hello(
        &self,
        places: &[Partition],
        introduction: &Fields,
        patience: Retries,
    ) -> Result<PackReply> {
        loop {
            let began_ms = self.wire.mono_ms();
            let (forgotten, has, said) = {
                let session = locked(&self.session);
                let mut said: HashSet<_> = places.iter().cloned().collect();
                let room = PLACES.saturating_sub(said.len());
                said.extend(session.lost.iter().take(room).cloned());
                (session.forgotten, !session.entered.is_empty(), said)
            };
            let entries: Vec<_> = said.iter().map(|at| Pack::from(at.entry().as_str())).collect();
            let arguments = introduction
                .clone()
                .with("process", &self.wire.process[..])
                .with("silent", SILENT_MS)
                .maybe("session", Some(entries).filter(|entries| !entries.is_empty()))
                .flag("has", has);
            let reply = self.wire.directory_within(Script::Hello, arguments, patience).await?;
            let now_ms = self.clock.now().mono_ms;
            let mut session = locked(&self.session);
            let is_forgotten = reply.get("forgotten").is_set();
            if session.forgotten != forgotten {
                // Another call has noticed it, and what was registered here may have been removed too.
                continue;
            }
            if is_forgotten {
                session.forgotten += 1;
                let entered = std::mem::take(&mut session.entered);
                session.lost.extend(entered.into_keys());
                continue;
            }
            for at in said {
                session.lost.remove(&at);
                session.entered.insert(at, now_ms);
            }
            session.heard_ms = session.heard_ms.max(began_ms);
            return Ok(reply);
        }
    }

    /// Removes from the directory the partitions where this process has bound nothing for a while and holds nothing
    /// any more.
    pub(super) async fn leave_idle_partitions(&self) -> Result<()> {
        loop {
            let now_ms = self.clock.now().mono_ms;
            let idle: Vec<(Partition, u64)> = {
                let session = locked(&self.session);
                let idle = session.entered.iter().filter(|(at, used_ms)| {
                    now_ms.saturating_sub(**used_ms) >= IDLE_MS && !session.binding.contains_key(*at)
                });
                idle.take(PLACES).map(|(at, used_ms)| (at.clone(), *used_ms)).collect()
            };
            if idle.is_empty() {
                return Ok(());
            }
            let asked = stream::iter(idle).map(|(at, used_ms)| async move {
                let named = Fields::new().with("process", &self.wire.process[..]);
                let asked = self.ask_within(&at, Script::Holds, named, Retries::Once).await;
                // A partition that cannot be asked may have some.
                (at, used_ms, asked.is_ok_and(|asked| !asked.reply.get("holds").is_set()))
            });
            let asked: Vec<(Partition, u64, bool)> = asked.buffer_unordered(16).collect().await;
            let leaving = {
                let mut session = locked(&self.session);
                let mut places = Vec::new();
                for (at, used_ms, has_none) in asked {
                    // Something may have been bound there since the partition was asked.
                    if session.entered.get(&at) != Some(&used_ms) || session.binding.contains_key(&at) {
                        continue;
                    }
                    if has_none {
                        session.entered.remove(&at);
                        session.leaving.insert(at.clone());
                        places.push(at);
                    } else {
                        session.entered.insert(at, now_ms + HELD_MS - IDLE_MS);
                    }
                }
                Leaving { inner: self, places }
            };
            if leaving.places.is_empty() {
                continue;
            }
            let entries: Vec<_> = leaving.places.iter().map(|at| Pack::from(at.entry().as_str())).collect();
            let named = Fields::new().with("process", &self.wire.process[..]).with("left", entries);
            if let Err(error) = self.wire.directory_within(Script::Session, named, Retries::Once).await {
                // It is unknown whether the directory has removed them: they are registered again, and removed
                // another time.
                locked(&self.session).lost.extend(leaving.places.iter().cloned());
                return Err(error);
            }
        }
    }

    /// Frees the leases of a session which has ended. Where Redis is away, a later heartbeat retries.
    /// Where foreign data is in the way, they run out at their deadlines.
    pub(super) async fn free_session_leases(&self, process: &[u8]) -> Result<()> {
        self.free(process, Fields::new().with("process", process), Retries::Usual).await
    }

    /// Releases all leases of this session, which ends in order: no attempt is spent.
    ///
    /// The process has begun to leave, so no more are bound and this ends. Where Redis does not answer it is retried,
    /// for as long as this is awaited.
    ///
    /// # Errors
    /// Foreign data is in the way: leases there run out at their deadlines.
    pub(super) async fn release_session_leases(&self) -> Result<()> {
        let mut emptied: HashSet<Partition> = HashSet::new();
        loop {
            let left = self.left.notified();
            tokio::pin!(left);
            left.as_mut().enable();
            let (places, is_binding) = {
                let session = locked(&self.session);
                let places = session.entered.keys().chain(&session.lost).filter(|at| !emptied.contains(at));
                (places.cloned().collect::<Vec<_>>(), !session.binding.is_empty())
            };
            let (done, answer) = self.free_in(places, &self.wire.process, Retries::Usual, true).await;
            emptied.extend(done);
            match answer {
                Err(error) if error.is_retryable() => tokio::time::sleep(AGAIN).await,
                // Takes under way may still bind some. Those among them that wait for the leases of others find these
                // released by now.
                _ if is_binding => {
                    left.await;
                    emptied.clear();
                }
                answer => return answer,
            }
        }
    }

    /// Removes this process from the directory: nothing is bound to it any more. If the call fails, other processes
    /// find that out.
    pub(super) async fn forget_session_leases(&self) {
        let named = Fields::new().with("process", &self.wire.process[..]).flag("forget", true);
        let _ = self.wire.directory_within(Script::Session, named, Retries::Once).await;
    }

    /// The same, for a process that was silent for too long, unless it has sent a heartbeat by now.
    pub(super) async fn free_silent(&self, process: &[u8]) -> Result<()> {
        let named = Fields::new().with("process", process).with("silent", SILENT_MS);
        self.free(process, named, Retries::Once).await
    }

    async fn free(&self, process: &[u8], named: Fields, patience: Retries) -> Result<()> {
        let reply = self.wire.directory(Script::Session, named.clone()).await?;
        let parts = reply.get("parts").items().iter();
        let parts = parts.filter_map(|entry| entry.text().and_then(Partition::of_entry)).collect();
        match self.free_in(parts, process, patience, false).await.1 {
            Ok(()) | Err(Error::ForeignData { .. }) => {}
            Err(error) => return Err(error),
        }
        self.wire.directory(Script::Session, named.flag("forget", true)).await?;
        Ok(())
    }

    /// Ends what is bound to a process in some partitions, in slices. All partitions are tried, whatever happens in
    /// some of them, and some at a time. Returns those where nothing is left, and an error of the others: a retryable error
    /// is reported before one that is not.
    async fn free_in(
        &self,
        parts: Vec<Partition>,
        process: &[u8],
        patience: Retries,
        releases: bool,
    ) -> (Vec<Partition>, Result<()>) {
        let freed = parts.into_iter().map(|at| async move {
            loop {
                let freed = Fields::new().with("process", process).with("max", 64_u32);
                let freed = freed.flag("release", releases);
                let freed = self.ask_within(&at, Script::Unbind, freed, patience).await;
                let has_more = freed.map_err(super::dead::failed)?.reply.get("left").is_set();
                self.released.fetch_add(1, Ordering::Relaxed);
                if !has_more {
                    return Ok(at);
                }
            }
        });
        let freed: Vec<Result<Partition>> =
            stream::iter(freed.collect::<Vec<_>>()).buffer_unordered(16).collect().await;
        let (mut emptied, mut failed) = (Vec::new(), Vec::new());
        for freed in freed {
            match freed {
                Ok(at) => emptied.push(at),
                Err(error) => failed.push(error),
            }
        }
        failed.sort_by_key(|error: &Error| !error.is_retryable());
        (emptied, failed.into_iter().next().map_or(Ok(()), Err))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use dwell_model::{Limits, QueueName, Timestamp};
    use dwell_store::{Put, Store as _, Take};
    use dwell_testkit::redis::Server;
    use dwell_time::{Clock, ManualClock};

    use super::{Fields, SILENT_MS, Script};
    use crate::RedisStore;

    /// A call that began before the process left binds after that.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nothing_is_bound_once_a_process_leaves() {
        let server = Server::start();
        let store = RedisStore::open(server.address(), Limits::default()).await.unwrap();
        let jobs = QueueName::new("jobs").unwrap();
        store.put(vec![Put::new(jobs.clone(), "m")]).await.pop().unwrap().unwrap();
        assert_eq!(store.leave().await, Ok(true));
        let late = store.inner.take(&Take::from(jobs.clone()).session(), false).await;
        assert_eq!(late.unwrap_err(), super::Error::Closed);
        let plain = store.inner.take(&Take::from(jobs), false).await.unwrap();
        assert_eq!(plain.deliveries.len(), 1, "it lies there");
    }

    /// Those that cannot be freed, because their nodes are away, stay in the list.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn many_silent_processes_that_stay_hide_no_others() {
        const SILENT: usize = 40;
        let server = Server::start();
        let clock = ManualClock::new(Timestamp::from_ms(1_795_000_000_000).unwrap());
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let store = RedisStore::open_for_test(server.address(), Limits::default(), shared).await.unwrap();
        store.beat_no_more_for_test();
        let hello = async || {
            let arguments = Fields::new().with("process", &b"observer"[..]).with("silent", SILENT_MS);
            let reply = store.inner.wire.directory(Script::Hello, arguments).await.unwrap();
            reply.get("gone").items().iter().map(|name| name.bytes().unwrap().to_vec()).collect::<Vec<_>>()
        };
        hello().await;
        let directory: Vec<String> =
            redis::from_redis_value(server.command(&["KEYS", "{dwell}:heartbeats"])).unwrap();
        assert_eq!(directory.len(), 1, "{directory:?}");
        let name = |n: usize| format!("silent{n:02}");
        for n in 0..SILENT {
            server.command(&["ZADD", &directory[0], &n.to_string(), &name(n)]);
        }
        let mut seen = HashSet::new();
        for call in 0..400 {
            clock.advance(u64::from(SILENT_MS / 4) + 1);
            let gone = hello().await;
            assert!(gone.len() <= 16 && (call < 8 || !gone.is_empty()), "call {call}: {}", gone.len());
            seen.extend(gone);
        }
        for n in 0..SILENT {
            assert!(seen.contains(name(n).as_bytes()), "{n} was never named");
        }
    }
}

//! Removing all messages of a queue at once: they are set aside as a whole, count as deleted, and are freed later.

use std::sync::atomic::Ordering;

use dwell_model::{QueueName, SettingChange, SettingName};
use dwell_store::{Error, Result};
use futures_util::stream::{self, StreamExt as _};

use super::Inner;
use super::dead::{broken_off, failed};
use super::inspect::{NAMES, Retries, is_bare};
use super::layout::Partition;
use super::pack::Fields;
use super::partition::{NoAnswer, with_partitions};
use super::script_call::{locked, unknown_after};
use super::scripts::Script;

/// The maximum number of messages that one script frees.
const CHUNK: u32 = 128;
/// The maximum number of partitions that are cleared at a time.
const SIDE_BY_SIDE: usize = 4;
/// How often all queues are checked for data that other processes have set aside, in ms.
const LOOK_MS: u64 = 60 * 60 * 1_000;

/// The outcome of a drop.
pub(super) struct Dropped {
    /// The number of messages that were deleted.
    pub(super) done: u64,
    /// The settings are deleted, except for the queue's own number of partitions.
    has_partitions: bool,
}

impl Inner {
    /// See [`Store::purge`](dwell_store::Store::purge).
    pub(super) async fn purge(&self, queue: &QueueName) -> Result<u64> {
        Ok(self.drop_all(queue, Fields::new().flag("pending", true)).await?.done)
    }

    /// See [`Store::delete_queue`](dwell_store::Store::delete_queue).
    pub(super) async fn delete_queue(&self, queue: &QueueName) -> Result<u64> {
        let all = Fields::new().flag("pending", true).flag("dead", true).flag("own", true);
        let Dropped { done, has_partitions } = self.drop_all(queue, all).await?;
        if has_partitions {
            // As any change of it: not while there are messages, and in all partitions or none.
            let reset = vec![SettingChange::Reset(SettingName::Partitions)];
            match self.configure(queue, reset).await {
                Ok(_) | Err(Error::SettingFixed { .. }) => {}
                Err(error) => return Err(unknown_after(error)),
            }
        }
        Ok(done)
    }

    pub(super) async fn drop_all(&self, queue: &QueueName, what: Fields) -> Result<Dropped> {
        // What was dropped stays dropped, even if the number of partitions turns out to be another one on the way.
        let (mut done, mut has_partitions, mut begun) = (0, false, false);
        let dropped = with_partitions!(self, queue, |partitions| {
            let mut bare = true;
            for at in Partition::all(queue, partitions) {
                let reply = self.on(&at, partitions, Script::Drop, what.clone()).await?.reply;
                begun = true;
                done += reply.get("done").uint().unwrap_or(0);
                has_partitions |= reply.get("kept").is_set();
                bare &= is_bare(&reply);
                if reply.get("trash").is_set() {
                    locked(&self.trash).insert(at);
                }
            }
            Ok::<_, NoAnswer>(bare)
        });
        let bare = dropped.map_err(|error| broken_off(error, begun))?;
        // The first slice is freed at once; the rest later. What this process does not reach is found by another: the
        // queue stays registered as long, and its stats report it.
        let here: Vec<_> = locked(&self.trash).iter().filter(|at| at.queue == *queue).cloned().collect();
        for at in here {
            if self.clear(&at, 1, Retries::Usual).await.is_ok_and(|left| !left) {
                locked(&self.trash).remove(&at);
            }
        }
        if bare {
            self.note_bare(queue).await;
        }
        Ok(Dropped { done, has_partitions })
    }

    /// Checks all queues for data that was set aside by processes that have ended since, and for dead messages past
    /// their queues' retention; soon after this process has begun, and then every hour.
    pub(super) async fn find_trash(&self) -> Result<()> {
        let now_ms = self.wire.mono_ms();
        if now_ms < self.look_ms.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut after = None;
        loop {
            // Reading the stats of a queue notes what is there.
            let page = self.survey(after.as_ref(), NAMES, Retries::Once).await?;
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        self.look_ms.store(now_ms + LOOK_MS, Ordering::Relaxed);
        Ok(())
    }

    /// Frees all that this process knows of, in some partitions at a time, so that one that does not answer delays
    /// few others, and not for long. What fails now is retried.
    pub(super) async fn clear_trash(&self) {
        let _ = self.find_trash().await;
        let trash: Vec<_> = locked(&self.trash).iter().cloned().collect();
        let cleared = trash.into_iter().map(|at| async move { self.clear_all(&at).await });
        stream::iter(cleared).buffer_unordered(SIDE_BY_SIDE).collect::<()>().await;
    }

    async fn clear_all(&self, at: &Partition) {
        while let Ok(left) = self.clear(at, 16, Retries::Once).await {
            if !left {
                locked(&self.trash).remove(at);
                // That may have been the last of it.
                locked(&self.bare).insert(at.queue.clone());
                return;
            }
        }
    }

    /// Frees what was set aside, in at most `calls` calls, and returns whether there is more.
    pub(super) async fn clear(&self, at: &Partition, calls: u32, patience: Retries) -> Result<bool> {
        for _ in 0..calls {
            let arguments = Fields::new().with("max", CHUNK);
            let asked = self.ask_within(at, Script::Sweep, arguments, patience).await;
            if !asked.map_err(failed)?.reply.get("left").is_set() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

//! Removing a queue's messages at once: they are set aside whole, count as gone, and are cleared away behind.

use dwell_model::QueueName;
use dwell_store::Result;

use super::Inner;
use super::dead::failed;
use super::inspect::is_bare;
use super::layout::Partition;
use super::pack::Fields;
use super::partition::{Fault, spreading};
use super::scripts::Script;

/// How many messages one script clears away.
const CHUNK: u32 = 128;

impl Inner {
    /// See [`Store::purge`](dwell_store::Store::purge).
    pub(super) async fn purge(&self, queue: &QueueName) -> Result<u64> {
        self.drop_all(queue, Fields::new().flag("pending", true)).await
    }

    /// See [`Store::delete_queue`](dwell_store::Store::delete_queue).
    pub(super) async fn delete_queue(&self, queue: &QueueName) -> Result<u64> {
        let all = Fields::new().flag("pending", true).flag("dead", true).flag("own", true);
        self.drop_all(queue, all).await
    }

    pub(super) async fn drop_all(&self, queue: &QueueName, what: Fields) -> Result<u64> {
        let (done, bare, trash) = spreading!(self, queue, |spread| {
            let (mut done, mut bare, mut trash) = (0, true, Vec::new());
            for at in Partition::all(queue, spread) {
                let reply = self.on(&at, spread, Script::Drop, what.clone()).await?.reply;
                done += reply.get("done").uint().unwrap_or(0);
                bare &= is_bare(&reply);
                if reply.get("trash").is_set() {
                    trash.push(at);
                }
            }
            Ok::<_, Fault>((done, bare, trash))
        })?;
        for at in trash {
            // The first of it at once; the rest when there is time.
            if self.clear(&at, 1).await.is_ok_and(|left| left) {
                super::wire::locked(&self.trash).insert(at);
            }
        }
        if bare {
            self.note_bare(queue).await;
        }
        Ok(done)
    }

    /// Clears away what was set aside, in at most so many calls; whether there is more.
    pub(super) async fn clear(&self, at: &Partition, calls: u32) -> Result<bool> {
        for _ in 0..calls {
            let arguments = Fields::new().with("max", CHUNK);
            let reply = self.ask(at, Script::Sweep, arguments).await.map_err(failed)?.reply;
            if !reply.get("left").is_set() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

//! Discarding dead messages that are past their queues' retention, where there are more of them than calls discard
//! along the way.
//!
//! Each script that applies time to a partition discards some, the oldest deaths first. Where more are left its reply
//! says so, and this process discards the rest in the background, in short scripts. Partitions that no call comes
//! upon are found by a pass over all queues, which a process makes soon after it was opened, and then every hour.
//! Until then messages past their retention take memory, but no reader sees them.

use futures_util::stream::{self, StreamExt as _};

use super::Inner;
use super::inspect::Retries;
use super::layout::Partition;
use super::pack::Fields;
use super::script_call::locked;
use super::scripts::Script;

/// The maximum number of partitions that are processed at a time.
const SIDE_BY_SIDE: usize = 4;

impl Inner {
    /// Discards what is past retention in the partitions that this process knows of, some of them at a time, so that
    /// one that does not answer delays few others, and not for long. What fails now is retried.
    pub(super) async fn retain_all(&self) {
        let partitions: Vec<_> = locked(&self.retaining).iter().cloned().collect();
        let retained = partitions.into_iter().map(|at| async move { self.retain_in(&at).await });
        stream::iter(retained).buffer_unordered(SIDE_BY_SIDE).collect::<()>().await;
    }

    async fn retain_in(&self, at: &Partition) {
        while let Ok(answered) = self.ask_within(at, Script::Retain, Fields::new(), Retries::Once).await {
            if !answered.reply.get("retain").is_set() {
                locked(&self.retaining).remove(at);
                if answered.reply.get("bare").is_set() {
                    locked(&self.bare).insert(at.queue.clone());
                }
                return;
            }
        }
    }
}

//! Discarding dead messages that are past their queues' retention, where there are more of them than calls discard by the way.
//!
//! Each script that lets time act on a partition discards some, the oldest deaths first. Where more are left it says so, and this
//! process does the rest when it has time, in short scripts. What nobody comes upon is found by whoever looks through all queues, as
//! a process does soon after it was opened, and then every hour. Until then nobody sees those whose time is over.

use futures_util::stream::{self, StreamExt as _};

use super::Inner;
use super::inspect::Patience;
use super::layout::Partition;
use super::pack::Fields;
use super::scripts::Script;
use super::wire::locked;

/// In so many partitions at a time.
const SIDE_BY_SIDE: usize = 4;

impl Inner {
    /// Discards what is past retention in the partitions that this process knows of, some of them at a time: one that does not
    /// answer keeps few from their turn, and not for long. What can not be done now is tried again.
    pub(super) async fn retain_all(&self) {
        let partitions: Vec<_> = locked(&self.retaining).iter().cloned().collect();
        let retained = partitions.into_iter().map(|at| async move { self.retain_in(&at).await });
        stream::iter(retained).buffer_unordered(SIDE_BY_SIDE).collect::<()>().await;
    }

    async fn retain_in(&self, at: &Partition) {
        while let Ok(answered) = self.ask_within(at, Script::Retain, Fields::new(), Patience::Once).await {
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

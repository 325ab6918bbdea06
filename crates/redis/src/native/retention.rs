//! Discarding dead messages that are past their queues' retention, where there are more of them than calls discard by the way.
//!
//! Each script that lets time act on a partition discards some, the oldest deaths first. Where more are left it says so, and this
//! process does the rest when it has time, in short scripts. What nobody comes upon is found by whoever looks through all queues, as
//! a process does soon after it was opened, and then every hour. Until then nobody sees those whose time is over.

use super::Inner;
use super::dead::failed;
use super::pack::Fields;
use super::scripts::Script;
use super::wire::locked;

impl Inner {
    /// Discards what is past retention in the partitions that this process knows of. What can not be done now is tried again.
    pub(super) async fn retain_all(&self) {
        let partitions: Vec<_> = locked(&self.retaining).iter().cloned().collect();
        for at in partitions {
            while let Ok(answered) = self.ask(&at, Script::Retain, Fields::new()).await.map_err(failed) {
                if !answered.reply.get("retain").is_set() {
                    locked(&self.retaining).remove(&at);
                    if answered.reply.get("bare").is_set() {
                        locked(&self.bare).insert(at.queue.clone());
                    }
                    break;
                }
            }
        }
    }
}

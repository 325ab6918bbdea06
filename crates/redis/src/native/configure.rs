//! Changing a queue's settings: read, changed here, and written if no other process has written meanwhile.
//!
//! Each partition has a copy with the version of the change that it comes from. The first partition's copy decides,
//! and is written first; a process that reads another one's before it is written acts by settings of a moment ago. A
//! change that was interrupted is completed by the next process that reads the queue's stats. A change of the number of
//! partitions has more steps: `partitions`.

use dwell_model::{QueueName, SettingChange, SettingName};
use dwell_store::{Error, QueueStats, Result};

use super::Inner;
use super::layout::Partition;
use super::pack::Fields;
use super::partition::{NoAnswer, PartitionAnswer, unreadable, with_partitions};
use super::repartition::Repartition;
use super::script_call::unknown_after;
use super::scripts::Script;
use super::settings::{read, stored, unknown};

impl Inner {
    /// See [`Store::configure`](dwell_store::Store::configure).
    pub(super) async fn configure(
        &self,
        queue: &QueueName,
        changes: Vec<SettingChange>,
    ) -> Result<QueueStats> {
        self.limits.check_batch(changes.len())?;
        for change in &changes {
            if let SettingChange::Set(setting) = change {
                setting.check()?;
            }
        }
        with_partitions!(self, queue, |partitions| loop {
            if let Some(stats) = self.try_configure(queue, partitions, &changes).await? {
                return Ok(stats);
            }
        })
    }

    /// `None` if another process has changed them meanwhile.
    async fn try_configure(
        &self,
        queue: &QueueName,
        partitions: u16,
        changes: &[SettingChange],
    ) -> std::result::Result<Option<QueueStats>, NoAnswer> {
        let told = self.tell(queue, partitions).await?;
        let mut own = told.own.clone();
        let default = self.limits.defaults.pause;
        changes.iter().for_each(|change| own.change(change.clone().as_of(told.now, default)));
        let next_partitions = own.over(&self.limits.defaults).partitions;
        let moves = next_partitions != partitions;
        let fixed = || Error::SettingFixed { queue: queue.clone(), setting: SettingName::Partitions };
        let counts = told.counts;
        if moves && counts.scheduled + counts.ready + counts.leased + counts.dead > 0 {
            return Err(fixed().into());
        }
        let known = !told.bare || self.waiters.count(queue) > 0;
        if told.bare && own.is_empty() {
            return Ok(Some(self.stats_of(queue, told)));
        }
        let mut reg = None;
        if told.bare {
            let entered = self.enter(queue).await?;
            if entered.full && !known {
                return Err(Error::TooManyQueues { limit: self.limits.queues }.into());
            }
            reg = entered.reg;
        }
        let mut copies = Vec::new();
        for at in Partition::all(queue, partitions.max(next_partitions)) {
            copies.push(self.ask(&at, Script::Stats, Fields::new()).await?);
        }
        let version = |copy: &PartitionAnswer| copy.reply.get("version").uint().unwrap_or(0);
        let first = read(copies[0].reply.get("own"), copies[0].now, &self.limits.defaults);
        let first = first.ok_or_else(|| unreadable(queue))?;
        if first != told.own || copies[0].reply.get("change").is_set() {
            return Ok(None);
        }
        // Higher than the version of any earlier change, however far that came.
        let number = copies.iter().map(version).max().unwrap_or(0) + 1;
        let unknown = unknown(copies[0].reply.get("own"));
        let after = stored(&own, &unknown);
        let step = Fields::new().with("version", version(&copies[0])).with("next", number).maybe("reg", reg);
        let step = match moves {
            false => step.maybe("own", after.as_deref()),
            true => {
                let moving =
                    Repartition::new(partitions, next_partitions, stored(&told.own, &unknown), after.clone());
                step.flag("keep", true).with("change", moving.packed()).flag("fixed", true)
            }
        };
        let reply = self.ask(&Partition::new(queue, 0), Script::Configure, step).await?.reply;
        if reply.get("fixed").is_set() {
            return Err(fixed().into());
        }
        if !reply.get("done").is_set() {
            return Ok(None);
        }
        // From here on the settings are changed, or may be.
        let broken_off = |fault| match fault {
            NoAnswer::Failed(error) => NoAnswer::Failed(unknown_after(error)),
            NoAnswer::Partitions => fault,
        };
        if moves {
            if self.finish_change(queue).await.map_err(unknown_after)? != next_partitions {
                return Err(fixed().into());
            }
        } else {
            // A change that is interrupted here is completed by the next process that reads the queue's stats.
            for at in Partition::all(queue, partitions).into_iter().skip(1) {
                let step = Fields::new().with("next", number).maybe("own", after.as_deref());
                self.ask(&at, Script::Configure, step).await.map_err(broken_off)?;
            }
        }
        let told = self.tell(queue, next_partitions).await.map_err(broken_off)?;
        let bare = told.bare;
        let stats = self.stats_of(queue, told);
        if bare {
            self.note_bare(queue).await;
        }
        Ok(Some(stats))
    }
}

//! Changing a queue's settings: read, changed here, and written if nobody has written meanwhile.
//!
//! Each partition has a copy with a version. The first partition's decides; a process that reads another one's before
//! it is written acts by settings of a moment ago.

use dwell_model::{OwnSettings, QueueName, SettingChange, SettingName};
use dwell_store::{Error, QueueStats, Result};

use super::Inner;
use super::inspect::is_bare;
use super::layout::Partition;
use super::pack::Fields;
use super::partition::{Fault, spreading, unreadable};
use super::scripts::Script;
use super::settings::{read, stored};

/// A partition as it was before.
struct Copy {
    at: Partition,
    version: u64,
    own: OwnSettings,
}

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
        spreading!(self, queue, |spread| loop {
            if let Some(stats) = self.try_configure(queue, spread, &changes).await? {
                return Ok(stats);
            }
        })
    }

    /// `None` if somebody else has changed them meanwhile.
    async fn try_configure(
        &self,
        queue: &QueueName,
        spread: u16,
        changes: &[SettingChange],
    ) -> std::result::Result<Option<QueueStats>, Fault> {
        let told = self.tell(queue, spread).await?;
        let mut own = told.own.clone();
        let default = self.limits.defaults.pause;
        changes.iter().for_each(|change| own.change(change.clone().as_of(told.now, default)));
        let next_spread = own.over(&self.limits.defaults).spread;
        let moves = next_spread != spread;
        let fixed = || Error::SettingFixed { queue: queue.clone(), setting: SettingName::Spread };
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
        let mut before = Vec::new();
        for at in Partition::all(queue, spread.max(next_spread)) {
            let stats = self.ask(&at, Script::Stats, Fields::new()).await?;
            let own = read(stats.reply.get("own"), stats.now, &self.limits.defaults);
            let (own, stats) = (own.ok_or_else(|| unreadable(queue))?, stats.reply);
            before.push(Copy { version: stats.get("version").uint().unwrap_or(0), own, at });
        }
        if before[0].own != told.own {
            return Ok(None);
        }
        let mut bare = true;
        for (index, copy) in before.iter().enumerate() {
            let place = copy.at.index;
            let kept = if place < next_spread { own.clone() } else { OwnSettings::default() };
            let arguments = Fields::new()
                .maybe("own", stored(&kept).as_deref())
                .with("version", copy.version)
                .with("next", copy.version + 1)
                .maybe("reg", reg)
                .flag("fixed", moves);
            let reply = self.ask(&copy.at, Script::Configure, arguments).await?.reply;
            if !reply.get("done").is_set() {
                self.undo(&before[..index]).await?;
                return if reply.get("fixed").is_set() { Err(fixed().into()) } else { Ok(None) };
            }
            bare &= is_bare(&reply);
        }
        self.note_spread(queue, next_spread);
        let told = self.tell(queue, next_spread).await?;
        let stats = self.stats_of(queue, told);
        if bare {
            self.note_bare(queue).await;
        }
        Ok(Some(stats))
    }

    /// Writes back what was there, where nobody has written since.
    async fn undo(&self, copies: &[Copy]) -> std::result::Result<(), Fault> {
        for copy in copies {
            let arguments = Fields::new()
                .maybe("own", stored(&copy.own).as_deref())
                .with("version", copy.version + 1)
                .with("next", copy.version + 2);
            self.ask(&copy.at, Script::Configure, arguments).await?;
        }
        Ok(())
    }
}

//! Queues and the server itself: counts, settings, limits, and bulk operations.

use dwell_model::{Limits, QueueName, Setting, SettingChange, SettingName, format_duration_ms};
use dwell_store::{QueueDeaths, QueueStats, Result};
use dwell_wire::{BackoffSettings, Deaths, Operation, Path, QueuePage, Removed, ServerInfo, pause_text};
use serde_json::{Map, Value, json};

use crate::Client;
use crate::call::Call;
use crate::client::Inner;
use crate::look::MAX_PAGE;

impl Client {
    /// Returns the server's version, limits and default settings. They are requested once.
    ///
    /// # Errors
    /// As every call.
    pub async fn info(&self) -> Result<&ServerInfo> {
        self.inner.reactor.enter(self.inner.info()).await
    }

    /// Stops handing out messages of a queue for `for_ms` milliseconds, by the server's clock.
    ///
    /// # Errors
    /// As [`configure`](dwell_store::Store::configure).
    pub async fn pause_for(&self, queue: &QueueName, for_ms: u64) -> Result<QueueStats> {
        let path = Path::of(Operation::Pause, &[queue.as_str()]).query("for", format_duration_ms(for_ms));
        self.inner.reactor.enter(self.inner.queue(Call::change(path), false)).await
    }

    /// Hands out messages of a queue again, also where the server pauses queues by default.
    ///
    /// # Errors
    /// As [`configure`](dwell_store::Store::configure).
    pub async fn resume(&self, queue: &QueueName) -> Result<QueueStats> {
        let call = Call::change(Path::of(Operation::Resume, &[queue.as_str()])).harmless();
        self.inner.reactor.enter(self.inner.queue(call, false)).await
    }
}

impl Inner {
    pub(crate) async fn info(&self) -> Result<&ServerInfo> {
        self.asked().await.map(|(info, _)| info)
    }

    /// The limits of the server's store.
    pub(crate) async fn known_limits(&self) -> Result<&Limits> {
        self.asked().await.map(|(_, limits)| limits)
    }

    async fn asked(&self) -> Result<&(ServerInfo, Limits)> {
        if let Some(known) = self.info.get() {
            return Ok(known);
        }
        let info: ServerInfo = self.send(Call::read(Path::of(Operation::Limits, &[]))).await?;
        let limits = info.store_limits().map_err(|reason| self.unreadable(true, &reason))?;
        // A concurrent call may have stored the same answer meanwhile.
        Ok(self.info.get_or_init(|| (info, limits)))
    }

    pub(crate) fn limits(&self) -> &Limits {
        self.info.get().map_or(&self.default_limits, |(_, limits)| limits)
    }

    /// Refuses a batch that the server would refuse, before it is split.
    pub(crate) async fn check_batch(&self, items: usize) -> Result<()> {
        Ok(self.known_limits().await?.check_batch(items)?)
    }

    pub(crate) async fn stats(&self, queue: QueueName) -> Result<QueueStats> {
        self.queue(Call::read(Path::of(Operation::Queue, &[queue.as_str()])), true).await
    }

    async fn queue(&self, call: Call, reads: bool) -> Result<QueueStats> {
        let stats = self.send::<dwell_wire::QueueStats>(call).await?;
        QueueStats::try_from(stats).map_err(|reason| self.unreadable(reads, &reason))
    }

    pub(crate) async fn queues(&self, mut after: Option<QueueName>, max: usize) -> Result<Vec<QueueStats>> {
        let mut all = Vec::new();
        while all.len() < max {
            let wanted = (max - all.len()).min(MAX_PAGE);
            let path = Path::of(Operation::Queues, &[]).query_some("cursor", after).query("max", wanted);
            let page = self.send::<QueuePage>(Call::read(path)).await?;
            let (queues, next) =
                page.into_stats(&self.server).map_err(|reason| self.unreadable(true, &reason))?;
            all.extend(queues);
            after = next;
            if after.is_none() {
                break;
            }
        }
        Ok(all)
    }

    pub(crate) async fn deaths(&self) -> Result<Vec<QueueDeaths>> {
        Ok(self.send::<Deaths>(Call::read(Path::of(Operation::Deaths, &[]))).await?.into())
    }

    pub(crate) async fn ready(&self) -> Result<()> {
        self.bytes(Call::read(Path::of(Operation::Ready, &[]))).await.map(drop)
    }

    pub(crate) async fn configure(
        &self,
        queue: QueueName,
        changes: Vec<SettingChange>,
    ) -> Result<QueueStats> {
        // Checked in their order, which a JSON object does not keep. Of two changes to one setting it keeps the last.
        for change in &changes {
            if let SettingChange::Set(setting) = change {
                setting.check()?;
            }
        }
        let object: Map<String, Value> = changes.iter().map(change).collect();
        let call = Call::change(Path::of(Operation::Configure, &[queue.as_str()])).harmless();
        self.queue(call.json(&object), false).await
    }

    /// Purges or deletes a queue, and returns the number of messages removed.
    pub(crate) async fn remove(&self, operation: Operation, queue: QueueName) -> Result<u64> {
        let call = Call::change(Path::of(operation, &[queue.as_str()]));
        Ok(self.send::<Removed>(call).await?.removed)
    }
}

fn change(change: &SettingChange) -> (String, Value) {
    match change {
        SettingChange::Set(setting) => (setting.name().as_str().to_owned(), value(setting)),
        SettingChange::Reset(name) => (SettingName::as_str(*name).to_owned(), Value::Null),
    }
}

fn value(setting: &Setting) -> Value {
    match setting {
        Setting::LeaseMs(ms) | Setting::IdempotencyMs(ms) | Setting::DeadTtlMs(ms) => {
            json!(format_duration_ms(*ms))
        }
        Setting::MaxAttempts(limit) => json!(limit),
        Setting::Backoff(backoff) => json!(BackoffSettings::from(*backoff)),
        Setting::MaxPending(limit) | Setting::DeadMax(limit) | Setting::MaxLeased(limit) => json!(limit),
        Setting::Pause(pause) => json!(pause_text(*pause)),
        Setting::Levels(levels) => json!(levels.iter().copied().map(format_duration_ms).collect::<Vec<_>>()),
        Setting::Partitions(partitions) => json!(partitions),
        Setting::OnExpiry(what) => json!(what),
        Setting::LapseBackoff(from) => json!(from),
    }
}

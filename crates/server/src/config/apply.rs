//! Applies queue settings to a store: those of the queues that a configuration names, and no others. They are applied
//! when a configuration comes into force, and again for a queue that was deleted.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use dwell_model::{QueueName, Setting, SettingChange, SettingName};
use dwell_store::{Error, Store};
use thiserror::Error as ThisError;
use tokio::sync::{Mutex, watch};

use super::layers::QueueConfig;

/// The first pause before refused settings are applied again. Each later pause is twice as long, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// A queue that could not be configured.
#[derive(Debug, ThisError)]
#[error("queue {queue} cannot be configured: {error}{}", told(.left))]
pub struct ApplyError {
    /// The queue.
    pub queue: QueueName,
    /// The store's error.
    pub error: Error,
    /// Queues that had been configured by then and could not be restored.
    pub left: Vec<QueueName>,
}

fn told(left: &[QueueName]) -> String {
    if left.is_empty() {
        return String::new();
    }
    let names: Vec<&str> = left.iter().map(QueueName::as_str).collect();
    format!("; changed already, and could not be put back: {}", names.join(", "))
}

/// Configures each queue of `now` that differs from its settings, and resets what only `before`, the configuration that
/// was in force, has named. Returns how many queues have changed.
///
/// # Errors
/// [`ApplyError`] of the first queue that refuses; those before it are restored to what they were.
pub async fn apply_queues(
    store: &dyn Store,
    before: &[QueueConfig],
    now: &[QueueConfig],
) -> Result<usize, ApplyError> {
    let mut undo: Vec<(&QueueName, Vec<SettingChange>)> = Vec::new();
    for name in before.iter().chain(now).map(|queue| &queue.name) {
        let settings = |queues: &[QueueConfig]| -> Vec<Setting> {
            let queue = queues.iter().find(|queue| queue.name == *name);
            queue.map(|queue| queue.settings.clone()).unwrap_or_default()
        };
        let own = match store.stats(name.clone()).await {
            Ok(stats) => stats.own,
            Err(Error::UnknownQueue { .. }) => Default::default(),
            Err(error) => return Err(refused(store, name, error, undo).await),
        };
        let wanted = settings(now);
        let dropped = settings(before).into_iter().map(|setting| setting.name());
        let dropped = dropped.filter(|name| !wanted.iter().any(|setting| setting.name() == *name));
        let is_own = |name: SettingName| own.iter().any(|setting| setting.name() == name);
        let mut changes: Vec<SettingChange> =
            dropped.filter(|name| is_own(*name)).map(SettingChange::Reset).collect();
        let differing = wanted.iter().filter(|setting| !own.iter().any(|known| known == *setting));
        changes.extend(differing.cloned().map(SettingChange::Set));
        if changes.is_empty() {
            continue;
        }
        let as_it_was = changes.iter().map(|change| {
            let changed = match change {
                SettingChange::Set(setting) => setting.name(),
                SettingChange::Reset(name) => *name,
            };
            let found = own.iter().find(|setting| setting.name() == changed);
            found.cloned().map_or(SettingChange::Reset(changed), SettingChange::Set)
        });
        let as_it_was = as_it_was.collect();
        if let Err(error) = store.configure(name.clone(), changes).await {
            return Err(refused(store, name, error, undo).await);
        }
        undo.push((name, as_it_was));
    }
    Ok(undo.len())
}

/// Restores the queues that have changed, the last one first.
async fn refused(
    store: &dyn Store,
    queue: &QueueName,
    error: Error,
    undo: Vec<(&QueueName, Vec<SettingChange>)>,
) -> ApplyError {
    let mut left = Vec::new();
    for (name, as_it_was) in undo.into_iter().rev() {
        if store.configure(name.clone(), as_it_was).await.is_err() {
            left.push(name.clone());
        }
    }
    ApplyError { queue: queue.clone(), error, left }
}

/// The queues that the configuration in force has settings for. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Configured(Arc<SharedConfig>);

#[derive(Debug, Default)]
struct SharedConfig {
    in_force: RwLock<Vec<QueueConfig>>,
    /// Serializes writes of settings to the store: a configuration that comes into force, or one queue that was
    /// deleted. Without it a queue could be left with settings that were read before another configuration came, and
    /// written after it. It guards the queues that lack their settings because the store refused them.
    turn: Mutex<BTreeSet<QueueName>>,
}

impl Configured {
    /// Puts these settings in force.
    pub(crate) fn replace(&self, queues: &[QueueConfig]) {
        *self.0.in_force.write().unwrap_or_else(PoisonError::into_inner) = queues.to_vec();
    }

    /// Does what [`apply_queues`] does; on success `now` is in force.
    ///
    /// # Errors
    /// Those of [`apply_queues`].
    pub(crate) async fn apply(
        &self,
        store: &dyn Store,
        before: &[QueueConfig],
        now: &[QueueConfig],
    ) -> Result<usize, ApplyError> {
        let _turn = self.0.turn.lock().await;
        let changed = apply_queues(store, before, now).await?;
        self.replace(now);
        Ok(changed)
    }

    /// Applies the settings of a deleted queue again, if the configuration has any. Where the store refuses them, this
    /// retries in the background until the store takes them or the server ends. The next configuration applies them in
    /// any case.
    pub(crate) async fn restore(
        &self,
        store: &Arc<dyn Store>,
        queue: &QueueName,
        draining: &watch::Receiver<bool>,
    ) {
        let mut waiting = self.0.turn.lock().await;
        let Err(error) = self.bring_in(&**store, queue).await else { return };
        if !may_pass(&error) {
            given_up(queue, &error);
        } else if waiting.insert(queue.clone()) {
            tracing::warn!(%queue, code = error.code(), %error, "a deleted queue has lost its configured settings; trying again");
            let restoring = self.clone().restore_later(Arc::clone(store), queue.clone());
            let mut draining = draining.clone();
            tokio::spawn(async move {
                tokio::select! {
                    _ = draining.wait_for(|is_draining| *is_draining) => {}
                    () = restoring => {}
                }
            });
        }
    }

    async fn restore_later(self, store: Arc<dyn Store>, queue: QueueName) {
        let mut pause = FIRST_PAUSE;
        loop {
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
            let mut waiting = self.0.turn.lock().await;
            match self.bring_in(&*store, &queue).await {
                Err(error) if may_pass(&error) => continue,
                Err(error) => given_up(&queue, &error),
                Ok(()) => tracing::info!(%queue, "a deleted queue has its configured settings again"),
            }
            waiting.remove(&queue);
            return;
        }
    }

    /// Gives the queue those settings in force that it lacks. Settings that it was given since it was deleted stay.
    async fn bring_in(&self, store: &dyn Store, queue: &QueueName) -> Result<(), Error> {
        let wanted = {
            let in_force = self.0.in_force.read().unwrap_or_else(PoisonError::into_inner);
            in_force.iter().find(|one| one.name == *queue).map(|one| one.settings.clone())
        };
        let Some(wanted) = wanted else { return Ok(()) };
        let own = match store.stats(queue.clone()).await {
            Ok(stats) => stats.own,
            Err(Error::UnknownQueue { .. }) => Default::default(),
            Err(error) => return Err(error),
        };
        let is_own = |setting: &Setting| own.iter().any(|known| known.name() == setting.name());
        let missing = wanted.into_iter().filter(|setting| !is_own(setting)).map(SettingChange::Set);
        let missing: Vec<SettingChange> = missing.collect();
        if missing.is_empty() {
            return Ok(());
        }
        store.configure(queue.clone(), missing).await.map(drop)
    }
}

/// Whether the store may accept later what it refused with this error.
fn may_pass(error: &Error) -> bool {
    !error.needs_reopen() && (error.is_retryable() || matches!(error, Error::OutcomeUnknown { .. }))
}

fn given_up(queue: &QueueName, error: &Error) {
    tracing::warn!(%queue, code = error.code(), %error, "a deleted queue has lost its configured settings");
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use dwell_model::Limits;
    use dwell_store::{MemoryStore, QueueStats, delegate_store};
    use dwell_time::SystemClock;
    use futures_util::FutureExt as _;
    use tokio::sync::Semaphore;
    use tokio::time::timeout;

    use super::*;

    /// A store whose answers to `configure` each wait for a permit.
    struct SlowStore {
        memory: MemoryStore,
        answers: Semaphore,
    }

    #[async_trait]
    impl Store for SlowStore {
        async fn configure(
            &self,
            queue: QueueName,
            changes: Vec<SettingChange>,
        ) -> dwell_store::Result<QueueStats> {
            let configured = self.memory.configure(queue, changes).await;
            self.answers.acquire().await.unwrap().forget();
            configured
        }

        delegate_store! {
            self.memory;
            own: configure;
            forward: put take take_id settle expire_lease cancel reschedule get locate list peek stats queues;
            forward: ready revive forecast deaths discard purge delete_queue;
        }
    }

    #[tokio::test]
    async fn a_queue_that_is_deleted_while_a_configuration_comes_into_force_has_the_settings_of_that() {
        let memory = MemoryStore::new(Limits::default(), Arc::new(SystemClock::new()));
        let slow = Arc::new(SlowStore { memory, answers: Semaphore::new(0) });
        let store = Arc::clone(&slow) as Arc<dyn Store>;
        let (_drain, draining) = watch::channel(false);
        let queue: QueueName = "q".parse().unwrap();
        let lease = |queue: &str, ms| {
            let name = queue.parse().unwrap();
            QueueConfig { name, settings: vec![Setting::LeaseMs(ms)] }
        };
        let (before, now) = ([lease("q", 60_000)], [lease("q", 120_000), lease("r", 120_000)]);
        let configured = Configured::default();
        configured.replace(&before);

        // The queue has its new settings, but the configuration is not in force: the call for another queue is still
        // pending.
        let mut reload = Box::pin(configured.apply(&*store, &before, &now));
        assert!(reload.as_mut().now_or_never().is_none());
        slow.answers.add_permits(1);
        assert!(reload.as_mut().now_or_never().is_none());
        slow.memory.stats("r".parse().unwrap()).await.unwrap();
        slow.memory.delete_queue(queue.clone()).await.unwrap();
        let mut restore = Box::pin(configured.restore(&store, &queue, &draining));
        assert!(restore.as_mut().now_or_never().is_none());
        slow.answers.add_permits(2);
        let both = timeout(Duration::from_secs(20), async { tokio::join!(reload, restore) });
        assert_eq!(both.await.unwrap().0.unwrap(), 2);
        assert_eq!(slow.memory.stats(queue).await.unwrap().settings.lease_ms, 120_000);
    }
}

//! Brings the queues' settings into a store: those that a configuration names, and no others; when it comes into force, and again
//! for a queue that was deleted.

use std::sync::{Arc, PoisonError, RwLock};

use dwell_model::{QueueName, Setting, SettingChange, SettingName};
use dwell_store::{Error, Store};
use thiserror::Error as ThisError;

use super::layers::QueueConfig;

/// A queue that could not be configured.
#[derive(Debug, ThisError)]
#[error("queue {queue} can not be configured: {error}{}", told(.left))]
pub struct ApplyError {
    /// Which.
    pub queue: QueueName,
    /// What the store said.
    pub error: Error,
    /// Queues that had been configured by then, and could not be put back as they were.
    pub left: Vec<QueueName>,
}

fn told(left: &[QueueName]) -> String {
    if left.is_empty() {
        return String::new();
    }
    let names: Vec<&str> = left.iter().map(QueueName::as_str).collect();
    format!("; changed already, and could not be put back: {}", names.join(", "))
}

/// Configures each queue of `now` that is not as it should be, and takes back what only `before`, the
/// configuration that was in force, has named. Says how many queues have changed.
///
/// # Errors
/// [`ApplyError`] of the first queue that refuses; those before it are put back as they were found.
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

/// Puts those back that have changed, the last one first.
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

/// Queues that the configuration in force has settings for. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Configured(Arc<RwLock<Vec<QueueConfig>>>);

impl Configured {
    /// These are in force from now on.
    pub(crate) fn replace(&self, queues: &[QueueConfig]) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = queues.to_vec();
    }

    /// Brings the settings of a queue in again, if the configuration has any.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn restore(&self, store: &dyn Store, queue: &QueueName) -> Result<(), Error> {
        let of_queue = |queues: &Vec<QueueConfig>| queues.iter().find(|one| one.name == *queue).cloned();
        let found = of_queue(&self.0.read().unwrap_or_else(PoisonError::into_inner));
        let Some(found) = found else { return Ok(()) };
        apply_queues(store, &[], &[found]).await.map(drop).map_err(|refused| refused.error)
    }
}

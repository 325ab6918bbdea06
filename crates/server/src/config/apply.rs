//! Brings the queues' settings into a store: those that a configuration names, and no others.

use dwell_model::{QueueName, Setting, SettingChange, SettingName};
use dwell_store::{Error, Store};
use thiserror::Error as ThisError;

use super::layers::QueueConfig;

/// A queue that could not be configured.
#[derive(Debug, ThisError)]
#[error("queue {queue} can not be configured: {error}")]
pub struct ApplyError {
    /// Which.
    pub queue: QueueName,
    /// What the store said.
    pub error: Error,
}

/// Configures each queue of `now` that is not as it should be, and takes back what only `before`, the
/// configuration that was in force, has named. Says how many queues have changed.
///
/// # Errors
/// [`ApplyError`] of the first queue that refuses; those before it are configured.
pub async fn apply_queues(
    store: &dyn Store,
    before: &[QueueConfig],
    now: &[QueueConfig],
) -> Result<usize, ApplyError> {
    let mut changed = 0;
    for name in before.iter().chain(now).map(|queue| &queue.name) {
        let settings = |queues: &[QueueConfig]| -> Vec<Setting> {
            let queue = queues.iter().find(|queue| queue.name == *name);
            queue.map(|queue| queue.settings.clone()).unwrap_or_default()
        };
        let failed = |error| ApplyError { queue: name.clone(), error };
        let own = match store.stats(name.clone()).await {
            Ok(stats) => stats.own,
            Err(Error::UnknownQueue { .. }) => Default::default(),
            Err(error) => return Err(failed(error)),
        };
        let wanted = settings(now);
        let dropped = settings(before).into_iter().map(|setting| setting.name());
        let dropped = dropped.filter(|name| !wanted.iter().any(|setting| setting.name() == *name));
        let is_own = |name: SettingName| own.iter().any(|setting| setting.name() == name);
        let mut changes: Vec<SettingChange> =
            dropped.filter(|name| is_own(*name)).map(SettingChange::Reset).collect();
        let differing = wanted.iter().filter(|setting| !own.iter().any(|known| known == *setting));
        changes.extend(differing.cloned().map(SettingChange::Set));
        if !changes.is_empty() {
            store.configure(name.clone(), changes).await.map_err(failed)?;
            changed += 1;
        }
    }
    Ok(changed)
}

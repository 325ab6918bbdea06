//! Settings, purge, and the deletion of queues.

use dwell_model::{QueueName, SettingChange};
use dwell_store::{Error, QueueStats, Result, Selection};
use serde_json::{Map, Value};
use tokio_postgres::types::Type;

use super::Inner;
use super::message::column;
use super::refusal::{failed, unreadable};
use super::settings;
use crate::values::Json;

/// The most dead messages that are removed with the rest of a queue, in one transaction: `dead_slice` in SQL.
const SLICE: u64 = 100_000;

impl Inner {
    /// See [`Store::configure`](dwell_store::Store::configure).
    pub(super) async fn configure(&self, queue: &QueueName, changes: &[SettingChange]) -> Result<QueueStats> {
        let mut set = Map::new();
        let mut reset: Vec<&str> = Vec::new();
        for change in changes {
            // Of several changes to one setting the last one wins.
            match change {
                SettingChange::Set(setting) => {
                    setting.check()?;
                    let (name, value) = settings::entry(setting);
                    reset.retain(|reset| *reset != name);
                    set.insert(name, value);
                }
                SettingChange::Reset(name) => {
                    set.remove(name.as_str());
                    reset.push(name.as_str());
                }
            }
        }
        let (name, set) = (queue.as_str(), Json(Value::Object(set).to_string()));
        let arguments = [
            (&name as _, Type::TEXT),
            (&set as _, Type::JSONB),
            (&reset as _, Type::TEXT_ARRAY),
            (&self.defaults as _, Type::JSONB),
        ];
        // Harmless to retry: setting the same values again changes nothing.
        self.rows("configure_1($1, $2, $3, $4)", &arguments, true)
            .await
            .map_err(|failure| failed(failure, Some(queue)))?;
        self.waiters.hint(queue);
        // It may have been paused.
        self.hints.notify(queue);
        match self.stats(queue).await {
            // The settings that were reset were all that the queue had.
            Err(Error::UnknownQueue { .. }) => Ok(self.bare_stats(queue)),
            stats => stats,
        }
    }

    /// See [`Store::purge`](dwell_store::Store::purge).
    pub(super) async fn purge(&self, queue: &QueueName) -> Result<u64> {
        self.removed("purge_1", queue).await
    }

    /// See [`Store::delete_queue`](dwell_store::Store::delete_queue).
    pub(super) async fn delete_queue(&self, queue: &QueueName) -> Result<u64> {
        // All that the queue has goes in one transaction, but of its dead messages a slice: the rest goes before.
        let all = match self.stats(queue).await {
            Ok(stats) => stats.counts.dead,
            Err(Error::UnknownQueue { .. }) => 0,
            Err(error) => return Err(error),
        };
        let dead = match all.checked_sub(SLICE) {
            Some(excess @ 1..) => self.discard(queue, Selection::Oldest(excess)).await?.done,
            _ => 0,
        };
        match self.removed("delete_queue_1", queue).await {
            Ok(removed) => Ok(dead + removed),
            Err(error) if dead == 0 => Err(error),
            Err(error) => Err(Error::OutcomeUnknown {
                reason: format!("{dead} dead messages are removed, and then: {error}").into(),
                needs_reopen: false,
            }),
        }
    }

    /// See [`PostgresStore::publish_defaults`](super::PostgresStore::publish_defaults).
    pub(super) async fn publish_defaults(&self) -> Result<()> {
        let rows = self.rows("publish_1($1)", &[(&self.defaults as _, Type::JSONB)], true).await;
        rows.map(drop).map_err(|failure| failed(failure, None))
    }

    /// Calls a function that removes messages of a queue and returns their number.
    async fn removed(&self, function: &str, queue: &QueueName) -> Result<u64> {
        let name = queue.as_str();
        let arguments = [(&name as _, Type::TEXT), (&self.defaults as _, Type::JSONB)];
        let rows = self.rows(&format!("{function}($1, $2)"), &arguments, false).await;
        let rows = rows.map_err(|failure| failed(failure, Some(queue)))?;
        self.floors.forget(queue);
        self.waiters.hint(queue);
        let row = rows.first().ok_or_else(|| unreadable("no count"))?;
        Ok(u64::try_from(column::<i64>(row, "f")?).unwrap_or(0))
    }
}

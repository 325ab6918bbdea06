//! Settings, purge, and the deletion of queues.

use dwell_model::{QueueName, SettingChange};
use dwell_store::{Error, QueueStats, Result};
use serde_json::{Map, Value};
use tokio_postgres::types::Type;

use super::Inner;
use super::message::column;
use super::refusal::{failed, unreadable};
use super::settings;
use crate::values::Json;

impl Inner {
    /// See [`Store::configure`](dwell_store::Store::configure).
    pub(super) async fn configure(&self, queue: &QueueName, changes: &[SettingChange]) -> Result<QueueStats> {
        let mut set = Map::new();
        let mut reset: Vec<&str> = Vec::new();
        for change in changes {
            // Of several changes of one setting the last stands.
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
        // Setting the same once more changes nothing.
        self.rows("configure_1($1, $2, $3, $4)", &arguments, true)
            .await
            .map_err(|failure| failed(failure, Some(queue)))?;
        self.waiters.hint(queue);
        match self.stats(queue).await {
            // What was taken back was all that the queue had.
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
        self.removed("delete_queue_1", queue).await
    }

    /// Calls a function that removes messages of a queue and says how many.
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

//! Hints between processes, by NOTIFY and LISTEN: a message that was made ready in one process wakes the takes that wait in others.
//!
//! They are sent after the commit, coalesced, and only for what is due before the others' next sweep. A hint that is lost costs the wait
//! for that sweep. The connection is this task's own: LISTEN belongs to one connection, and NOTIFY takes a lock of the whole cluster, for
//! which no call is to wait.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use dwell_model::{QueueName, Timestamp};
use futures_util::future::{Either, select};
use tokio::sync::{Notify, mpsc};
use tokio_postgres::Notification;
use tokio_postgres::types::Type;

use super::Inner;
use super::put::names;
use super::waiting::SWEEP_MS;
use crate::install::quoted;
use crate::link::{Connected, Failure, Link, locked};

/// How long hints are gathered before they are sent together.
const GATHERED: Duration = Duration::from_millis(2);

/// The time between attempts to connect, and the timeout of each, and of a statement.
const RETRY: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(5);

/// After this time without a hint the connection is tried: one that was lost on the way looks idle.
const IDLE: Duration = Duration::from_secs(30);

/// The hints that are to be sent. Without LISTEN none is kept.
pub(super) struct Hints {
    is_on: bool,
    queues: Mutex<BTreeSet<QueueName>>,
    news: Notify,
}

impl Hints {
    pub(super) fn new(is_on: bool) -> Hints {
        Hints { is_on, queues: Mutex::default(), news: Notify::new() }
    }

    /// Notifies other processes that a message of the queue may be ready, or is within a sweep.
    pub(super) fn notify(&self, queue: &QueueName) {
        if self.is_on && locked(&self.queues).insert(queue.clone()) {
            self.news.notify_one();
        }
    }

    /// Ends the task.
    pub(super) fn close(&self) {
        self.news.notify_one();
    }
}

impl Inner {
    /// Notifies other processes of a message that is due at this instant, if their sweeps may come later.
    pub(super) fn notify_due(&self, queue: &QueueName, due: Timestamp) {
        // By this process's clock, which may differ from the server's: it decides only about a hint.
        let soon = self.clock.now().wall.as_ms().saturating_add_unsigned(SWEEP_MS);
        if due.as_ms() <= soon {
            self.hints.notify(queue);
        }
    }
}

/// Listens and sends, until the store is dropped or has left.
pub(super) async fn run(inner: Weak<Inner>) {
    let Some(hints) = inner.upgrade().map(|inner| Arc::clone(&inner.hints)) else { return };
    if !hints.is_on {
        return;
    }
    loop {
        let listening = {
            let Some(inner) = inner.upgrade() else { return };
            begin(&inner.link).await
        };
        if let Ok((connected, heard)) = listening {
            exchange(&inner, &hints, &connected, heard).await;
            connected.abort();
        }
        if has_ended(&inner) {
            return;
        }
        tokio::time::sleep(RETRY).await;
    }
}

fn has_ended(inner: &Weak<Inner>) -> bool {
    inner.upgrade().is_none_or(|inner| inner.has_left.load(Ordering::Relaxed))
}

/// Opens the connection and listens. It knows its own hints by the id of its backend, which it returns with them.
async fn begin(link: &Link) -> Result<(Connected, Heard), Failure> {
    let (connected, notifications) = link.listen(TIMEOUT).await?;
    let begun = tokio::time::timeout(TIMEOUT, async {
        let empty: [&str; 0] = [];
        let sql = format!("SELECT {}.hint_1($1), pg_backend_pid()", link.schema());
        let rows = connected.get().query_typed(&sql, &[(&empty.as_slice(), Type::TEXT_ARRAY)]).await?;
        let row = rows.first();
        let channel: Option<String> = row.map(|row| row.try_get(0)).transpose()?;
        let backend: Option<i32> = row.map(|row| row.try_get(1)).transpose()?;
        connected.get().batch_execute(&format!("LISTEN {}", quoted(&channel.unwrap_or_default()))).await?;
        Ok(backend.unwrap_or_default())
    });
    match begun.await {
        Ok(Ok(backend)) => Ok((connected, Heard { notifications, backend })),
        Ok(Err(error)) => {
            connected.abort();
            Err(crate::link::failure_of(&error))
        }
        Err(_) => {
            connected.abort();
            Err(Failure::Unknown { reason: "no answer to LISTEN".to_owned() })
        }
    }
}

/// What others have sent.
struct Heard {
    notifications: mpsc::Receiver<Notification>,
    backend: i32,
}

impl Heard {
    /// The next hint of another process; `None` if the connection has ended. Other texts are passed over.
    async fn next(&mut self) -> Option<QueueName> {
        loop {
            let heard = self.notifications.recv().await?;
            if heard.process_id() != self.backend
                && let Ok(queue) = heard.payload().parse()
            {
                return Some(queue);
            }
        }
    }
}

/// Passes hints on, both ways, until the connection fails or the store ends.
async fn exchange(inner: &Weak<Inner>, hints: &Hints, connected: &Connected, mut heard: Heard) {
    loop {
        let has_news = {
            let next = std::pin::pin!(heard.next());
            let news = std::pin::pin!(tokio::time::timeout(IDLE, hints.news.notified()));
            match select(next, news).await {
                Either::Left((None, _)) => return,
                Either::Left((Some(queue), _)) => {
                    let Some(inner) = inner.upgrade() else { return };
                    inner.waiters.hint(&queue);
                    false
                }
                Either::Right(_) => true,
            }
        };
        if !has_news {
            continue;
        }
        if has_ended(inner) {
            return;
        }
        tokio::time::sleep(GATHERED).await;
        let queues: Vec<QueueName> = std::mem::take(&mut *locked(&hints.queues)).into_iter().collect();
        let Some(schema) = inner.upgrade().map(|inner| inner.link.schema().to_owned()) else { return };
        let names = names(&queues);
        let sql = format!("SELECT {schema}.hint_1($1)");
        let arguments = [(&names as _, Type::TEXT_ARRAY)];
        let sent = tokio::time::timeout(TIMEOUT, connected.get().query_typed(&sql, &arguments)).await;
        if !matches!(sent, Ok(Ok(_))) {
            return;
        }
    }
}

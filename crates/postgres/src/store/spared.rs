//! Puts that a purge has spared: the process that purged brings them to the queue's new home soon after their transactions end.
//!
//! The maintenance of any process does that too, but only when its time has come.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dwell_store::Result;
use tokio_postgres::types::Type;

use super::Inner;
use super::message::column;
use super::refusal::unreadable;
use super::upkeep::Ticks;

/// How often the purged queues are looked at, in ms.
const TICK_MS: u64 = 250;

/// How often at most, after the last purge of this process: four minutes. What is open for longer is left to the maintenance.
const ROUNDS: u32 = 960;

/// The task that runs while a purge of this process is not finished.
pub(super) struct Spared {
    pub(super) ticks: Ticks,
    is_running: AtomicBool,
    /// Whether there was a purge since the last round.
    has_purged: AtomicBool,
}

impl Default for Spared {
    fn default() -> Spared {
        Spared {
            ticks: Ticks::of_none(),
            is_running: AtomicBool::new(false),
            has_purged: AtomicBool::new(false),
        }
    }
}

/// Begins to look after what a purge may have spared. It has to be called on the store's runtime.
pub(super) fn begin(inner: &Arc<Inner>) {
    let spared = &inner.spared;
    spared.has_purged.store(true, Ordering::Relaxed);
    if spared.is_running.swap(true, Ordering::AcqRel) {
        return;
    }
    let weak = Arc::downgrade(inner);
    let mut sleep = spared.ticks.next(inner, TICK_MS);
    tokio::spawn(async move {
        let mut rounds = 0;
        loop {
            sleep.await;
            let Some(inner) = weak.upgrade() else { return };
            if inner.spared.has_purged.swap(false, Ordering::AcqRel) {
                rounds = 0;
            }
            rounds += 1;
            // If it fails, the next round repeats it.
            let is_over = inner.clean().await.unwrap_or(false) || rounds == ROUNDS;
            if (is_over || inner.has_left.load(Ordering::Relaxed)) && inner.spared.ends() {
                return;
            }
            sleep = inner.spared.ticks.next(&inner, TICK_MS);
        }
    });
}

impl Spared {
    /// Ends the task, unless there was another purge meanwhile.
    fn ends(&self) -> bool {
        self.ticks.end();
        self.is_running.store(false, Ordering::Release);
        // A purge that came before that store has not begun a task.
        !self.has_purged.load(Ordering::Acquire) || self.is_running.swap(true, Ordering::AcqRel)
    }
}

impl Inner {
    /// Brings over what purges have spared, and returns whether they are all finished.
    async fn clean(&self) -> Result<bool> {
        let rows = self.rows_by_itself("clean_1($1)", &[(&self.defaults as _, Type::JSONB)]).await?;
        column(rows.first().ok_or_else(|| unreadable("no answer"))?, "f")
    }
}

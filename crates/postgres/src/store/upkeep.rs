//! What no call waits for: once a second counts are folded, what is over is removed, space is given back; and this process's session
//! is heard of. Where nothing was called since, it is done once in ten seconds.

use std::collections::BTreeSet;
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

use dwell_store::Result;
use tokio::sync::Notify;
use tokio_postgres::types::Type;

use super::Inner;
use super::message::column;
use super::refusal::{failed, unreadable};
use crate::floor::Writers;

const TICK_MS: u64 = 1_000;
const IDLE_TICKS: u64 = 10;

/// When it is done next, and that it was.
#[derive(Default)]
pub(super) struct Ticks {
    next_ms: AtomicU64,
    ended: Notify,
}

impl Ticks {
    /// Waits until all is done that is to be done by now.
    pub(super) async fn wait(&self, now_ms: u64) {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if self.next_ms.load(Ordering::Relaxed) > now_ms {
                return;
            }
            ended.await;
        }
    }
}

/// Runs until the store is dropped.
pub(super) async fn run(inner: Weak<Inner>) {
    let mut ticks = 0_u64;
    loop {
        let sleep = {
            let Some(inner) = inner.upgrade() else { return };
            if inner.has_left.load(Ordering::Relaxed) {
                return;
            }
            let next_ms = inner.clock.now().mono_ms.saturating_add(TICK_MS);
            inner.ticks.next_ms.store(next_ms, Ordering::Relaxed);
            inner.ticks.ended.notify_waiters();
            inner.timer.sleep_until(next_ms)
        };
        sleep.await;
        let Some(inner) = inner.upgrade() else { return };
        if inner.has_left.load(Ordering::Relaxed) {
            return;
        }
        ticks += 1;
        // What cannot be done now is done another time.
        let _ = inner.beat().await;
        let has_called = inner.has_called.swap(false, Ordering::Relaxed);
        if has_called || ticks.is_multiple_of(IDLE_TICKS) {
            let _ = inner.look().await;
            let _ = inner.count_leases().await;
            let _ = inner.maintain().await;
        }
    }
}

impl Inner {
    /// Looks which transactions may still add messages, so that takes know where to begin.
    pub(super) async fn look(&self) -> Result<()> {
        let rows = self.rows_by_itself("writers_1()", &[]).await?;
        let row = rows.first().ok_or_else(|| unreadable("no look"))?;
        let writers = |name: &str| -> Result<Writers> {
            let open: Vec<String> = column(row, name)?;
            Ok(Writers { now_ms: column(row, "now_ms")?, open: open.into_iter().collect::<BTreeSet<_>>() })
        };
        self.floors.look(writers("puts")?, writers("leases")?);
        Ok(())
    }

    /// Counts leases, unless takes do so anyway.
    async fn count_leases(&self) -> Result<()> {
        self.leases.counted(None);
        let rows = self.rows_by_itself("leased_1()", &[]).await?;
        let count: i64 = column(rows.first().ok_or_else(|| unreadable("no count"))?, "f")?;
        self.leases.counted(u64::try_from(count).ok());
        Ok(())
    }

    async fn maintain(&self) -> Result<()> {
        let sealed = self.floors.sealed_ms();
        let arguments = [(&sealed as _, Type::INT8), (&self.defaults as _, Type::JSONB)];
        self.rows_by_itself("maintain_1($1, $2)", &arguments).await?;
        Ok(())
    }

    /// A call that nobody has asked for.
    async fn rows_by_itself(
        &self,
        call: &str,
        arguments: &[crate::link::Argument<'_>],
    ) -> Result<Vec<tokio_postgres::Row>> {
        self.noted(self.link.call(call, arguments, true).await).map_err(|failure| failed(failure, None))
    }
}

//! Leases that end with this process: its session begins with the first of them, and sends heartbeats while there are any.
//!
//! A session without a heartbeat for 15 seconds is over, and so are its leases: the maintenance of any process ends them.
//! So heartbeats have a task and a connection of their own, and a timeout that leaves time for further ones.
//! A session that ends in order releases them.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, Weak};
use std::time::Duration;

use dwell_model::Limits;
use dwell_store::Result;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::Inner;
use super::message::column;
use super::refusal::{failed, unreadable};
use crate::link::{Argument, Own, locked};

/// The time between two heartbeats of a session, in ms.
const BEAT_MS: u64 = 5_000;

/// The timeout of a heartbeat, including the time to connect: with `BEAT_MS` it leaves two more before the session is over.
const BEAT_TIMEOUT: Duration = Duration::from_secs(3);

/// How often a heartbeat that is due, or has failed, is noticed, in ms.
const TICK_MS: u64 = 1_000;

/// How long a session without leases lives after its last session lease, in ms.
const IDLE_MS: u64 = 60_000;

/// The session of this process.
#[derive(Default)]
pub(super) struct Session(tokio::sync::Mutex<SessionState>);

#[derive(Default)]
struct SessionState {
    session: Option<i64>,
    /// When a lease was last bound, and when the last heartbeat was sent, on this process's monotonic clock.
    used_ms: u64,
    beaten_ms: u64,
}

/// The number of leases, as far as this process knows.
#[derive(Default)]
pub(super) struct Leases(Mutex<LeaseCount>);

#[derive(Default)]
struct LeaseCount {
    /// The last count plus the leases granted by this process since; `None` without a recent count.
    known: Option<u64>,
}

impl Leases {
    /// Whether a take of `wanted` messages may approach a cap: then it counts the leases. Far from the caps it does not.
    pub(super) fn must_be_counted(&self, limits: &Limits, wanted: usize) -> bool {
        let half = limits.leased.min(limits.leased_per_queue) as u64 / 2;
        let known = locked(&self.0).known;
        known.is_none_or(|known| known.saturating_add(wanted as u64) > half)
    }

    pub(super) fn granted(&self, leases: usize) {
        if let Some(known) = &mut locked(&self.0).known {
            *known = known.saturating_add(leases as u64);
        }
    }

    pub(super) fn counted(&self, leases: Option<u64>) {
        locked(&self.0).known = leases;
    }
}

impl Inner {
    /// The session of this process, if the lease is to be bound to it.
    pub(super) async fn session(&self, is_session: bool) -> Result<Option<i64>> {
        if !is_session {
            return Ok(None);
        }
        let mut own = self.session.0.lock().await;
        own.used_ms = self.clock.now().mono_ms;
        if own.session.is_none() {
            own.session = Some(self.begin_session().await?);
            own.beaten_ms = own.used_ms;
        }
        Ok(own.session)
    }

    /// Begins a new session in place of a lost one.
    pub(super) async fn new_session(&self, lost: Option<i64>) -> Result<Option<i64>> {
        let mut own = self.session.0.lock().await;
        if own.session == lost {
            own.session = None;
            own.session = Some(self.begin_session().await?);
        }
        Ok(own.session)
    }

    async fn begin_session(&self) -> Result<i64> {
        let client = self.link.address().client.as_deref();
        let arguments = [(&client as _, Type::TEXT), (&self.defaults as _, Type::JSONB)];
        let rows = self.rows("begin_session_1($1, $2)", &arguments, false).await;
        let rows = rows.map_err(|failure| failed(failure, None))?;
        column(rows.first().ok_or_else(|| unreadable("no session"))?, "f")
    }

    /// Sends a heartbeat if it is due; ends a session that holds no lease.
    async fn beat(&self, own: &mut Own) -> Result<()> {
        let mut state = self.session.0.lock().await;
        let Some(session) = state.session else { return Ok(()) };
        let now_ms = self.clock.now().mono_ms;
        if now_ms.saturating_sub(state.beaten_ms) < BEAT_MS {
            return Ok(());
        }
        let argument = [(&session as _, Type::INT8)];
        let is_idle = now_ms.saturating_sub(state.used_ms) >= IDLE_MS;
        if is_idle && !self.flag(own, "holds_1($1)", &argument).await? {
            // No take may bind a lease to it meanwhile.
            let arguments = [(&session as _, Type::INT8), (&self.defaults as _, Type::JSONB)];
            self.on_own(own, "end_session_1($1, $2)", &arguments).await?;
            state.session = None;
            return Ok(());
        }
        drop(state);
        let is_alive = self.flag(own, "beat_1($1)", &argument).await?;
        let mut state = self.session.0.lock().await;
        if state.session == Some(session) {
            // If it was taken for dead, its leases have ended.
            state.session = is_alive.then_some(session);
            state.beaten_ms = now_ms;
        }
        Ok(())
    }

    /// Ends the session in order, if there is one.
    pub(super) async fn end_session(&self) -> Result<()> {
        let mut own = self.session.0.lock().await;
        if let Some(session) = own.session {
            let arguments = [(&session as _, Type::INT8), (&self.defaults as _, Type::JSONB)];
            self.rows("end_session_1($1, $2)", &arguments, true)
                .await
                .map_err(|failure| failed(failure, None))?;
            own.session = None;
        }
        Ok(())
    }

    async fn flag(&self, own: &mut Own, call: &str, arguments: &[Argument<'_>]) -> Result<bool> {
        let rows = self.on_own(own, call, arguments).await?;
        column(rows.first().ok_or_else(|| unreadable("no answer"))?, "f")
    }

    async fn on_own(&self, own: &mut Own, call: &str, arguments: &[Argument<'_>]) -> Result<Vec<Row>> {
        let rows = self.link.call_on(own, call, arguments, BEAT_TIMEOUT).await;
        self.noted(rows).map_err(|failure| failed(failure, None))
    }
}

/// Sends the heartbeats, until the store is dropped or has left.
pub(super) async fn run(inner: Weak<Inner>) {
    let mut own = Own::default();
    loop {
        let Some(shared) = inner.upgrade() else { return };
        if shared.has_left.load(Ordering::Relaxed) {
            return shared.beats.end();
        }
        let sleep = shared.beats.next(&shared, TICK_MS);
        drop(shared);
        sleep.await;
        let Some(inner) = inner.upgrade() else { return };
        if !inner.has_left.load(Ordering::Relaxed) {
            // If it fails, the next tick repeats it.
            let _ = inner.beat(&mut own).await;
        }
    }
}

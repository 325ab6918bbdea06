//! Leases that end with this process: its session, which begins with the first of them and is heard of while there are any.
//!
//! A session that was not heard of for 15 seconds is over, and so are its leases: whoever tidies up sees to that. One that ends as it
//! should releases them.

use std::sync::Mutex;

use dwell_model::Limits;
use dwell_store::Result;
use tokio_postgres::types::Type;

use super::Inner;
use super::message::column;
use super::refusal::{failed, unreadable};
use crate::link::locked;

/// So often a session is heard of.
const BEAT_MS: u64 = 5_000;

/// A session that holds nothing any more, and has bound nothing for so long, ends.
const IDLE_MS: u64 = 60_000;

/// The session of this process.
#[derive(Default)]
pub(super) struct Session(tokio::sync::Mutex<Bound>);

#[derive(Default)]
struct Bound {
    session: Option<i64>,
    /// When a lease was bound last, and when it was heard of, on this process's clock.
    used_ms: u64,
    beaten_ms: u64,
}

/// How many leases there are, as far as this process knows.
#[derive(Default)]
pub(super) struct Leases(Mutex<Counted>);

#[derive(Default)]
struct Counted {
    /// As they were counted, and those granted here since; `None` if they were not counted lately.
    known: Option<u64>,
}

impl Leases {
    /// Whether a take of so many may come near a cap: then leases are counted in it. Far from the caps nobody counts.
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
    /// The session of this process, where a lease is to be bound to it.
    pub(super) async fn session(&self, bound: bool) -> Result<Option<i64>> {
        if !bound {
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

    /// Another session in place of one that was lost.
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

    /// Lets the session be heard of, if it is time; ends it where it holds nothing.
    pub(super) async fn beat(&self) -> Result<()> {
        let mut own = self.session.0.lock().await;
        let Some(session) = own.session else { return Ok(()) };
        let now_ms = self.clock.now().mono_ms;
        if now_ms.saturating_sub(own.beaten_ms) < BEAT_MS {
            return Ok(());
        }
        let argument = [(&session as _, Type::INT8)];
        let is_idle = now_ms.saturating_sub(own.used_ms) >= IDLE_MS;
        if is_idle && !self.flag("holds_1($1)", &argument).await? {
            let arguments = [(&session as _, Type::INT8), (&self.defaults as _, Type::JSONB)];
            self.rows("end_session_1($1, $2)", &arguments, true)
                .await
                .map_err(|failure| failed(failure, None))?;
            own.session = None;
            return Ok(());
        }
        if !self.flag("beat_1($1)", &argument).await? {
            // It was taken for dead, and its leases are gone.
            own.session = None;
        }
        own.beaten_ms = now_ms;
        Ok(())
    }

    /// The session ends as it should; true if there was none, or it is known to have ended.
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

    async fn flag(&self, call: &str, arguments: &[crate::link::Argument<'_>]) -> Result<bool> {
        let rows = self.rows(call, arguments, true).await.map_err(|failure| failed(failure, None))?;
        column(rows.first().ok_or_else(|| unreadable("no answer"))?, "f")
    }
}

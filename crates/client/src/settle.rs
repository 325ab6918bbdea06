//! Settling what was taken.

use dwell_model::{DeathReason, Receipt, StateKind, Timestamp};
use dwell_store::{Action, Settle};
use serde::{Deserialize, Serialize};

use crate::path::Path;
use crate::transport::{Call, Payload};
use crate::{Client, Result, text};

/// What has become of a settled message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Settled {
    /// It is gone.
    Gone,
    /// It is scheduled for this instant.
    Scheduled {
        /// When it is due.
        #[serde(with = "text")]
        due: Timestamp,
    },
    /// It is ready again.
    Ready,
    /// It is dead.
    Dead {
        /// Why.
        #[serde(default, with = "text::option_death")]
        dead_reason: Option<DeathReason>,
    },
    /// It is held until this instant of the store's wall clock.
    Leased {
        /// The lease's end.
        #[serde(with = "text")]
        lease_until: Timestamp,
    },
}

impl Settled {
    /// The state that the message is in; `None` if it is gone.
    pub fn state(&self) -> Option<StateKind> {
        match self {
            Settled::Gone => None,
            Settled::Scheduled { .. } => Some(StateKind::Scheduled),
            Settled::Ready => Some(StateKind::Ready),
            Settled::Dead { .. } => Some(StateKind::Dead),
            Settled::Leased { .. } => Some(StateKind::Leased),
        }
    }
}

impl Client {
    /// Settles messages, each of which is answered by itself, in order.
    ///
    /// # Errors
    /// Per item, such as `lease_lost`. Where a whole request failed, each of its items fails with the
    /// request's error; after [`Error::OutcomeUnknown`](crate::Error::OutcomeUnknown) each may or may not be settled.
    pub fn settle(&self, settles: &[Settle]) -> Vec<Result<Settled>> {
        settles.chunks(1_000).flat_map(|chunk| self.settle_chunk(chunk)).collect()
    }

    /// Settles one message. See [`Client::settle`].
    ///
    /// # Errors
    /// The item's.
    pub fn settle_one(&self, receipt: Receipt, action: Action) -> Result<Settled> {
        self.settle(&[Settle { receipt, action }]).pop().expect("each item is answered")
    }

    fn settle_chunk(&self, settles: &[Settle]) -> Vec<Result<Settled>> {
        let items: Vec<Item<'_>> = settles.iter().map(Item::from).collect();
        let call = Call::change("POST", Path::v1().plus("settle")).payload(Payload::json(&items));
        self.send_items(&call, settles.len())
    }
}

/// An item as the settle route takes it.
#[derive(Serialize)]
struct Item<'a> {
    #[serde(with = "text")]
    receipt: &'a Receipt,
    action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u32>,
}

impl<'a> From<&'a Settle> for Item<'a> {
    fn from(settle: &'a Settle) -> Item<'a> {
        let bare = |action| Item {
            receipt: &settle.receipt,
            action,
            after_ms: None,
            lease_ms: None,
            error: None,
            reason: None,
            priority: None,
        };
        match &settle.action {
            Action::Ack => bare("ack"),
            Action::Retry { after_ms, error, priority } => {
                Item { after_ms: *after_ms, error: error.as_deref(), priority: *priority, ..bare("retry") }
            }
            Action::Release { after_ms, priority } => {
                Item { after_ms: *after_ms, priority: *priority, ..bare("release") }
            }
            Action::Bury { reason, priority } => {
                Item { reason: reason.as_deref(), priority: *priority, ..bare("bury") }
            }
            Action::Extend { lease_ms } => Item { lease_ms: *lease_ms, ..bare("extend") },
        }
    }
}

//! Settlements: one item of a batch, and the new state of the message.

use std::borrow::Cow;

use dwell_model::{DeathReason, Timestamp};
#[cfg(feature = "schema")]
use dwell_model::{MessageId, Receipt};
use dwell_store::{Action, LeaseRef, Settle};
use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use crate::schema;

/// One item of a batch of settlements.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SettleItem<'a> {
    /// Proof of the lease.
    #[cfg_attr(feature = "schema", schemars(with = "Receipt"))]
    pub receipt: Cow<'a, str>,
    /// What to do with the message.
    #[cfg_attr(feature = "schema", schemars(with = "schema::Action"))]
    pub action: Cow<'a, str>,
    /// The delay of a retry or release, from now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<schema::Duration>"))]
    pub after: Option<Cow<'a, str>>,
    /// The delay in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_ms: Option<u64>,
    /// The error, for a retry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Cow<'a, str>>,
    /// The reason, for a bury.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Cow<'a, str>>,
    /// A new priority, for a retry, release or bury.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// The new length of the lease, for an extend.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<schema::Duration>"))]
    pub lease: Option<Cow<'a, str>>,
    /// The length of the lease in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
}

impl<'a> From<&'a Settle> for SettleItem<'a> {
    fn from(settle: &'a Settle) -> SettleItem<'a> {
        let bare = |action: &'static str| SettleItem {
            receipt: settle.receipt.to_string().into(),
            action: action.into(),
            ..SettleItem::default()
        };
        match &settle.action {
            Action::Ack => bare("ack"),
            Action::Retry { after_ms, error, priority } => SettleItem {
                after_ms: *after_ms,
                error: error.as_deref().map(Cow::Borrowed),
                priority: *priority,
                ..bare("retry")
            },
            Action::Release { after_ms, priority } => {
                SettleItem { after_ms: *after_ms, priority: *priority, ..bare("release") }
            }
            Action::Bury { reason, priority } => SettleItem {
                reason: reason.as_deref().map(Cow::Borrowed),
                priority: *priority,
                ..bare("bury")
            },
            Action::Extend { lease_ms } => SettleItem { lease_ms: *lease_ms, ..bare("extend") },
        }
    }
}

/// One item of a batch of leases to end.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LeaseItem<'a> {
    /// The message.
    #[cfg_attr(feature = "schema", schemars(with = "MessageId"))]
    pub id: Cow<'a, str>,
    /// `counts.takes` of the message as it was shown, so that a later lease is not ended.
    pub takes: u32,
}

impl From<&LeaseRef> for LeaseItem<'static> {
    fn from(lease: &LeaseRef) -> LeaseItem<'static> {
        LeaseItem { id: lease.id.to_string().into(), takes: lease.takes }
    }
}

/// The state of a message after its settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(with = "Described"))]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Settled {
    /// It is gone.
    Gone,
    /// It is scheduled for this instant.
    Scheduled {
        /// When it is due.
        due: Timestamp,
    },
    /// It is ready again.
    Ready,
    /// It is dead.
    Dead {
        /// The reason.
        dead_reason: DeathReason,
    },
    /// It is held until this instant of the store's wall clock.
    Leased {
        /// The lease's end.
        lease_until: Timestamp,
    },
}

/// Its schema in the OpenAPI document: one object, whose fields depend on its state.
#[cfg(feature = "schema")]
#[derive(schemars::JsonSchema)]
#[expect(dead_code, reason = "it is a description")]
struct Described {
    #[schemars(extend("enum" = ["gone", "scheduled", "ready", "leased", "dead"]))]
    state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    due: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_reason: Option<DeathReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_until: Option<Timestamp>,
}

impl From<dwell_store::Settled> for Settled {
    fn from(settled: dwell_store::Settled) -> Settled {
        match settled {
            dwell_store::Settled::Gone => Settled::Gone,
            dwell_store::Settled::Ready => Settled::Ready,
            dwell_store::Settled::Scheduled(due) => Settled::Scheduled { due },
            dwell_store::Settled::Dead(dead_reason) => Settled::Dead { dead_reason },
            dwell_store::Settled::Leased(lease_until) => Settled::Leased { lease_until },
        }
    }
}

impl From<Settled> for dwell_store::Settled {
    fn from(settled: Settled) -> dwell_store::Settled {
        match settled {
            Settled::Gone => dwell_store::Settled::Gone,
            Settled::Ready => dwell_store::Settled::Ready,
            Settled::Scheduled { due } => dwell_store::Settled::Scheduled(due),
            Settled::Dead { dead_reason } => dwell_store::Settled::Dead(dead_reason),
            Settled::Leased { lease_until } => dwell_store::Settled::Leased(lease_until),
        }
    }
}

//! A server: its version, its limits, and the rights of the caller.

use std::borrow::Cow;

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{QueueSettings, Unreadable, text};

/// The server's version and limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Limits"))]
pub struct ServerInfo {
    /// Its version.
    pub version: Cow<'static, str>,
    /// Its limits.
    pub limits: Limits,
    /// The settings of a queue without settings of its own.
    pub defaults: QueueSettings,
}

/// The caller and its rights.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Me<'a> {
    /// The name of the token; left out if the server requires none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Cow<'a, str>>,
    /// Scopes, as the configuration writes them.
    pub scopes: Vec<Cow<'a, str>>,
}

/// The limits of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "LimitValues"))]
pub struct Limits {
    /// The length of a body, in bytes.
    pub body_bytes: usize,
    /// The items in one call.
    pub batch: usize,
    /// The messages leased at a time.
    pub leased: usize,
    /// The messages of one queue leased at a time.
    pub leased_per_queue: usize,
    /// The takes that wait on one queue at a time.
    pub waiting_per_queue: usize,
    /// The queues at a time.
    pub queues: usize,
    /// The idempotency keys remembered at a time; a shared store has no such limit.
    pub idempotency_keys: usize,
    /// The idempotency keys of one queue remembered at a time.
    pub idempotency_keys_per_queue: usize,
    /// The queues in one take.
    pub take_queues: usize,
    /// The longest wait of one take.
    #[serde(rename = "wait", with = "text::duration")]
    #[cfg_attr(feature = "schema", schemars(with = "crate::schema::Duration"))]
    pub wait_ms: u64,
    /// The length of a JSON request, in bytes.
    pub json_bytes: usize,
    /// The length of a line of NDJSON, in bytes.
    pub line_bytes: usize,
}

impl ServerInfo {
    /// The limits of the server's store, with the settings of a queue without settings of its own.
    ///
    /// # Errors
    /// If a default has a value that is unknown here.
    pub fn store_limits(&self) -> Result<dwell_model::Limits, Unreadable> {
        Ok(dwell_model::Limits {
            body_len: self.limits.body_bytes,
            batch: self.limits.batch,
            leased: self.limits.leased,
            leased_per_queue: self.limits.leased_per_queue,
            waiting_per_queue: self.limits.waiting_per_queue,
            queues: self.limits.queues,
            idempotency_keys: self.limits.idempotency_keys,
            idempotency_keys_per_queue: self.limits.idempotency_keys_per_queue,
            defaults: self.defaults.clone().try_into()?,
        })
    }
}

//! A server: its version, what it accepts at most, and what it lets its caller do.

use std::borrow::Cow;

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{QueueSettings, Unreadable, text};

/// Which server this is and what it accepts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Limits"))]
pub struct ServerInfo {
    /// Its version.
    pub version: Cow<'static, str>,
    /// What it accepts at most.
    pub limits: Limits,
    /// The settings of a queue that has none of its own.
    pub defaults: QueueSettings,
}

/// Who calls, and what the server lets them do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Me<'a> {
    /// The token's name; left out where the server asks for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Cow<'a, str>>,
    /// Scopes, in the words of the configuration.
    pub scopes: Vec<Cow<'a, str>>,
}

/// What a server accepts at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "LimitValues"))]
pub struct Limits {
    /// Bytes of a body.
    pub body_bytes: usize,
    /// Items in one call.
    pub batch: usize,
    /// Messages leased at a time.
    pub leased: usize,
    /// Messages of one queue leased at a time.
    pub leased_per_queue: usize,
    /// Takes that wait on one queue at a time.
    pub waiting_per_queue: usize,
    /// Queues at a time.
    pub queues: usize,
    /// Put tokens remembered at a time; a store that others share has no such limit.
    pub put_tokens: usize,
    /// Put tokens of one queue remembered at a time.
    pub put_tokens_per_queue: usize,
    /// Queues that one take may name.
    pub take_queues: usize,
    /// The longest wait of one take.
    #[serde(rename = "wait", with = "text::duration")]
    #[cfg_attr(feature = "schema", schemars(with = "crate::schema::Duration"))]
    pub wait_ms: u64,
    /// Bytes of a JSON request.
    pub json_bytes: usize,
    /// Bytes of a line of NDJSON.
    pub line_bytes: usize,
}

impl ServerInfo {
    /// The limits of the server's store, with the settings of a queue that has none of its own.
    ///
    /// # Errors
    /// If a default is a value that is not known here.
    pub fn store_limits(&self) -> Result<dwell_model::Limits, Unreadable> {
        Ok(dwell_model::Limits {
            body_len: self.limits.body_bytes,
            batch: self.limits.batch,
            leased: self.limits.leased,
            leased_per_queue: self.limits.leased_per_queue,
            waiting_per_queue: self.limits.waiting_per_queue,
            queues: self.limits.queues,
            put_tokens: self.limits.put_tokens,
            put_tokens_per_queue: self.limits.put_tokens_per_queue,
            defaults: self.defaults.clone().try_into()?,
        })
    }
}

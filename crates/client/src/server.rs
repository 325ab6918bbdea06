//! The server itself: version, limits, health.

use serde::{Deserialize, Serialize};

use crate::path::Path;
use crate::transport::Call;
use crate::{Client, QueueSettings, Result, text};

/// Which server this is and what it accepts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerInfo {
    /// Its version.
    pub version: String,
    /// What it accepts at most.
    pub limits: Limits,
    /// The settings of a queue that has none of its own.
    pub defaults: QueueSettings,
}

/// What a server accepts at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of a body.
    pub body_bytes: u64,
    /// Items in one call.
    pub batch: u64,
    /// Messages leased at a time.
    pub leased: u64,
    /// Messages of one queue leased at a time.
    pub leased_per_queue: u64,
    /// Takes that wait on one queue at a time.
    pub waiting_per_queue: u64,
    /// Queues at a time.
    pub queues: u64,
    /// Put tokens remembered at a time; a store that others share has no such limit.
    pub put_tokens: u64,
    /// Put tokens of one queue remembered at a time.
    pub put_tokens_per_queue: u64,
    /// Queues that one take may name.
    pub take_queues: u64,
    /// The longest wait of one take, in milliseconds.
    #[serde(rename = "wait", with = "text::duration")]
    pub wait_ms: u64,
    /// Bytes of a JSON request.
    pub json_bytes: u64,
    /// Bytes of a line of NDJSON.
    pub line_bytes: u64,
}

impl Client {
    /// The server's version, limits and defaults.
    ///
    /// # Errors
    /// As every call.
    pub fn info(&self) -> Result<ServerInfo> {
        self.send(&Call::get(Path::v1().plus("limits")))
    }

    /// Whether the server is ready to serve.
    ///
    /// # Errors
    /// As every call; the store's own error where it is not.
    pub fn ready(&self) -> Result<()> {
        self.send::<serde_json::Value>(&Call::get(Path::root().plus("health").plus("ready"))).map(drop)
    }
}

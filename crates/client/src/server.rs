//! The server itself: version, limits, health.

use dwell_wire::{Operation, Path};

use crate::transport::Call;
use crate::{Client, Result, ServerInfo};

impl Client {
    /// The server's version, limits and defaults.
    ///
    /// # Errors
    /// As every call.
    pub fn info(&self) -> Result<ServerInfo> {
        self.send(&Call::read(Path::of(Operation::Limits, &[])))
    }

    /// Whether the server is ready to serve.
    ///
    /// # Errors
    /// As every call; the store's own error where it is not.
    pub fn ready(&self) -> Result<()> {
        self.send::<serde_json::Value>(&Call::read(Path::of(Operation::Ready, &[]))).map(drop)
    }
}

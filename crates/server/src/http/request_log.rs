//! Logs one line for each request at debug, with its answer's status.
//!
//! A receipt is a credential, and keys, queries and bodies are private: none of them is logged.

use axum::http::{Method, request};

use super::App;

/// A request whose line is to be written.
pub(super) struct Logged {
    method: Method,
    path: String,
    began_ms: u64,
}

impl Logged {
    /// `None` where the level is not enabled, which costs one load.
    pub(super) fn begin(request: &request::Parts, app: &App) -> Option<Logged> {
        tracing::enabled!(target: "dwell::http", tracing::Level::DEBUG).then(|| Logged {
            method: request.method.clone(),
            path: without_secrets(request.uri.path()),
            began_ms: app.clock.now().mono_ms,
        })
    }

    pub(super) fn end(self, status: u16, code: Option<&'static str>, app: &App) {
        let Logged { method, path, began_ms } = self;
        let took_ms = app.clock.now().mono_ms.saturating_sub(began_ms);
        tracing::debug!(target: "dwell::http", %method, path, status, code, took_ms, "answered");
    }
}

/// The path without what follows `receipts` and `keys`.
fn without_secrets(path: &str) -> String {
    let mut hides = false;
    let segments = path.split('/').map(|segment| {
        let hidden = std::mem::replace(&mut hides, matches!(segment, "receipts" | "keys"));
        if hidden { "…" } else { segment }
    });
    segments.collect::<Vec<&str>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receipts_and_keys_are_left_out() {
        for (path, logged) in [
            ("/v1/queues/q/messages", "/v1/queues/q/messages"),
            ("/v1/receipts/AQGa/ack", "/v1/receipts/…/ack"),
            ("/v1/queues/q/keys/ada%40example.org/reschedule", "/v1/queues/q/keys/…/reschedule"),
            ("/", "/"),
        ] {
            assert_eq!(without_secrets(path), logged);
        }
    }
}

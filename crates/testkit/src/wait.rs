//! Bounded waits for what sends no event.

use std::net::TcpListener;
use std::time::Duration;

use dwell_model::Wake;
use dwell_time::{Clock as _, SystemClock};

/// The longest wait of a test: far more than anything takes on a machine that does ten things at a time.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Blocks until `holds`, which is asked every few milliseconds.
///
/// # Panics
/// If it does not hold within [`PATIENCE`].
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    let mut sleeper = clock.sleeper();
    let end_ms = clock.now().mono_ms + PATIENCE.as_millis() as u64;
    while !holds() {
        let now_ms = clock.now().mono_ms;
        assert!(now_ms < end_ms, "{what}: not within {PATIENCE:?}");
        // Another process tells nobody when it is ready.
        sleeper.sleep(Wake { wall: None, mono_ms: Some(now_ms + 5) });
    }
}

/// As [`until`], on tokio's clock.
///
/// # Panics
/// If it does not hold within [`PATIENCE`].
#[cfg(any(feature = "redis", feature = "postgres"))]
pub async fn until_async(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    within(what, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Waits for a call that must end, on tokio's clock.
///
/// # Panics
/// If it does not end within [`PATIENCE`].
#[cfg(any(feature = "redis", feature = "postgres"))]
pub async fn within<T>(what: &str, call: impl Future<Output = T>) -> T {
    let ended = tokio::time::timeout(PATIENCE, call).await;
    ended.unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"))
}

/// A port of the loopback interface that nobody listens on now. Another process may take it before it is used.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    listener.local_addr().expect("a listener has an address").port()
}

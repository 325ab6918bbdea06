//! Limits the number of connections of a listener, and refuses those past the limit.
//!
//! A connection past the limit is accepted and refused in words, rather than left in the operating system's queue: its
//! client learns of it at once, and retries when it likes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// The maximum number of connections past the limit that receive a refusal at a time; others are closed without one.
const TOLD: usize = 64;
/// How long the client of one of them has to read it.
const PATIENCE: Duration = Duration::from_secs(1);

/// A listener's limit.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionLimit {
    places: Arc<Semaphore>,
    /// Permits of all listeners together.
    all: Arc<Semaphore>,
    told: Arc<Semaphore>,
    refusal: &'static [u8],
}

/// A connection's permit, returned when this is dropped.
#[derive(Debug)]
pub(crate) struct Admitted(#[expect(dead_code, reason = "held for its drop")] [OwnedSemaphorePermit; 2]);

impl ConnectionLimit {
    /// A semaphore of `limit` permits, for [`ConnectionLimit::new`].
    pub(crate) fn places(limit: usize) -> Arc<Semaphore> {
        Arc::new(Semaphore::new(limit.min(Semaphore::MAX_PERMITS)))
    }

    /// At most `limit` connections, each of which also needs a permit of `all`; the others are sent `refusal`.
    pub(crate) fn new(limit: usize, all: Arc<Semaphore>, refusal: &'static [u8]) -> ConnectionLimit {
        ConnectionLimit {
            places: ConnectionLimit::places(limit),
            all,
            told: Arc::new(Semaphore::new(TOLD)),
            refusal,
        }
    }

    /// A permit for one more connection, if there is one.
    pub(crate) fn admit(&self) -> Option<Admitted> {
        let place = |places: &Arc<Semaphore>| Arc::clone(places).try_acquire_owned().ok();
        Some(Admitted([place(&self.places)?, place(&self.all)?]))
    }

    /// Sends the refusal. `plainly` is false under TLS, where a handshake would cost more than the refusal is worth:
    /// the connection is closed without one.
    pub(crate) async fn refuse(self, stream: TcpStream, plainly: bool) {
        let Ok(_place) = self.told.try_acquire() else { return };
        if plainly {
            // A client that does not read is not waited for.
            let _ = timeout(PATIENCE, tell(stream, self.refusal)).await;
        }
    }
}

/// Writes the refusal, and reads what the client has sent: a connection that is closed with unread bytes is reset, and
/// the reset may overtake what was written.
async fn tell(mut stream: TcpStream, words: &[u8]) -> io::Result<()> {
    stream.write_all(words).await?;
    stream.shutdown().await?;
    let mut bytes = [0; 1024];
    for _ in 0..64 {
        if stream.read(&mut bytes).await? == 0 {
            return Ok(());
        }
    }
    Ok(())
}

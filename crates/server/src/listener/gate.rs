//! How many connections a listener has at a time, and what those past the limit are told.
//!
//! A connection past the limit is accepted and told so, rather than left to wait in the operating system's
//! queue: its client knows at once, and tries again when it likes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// How many connections past the limit are told so at a time; others are closed without a word.
const TOLD: usize = 64;
/// How long one of them may take to hear it.
const PATIENCE: Duration = Duration::from_secs(1);

/// A listener's limit.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    places: Arc<Semaphore>,
    /// Places on all listeners together.
    all: Arc<Semaphore>,
    told: Arc<Semaphore>,
    refusal: &'static [u8],
}

/// A connection's place; it is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Admitted(#[expect(dead_code, reason = "held for its drop")] [OwnedSemaphorePermit; 2]);

impl Gate {
    /// So many places, for [`Gate::new`].
    pub(crate) fn places(limit: usize) -> Arc<Semaphore> {
        Arc::new(Semaphore::new(limit.min(Semaphore::MAX_PERMITS)))
    }

    /// At most `limit` connections, for which there are places among `all` too; the others are sent `refusal`.
    pub(crate) fn new(limit: usize, all: Arc<Semaphore>, refusal: &'static [u8]) -> Gate {
        Gate { places: Gate::places(limit), all, told: Arc::new(Semaphore::new(TOLD)), refusal }
    }

    /// A place for one more, if there is one.
    pub(crate) fn admit(&self) -> Option<Admitted> {
        let place = |places: &Arc<Semaphore>| Arc::clone(places).try_acquire_owned().ok();
        Some(Admitted([place(&self.places)?, place(&self.all)?]))
    }

    /// Tells the connection that there is no place for it. `plainly` is false where it would have to be told
    /// under encryption, which costs more than it is worth.
    pub(crate) async fn refuse(self, stream: TcpStream, plainly: bool) {
        let Ok(_place) = self.told.try_acquire() else { return };
        if plainly {
            // Whoever does not listen is not waited for.
            let _ = timeout(PATIENCE, tell(stream, self.refusal)).await;
        }
    }
}

/// Writes, and reads what the other side has sent: closed with unread bytes, a connection is reset, and the
/// reset may overtake what was written.
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

//! Taking from the destination as Java does: what is handed out is gone from Redis.

use std::time::Duration;

use redis::RedisResult;

use super::super::codec::Codec;
use super::super::error::Error;
use super::super::script;
use super::DelayedQueue;

/// A month: the longest that a take waits at the server.
const MOST_MS: u64 = 30 * 24 * 60 * 60 * 1000;

impl<C: Codec> DelayedQueue<C> {
    pub(super) async fn take_blocking(&self, wait_ms: u64) -> Result<Option<Vec<u8>>, Error> {
        // What a server takes for a timeout has a bound.
        let wait_ms = wait_ms.min(MOST_MS);
        let mut kept = self.blocking.lock().await;
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => self.link.connect().await.map_err(|error| self.error(&error))?,
        };
        connection.set_response_timeout(Duration::from_millis(wait_ms) + Duration::from_secs(5));
        let mut command = redis::cmd("BLPOP");
        // Zero would mean for ever.
        command.arg(self.keys.ready()).arg(wait_ms.max(1) as f64 / 1000.0);
        let taken: RedisResult<Option<(Vec<u8>, Vec<u8>)>> = command.query_async(&mut connection).await;
        let taken = taken.map_err(|error| self.error(&error))?;
        *kept = Some(connection);
        Ok(taken.map(|(_, payload)| payload))
    }

    pub(super) async fn take_by_asking(&self, wait_ms: u64) -> Result<Option<Vec<u8>>, Error> {
        let asking = async {
            loop {
                if let Some(payload) = self.take_now().await? {
                    return Ok(Some(payload));
                }
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
        };
        // The first answer is not cut off: what it took would be lost.
        if let Some(payload) = self.take_now().await? {
            return Ok(Some(payload));
        }
        tokio::time::timeout(Duration::from_millis(wait_ms), asking).await.unwrap_or(Ok(None))
    }

    /// A script, and no `LPOP`: what it has taken is not lost with its answer.
    async fn take_now(&self) -> Result<Option<Vec<u8>>, Error> {
        self.call(&script::TAKE, &[self.keys.ready().to_owned()], &[]).await
    }
}

//! Destructive takes from the destination, like Java's: a payload that is handed out is gone from Redis.

use std::time::Duration;

use redis::RedisResult;

use super::super::codec::Codec;
use super::super::error::Error;
use super::super::script;
use super::DelayedQueue;

/// The polling interval on a cluster.
const ASK: Duration = Duration::from_millis(250);

impl<C: Codec> DelayedQueue<C> {
    pub(super) async fn take_blocking(&self, wait_ms: u64) -> Result<Option<Vec<u8>>, Error> {
        let until_ms = self.blocking.deadline_ms(wait_ms);
        let seat = match wait_ms {
            0 => None,
            _ => self.blocking.sit(&self.link, until_ms).await.map_err(|error| self.error(&error))?,
        };
        let Some(seat) = seat else { return self.take_now().await };
        let mut command = redis::cmd("BLPOP");
        command.arg(self.keys.ready());
        let taken: RedisResult<Option<(Vec<u8>, Vec<u8>)>> = seat.wait(&mut command, until_ms).await;
        Ok(taken.map_err(|error| self.error(&error))?.map(|(_, payload)| payload))
    }

    pub(super) async fn take_by_asking(&self, wait_ms: u64) -> Result<Option<Vec<u8>>, Error> {
        let until_ms = self.blocking.deadline_ms(wait_ms);
        // A request is never cancelled: the payload that it took would be lost.
        loop {
            if let Some(payload) = self.take_now().await? {
                return Ok(Some(payload));
            }
            let left = self.blocking.left(until_ms);
            if left.is_zero() {
                return Ok(None);
            }
            tokio::time::sleep(left.min(ASK)).await;
        }
    }

    /// A script instead of `LPOP`, so that the payload is not lost with a lost reply.
    async fn take_now(&self) -> Result<Option<Vec<u8>>, Error> {
        self.call(&script::TAKE, &[self.keys.ready().to_owned()], &[]).await
    }
}

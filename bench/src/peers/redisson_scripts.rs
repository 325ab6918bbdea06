//! Redisson's own scripts, called as its client calls them: the requests of a Java service to Redis, without Java.
//!
//! The text of the scripts is Redisson's (`RedissonDelayedQueue` of 4.7.0, Apache License 2.0), so that Redis does
//! exactly the same work. A test compares the transfer script with the SHA-1 in Redisson's own log lines.

use redis::{Connection, Pipeline, Script};

use crate::Result;

/// `offerAsync`.
const OFFER: &str = "local value = struct.pack('Bc0Lc0', string.len(ARGV[2]), ARGV[2], string.len(ARGV[3]), ARGV[3]);\
redis.call('zadd', KEYS[2], ARGV[1], value);\
redis.call('rpush', KEYS[3], value);\
local v = redis.call('zrange', KEYS[2], 0, 0); \
if v[1] == value then redis.call('publish', KEYS[4], ARGV[1]); end;";

/// `pushTaskAsync`.
const TRANSFER: &str = "local expiredValues = redis.call('zrangebyscore', KEYS[2], 0, ARGV[1], 'limit', 0, ARGV[2]); \
if #expiredValues > 0 then for i, v in ipairs(expiredValues) do local randomId, value = struct.unpack('Bc0Lc0', v);\
redis.call('rpush', KEYS[1], value);\
redis.call('lrem', KEYS[3], 1, v);end; \
redis.call('zrem', KEYS[2], unpack(expiredValues));end; \
local v = redis.call('zrange', KEYS[2], 0, 0, 'WITHSCORES'); \
if v[1] ~= nil then return v[2]; end return nil;";

/// `poll(limit)` of the destination.
const POLL: &str = "local result = {};\
for i = 1, ARGV[1], 1 do \
local value = redis.call('lpop', KEYS[1]);\
if value ~= false then table.insert(result, value);else return result;end;\
end; return result;";

/// The number of elements per transfer.
pub(crate) const LIMIT: usize = 100;

/// A delayed queue, as used by a Java client.
pub(crate) struct RedissonScripts {
    connection: Connection,
    offer: Script,
    transfer: Script,
    poll: Script,
    next_id: u64,
}

pub(crate) const NAME: &str = "bench";
const PENDING: &str = "redisson_delay_queue:{bench}";
const TIMEOUTS: &str = "redisson_delay_queue_timeout:{bench}";
const CHANNEL: &str = "redisson_delay_queue_channel:{bench}";

impl RedissonScripts {
    pub(crate) fn connect(url: &str) -> Result<RedissonScripts> {
        let mut connection = redis::Client::open(url)?.get_connection()?;
        let (offer, transfer, poll) = (Script::new(OFFER), Script::new(TRANSFER), Script::new(POLL));
        for script in [&offer, &transfer, &poll] {
            script.load(&mut connection)?;
        }
        Ok(RedissonScripts { connection, offer, transfer, poll, next_id: 0 })
    }

    /// Offers payloads with their instants, all concurrently: Redisson has no batch call.
    pub(crate) fn offer(&mut self, elements: &[(&[u8], i64)]) -> Result<()> {
        let mut pipeline = Pipeline::new();
        for (payload, due_ms) in elements {
            self.next_id += 1;
            // As random as the ids that Java creates.
            let id = self.next_id.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
            let command = pipeline.cmd("EVALSHA").arg(self.offer.get_hash()).arg(4);
            command
                .arg(NAME)
                .arg(TIMEOUTS)
                .arg(PENDING)
                .arg(CHANNEL)
                .arg(*due_ms)
                .arg(&id)
                .arg(*payload)
                .ignore();
        }
        Ok(pipeline.query(&mut self.connection)?)
    }

    /// Transfers until nothing is due, one script after the other, like a client that is notified of a due head.
    pub(crate) fn transfer(&mut self, now_ms: i64) -> Result<()> {
        while self.transfer_once(now_ms)? {}
        Ok(())
    }

    /// Moves up to [`LIMIT`] due elements to the destination. Returns whether there are more.
    pub(crate) fn transfer_once(&mut self, now_ms: i64) -> Result<bool> {
        let head: Option<String> = redis::cmd("EVALSHA")
            .arg(self.transfer.get_hash())
            .arg(3)
            .arg(NAME)
            .arg(TIMEOUTS)
            .arg(PENDING)
            .arg(now_ms)
            .arg(LIMIT)
            .query(&mut self.connection)?;
        Ok(head.and_then(|head| head.parse::<i64>().ok()).is_some_and(|head| head <= now_ms))
    }

    /// Removes up to `limit` elements from the destination. This is final, as there is no ack.
    pub(crate) fn poll(&mut self, limit: usize) -> Result<Vec<Vec<u8>>> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(self.poll.get_hash()).arg(1).arg(NAME).arg(limit);
        Ok(command.query(&mut self.connection)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transfer_script_is_redissons_own() {
        assert_eq!(Script::new(TRANSFER).get_hash(), "a3a86b949561b56e14c274ad54368afeff259bc8");
    }
}

//! The keys of a delayed queue: the four of Redisson, and our own ones in the same hash slot.

use super::error::Error;

/// The keys of one delayed queue.
///
/// Redisson derives its keys from the queue's name: `redisson_delay_queue:{orders}`, or, if the name contains a hash
/// tag, `redisson_delay_queue:orders{eu}` (`RedissonDelayedQueue`, `suffixName` and `prefixName` in `RedissonObject`).
/// All keys of a queue must be in one slot of a Redis Cluster. Names for which that rule fails are refused, on a single
/// Redis too.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Keys {
    name: String,
}

impl Keys {
    /// The keys of the queue `name`, as Java's `getDelayedQueue(getBlockingQueue(name))` uses them.
    ///
    /// # Errors
    /// [`Error::Name`] for an empty name and for one whose keys would fall into different slots.
    pub fn new(name: impl Into<String>) -> Result<Keys, Error> {
        let name = name.into();
        if name.is_empty() {
            return Err(Error::Name { name, reason: "it is empty" });
        }
        let keys = Keys { name };
        if hash_tag(keys.ready().as_bytes()) != hash_tag(keys.pending().as_bytes()) {
            let reason =
                "its braces are no hash tag: a Redis Cluster would put its keys into different slots";
            return Err(Error::Name { name: keys.name, reason });
        }
        Ok(keys)
    }

    /// The keys of a queue where Java has a name mapper that prepends `prefix` to every name.
    ///
    /// # Errors
    /// As [`Keys::new`], for the full name.
    pub fn with_prefix(prefix: &str, name: &str) -> Result<Keys, Error> {
        Keys::new(format!("{prefix}{name}"))
    }

    /// The queue's name, with the prefix of the name mapper.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The destination: a list of due payloads, from which Java's `RBlockingQueue` takes.
    pub fn ready(&self) -> &str {
        &self.name
    }

    /// A list of pending packed elements, in the order in which they were offered.
    pub fn pending(&self) -> String {
        self.beside("redisson_delay_queue")
    }

    /// A sorted set of the same packed elements, by their due instant in milliseconds.
    pub fn timeouts(&self) -> String {
        self.beside("redisson_delay_queue_timeout")
    }

    /// The channel on which a new first instant is published, in decimal milliseconds.
    pub fn channel(&self) -> String {
        self.beside("redisson_delay_queue_channel")
    }

    /// Ours: a hash of set-aside elements, each with its score and the reason.
    pub fn set_aside(&self) -> String {
        self.beside("dwell_redisson_set_aside")
    }

    /// Ours: a list of payloads between the destination and a lease; normally empty.
    pub fn inbox(&self) -> String {
        self.beside("dwell_redisson_inbox")
    }

    /// Ours: a sorted set of lease tokens by their deadline in milliseconds.
    pub fn leases(&self) -> String {
        self.beside("dwell_redisson_leases")
    }

    /// Ours: a hash from lease token to payload.
    pub fn leased(&self) -> String {
        self.beside("dwell_redisson_leased")
    }

    /// Ours: a list of payloads whose attempts are spent, each as `attempts NUL reason NUL payload`.
    pub fn dead(&self) -> String {
        self.beside("dwell_redisson_dead")
    }

    /// Ours: the prefix of the count of a payload's failed attempts, followed by its hexadecimal SHA-1.
    pub fn attempts(&self) -> String {
        format!("{}:", self.beside("dwell_redisson_attempts"))
    }

    /// Ours: the time since which the inbox has been seen to be non-empty.
    pub fn inbox_since(&self) -> String {
        self.beside("dwell_redisson_inbox_since")
    }

    /// Ours: the last reply to a lane of a process, kept for a minute.
    pub fn answer(&self, lane: &str) -> String {
        format!("{}:{lane}", self.beside("dwell_redisson_answer"))
    }

    /// Ours: the pending element that was offered under `id`, for as long as a repeat of that offer is recognised.
    pub fn offer(&self, id: &str) -> String {
        format!("{}:{id}", self.beside("dwell_redisson_offer"))
    }

    /// Redisson's `prefixName`.
    fn beside(&self, prefix: &str) -> String {
        if self.name.contains('{') {
            format!("{prefix}:{}", self.name)
        } else {
            format!("{prefix}:{{{}}}", self.name)
        }
    }
}

/// The part of a key that Redis Cluster hashes: the content of the first pair of braces, if it is not empty (Redis
/// Cluster specification, "Hash tags").
fn hash_tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else { return key };
    let after = &key[open + 1..];
    match after.iter().position(|byte| *byte == b'}') {
        Some(0) | None => key,
        Some(close) => &after[..close],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_name_is_put_into_braces() {
        let keys = Keys::new("orders").unwrap();
        assert_eq!(keys.ready(), "orders");
        assert_eq!(keys.pending(), "redisson_delay_queue:{orders}");
        assert_eq!(keys.timeouts(), "redisson_delay_queue_timeout:{orders}");
        assert_eq!(keys.channel(), "redisson_delay_queue_channel:{orders}");
    }

    #[test]
    fn a_hash_tag_stays_as_it_is() {
        let keys = Keys::new("orders{eu}").unwrap();
        assert_eq!(keys.timeouts(), "redisson_delay_queue_timeout:orders{eu}");
        assert_eq!(keys.offer("a}b{c}"), "dwell_redisson_offer:orders{eu}:a}b{c}");
    }

    #[test]
    fn a_mapper_prefix_comes_first() {
        let keys = Keys::with_prefix("shop:", "orders").unwrap();
        assert_eq!(keys.ready(), "shop:orders");
        assert_eq!(keys.pending(), "redisson_delay_queue:{shop:orders}");
    }

    #[test]
    fn all_keys_of_a_queue_have_one_slot() {
        for name in ["orders", "orders{eu}", "{eu}", "a{b}c{d}", "}{eu}", "ö{ü}"] {
            let keys = Keys::new(name).unwrap();
            let tag = hash_tag(name.as_bytes());
            let ours = [keys.set_aside(), keys.inbox(), keys.leases(), keys.leased(), keys.dead()];
            let theirs = [keys.pending(), keys.timeouts(), keys.channel()];
            let made = [keys.attempts() + "0a", keys.offer("x{y}"), keys.answer("0b"), keys.inbox_since()];
            for key in ours.iter().chain(&theirs).chain(&made) {
                assert_eq!(hash_tag(key.as_bytes()), tag, "{key}");
            }
        }
    }

    #[test]
    fn names_that_break_a_cluster_are_refused() {
        for name in ["", "a{b", "{}", "{}x", "a}b", "a}b{c", "x{}{eu}"] {
            assert!(matches!(Keys::new(name), Err(Error::Name { .. })), "{name}");
        }
    }
}

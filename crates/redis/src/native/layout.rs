//! Where a queue lies: partitions, and the hash tags that keep each in one slot of a cluster.

use dwell_model::{IdempotencyKey, Key, MessageId, QueueName, Timestamp};
use sha2::{Digest, Sha256};

/// One partition of a queue: all of its keys lie in one slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Partition {
    pub(super) queue: QueueName,
    pub(super) index: u16,
}

impl Partition {
    pub(super) fn new(queue: &QueueName, index: u16) -> Partition {
        Partition { queue: queue.clone(), index }
    }

    /// The partition that is asked for an id: the first one for an id of a partition that the queue does not have, as
    /// far as is known here. The first one knows whether the queue has more by now.
    pub(super) fn of_id(queue: &QueueName, shard: u16, partitions: u16) -> Partition {
        Partition::new(queue, if shard < partitions { shard } else { 0 })
    }

    pub(super) fn all(queue: &QueueName, partitions: u16) -> Vec<Partition> {
        (0..partitions).map(|index| Partition::new(queue, index)).collect()
    }

    /// The common prefix of its keys. The tag is a hash, never the name: a name may hold braces, and similar names
    /// must not fall into one slot.
    pub(super) fn keys(&self, prefix: &str) -> String {
        let mut hash = Sha256::new();
        hash.update(self.queue.as_str());
        hash.update([0]);
        hash.update(self.index.to_be_bytes());
        let mut keys = format!("{prefix}:{{");
        for byte in &hash.finalize()[..10] {
            keys.push_str(&format!("{byte:02x}"));
        }
        keys.push_str("}:");
        keys
    }

    /// Its name in the directory.
    pub(super) fn entry(&self) -> String {
        format!("{}/{}", self.index, self.queue)
    }

    /// The partition of such a name; `None` if it is not one of ours.
    pub(super) fn of_entry(entry: &str) -> Option<Partition> {
        let (index, queue) = entry.split_once('/')?;
        Some(Partition { queue: QueueName::new(queue).ok()?, index: index.parse().ok()? })
    }
}

/// The common prefix of the directory's keys.
pub(super) fn directory(prefix: &str) -> String {
    format!("{{{prefix}}}:")
}

/// The version of this layout, which scripts check as well.
pub(super) const LAYOUT: &str = "1";

/// The maximum length of a body that is stored in its message's record, until something happens to the message.
pub(super) const FRESH_BODY: usize = 1_024;

/// The first byte of the record of a message that was handed out for the first time, and has no other attributes.
pub(super) const HELD: u8 = 4;

/// A partition's keys, and their types.
pub(super) const PARTITION: [(&str, &str); 24] = [
    ("meta", "hash"),
    ("due", "zset"),
    ("due-index", "hash"),
    ("due-index-until", "zset"),
    ("records", "hash"),
    ("bodies", "hash"),
    ("headers", "hash"),
    ("pending", "zset"),
    ("pending-urgent", "zset"),
    ("pending-later", "zset"),
    ("ready", "zset"),
    ("ready-by-due", "zset"),
    ("expiries", "zset"),
    ("leases", "zset"),
    ("session-leases", "zset"),
    ("dead", "zset"),
    ("dead-by-due", "zset"),
    ("keys", "hash"),
    ("dead-keys", "zset"),
    ("idempotency", "hash"),
    ("idempotency-until", "zset"),
    ("calls", "hash"),
    ("waiters", "hash"),
    ("purged", "hash"),
];

/// The directory's keys with fixed names, and their types.
pub(super) const DIRECTORY: [(&str, &str); 6] = [
    ("meta", "hash"),
    ("queues", "zset"),
    ("registrations", "hash"),
    ("blocks", "zset"),
    ("clients", "hash"),
    ("heartbeats", "zset"),
];

/// The partition of a message with this key.
pub(super) fn of_key(key: &Key, partitions: u16) -> u16 {
    of_text(key.as_str(), partitions)
}

/// The partition that remembers this idempotency key.
pub(super) fn of_idempotency_key(key: &IdempotencyKey, partitions: u16) -> u16 {
    of_text(key.as_str(), partitions)
}

/// FNV-1a: all processes and versions must agree. <http://www.isthe.com/chongo/tech/comp/fnv/>
fn of_text(text: &str, partitions: u16) -> u16 {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    // A number of partitions is at least 1 and has 16 bits.
    (hash % u64::from(partitions.max(1))) as u16
}

/// How many numbers are reserved together.
pub(super) const BLOCK: u64 = 256;

/// The block that a number belongs to.
pub(super) fn block_of(number: u64) -> u64 {
    (number - 1) / BLOCK
}

/// The index of a number in its block.
pub(super) fn place_in_block(number: u64) -> u8 {
    // A block has 256 numbers.
    ((number - 1) % BLOCK) as u8
}

/// The last 8 bytes of the id of a message with this number: the field of its record.
pub(super) fn field_of(number: u64) -> [u8; 8] {
    ((1 << 63) | number).to_be_bytes()
}

/// The id of a new message in a partition.
pub(super) fn id_put_with(due: Timestamp, partition: u16, number: u64) -> [u8; 16] {
    let mut id = [0; 16];
    // An instant has at most 48 bits; 8 is the version of such ids.
    id[..6].copy_from_slice(&due.as_ms().to_be_bytes()[2..]);
    id[6..8].copy_from_slice(&(0x8000 | partition).to_be_bytes());
    id[8..].copy_from_slice(&field_of(number));
    id
}

/// The number of a message, which is the sequence in its id.
pub(super) fn number_of(id: MessageId) -> u64 {
    (u64::from(id.incarnation()) << 40) | id.counter()
}

pub(super) fn id_bytes(id: MessageId) -> [u8; 16] {
    id.as_bits().to_be_bytes()
}

pub(super) fn id_of(bytes: &[u8]) -> Option<MessageId> {
    MessageId::from_bits(u128::from_be_bytes(bytes.try_into().ok()?)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_hold_numbers() {
        for number in [1, 256, 257, (1 << 40) + 5, (1 << 53) - 1] {
            let due = Timestamp::from_ms(1_795_000_000_000).unwrap();
            let bytes = id_put_with(due, 7, number);
            let id = id_of(&bytes).unwrap();
            assert_eq!((number_of(id), id.shard(), id.due_at_put()), (number, 7, due));
            assert_eq!(id_bytes(id), bytes);
        }
        let place = |number| (block_of(number), place_in_block(number));
        assert_eq!((place(1), place(256), place(257)), ((0, 0), (0, 255), (1, 0)));
    }

    #[test]
    fn places_are_the_same_for_ever() {
        // The stored data depends on these values.
        let queue = QueueName::new("orders/(eu)").unwrap();
        let keys = Partition::new(&queue, 3).keys("dwell");
        assert_eq!(keys, Partition::of_entry(&Partition::new(&queue, 3).entry()).unwrap().keys("dwell"));
        assert_eq!(keys.len(), "dwell:{}:".len() + 20);
        assert_eq!(of_key(&Key::new("customer 7").unwrap(), 16), 4);
    }
}

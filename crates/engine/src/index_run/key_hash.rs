//! The hash by which messages with keys are found: SipHash-2-4 (Aumasson and Bernstein, 2012), the same in every
//! version.

use dwell_model::{Key, QueueName};
use siphasher::sip::SipHasher24;

use crate::table::Entry;

/// The hash of a queue's name, a byte 255 (which no name has), and a key. For messages that were dead when their file
/// was written its highest byte is 255: so a lookup of a key's live owner skips the dead messages that had it.
///
/// The secret is made of the directory's number, so that callers cannot choose keys that collide.
pub(crate) fn key_hash(directory: u64, queue: &QueueName, key: &Key, is_dead: bool) -> u64 {
    let mut bytes = Vec::with_capacity(queue.as_str().len() + 1 + key.as_str().len());
    bytes.extend_from_slice(queue.as_str().as_bytes());
    bytes.push(255);
    bytes.extend_from_slice(key.as_str().as_bytes());
    let secret = (directory, directory.rotate_left(32) ^ u64::from_le_bytes(*b"dwellkey"));
    let hash = SipHasher24::new_with_keys(secret.0, secret.1).hash(&bytes);
    if is_dead { hash | DEAD } else { hash }
}

/// The highest byte of the hashes of dead messages. One in 256 of the others has it by chance.
const DEAD: u64 = 0xff << 56;

/// Whether a dead message may be found under this hash.
pub(crate) fn may_be_of_dead(hash: u64) -> bool {
    hash & DEAD == DEAD
}

/// The hash of a message in a table, if it has a key.
pub(crate) fn key_hash_of(directory: u64, entry: &Entry) -> Option<u64> {
    Some(key_hash(directory, &entry.queue, entry.own_key()?, entry.is_dead()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The results of the authors' reference for the bytes 0, 1, 2 and so on: none of them, one, two, up to 19.
    const REFERENCE: [u64; 20] = [
        0x726f_db47_dd0e_0e31,
        0x74f8_39c5_93dc_67fd,
        0x0d6c_8009_d9a9_4f5a,
        0x8567_6696_d7fb_7e2d,
        0xcf27_94e0_2771_87b7,
        0x1876_5564_cd99_a68d,
        0xcbc9_466e_58fe_e3ce,
        0xab02_00f5_8b01_d137,
        0x93f5_f579_9a93_2462,
        0x9e00_82df_0ba9_e4b0,
        0x7a5d_bbc5_94dd_b9f3,
        0xf4b3_2f46_226b_ada7,
        0x751e_8fbc_860e_e5fb,
        0x14ea_5627_c084_3d90,
        0xf723_ca90_8e7a_f2ee,
        0xa129_ca61_49be_45e5,
        0x3f2a_cc7f_57c2_9bdb,
        0x699a_e9f5_2cbe_4794,
        0x4bc1_b3f0_968d_d39c,
        0xbb6d_c91d_a779_61bd,
    ];

    #[test]
    fn gives_the_values_of_the_paper_and_its_reference() {
        let hasher = SipHasher24::new_with_keys(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        let bytes: Vec<u8> = (0..20).collect();
        for (len, expected) in REFERENCE.into_iter().enumerate() {
            assert_eq!(hasher.hash(&bytes[..len]), expected, "{len} bytes");
        }
    }

    /// In files that were written with other hashes no key would be found.
    #[test]
    fn a_keys_hash_is_what_it_always_was() {
        let hash =
            key_hash(0x0102_0304_0506_0708, &"orders".parse().unwrap(), &"order-7".parse().unwrap(), false);
        assert_eq!(hash, 0xe7c5_b197_66c0_8009);
    }

    #[test]
    fn queue_key_and_directory_all_count() {
        let hash = |directory, queue: &str, key: &str| {
            key_hash(directory, &queue.parse().unwrap(), &key.parse().unwrap(), false)
        };
        let one = hash(1, "orders", "7");
        for other in [hash(2, "orders", "7"), hash(1, "order", "s7"), hash(1, "orders", "8")] {
            assert_ne!(one, other);
        }
    }
}

//! The hash that messages with keys are found by: SipHash-2-4 (Aumasson and Bernstein, 2012), the same in every version.

use dwell_model::{Key, QueueName};

/// The hash of a queue's name, a byte 255 (which no name has), and a key.
///
/// The secret is made of the directory's number, so that callers can not choose keys that collide.
pub(crate) fn key_hash(directory: u64, queue: &QueueName, key: &Key) -> u64 {
    let mut bytes = Vec::with_capacity(queue.as_str().len() + 1 + key.as_str().len());
    bytes.extend_from_slice(queue.as_str().as_bytes());
    bytes.push(255);
    bytes.extend_from_slice(key.as_str().as_bytes());
    siphash(directory, directory.rotate_left(32) ^ u64::from_le_bytes(*b"dwellkey"), &bytes)
}

fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[2] = v[2].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[1]);
    v[0] = v[0].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].rotate_left(32);
}

fn siphash(k0: u64, k1: u64, bytes: &[u8]) -> u64 {
    let mut v = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let mut word = |word: u64| {
        v[3] ^= word;
        round(&mut v);
        round(&mut v);
        v[0] ^= word;
    };
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().for_each(|bytes| word(u64::from_le_bytes(*bytes)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    last[7] = bytes.len() as u8;
    word(u64::from_le_bytes(last));
    v[2] ^= 0xff;
    (0..4).for_each(|_| round(&mut v));
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_values_of_the_paper_and_its_reference() {
        let (k0, k1) = (0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        let bytes: Vec<u8> = (0..15).collect();
        assert_eq!(siphash(k0, k1, &bytes), 0xa129_ca61_49be_45e5);
        assert_eq!(siphash(k0, k1, &[]), 0x726f_db47_dd0e_0e31);
        assert_eq!(siphash(k0, k1, &bytes[..8]), 0x93f5_f579_9a93_2462);
    }

    #[test]
    fn queue_key_and_directory_all_count() {
        let hash = |directory, queue: &str, key: &str| {
            key_hash(directory, &queue.parse().unwrap(), &key.parse().unwrap())
        };
        let one = hash(1, "orders", "7");
        for other in [hash(2, "orders", "7"), hash(1, "order", "s7"), hash(1, "orders", "8")] {
            assert_ne!(one, other);
        }
    }
}

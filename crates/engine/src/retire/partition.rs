//! Which captured messages share a file: those that will be wanted at about the same time.
//!
//! A file goes when all in it are settled, and is read while its time lasts. So what is due soon lies apart from what
//! is due late, and the dead lie by themselves. The bounds grow with the distance: what is due in the far future is
//! parted when its time comes near. Too few for a file of their own join the next later ones.

use dwell_model::{State, Timestamp};

use super::job::ToCopy;

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;

/// How far away a message is due that goes into the first, second, … file; what is further away shares one.
const BOUNDS_MS: [u64; 6] = [10 * MINUTE_MS, HOUR_MS, 6 * HOUR_MS, DAY_MS, 2 * DAY_MS, 3 * DAY_MS];

/// Cuts messages into parts, a file each or more, as places in `to_copy`. A retirement makes at most 8 parts.
pub(super) fn partition(to_copy: &[ToCopy], now: Timestamp, least: usize) -> Vec<Vec<u32>> {
    let mut parts: Vec<Vec<u32>> = (0..BOUNDS_MS.len() + 2).map(|_| Vec::new()).collect();
    for (one, at) in to_copy.iter().zip(0..) {
        let standing = &one.entry.standing;
        let part = match standing.state {
            State::Dead(_) => BOUNDS_MS.len() + 1,
            _ => {
                let ahead_ms = standing.due.ms_since(now);
                BOUNDS_MS.partition_point(|bound| *bound <= ahead_ms)
            }
        };
        parts[part].push(at);
    }
    let mut joined: Vec<Vec<u32>> = Vec::new();
    let mut small = Vec::new();
    for mut part in parts {
        part.append(&mut small);
        if part.len() < least { small = part } else { joined.push(part) }
    }
    match joined.last_mut() {
        Some(last) => last.append(&mut small),
        None => joined.extend((!small.is_empty()).then_some(small)),
    }
    joined
}

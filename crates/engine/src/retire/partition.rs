//! Which retired messages share a file: those that will be wanted at about the same time.
//!
//! A file goes when all in it are settled, and is read while its time lasts. So what is due soon lies apart from what
//! is due late, and the dead, which nobody may ever come for, lie by themselves. The bounds grow with the distance,
//! from three days on by twos: a file lies there whole for about as long as it then takes to go, and so what is gone of
//! all files is less than what is left. What is due in the far future is parted when its time comes near. Too few for a
//! file of their own join the next later ones.
//!
//! What was captured does not share a file with what is moved out of older ones: bodies of the latter may not be written
//! again.

use dwell_model::{State, Timestamp};
use dwell_store::core::Captured;

use crate::journal::segment::Place;

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;

/// How far away a message is due that goes into the first, second, … file; what is further away shares one.
const BOUNDS_MS: [u64; 13] = [
    10 * MINUTE_MS,
    HOUR_MS,
    6 * HOUR_MS,
    DAY_MS,
    2 * DAY_MS,
    3 * DAY_MS,
    6 * DAY_MS,
    12 * DAY_MS,
    24 * DAY_MS,
    48 * DAY_MS,
    96 * DAY_MS,
    192 * DAY_MS,
    384 * DAY_MS,
];

/// Cuts messages into parts, a file each or more, as places in `to_copy`. A part has at least `least` messages, or all of
/// its kind.
pub(super) fn partition(to_copy: &[Captured<Place>], now: Timestamp, least: usize) -> Vec<Vec<u32>> {
    let is_dead = |one: &Captured<Place>| matches!(one.state(), State::Dead(_));
    let mut parts = Vec::new();
    for moved in [false, true] {
        let ours = || to_copy.iter().zip(0..).filter(move |(one, _)| one.copy.is_some() == moved);
        parts.append(&mut by_due(ours().filter(|(one, _)| !is_dead(one)), now, least));
        let dead: Vec<u32> = ours().filter(|(one, _)| is_dead(one)).map(|(_, at)| at).collect();
        parts.extend((!dead.is_empty()).then_some(dead));
    }
    parts
}

fn by_due<'a>(
    to_copy: impl Iterator<Item = (&'a Captured<Place>, u32)>,
    now: Timestamp,
    least: usize,
) -> Vec<Vec<u32>> {
    let mut parts: Vec<Vec<u32>> = (0..BOUNDS_MS.len() + 1).map(|_| Vec::new()).collect();
    for (one, at) in to_copy {
        let ahead_ms = one.due.ms_since(now);
        parts[BOUNDS_MS.partition_point(|bound| *bound <= ahead_ms)].push(at);
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

//! Which flushed messages share a file: those that will be wanted at about the same time.
//!
//! A file is removed when all its messages are settled, and is read while they are due. So messages that are due soon
//! are separate from those that are due late, and dead ones, which may stay forever, have separate files. The bounds
//! grow with the distance, doubling from three days on: a file stays whole for about as long as it then takes to drain,
//! and so the settled part of all files is smaller than the rest. Messages that are due in the far future are split
//! when their time comes near. Messages that are too few for a file join the next later ones.
//!
//! What was captured does not share a file with what is moved out of older ones: bodies of the latter may not be
//! written again.

use dwell_model::{State, Timestamp};
use dwell_store::core::SnapshotEntry;

use crate::journal::segment::BodyRef;

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;

/// The distance of the due at which the first, second, … file ends; messages beyond the last share one.
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

/// Divides messages into parts of one or more files each, as indexes in `to_copy`. A part has at least `least`
/// messages, or all of its kind.
pub(super) fn partition(to_copy: &[SnapshotEntry<BodyRef>], now: Timestamp, least: usize) -> Vec<Vec<u32>> {
    let is_dead = |one: &SnapshotEntry<BodyRef>| matches!(one.state(), State::Dead(_));
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
    to_copy: impl Iterator<Item = (&'a SnapshotEntry<BodyRef>, u32)>,
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

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::path::Path;
    use std::sync::Arc;

    use dwell_model::{Counts, Death, DeathReason, Headers, Message, MessageId, Number, Standing};
    use dwell_store::core::{CopyAt, QueueNames};

    use super::*;
    use crate::disk::{Disk, MemoryDisk};
    use crate::journal::format::SegmentName;
    use crate::journal::segment::Segment;

    const NOW_MS: i64 = 1_795_000_000_000;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_ms(NOW_MS + ms).unwrap()
    }

    /// Messages that are due this number of milliseconds from now; whether they are dead, and whether they are moved.
    fn captured(messages: &[(i64, bool, bool)]) -> Vec<SnapshotEntry<BodyRef>> {
        let (disk, dir) = (MemoryDisk::new(), Path::new("/d"));
        disk.create_dir(dir).unwrap();
        let file = disk.create(&dir.join("file")).unwrap();
        let name = SegmentName { directory: 7, shard: 0, segment: 1 };
        let segment = Arc::new(Segment::new(name, dir, file));
        let mut names = QueueNames::default();
        let captured = |((due, is_dead, is_moved), number): (&(i64, bool, bool), u64)| {
            let death = Death { reason: DeathReason::Buried, at: at(0) };
            let standing = Standing {
                state: if *is_dead { State::Dead(death) } else { State::Scheduled },
                due: at(*due),
                priority: 0,
                attempts: 0,
                expires: None,
                keyless: false,
                counts: Counts::default(),
                last_error: None,
                holder: None,
            };
            let message = Message {
                id: MessageId::new(at(*due), 0, 1, number),
                number: Number::new(number).unwrap(),
                queue: "q".parse().unwrap(),
                body: BodyRef { segment: Arc::clone(&segment), at: 0, len: 0 },
                key: None,
                headers: Headers::default(),
                created: at(0),
                lease_ms: None,
                max_attempts: None,
                standing,
            };
            let copy = CopyAt { file: NonZeroU32::MIN, ordinal: 0 };
            SnapshotEntry::of(message, Timestamp::MIN, is_moved.then_some(copy), &mut names)
        };
        messages.iter().zip(1..).map(captured).collect()
    }

    fn parts(messages: &[(i64, bool, bool)], least: usize) -> Vec<Vec<u32>> {
        partition(&captured(messages), at(0), least)
    }

    /// The values of `docs/format.md`.
    #[test]
    fn files_end_ten_minutes_to_384_days_ahead() {
        const MINUTE: i64 = 60_000;
        const DAY: i64 = 86_400_000;
        let mut bounds = vec![10 * MINUTE, 60 * MINUTE, 360 * MINUTE];
        bounds.extend([1, 2, 3, 6, 12, 24, 48, 96, 192, 384].map(|days| days * DAY));
        let mut messages = vec![(-DAY, false, false), (0, false, false)];
        for bound in &bounds {
            messages.extend([(bound - 1, false, false), (*bound, false, false)]);
        }
        messages.push((4_000 * DAY, false, false));
        let mut expected: Vec<Vec<u32>> = vec![vec![0, 1, 2]];
        expected.extend((1..bounds.len() as u32).map(|at| vec![2 * at + 1, 2 * at + 2]));
        let last = 2 * bounds.len() as u32 + 1;
        expected.push(vec![last, last + 1]);
        assert_eq!(parts(&messages, 1), expected);
    }

    #[test]
    fn too_few_join_the_next_later_ones_or_the_last() {
        let minutes = |minutes: i64| (minutes * 60_000, false, false);
        assert_eq!(parts(&[], 2), Vec::<Vec<u32>>::new());
        assert_eq!(parts(&[minutes(5)], 2), [[0]], "there are no others");
        let one_and_two = [minutes(5), minutes(30), minutes(40)];
        assert_eq!(parts(&one_and_two, 2), [vec![1, 2, 0]]);
        assert_eq!(parts(&[minutes(5), minutes(6), minutes(30)], 2), [vec![0, 1, 2]]);
        assert_eq!(parts(&[minutes(5), minutes(6), minutes(30), minutes(31)], 2), [vec![0, 1], vec![2, 3]]);
        assert_eq!(parts(&[minutes(5), minutes(30), minutes(2_000)], 2), [vec![1, 0, 2]]);
    }

    #[test]
    fn the_dead_and_what_is_moved_lie_by_themselves() {
        let messages = [
            (0, false, false),
            (0, true, false),
            (0, false, true),
            (0, true, true),
            (1, true, false),
            (1, false, true),
        ];
        assert_eq!(parts(&messages, 2), [vec![0], vec![1, 4], vec![2, 5], vec![3]]);
    }
}

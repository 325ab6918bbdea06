//! Tubes as connections see them: which are used and watched, and their counts.
//!
//! The store knows a queue while it has messages; beanstalkd knows a tube also while a connection uses or
//! watches it. This module keeps the second half, and the counts of `stats-tube` that no store keeps. A tube that
//! neither half knows is forgotten with its counts, so that memory is bounded by the tubes that exist.
//!
//! A name is in memory once, however many connections watch it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dwell_model::{QueueName, Timestamp};

/// All tubes.
#[derive(Debug, Default)]
pub(super) struct Tubes(Mutex<Map>);

#[derive(Debug, Default)]
struct Map {
    tubes: HashMap<QueueName, Tube>,
    /// The number of tubes above which those without connections are checked. It grows by half or more each time, which
    /// keeps the amortized cost constant.
    look_at: usize,
    /// Those that are still to be checked.
    to_look_at: Vec<QueueName>,
}

/// The state of one tube.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tube {
    /// Connections that use it.
    pub(super) using: u64,
    /// Connections that watch it.
    pub(super) watching: u64,
    /// Jobs put into it.
    pub(super) total_jobs: u64,
    /// Jobs deleted from it.
    pub(super) deletes: u64,
    /// Times it was paused.
    pub(super) pauses: u64,
    /// The end of its last pause, and the length of that pause in seconds.
    pub(super) pause: Option<(Timestamp, u32)>,
}

impl Tube {
    /// Whether a connection uses or watches it.
    pub(super) fn is_connected(&self) -> bool {
        self.using + self.watching > 0
    }
}

const FEWEST_TO_LOOK_AT: usize = 1_024;

/// The number of tubes checked at a time.
const LOOKED_AT: usize = 16;

impl Tubes {
    fn map(&self) -> MutexGuard<'_, Map> {
        // Every change is one step, so a panic elsewhere leaves nothing inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, name: &QueueName, change: impl FnOnce(&mut Tube)) {
        let mut map = self.map();
        match map.tubes.get_mut(name) {
            Some(tube) => change(tube),
            None => change(map.tubes.entry(name.clone()).or_default()),
        }
    }

    /// Adds a tie of another connection; returns the name that is shared in memory.
    fn tie(&self, name: QueueName, kind: TieKind) -> QueueName {
        let mut map = self.map();
        let name = map.tubes.get_key_value(&name).map(|(known, _)| known.clone()).unwrap_or(name);
        *kind.of(map.tubes.entry(name.clone()).or_default()) += 1;
        name
    }

    pub(super) fn put(&self, name: &QueueName, jobs: u64) {
        self.change(name, |tube| tube.total_jobs += jobs);
    }

    pub(super) fn deleted(&self, name: &QueueName) {
        self.change(name, |tube| tube.deletes += 1);
    }

    pub(super) fn paused(&self, name: &QueueName, seconds: u32, until: Option<Timestamp>) {
        self.change(name, |tube| {
            tube.pauses += 1;
            tube.pause = until.map(|until| (until, seconds));
        });
    }

    /// The end of the last pause of a tube that no connection uses or watches.
    pub(super) fn left_paused(&self, name: &QueueName) -> Option<Timestamp> {
        let map = self.map();
        let tube = map.tubes.get(name).filter(|tube| !tube.is_connected())?;
        tube.pause.map(|(until, _)| until)
    }

    /// Removes the pause that was to end at `until`.
    pub(super) fn unpaused(&self, name: &QueueName, until: Timestamp) {
        if let Some(tube) = self.map().tubes.get_mut(name) {
            tube.pause = tube.pause.filter(|(end, _)| *end != until);
        }
    }

    /// The state of a tube.
    pub(super) fn get(&self, name: &QueueName) -> Option<Tube> {
        self.map().tubes.get(name).copied()
    }

    /// The tubes that connections use or watch.
    pub(super) fn connected(&self) -> Vec<QueueName> {
        let map = self.map();
        map.tubes.iter().filter(|(_, tube)| tube.is_connected()).map(|(name, _)| name.clone()).collect()
    }

    /// Some of the tubes without a connection, if there are enough tubes to check whether they still exist: few enough
    /// to cost the caller little. The others follow at later calls.
    pub(super) fn to_look_at(&self) -> Vec<QueueName> {
        let map = &mut *self.map();
        if map.to_look_at.is_empty() && map.tubes.len() >= map.look_at.max(FEWEST_TO_LOOK_AT) {
            let alone = map.tubes.iter().filter(|(_, tube)| !tube.is_connected());
            map.to_look_at = alone.map(|(name, _)| name.clone()).collect();
            map.look_at = map.tubes.len().saturating_mul(2);
        }
        let others = map.to_look_at.len().saturating_sub(LOOKED_AT);
        map.to_look_at.split_off(others)
    }

    /// Forgets those that no connection has used or watched meanwhile.
    pub(super) fn forget(&self, gone: &[QueueName]) {
        let map = &mut *self.map();
        for name in gone {
            if map.tubes.get(name).is_some_and(|tube| !tube.is_connected()) {
                map.tubes.remove(name);
            }
        }
        if map.to_look_at.is_empty() {
            map.to_look_at = Vec::new();
            map.look_at = map.tubes.len().saturating_mul(2);
        }
    }
}

/// A connection's tie to a tube; removed when this is dropped.
#[derive(Debug)]
pub(super) struct Tie {
    tubes: Arc<Tubes>,
    name: QueueName,
    kind: TieKind,
}

/// The kind of a tie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TieKind {
    /// The connection puts into it.
    Using,
    /// The connection reserves from it.
    Watching,
}

impl Tie {
    pub(super) fn new(tubes: &Arc<Tubes>, name: QueueName, kind: TieKind) -> Tie {
        let name = tubes.tie(name, kind);
        Tie { tubes: Arc::clone(tubes), name, kind }
    }

    pub(super) fn name(&self) -> &QueueName {
        &self.name
    }
}

impl Drop for Tie {
    fn drop(&mut self) {
        self.tubes.change(&self.name, |tube| *self.kind.of(tube) -= 1);
    }
}

impl TieKind {
    fn of(self, tube: &mut Tube) -> &mut u64 {
        match self {
            TieKind::Using => &mut tube.using,
            TieKind::Watching => &mut tube.watching,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Tubes {
        /// The number of known tubes.
        pub(in crate::beanstalkd) fn len(&self) -> usize {
            self.map().tubes.len()
        }
    }

    #[test]
    fn a_name_is_in_memory_once() {
        let tubes = Arc::new(Tubes::default());
        let tie = || Tie::new(&tubes, "t".parse().unwrap(), TieKind::Watching);
        let (one, other) = (tie(), tie());
        assert!(std::ptr::eq(one.name().as_str(), other.name().as_str()));
    }

    #[test]
    fn tubes_without_connections_are_looked_at_when_there_are_many_and_forgotten() {
        let tubes = Arc::new(Tubes::default());
        let name = |i: usize| format!("t{i}").parse::<QueueName>().unwrap();
        let tie = Tie::new(&tubes, name(0), TieKind::Watching);
        for i in 1..FEWEST_TO_LOOK_AT - 1 {
            drop(Tie::new(&tubes, name(i), TieKind::Using));
            assert!(tubes.to_look_at().is_empty());
        }
        drop(Tie::new(&tubes, name(FEWEST_TO_LOOK_AT), TieKind::Using));
        let mut gone = Vec::new();
        loop {
            let some = tubes.to_look_at();
            assert!(some.len() <= LOOKED_AT);
            if gone.len() == FEWEST_TO_LOOK_AT - 1 {
                assert!(some.is_empty(), "all have been looked at");
                break;
            }
            gone.extend(some);
        }
        let back = Tie::new(&tubes, name(1), TieKind::Using);
        tubes.forget(&gone);
        assert_eq!(tubes.get(&name(2)), None);
        let mut connected = tubes.connected();
        connected.sort();
        assert_eq!(connected, [name(0), name(1)]);
        drop((tie, back));
        assert!(tubes.connected().is_empty());
    }
}

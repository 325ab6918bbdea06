//! Counts of events since the server began, and of connections.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter that many connections change. Counters are not compared with each other, so relaxed ordering is enough.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn sub(&self, fewer: u64) {
        self.0.fetch_sub(fewer, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counted {
    ($($name:ident $field:literal),* $(,)?) => {
        /// The commands that `stats` counts, in its order.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum CountedCommand {
            $($name),*
        }

        const FIELDS: &[&str] = &[$($field),*];
    };
}

counted! {
    Put "cmd-put",
    Peek "cmd-peek",
    PeekReady "cmd-peek-ready",
    PeekDelayed "cmd-peek-delayed",
    PeekBuried "cmd-peek-buried",
    Reserve "cmd-reserve",
    ReserveWithTimeout "cmd-reserve-with-timeout",
    Delete "cmd-delete",
    Release "cmd-release",
    Use "cmd-use",
    Watch "cmd-watch",
    Ignore "cmd-ignore",
    Bury "cmd-bury",
    Kick "cmd-kick",
    Touch "cmd-touch",
    Stats "cmd-stats",
    StatsJob "cmd-stats-job",
    StatsTube "cmd-stats-tube",
    ListTubes "cmd-list-tubes",
    ListTubeUsed "cmd-list-tube-used",
    ListTubesWatched "cmd-list-tubes-watched",
    PauseTube "cmd-pause-tube",
}

/// All counters of a server.
#[derive(Debug, Default)]
pub(super) struct Counters {
    commands: [Counter; FIELDS.len()],
    /// Jobs that were put.
    pub(super) jobs: Counter,
    /// Leases of connected clients that ran out.
    pub(super) timeouts: Counter,
    /// Open connections.
    pub(super) connections: Counter,
    /// Connections so far.
    pub(super) connections_ever: Counter,
    /// Connections that have put.
    pub(super) producers: Counter,
    /// Connections that have reserved.
    pub(super) workers: Counter,
    /// Connections that wait in a reserve.
    pub(super) waiting: Counter,
}

impl Counters {
    /// Counts a command that was read.
    pub(super) fn count(&self, command: CountedCommand) {
        self.commands[command as usize].add(1);
    }

    /// The fields of `stats`, in its order.
    pub(super) fn commands(&self) -> impl Iterator<Item = (&'static str, u64)> {
        FIELDS.iter().copied().zip(self.commands.iter().map(Counter::get))
    }
}

//! When something happened, as far as the outside can tell.

use super::policy::Policy;

/// A place in the one order in which the oracle hears of things.
pub(crate) type Seq = u64;

/// A number known to lie between two bounds, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Span {
    /// At least this.
    pub(crate) lo: i64,
    /// At most this.
    pub(crate) hi: i64,
}

impl Span {
    /// Exactly this.
    pub(crate) fn exact(at: i64) -> Span {
        Span { lo: at, hi: at }
    }

    /// Both bounds moved.
    pub(crate) fn plus(self, ms: i64) -> Span {
        Span { lo: self.lo.saturating_add(ms), hi: self.hi.saturating_add(ms) }
    }

    /// The earlier of two instants that are known so far.
    pub(crate) fn earlier(self, other: Span) -> Span {
        Span { lo: self.lo.min(other.lo), hi: self.hi.min(other.hi) }
    }

    /// Whether `at` may be it.
    pub(crate) fn holds(self, at: i64) -> bool {
        (self.lo..=self.hi).contains(&at)
    }
}

/// Between which readings of the clocks a command took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// On the wall clock, by which messages are due and expire.
    pub(crate) wall: Span,
    /// On the monotonic clock, by which leases run out.
    pub(crate) mono: Span,
}

/// One reading of both clocks, in milliseconds. Where the wall clock is never stepped the two may be the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The wall clock.
    pub(crate) wall: i64,
    /// The monotonic clock.
    pub(crate) mono: i64,
}

impl Window {
    /// From one reading to another. The wall clock may have been stepped back in between.
    pub(crate) fn between(begin: Reading, end: Reading) -> Window {
        Window {
            wall: Span { lo: begin.wall.min(end.wall), hi: begin.wall.max(end.wall) },
            mono: Span { lo: begin.mono, hi: end.mono },
        }
    }
}

/// What the oracle has to know about the store's surroundings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    /// How far the end of a lease may lie from where it was announced: the store measures it on another clock.
    pub(crate) lease_tolerance_ms: i64,
    /// Whether nobody steps the wall clock, so that it measures leases as well.
    pub(crate) one_clock: bool,
    /// Whether a crash may lose leases, and what time alone brought about, that no sync has covered yet.
    pub(crate) power_loss: bool,
    /// Each wall time that the store was shown, in order, if the wall clock steps; else empty.
    pub(crate) readings: Vec<(Seq, i64)>,
}

/// How long an expired message may still be listed as waiting, and a dead one be counted whose time is over.
pub(crate) const EXPIRY_IN_LISTS_MS: i64 = 60_000;

impl Rules {
    /// The store was shown this wall time.
    pub(crate) fn shown(&mut self, at: Seq, wall: i64) {
        self.readings.push((at, wall));
    }

    /// The window, with all wall times in it that the store was shown from `begin` to `end`.
    pub(crate) fn widened(&self, mut window: Window, begin: Seq, end: Seq) -> Window {
        for (_, wall) in self.shown_between(begin, end) {
            window.wall.lo = window.wall.lo.min(*wall);
            window.wall.hi = window.wall.hi.max(*wall);
        }
        window
    }

    fn shown_between(&self, begin: Seq, end: Seq) -> impl Iterator<Item = &(Seq, i64)> {
        let from = self.readings.partition_point(|(at, _)| *at < begin);
        self.readings[from..].iter().take_while(move |(at, _)| *at <= end)
    }

    /// The latest wall time that the store may have seen from `since` to `until`: a message stays ready
    /// though the clock steps back.
    pub(crate) fn peak(&self, since: Seq, until: Seq, window: &Window) -> i64 {
        let seen = self.shown_between(since, until).map(|(_, wall)| *wall);
        seen.chain([window.wall.hi]).max().expect("the window itself is one")
    }
}

/// When and under which rules a command took effect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<'a> {
    /// Its begin in the order of things heard.
    pub(crate) begin: Seq,
    /// Its end.
    pub(crate) end: Seq,
    /// The clocks meanwhile.
    pub(crate) window: Window,
    /// What else there is to know.
    pub(crate) rules: &'a Rules,
    /// What the settings of the queue may have been.
    pub(crate) policy: &'a Policy,
}

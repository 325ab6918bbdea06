//! The time of an event, as far as it can be observed from outside.

use super::policy::Policy;

/// A position in the order in which the oracle receives events.
pub(crate) type Seq = u64;

/// A number that lies between two bounds, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Span {
    /// The lower bound.
    pub(crate) lo: i64,
    /// The upper bound.
    pub(crate) hi: i64,
}

impl Span {
    /// Exactly this number.
    pub(crate) fn exact(at: i64) -> Span {
        Span { lo: at, hi: at }
    }

    /// The span moved by `ms`.
    pub(crate) fn plus(self, ms: i64) -> Span {
        Span { lo: self.lo.saturating_add(ms), hi: self.hi.saturating_add(ms) }
    }

    /// The earlier of two instants that are known only as spans.
    pub(crate) fn earlier(self, other: Span) -> Span {
        Span { lo: self.lo.min(other.lo), hi: self.hi.min(other.hi) }
    }

    /// Whether the number may be `at`.
    pub(crate) fn holds(self, at: i64) -> bool {
        (self.lo..=self.hi).contains(&at)
    }
}

/// The readings of the clocks between which a command took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// On the wall clock, which decides when messages are due and expire.
    pub(crate) wall: Span,
    /// On the monotonic clock, which decides when leases run out.
    pub(crate) mono: Span,
}

/// One reading of both clocks, in milliseconds. If the wall clock is never stepped, the two may be the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The wall clock.
    pub(crate) wall: i64,
    /// The monotonic clock.
    pub(crate) mono: i64,
}

impl Window {
    /// The window from one reading to another. The wall clock may have been stepped back in between.
    pub(crate) fn between(begin: Reading, end: Reading) -> Window {
        Window {
            wall: Span { lo: begin.wall.min(end.wall), hi: begin.wall.max(end.wall) },
            mono: Span { lo: begin.mono, hi: end.mono },
        }
    }
}

/// What the oracle knows of the store's environment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    /// How far the end of a lease may deviate from the reported one, in ms: the store measures it on another clock.
    pub(crate) lease_tolerance_ms: i64,
    /// Whether the wall clock is never stepped, so that it measures leases too.
    pub(crate) one_clock: bool,
    /// Whether a crash may lose leases and changes by time that are not synced yet.
    pub(crate) power_loss: bool,
    /// Each wall time that the store was shown, in order, if the wall clock steps; otherwise empty.
    pub(crate) readings: Vec<(Seq, i64)>,
    /// The wall time of each turn of the store in which reads might fail, in order.
    pub(crate) unreadable: Vec<(Seq, i64)>,
}

/// How long an expired message may still be listed as pending, and a dead one past retention still be counted, in ms.
pub(crate) const EXPIRY_IN_LISTS_MS: i64 = 60_000;

impl Rules {
    /// Records a wall time that the store was shown.
    pub(crate) fn shown(&mut self, at: Seq, wall: i64) {
        self.readings.push((at, wall));
    }

    /// Records a turn at this wall time in which reads might fail.
    pub(crate) fn could_not_read(&mut self, at: Seq, wall: i64) {
        self.unreadable.push((at, wall));
    }

    /// Whether the expiry at an instant may have been noticed, from `since` to `until`, when the message could not be read.
    pub(crate) fn may_be_unread(&self, since: Seq, until: Seq, expires: i64) -> bool {
        let from = self.unreadable.partition_point(|(at, _)| *at < since);
        self.unreadable[from..].iter().take_while(|(at, _)| *at <= until).any(|(_, wall)| expires <= *wall)
    }

    /// The window, extended to all wall times that the store was shown from `begin` to `end`.
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

    /// The latest wall time that the store may have seen from `since` to
    /// `until`: a message stays ready even if the clock steps back.
    pub(crate) fn peak(&self, since: Seq, until: Seq, window: &Window) -> i64 {
        let seen = self.shown_between(since, until).map(|(_, wall)| *wall);
        seen.chain([window.wall.hi]).max().expect("the window itself is one")
    }
}

/// The time and the rules under which a command took effect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<'a> {
    /// Its begin in the order of events.
    pub(crate) begin: Seq,
    /// Its end.
    pub(crate) end: Seq,
    /// The clocks in that span.
    pub(crate) window: Window,
    /// The rules of the environment.
    pub(crate) rules: &'a Rules,
    /// The possible settings of the queue.
    pub(crate) policy: &'a Policy,
}

//! One message as the oracle believes it to stand, and what time alone may have made of it.

use super::window::{At, EXPIRY_IN_LISTS_MS, Reading, Seq, Span};

/// Where a message stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Scheduled or ready: which of the two, its instant says.
    Pending,
    /// Handed out.
    Leased(Lease),
    /// Set aside.
    Dead,
}

/// A lease in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Lease {
    /// Its token; nothing if the answer to the take was lost.
    pub(crate) token: Option<u128>,
    /// Its deadline on the monotonic clock.
    pub(crate) until: Span,
    /// Its deadline on the wall clock as it was when the lease was granted.
    pub(crate) until_wall: Span,
    /// How long it was granted for, in milliseconds.
    pub(crate) lease_ms: i64,
    /// Whether it ends with the process.
    pub(crate) bound: bool,
    /// Whether the message could not be read, so that nobody was handed it.
    pub(crate) unread: bool,
}

/// The part of a message that changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Standing {
    /// When it is due.
    pub(crate) due: Span,
    /// When that was decided.
    pub(crate) since: Seq,
    /// Its priority.
    pub(crate) priority: u32,
    /// How many attempts are spent.
    pub(crate) attempts: u32,
    /// When it expires.
    pub(crate) expires: Option<i64>,
    /// Where it stands.
    pub(crate) phase: Phase,
}

/// A message that exists, or existed when last heard of.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Message {
    /// The number of the put that made it.
    pub(crate) no: u64,
    /// Its id, once heard.
    pub(crate) id: Option<u128>,
    /// Whether it has the key of its group, or had it when it died.
    pub(crate) keyed: bool,
    /// Attempts that it is granted; 0 for no limit.
    pub(crate) max_attempts: u32,
    /// Where it stands.
    pub(crate) standing: Standing,
    /// How it stood before each change that a loss of power may undo, oldest first.
    pub(crate) undo: Vec<(Seq, Standing)>,
}

impl Message {
    /// Whether it has the key now.
    pub(crate) fn owns_key(&self) -> bool {
        self.keyed && self.standing.phase != Phase::Dead
    }

    /// Takes `id` for its id; false if it is known to be another.
    pub(crate) fn is_id(&mut self, id: u128) -> bool {
        *self.id.get_or_insert(id) == id
    }

    /// Takes `due` for its instant; false if that cannot be.
    pub(crate) fn is_due(&mut self, due: i64) -> bool {
        let possible = self.standing.due.holds(due);
        self.standing.due = Span::exact(due);
        possible
    }

    /// Takes `until` for the wall deadline of its lease; false if it has none, or not that one.
    pub(crate) fn is_leased_until(&mut self, until: i64, at: At<'_>) -> bool {
        let Phase::Leased(lease) = &mut self.standing.phase else { return false };
        let possible = lease.until_wall.holds(until);
        lease.until_wall = Span::exact(until);
        if at.rules.one_clock {
            lease.until = lease.until_wall;
        }
        possible
    }

    /// Whether its instant may have come.
    pub(crate) fn may_be_ready(&self, at: At<'_>) -> bool {
        self.standing.due.lo <= at.rules.peak(self.standing.since, at.end, &at.window)
    }

    /// Changes it by something that is synced before it is answered.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Standing)) {
        self.undo.clear();
        change(&mut self.standing);
    }

    /// Changes it by something that a loss of power may undo.
    pub(crate) fn change_unsynced(&mut self, at: At<'_>, change: impl FnOnce(&mut Standing)) {
        if at.rules.power_loss {
            self.undo.push((at.end, self.standing.clone()));
        }
        change(&mut self.standing);
    }

    /// Moves its instant.
    pub(crate) fn reschedule(&mut self, due: Span, at: At<'_>) {
        self.change(|standing| {
            standing.due = due;
            standing.since = at.begin;
            standing.phase = Phase::Pending;
        });
    }

    /// Spends an attempt: dead if it was the last one.
    pub(crate) fn spend_attempt(&self, standing: &mut Standing) {
        standing.attempts += 1;
        let spent = self.max_attempts != 0 && standing.attempts >= self.max_attempts;
        standing.phase = if spent { Phase::Dead } else { Phase::Pending };
    }

    /// The lease ran out.
    fn lapsed(&self, at: At<'_>) -> Message {
        let mut lapsed = self.clone();
        lapsed.change_unsynced(at, |standing| self.spend_attempt(standing));
        lapsed
    }

    /// All that time may have made of it by then. A list may be late in showing an expiry, so it is `lenient`.
    pub(crate) fn versions(&self, at: At<'_>, lenient: bool) -> Vec<Message> {
        let Phase::Leased(lease) = self.standing.phase else {
            return self.clone().expired_or_not(at, lenient);
        };
        let tolerance = at.rules.lease_tolerance_ms;
        let mut versions = Vec::new();
        if at.window.mono.lo < lease.until.hi + tolerance {
            versions.push(self.clone());
        }
        if at.window.mono.hi >= lease.until.lo - tolerance {
            versions.extend(self.lapsed(at).expired_or_not(at, lenient));
        }
        versions
    }

    /// Alive, expired, or either.
    pub(crate) fn expired_or_not(self, at: At<'_>, lenient: bool) -> Vec<Message> {
        let (Phase::Pending, Some(expires)) = (self.standing.phase, self.standing.expires) else {
            return vec![self];
        };
        let mut versions = Vec::new();
        if expires <= at.rules.peak(self.standing.since, at.end, &at.window) {
            let mut dead = self.clone();
            dead.change_unsynced(at, |standing| standing.phase = Phase::Dead);
            versions.push(dead);
        }
        if at.window.wall.lo < expires + if lenient { EXPIRY_IN_LISTS_MS } else { 0 } {
            versions.push(self);
        }
        versions
    }

    /// Brought back from the dead, due then, with an expiry only if it would outlive both that and now: one
    /// way, or both ways where it cannot be known.
    pub(crate) fn revived(standing: &Standing, due: Span, at: At<'_>) -> Vec<Standing> {
        let mut kept = standing.clone();
        kept.due = due;
        kept.since = at.begin;
        kept.phase = Phase::Pending;
        kept.attempts = 0;
        let Some(expires) = standing.expires else { return vec![kept] };
        let dropped = Standing { expires: None, ..kept.clone() };
        let wall = at.window.wall;
        match (expires > due.lo.max(wall.lo), expires > due.hi.max(wall.hi)) {
            (_, true) => vec![kept],
            (true, false) => vec![kept, dropped],
            (false, false) => vec![dropped],
        }
    }

    /// All that a loss of power may have left of it, if what had ended before `cut` is kept, and what ended
    /// after it is gone: the log survives up to some point. What ended just then may be kept in part.
    pub(crate) fn after_power_loss(&self, cut: Seq) -> Vec<Message> {
        let kept =
            |standing: &Standing| Message { standing: standing.clone(), undo: Vec::new(), ..self.clone() };
        let mut versions: Vec<Message> =
            self.undo.iter().filter(|(changed, _)| *changed == cut).map(|(_, before)| kept(before)).collect();
        let later = self.undo.iter().find(|(changed, _)| *changed > cut);
        versions.push(kept(later.map_or(&self.standing, |(_, before)| before)));
        versions
    }

    /// What closing the store makes of it: a bound lease is given back without spending an attempt.
    pub(crate) fn closed(&self) -> Message {
        let mut closed = self.clone();
        if let Phase::Leased(Lease { bound: true, .. }) = self.standing.phase {
            closed.change(|standing| standing.phase = Phase::Pending);
        }
        closed
    }

    /// What a process that opens the store makes of it: a bound lease ends, another goes on for what the
    /// wall clock says is left of it, and never for longer than was granted.
    pub(crate) fn reopened(&self, now: Reading, at: At<'_>) -> Message {
        let Phase::Leased(lease) = self.standing.phase else { return self.clone() };
        if lease.bound {
            return self.lapsed(at);
        }
        let left = |until: i64| now.mono + (until - now.wall).clamp(0, lease.lease_ms);
        let until = Span { lo: left(lease.until_wall.lo), hi: left(lease.until_wall.hi) };
        let mut reopened = self.clone();
        // The process that was to see to what it could not read is gone.
        reopened.standing.phase = Phase::Leased(Lease { until, unread: false, ..lease });
        reopened
    }
}

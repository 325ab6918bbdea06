//! One message as the oracle believes it to stand, and what time alone may have made of it.

use super::policy::later;
use super::window::{At, EXPIRY_IN_LISTS_MS, Reading, Seq, Span};

/// Where a message stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Scheduled or ready: which of the two, its instant says.
    Pending,
    /// Handed out.
    Leased(Lease),
    /// Set aside.
    Dead(Death),
    /// Gone without anybody's asking, which a loss of power may undo: it was dead, and past its queue's retention, or has expired,
    /// and its queue drops what does.
    Gone(Option<Death>),
}

/// How a message is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Death {
    /// The instant of its death: from then on it is kept for so long.
    pub(crate) at: Span,
    /// The begin of the command since which it may be dead.
    pub(crate) since: Seq,
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
    /// Who holds it, if the take has said so.
    pub(crate) holder: Option<u32>,
    /// The begin of the command that granted it.
    pub(crate) since: Seq,
    /// The end of that command.
    pub(crate) granted: Seq,
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
    /// How often it was handed out, and received.
    pub(crate) takes: u32,
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
        self.keyed && !matches!(self.standing.phase, Phase::Dead(_) | Phase::Gone(_))
    }

    /// Whether it is gone, as far as no loss of power undoes that.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.standing.phase, Phase::Gone(_))
    }

    /// Whether its lease ends with the process that took it.
    pub(crate) fn is_bound(&self) -> bool {
        matches!(self.standing.phase, Phase::Leased(Lease { bound: true, .. }))
    }

    /// How it is dead, if it is.
    pub(crate) fn death(&self) -> Option<Death> {
        match self.standing.phase {
            Phase::Dead(death) => Some(death),
            _ => None,
        }
    }

    /// Takes `at` for the instant of its death; false if it is not dead, or did not die then.
    pub(crate) fn has_died_at(&mut self, at: i64) -> bool {
        let Phase::Dead(death) = &mut self.standing.phase else { return false };
        let possible = death.at.holds(at);
        death.at = Span::exact(at);
        possible
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
    pub(crate) fn spend_attempt(&self, standing: &mut Standing, death: Death) {
        standing.attempts += 1;
        let spent = self.max_attempts != 0 && standing.attempts >= self.max_attempts;
        standing.phase = if spent { Phase::Dead(death) } else { Phase::Pending };
    }

    /// All that it may be after its lease ran out or was ended at the instant `over`: it waits then if its queue says so, and may
    /// have said so since `since`.
    pub(crate) fn after_lapse(&self, over: Span, since: Seq, at: At<'_>) -> Vec<Standing> {
        let mut spent = self.standing.clone();
        self.spend_attempt(&mut spent, Death { at: over, since });
        if spent.phase != Phase::Pending {
            return vec![spent];
        }
        let delays = at.policy.lapse_delays(since, at.end, self.id, spent.attempts);
        let waiting = delays.into_iter().map(|delay| match delay {
            Some(delay) => Standing { due: later(over, delay), since, ..spent.clone() },
            None => spent.clone(),
        });
        waiting.collect()
    }

    /// The lease ran out at the instant `over`.
    fn lapsed(&self, over: Span, since: Seq, at: At<'_>) -> Vec<Message> {
        let lapsed = |after| {
            let mut lapsed = self.clone();
            lapsed.change_unsynced(at, |standing| *standing = after);
            lapsed
        };
        self.after_lapse(over, since, at).into_iter().map(lapsed).collect()
    }

    /// All that time may have made of it by then. A list may be late in showing an expiry, so it is `lenient`.
    pub(crate) fn versions(&self, at: At<'_>, lenient: bool) -> Vec<Message> {
        let Phase::Leased(lease) = self.standing.phase else {
            return self.clone().settled_by_time(at, lenient);
        };
        let tolerance = at.rules.lease_tolerance_ms;
        let mut versions = Vec::new();
        if at.window.mono.lo < lease.until.hi + tolerance {
            versions.push(self.clone());
        }
        if at.window.mono.hi >= lease.until.lo - tolerance {
            for lapsed in self.lapsed(lease.until_wall, lease.since, at) {
                versions.extend(lapsed.settled_by_time(at, lenient));
            }
        }
        versions
    }

    /// All that the wall clock may have made of it, which nobody holds.
    pub(crate) fn settled_by_time(self, at: At<'_>, lenient: bool) -> Vec<Message> {
        self.expired_or_not(at, lenient).into_iter().flat_map(|message| message.kept_or_not(at)).collect()
    }

    /// Alive, expired, or either.
    fn expired_or_not(self, at: At<'_>, lenient: bool) -> Vec<Message> {
        let (Phase::Pending, Some(expires)) = (self.standing.phase, self.standing.expires) else {
            return vec![self];
        };
        let since = self.standing.since;
        let mut versions = Vec::new();
        if expires <= at.rules.peak(since, at.end, &at.window) {
            for drops in at.policy.drops(since, at.end, expires) {
                let phase = match drops {
                    true => Phase::Gone(None),
                    false => Phase::Dead(Death { at: Span::exact(expires), since }),
                };
                let mut expired = self.clone();
                expired.change_unsynced(at, |standing| standing.phase = phase);
                versions.push(expired);
            }
        }
        if at.window.wall.lo < expires + if lenient { EXPIRY_IN_LISTS_MS } else { 0 } {
            versions.push(self);
        }
        versions
    }

    /// Discarded by its queue's retention, or not, if it is dead.
    fn kept_or_not(self, at: At<'_>) -> Vec<Message> {
        let Some(death) = self.death().filter(|death| self.may_be_discarded(*death, at)) else {
            return vec![self];
        };
        let mut discarded = self.clone();
        discarded.change_unsynced(at, |standing| standing.phase = Phase::Gone(Some(death)));
        vec![discarded, self]
    }

    /// Whether its queue's retention may have discarded it: its time was over, or as many others died at the same time or later as
    /// the queue keeps.
    pub(crate) fn may_be_discarded(&self, death: Death, at: At<'_>) -> bool {
        let peak = at.rules.peak(death.since, at.end, &at.window);
        let is_beyond = |most: i64| at.policy.died_since(death.at.lo, self.no) >= most;
        at.policy.may_be_over(death.since, at.end, death.at.lo, peak)
            || at.policy.dead_maxes(death.since, at.end).flatten().any(is_beyond)
    }

    /// Whether commands may find it by its id: not if it is gone, or dead for as long as its queue keeps it.
    pub(crate) fn may_be_found(&self, at: At<'_>) -> bool {
        match self.standing.phase {
            Phase::Gone(_) => false,
            Phase::Pending | Phase::Leased(_) => true,
            Phase::Dead(death) => {
                let is_kept = |ttl: Option<i64>| {
                    ttl.is_none_or(|ttl| death.at.hi.saturating_add(ttl) > at.window.wall.lo)
                };
                at.policy.dead_ttls(at.begin, at.end).any(is_kept)
            }
        }
    }

    /// Whether commands may find nothing by its id.
    pub(crate) fn may_be_missed(&self, at: At<'_>) -> bool {
        match self.standing.phase {
            Phase::Gone(_) => true,
            Phase::Pending | Phase::Leased(_) => false,
            Phase::Dead(death) => {
                let is_over = |ttl: i64| death.at.lo.saturating_add(ttl) <= at.window.wall.hi;
                at.policy.dead_ttls(at.begin, at.end).flatten().any(is_over)
            }
        }
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

    /// All that a process that opens the store may make of it: a bound lease ends, another goes on for what the wall clock says
    /// is left of it, and never for longer than was granted.
    pub(crate) fn reopened(&self, now: Reading, at: At<'_>) -> Vec<Message> {
        let Phase::Leased(lease) = self.standing.phase else { return vec![self.clone()] };
        if lease.bound {
            let Span { lo, hi } = lease.until_wall;
            let ran_out = (lo <= now.wall).then(|| Span { lo, hi: hi.min(now.wall) });
            let freed = (hi > now.wall).then(|| Span::exact(now.wall));
            let over = ran_out.into_iter().chain(freed);
            return over.flat_map(|over| self.lapsed(over, lease.since, at)).collect();
        }
        let left = |until: i64| now.mono + (until - now.wall).clamp(0, lease.lease_ms);
        let until = Span { lo: left(lease.until_wall.lo), hi: left(lease.until_wall.hi) };
        let mut reopened = self.clone();
        // The process that was to see to what it could not read is gone.
        reopened.standing.phase = Phase::Leased(Lease { until, unread: false, ..lease });
        vec![reopened]
    }
}

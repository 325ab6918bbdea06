//! One message in a state that the oracle considers possible, and the changes that time alone may have made.

use super::policy::later;
use super::window::{At, EXPIRY_IN_LISTS_MS, Reading, Seq, Span};

/// The state of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum MessagePhase {
    /// Scheduled or ready, depending on its due instant.
    Pending,
    /// Leased.
    Leased(Lease),
    /// Dead.
    Dead(Death),
    /// Gone without a command, which a power loss may undo: it was dead and past its queue's retention, or has expired in
    /// a queue that drops expired messages.
    Gone(Option<Death>),
}

/// The death of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Death {
    /// The instant of the death, from which retention counts.
    pub(crate) at: Span,
    /// The begin of the command since which it may be dead.
    pub(crate) since: Seq,
}

/// A lease in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Lease {
    /// Its token; `None` if the answer to the take was lost.
    pub(crate) token: Option<u128>,
    /// Its deadline on the monotonic clock.
    pub(crate) until: Span,
    /// Its deadline on the wall clock, as of the grant of the lease.
    pub(crate) until_wall: Span,
    /// Its length, in milliseconds.
    pub(crate) lease_ms: i64,
    /// Whether it ends with the process.
    pub(crate) session: bool,
    /// Whether the message could not be read, and so was not delivered.
    pub(crate) unread: bool,
    /// Its holder, if the take named one.
    pub(crate) holder: Option<u32>,
    /// The begin of the command that granted it.
    pub(crate) since: Seq,
    /// The end of that command.
    pub(crate) granted: Seq,
}

/// The mutable part of a message.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Belief {
    /// When it is due.
    pub(crate) due: Span,
    /// When its due instant was last set.
    pub(crate) since: Seq,
    /// Its priority.
    pub(crate) priority: u32,
    /// The number of attempts spent.
    pub(crate) attempts: u32,
    /// The number of deliveries that were received.
    pub(crate) takes: u32,
    /// When it expires.
    pub(crate) expires: Option<i64>,
    /// Its state.
    pub(crate) phase: MessagePhase,
}

/// A message that exists, or existed when it was last seen.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TrackedMessage {
    /// The number of the put that made it.
    pub(crate) no: u64,
    /// Its id, once known.
    pub(crate) id: Option<u128>,
    /// Whether it has the key of its group, or had it when it died.
    pub(crate) keyed: bool,
    /// Its limit of attempts; 0 for no limit.
    pub(crate) max_attempts: u32,
    /// Its current standing.
    pub(crate) standing: Belief,
    /// Its standing before each change that a power loss may undo, oldest first.
    pub(crate) undo: Vec<(Seq, Belief)>,
}

impl TrackedMessage {
    /// Whether it has the key now.
    pub(crate) fn owns_key(&self) -> bool {
        self.keyed && !matches!(self.standing.phase, MessagePhase::Dead(_) | MessagePhase::Gone(_))
    }

    /// Whether it is gone in a way that no power loss can undo.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.standing.phase, MessagePhase::Gone(_))
    }

    /// Whether its lease ends with the process that took it.
    pub(crate) fn is_session_lease(&self) -> bool {
        matches!(self.standing.phase, MessagePhase::Leased(Lease { session: true, .. }))
    }

    /// Its death, if it is dead.
    pub(crate) fn death(&self) -> Option<Death> {
        match self.standing.phase {
            MessagePhase::Dead(death) => Some(death),
            _ => None,
        }
    }

    /// Fixes the instant of its death to `at`; returns false if it is not dead or cannot have died then.
    pub(crate) fn has_died_at(&mut self, at: i64) -> bool {
        let MessagePhase::Dead(death) = &mut self.standing.phase else { return false };
        let possible = death.at.holds(at);
        death.at = Span::exact(at);
        possible
    }

    /// Fixes its id to `id`; returns false if it is known to have another.
    pub(crate) fn is_id(&mut self, id: u128) -> bool {
        *self.id.get_or_insert(id) == id
    }

    /// Fixes its due instant to `due`; returns false if that is impossible.
    pub(crate) fn is_due(&mut self, due: i64) -> bool {
        let possible = self.standing.due.holds(due);
        self.standing.due = Span::exact(due);
        possible
    }

    /// Fixes the wall-clock deadline of its lease to `until`; returns false if it has no lease, or not that deadline.
    pub(crate) fn is_leased_until(&mut self, until: i64, at: At<'_>) -> bool {
        let MessagePhase::Leased(lease) = &mut self.standing.phase else { return false };
        let possible = lease.until_wall.holds(until);
        lease.until_wall = Span::exact(until);
        if at.rules.one_clock {
            lease.until = lease.until_wall;
        }
        possible
    }

    /// Whether it may be due.
    pub(crate) fn may_be_ready(&self, at: At<'_>) -> bool {
        self.standing.due.lo <= at.rules.peak(self.standing.since, at.end, &at.window)
    }

    /// Applies a change that is synced before it is answered.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Belief)) {
        self.undo.clear();
        change(&mut self.standing);
    }

    /// Applies a change that a power loss may undo.
    pub(crate) fn change_unsynced(&mut self, at: At<'_>, change: impl FnOnce(&mut Belief)) {
        if at.rules.power_loss {
            self.undo.push((at.end, self.standing.clone()));
        }
        change(&mut self.standing);
    }

    /// Moves its due instant.
    pub(crate) fn reschedule(&mut self, due: Span, at: At<'_>) {
        self.change(|standing| {
            standing.due = due;
            standing.since = at.begin;
            standing.phase = MessagePhase::Pending;
        });
    }

    /// Spends an attempt: dead if it was the last one.
    pub(crate) fn spend_attempt(&self, standing: &mut Belief, death: Death) {
        standing.attempts += 1;
        let spent = self.max_attempts != 0 && standing.attempts >= self.max_attempts;
        standing.phase = if spent { MessagePhase::Dead(death) } else { MessagePhase::Pending };
    }

    /// All possible standings after its lease ran out or was ended at the instant `over`: it then waits if its queue has
    /// a backoff, a setting that may have changed since `since`.
    pub(crate) fn after_lapse(&self, over: Span, since: Seq, at: At<'_>) -> Vec<Belief> {
        let mut spent = self.standing.clone();
        self.spend_attempt(&mut spent, Death { at: over, since });
        if spent.phase != MessagePhase::Pending {
            return vec![spent];
        }
        let delays = at.policy.lapse_delays(since, at.end, self.id, spent.attempts);
        let waiting = delays.into_iter().map(|delay| match delay {
            Some(delay) => Belief { due: later(over, delay), since, ..spent.clone() },
            None => spent.clone(),
        });
        waiting.collect()
    }

    /// The message after its lease ran out at the instant `over`.
    fn lapsed(&self, over: Span, since: Seq, at: At<'_>) -> Vec<TrackedMessage> {
        let lapsed = |after| {
            let mut lapsed = self.clone();
            lapsed.change_unsynced(at, |standing| *standing = after);
            lapsed
        };
        self.after_lapse(over, since, at).into_iter().map(lapsed).collect()
    }

    /// All versions that time may have made of it by then. If `lenient`, an expiry may not show yet, as in a list.
    pub(crate) fn versions(&self, at: At<'_>, lenient: bool) -> Vec<TrackedMessage> {
        let MessagePhase::Leased(lease) = self.standing.phase else {
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

    /// All versions that the wall clock may have made of it while it is not leased.
    pub(crate) fn settled_by_time(self, at: At<'_>, lenient: bool) -> Vec<TrackedMessage> {
        self.expired_or_not(at, lenient).into_iter().flat_map(|message| message.kept_or_not(at)).collect()
    }

    /// Alive, expired, or either.
    fn expired_or_not(self, at: At<'_>, lenient: bool) -> Vec<TrackedMessage> {
        let (MessagePhase::Pending, Some(expires)) = (self.standing.phase, self.standing.expires) else {
            return vec![self];
        };
        let since = self.standing.since;
        let mut versions = Vec::new();
        if expires <= at.rules.peak(since, at.end, &at.window) {
            // A message that cannot be read for the drop is made dead instead.
            let may_be_kept = at.rules.may_be_unread(since, at.end, expires);
            let mut fates: Vec<bool> = at.policy.drops(since, at.end, expires).collect();
            if may_be_kept && !fates.contains(&false) {
                fates.push(false);
            }
            for drops in fates {
                let phase = match drops {
                    true => MessagePhase::Gone(None),
                    false => MessagePhase::Dead(Death { at: Span::exact(expires), since }),
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

    /// If it is dead: discarded by its queue's retention, or not.
    fn kept_or_not(self, at: At<'_>) -> Vec<TrackedMessage> {
        let Some(death) = self.death().filter(|death| self.may_be_discarded(*death, at)) else {
            return vec![self];
        };
        let mut discarded = self.clone();
        discarded.change_unsynced(at, |standing| standing.phase = MessagePhase::Gone(Some(death)));
        vec![discarded, self]
    }

    /// Whether its queue's retention may have discarded it: its time was over, or
    /// as many others as the queue keeps died at the same time or later.
    pub(crate) fn may_be_discarded(&self, death: Death, at: At<'_>) -> bool {
        let peak = at.rules.peak(death.since, at.end, &at.window);
        let is_beyond = |most: i64| at.policy.died_since(death.at.lo, self.no) >= most;
        at.policy.may_be_over(death.since, at.end, death.at.lo, peak)
            || at.policy.dead_maxes(death.since, at.end).flatten().any(is_beyond)
    }

    /// Whether commands by id may find it: not if it is gone, or dead and past retention.
    pub(crate) fn may_be_found(&self, at: At<'_>) -> bool {
        match self.standing.phase {
            MessagePhase::Gone(_) => false,
            MessagePhase::Pending | MessagePhase::Leased(_) => true,
            MessagePhase::Dead(death) => {
                let is_kept = |ttl: Option<i64>| {
                    ttl.is_none_or(|ttl| death.at.hi.saturating_add(ttl) > at.window.wall.lo)
                };
                at.policy.dead_ttls(at.begin, at.end).any(is_kept)
            }
        }
    }

    /// Whether commands by id may fail to find it.
    pub(crate) fn may_be_missed(&self, at: At<'_>) -> bool {
        match self.standing.phase {
            MessagePhase::Gone(_) => true,
            MessagePhase::Pending | MessagePhase::Leased(_) => false,
            MessagePhase::Dead(death) => {
                let is_over = |ttl: i64| death.at.lo.saturating_add(ttl) <= at.window.wall.hi;
                at.policy.dead_ttls(at.begin, at.end).flatten().any(is_over)
            }
        }
    }

    /// Revived and due then, with an expiry only if that is later than both the
    /// due instant and now: one version, or both if that is unknown.
    pub(crate) fn revived(standing: &Belief, due: Span, at: At<'_>) -> Vec<Belief> {
        let mut kept = standing.clone();
        kept.due = due;
        kept.since = at.begin;
        kept.phase = MessagePhase::Pending;
        kept.attempts = 0;
        let Some(expires) = standing.expires else { return vec![kept] };
        let dropped = Belief { expires: None, ..kept.clone() };
        let wall = at.window.wall;
        match (expires > due.lo.max(wall.lo), expires > due.hi.max(wall.hi)) {
            (_, true) => vec![kept],
            (true, false) => vec![kept, dropped],
            (false, false) => vec![dropped],
        }
    }

    /// All versions that a power loss may have left of it, if everything that ended before `cut` is kept, and everything
    /// that ended after it is gone: the log survives up to some point. What ended at the cut itself may be kept in part.
    pub(crate) fn after_power_loss(&self, cut: Seq) -> Vec<TrackedMessage> {
        let kept = |standing: &Belief| TrackedMessage {
            standing: standing.clone(),
            undo: Vec::new(),
            ..self.clone()
        };
        let mut versions: Vec<TrackedMessage> =
            self.undo.iter().filter(|(changed, _)| *changed == cut).map(|(_, before)| kept(before)).collect();
        let later = self.undo.iter().find(|(changed, _)| *changed > cut);
        versions.push(kept(later.map_or(&self.standing, |(_, before)| before)));
        versions
    }

    /// The message after the store was closed: a session lease is released without spending an attempt.
    pub(crate) fn closed(&self) -> TrackedMessage {
        let mut closed = self.clone();
        if let MessagePhase::Leased(Lease { session: true, .. }) = self.standing.phase {
            closed.change(|standing| standing.phase = MessagePhase::Pending);
        }
        closed
    }

    /// All versions after a process opened the store: a session lease ends; another one continues for the time left by
    /// the wall clock, and never for longer than it was granted.
    pub(crate) fn reopened(&self, now: Reading, at: At<'_>) -> Vec<TrackedMessage> {
        let MessagePhase::Leased(lease) = self.standing.phase else { return vec![self.clone()] };
        if lease.session {
            let Span { lo, hi } = lease.until_wall;
            let ran_out = (lo <= now.wall).then(|| Span { lo, hi: hi.min(now.wall) });
            let freed = (hi > now.wall).then(|| Span::exact(now.wall));
            let over = ran_out.into_iter().chain(freed);
            return over.flat_map(|over| self.lapsed(over, lease.since, at)).collect();
        }
        let left = |until: i64| now.mono + (until - now.wall).clamp(0, lease.lease_ms);
        let until = Span { lo: left(lease.until_wall.lo), hi: left(lease.until_wall.hi) };
        let mut reopened = self.clone();
        // The process that was to process the unreadable message is gone.
        reopened.standing.phase = MessagePhase::Leased(Lease { until, unread: false, ..lease });
        vec![reopened]
    }
}

//! The state machine of one message, as pure data: what each command does in each state.
//!
//! Ground rules:
//! 1. Time comes first. Whatever `now` has brought about (due reached, lease lapsed, expired) is applied before the
//!    command looks at the message, so that every answer is as of now.
//! 2. A refusal changes nothing. The effect of time alone can be computed again with [`as_of`].
//! 3. Every store behaves exactly like this: the embedded ones call these functions, Redis and PostgreSQL implement the
//!    same in their own languages under the same tests. The table is `docs/states.md`; a test reads it.

use std::sync::Arc;

use crate::{
    AttemptLimit, Death, DeathReason, Holder, Lease, LeaseToken, MessageId, Now, OnExpiry, Settings,
    Standing, State, Timestamp,
};

/// The attributes of a message and the settings of its queue that decide its transitions.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// The message's id: the jitter of its backoff after a lapse depends on it.
    pub id: MessageId,
    /// The number of times that it may be handed out.
    pub max_attempts: AttemptLimit,
    /// The effective settings of its queue.
    pub settings: &'a Settings,
}

impl<'a> Rules<'a> {
    /// The rules of a message. `own_limit` is its own limit of attempts, if it has one, and overrides the queue's.
    pub fn of(id: MessageId, own_limit: Option<AttemptLimit>, settings: &'a Settings) -> Rules<'a> {
        Rules { id, max_attempts: own_limit.unwrap_or(settings.max_attempts), settings }
    }
}

/// A command on one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Hand it out, if it is ready.
    Take(Grant),
    /// Hand out this message even if it is scheduled or dead; its due instant becomes now, if it was later.
    TakeById(Grant),
    /// Settle: it is done.
    Ack(LeaseToken),
    /// Settle: the attempt failed, try again `after_ms` from now.
    Retry {
        /// Proof of the lease.
        token: LeaseToken,
        /// Delay until the next attempt, in milliseconds.
        after_ms: u64,
        /// A new priority.
        priority: Option<u32>,
        /// What went wrong.
        error: Option<Arc<str>>,
    },
    /// Settle: give it back without spending an attempt.
    Release {
        /// Proof of the lease.
        token: LeaseToken,
        /// The new delay in milliseconds from now; `None` keeps the due instant.
        after_ms: Option<u64>,
        /// A new priority.
        priority: Option<u32>,
    },
    /// Undo a take whose caller is gone. The take still counts, so that [`Command::ExpireLease`] of its lease cannot
    /// end that of the next take.
    GiveBack(LeaseToken),
    /// Settle: set it aside.
    Bury {
        /// Proof of the lease.
        token: LeaseToken,
        /// A new priority.
        priority: Option<u32>,
        /// Why.
        reason: Option<Arc<str>>,
    },
    /// Settle: extend the lease to `lease_ms` from now.
    Extend {
        /// Proof of the lease.
        token: LeaseToken,
        /// The new length in milliseconds.
        lease_ms: u64,
    },
    /// End a lease whose process is gone, whatever its deadline.
    EndSession,
    /// End a lease on behalf of an operator, whatever its deadline.
    ExpireLease {
        /// The message's number of takes when the operator saw its holder: a later lease is not ended.
        takes: u32,
    },
    /// Remove it before it is handed out.
    Cancel,
    /// Change its due instant.
    Reschedule(Timestamp),
    /// Set its due instant to the earlier of its own and this one. A ready message stays ready.
    BringForward(Timestamp),
    /// Return it from the dead, due at this instant, with all its attempts left.
    Revive(Timestamp),
    /// Remove it from the dead.
    Discard,
    /// Give up its key, which another message takes over.
    GiveUpKey,
}

/// The lease that a take requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// A token that was never issued before.
    pub token: LeaseToken,
    /// The length in milliseconds.
    pub lease_ms: u64,
    /// Whether the lease ends with the process.
    pub session: bool,
    /// The holder of the message, if the take names one.
    pub holder: Option<Holder>,
}

/// The result of a command on a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Its new standing; `None` if it is gone.
    pub next: Option<Standing>,
    /// What else the store has to do.
    pub effects: Effects,
}

/// What a store has to do after a transition, in addition to storing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Effects {
    /// It may be handed out now, so a waiting take has to be woken.
    pub became_ready: bool,
    /// It has left the live messages, so its key, if it has one, is free.
    pub frees_key: bool,
    /// It has returned to the live messages. Its key, if it has one, must be free, and is its own again.
    pub claims_key: bool,
    /// It has expired and is gone, since its queue drops expired messages.
    pub dropped: bool,
}

/// The reason why a command was refused. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The receipt proves no current lease.
    LeaseLost,
    /// The message is leased.
    Leased,
    /// It is dead.
    Dead,
    /// It is not dead.
    NotDead,
    /// It is not ready.
    NotReady,
    /// The message is not leased.
    NotLeased,
    /// The message is leased by another take than the one named.
    LeaseChanged,
    /// It has expired and is gone, since its queue drops expired messages.
    Gone,
    /// Its expiry is not after the new instant.
    ExpiresBeforeDue,
    /// The new instant is past the year 9999.
    DueOutOfRange,
}

/// The standing as of `now`: due reached, lease lapsed, expired. `None` if the message is gone by then.
pub fn as_of(standing: &Standing, now: Now, rules: Rules<'_>) -> Option<Standing> {
    let mut next = standing.clone();
    pass_time(&mut next, now, rules).then_some(next)
}

/// The same in place; false if the message is gone by then.
fn pass_time(next: &mut Standing, now: Now, rules: Rules<'_>) -> bool {
    if let State::Leased(lease) = next.state
        && lease.has_lapsed(now)
    {
        // The deadline, not the time of the reading: a death has one instant, whenever it is first observed.
        lapse(next, lease.deadline, rules);
    }
    settle_time(next, now, rules)
}

/// Applies `command` to a message at `now`.
///
/// # Errors
/// A [`Refusal`]. Nothing has changed then.
pub fn apply(
    standing: &Standing,
    command: &Command,
    now: Now,
    rules: Rules<'_>,
) -> Result<Transition, Refusal> {
    let before = as_of(standing, now, rules).ok_or(Refusal::Gone)?;
    let next = match command {
        Command::Take(grant) => {
            let mut next = before;
            grant_ready(&mut next, grant, now)?;
            Some(next)
        }
        Command::TakeById(grant) => take_by_id(before, grant, now)?,
        Command::Ack(token) => {
            held(&before, *token)?;
            None
        }
        Command::Retry { token, after_ms, priority, error } => {
            held(&before, *token)?;
            let mut next = before;
            let due = now.wall.after(*after_ms).map_err(|_| Refusal::DueOutOfRange)?;
            next.priority = priority.unwrap_or(next.priority);
            next.last_error = error.clone().or(next.last_error);
            spend_attempt(&mut next, now.wall, rules.max_attempts);
            if next.state == State::Scheduled {
                next.due = due;
            }
            Some(next)
        }
        Command::Release { token, after_ms, priority } => {
            held(&before, *token)?;
            let mut next = before;
            next.state = State::Ready;
            if let Some(after_ms) = after_ms {
                next.due = now.wall.after(*after_ms).map_err(|_| Refusal::DueOutOfRange)?;
                next.state = State::Scheduled;
            }
            next.priority = priority.unwrap_or(next.priority);
            next.counts.releases = next.counts.releases.saturating_add(1);
            Some(next)
        }
        Command::GiveBack(token) => {
            held(&before, *token)?;
            let mut next = before;
            next.state = State::Ready;
            Some(next)
        }
        Command::Bury { token, priority, reason } => {
            held(&before, *token)?;
            let mut next = before;
            next.attempts = next.attempts.saturating_add(1);
            next.state = State::Dead(Death { reason: DeathReason::Buried, at: now.wall });
            next.priority = priority.unwrap_or(next.priority);
            next.last_error = reason.clone().or(next.last_error);
            next.counts.buries = next.counts.buries.saturating_add(1);
            Some(next)
        }
        Command::Extend { token, lease_ms } => {
            let lease = held(&before, *token)?;
            let lease = Lease::granted(lease.token, *lease_ms, lease.session, now);
            Some(Standing { state: State::Leased(lease), ..before })
        }
        Command::EndSession => match before.state {
            State::Leased(lease) if lease.session => {
                let mut next = before;
                lapse(&mut next, now.wall, rules);
                Some(next)
            }
            _ => Some(before),
        },
        Command::ExpireLease { takes } => match before.state {
            State::Leased(_) if before.counts.takes == *takes => {
                let mut next = before;
                lapse(&mut next, now.wall, rules);
                Some(next)
            }
            State::Leased(_) => return Err(Refusal::LeaseChanged),
            State::Scheduled | State::Ready | State::Dead(_) => return Err(Refusal::NotLeased),
        },
        Command::Cancel => match before.state {
            State::Scheduled | State::Ready => None,
            State::Leased(_) => return Err(Refusal::Leased),
            State::Dead(_) => return Err(Refusal::Dead),
        },
        Command::Reschedule(due) => match before.state {
            State::Scheduled | State::Ready => Some(moved(before, *due)?),
            State::Leased(_) => return Err(Refusal::Leased),
            State::Dead(_) => return Err(Refusal::Dead),
        },
        Command::BringForward(due) => match before.state {
            State::Scheduled | State::Ready => Some(Standing { due: before.due.min(*due), ..before }),
            State::Leased(_) => return Err(Refusal::Leased),
            State::Dead(_) => return Err(Refusal::Dead),
        },
        Command::Revive(due) => match before.state {
            State::Dead(_) => Some(revived(before, *due, now)),
            _ => return Err(Refusal::NotDead),
        },
        Command::Discard => match before.state {
            State::Dead(_) => None,
            _ => return Err(Refusal::NotDead),
        },
        Command::GiveUpKey => match before.state {
            State::Dead(_) => return Err(Refusal::Dead),
            _ => Some(Standing { keyless: true, ..before }),
        },
    };
    Ok(transition(standing, next, now, rules))
}

/// Whether an ack with `token` at `now` ends a message that is held under `lease`.
///
/// It agrees with [`apply`] of [`Command::Ack`], for stores that do not need the rest of the standing for that.
pub fn is_acked(lease: &Lease, token: LeaseToken, now: Now) -> bool {
    lease.token == token && !lease.has_lapsed(now)
}

/// Makes `standing` that of a message that is handed out at `now`.
///
/// It agrees with [`apply`] of [`Command::Take`], for stores that hand out many messages and need no copy of the
/// previous standing.
///
/// # Errors
/// A [`Refusal`], as from [`apply`]. Only time has acted on `standing` then.
pub fn apply_take(standing: &mut Standing, grant: &Grant, now: Now, rules: Rules<'_>) -> Result<(), Refusal> {
    if !pass_time(standing, now, rules) {
        return Err(Refusal::Gone);
    }
    grant_ready(standing, grant, now)
}

fn grant_ready(standing: &mut Standing, grant: &Grant, now: Now) -> Result<(), Refusal> {
    match standing.state {
        State::Ready => {
            grant_lease(standing, grant, now);
            Ok(())
        }
        State::Scheduled => Err(Refusal::NotReady),
        State::Leased(_) => Err(Refusal::Leased),
        State::Dead(_) => Err(Refusal::Dead),
    }
}

/// The current lease that `token` proves.
fn held(standing: &Standing, token: LeaseToken) -> Result<Lease, Refusal> {
    match standing.state {
        State::Leased(lease) if lease.token == token => Ok(lease),
        _ => Err(Refusal::LeaseLost),
    }
}

fn take_by_id(before: Standing, grant: &Grant, now: Now) -> Result<Option<Standing>, Refusal> {
    let mut next = match before.state {
        State::Scheduled | State::Ready => brought_forward(before, now),
        State::Dead(_) => {
            let due = before.due.min(now.wall);
            revived(before, due, now)
        }
        State::Leased(_) => return Err(Refusal::Leased),
    };
    grant_lease(&mut next, grant, now);
    Ok(Some(next))
}

/// A take by id makes the message due now.
///
/// So every leased message has been due, and returns to ready, not to scheduled, when its lease ends.
fn brought_forward(mut standing: Standing, now: Now) -> Standing {
    standing.due = standing.due.min(now.wall);
    standing
}

fn grant_lease(standing: &mut Standing, grant: &Grant, now: Now) {
    standing.state = State::Leased(Lease::granted(grant.token, grant.lease_ms, grant.session, now));
    standing.counts.takes = standing.counts.takes.saturating_add(1);
    standing.holder.clone_from(&grant.holder);
}

fn moved(mut standing: Standing, due: Timestamp) -> Result<Standing, Refusal> {
    if standing.expires.is_some_and(|expires| expires <= due) {
        return Err(Refusal::ExpiresBeforeDue);
    }
    standing.due = due;
    standing.state = State::Scheduled;
    Ok(standing)
}

/// An expiry that has passed, or would pass before the new instant, would kill the message again, so it is removed; a
/// later one stays.
fn revived(mut standing: Standing, due: Timestamp, now: Now) -> Standing {
    standing.due = due;
    standing.state = State::Scheduled;
    standing.attempts = 0;
    standing.expires = standing.expires.filter(|expires| *expires > due.max(now.wall));
    standing.counts.revives = standing.counts.revives.saturating_add(1);
    standing
}

/// The lease has lapsed at `at`: its deadline, unless it was ended earlier.
fn lapse(standing: &mut Standing, at: Timestamp, rules: Rules<'_>) {
    standing.counts.lapses = standing.counts.lapses.saturating_add(1);
    spend_attempt(standing, at, rules.max_attempts);
    if standing.state != State::Scheduled {
        return;
    }
    if rules.settings.lapse_backoff.applies(standing.attempts) {
        let delay_ms = rules.settings.backoff.lapse_delay_ms(rules.id, standing.attempts);
        standing.due = at.saturating_after(delay_ms);
    } else {
        standing.state = State::Ready;
    }
}

/// Schedules the next attempt, or makes the message dead if there is none.
fn spend_attempt(standing: &mut Standing, at: Timestamp, max_attempts: AttemptLimit) {
    standing.attempts = standing.attempts.saturating_add(1);
    standing.state = if max_attempts.is_spent(standing.attempts) {
        State::Dead(Death { reason: DeathReason::AttemptsSpent, at })
    } else {
        State::Scheduled
    };
}

/// Applies the wall clock to a message that is not leased; false if it has expired and its queue drops expired
/// messages.
fn settle_time(standing: &mut Standing, now: Now, rules: Rules<'_>) -> bool {
    if standing.state == State::Scheduled && standing.due <= now.wall {
        standing.state = State::Ready;
    }
    let unheld = matches!(standing.state, State::Scheduled | State::Ready);
    if let Some(expires) = standing.expires
        && unheld
        && expires <= now.wall
    {
        match rules.settings.on_expiry {
            OnExpiry::Dead => {
                standing.state = State::Dead(Death { reason: DeathReason::Expired, at: expires });
            }
            OnExpiry::Drop => return false,
        }
    }
    if !matches!(standing.state, State::Leased(_)) {
        standing.holder = None;
    }
    true
}

/// Applies time to the result, and compares it with what is stored to find what else the store has to do.
fn transition(stored: &Standing, next: Option<Standing>, now: Now, rules: Rules<'_>) -> Transition {
    let was_there = next.is_some();
    let next = next.and_then(|mut next| settle_time(&mut next, now, rules).then_some(next));
    let live = |standing: &Standing| !matches!(standing.state, State::Dead(_)) && !standing.keyless;
    let was_live = live(stored);
    let is_live = next.as_ref().is_some_and(live);
    let effects = Effects {
        became_ready: stored.state != State::Ready
            && next.as_ref().is_some_and(|next| next.state == State::Ready),
        frees_key: was_live && !is_live,
        claims_key: !was_live && is_live,
        dropped: was_there && next.is_none(),
    };
    Transition { next, effects }
}

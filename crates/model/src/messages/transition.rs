//! The state machine of one message, as pure data: what each command does in each state.
//!
//! Ground rules:
//! 1. Time comes first. Whatever `now` has brought about (due reached, lease run out, expired) happens
//!    before the command looks at the message, so that every answer is as of now.
//! 2. A refusal changes nothing. What time alone brought about can be had again by [`as_of`].
//! 3. Every store does exactly this: the embedded ones call these functions, Redis and PostgreSQL say the
//!    same in their own languages under the same tests. The table is `docs/states.md`; a test reads it.

use std::sync::Arc;

use crate::{
    AttemptLimit, Death, DeathReason, Holder, Lease, LeaseToken, MessageId, Now, OnExpiry, Settings,
    Standing, State, Timestamp,
};

/// What a message's own attributes and its queue's settings say of what becomes of it.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// The message: the jitter of its backoff after a lapse depends on it.
    pub id: MessageId,
    /// How often it may be handed out.
    pub max_attempts: AttemptLimit,
    /// The settings in force for its queue.
    pub settings: &'a Settings,
}

impl<'a> Rules<'a> {
    /// Those of a message with this limit of attempts of its own, if it has one, over its queue's.
    pub fn of(id: MessageId, own_limit: Option<AttemptLimit>, settings: &'a Settings) -> Rules<'a> {
        Rules { id, max_attempts: own_limit.unwrap_or(settings.max_attempts), settings }
    }
}

/// What may be done to one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Hand it out, if it is ready.
    Take(Grant),
    /// Hand this very message out, though it is scheduled or dead; its instant becomes now, if it was later.
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
        /// `None` keeps the instant it had; else it is due so many milliseconds from now.
        after_ms: Option<u64>,
        /// A new priority.
        priority: Option<u32>,
    },
    /// Nobody was there to receive it: as if it had not been taken, though the token is spent.
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
    /// Settle: hold it for `lease_ms` more from now on.
    Extend {
        /// Proof of the lease.
        token: LeaseToken,
        /// The new length in milliseconds.
        lease_ms: u64,
    },
    /// The process that a lease was bound to is gone: the lease has run out, whatever its deadline.
    Unbind,
    /// An operator ends the lease: it has run out, whatever its deadline.
    ExpireLease {
        /// How often the message had been handed out when the operator saw who holds it: a later lease is not meant.
        takes: u32,
    },
    /// Remove it before it is handed out.
    Cancel,
    /// Move its instant.
    Reschedule(Timestamp),
    /// Let the earlier of two instants win: its own and this one. A ready message stays ready.
    BringForward(Timestamp),
    /// Bring it back from the dead, due at this instant, with all attempts before it again.
    Revive(Timestamp),
    /// Remove it from the dead.
    Discard,
    /// Another message takes its key over.
    GiveUpKey,
}

/// The lease that a take asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// A token never issued before.
    pub token: LeaseToken,
    /// The length in milliseconds.
    pub lease_ms: u64,
    /// Whether the lease ends with the process.
    pub bound: bool,
    /// Who holds the message then, if the take says so.
    pub holder: Option<Holder>,
}

/// What a command made of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Where it stands now; `None` if it is gone.
    pub next: Option<Standing>,
    /// What the store has to do besides.
    pub effects: Effects,
}

/// What a store has to do after a transition, besides storing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Effects {
    /// It may be handed out now: wake a waiting take.
    pub became_ready: bool,
    /// It has left the live messages: its key, if it has one, is free.
    pub frees_key: bool,
    /// It has come back among the live messages: its key, if it has one, must be free and is its own again.
    pub claims_key: bool,
    /// It has expired and is gone, since its queue drops what expires.
    pub dropped: bool,
}

/// Why a command was refused. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The receipt proves no lease that is in force.
    LeaseLost,
    /// Somebody holds it.
    Leased,
    /// It is dead.
    Dead,
    /// It is not dead.
    NotDead,
    /// It is not ready.
    NotReady,
    /// Nobody holds it.
    NotLeased,
    /// Somebody holds it, by another take than was named.
    LeaseChanged,
    /// It has expired, and its queue drops what expires: it is not there.
    Gone,
    /// Its expiry does not lie after the new instant.
    ExpiresBeforeDue,
    /// The new instant lies past the year 9999.
    DueOutOfRange,
}

/// Where a message stands as of `now`: due reached, lease run out, expired; `None` if it is gone by that.
pub fn as_of(standing: &Standing, now: Now, rules: Rules<'_>) -> Option<Standing> {
    passed(standing.clone(), now, rules)
}

/// The same of a standing that is not needed any more as it was.
fn passed(mut next: Standing, now: Now, rules: Rules<'_>) -> Option<Standing> {
    if let State::Leased(lease) = next.state
        && lease.has_lapsed(now)
    {
        // The deadline, not the moment of noticing: a death has one instant, whenever it is first looked at.
        lapse(&mut next, lease.deadline, rules);
    }
    settled_by_time(next, now, rules)
}

/// Applies `command` to a message at `now`.
///
/// # Errors
/// A [`Refusal`]; nothing has changed then.
pub fn apply(
    standing: &Standing,
    command: &Command,
    now: Now,
    rules: Rules<'_>,
) -> Result<Transition, Refusal> {
    let before = as_of(standing, now, rules).ok_or(Refusal::Gone)?;
    let next = match command {
        Command::Take(grant) => Some(taken(before, grant, now, rules)?),
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
            next.counts.takes = next.counts.takes.saturating_sub(1);
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
            let lease = Lease::granted(lease.token, *lease_ms, lease.bound, now);
            Some(Standing { state: State::Leased(lease), ..before })
        }
        Command::Unbind => match before.state {
            State::Leased(lease) if lease.bound => {
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

/// Whether an ack under `token` at `now` ends a message that is held under `lease`: what [`apply`] makes of
/// [`Command::Ack`], for stores that need not look at the rest of its standing for that.
pub fn is_acked(lease: &Lease, token: LeaseToken, now: Now) -> bool {
    lease.token == token && !lease.has_lapsed(now)
}

/// Where a message stands that is handed out at `now`: what [`apply`] makes of [`Command::Take`], for stores that hand out
/// many, and need no copy of where each stood before.
///
/// # Errors
/// A [`Refusal`], as from there.
pub fn taken(standing: Standing, grant: &Grant, now: Now, rules: Rules<'_>) -> Result<Standing, Refusal> {
    let before = passed(standing, now, rules).ok_or(Refusal::Gone)?;
    match before.state {
        State::Ready => Ok(granted(before, grant, now)),
        State::Scheduled => Err(Refusal::NotReady),
        State::Leased(_) => Err(Refusal::Leased),
        State::Dead(_) => Err(Refusal::Dead),
    }
}

/// The lease in force that `token` proves.
fn held(standing: &Standing, token: LeaseToken) -> Result<Lease, Refusal> {
    match standing.state {
        State::Leased(lease) if lease.token == token => Ok(lease),
        _ => Err(Refusal::LeaseLost),
    }
}

fn take_by_id(before: Standing, grant: &Grant, now: Now) -> Result<Option<Standing>, Refusal> {
    match before.state {
        State::Scheduled | State::Ready => Ok(Some(granted(brought_forward(before, now), grant, now))),
        State::Dead(_) => {
            let due = before.due.min(now.wall);
            Ok(Some(granted(revived(before, due, now), grant, now)))
        }
        State::Leased(_) => Err(Refusal::Leased),
    }
}

/// Who asks for a message by id decides that its moment is now: so whatever is leased has been due,
/// and goes back to ready, not to scheduled, when the lease ends.
fn brought_forward(mut standing: Standing, now: Now) -> Standing {
    standing.due = standing.due.min(now.wall);
    standing
}

fn granted(mut standing: Standing, grant: &Grant, now: Now) -> Standing {
    standing.state = State::Leased(Lease::granted(grant.token, grant.lease_ms, grant.bound, now));
    standing.counts.takes = standing.counts.takes.saturating_add(1);
    standing.holder = grant.holder.clone();
    standing
}

fn moved(mut standing: Standing, due: Timestamp) -> Result<Standing, Refusal> {
    if standing.expires.is_some_and(|expires| expires <= due) {
        return Err(Refusal::ExpiresBeforeDue);
    }
    standing.due = due;
    standing.state = State::Scheduled;
    Ok(standing)
}

/// An expiry that has passed, or would before the new instant, would kill it again, so it goes; a later one stays.
fn revived(mut standing: Standing, due: Timestamp, now: Now) -> Standing {
    standing.due = due;
    standing.state = State::Scheduled;
    standing.attempts = 0;
    standing.expires = standing.expires.filter(|expires| *expires > due.max(now.wall));
    standing.counts.revives = standing.counts.revives.saturating_add(1);
    standing
}

/// A lease has run out at `at`: its deadline, unless it was ended before.
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

/// Scheduled for the next attempt, or dead if there is none.
fn spend_attempt(standing: &mut Standing, at: Timestamp, max_attempts: AttemptLimit) {
    standing.attempts = standing.attempts.saturating_add(1);
    standing.state = if max_attempts.is_spent(standing.attempts) {
        State::Dead(Death { reason: DeathReason::AttemptsSpent, at })
    } else {
        State::Scheduled
    };
}

/// What the wall clock alone brings about for a message that nobody holds; `None` if it has expired, and its queue drops
/// what does.
fn settled_by_time(mut standing: Standing, now: Now, rules: Rules<'_>) -> Option<Standing> {
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
            OnExpiry::Drop => return None,
        }
    }
    if !matches!(standing.state, State::Leased(_)) {
        standing.holder = None;
    }
    Some(standing)
}

/// Lets time act on the result, and says what the store has to do: judged against what is stored.
fn transition(stored: &Standing, next: Option<Standing>, now: Now, rules: Rules<'_>) -> Transition {
    let was_there = next.is_some();
    let next = next.and_then(|next| settled_by_time(next, now, rules));
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

//! The standing of a message: the part of it that changes during its life.

use std::fmt;
use std::sync::Arc;

use crate::{Holder, LeaseToken, Now, Timestamp};

/// The mutable part of a message. [`apply`](crate::apply) alone decides how it changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Scheduled, ready, leased or dead.
    pub state: State,
    /// The instant before which it is not handed out.
    pub due: Timestamp,
    /// Smaller first, among messages that are already due.
    pub priority: u32,
    /// The number of attempts spent, without the current one.
    pub attempts: u32,
    /// The instant past which it is dead, unless it is leased then.
    pub expires: Option<Timestamp>,
    /// Whether another message has taken over its key, for good.
    pub keyless: bool,
    /// How often each thing has happened to it.
    pub counts: Counts,
    /// The error of its last failed attempt, or the reason it was buried with.
    pub last_error: Option<Arc<str>>,
    /// The holder that its take named; `None` unless it is leased.
    pub holder: Option<Holder>,
}

/// Every take and settle moves some of them. Beyond 128 bytes a move is a call of `memcpy`.
const _: () = assert!(size_of::<Standing>() <= 128);

/// The four states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Waiting for its instant.
    Scheduled,
    /// Due. It stays ready even if the clock steps back.
    Ready,
    /// Handed out.
    Leased(Lease),
    /// Set aside.
    Dead(Death),
}

/// A state without its details, as used to select a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateKind {
    /// See [`State::Scheduled`].
    Scheduled,
    /// See [`State::Ready`].
    Ready,
    /// See [`State::Leased`].
    Leased,
    /// See [`State::Dead`].
    Dead,
}

impl StateKind {
    /// All variants.
    pub const ALL: [StateKind; 4] =
        [StateKind::Scheduled, StateKind::Ready, StateKind::Leased, StateKind::Dead];

    /// The state's word: `scheduled`, `ready`, `leased`, `dead`.
    pub const fn as_str(self) -> &'static str {
        match self {
            StateKind::Scheduled => "scheduled",
            StateKind::Ready => "ready",
            StateKind::Leased => "leased",
            StateKind::Dead => "dead",
        }
    }
}

impl fmt::Display for StateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl State {
    /// The kind of this state.
    pub const fn kind(&self) -> StateKind {
        match self {
            State::Scheduled => StateKind::Scheduled,
            State::Ready => StateKind::Ready,
            State::Leased(_) => StateKind::Leased,
            State::Dead(_) => StateKind::Dead,
        }
    }
}

/// A lease: who may settle the message, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The token that its receipt carries.
    pub token: LeaseToken,
    /// The granted length in milliseconds.
    pub lease_ms: u64,
    /// Its deadline on the monotonic clock of this process. This one is authoritative.
    pub deadline_mono_ms: u64,
    /// The same deadline on the wall clock as it read at the grant. This one is stored.
    pub deadline: Timestamp,
    /// Whether it ends with the process that took it.
    pub session: bool,
}

impl Lease {
    /// Creates a lease of `lease_ms` from `now` on.
    pub fn granted(token: LeaseToken, lease_ms: u64, session: bool, now: Now) -> Lease {
        Lease {
            token,
            lease_ms,
            deadline_mono_ms: now.mono_ms.saturating_add(lease_ms),
            deadline: now.wall.saturating_after(lease_ms),
            session,
        }
    }

    /// The same lease in a process that has just opened the store: the time left by the wall clock, and at most the
    /// granted length.
    pub fn rebased(self, now: Now) -> Lease {
        let left_ms = self.deadline.ms_since(now.wall).min(self.lease_ms);
        Lease { deadline_mono_ms: now.mono_ms.saturating_add(left_ms), ..self }
    }

    /// The instant of the grant or the last extension, by the wall clock as it read then.
    pub fn granted_at(&self) -> Timestamp {
        let lease_ms = i64::try_from(self.lease_ms).unwrap_or(i64::MAX);
        Timestamp::from_ms(self.deadline.as_ms().saturating_sub(lease_ms)).unwrap_or(Timestamp::MIN)
    }

    /// Whether its deadline has passed.
    pub const fn has_lapsed(&self, now: Now) -> bool {
        self.deadline_mono_ms <= now.mono_ms
    }
}

/// How and when a message became dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Death {
    /// The reason.
    pub reason: DeathReason,
    /// The instant.
    pub at: Timestamp,
}

/// Why a message is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeathReason {
    /// Its attempts were spent.
    AttemptsSpent,
    /// A consumer buried it.
    Buried,
    /// It expired while it was not leased.
    Expired,
}

impl DeathReason {
    /// The reason's word: `attempts_spent`, `buried`, `expired`.
    pub const fn as_str(self) -> &'static str {
        match self {
            DeathReason::AttemptsSpent => "attempts_spent",
            DeathReason::Buried => "buried",
            DeathReason::Expired => "expired",
        }
    }
}

/// The number of times that each thing happened to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counts {
    /// Times it was handed out.
    pub takes: u32,
    /// Times its lease ran out.
    pub lapses: u32,
    /// Times it was given back without spending an attempt.
    pub releases: u32,
    /// Times it was buried.
    pub buries: u32,
    /// Times it was revived.
    pub revives: u32,
}

impl Standing {
    /// The standing of a new message: ready if its instant has been reached, otherwise scheduled.
    pub fn put(due: Timestamp, priority: u32, expires: Option<Timestamp>, now: Now) -> Standing {
        let state = if due <= now.wall { State::Ready } else { State::Scheduled };
        Standing {
            state,
            due,
            priority,
            attempts: 0,
            expires,
            keyless: false,
            counts: Counts::default(),
            last_error: None,
            holder: None,
        }
    }

    /// The number of the current attempt, or else the number of attempts spent: the value that users see.
    pub fn attempt(&self) -> u32 {
        match self.state {
            State::Leased(_) => self.attempts.saturating_add(1),
            _ => self.attempts,
        }
    }
}

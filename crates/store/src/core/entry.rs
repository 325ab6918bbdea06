//! A message as the core keeps it: small in the usual case.

use std::sync::Arc;

use dwell_model::{
    AttemptLimit, Counts, Death, Headers, Holder, Key, Lease, MessageId, Number, Standing, State, Timestamp,
};
use dwell_time::Handle;

use super::cold::CopyAt;
use super::schedule::SchedulePosition;

/// One message. Attributes that few messages have are in [`RareFields`]; leases are stored separately.
#[derive(Debug)]
pub(super) struct Entry<B> {
    pub(super) id: MessageId,
    pub(super) number: Number,
    pub(super) due: Timestamp,
    pub(super) created: Timestamp,
    pub(super) body: B,
    pub(super) rare: Option<Box<RareFields>>,
    /// A copy outside of memory: correct in everything if the message has not changed, else in everything but
    /// its standing.
    pub(super) copy: Option<CopyAt>,
    pub(super) queue: u32,
    pub(super) priority: u32,
    pub(super) attempts: u32,
    pub(super) takes: u32,
    pub(super) mark: ChangeMark,
    pub(super) place: Position,
    /// The epoch of its queue in which it got its place; meaningless while it is leased.
    pub(super) epoch: u16,
}

/// Whether a message has changed since its last capture, or was never captured; and if so, in which of two
/// spans: the spans between one capture and the next are alternately odd and even.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeMark {
    Captured,
    Odd,
    Even,
}

impl ChangeMark {
    pub(super) fn is_changed(self) -> bool {
        self != ChangeMark::Captured
    }

    /// The next span.
    pub(super) fn next(self) -> ChangeMark {
        if self == ChangeMark::Odd { ChangeMark::Even } else { ChangeMark::Odd }
    }
}

/// The place of a message in its queue's order or among the leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    Scheduled(SchedulePosition),
    Ready,
    Leased(u32),
    Dead,
}

impl Position {
    pub(super) fn is_leased(self) -> bool {
        matches!(self, Position::Leased(_))
    }

    /// Whether it is scheduled or ready.
    pub(super) fn is_pending(self) -> bool {
        matches!(self, Position::Scheduled(_) | Position::Ready)
    }
}

/// A lease and the timer of its deadline.
#[derive(Debug)]
pub(super) struct LeaseTimer {
    pub(super) lease: Lease,
    pub(super) timer: Handle,
    pub(super) holder: Option<Holder>,
}

/// Attributes that only some messages have.
#[derive(Debug, Default)]
pub(super) struct RareFields {
    pub(super) key: Option<Key>,
    pub(super) headers: Headers,
    pub(super) lease_ms: Option<u64>,
    pub(super) max_attempts: Option<AttemptLimit>,
    pub(super) expires: Option<Timestamp>,
    /// The timer of the expiry, while the message is neither leased nor dead.
    pub(super) expiry: Option<Handle>,
    pub(super) lapses: u32,
    pub(super) releases: u32,
    pub(super) buries: u32,
    pub(super) revives: u32,
    pub(super) keyless: bool,
    pub(super) last_error: Option<Arc<str>>,
    /// The cause of death, while it is dead.
    pub(super) death: Option<Death>,
    /// The number of sweeps that had begun when it died, if that was in this process and it has not left
    /// memory since, or a sweep has been in progress ever since; see [`super::bulk`].
    pub(super) died_in: u64,
    /// When it was last made ready by anything but its instant.
    pub(super) ready_since: Timestamp,
}

impl<B> Entry<B> {
    /// The memory of a plain message, in bytes, with its share of all indexes: a rounded measurement.
    const PLAIN: usize = 224;
    /// The additional memory of a message with any rare attribute, and of each text among those.
    const RARE: usize = 256;
    const TEXT: usize = 32;
    /// The additional memory of a dead message that may be found by its key.
    const DEAD_KEY: usize = 80;

    /// Its memory in bytes, with its share of all indexes, without its body.
    pub(super) fn weight(&self) -> usize {
        let Some(rare) = self.rare.as_deref() else { return Self::PLAIN };
        let key = rare.key.as_ref().map_or(0, |key| key.as_str().len() + Self::TEXT);
        let error = rare.last_error.as_ref().map_or(0, |error| error.len() + Self::TEXT);
        let headers = rare.headers.iter().map(|(name, value)| name.len() + value.len() + 2 * Self::TEXT);
        let dead_key = if rare.death.is_some() && self.key().is_some() { Self::DEAD_KEY } else { 0 };
        Self::PLAIN + Self::RARE + key + error + dead_key + headers.sum::<usize>()
    }

    /// The key, unless another message has taken it over permanently.
    pub(super) fn key(&self) -> Option<&Key> {
        self.rare.as_deref().filter(|rare| !rare.keyless)?.key.as_ref()
    }

    /// The key, if it finds this message: only live messages have one.
    pub(super) fn live_key(&self) -> Option<&Key> {
        if self.place == Position::Dead { None } else { self.key() }
    }

    /// Whether a dead message is known to have died after the sweep with this number began.
    pub(super) fn has_died_since(&self, sweep: u64) -> bool {
        self.rare.as_deref().is_some_and(|rare| rare.died_in >= sweep)
    }

    pub(super) fn expires(&self) -> Option<Timestamp> {
        self.rare.as_deref()?.expires
    }

    /// Its standing, as input of the state machine. `held` is its lease; a scheduled message that is due by
    /// `ready_until` is ready.
    pub(super) fn standing(&self, held: Option<&LeaseTimer>, ready_until: Timestamp) -> Standing {
        let rare = self.rare.as_deref();
        let state = match self.place {
            Position::Scheduled(_) if self.due > ready_until => State::Scheduled,
            Position::Scheduled(_) | Position::Ready => State::Ready,
            Position::Leased(_) => State::Leased(held.expect("a leased message has a lease").lease),
            Position::Dead => {
                State::Dead(rare.and_then(|rare| rare.death).expect("a dead message knows how it died"))
            }
        };
        Standing {
            state,
            due: self.due,
            priority: self.priority,
            attempts: self.attempts,
            expires: self.expires(),
            keyless: rare.is_some_and(|rare| rare.keyless),
            counts: Counts {
                takes: self.takes,
                lapses: rare.map_or(0, |rare| rare.lapses),
                releases: rare.map_or(0, |rare| rare.releases),
                buries: rare.map_or(0, |rare| rare.buries),
                revives: rare.map_or(0, |rare| rare.revives),
            },
            last_error: rare.and_then(|rare| rare.last_error.clone()),
            holder: held.and_then(|held| held.holder.clone()),
        }
    }

    /// Takes over everything of `standing` except the state and the holder.
    pub(super) fn set_standing(&mut self, standing: &Standing) {
        let Standing { state, due, priority, attempts, expires, keyless, counts, ref last_error, holder: _ } =
            *standing;
        (self.due, self.priority, self.attempts, self.takes) = (due, priority, attempts, counts.takes);
        let death = match state {
            State::Dead(death) => Some(death),
            _ => None,
        };
        let Counts { takes: _, lapses, releases, buries, revives } = counts;
        let plain = expires.is_none() && !keyless && last_error.is_none() && death.is_none();
        if self.rare.is_none() && plain && [lapses, releases, buries, revives] == [0; 4] {
            return;
        }
        let rare = self.rare.get_or_insert_default();
        (rare.expires, rare.keyless, rare.death) = (expires, keyless, death);
        rare.last_error.clone_from(last_error);
        (rare.lapses, rare.releases, rare.buries, rare.revives) = (lapses, releases, buries, revives);
    }

    /// The latest of due, put and last made ready: the base of lateness.
    pub(super) fn ready_since(&self) -> Timestamp {
        self.due.max(self.created).max(self.made_ready())
    }

    /// When it was last made ready by anything but its instant.
    pub(super) fn made_ready(&self) -> Timestamp {
        self.rare.as_deref().map_or(Timestamp::MIN, |rare| rare.ready_since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_message_takes_128_bytes_with_its_body_beside_it() {
        assert_eq!(size_of::<Entry<bytes::Bytes>>(), 128);
    }
}

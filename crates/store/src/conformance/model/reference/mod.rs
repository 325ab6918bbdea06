//! The simplest possible store: a list of messages that every call walks through.
//!
//! It says what the contract means, and is slow on purpose: no index, no timer, nothing that could be stale. What
//! one message may do is `dwell_model::apply`, which `docs/states.md` tests by itself.
//!
//! What a store chooses freely (ids, numbers, lease tokens) is taken over from the store's answer, and
//! complained about if it breaks a promise.

mod change;
mod inspect;
mod put;
mod settle;
mod take;

pub(super) use inspect::shown;

use std::collections::{BTreeMap, HashSet};

use dwell_model::{
    Command, Invalid, Key, LeaseToken, Limits, Message, MessageId, Now, Number, OwnSettings, Pause, PutToken,
    QueueName, Refusal, Setting, SettingChange, Settings, State, StateKind, Timestamp, apply, as_of,
};

use crate::{Error, PutAnswer, Result, Target, When};

/// A message, and since when it could have been handed out.
pub(super) struct Kept {
    pub(super) message: Message,
    /// When it was last made ready other than by its instant coming; the put, before that.
    made_ready: Timestamp,
    /// Whether a store can say the same: it need not remember it over a restart, and after a step of the clock
    /// back it may count from an instant that has not come again.
    exact: bool,
}

impl Kept {
    pub(super) fn kind(&self) -> StateKind {
        self.message.standing.state.kind()
    }

    fn is_live(&self) -> bool {
        self.kind() != StateKind::Dead
    }

    fn is_pending(&self) -> bool {
        matches!(self.kind(), StateKind::Scheduled | StateKind::Ready)
    }

    fn live_key(&self) -> Option<&Key> {
        self.message.key.as_ref().filter(|_| self.is_live())
    }
}

struct Remembered {
    queue: QueueName,
    token: PutToken,
    answer: PutAnswer,
    until: Timestamp,
}

/// The reference store.
pub(super) struct Reference {
    limits: Limits,
    now: Now,
    pub(super) kept: Vec<Kept>,
    own: BTreeMap<QueueName, OwnSettings>,
    tokens: Vec<Remembered>,
    /// Queues that takes wait on.
    pub(super) waited_on: Vec<QueueName>,
    ids: HashSet<MessageId>,
    leases: HashSet<LeaseToken>,
    highest: Option<Number>,
    /// The latest wall time seen: a token whose time was over then may be forgotten for good.
    latest: Timestamp,
    /// Promises about freely chosen things that the store broke.
    pub(super) complaints: Vec<String>,
}

impl Reference {
    pub(super) fn new(limits: Limits, now: Now) -> Reference {
        Reference {
            limits,
            now,
            kept: Vec::new(),
            own: BTreeMap::new(),
            tokens: Vec::new(),
            waited_on: Vec::new(),
            ids: HashSet::new(),
            leases: HashSet::new(),
            highest: None,
            latest: now.wall,
            complaints: Vec::new(),
        }
    }

    /// Lets it be `now`.
    pub(super) fn at(&mut self, now: Now) {
        if now.wall < self.now.wall {
            self.kept.iter_mut().for_each(|kept| kept.exact = false);
        }
        self.now = now;
        self.latest = self.latest.max(now.wall);
        self.end_pauses();
        for index in 0..self.kept.len() {
            self.let_time_act(index);
        }
    }

    /// A pause that has ended is over, and no setting any more.
    fn end_pauses(&mut self) {
        let (wall, default) = (self.now.wall, self.limits.defaults.pause);
        for own in self.own.values_mut() {
            if let Some(end) = own.pause_end() {
                own.change(SettingChange::Set(Setting::Pause(Pause::Until(end))).as_of(wall, default));
            }
        }
        self.own.retain(|_, own| !own.is_empty());
    }

    fn let_time_act(&mut self, index: usize) {
        let limit = self.attempt_limit(index);
        let now = self.now;
        let kept = &mut self.kept[index];
        let before = &kept.message.standing;
        let next = as_of(before, now, limit);
        if let (State::Leased(lease), StateKind::Ready) = (before.state, next.state.kind()) {
            let ago_ms = now.mono_ms - lease.deadline_mono_ms;
            let since = Timestamp::from_ms(now.wall.as_ms() - ago_ms as i64).unwrap_or(Timestamp::MIN);
            kept.made_ready = kept.made_ready.max(since);
        }
        kept.message.standing = next;
    }

    /// The store has ended and is open again.
    pub(super) fn restarted(&mut self, now: Now) {
        for kept in &mut self.kept {
            kept.exact = false;
            if let State::Leased(lease) = &mut kept.message.standing.state {
                *lease = lease.rebased(now);
            }
        }
        self.at(now);
        for index in 0..self.kept.len() {
            if self.kept[index].kind() == StateKind::Leased {
                self.change(index, &Command::Unbind).expect("it is refused to nobody");
                self.note_ready(index);
            }
        }
    }

    /// The limit of attempts in force for a message.
    fn attempt_limit(&self, index: usize) -> dwell_model::AttemptLimit {
        let message = &self.kept[index].message;
        message.max_attempts.unwrap_or_else(|| self.settings(&message.queue).max_attempts)
    }

    /// Does `command` to a message; false if it is gone now.
    fn change(&mut self, index: usize, command: &Command) -> std::result::Result<bool, Refusal> {
        let limit = self.attempt_limit(index);
        let next = apply(&self.kept[index].message.standing, command, self.now, limit)?.next;
        let Some(next) = next else {
            self.kept.remove(index);
            return Ok(false);
        };
        let message = &mut self.kept[index].message;
        message.key = message.key.take().filter(|_| !next.keyless);
        message.standing = next;
        Ok(true)
    }

    /// A call has just changed it: if it is ready, it has been made so now.
    fn note_ready(&mut self, index: usize) {
        let now = self.now.wall;
        let kept = &mut self.kept[index];
        if kept.kind() == StateKind::Ready {
            kept.made_ready = kept.made_ready.max(now);
        }
    }

    fn settings(&self, queue: &QueueName) -> Settings {
        let defaults = &self.limits.defaults;
        self.own.get(queue).map_or_else(|| defaults.clone(), |own| own.over(defaults))
    }

    /// Queues that have messages, takes that wait, or settings of their own; by name.
    fn queue_names(&self) -> Vec<QueueName> {
        let messages = self.kept.iter().map(|kept| &kept.message.queue);
        let mut names: Vec<_> = messages.chain(self.own.keys()).chain(&self.waited_on).cloned().collect();
        names.sort();
        names.dedup();
        names
    }

    fn is_known(&self, queue: &QueueName) -> bool {
        self.queue_names().contains(queue)
    }

    fn find_id(&self, queue: &QueueName, id: MessageId) -> Option<usize> {
        self.kept.iter().position(|kept| kept.message.id == id && kept.message.queue == *queue)
    }

    fn find_key(&self, queue: &QueueName, key: &Key) -> Option<usize> {
        self.kept.iter().position(|kept| kept.message.queue == *queue && kept.live_key() == Some(key))
    }

    fn find(&self, queue: &QueueName, target: &Target) -> Option<usize> {
        match target {
            Target::Id(id) => self.find_id(queue, *id),
            Target::Key(key) => self.find_key(queue, key),
        }
    }

    fn instant(&self, queue: &QueueName, when: When) -> Result<Timestamp> {
        Ok(match when {
            When::Now => self.now.wall,
            When::At(due) => due,
            When::AfterMs(delay_ms) => self.now.wall.after(delay_ms)?,
            When::Level(level) => {
                let levels = self.settings(queue).levels;
                let delay_ms = (level as usize).checked_sub(1).and_then(|place| levels.get(place));
                let unknown = Invalid::UnknownLevel { level, levels: levels.len() as u32 };
                self.now.wall.after(*delay_ms.ok_or(unknown)?)?
            }
        })
    }

    /// The error of a refused change of an instant.
    fn refused(&self, index: usize, due: Timestamp, refusal: Refusal) -> Error {
        let message = &self.kept[index].message;
        match refusal {
            Refusal::ExpiresBeforeDue => {
                let expires = message.standing.expires.expect("it was refused for its expiry");
                Invalid::ExpiresBeforeDue { expires, due }.into()
            }
            Refusal::NotDead => Error::NotDead { id: message.id },
            other => panic!("the reference does not know what to say to {other:?}"),
        }
    }
}

fn check_lease(lease_ms: Option<u64>) -> Result<()> {
    lease_ms.map_or(Ok(()), |ms| Ok(Setting::LeaseMs(ms).check()?))
}

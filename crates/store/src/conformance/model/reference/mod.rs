//! The simplest possible store: a list of messages that every call walks through.
//!
//! It defines the meaning of the contract, and is slow on purpose: no index, no timer, nothing that could be
//! stale. `dwell_model::apply`, which is tested separately against `docs/states.md`, decides what one message
//! may do.
//!
//! Values that a store chooses freely (ids, numbers, lease tokens) are taken from the store's answer; a
//! broken promise is recorded as a complaint.

mod change;
mod dead;
mod inspect;
mod put;
mod settle;
mod take;

pub(super) use inspect::shown;

use std::collections::{BTreeMap, HashSet};

use dwell_model::{
    Command, IdempotencyKey, Invalid, Key, LeaseToken, Limits, Message, MessageId, Now, Number, OwnSettings,
    Pause, QueueName, Refusal, Rules, Setting, SettingChange, Settings, State, StateKind, Timestamp, apply,
    as_of,
};

use crate::{Error, PutAnswer, QueueDeaths, Result, Target, When};

/// A message, and the instant since which it could have been handed out.
pub(super) struct ModelMessage {
    pub(super) message: Message,
    /// When it was last made ready by anything but its instant; before that, its put.
    made_ready: Timestamp,
    /// Whether a store knows this exactly: it need not remember it over a restart or a death, and after a step of
    /// the clock back it may count from an instant that has not come again.
    exact: bool,
}

impl ModelMessage {
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
    idempotency_key: IdempotencyKey,
    /// Key and body of the put.
    stands_for: (Option<Key>, bytes::Bytes),
    answer: PutAnswer,
    until: Timestamp,
}

/// The reference store.
pub(super) struct Reference {
    limits: Limits,
    now: Now,
    /// The number of partitions in which the store keeps a queue of spread 1, and one of spread 2.
    partitions: [u16; 2],
    pub(super) kept: Vec<ModelMessage>,
    own: BTreeMap<QueueName, OwnSettings>,
    idempotency_keys: Vec<Remembered>,
    /// Queues that takes wait on.
    pub(super) waited_on: Vec<QueueName>,
    ids: HashSet<MessageId>,
    leases: HashSet<LeaseToken>,
    highest: Option<Number>,
    /// The latest wall time seen: an idempotency key that had run out by then may be forgotten for good.
    latest: Timestamp,
    /// The deaths and discards since the store was opened.
    deaths: BTreeMap<QueueName, QueueDeaths>,
    /// When a message was last discarded by its queue's retention or expiry, in monotonic milliseconds.
    discarded: Option<u64>,
    /// Broken promises about freely chosen values.
    pub(super) complaints: Vec<String>,
}

impl Reference {
    pub(super) fn new(limits: Limits, now: Now, partitions: [u16; 2]) -> Reference {
        Reference {
            limits,
            now,
            partitions,
            kept: Vec::new(),
            own: BTreeMap::new(),
            idempotency_keys: Vec::new(),
            waited_on: Vec::new(),
            ids: HashSet::new(),
            leases: HashSet::new(),
            highest: None,
            latest: now.wall,
            deaths: BTreeMap::new(),
            discarded: None,
            complaints: Vec::new(),
        }
    }

    /// The number of partitions in which the store keeps a queue. Each has its share of the queue's caps,
    /// rounded up.
    fn places_of(&self, queue: &QueueName) -> u16 {
        self.partitions[usize::from(self.settings(queue).partitions > 1)]
    }

    /// The partition in which it keeps a message.
    fn place_of(&self, queue: &QueueName, id: MessageId) -> u16 {
        if self.places_of(queue) > 1 { id.shard() } else { 0 }
    }

    /// Sets the present time.
    pub(super) fn at(&mut self, now: Now) {
        if now.wall < self.now.wall {
            self.kept.iter_mut().for_each(|kept| kept.exact = false);
        }
        self.now = now;
        self.latest = self.latest.max(now.wall);
        self.end_pauses();
        let mut index = 0;
        while index < self.kept.len() {
            index += usize::from(self.let_time_act(index));
        }
        self.retain();
    }

    /// Removes pauses that have ended from the settings.
    fn end_pauses(&mut self) {
        let (wall, default) = (self.now.wall, self.limits.defaults.pause);
        for own in self.own.values_mut() {
            if let Some(end) = own.pause_end() {
                own.change(SettingChange::Set(Setting::Pause(Pause::Until(end))).as_of(wall, default));
            }
        }
        self.own.retain(|_, own| !own.is_empty());
    }

    /// False if time has removed it.
    fn let_time_act(&mut self, index: usize) -> bool {
        let settings = self.settings(&self.kept[index].message.queue);
        let now = self.now;
        let kept = &mut self.kept[index];
        let before = &kept.message.standing;
        let Some(next) = as_of(before, now, rules(&kept.message, &settings)) else {
            let gone = self.kept.remove(index);
            self.count_discarded(&gone.message.queue, |discarded| &mut discarded.on_expiry);
            return false;
        };
        if let (State::Leased(lease), StateKind::Ready) = (before.state, next.state.kind()) {
            let ago_ms = now.mono_ms - lease.deadline_mono_ms;
            let since = Timestamp::from_ms(now.wall.as_ms() - ago_ms as i64).unwrap_or(Timestamp::MIN);
            kept.made_ready = kept.made_ready.max(since);
        }
        // Whether a lease ran out first, and the message was ready in between, depends on who looked when.
        kept.exact &= next.state.kind() != StateKind::Dead;
        let before = std::mem::replace(&mut kept.message.standing, next);
        self.count_death(index, &before);
        true
    }

    /// The store is closed by its owner: session leases are released.
    pub(super) fn closed(&mut self) {
        for id in self.ids_of_leased() {
            let index = self.index_of(id);
            let State::Leased(lease) = self.kept[index].message.standing.state else { continue };
            if lease.session {
                let release = Command::Release { token: lease.token, after_ms: None, priority: None };
                self.change(index, &release).expect("the lease is in force");
            }
        }
        self.retain();
    }

    fn ids_of_leased(&self) -> Vec<MessageId> {
        let leased = self.kept.iter().filter(|kept| kept.kind() == StateKind::Leased);
        leased.map(|kept| kept.message.id).collect()
    }

    /// The store has ended and is open again.
    pub(super) fn restarted(&mut self, now: Now) {
        for kept in &mut self.kept {
            kept.exact = false;
            if let State::Leased(lease) = &mut kept.message.standing.state {
                *lease = lease.rebased(now);
            }
        }
        self.deaths.clear();
        self.at(now);
        for id in self.ids_of_leased() {
            let index = self.index_of(id);
            if self.change(index, &Command::EndSession).expect("it is refused to nobody") {
                self.note_ready(index);
            }
        }
        self.retain();
    }

    /// Applies `command` to a message; false if it was removed by that.
    fn change(&mut self, index: usize, command: &Command) -> std::result::Result<bool, Refusal> {
        let message = &self.kept[index].message;
        let settings = self.settings(&message.queue);
        let transition = apply(&message.standing, command, self.now, rules(message, &settings))?;
        let Some(next) = transition.next else {
            let gone = self.kept.remove(index);
            if transition.effects.dropped {
                self.count_discarded(&gone.message.queue, |discarded| &mut discarded.on_expiry);
            }
            return Ok(false);
        };
        let message = &mut self.kept[index].message;
        message.key = message.key.take().filter(|_| !next.keyless);
        let before = std::mem::replace(&mut message.standing, next);
        self.count_death(index, &before);
        Ok(true)
    }

    /// Notes that a message that was just changed is ready since now, if it is ready.
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

    /// Queues that have messages, waiting takes, or settings of their own; by name.
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

/// The rules that follow from a message and its queue's settings.
fn rules<'a>(message: &Message, settings: &'a Settings) -> Rules<'a> {
    Rules::of(message.id, message.max_attempts, settings)
}

fn check_lease(lease_ms: Option<u64>) -> Result<()> {
    lease_ms.map_or(Ok(()), |ms| Ok(Setting::LeaseMs(ms).check()?))
}

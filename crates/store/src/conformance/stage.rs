//! A store under test with the calls that scenarios make most, and a watchdog for scenarios that hang.

use std::io::Write;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use dwell_model::{
    AttemptLimit, IdempotencyKey, Key, Limits, Message, MessageId, QueueName, Receipt, Setting,
    SettingChange, State, StateKind, Timestamp,
};

pub(super) use super::Factory;
use super::Harness;
use crate::{
    Action, Blocking, Cancelled, Delivery, OnConflict, Put, PutAnswer, QueueStats, Rescheduled, Result,
    Settle, Settled, Store, Take, Target, When,
};

/// The real-time timeout of anything that must happen.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Runs one scenario on a separate thread; one that does not end fails under its name.
///
/// # Panics
/// If the scenario does, or does not end within a minute of real time.
pub fn run(name: &'static str, factory: Arc<Factory>, scenario: fn(&Factory)) {
    let (done, ended) = sync_channel::<()>(1);
    let body = move || {
        scenario(&*factory);
        let _ = done.send(());
    };
    let worker = thread::Builder::new().name(name.to_owned()).spawn(body).expect("a thread can be started");
    match ended.recv_timeout(PATIENCE) {
        Err(RecvTimeoutError::Timeout) => panic!("{name}: hangs, not done after {PATIENCE:?}"),
        Ok(()) | Err(RecvTimeoutError::Disconnected) => {
            if let Err(panic) = worker.join() {
                resume_unwind(panic);
            }
        }
    }
}

/// Prints that a scenario does not apply to this store. It bypasses the capture of the test runner, so that
/// the scenario is not mistaken for one that passed.
pub(super) fn not_applicable(why: &str) {
    let name = thread::current().name().unwrap_or("a scenario").to_owned();
    // In a single write, on a line by itself, since other tests print at the same time.
    let line = format!("\nnot applicable: {name}: {why}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// A store under test.
pub(super) struct Stage {
    harness: Box<dyn Harness>,
}

impl Stage {
    pub(super) fn open(factory: &Factory) -> Stage {
        Stage::open_with(factory, Limits::default())
    }

    pub(super) fn open_with(factory: &Factory, limits: Limits) -> Stage {
        Stage { harness: factory(limits) }
    }

    /// A stage whose store survives a restart; prints a notice and returns `None` if this one does not.
    pub(super) fn durable(factory: &Factory) -> Option<Stage> {
        Stage::durable_with(factory, Limits::default())
    }

    pub(super) fn durable_with(factory: &Factory, limits: Limits) -> Option<Stage> {
        let stage = Stage::open_with(factory, limits);
        if !stage.harness.durable() {
            not_applicable("this store does not survive a restart");
            return None;
        }
        Some(stage)
    }

    /// All calls of the contract.
    pub(super) fn store(&self) -> Blocking<dyn Store> {
        Blocking::new(self.harness.store())
    }

    pub(super) fn raw(&self) -> Arc<dyn Store> {
        self.harness.store()
    }

    pub(super) fn now(&self) -> Timestamp {
        self.harness.now()
    }

    /// The instant `ms` from now.
    pub(super) fn at(&self, ms: i64) -> Timestamp {
        Timestamp::from_ms(self.now().as_ms() + ms).unwrap()
    }

    pub(super) fn advance(&mut self, ms: u64) {
        self.harness.advance(ms);
    }

    /// Steps the wall clock; prints a notice and returns false if this store's clock cannot be stepped.
    pub(super) fn step_wall(&mut self, by_ms: i64) -> bool {
        let stepped = self.harness.step_wall(by_ms);
        if !stepped {
            not_applicable("the clock of this store cannot be stepped");
        }
        stepped
    }

    pub(super) fn is_durable(&self) -> bool {
        self.harness.durable()
    }

    pub(super) fn close(&mut self) {
        self.harness.close();
    }

    /// See [`Harness::cap_slack`].
    pub(super) fn cap_slack(&self, takes: u64, max: u64) -> u64 {
        self.harness.cap_slack(takes, max)
    }

    /// The number of partitions of a queue with this `partitions`.
    pub(super) fn partitions(&self, partitions: u16) -> u16 {
        self.harness.partitions(partitions)
    }

    pub(super) fn restart(&mut self) {
        self.harness.restart();
    }

    pub(super) fn shows_expiry_at_once(&self) -> bool {
        self.harness.shows_expiry_at_once()
    }

    pub(super) fn shows_leases(&self) -> bool {
        self.harness.shows_leases()
    }

    pub(super) fn gives_back_by_release(&self) -> bool {
        self.harness.gives_back_by_release()
    }

    pub(super) fn as_shown(&self, message: Message) -> Message {
        self.harness.as_shown(message)
    }

    pub(super) fn makes_idempotency_keys(&self) -> bool {
        self.harness.makes_idempotency_keys()
    }

    pub(super) fn quiesce(&self) {
        self.harness.quiesce();
    }

    /// Prints a notice and returns false if no lease of this store belongs to a process.
    pub(super) fn has_sessions(&self) -> bool {
        let has = self.harness.has_sessions();
        if !has {
            not_applicable("leases of this store belong to no process");
        }
        has
    }

    pub(super) fn try_put(&self, put: Put) -> Result<PutAnswer> {
        self.store().put_one(put)
    }

    #[track_caller]
    pub(super) fn put(&self, put: Put) -> PutAnswer {
        self.try_put(put).expect("the put is good")
    }

    #[track_caller]
    pub(super) fn take(&self, take: Take) -> Vec<Delivery> {
        self.store().take(take).expect("the take is good")
    }

    /// The head of `q`, if any message is ready there.
    #[track_caller]
    pub(super) fn take_one(&self) -> Option<Delivery> {
        let mut taken = self.take(Take::from(q()));
        assert!(taken.len() <= 1, "more was handed out than asked for");
        taken.pop()
    }

    /// The head of `q`, which must be there.
    #[track_caller]
    pub(super) fn taken(&self) -> Delivery {
        self.take_one().expect("a message is ready")
    }

    #[track_caller]
    pub(super) fn taken_for(&self, lease_ms: u64) -> Delivery {
        self.take(Take::from(q()).lease_ms(lease_ms)).pop().expect("a message is ready")
    }

    /// The bodies of all ready messages of `q`, in the order in which they are handed out.
    #[track_caller]
    pub(super) fn drain(&self) -> Vec<String> {
        self.take(Take::from(q()).max(1_000)).iter().map(|taken| text(&taken.message.body)).collect()
    }

    pub(super) fn settle(&self, receipt: &Receipt, action: Action) -> Result<Settled> {
        self.store().settle_one(Settle { receipt: receipt.clone(), action })
    }

    /// Takes the head of `q` and buries it.
    #[track_caller]
    pub(super) fn bury_head(&self) -> MessageId {
        let taken = self.taken();
        self.settle(&taken.receipt, bury("set aside")).expect("the lease is in force");
        taken.message.id
    }

    #[track_caller]
    pub(super) fn cancel(&self, target: Target) -> Cancelled {
        self.store().cancel(q(), vec![target]).pop().expect("one answer an item").expect("cancel answers")
    }

    pub(super) fn try_reschedule(&self, target: Target, when: When) -> Result<Rescheduled> {
        self.store().reschedule(q(), vec![(target, when)]).pop().expect("one answer an item")
    }

    #[track_caller]
    pub(super) fn reschedule(&self, target: Target, when: When) -> Rescheduled {
        self.try_reschedule(target, when).expect("the instant is good")
    }

    pub(super) fn try_get(&self, target: Target) -> Result<Message> {
        self.store().get(q(), vec![target], false).pop().expect("one answer an item")
    }

    /// By key, including dead ones.
    pub(super) fn try_get_dead(&self, name: &str) -> Result<Message> {
        self.store().get(q(), vec![by_key(name)], true).pop().expect("one answer an item")
    }

    #[track_caller]
    pub(super) fn get(&self, id: MessageId) -> Message {
        self.try_get(Target::Id(id)).expect("the message is there")
    }

    #[track_caller]
    pub(super) fn state(&self, id: MessageId) -> StateKind {
        self.get(id).standing.state.kind()
    }

    /// The cause of the message's death.
    #[track_caller]
    pub(super) fn death(&self, id: MessageId) -> &'static str {
        match self.get(id).standing.state {
            State::Dead(death) => death.reason.as_str(),
            other => panic!("not dead but {other:?}"),
        }
    }

    #[track_caller]
    pub(super) fn stats(&self) -> QueueStats {
        self.store().stats(q()).expect("the queue is known")
    }

    #[track_caller]
    pub(super) fn set(&self, setting: Setting) -> QueueStats {
        self.store().configure(q(), vec![SettingChange::Set(setting)]).expect("the setting is good")
    }

    /// Everything that readers see of `q`, to check that nothing has changed.
    pub(super) fn snapshot(&self) -> (Option<QueueStats>, Vec<Message>) {
        let pages =
            StateKind::ALL.iter().filter_map(|&state| self.store().list(q(), state, None, 1_000).ok());
        let mut messages: Vec<_> = pages.flat_map(|page| page.messages).collect();
        for message in &mut messages {
            if let State::Leased(lease) = &mut message.standing.state {
                // Monotonic time is specific to a process; the deadline on the wall clock is the same for
                // all.
                lease.deadline_mono_ms = 0;
            }
        }
        (self.store().stats(q()).ok(), messages)
    }
}

/// The queue that scenarios use.
pub(super) fn q() -> QueueName {
    queue("q")
}

pub(super) fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

pub(super) fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

pub(super) fn by_key(name: &str) -> Target {
    Target::Key(key(name))
}

pub(super) fn idempotency_key(name: &str) -> IdempotencyKey {
    IdempotencyKey::new(name).unwrap()
}

/// A message for `q`, due at once.
pub(super) fn message(body: &str) -> Put {
    Put::new(q(), Bytes::copy_from_slice(body.as_bytes()))
}

/// A keyed message for `q`.
pub(super) fn keyed(name: &str, body: &str) -> Put {
    message(body).key(key(name))
}

pub(super) fn replacing(name: &str, body: &str) -> Put {
    keyed(name, body).on_conflict(OnConflict::Replace)
}

pub(super) fn keeping(name: &str, body: &str) -> Put {
    keyed(name, body).on_conflict(OnConflict::Keep)
}

pub(super) fn text(body: &Bytes) -> String {
    String::from_utf8_lossy(body).into_owned()
}

/// A limit of attempts.
pub(super) fn attempts(limit: u32) -> AttemptLimit {
    AttemptLimit::At(limit.try_into().unwrap())
}

pub(super) fn retry(after_ms: u64) -> Action {
    Action::Retry { after_ms: Some(after_ms), error: None, priority: None }
}

pub(super) const BACKOFF: Action = Action::Retry { after_ms: None, error: None, priority: None };

pub(super) const RELEASE: Action = Action::Release { after_ms: None, priority: None };

pub(super) fn bury(reason: &str) -> Action {
    Action::Bury { reason: Some(reason.into()), priority: None }
}

pub(super) fn extend(lease_ms: u64) -> Action {
    Action::Extend { lease_ms: Some(lease_ms) }
}

/// The code of a refusal.
#[track_caller]
pub(super) fn code<T: std::fmt::Debug>(answer: Result<T>) -> &'static str {
    answer.expect_err("this has to be refused").code()
}

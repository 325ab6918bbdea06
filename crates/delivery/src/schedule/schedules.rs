//! Defines, lists, pauses and deletes schedules.
//!
//! Ground rule: only the holder of a schedule's current message replaces it. So a definition and a run exclude each
//! other, and neither overwrites what it has not read.

use std::sync::Arc;

use dwell_model::{
    Cursor, LapseBackoff, Message, OwnSettings, Pause, Setting, SettingChange, Settings, StateKind, Timestamp,
};
use dwell_store::{
    Action, Cancelled, Delivery, Error as StoreError, LeaseTerms, OnConflict, Put, PutAnswer, Settle, Store,
    Target,
};

use super::runner::run_by_hand;
use super::stored::{Stored, key};
use super::{Schedule, queue};
use crate::{Error, IntoStore, Result};

/// The lease during a change of a definition, in milliseconds.
const LEASE_MS: u64 = 30_000;
/// The maximum number of look-ups of a schedule that others define and delete at the same time.
const TRIES: usize = 8;
/// The number of schedules per page of the list.
const PAGE: usize = 1_000;

/// The schedules of a store. Cloning is cheap.
#[derive(Clone)]
pub struct Schedules {
    store: Arc<dyn Store>,
}

/// The result of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defined {
    /// There was no schedule with this name.
    Created,
    /// There was one with another definition.
    Changed,
    /// There was one with the same definition. Nothing was changed.
    Unchanged,
}

/// A schedule with its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its definition.
    pub schedule: Schedule,
    /// Its next instant, before jitter; `None` while it is paused, and until a runner has computed the first one.
    pub next: Option<Timestamp>,
    /// Whether it is paused.
    pub is_paused: bool,
}

/// Some of the schedules, and where the next page of them begins.
#[derive(Clone, Debug)]
pub struct SchedulePage {
    /// The schedules, and the errors of those that this version cannot read.
    pub schedules: Vec<Result<Listed>>,
    /// Behind which one the next page begins, if there is one.
    pub next: Option<Cursor>,
}

/// What becomes of the schedule that stands.
type Change<'a> = &'a (dyn Fn(Stored) -> Option<Stored> + Send + Sync);

impl Schedules {
    /// The schedules of this store.
    pub fn new(store: impl IntoStore) -> Schedules {
        Schedules { store: store.into_store() }
    }

    /// Defines a schedule, in place of the one of the same name. It runs at its first instant after this call, by the
    /// store's clock; one that is paused stays paused. `now` is the caller's time, used for checks alone.
    ///
    /// All servers may define the schedules of their configuration when they start: one that says the same as the one that stands is
    /// not checked again, and writes nothing, so that it is no trouble to a store that cannot write.
    ///
    /// # Errors
    /// Those of [`Schedule::check`]; [`Error::Store`] (`headers_too_large`) where its runs could not be put;
    /// [`Error::UnreadableSchedule`] where one stands that this version cannot read, which is left alone;
    /// [`Error::ScheduleBusy`] while a runner holds it, for milliseconds; the store's.
    pub async fn define(&self, schedule: Schedule, now: Timestamp) -> Result<Defined> {
        for _ in 0..TRIES {
            let stands = match self.standing(schedule.name()).await {
                Ok((_, standing)) if standing.schedule == schedule => return Ok(Defined::Unchanged),
                Ok(_) => true,
                Err(Error::UnknownSchedule { .. }) => false,
                Err(error) => return Err(error),
            };
            schedule.check(now)?;
            schedule.check_size(self.store.limits())?;
            if !stands {
                match self.create(&schedule).await {
                    Ok(()) => return Ok(Defined::Created),
                    // Defined since.
                    Err(Error::Store(StoreError::KeyTaken { .. })) => continue,
                    Err(error) => return Err(error),
                }
            }
            let change = |standing: Stored| {
                (standing.schedule != schedule).then(|| standing.redefined(schedule.clone()))
            };
            match self.change(schedule.name(), &change).await {
                Ok(true) => return Ok(Defined::Changed),
                Ok(false) => return Ok(Defined::Unchanged),
                // Deleted since.
                Err(Error::UnknownSchedule { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::ScheduleBusy { name: schedule.name().into() })
    }

    /// Puts the message of a schedule that does not stand.
    async fn create(&self, schedule: &Schedule) -> Result<()> {
        self.keep_apart().await?;
        let put = Put { on_conflict: OnConflict::Reject, ..Stored::new(schedule.clone()).put(None)? };
        Ok(self.put(put).await.map(drop)?)
    }

    /// Gives the schedules' queue settings of its own where the store's defaults would stop schedules or refuse them: they are meant
    /// for the queues of callers. A setting that the queue has already stays. Nothing is written where nothing is missing.
    ///
    /// # Errors
    /// The store's.
    pub async fn keep_apart(&self) -> Result<()> {
        let (settings, own) = match self.store.stats(queue()).await {
            Ok(stats) => (stats.settings, stats.own),
            Err(StoreError::UnknownQueue { .. }) => {
                (self.store.limits().defaults.clone(), OwnSettings::default())
            }
            Err(error) => return Err(error.into()),
        };
        let plain = Settings::default();
        let wanted = [
            (settings.pause != Pause::Running, Setting::Pause(Pause::Running)),
            (settings.max_pending.is_some(), Setting::MaxPending(Setting::MAX_COUNT)),
            (settings.max_leased.is_some(), Setting::MaxLeased(Setting::MAX_COUNT)),
            // What a runner that died had in hand is the next one's at once.
            (settings.lapse_backoff != LapseBackoff::Never, Setting::LapseBackoff(LapseBackoff::Never)),
            // A runner repeats the put of a schedule's next message under an idempotency key.
            (settings.idempotency_ms < plain.idempotency_ms, Setting::IdempotencyMs(plain.idempotency_ms)),
        ];
        let is_own = |setting: &Setting| own.iter().any(|one| one.name() == setting.name());
        let wanted = wanted.into_iter().filter(|(differs, setting)| *differs && !is_own(setting));
        let changes: Vec<SettingChange> = wanted.map(|(_, setting)| SettingChange::Set(setting)).collect();
        if !changes.is_empty() {
            self.store.configure(queue(), changes).await?;
        }
        Ok(())
    }

    /// The schedule of this name.
    ///
    /// # Errors
    /// [`Error::UnknownSchedule`]; [`Error::UnreadableSchedule`] for one that this version cannot read; the store's.
    pub async fn get(&self, name: &str) -> Result<Listed> {
        Ok(listed(self.standing(name).await?.1))
    }

    /// All schedules, and the errors of those that this version cannot read.
    ///
    /// One that is being run at this moment may be listed in its state before or after, or be missing.
    ///
    /// # Errors
    /// The store's.
    pub async fn list(&self) -> Result<Vec<Result<Listed>>> {
        let mut found = Vec::new();
        for state in [StateKind::Scheduled, StateKind::Ready, StateKind::Leased] {
            let mut after = None;
            loop {
                let page = match self.store.list(queue(), state, after, PAGE).await {
                    Ok(page) => page,
                    Err(StoreError::UnknownQueue { .. }) => break,
                    Err(error) => return Err(error.into()),
                };
                let read =
                    |message: &Message| Stored::read(message).map(|stored| stored.map(listed)).transpose();
                found.extend(page.messages.iter().filter_map(read));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(found)
    }

    /// At most `max` of the schedules whose messages are in this state, behind `after`: for those who must not have all of them in memory.
    /// What holds for [`list`](Schedules::list) holds for the pages of all states together.
    ///
    /// # Errors
    /// The store's.
    pub async fn page(&self, state: StateKind, after: Option<Cursor>, max: usize) -> Result<SchedulePage> {
        match self.store.list(queue(), state, after, max).await {
            Ok(page) => {
                let read =
                    |message: &Message| Stored::read(message).map(|stored| stored.map(listed)).transpose();
                let schedules = page.messages.iter().filter_map(read).collect();
                Ok(SchedulePage { schedules, next: page.next })
            }
            Err(StoreError::UnknownQueue { .. }) => Ok(SchedulePage { schedules: Vec::new(), next: None }),
            Err(error) => Err(error.into()),
        }
    }

    /// Runs a schedule no more until it is [resumed](Schedules::resume). Runs that were put stay.
    ///
    /// # Errors
    /// [`Error::UnknownSchedule`], [`Error::ScheduleBusy`], the store's.
    pub async fn pause(&self, name: &str) -> Result<()> {
        let change = |standing: Stored| (!standing.is_paused).then(|| standing.paused(true));
        self.change(name, &change).await.map(drop)
    }

    /// Runs a paused schedule again, from its first instant after this call on: the instants in between are not missed.
    ///
    /// # Errors
    /// [`Error::UnknownSchedule`], [`Error::ScheduleBusy`], the store's.
    pub async fn resume(&self, name: &str) -> Result<()> {
        let change = |standing: Stored| standing.is_paused.then(|| standing.paused(false));
        self.change(name, &change).await.map(drop)
    }

    /// Puts a run now, in addition to those of its instants; also while it is paused.
    ///
    /// # Errors
    /// [`Error::UnknownSchedule`]; the store's, such as `key_taken` where an earlier run is not done and
    /// [`Overlap`](super::Overlap) skips.
    pub async fn run(&self, name: &str) -> Result<PutAnswer> {
        let (_, stored) = self.standing(name).await?;
        Ok(self.put(run_by_hand(&stored.schedule)?).await?)
    }

    /// Removes a schedule. Runs that were put stay.
    ///
    /// # Errors
    /// [`Error::UnknownSchedule`], [`Error::ScheduleBusy`], the store's.
    pub async fn delete(&self, name: &str) -> Result<()> {
        let unknown = || Error::UnknownSchedule { name: name.into() };
        let cancelled = self.store.cancel(queue(), vec![Target::Key(key(name)?)]).await.pop();
        match cancelled.ok_or_else(unknown)?? {
            Cancelled::Cancelled(_) => Ok(()),
            Cancelled::Leased(_) => Err(Error::ScheduleBusy { name: name.into() }),
            Cancelled::Dead(_) | Cancelled::NotFound => Err(unknown()),
        }
    }

    /// Changes the current state, if `change` returns a new one; returns whether it did.
    async fn change(&self, name: &str, change: Change<'_>) -> Result<bool> {
        let (message, stored) = self.standing(name).await?;
        if change(stored).is_none() {
            return Ok(false);
        }
        let held = match self.store.take_id(queue(), message.id, LeaseTerms::of_ms(LEASE_MS)).await {
            Ok(held) => held,
            Err(StoreError::Leased { .. } | StoreError::MessageNotFound { .. }) => {
                return Err(Error::ScheduleBusy { name: name.into() });
            }
            Err(error) => return Err(error.into()),
        };
        // Read again: another definition may have come between.
        let replaced = match Stored::read(&held.message) {
            Ok(Some(stored)) => match change(stored) {
                Some(changed) => self.replace(&changed).await.map(|()| true),
                None => Ok(false),
            },
            Ok(None) => Err(Error::ScheduleBusy { name: name.into() }),
            Err(error) => Err(error),
        };
        // The taken message is due now; a runner arms it again for its instant.
        let action = match replaced {
            Ok(true) => Action::Ack,
            _ => Action::Release { after_ms: None, priority: None },
        };
        self.settle(held, action).await;
        replaced
    }

    async fn replace(&self, stored: &Stored) -> Result<()> {
        self.keep_apart().await?;
        Ok(self.put(stored.put(None)?).await.map(drop)?)
    }

    /// Ends the lease of the previous message. If that fails the lease runs out: a runner finds the message superseded,
    /// or arms it again.
    async fn settle(&self, held: Delivery, action: Action) {
        self.store.settle(vec![Settle { receipt: held.receipt, action }]).await;
    }

    /// The current message of a schedule, in any state.
    async fn standing(&self, name: &str) -> Result<(Message, Stored)> {
        let unknown = || Error::UnknownSchedule { name: name.into() };
        let got =
            self.store.get(queue(), vec![Target::Key(key(name)?)], false).await.pop().ok_or_else(unknown)?;
        match got {
            Ok(message) => {
                let stored = Stored::read(&message)?.ok_or_else(unknown)?;
                Ok((message, stored))
            }
            Err(StoreError::MessageNotFound { .. } | StoreError::UnknownQueue { .. }) => Err(unknown()),
            Err(error) => Err(error.into()),
        }
    }

    async fn put(&self, put: Put) -> dwell_store::Result<PutAnswer> {
        self.store.put(vec![put]).await.pop().expect("a store answers each item")
    }
}

impl std::fmt::Debug for Schedules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Schedules").finish_non_exhaustive()
    }
}

fn listed(stored: Stored) -> Listed {
    let next = stored.instant.filter(|_| !stored.is_paused);
    Listed { schedule: stored.schedule, next, is_paused: stored.is_paused }
}

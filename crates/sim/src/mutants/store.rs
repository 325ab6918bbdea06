//! Stores with a fault.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use dwell_model::{
    IdempotencyKey, Key, LapseBackoff, Message, MessageId, OnExpiry, OwnSettings, QueueName, Setting,
    SettingChange, State, StateKind, Timestamp,
};
use dwell_store::{
    Action, BulkOutcome, Cancelled, Delivery, Error, LeaseRef, LeaseTerms, Put, PutAnswer, QueueDeaths,
    QueueStats, Rescheduled, Result, Selection, Settle, Settled, Store, Take, Target, When, delegate_store,
};

use super::StoreFault;

/// What a store with a fault has to remember although it is closed, killed and opened again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    past: Arc<Mutex<Past>>,
}

#[derive(Debug, Default)]
struct Past {
    /// All settings as they were asked for, if the fault makes others instead.
    asked: Vec<(QueueName, Setting)>,
    /// All messages that were put with each key.
    keyed: HashMap<(QueueName, Key), Vec<MessageId>>,
}

/// A store with a fault, in front of one without. Without a fault it changes nothing.
pub(crate) struct MutantStore {
    store: Arc<dyn Store>,
    fault: Option<StoreFault>,
    memory: Memory,
    calls: AtomicU64,
    /// Messages that were put and are not due yet.
    scheduled: Mutex<HashMap<QueueName, (MessageId, Timestamp)>>,
    /// The last delivery of each queue.
    last: Mutex<HashMap<QueueName, Delivery>>,
    /// The answers to puts, by idempotency key.
    answered: Mutex<HashMap<IdempotencyKey, PutAnswer>>,
}

impl MutantStore {
    /// `store` with `fault`, if any, and the memory of those that were open before it.
    pub(crate) fn new(store: Arc<dyn Store>, fault: Option<StoreFault>, memory: Memory) -> MutantStore {
        MutantStore {
            store,
            fault,
            memory,
            calls: AtomicU64::new(0),
            scheduled: Mutex::default(),
            last: Mutex::default(),
            answered: Mutex::default(),
        }
    }

    fn has(&self, fault: StoreFault) -> bool {
        self.fault == Some(fault)
    }

    /// Whether the fault strikes at this call: it is the planted one, and every fifth call is affected.
    fn strikes(&self, fault: StoreFault) -> bool {
        self.has(fault) && self.calls.fetch_add(1, Ordering::Relaxed) % 5 == 4
    }
}

impl MutantStore {
    /// The setting that is made instead of this one.
    fn made(&self, setting: Setting) -> Setting {
        match (self.fault, setting) {
            (Some(StoreFault::RetainedTooMany), Setting::DeadMax(most)) => Setting::DeadMax(most + 1),
            (Some(StoreFault::CapPassed), Setting::MaxLeased(most)) => Setting::MaxLeased(most + 1),
            (Some(StoreFault::DiscardedEarly), Setting::DeadTtlMs(ms)) => Setting::DeadTtlMs(ms.div_ceil(2)),
            (Some(StoreFault::LapseBackoffIgnored), Setting::LapseBackoff(LapseBackoff::First)) => {
                Setting::LapseBackoff(LapseBackoff::Never)
            }
            (Some(StoreFault::DropKept), Setting::OnExpiry(OnExpiry::Drop)) => {
                Setting::OnExpiry(OnExpiry::Dead)
            }
            (Some(StoreFault::DeadDropped), Setting::OnExpiry(OnExpiry::Dead)) => {
                Setting::OnExpiry(OnExpiry::Drop)
            }
            (_, setting) => setting,
        }
    }

    /// The stats as if the settings had been made that were asked for.
    fn as_asked(&self, queue: &QueueName, mut stats: QueueStats) -> QueueStats {
        let past = lock(&self.memory.past);
        let mut own = OwnSettings::default();
        for setting in stats.own.iter() {
            // The last one: several may be made the same.
            let asked = past.asked.iter().rev().find(|(of, asked)| {
                of == queue && asked.name() == setting.name() && self.made(asked.clone()) == *setting
            });
            own.change(SettingChange::Set(asked.map_or(setting, |(_, asked)| asked).clone()));
        }
        stats.own = own;
        stats
    }

    /// An older dead message that had the key of `youngest`, if any of these is one.
    fn older(youngest: &Message, others: Vec<Result<Message>>) -> Option<Message> {
        let place = |message: &Message| match message.standing.state {
            State::Dead(death) => Some((death.at, message.id)),
            _ => None,
        };
        let is_older = |other: &Message| {
            other.key == youngest.key && place(other).is_some() && place(other) < place(youngest)
        };
        others.into_iter().flatten().find(is_older)
    }

    /// Whether a lease is in force as listed, and its end would make the message ready, as far as is easily seen.
    async fn would_be_ready(&self, queue: QueueName, LeaseRef { id, takes }: LeaseRef) -> bool {
        let found = self.store.get(queue, vec![Target::Id(id)], false).await.pop();
        matches!(found, Some(Ok(message)) if {
            let standing = &message.standing;
            let has_more = message.max_attempts.is_some_and(|limit| !limit.is_spent(standing.attempts + 1));
            standing.state.kind() == StateKind::Leased
                && standing.counts.takes == takes
                && standing.expires.is_none()
                && has_more
        })
    }
}

/// Nothing that can panic runs while these locks are held.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with_bit_flipped(body: &Bytes) -> Bytes {
    let mut bytes = body.to_vec();
    if let Some(last) = bytes.last_mut() {
        *last ^= 1;
    }
    bytes.into()
}

#[async_trait]
impl Store for MutantStore {
    async fn put(&self, mut puts: Vec<Put>) -> Vec<Result<PutAnswer>> {
        for put in &mut puts {
            match self.fault {
                Some(StoreFault::IdempotencyKeyIgnored) => put.idempotency_key = None,
                Some(StoreFault::KeyIgnored) => put.key = None,
                Some(StoreFault::ExpiryIgnored) => put.expires = None,
                _ => {}
            }
        }
        let queues: Vec<QueueName> = puts.iter().map(|put| put.queue.clone()).collect();
        let idempotency_keys: Vec<Option<IdempotencyKey>> =
            puts.iter().map(|put| put.idempotency_key.clone()).collect();
        let keys: Vec<Option<Key>> = puts.iter().map(|put| put.key.clone()).collect();
        let mut answers = self.store.put(puts).await;
        if self.has(StoreFault::OlderDeadFound) {
            let mut past = lock(&self.memory.past);
            for ((queue, key), answer) in queues.iter().zip(keys).zip(&answers) {
                let (Some(key), Ok(answer)) = (key, answer) else { continue };
                let ids = past.keyed.entry((queue.clone(), key)).or_default();
                if !ids.contains(&answer.id) {
                    ids.push(answer.id);
                }
            }
        }
        if self.has(StoreFault::MismatchPassedOff) {
            let mut answered = lock(&self.answered);
            for (idempotency_key, answer) in idempotency_keys.into_iter().zip(&mut answers) {
                let Some(idempotency_key) = idempotency_key else { continue };
                match (&answer, answered.get(&idempotency_key)) {
                    (Err(Error::IdempotencyMismatch { .. }), Some(first)) => *answer = Ok(*first),
                    (Ok(put), _) => _ = answered.insert(idempotency_key, *put),
                    _ => {}
                }
            }
        }
        if self.has(StoreFault::Early) {
            for (queue, answer) in queues.into_iter().zip(answers.iter().flatten()) {
                lock(&self.scheduled).insert(queue, (answer.id, answer.due));
            }
        }
        answers
    }

    async fn take(&self, mut take: Take) -> Result<Vec<Delivery>> {
        let queue = take.queues[0].clone();
        if self.strikes(StoreFault::Early) {
            let early = lock(&self.scheduled).remove(&queue);
            if let Some((id, due)) = early {
                let Take { lease_ms, session, holder, .. } = take;
                let terms = LeaseTerms { lease_ms, session, holder };
                let taken = self.store.take_id(queue, id, terms).await;
                // Returned as if it had been due.
                return Ok(taken
                    .into_iter()
                    .map(|mut delivery| {
                        delivery.message.standing.due = due;
                        delivery
                    })
                    .collect());
            }
        }
        if self.strikes(StoreFault::ReceiptTwice) {
            let again = lock(&self.last).get(&queue).cloned();
            if let Some(delivery) = again {
                return Ok(vec![delivery]);
            }
        }
        if self.has(StoreFault::SessionLeaseOutlives) {
            take.session = false;
        }
        let asked_ms = take.lease_ms;
        if self.has(StoreFault::LeaseShort) {
            take.lease_ms = asked_ms.map(|ms| ms.div_ceil(2));
        }
        if self.has(StoreFault::Withheld) {
            take.max = take.max.saturating_sub(1).max(1);
        }
        let taken = self.store.take(take).await;
        if let (Err(Error::Unavailable { .. }), Some(last), true) =
            (&taken, lock(&self.last).get(&queue), self.has(StoreFault::UnreadPassedOff))
        {
            return Ok(vec![last.clone()]);
        }
        let mut deliveries = taken?;
        if !deliveries.is_empty() && self.strikes(StoreFault::HandedToNobody) {
            deliveries.pop();
        }
        for delivery in &mut deliveries {
            match (self.fault, asked_ms) {
                (Some(StoreFault::LeaseShort), Some(ms)) => {
                    delivery.lease_until = delivery.taken_at.saturating_after(ms);
                }
                (Some(StoreFault::BitRot), _) if self.strikes(StoreFault::BitRot) => {
                    delivery.message.body = with_bit_flipped(&delivery.message.body);
                }
                (Some(StoreFault::ReceiptTwice | StoreFault::UnreadPassedOff), _) => {
                    lock(&self.last).insert(queue.clone(), delivery.clone());
                }
                _ => {}
            }
        }
        if self.has(StoreFault::Reversed) {
            deliveries.reverse();
        }
        Ok(deliveries)
    }

    async fn settle(&self, mut settles: Vec<Settle>) -> Vec<Result<Settled>> {
        if self.has(StoreFault::AttemptForgotten) {
            for settle in &mut settles {
                if let Action::Retry { after_ms: Some(ms), priority, .. } = settle.action {
                    settle.action = Action::Release { after_ms: Some(ms), priority };
                }
            }
        }
        let is_ack = settles.iter().all(|settle| settle.action == Action::Ack);
        if is_ack && self.strikes(StoreFault::AckDropped) {
            return settles.iter().map(|_| Ok(Settled::Gone)).collect();
        }
        self.store.settle(settles).await
    }

    async fn expire_lease(&self, queue: QueueName, mut leases: Vec<LeaseRef>) -> Vec<Result<Settled>> {
        if self.has(StoreFault::TakesIgnored) {
            let ids = leases.iter().map(|lease| Target::Id(lease.id)).collect();
            let found = self.store.get(queue.clone(), ids, false).await;
            for (lease, message) in leases.iter_mut().zip(found) {
                // The lease in force, whichever was meant.
                lease.takes = message.map_or(lease.takes, |message| message.standing.counts.takes);
            }
        }
        if !self.has(StoreFault::EndedLeaseWorks) {
            return self.store.expire_lease(queue, leases).await;
        }
        let mut answers = Vec::new();
        for lease in leases {
            if self.would_be_ready(queue.clone(), lease).await {
                answers.push(Ok(Settled::Ready));
            } else {
                answers.extend(self.store.expire_lease(queue.clone(), vec![lease]).await);
            }
        }
        answers
    }

    async fn cancel(&self, queue: QueueName, targets: Vec<Target>) -> Vec<Result<Cancelled>> {
        if let ([Target::Id(id)], true) = (targets.as_slice(), self.has(StoreFault::CancelDropped)) {
            // Reads the message, and answers as if it had been changed.
            let found = self.store.get(queue, vec![Target::Id(*id)], false).await.pop();
            let waits = |message: &Message| {
                matches!(message.standing.state.kind(), StateKind::Scheduled | StateKind::Ready)
            };
            return vec![Ok(match found {
                Some(Ok(message)) if waits(&message) => Cancelled::Cancelled(*id),
                Some(Ok(message)) if message.standing.state.kind() == StateKind::Dead => Cancelled::Dead(*id),
                Some(Ok(_)) => Cancelled::Leased(*id),
                _ => Cancelled::NotFound,
            })];
        }
        self.store.cancel(queue, targets).await
    }

    async fn reschedule(&self, queue: QueueName, moves: Vec<(Target, When)>) -> Vec<Result<Rescheduled>> {
        if let ([(Target::Id(id), When::At(due))], true) =
            (moves.as_slice(), self.has(StoreFault::RescheduleDropped))
        {
            let found = self.store.get(queue.clone(), vec![Target::Id(*id)], false).await.pop();
            let waits = |message: &Message| {
                matches!(message.standing.state.kind(), StateKind::Scheduled | StateKind::Ready)
                    && message.standing.expires.is_none()
            };
            if matches!(found, Some(Ok(message)) if waits(&message)) {
                return vec![Ok(Rescheduled::Moved(*id, *due))];
            }
        }
        self.store.reschedule(queue, moves).await
    }

    async fn get(&self, queue: QueueName, targets: Vec<Target>, dead: bool) -> Vec<Result<Message>> {
        let ([Target::Key(key)], true) = (targets.as_slice(), dead) else {
            return self.store.get(queue, targets, dead).await;
        };
        let key = (queue.clone(), key.clone());
        let known = lock(&self.memory.past).keyed.get(&key).cloned().unwrap_or_default();
        // In one call, so that all of them are seen at the same moment.
        let asked = targets.into_iter().chain(known.into_iter().map(Target::Id)).collect();
        let mut others = self.store.get(queue.clone(), asked, dead).await;
        let mut answer = others.remove(0);
        if let Ok(youngest) = &answer
            && youngest.standing.state.kind() == StateKind::Dead
        {
            if self.has(StoreFault::DeadByKeyMissed) {
                answer = Err(Error::MessageNotFound { queue });
            } else if let Some(older) = Self::older(youngest, others) {
                answer = Ok(older);
            }
        }
        vec![answer]
    }

    async fn peek(&self, queue: QueueName, state: StateKind) -> Result<Option<Message>> {
        let first = self.store.peek(queue.clone(), state).await?;
        if state == StateKind::Dead && self.strikes(StoreFault::PeekMissesDead) {
            return Ok(None);
        }
        if self.has(StoreFault::PeekedSecond) {
            let other = self.store.list(queue, state, None, 2).await?.messages.pop();
            return Ok(other.or(first));
        }
        Ok(first)
    }

    async fn stats(&self, queue: QueueName) -> Result<QueueStats> {
        let mut stats = self.as_asked(&queue, self.store.stats(queue.clone()).await?);
        if self.has(StoreFault::CountOff) && stats.counts.dead > 0 {
            stats.counts.dead -= 1;
        }
        Ok(stats)
    }

    async fn configure(&self, queue: QueueName, changes: Vec<SettingChange>) -> Result<QueueStats> {
        if self.strikes(StoreFault::SettingDropped) {
            // A plausible answer without a change.
            return self.store.configure(queue, Vec::new()).await;
        }
        let mut asked = Vec::new();
        let mut made = Vec::new();
        for change in changes {
            made.push(match change {
                SettingChange::Set(setting) => {
                    asked.push((queue.clone(), setting.clone()));
                    SettingChange::Set(self.made(setting))
                }
                SettingChange::Reset(_) => change,
            });
        }
        // Before the call: it may take effect although its answer is lost.
        lock(&self.memory.past).asked.extend(asked.iter().cloned());
        let answer = self.store.configure(queue.clone(), made).await;
        if answer.as_ref().is_err_and(|error| !error.needs_reopen()) {
            let mut past = lock(&self.memory.past);
            for refused in asked {
                if let Some(at) = past.asked.iter().rposition(|one| *one == refused) {
                    past.asked.remove(at);
                }
            }
        }
        Ok(self.as_asked(&queue, answer?))
    }

    async fn deaths(&self) -> Result<Vec<QueueDeaths>> {
        let mut counted = self.store.deaths().await?;
        for QueueDeaths { deaths, discarded, .. } in &mut counted {
            // Answers tell of few of these: most are noticed when their time has come.
            let missed: Vec<&mut u64> = match self.fault {
                Some(StoreFault::DeathUncounted) => vec![&mut deaths.lapse, &mut deaths.expiry],
                Some(StoreFault::DiscardUncounted) => vec![&mut discarded.dead_ttl, &mut discarded.dead_max],
                Some(StoreFault::DropUncounted) => vec![&mut discarded.on_expiry],
                _ => Vec::new(),
            };
            missed.into_iter().for_each(|count| *count = count.saturating_sub(1));
        }
        Ok(counted)
    }

    async fn revive(&self, queue: QueueName, which: Selection, when: When) -> Result<BulkOutcome> {
        let all = which == Selection::All;
        if all && self.has(StoreFault::ReviveDropped) {
            return Ok(BulkOutcome::default());
        }
        if all && self.has(StoreFault::ReviveCutShort) {
            let dead = self.store.stats(queue.clone()).await.map_or(0, |stats| stats.counts.dead);
            let most = Selection::Oldest(dead.saturating_sub(1));
            return self.store.revive(queue, most, when).await;
        }
        self.store.revive(queue, which, when).await
    }

    delegate_store! {
        self.store;
        own: put take settle expire_lease cancel reschedule get peek stats configure deaths revive;
        forward: take_id locate list forecast queues ready discard purge delete_queue;
    }
}

//! Stores with a fault.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use dwell_model::{
    IdempotencyKey, Message, MessageId, OwnSettings, QueueName, Setting, SettingChange, StateKind, Timestamp,
};
use dwell_store::{
    Action, BulkOutcome, Cancelled, Delivery, Error, LeaseRef, LeaseTerms, Put, PutAnswer, QueueStats,
    Rescheduled, Result, Selection, Settle, Settled, Store, Take, Target, When, delegate_store,
};

use super::StoreFault;

/// A store with a fault, in front of one without. Without a fault it changes nothing.
pub(crate) struct MutantStore {
    store: Arc<dyn Store>,
    fault: Option<StoreFault>,
    calls: AtomicU64,
    /// Messages that were put and are not due yet.
    scheduled: Mutex<HashMap<QueueName, (MessageId, Timestamp)>>,
    /// The last delivery of each queue.
    last: Mutex<HashMap<QueueName, Delivery>>,
    /// The answers to puts, by token.
    answered: Mutex<HashMap<IdempotencyKey, PutAnswer>>,
}

impl MutantStore {
    /// `store` with `fault`, if any.
    pub(crate) fn new(store: Arc<dyn Store>, fault: Option<StoreFault>) -> MutantStore {
        MutantStore {
            store,
            fault,
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
    /// The change of a setting that is made instead of this one.
    fn made(&self, change: SettingChange) -> SettingChange {
        let SettingChange::Set(setting) = change else { return change };
        SettingChange::Set(match (self.fault, setting) {
            (Some(StoreFault::RetainedTooMany), Setting::DeadMax(most)) => Setting::DeadMax(most + 1),
            (Some(StoreFault::CapPassed), Setting::MaxLeased(most)) => Setting::MaxLeased(most + 1),
            (Some(StoreFault::DiscardedEarly), Setting::DeadTtlMs(ms)) => Setting::DeadTtlMs(ms.div_ceil(2)),
            (_, setting) => setting,
        })
    }

    /// The stats as if the change had been made. No workload sets 2 ms.
    fn as_made(&self, mut stats: QueueStats) -> QueueStats {
        let mut own = OwnSettings::default();
        for setting in stats.own.iter() {
            own.change(SettingChange::Set(match (self.fault, setting.clone()) {
                (Some(StoreFault::RetainedTooMany), Setting::DeadMax(most)) => Setting::DeadMax(most - 1),
                (Some(StoreFault::CapPassed), Setting::MaxLeased(most)) => Setting::MaxLeased(most - 1),
                (Some(StoreFault::DiscardedEarly), Setting::DeadTtlMs(ms)) if ms > 1 => {
                    Setting::DeadTtlMs(2 * ms)
                }
                (_, setting) => setting,
            }));
        }
        stats.own = own;
        stats
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
                Some(StoreFault::IdempotencyKeyIgnored) => put.token = None,
                Some(StoreFault::KeyIgnored) => put.key = None,
                Some(StoreFault::ExpiryIgnored) => put.expires = None,
                _ => {}
            }
        }
        let queues: Vec<QueueName> = puts.iter().map(|put| put.queue.clone()).collect();
        let tokens: Vec<Option<IdempotencyKey>> = puts.iter().map(|put| put.token.clone()).collect();
        let mut answers = self.store.put(puts).await;
        if self.has(StoreFault::MismatchPassedOff) {
            let mut answered = lock(&self.answered);
            for (token, answer) in tokens.into_iter().zip(&mut answers) {
                let Some(token) = token else { continue };
                match (&answer, answered.get(&token)) {
                    (Err(Error::IdempotencyMismatch { .. }), Some(first)) => *answer = Ok(*first),
                    (Ok(put), _) => _ = answered.insert(token, *put),
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
                let Take { lease_ms, bound, holder, .. } = take;
                let terms = LeaseTerms { lease_ms, bound, holder };
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
            take.bound = false;
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

    async fn expire_lease(&self, queue: QueueName, leases: Vec<LeaseRef>) -> Vec<Result<Settled>> {
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
        let mut stats = self.as_made(self.store.stats(queue).await?);
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
        let changes = changes.into_iter().map(|change| self.made(change)).collect();
        Ok(self.as_made(self.store.configure(queue, changes).await?))
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
        own: put take settle expire_lease cancel reschedule peek stats configure revive;
        forward: take_id get locate list forecast queues ready deaths discard purge delete_queue;
    }
}

//! The memory store: the contract over the core alone, for tests, caches and queues inside one process.
//!
//! Callers run their own calls, under one lock. The clock is read under it, so that time never seems to step
//! back because one caller overtook another. Only waiting takes need a thread, the `timer`.
//!
//! A revive or a discard of many is made in slices, and the lock is released between them.
//!
//! Ground rule: no foreign code runs under the lock. Answers to waiting takes, which wake their tasks, and
//! notifications of the timer are sent after it is released. A waker that panics loses nothing: its answer is
//! available before it is called.

#[cfg(test)]
mod tests;
mod timer;
mod waiting;

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;

use async_trait::async_trait;
use bytes::Bytes;
use dwell_model::{
    Cursor, Limits, Message, MessageId, Now, Number, QueueName, Receipt, SettingChange, StateKind, Timestamp,
};
use dwell_time::Clock;

use crate::core::{BulkProgress, Core, CoreConfig, NoLog, WaiterId};
use crate::{
    BulkOutcome, Cancelled, Delivery, Error, Forecast, LeaseRef, LeaseTerms, Page, Put, PutAnswer,
    QueueDeaths, QueueStats, Rescheduled, Result, Selection, Settle, Settled, Store, Take, Target, When,
    contained,
};
use timer::Timer;
use waiting::{AnswerSender, WaitingTake};

/// The number of queues whose forecast is counted at once, before other callers get the lock.
const QUEUES_A_CALL: usize = 64;

/// A store that keeps everything in memory, and loses it when it is dropped.
///
/// ```
/// use std::sync::Arc;
/// use dwell_model::Limits;
/// use dwell_store::{Blocking, MemoryStore, Put, Take};
/// use dwell_time::SystemClock;
///
/// let store = MemoryStore::new(Limits::default(), Arc::new(SystemClock::new()));
/// let store = Blocking::new(Arc::new(store));
/// let orders: dwell_model::QueueName = "orders".parse().unwrap();
/// store.put_one(Put::new(orders.clone(), "close order 7").after_ms(20)).unwrap();
/// let due = store.take(Take::from(orders).wait_ms(10_000)).unwrap();
/// assert_eq!(&due[0].message.body[..], b"close order 7");
/// ```
pub struct MemoryStore {
    shared: Arc<SharedState>,
}

struct SharedState {
    clock: Arc<dyn Clock>,
    limits: Limits,
    state: Mutex<MemoryState>,
}

struct MemoryState {
    core: Core<Bytes>,
    /// Waiting takes, and the senders of their answers.
    waiting: HashMap<WaiterId, AnswerSender>,
    next_waiter: u64,
    timer: Timer,
    closed: bool,
}

/// The work left for after the lock is released.
#[must_use]
struct Outgoing {
    answers: Vec<(AnswerSender, Result<Vec<Delivery>>)>,
    wake_timer: bool,
}

impl MemoryStore {
    /// An empty store; its ids and jitter differ from those of others.
    pub fn new(limits: Limits, clock: Arc<dyn Clock>) -> MemoryStore {
        MemoryStore::with_seed(limits, clock, RandomState::new().hash_one(0))
    }

    /// An empty store whose ids and jitter are derived from `seed`: two of them give the same answers to the
    /// same calls.
    pub fn with_seed(limits: Limits, clock: Arc<dyn Clock>, seed: u64) -> MemoryStore {
        // 22 bits: ids of successive stores rarely collide.
        let incarnation = (seed >> 42) as u32;
        let core = Core::new(CoreConfig { incarnation, ..CoreConfig::new(limits.clone(), seed) });
        let state = MemoryState {
            core,
            waiting: HashMap::new(),
            next_waiter: 0,
            timer: Timer::default(),
            closed: false,
        };
        MemoryStore { shared: Arc::new(SharedState { clock, limits, state: Mutex::new(state) }) }
    }

    /// Answers all waiting takes with nothing, and refuses all later calls with [`Error::Closed`]. False if
    /// it was closed already.
    pub fn close(&self) -> bool {
        let mut state = self.shared.state();
        if std::mem::replace(&mut state.closed, true) {
            return false;
        }
        let answers = state.core.dismiss_all();
        let answers = state.addressed(answers);
        drop(state);
        self.shared.send(Outgoing { answers, wake_timer: true });
        true
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        // A panic under the lock has been reported where it happened, and the timer has ended with it.
        let Ok(mut state) = self.shared.state.lock() else { return };
        state.closed = true;
        let timer = std::mem::take(&mut state.timer);
        drop(state);
        timer.stop();
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("limits", &self.shared.limits).finish_non_exhaustive()
    }
}

impl MemoryState {
    /// Serves the waiting takes, and determines whether the timer has to be woken.
    fn outgoing(&mut self, now: Now) -> Outgoing {
        let has_waiters = self.core.has_waiters();
        let answers = self.core.serve(now, &mut NoLog);
        let wake_timer = has_waiters && self.timer.is_earlier(self.core.next_wake());
        Outgoing { answers: self.addressed(answers), wake_timer }
    }

    fn addressed(
        &mut self,
        answers: Vec<crate::core::TakeAnswer<Bytes>>,
    ) -> Vec<(AnswerSender, Result<Vec<Delivery>>)> {
        let mut sender = |id| self.waiting.remove(&id).expect("a take that waits has somebody who waits");
        answers.into_iter().map(|(id, answer)| (sender(id), answer)).collect()
    }
}

impl SharedState {
    fn state(&self) -> MutexGuard<'_, MemoryState> {
        self.state.lock().expect("a call that panicked has left the store in pieces")
    }

    /// Makes a call on the core, and sends the resulting answers.
    fn call<T>(&self, call: impl FnOnce(&mut Core<Bytes>, Now) -> T) -> Result<T> {
        let mut state = self.state();
        if state.closed {
            return Err(Error::Closed);
        }
        let now = self.clock.now();
        let answer = call(&mut state.core, now);
        let outgoing = state.outgoing(now);
        drop(state);
        self.send(outgoing);
        Ok(answer)
    }

    /// Sends answers to waiting takes. Messages for a caller that has disconnected are given back.
    fn send(&self, outgoing: Outgoing) {
        let unread: Vec<Receipt> = outgoing
            .answers
            .into_iter()
            .filter_map(|(sender, answer)| contained(|| sender.send(answer))?.err())
            .flat_map(receipts)
            .collect();
        if outgoing.wake_timer {
            self.state().timer.notify();
        }
        if !unread.is_empty() {
            // A store that is closed meanwhile has no one to hand them to.
            let _ = self.call(|core, now| core.give_back(&unread, now, &mut NoLog));
        }
    }

    /// Repeats a call that may give up while leases run out until its answer is known; makes it once if its
    /// caller waits.
    async fn until_known<T>(
        &self,
        waits: bool,
        mut call: impl FnMut(&mut Core<Bytes>, Now) -> T,
    ) -> Result<T> {
        loop {
            let (answer, gave_up) = self.call(|core, now| (call(core, now), core.gave_up()))?;
            if !gave_up || waits {
                return Ok(answer);
            }
            let_others().await;
        }
    }

    /// Completes a sweep; releases the lock and yields to the executor after each slice.
    async fn finish(&self, mut progress: BulkProgress) -> Result<BulkOutcome> {
        loop {
            match progress {
                BulkProgress::Done(swept) => return Ok(swept),
                BulkProgress::Unfinished(sweep) => {
                    let_others().await;
                    let interrupted = sweep.interrupted(Error::Closed);
                    let slice = self.call(|core, now| core.go_on(sweep, now, &mut NoLog));
                    progress = slice.map_err(|_| interrupted)??;
                }
            }
        }
    }

    /// The same for calls that answer item by item.
    fn call_each<I, T>(
        &self,
        items: Vec<I>,
        call: impl FnOnce(&mut Core<Bytes>, Vec<I>, Now) -> Vec<Result<T>>,
    ) -> Vec<Result<T>> {
        let count = items.len();
        let refused = |refusal: Error| (0..count).map(|_| Err(refusal.clone())).collect();
        self.call(|core, now| call(core, items, now)).unwrap_or_else(refused)
    }
}

/// Yields to the executor once.
async fn let_others() {
    let mut was_asked = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut was_asked, true) {
            return Poll::Ready(());
        }
        std::thread::yield_now();
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn receipts(answer: Result<Vec<Delivery>>) -> impl Iterator<Item = Receipt> {
    answer.into_iter().flatten().map(|delivery| delivery.receipt)
}

#[async_trait]
impl Store for MemoryStore {
    async fn put(&self, puts: Vec<Put>) -> Vec<Result<PutAnswer>> {
        self.shared.call_each(puts, |core, puts, now| core.put(puts, now, &mut NoLog))
    }

    async fn take(&self, take: Take) -> Result<Vec<Delivery>> {
        let waits = take.wait_ms > 0 && take.max > 0;
        let taken = self.shared.until_known(waits, |core, now| core.take(&take, now, &mut NoLog)).await??;
        if !taken.is_empty() || !waits {
            return Ok(taken);
        }
        WaitingTake::begin(&self.shared, take)?.await
    }

    async fn take_id(&self, queue: QueueName, id: MessageId, terms: LeaseTerms) -> Result<Delivery> {
        self.shared.call(|core, now| core.take_id(&queue, id, terms, now, &mut NoLog))?
    }

    async fn settle(&self, settles: Vec<Settle>) -> Vec<Result<Settled>> {
        self.shared.call_each(settles, |core, settles, now| core.settle(settles, now, &mut NoLog))
    }

    async fn expire_lease(&self, queue: QueueName, leases: Vec<LeaseRef>) -> Vec<Result<Settled>> {
        self.shared.call_each(leases, |core, leases, now| core.expire_lease(&queue, leases, now, &mut NoLog))
    }

    async fn cancel(&self, queue: QueueName, targets: Vec<Target>) -> Vec<Result<Cancelled>> {
        self.shared.call_each(targets, |core, targets, now| core.cancel(&queue, targets, now, &mut NoLog))
    }

    async fn reschedule(&self, queue: QueueName, moves: Vec<(Target, When)>) -> Vec<Result<Rescheduled>> {
        self.shared.call_each(moves, |core, moves, now| core.reschedule(&queue, moves, now, &mut NoLog))
    }

    async fn get(&self, queue: QueueName, targets: Vec<Target>, dead: bool) -> Vec<Result<Message>> {
        self.shared.call_each(targets, |core, targets, now| core.get(&queue, targets, dead, now, &mut NoLog))
    }

    async fn locate(&self, numbers: Vec<Number>) -> Vec<Result<Option<(QueueName, MessageId)>>> {
        self.shared.call_each(numbers, |core, numbers, now| core.locate(numbers, now, &mut NoLog))
    }

    async fn list(
        &self,
        queue: QueueName,
        state: StateKind,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<Page> {
        self.shared.call(|core, now| core.list(&queue, state, after, max, now, &mut NoLog))?
    }

    async fn peek(&self, queue: QueueName, state: StateKind) -> Result<Option<Message>> {
        self.shared.call(|core, now| {
            let peeking = core.peek(&queue, state, now, &mut NoLog)?;
            core.finish_peek(peeking, now, &mut NoLog)
        })?
    }

    async fn stats(&self, queue: QueueName) -> Result<QueueStats> {
        self.shared.call(|core, now| core.stats(&queue, now, &mut NoLog))?
    }

    async fn forecast(&self, queues: Option<Vec<QueueName>>, edges: Vec<Timestamp>) -> Result<Forecast> {
        Forecast::check(&edges)?;
        let mut sum = Forecast::none(edges.len());
        for queue in queues.iter().flatten() {
            sum.add(&self.shared.call(|core, now| core.forecast(queue, &edges, now, &mut NoLog))??);
        }
        let mut after = None;
        while queues.is_none() {
            let page = |core: &mut Core<Bytes>, now| {
                core.forecast_page(after.as_ref(), QUEUES_A_CALL, &edges, now, &mut NoLog)
            };
            let (page, last) = self.shared.until_known(false, page).await?;
            sum.add(&page);
            if last.is_none() {
                break;
            }
            after = last;
            let_others().await;
        }
        Ok(sum)
    }

    async fn queues(&self, after: Option<QueueName>, max: usize) -> Result<Vec<QueueStats>> {
        self.shared.until_known(false, |core, now| core.queues(after.as_ref(), max, now, &mut NoLog)).await
    }

    async fn configure(&self, queue: QueueName, changes: Vec<SettingChange>) -> Result<QueueStats> {
        self.shared.call(|core, now| core.configure(&queue, changes, now, &mut NoLog))?
    }

    async fn revive(&self, queue: QueueName, which: Selection, when: When) -> Result<BulkOutcome> {
        let progress = self.shared.call(|core, now| core.revive(&queue, which, when, now, &mut NoLog))??;
        self.shared.finish(progress).await
    }

    async fn deaths(&self) -> Result<Vec<QueueDeaths>> {
        self.shared.call(|core, _| core.deaths())
    }

    async fn discard(&self, queue: QueueName, which: Selection) -> Result<BulkOutcome> {
        let progress = self.shared.call(|core, now| core.discard(&queue, which, now, &mut NoLog))??;
        self.shared.finish(progress).await
    }

    async fn purge(&self, queue: QueueName) -> Result<u64> {
        self.shared.call(|core, now| core.purge(&queue, now, &mut NoLog))?
    }

    async fn delete_queue(&self, queue: QueueName) -> Result<u64> {
        self.shared.call(|core, now| core.delete_queue(&queue, now, &mut NoLog))
    }

    fn limits(&self) -> &Limits {
        &self.shared.limits
    }
}

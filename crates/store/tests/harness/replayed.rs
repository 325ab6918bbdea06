//! The smallest durable store: the core, and its log in a list. A restart rebuilds the core from the list, in
//! a process whose monotonic clock starts again.
//!
//! Only the scenarios' own threads wait in it: a call that moves its clock serves the waiting takes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use bytes::Bytes;
use dwell_model::{
    Cursor, Limits, Message, MessageId, Now, Number, QueueName, Receipt, SettingChange, StateKind, Timestamp,
};
use dwell_store::conformance::Harness;
use dwell_store::core::{Core, CoreConfig, Durability, Log, PutRecord, Record, WaiterId};
use dwell_store::{
    BulkOutcome, Cancelled, Delivery, Forecast, LeaseRef, LeaseTerms, Page, Put, PutAnswer, QueueDeaths,
    QueueStats, Rescheduled, Result, Selection, Settle, Settled, Store, Take, Target, When,
};
use dwell_time::{Clock, ManualClock};
use futures_channel::oneshot;

#[derive(Clone)]
enum Fact {
    Put(Box<PutRecord>, Bytes),
    Other(Box<Record>),
    /// The wall time of the batch before it.
    Time(Timestamp),
}

#[derive(Clone, Default)]
struct ListLog(Vec<Fact>);

impl Log<Bytes> for ListLog {
    fn put(&mut self, record: &PutRecord, body: &Bytes) -> Bytes {
        self.0.push(Fact::Put(Box::new(record.clone()), body.clone()));
        body.clone()
    }

    fn record(&mut self, record: &Record, _: Durability) {
        self.0.push(Fact::Other(Box::new(record.clone())));
    }
}

type Waiters = HashMap<WaiterId, oneshot::Sender<Result<Vec<Delivery>>>>;

struct State {
    core: Core<Bytes>,
    log: ListLog,
    waiters: Waiters,
    next_waiter: u64,
}

struct Replayed {
    state: Mutex<State>,
    clock: ManualClock,
    limits: Limits,
}

impl Replayed {
    fn open(limits: Limits, clock: ManualClock, incarnation: u32, mut log: ListLog) -> Replayed {
        let mut core = Core::new(CoreConfig { incarnation, ..CoreConfig::new(limits.clone(), 1) });
        for fact in log.0.clone() {
            match fact {
                Fact::Put(record, body) => core.replay_put(*record, body).unwrap(),
                Fact::Other(record) => core.replay(*record).unwrap(),
                Fact::Time(wall) => core.replay_time(wall),
            }
        }
        core.opened(clock.now(), &mut log);
        while core.release_session_leases(clock.now(), &mut log) {}
        core.check();
        log.0.push(Fact::Time(core.seen()));
        let state = State { core, log, waiters: HashMap::new(), next_waiter: 0 };
        Replayed { state: Mutex::new(state), clock, limits }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn call<T>(&self, call: impl FnOnce(&mut Core<Bytes>, Now, &mut ListLog) -> T) -> T {
        let mut state = self.state();
        let State { core, log, .. } = &mut *state;
        let answer = call(core, self.clock.now(), log);
        let seen = core.seen();
        // A batch without records carries no time either.
        if !matches!(log.0.last(), None | Some(Fact::Time(_))) {
            log.0.push(Fact::Time(seen));
        }
        drop(state);
        self.serve();
        answer
    }

    fn serve(&self) {
        let mut state = self.state();
        let State { core, log, waiters, .. } = &mut *state;
        let answers = core.serve(self.clock.now(), log);
        let answers: Vec<_> =
            answers.into_iter().map(|(id, answer)| (waiters.remove(&id).unwrap(), answer)).collect();
        drop(state);
        for (sender, answer) in answers {
            if let Err(unread) = sender.send(answer) {
                self.give_back(unread);
            }
        }
    }

    fn give_back(&self, unread: Result<Vec<Delivery>>) {
        let receipts: Vec<Receipt> = unread.into_iter().flatten().map(|delivery| delivery.receipt).collect();
        self.call(|core, now, log| core.give_back(&receipts, now, log));
    }
}

/// Forgets the take when its future is dropped.
struct Leaves<'a> {
    store: &'a Replayed,
    id: WaiterId,
    answer: oneshot::Receiver<Result<Vec<Delivery>>>,
}

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.store.call(|core, now, log| core.forget(self.id, now, log));
        self.answer.close();
        if let Ok(Some(unread)) = self.answer.try_recv() {
            self.store.give_back(unread);
        }
    }
}

#[async_trait]
impl Store for Replayed {
    async fn put(&self, puts: Vec<Put>) -> Vec<Result<PutAnswer>> {
        self.call(|core, now, log| core.put(puts, now, log))
    }

    async fn take(&self, take: Take) -> Result<Vec<Delivery>> {
        let taken = self.call(|core, now, log| core.take(&take, now, log))?;
        if !taken.is_empty() || take.wait_ms == 0 {
            return Ok(taken);
        }
        let (sender, answer) = oneshot::channel();
        let id = {
            let mut state = self.state();
            let id = WaiterId(state.next_waiter);
            state.next_waiter += 1;
            state.waiters.insert(id, sender);
            id
        };
        self.call(|core, now, log| core.wait(id, take, now, log))?;
        let mut leaves = Leaves { store: self, id, answer };
        (&mut leaves.answer).await.unwrap()
    }

    async fn take_id(&self, queue: QueueName, id: MessageId, terms: LeaseTerms) -> Result<Delivery> {
        self.call(|core, now, log| core.take_id(&queue, id, terms, now, log))
    }

    async fn settle(&self, settles: Vec<Settle>) -> Vec<Result<Settled>> {
        self.call(|core, now, log| core.settle(settles, now, log))
    }

    async fn expire_lease(&self, queue: QueueName, leases: Vec<LeaseRef>) -> Vec<Result<Settled>> {
        self.call(|core, now, log| core.expire_lease(&queue, leases, now, log))
    }

    async fn cancel(&self, queue: QueueName, targets: Vec<Target>) -> Vec<Result<Cancelled>> {
        self.call(|core, now, log| core.cancel(&queue, targets, now, log))
    }

    async fn reschedule(&self, queue: QueueName, moves: Vec<(Target, When)>) -> Vec<Result<Rescheduled>> {
        self.call(|core, now, log| core.reschedule(&queue, moves, now, log))
    }

    async fn get(&self, queue: QueueName, targets: Vec<Target>, dead: bool) -> Vec<Result<Message>> {
        self.call(|core, now, log| core.get(&queue, targets, dead, now, log))
    }

    async fn locate(&self, numbers: Vec<Number>) -> Vec<Result<Option<(QueueName, MessageId)>>> {
        self.call(|core, now, log| core.locate(numbers, now, log))
    }

    async fn list(
        &self,
        queue: QueueName,
        state: StateKind,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<Page> {
        self.call(|core, now, log| core.list(&queue, state, after, max, now, log))
    }

    async fn stats(&self, queue: QueueName) -> Result<QueueStats> {
        self.call(|core, now, log| core.stats(&queue, now, log))
    }

    async fn forecast(&self, queues: Option<Vec<QueueName>>, edges: Vec<Timestamp>) -> Result<Forecast> {
        Forecast::check(&edges)?;
        let Some(queues) = queues else {
            let all = |core: &mut Core<Bytes>, now, log: &mut _| {
                core.forecast_page(None, usize::MAX, &edges, now, log)
            };
            return Ok(self.call(all).0);
        };
        let mut sum = Forecast::none(edges.len());
        for queue in &queues {
            sum.add(&self.call(|core, now, log| core.forecast(queue, &edges, now, log))?);
        }
        Ok(sum)
    }

    async fn queues(&self, after: Option<QueueName>, max: usize) -> Result<Vec<QueueStats>> {
        Ok(self.call(|core, now, log| core.queues(after.as_ref(), max, now, log)))
    }

    async fn configure(&self, queue: QueueName, changes: Vec<SettingChange>) -> Result<QueueStats> {
        self.call(|core, now, log| core.configure(&queue, changes, now, log))
    }

    async fn revive(&self, queue: QueueName, which: Selection, when: When) -> Result<BulkOutcome> {
        self.call(|core, now, log| {
            let progress = core.revive(&queue, which, when, now, log)?;
            core.finish(progress, now, log)
        })
    }

    async fn deaths(&self) -> Result<Vec<QueueDeaths>> {
        Ok(self.call(|core, _, _| core.deaths()))
    }

    async fn discard(&self, queue: QueueName, which: Selection) -> Result<BulkOutcome> {
        self.call(|core, now, log| {
            let progress = core.discard(&queue, which, now, log)?;
            core.finish(progress, now, log)
        })
    }

    async fn purge(&self, queue: QueueName) -> Result<u64> {
        self.call(|core, now, log| core.purge(&queue, now, log))
    }

    async fn delete_queue(&self, queue: QueueName) -> Result<u64> {
        Ok(self.call(|core, now, log| core.delete_queue(&queue, now, log)))
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }
}

pub(crate) struct ReplayedHarness {
    store: Arc<Replayed>,
    clock: ManualClock,
    incarnation: u32,
}

impl ReplayedHarness {
    pub(crate) fn open(limits: Limits) -> ReplayedHarness {
        let clock = ManualClock::new(Timestamp::from_ms(1_795_000_000_000).unwrap());
        let store = Arc::new(Replayed::open(limits, clock.clone(), 1, ListLog::default()));
        ReplayedHarness { store, clock, incarnation: 1 }
    }
}

impl Harness for ReplayedHarness {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as Arc<dyn Store>
    }

    fn now(&self) -> Timestamp {
        self.clock.now().wall
    }

    fn advance(&mut self, ms: u64) {
        self.clock.advance(ms);
        self.store.serve();
    }

    fn step_wall(&mut self, by_ms: i64) -> bool {
        self.clock.step_wall(Timestamp::from_ms(self.now().as_ms() + by_ms).unwrap());
        self.store.serve();
        true
    }

    fn durable(&self) -> bool {
        true
    }

    fn close(&mut self) {
        let mut state = self.store.state();
        let State { core, log, .. } = &mut *state;
        while core.give_back_session_leases(self.clock.now(), log) {}
        log.0.push(Fact::Time(core.seen()));
        drop(state);
        self.restart();
    }

    fn restart(&mut self) {
        let log = self.store.state().log.clone();
        self.clock = ManualClock::new(self.now());
        self.incarnation += 1;
        let limits = self.store.limits.clone();
        self.store = Arc::new(Replayed::open(limits, self.clock.clone(), self.incarnation, log));
    }
}

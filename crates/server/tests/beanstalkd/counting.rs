//! A store that counts calls, records how many others arrived or were answered before one, and blocks calls on request.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use dwell_model::*;
use dwell_store::*;
use tokio::sync::Semaphore;

/// Puts into this queue proceed one by one, each with a permit of [`Counting::gate`].
pub(crate) const GATE: &str = "gate";

/// A store that counts calls.
pub(crate) struct Counting {
    inner: Arc<dyn Store>,
    pub(crate) puts: AtomicU64,
    pub(crate) settles: AtomicU64,
    pub(crate) takes: AtomicU64,
    /// Completed takes of one message.
    pub(crate) takes_by_id: AtomicU64,
    /// Walks over all queues that have begun, and the largest page that was requested.
    pub(crate) walks: AtomicU64,
    pub(crate) page: AtomicUsize,
    /// Each of them uses a permit, once this is set.
    pub(crate) holds_walks: AtomicBool,
    /// Each completed take of one message, and each settlement, uses a permit, once these are set.
    pub(crate) holds_takes_by_id: AtomicBool,
    pub(crate) holds_settles: AtomicBool,
    pub(crate) gate: Semaphore,
    calls: AtomicU64,
    /// Answered puts and takes.
    answers: AtomicU64,
    /// The number of calls when the last take of a queue arrived.
    takes_at: Mutex<HashMap<QueueName, u64>>,
    /// The number of answers when the last take of a queue was answered.
    taken_at: Mutex<HashMap<QueueName, u64>>,
}

impl Counting {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Counting {
        let zero = || AtomicU64::new(0);
        Counting {
            inner,
            puts: zero(),
            settles: zero(),
            takes: zero(),
            takes_by_id: zero(),
            holds_takes_by_id: AtomicBool::new(false),
            holds_settles: AtomicBool::new(false),
            walks: zero(),
            page: AtomicUsize::new(0),
            holds_walks: AtomicBool::new(false),
            gate: Semaphore::new(0),
            calls: zero(),
            answers: zero(),
            takes_at: Mutex::default(),
            taken_at: Mutex::default(),
        }
    }

    /// All calls so far.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// The number of calls when the last take of `queue` arrived.
    pub(crate) fn calls_before_take(&self, queue: &str) -> u64 {
        self.takes_at.lock().unwrap()[&queue.parse().unwrap()]
    }

    /// All puts and takes that were answered so far.
    pub(crate) fn answers(&self) -> u64 {
        self.answers.load(Ordering::SeqCst)
    }

    /// The number of answers when the last take of `queue` was answered.
    pub(crate) fn answers_before_take(&self, queue: &str) -> u64 {
        self.taken_at.lock().unwrap()[&queue.parse().unwrap()]
    }

    async fn through_the_gate(&self) {
        self.gate.acquire().await.unwrap().forget();
    }

    fn call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::SeqCst)
    }
}

#[async_trait]
impl Store for Counting {
    async fn put(&self, puts: Vec<Put>) -> Vec<Result<PutAnswer>> {
        self.call();
        self.puts.fetch_add(1, Ordering::SeqCst);
        if puts.iter().any(|put| put.queue.as_str() == GATE) {
            self.through_the_gate().await;
        }
        let answers = self.inner.put(puts).await;
        self.answers.fetch_add(1, Ordering::SeqCst);
        answers
    }
    async fn take(&self, take: Take) -> Result<Vec<Delivery>> {
        let before = self.call();
        for queue in &take.queues {
            self.takes_at.lock().unwrap().insert(queue.clone(), before);
        }
        self.takes.fetch_add(1, Ordering::SeqCst);
        let queues = take.queues.clone();
        let answer = self.inner.take(take).await;
        let answered = self.answers.fetch_add(1, Ordering::SeqCst);
        self.taken_at.lock().unwrap().extend(queues.into_iter().map(|queue| (queue, answered)));
        answer
    }
    async fn take_id(&self, queue: QueueName, id: MessageId, terms: LeaseTerms) -> Result<Delivery> {
        let taken = self.inner.take_id(queue, id, terms).await;
        self.takes_by_id.fetch_add(1, Ordering::SeqCst);
        if self.holds_takes_by_id.load(Ordering::SeqCst) {
            self.through_the_gate().await;
        }
        taken
    }
    async fn settle(&self, settles: Vec<Settle>) -> Vec<Result<Settled>> {
        self.call();
        self.settles.fetch_add(1, Ordering::SeqCst);
        if self.holds_settles.load(Ordering::SeqCst) {
            self.through_the_gate().await;
        }
        self.inner.settle(settles).await
    }
    async fn get(&self, queue: QueueName, targets: Vec<Target>, dead: bool) -> Vec<Result<Message>> {
        self.call();
        self.inner.get(queue, targets, dead).await
    }
    async fn locate(&self, numbers: Vec<Number>) -> Vec<Result<Option<(QueueName, MessageId)>>> {
        self.call();
        self.inner.locate(numbers).await
    }
    async fn list(
        &self,
        queue: QueueName,
        state: StateKind,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<Page> {
        self.call();
        self.inner.list(queue, state, after, max).await
    }
    async fn peek(&self, queue: QueueName, state: StateKind) -> Result<Option<Message>> {
        self.call();
        self.inner.peek(queue, state).await
    }
    async fn stats(&self, queue: QueueName) -> Result<QueueStats> {
        self.call();
        self.inner.stats(queue).await
    }
    async fn queues(&self, after: Option<QueueName>, max: usize) -> Result<Vec<QueueStats>> {
        self.page.fetch_max(max, Ordering::SeqCst);
        if after.is_none() {
            self.walks.fetch_add(1, Ordering::SeqCst);
            if self.holds_walks.load(Ordering::SeqCst) {
                self.through_the_gate().await;
            }
        }
        self.inner.queues(after, max).await
    }

    delegate_store! {
        self.inner;
        own: put take take_id settle get locate list peek stats queues;
        forward: expire_lease cancel reschedule forecast ready configure revive deaths discard purge delete_queue;
    }
}

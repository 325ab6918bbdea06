//! Takes that wait, and takes whose callers were dropped.
//!
//! One task polls for all queues that takes of this process wait on: one statement for up to 500 queues returns for each
//! whether a message is due, and when to poll next. The task polls at that instant, when a call of this
//! process has changed the queue, and at least every 250 ms, for changes by other processes. If
//! messages are due, the waiting takes are served, those that have waited longest first. With more than 500 queues such a sweep is
//! several statements; queues that have changed, or whose instant has come, are not kept waiting for all of them.
//!
//! A take that may wait is listed from its first poll on. If it is the first one on its queues, it also tries once by itself.
//!
//! Ground rules:
//! 1. A take is served by one task at a time: its ticket is busy meanwhile.
//! 2. The task that finishes serving a ticket checks under the ticket's lock whether the
//!    caller was dropped, and if so gives the messages back. A caller that is dropped
//!    records it under the same lock; the next call waits until they are given back.
//! 3. Lock order: ticket, then waiters.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use dwell_model::{MessageId, QueueName, Receipt};
use dwell_store::{Delivery, Error, LeaseTerms, Result, Take};
use futures_util::future::join_all;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio_postgres::types::Type;

use super::Inner;
use super::message::column;
use super::put::names;
use super::refusal::{failed, unreadable};
use super::take::Cap;
use super::timer::Sleep;
use crate::link::locked;

/// The interval at which changes by other processes are noticed, in ms.
pub(super) const SWEEP_MS: u64 = 250;

/// The most queues that are polled with one statement, so that it ends long before its timeout.
const SLICE: usize = 500;

/// How many of them may be urgent: the others of a sweep get on too.
const URGENT: usize = 400;

/// The most takes that may wait in one process.
const LIMIT: usize = 1_000_000;

/// The longest time that a call waits for messages that are being given back.
const AWHILE: Duration = Duration::from_secs(1);

/// How long the last count of queues may be used, in ms.
const KNOWN_MS: u64 = 10_000;

/// How far below the limit the last count of queues has to be for it to be used.
const MARGIN: u64 = 1_000;

type TakeAnswer = Result<Vec<Delivery>>;

/// All waiting takes of this process.
#[derive(Default)]
pub(super) struct WaitingTakes {
    state: Mutex<WaitingState>,
    /// Wakes the polling task when something has changed.
    news: Arc<Notify>,
}

#[derive(Default)]
struct WaitingState {
    closed: bool,
    next_turn: u64,
    takes: BTreeMap<u64, WaitingTake>,
    queues: HashMap<QueueName, WatchedQueue>,
    /// Whether a take has been limited by the store's cap: then any lease that ends makes room for it.
    is_at_cap: bool,
    /// When all queues were last polled.
    swept_ms: u64,
    /// The number of statements that polled so far.
    polls: u64,
    /// The number of queues, and when they were counted.
    known: Option<(u64, u64)>,
}

/// A waiting take.
#[derive(Clone)]
struct WaitingTake {
    take: Arc<Take>,
    queues: Arc<[QueueName]>,
    ticket: Arc<Ticket>,
}

/// A queue that takes wait on.
#[derive(Default)]
struct WatchedQueue {
    turns: BTreeSet<u64>,
    /// Whether to poll it now.
    has_news: bool,
    /// Whether to poll it before those that are polled by the sweep alone.
    is_urgent: bool,
    /// By which statement it was polled last.
    polled: u64,
    /// The number of changes so far.
    news: u64,
    /// Whether the due messages could not be taken, and nothing has changed since.
    is_tried: bool,
    /// When to poll next, on this process's monotonic clock.
    next_ms: Option<u64>,
    /// The same instant on the server's clock: a put with an earlier due instant is a change.
    head_ms: Option<i64>,
}

/// A take under way, shared by its caller and the task that serves it.
struct Ticket(Mutex<Serving>);

struct Serving {
    /// A task is serving it, or is about to.
    busy: bool,
    /// Its caller was dropped.
    gone: bool,
    /// Its wait is over.
    over: bool,
    answer: Option<oneshot::Sender<TakeAnswer>>,
}

/// The number of takes whose messages are being given back, or may be: the next call waits for them.
#[derive(Default)]
pub(super) struct Returns {
    owed: Mutex<usize>,
    paid: Notify,
}

impl Returns {
    fn owe(&self) {
        *locked(&self.owed) += 1;
    }

    fn arrived(&self) {
        *locked(&self.owed) -= 1;
        self.paid.notify_waiters();
    }

    /// Waits until all messages are given back, for a limited time.
    pub(super) async fn wait(&self) {
        let cleared = async {
            loop {
                let paid = self.paid.notified();
                if *locked(&self.owed) == 0 {
                    return;
                }
                paid.await;
            }
        };
        let _ = tokio::time::timeout(AWHILE, cleared).await;
    }
}

impl WaitingTakes {
    /// The number of takes of this process that wait on a queue.
    pub(super) fn count(&self, queue: &QueueName) -> u64 {
        locked(&self.state).queues.get(queue).map_or(0, |watched| watched.turns.len() as u64)
    }

    /// The queues that takes of this process wait on.
    pub(super) fn names(&self) -> Vec<QueueName> {
        locked(&self.state).queues.keys().cloned().collect()
    }

    /// Notes a possible change in a queue.
    pub(super) fn hint(&self, queue: &QueueName) {
        let mut waits = locked(&self.state);
        if let Some(watched) = waits.queues.get_mut(queue) {
            watched.has_news();
            self.news.notify_one();
        }
    }

    /// Notes a put that is due at this instant.
    pub(super) fn hint_due(&self, queue: &QueueName, due: dwell_model::Timestamp) {
        let mut waits = locked(&self.state);
        if let Some(watched) = waits.queues.get_mut(queue)
            && watched.head_ms.is_none_or(|head_ms| due.as_ms() < head_ms)
        {
            watched.has_news();
            self.news.notify_one();
        }
    }

    /// Notes that a message may be ready again, or that a lease may have ended.
    pub(super) fn hint_room(&self, queue: &QueueName) {
        let mut waits = locked(&self.state);
        if waits.is_at_cap {
            waits.queues.values_mut().for_each(WatchedQueue::has_news);
            self.news.notify_one();
        } else if let Some(watched) = waits.queues.get_mut(queue) {
            watched.has_news();
            self.news.notify_one();
        }
    }

    /// Ends all waiting takes without messages, and lists no further ones.
    pub(super) fn close(&self) {
        let takes = {
            let mut waits = locked(&self.state);
            waits.closed = true;
            waits.queues.clear();
            std::mem::take(&mut waits.takes)
        };
        for waiting in takes.into_values() {
            let mut serving = locked(&waiting.ticket.0);
            // The task that serves it sees that it is over.
            serving.over = true;
            if !serving.busy
                && let Some(answer) = serving.answer.take()
            {
                let _ = answer.send(Ok(Vec::new()));
            }
        }
        self.news.notify_one();
    }

    /// Lists a take, unless `most` takes already wait on one of its
    /// queues. Also returns whether it is the first on all of them.
    fn list(&self, take: Take, ticket: &Arc<Ticket>, most: usize) -> Result<(u64, WaitingTake, bool)> {
        let mut queues = take.queues.clone();
        queues.sort();
        queues.dedup();
        let waiting = WaitingTake { take: Arc::new(take), queues: queues.into(), ticket: Arc::clone(ticket) };
        let mut waits = locked(&self.state);
        if waits.closed {
            return Err(Error::Closed);
        }
        if waits.takes.len() >= LIMIT {
            return Err(Error::TooManyWaiting { limit: LIMIT });
        }
        let waits_on = |queue| waits.queues.get(queue).map_or(0, |watched| watched.turns.len());
        if waiting.queues.iter().any(|queue| waits_on(queue) >= most) {
            return Err(Error::TooManyWaiting { limit: most });
        }
        let is_first = waiting.queues.iter().all(|queue| waits_on(queue) == 0);
        let turn = waits.next_turn;
        waits.next_turn += 1;
        for queue in waiting.queues.iter() {
            waits.queues.entry(queue.clone()).or_default().turns.insert(turn);
        }
        waits.takes.insert(turn, waiting.clone());
        Ok((turn, waiting, is_first))
    }

    fn unlist(&self, turn: u64) {
        let mut waits = locked(&self.state);
        let Some(waiting) = waits.takes.remove(&turn) else { return };
        for queue in waiting.queues.iter() {
            if let Some(watched) = waits.queues.get_mut(queue) {
                watched.turns.remove(&turn);
                if watched.turns.is_empty() {
                    waits.queues.remove(queue);
                }
            }
        }
        if waits.takes.is_empty() {
            waits.is_at_cap = false;
        }
    }

    /// The queues whose oldest waiting take is no younger than this one;
    /// `None` if a recent count shows that there is room for more queues.
    fn must_be_known(&self, turn: u64, limit: u64, now_ms: u64) -> Option<Vec<QueueName>> {
        let waits = locked(&self.state);
        let waited_on = waits.queues.len() as u64;
        if let Some((known, counted_ms)) = waits.known
            && now_ms.saturating_sub(counted_ms) < KNOWN_MS
            && known + waited_on + MARGIN < limit
        {
            return None;
        }
        let came = waits
            .queues
            .iter()
            .filter(|(_, watched)| watched.turns.first().is_some_and(|first| *first <= turn));
        Some(came.map(|(queue, _)| queue.clone()).collect())
    }

    /// The queues to poll now, at most a slice of them, or else how long to sleep.
    fn plan(&self, now_ms: u64) -> Plan {
        let mut waits = locked(&self.state);
        if waits.queues.is_empty() {
            return Plan::Sleep(None);
        }
        // A sweep that lasts longer than its interval is finished first, or it would never come to some queues.
        let is_over = || !waits.queues.values().any(|watched| watched.has_news && !watched.is_urgent);
        let is_sweep = now_ms.saturating_sub(waits.swept_ms) >= SWEEP_MS && is_over();
        if is_sweep {
            waits.swept_ms = now_ms;
        }
        let mut wake_ms = waits.swept_ms.saturating_add(SWEEP_MS);
        let (mut urgent, mut others) = (Vec::new(), Vec::new());
        for (queue, watched) in &mut waits.queues {
            if watched.next_ms.is_some_and(|next_ms| next_ms <= now_ms) {
                watched.has_news();
            } else if is_sweep && !watched.has_news {
                watched.is_swept();
            }
            match (watched.has_news, watched.is_urgent) {
                (true, true) => urgent.push((watched.polled, queue.clone())),
                (true, false) => others.push((watched.polled, queue.clone())),
                (false, _) => wake_ms = watched.next_ms.map_or(wake_ms, |next_ms| wake_ms.min(next_ms)),
            }
        }
        // Those that were polled least recently come first, or it would never come to some that always have news.
        urgent.sort_unstable();
        others.sort_unstable();
        let rest = urgent.split_off(urgent.len().min(URGENT));
        let queues = urgent.into_iter().chain(others).chain(rest).take(SLICE);
        let queues: Vec<QueueName> = queues.map(|(_, queue)| queue).collect();
        waits.polls += 1;
        let polls = waits.polls;
        for queue in &queues {
            if let Some(watched) = waits.queues.get_mut(queue) {
                (watched.has_news, watched.is_urgent, watched.polled) = (false, false, polls);
                // Until the answer arrives every put is a change: the statement may not have seen it.
                (watched.next_ms, watched.head_ms) = (None, None);
            }
        }
        if queues.is_empty() { Plan::Sleep(Some(wake_ms)) } else { Plan::Ask(queues, waits.is_at_cap) }
    }

    /// Stores when to poll a queue again. Returns its number of changes if its waiting takes are to be served now.
    fn note(
        &self,
        queue: &QueueName,
        is_due: bool,
        next_ms: Option<u64>,
        head_ms: Option<i64>,
    ) -> Option<u64> {
        let mut waits = locked(&self.state);
        let watched = waits.queues.get_mut(queue)?;
        (watched.next_ms, watched.head_ms) = (next_ms, head_ms);
        (is_due && !watched.is_tried).then_some(watched.news)
    }

    /// Picks takes to be served from queues with due messages, oldest first, and marks them busy. No two of them share a queue.
    fn pick(&self, due: &HashMap<QueueName, u64>) -> Vec<(u64, WaitingTake)> {
        // Lock the tickets only after this lock is released: the holder of a ticket's lock may need it.
        let candidates: Vec<(u64, WaitingTake)> = {
            let waits = locked(&self.state);
            let turns: BTreeSet<u64> = due
                .keys()
                .filter_map(|queue| waits.queues.get(queue))
                .flat_map(|watched| watched.turns.iter().copied())
                .collect();
            turns.into_iter().filter_map(|turn| Some((turn, waits.takes.get(&turn)?.clone()))).collect()
        };
        let mut claimed: HashSet<QueueName> = HashSet::new();
        let mut picked = Vec::new();
        for (turn, waiting) in candidates {
            if waiting.queues.iter().any(|queue| claimed.contains(queue)) {
                claimed.extend(waiting.queues.iter().cloned());
                continue;
            }
            let is_free = {
                let mut serving = locked(&waiting.ticket.0);
                let is_free = !serving.busy && !serving.gone && !serving.over;
                serving.busy |= is_free;
                is_free
            };
            if is_free {
                claimed.extend(waiting.queues.iter().cloned());
                picked.push((turn, waiting));
            }
        }
        picked
    }

    /// Marks queues whose due messages could not be taken: they are polled once more, to learn when to try again. A queue
    /// with changes since then is not marked.
    fn tried(&self, queues: &[QueueName], due: &HashMap<QueueName, u64>, is_at_cap: bool) {
        let mut waits = locked(&self.state);
        waits.is_at_cap |= is_at_cap;
        for queue in queues {
            if let (Some(watched), Some(news)) = (waits.queues.get_mut(queue), due.get(queue)) {
                watched.is_tried |= watched.news == *news;
                (watched.has_news, watched.is_urgent) = (true, true);
            }
        }
    }
}

impl WatchedQueue {
    fn has_news(&mut self) {
        self.is_swept();
        self.is_urgent = true;
    }

    /// Something may have changed, and nothing says so.
    fn is_swept(&mut self) {
        (self.has_news, self.is_tried) = (true, false);
        self.news += 1;
    }
}

enum Plan {
    /// Poll these queues; the flag says whether any lease that ends makes room.
    Ask(Vec<QueueName>, bool),
    /// Sleep until this time, or until something changes.
    Sleep(Option<u64>),
}

/// The polling task. It ends with the store.
pub(super) async fn run(inner: Weak<Inner>) {
    let Some(news) = inner.upgrade().map(|inner| Arc::clone(&inner.waiters.news)) else { return };
    loop {
        let sleep = {
            let Some(inner) = inner.upgrade() else { return };
            if locked(&inner.waiters.state).closed {
                return;
            }
            match inner.waiters.plan(inner.clock.now().mono_ms) {
                Plan::Ask(queues, is_at_cap) => {
                    inner.ask(&queues, is_at_cap).await;
                    continue;
                }
                Plan::Sleep(until) => until.map(|until| inner.timer.sleep_until(until)),
            }
        };
        match sleep {
            None => news.notified().await,
            Some(sleep) => {
                let news = std::pin::pin!(news.notified());
                futures_util::future::select(sleep, news).await;
            }
        }
    }
}

impl Inner {
    /// Polls queues, and serves the takes that wait on those with due messages.
    async fn ask(&self, queues: &[QueueName], is_at_cap: bool) {
        let Ok(mut due) = self.due_of(queues, is_at_cap).await else { return };
        while !due.is_empty() {
            let picked = self.waiters.pick(&due);
            if picked.is_empty() {
                return;
            }
            let served = picked.into_iter().map(|(turn, waiting)| async move {
                let answer = self.take_now(&waiting.take).await;
                (turn, waiting, answer)
            });
            for (turn, waiting, answer) in join_all(served.collect::<Vec<_>>()).await {
                match answer {
                    Ok(taken) if taken.deliveries.is_empty() => {
                        self.waiters.tried(&waiting.queues, &due, taken.capped == Some(Cap::Store));
                        due.retain(|queue, _| !waiting.queues.contains(queue));
                        self.go_on(turn, &waiting).await;
                    }
                    answer => {
                        // More messages may be due, and those that were taken have deadlines.
                        waiting.queues.iter().for_each(|queue| self.waiters.hint(queue));
                        self.end(Some(turn), &waiting.ticket, answer.map(|taken| taken.deliveries)).await;
                    }
                }
            }
        }
    }

    /// The queues that have due messages worth a try, each with its number of changes.
    async fn due_of(&self, queues: &[QueueName], is_at_cap: bool) -> Result<HashMap<QueueName, u64>> {
        let name_list = names(queues);
        let lost = self.link.lost();
        let floors: Vec<i64> = queues.iter().map(|queue| self.floors.of(queue, lost).0).collect();
        let arguments = [
            (&name_list as _, Type::TEXT_ARRAY),
            (&floors as _, Type::INT8_ARRAY),
            (&is_at_cap as _, Type::BOOL),
            (&self.defaults as _, Type::JSONB),
        ];
        // Read before the server reads its clock, so that a sleep computed from it does not last too long.
        let mono_ms = self.clock.now().mono_ms;
        let rows = self.noted(self.link.call("next_1($1, $2, $3, $4)", &arguments, true).await);
        let rows = rows.map_err(|failure| failed(failure, None))?;
        let mut due = HashMap::new();
        for row in &rows {
            let Some(item) = column::<Option<i32>>(row, "item")? else { continue };
            let index = usize::try_from(item).ok().and_then(|item| item.checked_sub(1));
            let queue = index.and_then(|index| queues.get(index)).ok_or_else(|| unreadable("a queue"))?;
            let now_ms: i64 = column(row, "now_ms")?;
            let instant: Option<i64> = column(row, "instant")?;
            let left_ms = |at_ms: i64| u64::try_from(at_ms - now_ms).unwrap_or(0);
            let next_ms = instant.map(|at_ms| mono_ms.saturating_add(left_ms(at_ms)));
            let is_due: bool = column(row, "is_due")?;
            // While due messages cannot be taken, a put is not a change.
            if let Some(news) = self.waiters.note(queue, is_due, next_ms, instant) {
                due.insert(queue.clone(), news);
            }
        }
        Ok(due)
    }

    /// Ends the serving of a waiting take for which there was no message.
    async fn go_on(&self, turn: u64, waiting: &WaitingTake) {
        let (is_gone, is_over) = {
            let mut serving = locked(&waiting.ticket.0);
            if !serving.gone && !serving.over {
                serving.busy = false;
            }
            (serving.gone, serving.over)
        };
        if is_gone || is_over {
            self.end(Some(turn), &waiting.ticket, Ok(Vec::new())).await;
        }
    }

    /// Answers a take; its messages are given back if its caller was dropped.
    async fn end(&self, turn: Option<u64>, ticket: &Ticket, answer: TakeAnswer) {
        if let Some(turn) = turn {
            self.waiters.unlist(turn);
        }
        let (is_gone, unread) = {
            let mut serving = locked(&ticket.0);
            serving.busy = false;
            match (serving.gone, serving.answer.take()) {
                (false, Some(sender)) => {
                    // Cannot fail: a caller that drops the receiver records it under this lock.
                    let _ = sender.send(answer);
                    return;
                }
                (is_gone, _) => (is_gone, receipts(answer)),
            }
        };
        self.give_back(&unread).await;
        if is_gone {
            self.returns.arrived();
        }
    }

    /// The first poll of a waiting take, which takes by itself only if no other take waits on its queues.
    async fn ask_once(&self, turn: u64, waiting: &WaitingTake, is_first: bool) {
        self.returns.wait().await;
        if locked(&waiting.ticket.0).gone {
            return self.end(Some(turn), &waiting.ticket, Ok(Vec::new())).await;
        }
        let mut answer = Ok(Vec::new());
        if is_first {
            answer = self.take_now(&waiting.take).await.map(|taken| {
                if taken.capped == Some(Cap::Store) {
                    locked(&self.waiters.state).is_at_cap = true;
                }
                taken.deliveries
            });
        }
        if answer.as_ref().is_ok_and(Vec::is_empty) {
            match self.check_queues_waited_on(turn).await {
                Ok(()) => {
                    self.go_on(turn, waiting).await;
                    waiting.queues.iter().for_each(|queue| self.waiters.hint(queue));
                    return;
                }
                Err(refusal) => answer = Err(refusal),
            }
        }
        waiting.queues.iter().for_each(|queue| self.waiters.hint(queue));
        self.end(Some(turn), &waiting.ticket, answer).await;
    }

    /// Refuses a take if its queues would exceed the limit of queues.
    async fn check_queues_waited_on(&self, turn: u64) -> Result<()> {
        let limit = self.limits.queues as u64;
        let now_ms = self.clock.now().mono_ms;
        let Some(queues) = self.waiters.must_be_known(turn, limit, now_ms) else { return Ok(()) };
        let (name_list, most) = (names(&queues), i64::try_from(limit).unwrap_or(i64::MAX - 1));
        let arguments = [
            (&name_list as _, Type::TEXT_ARRAY),
            (&most as _, Type::INT8),
            (&self.defaults as _, Type::JSONB),
        ];
        let rows = self.rows("known_1($1, $2, $3)", &arguments, true).await;
        let rows = rows.map_err(|failure| failed(failure, None))?;
        let row = rows.first().ok_or_else(|| unreadable("no count"))?;
        let known: Vec<bool> = column(row, "known")?;
        let there = u64::try_from(column::<i64>(row, "queues")?).unwrap_or(0);
        locked(&self.waiters.state).known = Some((there, now_ms));
        let unknown = known.iter().filter(|known| !**known).count() as u64;
        match unknown > 0 && there + unknown > limit {
            true => Err(Error::TooManyQueues { limit: self.limits.queues }),
            false => Ok(()),
        }
    }
}

/// See [`Store::take`](dwell_store::Store::take).
pub(super) async fn take(inner: &Arc<Inner>, runtime: &Handle, take: Take) -> TakeAnswer {
    inner.check_take(&take)?;
    let waits = take.wait_ms > 0 && take.max > 0 && !take.queues.is_empty();
    let (ticket, answer) = Ticket::new();
    let shared = Arc::clone(inner);
    if !waits {
        let asked = async move {
            let taken = shared.take_now(&take).await?;
            match taken.capped {
                Some(cap) => Err(shared.too_many_leased(cap)),
                None => Ok(taken.deliveries),
            }
        };
        return serve(inner, runtime, ticket, answer, asked).await;
    }
    let end_ms = inner.clock.now().mono_ms.saturating_add(take.wait_ms);
    let (turn, waiting, is_first) = inner.waiters.list(take, &ticket, inner.limits.waiting_per_queue)?;
    let end = Some((turn, inner.timer.sleep_until(end_ms)));
    let taking = TakeFuture {
        inner: Arc::clone(inner),
        runtime: runtime.clone(),
        ticket,
        answer,
        end,
        turn: Some(turn),
        is_read: false,
    };
    runtime.spawn(async move { shared.ask_once(turn, &waiting, is_first).await });
    taking.await
}

/// See [`Store::take_id`](dwell_store::Store::take_id).
pub(super) async fn take_id(
    inner: &Arc<Inner>,
    runtime: &Handle,
    queue: QueueName,
    id: MessageId,
    terms: LeaseTerms,
) -> Result<Delivery> {
    let (ticket, answer) = Ticket::new();
    let shared = Arc::clone(inner);
    let asked = async move { Ok(vec![shared.take_id(&queue, id, &terms).await?]) };
    serve(inner, runtime, ticket, answer, asked).await?.pop().ok_or(Error::Closed)
}

/// Runs a take that does not wait to completion. Its messages are the answer, or are given back.
async fn serve(
    inner: &Arc<Inner>,
    runtime: &Handle,
    ticket: Arc<Ticket>,
    answer: oneshot::Receiver<TakeAnswer>,
    asked: impl Future<Output = TakeAnswer> + Send + 'static,
) -> TakeAnswer {
    let (shared, served) = (Arc::clone(inner), Arc::clone(&ticket));
    runtime.spawn(async move {
        shared.returns.wait().await;
        let is_gone = locked(&served.0).gone;
        let answer = if is_gone { Ok(Vec::new()) } else { asked.await };
        shared.end(None, &served, answer).await;
    });
    let inner = Arc::clone(inner);
    TakeFuture { inner, runtime: runtime.clone(), ticket, answer, end: None, turn: None, is_read: false }
        .await
}

impl Ticket {
    /// A take that is about to be served, and the receiver of its answer.
    fn new() -> (Arc<Ticket>, oneshot::Receiver<TakeAnswer>) {
        let (sender, answer) = oneshot::channel();
        let serving = Serving { busy: true, gone: false, over: false, answer: Some(sender) };
        (Arc::new(Ticket(Mutex::new(serving))), answer)
    }
}

/// The caller's end of a take: a future that gives the messages back if it is dropped before they are read.
struct TakeFuture {
    inner: Arc<Inner>,
    runtime: Handle,
    ticket: Arc<Ticket>,
    answer: oneshot::Receiver<TakeAnswer>,
    /// When the wait is over, and the take's turn; `None` if it does not wait.
    end: Option<(u64, Sleep)>,
    turn: Option<u64>,
    is_read: bool,
}

impl TakeFuture {
    /// Ends the wait without messages, unless the take is being served: the serving task sees that it is over.
    fn end_now(&self, turn: u64) {
        let answer = {
            let mut serving = locked(&self.ticket.0);
            serving.over = true;
            if serving.busy { None } else { serving.answer.take() }
        };
        if let Some(answer) = answer {
            self.inner.waiters.unlist(turn);
            let _ = answer.send(Ok(Vec::new()));
        }
    }
}

impl Future for TakeFuture {
    type Output = TakeAnswer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<TakeAnswer> {
        if let Some((turn, end)) = &mut self.end
            && Pin::new(end).poll(context).is_ready()
        {
            let turn = *turn;
            self.end = None;
            self.end_now(turn);
        }
        let answer = std::task::ready!(Pin::new(&mut self.answer).poll(context));
        self.is_read = true;
        // No answer arrives only if the runtime has ended.
        Poll::Ready(answer.unwrap_or(Err(Error::Closed)))
    }
}

impl Drop for TakeFuture {
    /// 1. Not being served: it is removed. 2. Being served: its messages are given back, and the next call waits for
    ///    that. 3. Answered but not read: the answer is still in the channel, and its messages are given back.
    fn drop(&mut self) {
        if self.is_read {
            return;
        }
        {
            let mut serving = locked(&self.ticket.0);
            serving.gone = true;
            if serving.busy {
                self.inner.returns.owe();
            }
        }
        if let Some(turn) = self.turn.take() {
            self.inner.waiters.unlist(turn);
        }
        self.answer.close();
        let unread = self.answer.try_recv().map(receipts).unwrap_or_default();
        if !unread.is_empty() {
            self.inner.returns.owe();
            let inner = Arc::clone(&self.inner);
            self.runtime.spawn(async move {
                inner.give_back(&unread).await;
                inner.returns.arrived();
            });
        }
    }
}

fn receipts(answer: TakeAnswer) -> Vec<Receipt> {
    answer.into_iter().flatten().map(|delivery| delivery.receipt).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(index: usize) -> QueueName {
        format!("q{index}").parse().unwrap()
    }

    fn polled(waits: &WaitingTakes, now_ms: u64) -> Vec<QueueName> {
        match waits.plan(now_ms) {
            Plan::Ask(queues, _) => queues,
            Plan::Sleep(_) => Vec::new(),
        }
    }

    #[test]
    fn a_long_sweep_comes_to_every_queue_and_keeps_no_news_waiting() {
        let waits = WaitingTakes::default();
        let queues: Vec<QueueName> = (0..1_200).map(queue).collect();
        for queue in &queues {
            waits.list(Take::from(queue.clone()), &Ticket::new().0, usize::MAX).unwrap();
        }
        let mut now_ms = 10_000;
        for _ in 0..2 {
            let first: HashSet<QueueName> = polled(&waits, now_ms).into_iter().collect();
            assert_eq!(first.len(), SLICE);
            let changed = queues.iter().find(|queue| !first.contains(*queue)).unwrap();
            waits.hint(changed);
            // Each statement lasts longer than the interval of sweeps.
            now_ms += SWEEP_MS + 1;
            let second = polled(&waits, now_ms);
            assert_eq!(&second[0], changed, "news comes first");
            waits.hint(&second[1]);
            now_ms += SWEEP_MS + 1;
            let third = polled(&waits, now_ms);
            assert_eq!(third[0], second[1], "a queue that was polled may have news again");
            let all: HashSet<QueueName> = first.into_iter().chain(second).chain(third).collect();
            assert_eq!(all.len(), queues.len());
            now_ms += SWEEP_MS + 1;
        }
    }

    #[test]
    fn urgent_queues_leave_room_for_the_sweep() {
        let waits = WaitingTakes::default();
        let queues: Vec<QueueName> = (0..1_000).map(queue).collect();
        for queue in &queues {
            waits.list(Take::from(queue.clone()), &Ticket::new().0, usize::MAX).unwrap();
        }
        let mut seen: HashSet<QueueName> = polled(&waits, 10_000).into_iter().collect();
        for round in 1..=6 {
            queues[..600].iter().for_each(|queue| waits.hint(queue));
            let slice = polled(&waits, 10_000 + round);
            assert_eq!(slice.len(), SLICE);
            seen.extend(slice);
        }
        assert_eq!(seen.len(), queues.len());
    }
}

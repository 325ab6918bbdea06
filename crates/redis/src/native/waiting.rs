//! Takes that wait, and takes whose callers have gone.
//!
//! For each queue that takes of this process wait on, one task asks Redis, whatever their number: with the take that
//! has waited longest. It asks when a message may have become due, when a hint comes, and in any case every so often.
//!
//! Ground rules:
//! 1. A take is served by one task at a time: its ticket is busy then.
//! 2. Whoever ends the serving of a ticket looks whether its caller has gone, under the ticket's lock, and gives
//!    back what was brought. A caller that goes says so under the same lock.
//! 3. Locks are taken in this order: ticket, waiters, returns.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use dwell_model::{MessageId, QueueName, Receipt};
use dwell_store::{Delivery, Error, Result, Take};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use super::Inner;
use super::layout::Partition;
use super::wire::locked;

/// How many takes may wait in one process.
const LIMIT: usize = 1_000_000;

/// A lost hint costs at most so long.
const SWEEP_MS: u64 = 10_000;

type Answer = Result<Vec<Delivery>>;

/// All takes of this process that wait.
#[derive(Default)]
pub(super) struct Waiters(Mutex<Waits>);

#[derive(Default)]
struct Waits {
    closed: bool,
    next_turn: u64,
    takes: BTreeMap<u64, Waiting>,
    queues: HashMap<QueueName, Watched>,
}

/// A take that waits.
#[derive(Clone)]
struct Waiting {
    take: Arc<Take>,
    queues: Arc<[QueueName]>,
    ticket: Arc<Ticket>,
}

/// A queue that is waited on: a task asks for it as long as it is here.
struct Watched {
    turns: BTreeSet<u64>,
    notify: Arc<Notify>,
}

/// A take under way, shared by its caller and by whoever serves it.
struct Ticket {
    state: Mutex<Serving>,
    freed: Notify,
}

struct Serving {
    /// Somebody serves it now.
    busy: bool,
    /// Its caller has gone.
    gone: bool,
    /// Its time is over.
    over: bool,
    turn: Option<u64>,
    answer: Option<oneshot::Sender<Answer>>,
}

impl Waiters {
    /// How many takes of this process wait on a queue.
    pub(super) fn count(&self, queue: &QueueName) -> u64 {
        locked(&self.0).queues.get(queue).map_or(0, |watched| watched.turns.len() as u64)
    }

    /// The queues that takes of this process wait on.
    pub(super) fn names(&self) -> BTreeSet<QueueName> {
        let waits = locked(&self.0);
        let waited_on = waits.queues.iter().filter(|(_, watched)| !watched.turns.is_empty());
        waited_on.map(|(name, _)| name.clone()).collect()
    }

    /// Answers all with nothing.
    pub(super) fn close(&self) {
        let takes = {
            let mut waits = locked(&self.0);
            waits.closed = true;
            waits.queues.values().for_each(|watched| watched.notify.notify_one());
            waits.queues.clear();
            std::mem::take(&mut waits.takes)
        };
        for waiting in takes.into_values() {
            if let Some(answer) = locked(&waiting.ticket.state).answer.take() {
                let _ = answer.send(Ok(Vec::new()));
            }
        }
    }

    fn unlist(&self, turn: u64) {
        let mut waits = locked(&self.0);
        let Some(waiting) = waits.takes.remove(&turn) else { return };
        for queue in waiting.queues.iter() {
            if let Some(watched) = waits.queues.get_mut(queue) {
                watched.turns.remove(&turn);
                if watched.turns.is_empty() {
                    // Its task sees that there is nobody left.
                    watched.notify.notify_one();
                }
            }
        }
    }
}

/// See [`Store::take`](dwell_store::Store::take).
pub(super) async fn take(inner: &Arc<Inner>, runtime: &Handle, take: Take) -> Answer {
    let began_ms = inner.clock.now().mono_ms;
    let (handle, shared) = (runtime.clone(), Arc::clone(inner));
    serve(inner, runtime, async move |ticket| {
        let taken = shared.take(&take, false).await?;
        let waits = take.wait_ms > 0 && take.max > 0 && !take.queues.is_empty();
        if !taken.deliveries.is_empty() || !waits {
            return Ok(Some(taken.deliveries));
        }
        let end_ms = began_ms.saturating_add(take.wait_ms);
        begin_waiting(&shared, &handle, take, ticket, end_ms)?;
        Ok(None)
    })
    .await
}

/// See [`Store::take_id`](dwell_store::Store::take_id).
pub(super) async fn take_id(
    inner: &Arc<Inner>,
    runtime: &Handle,
    queue: QueueName,
    id: MessageId,
    lease_ms: Option<u64>,
    bound: bool,
) -> Result<Delivery> {
    let shared = Arc::clone(inner);
    let taken = serve(inner, runtime, async move |_| {
        let delivery = shared.take_id(&queue, id, lease_ms, bound).await?;
        Ok(Some(vec![delivery]))
    });
    taken.await?.pop().ok_or(Error::Closed)
}

/// Runs `first` to its end. What it brings is the answer, or goes back; without any, the take waits.
async fn serve<F>(
    inner: &Arc<Inner>,
    runtime: &Handle,
    first: impl FnOnce(Arc<Ticket>) -> F + Send + 'static,
) -> Answer
where
    F: Future<Output = Result<Option<Vec<Delivery>>>> + Send,
{
    let (sender, answer) = oneshot::channel();
    let state = Serving { busy: false, gone: false, over: false, turn: None, answer: Some(sender) };
    let ticket = Arc::new(Ticket { state: Mutex::new(state), freed: Notify::new() });
    let (shared, handle, served) = (Arc::clone(inner), runtime.clone(), Arc::clone(&ticket));
    runtime.spawn(async move {
        shared.pay_returns().await;
        {
            let mut state = locked(&served.state);
            if state.gone {
                return;
            }
            state.busy = true;
        }
        match first(Arc::clone(&served)).await {
            Ok(None) => {}
            Ok(Some(deliveries)) => finish(&shared, &handle, &served, Ok(deliveries)),
            Err(error) => finish(&shared, &handle, &served, Err(error)),
        }
    });
    Taking { inner: Arc::clone(inner), runtime: runtime.clone(), ticket, answer, read: false }.await
}

/// Ends the serving of a ticket with an answer, which goes to its caller, or back.
fn finish(inner: &Arc<Inner>, runtime: &Handle, ticket: &Ticket, answer: Answer) {
    let mut state = locked(&ticket.state);
    let was_busy = std::mem::replace(&mut state.busy, false);
    state.turn = None;
    if state.gone {
        inner.returns.add(receipts(answer));
        if was_busy {
            inner.returns.arrived();
        }
        pay(inner, runtime);
    } else if let Some(sender) = state.answer.take()
        && let Err(answer) = sender.send(answer)
    {
        inner.returns.add(receipts(answer));
        pay(inner, runtime);
    }
    drop(state);
    ticket.freed.notify_waiters();
}

fn pay(inner: &Arc<Inner>, runtime: &Handle) {
    let inner = Arc::clone(inner);
    runtime.spawn(async move { inner.pay_returns().await });
}

fn receipts(answer: Answer) -> impl Iterator<Item = Receipt> {
    answer.into_iter().flatten().map(|delivery| delivery.receipt)
}

/// Lets a take wait for which there was nothing.
fn begin_waiting(
    inner: &Arc<Inner>,
    runtime: &Handle,
    take: Take,
    ticket: Arc<Ticket>,
    end_ms: u64,
) -> Result<()> {
    let mut queues = take.queues.clone();
    queues.sort();
    queues.dedup();
    let waiting = Waiting { take: Arc::new(take), queues: queues.into(), ticket: Arc::clone(&ticket) };
    let mut state = locked(&ticket.state);
    state.busy = false;
    if state.gone {
        inner.returns.arrived();
        return Ok(());
    }
    let mut started = Vec::new();
    let turn = {
        let mut waits = locked(&inner.waiters.0);
        if waits.closed {
            state.busy = true;
            return Err(Error::Closed);
        }
        if waits.takes.len() >= LIMIT {
            state.busy = true;
            return Err(Error::TooManyWaiting { limit: LIMIT });
        }
        let turn = waits.next_turn;
        waits.next_turn += 1;
        for queue in waiting.queues.iter() {
            let watched = waits.queues.entry(queue.clone()).or_insert_with(|| {
                started.push(queue.clone());
                Watched { turns: BTreeSet::new(), notify: Arc::default() }
            });
            watched.turns.insert(turn);
            // What became due before it was listed is asked for once more.
            watched.notify.notify_one();
        }
        waits.takes.insert(turn, waiting);
        turn
    };
    state.turn = Some(turn);
    drop(state);
    for queue in started {
        runtime.spawn(ask_for(Arc::clone(inner), runtime.clone(), queue));
    }
    let (inner, handle) = (Arc::clone(inner), runtime.clone());
    runtime.spawn(async move {
        inner.timer.sleep_until(end_ms).await;
        let mut state = locked(&ticket.state);
        state.over = true;
        if state.busy || state.gone || state.turn != Some(turn) {
            return;
        }
        drop(state);
        inner.waiters.unlist(turn);
        finish(&inner, &handle, &ticket, Ok(Vec::new()));
    });
    Ok(())
}

/// Asks for a queue as long as takes wait on it.
async fn ask_for(inner: Arc<Inner>, runtime: Handle, queue: QueueName) {
    let Some(notify) = locked(&inner.waiters.0).queues.get(&queue).map(|watched| Arc::clone(&watched.notify))
    else {
        return;
    };
    let mut channels: BTreeSet<String> = BTreeSet::new();
    loop {
        let first = {
            let mut waits = locked(&inner.waiters.0);
            let turn = waits.queues.get(&queue).and_then(|watched| watched.turns.first().copied());
            match turn {
                Some(turn) => waits.takes.get(&turn).cloned().map(|waiting| (turn, waiting)),
                None => {
                    waits.queues.remove(&queue);
                    None
                }
            }
        };
        let Some((turn, waiting)) = first else { break };
        let freed = waiting.ticket.freed.notified();
        tokio::pin!(freed);
        freed.as_mut().enable();
        let is_free = {
            let mut state = locked(&waiting.ticket.state);
            let is_free = !state.busy && !state.gone && state.turn == Some(turn);
            state.busy |= is_free;
            (is_free, state.busy)
        };
        match is_free {
            (true, _) => {}
            (false, true) => {
                freed.await;
                continue;
            }
            (false, false) => {
                // Whoever ended it is about to take it off the list.
                tokio::task::yield_now().await;
                continue;
            }
        }
        let prefix = inner.wire.link.address().prefix();
        for at in Partition::all(&queue, inner.spread(&queue)) {
            let channel = format!("{}w", at.keys(prefix));
            if !channels.contains(&channel) {
                inner.hints.listen(channel.clone(), Arc::clone(&notify)).await;
                channels.insert(channel);
            }
        }
        let asked_ms = inner.clock.now().mono_ms;
        let taken = match inner.take(&waiting.take, true).await {
            Ok(taken) if taken.deliveries.is_empty() => taken,
            answer => {
                inner.waiters.unlist(turn);
                finish(&inner, &runtime, &waiting.ticket, answer.map(|taken| taken.deliveries));
                continue;
            }
        };
        let (gone, over) = {
            let mut state = locked(&waiting.ticket.state);
            let ended = state.gone || state.over;
            state.busy = ended;
            (state.gone, ended)
        };
        if over {
            inner.waiters.unlist(turn);
            finish(&inner, &runtime, &waiting.ticket, Ok(Vec::new()));
            continue;
        }
        debug_assert!(!gone);
        waiting.ticket.freed.notify_waiters();
        let in_ms = taken.next.map_or(SWEEP_MS, |(next, now)| next.ms_since(now).clamp(1, SWEEP_MS));
        tokio::select! {
            () = notify.notified() => {}
            () = inner.timer.sleep_until(asked_ms.saturating_add(in_ms)) => {}
        }
    }
    channels.into_iter().for_each(|channel| inner.hints.leave(channel));
}

/// A take seen from its caller: a future that, dropped unread, gives its messages back.
struct Taking {
    inner: Arc<Inner>,
    runtime: Handle,
    ticket: Arc<Ticket>,
    answer: oneshot::Receiver<Answer>,
    read: bool,
}

impl Future for Taking {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        Pin::new(&mut self.answer).poll(context).map(|answer| {
            self.read = true;
            answer.unwrap_or(Err(Error::Closed))
        })
    }
}

impl Drop for Taking {
    /// 1. Nobody serves it: it is forgotten. 2. Somebody does: what that brings goes back, and the next call waits for
    ///    it. 3. The answer was sent and not read: it is still here, and its messages go back.
    fn drop(&mut self) {
        if self.read {
            return;
        }
        {
            let mut state = locked(&self.ticket.state);
            state.gone = true;
            if state.busy {
                self.inner.returns.owe();
            } else if let Some(turn) = state.turn.take() {
                self.inner.waiters.unlist(turn);
            }
        }
        self.answer.close();
        if let Ok(answer) = self.answer.try_recv() {
            self.inner.returns.add(receipts(answer));
            pay(&self.inner, &self.runtime);
        }
    }
}

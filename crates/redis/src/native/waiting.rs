//! Takes that wait, and takes whose callers have gone.
//!
//! For each queue that takes of this process wait on, one asker asks Redis, whatever their number: with the take that
//! has waited longest. It asks when a message may have become due, when a hint arrives, and in any case at each
//! sweep.
//!
//! A take over several queues is waited for by the asker of each, and each asks for its own queue alone: only when
//! one has something are all of them asked, so that the first messages overall are handed out. So a take over n
//! queues costs n scripts a sweep while nothing happens. Askers are futures of a few tasks, whatever the number of
//! queues: `askers`.
//!
//! A take that may wait is listed from its first poll on, and asks once by itself; so takes that find something at
//! once are served concurrently. It holds back until one that came before it has found something: where there was
//! nothing for that one, it waits behind it.
//!
//! Ground rules:
//! 1. A take is served by one task at a time: its ticket is busy then.
//! 2. The task that ends the serving of a ticket checks whether its caller has gone, under the ticket's lock, and
//!    gives back what was brought. A caller that goes marks the ticket under the same lock.
//! 3. Locks are taken in this order: ticket, waiters, look, returns.
//! 4. Every take is answered, also where the runtime has ended or a task has panicked: `abandoned` has the guards
//!    that ensure it. They take locks when they are dropped, and a task that is spawned may be dropped at once: none
//!    is spawned under a lock.

mod abandoned;
mod askers;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use dwell_model::{MessageId, QueueName, Receipt, Timestamp};
use dwell_store::{Delivery, Error, LeaseTerms, Result, Take};
use futures_util::future::join_all;
use tokio::runtime::Handle;
use tokio::sync::futures::OwnedNotified;
use tokio::sync::{Notify, oneshot};

use super::Inner;
use super::give_backs::GiveBacks;
use super::inspect::{Retries, ScriptLimit};
use super::layout::Partition;
use super::pack::Fields;
use super::partition::{NoAnswer, share};
use super::script_call::locked;
use super::scripts::Script;
use super::timer::Sleep;
use abandoned::{ServeGuard, give_up};
use askers::QueuePollers;

pub(super) use abandoned::{AskGuard, runtime_gone};

/// The maximum number of waiting takes per process.
const LIMIT: usize = 1_000_000;

/// The interval at which each queue is asked in any case, in ms: a lost hint delays a message by at most this.
const SWEEP_MS: u64 = 10_000;

/// How long the first question to a queue waits for the subscription to its hints. It is then asked without, and once
/// more when they arrive.
const HINTS: Duration = Duration::from_secs(1);

/// How long an asker pauses after other takes got what it had found.
const OTHERS: Duration = Duration::from_millis(5);

/// How long a take waits behind an earlier one that is being served: a node that does not answer that one delays the
/// others no longer.
const BEHIND: Duration = Duration::from_secs(2);

type TakeAnswer = Result<Vec<Delivery>>;

/// All waiting takes of this process.
#[derive(Default)]
pub(super) struct WaitingTakes(Mutex<WaitingState>);

#[derive(Default)]
struct WaitingState {
    closed: bool,
    next_turn: u64,
    takes: BTreeMap<u64, WaitingTake>,
    queues: HashMap<QueueName, WatchedQueue>,
    askers: QueuePollers,
}

/// A take that waits.
#[derive(Clone)]
struct WaitingTake {
    take: Arc<Take>,
    queues: Arc<[QueueName]>,
    ticket: Arc<Ticket>,
}

/// A queue that is waited on: it is asked for as long as it is here.
struct WatchedQueue {
    turns: BTreeSet<u64>,
    notify: Arc<Notify>,
    look: Arc<Mutex<Probe>>,
    /// Whether an asker asks for it.
    asked: bool,
    /// A take has found something when it asked by itself, and none has found nothing since.
    flows: bool,
    /// Notifies takes that hold back: a take has left this queue, or one of the two fields above has changed.
    moved: Arc<Notify>,
}

/// Whether a take that has just arrived asks by itself.
enum AskRole {
    Asks,
    /// Others wait before it.
    InLine,
    /// One before it asks for the first time.
    Behind(OwnedNotified),
}

/// The state of an asker that checks whether there is something, without any take.
#[derive(Default)]
struct Probe {
    under_way: bool,
    /// The last take that waited here has gone meanwhile: the look may still leave a note in Redis, which must be
    /// removed afterwards.
    is_owed: bool,
}

/// A take under way, shared by its caller and by the task that serves it.
struct Ticket {
    state: Mutex<Serving>,
    freed: Notify,
}

struct Serving {
    /// A task serves it now, or is about to.
    busy: bool,
    /// Since when, on the clock for timeouts.
    busy_since_ms: u64,
    /// The serving has begun: its outcome is not known yet.
    begun: bool,
    /// Its caller has gone.
    gone: bool,
    /// Its time is over.
    over: bool,
    /// The task that served it has panicked.
    has_panicked: bool,
    turn: Option<u64>,
    answer: Option<oneshot::Sender<TakeAnswer>>,
}

impl WaitingTakes {
    /// The number of takes of this process that wait on a queue.
    pub(super) fn count(&self, queue: &QueueName) -> u64 {
        locked(&self.0).queues.get(queue).map_or(0, |watched| watched.turns.len() as u64)
    }

    /// The turn of the take that has waited longest on a queue.
    pub(super) fn first_turn(&self, queue: &QueueName) -> Option<u64> {
        locked(&self.0).queues.get(queue)?.turns.first().copied()
    }

    /// The queues that takes of this process wait on and for which `is_asked_for` holds.
    pub(super) fn names(&self, is_asked_for: impl Fn(&QueueName) -> bool) -> BTreeSet<QueueName> {
        let waits = locked(&self.0);
        let waited_on =
            waits.queues.iter().filter(|(name, watched)| !watched.turns.is_empty() && is_asked_for(name));
        waited_on.map(|(name, _)| name.clone()).collect()
    }

    /// An upper bound of the number of queues that takes of this process wait on: some may just have been left.
    pub(super) fn names_at_most(&self) -> usize {
        locked(&self.0).queues.len()
    }

    /// There may be something for takes that wait on a queue.
    pub(super) fn hint(&self, queue: &QueueName) {
        if let Some(watched) = locked(&self.0).queues.get(queue) {
            watched.notify.notify_one();
        }
    }

    /// Answers all takes with nothing. Messages that are just being handed to one of them are given back.
    pub(super) fn close(&self, returns: &GiveBacks) {
        let takes = {
            let mut waits = locked(&self.0);
            waits.closed = true;
            waits.queues.values().for_each(|watched| watched.notify.notify_one());
            waits.queues.clear();
            std::mem::take(&mut waits.takes)
        };
        for waiting in takes.into_values() {
            let mut state = locked(&waiting.ticket.state);
            if let Some(answer) = state.answer.take() {
                let _ = answer.send(Ok(Vec::new()));
            }
            state.go(returns);
            drop(state);
            waiting.ticket.freed.notify_waiters();
        }
    }

    /// Removes a take from the list, and leaves the queues on which no take waits any more.
    fn unlist(&self, turn: u64, returns: &GiveBacks) {
        let mut waits = locked(&self.0);
        let mut left = Vec::new();
        let Some(waiting) = waits.takes.remove(&turn) else { return };
        for queue in waiting.queues.iter() {
            if let Some(watched) = waits.queues.get_mut(queue) {
                watched.turns.remove(&turn);
                watched.moved.notify_waiters();
                if watched.turns.is_empty() {
                    // Its asker sees that no take is left.
                    watched.notify.notify_one();
                    let mut look = locked(&watched.look);
                    if look.under_way {
                        if !std::mem::replace(&mut look.is_owed, true) {
                            returns.owe();
                        }
                    } else if watched.asked {
                        left.push(queue.clone());
                    } else {
                        drop(look);
                        waits.queues.remove(queue);
                    }
                }
            }
        }
        returns.leave(left);
    }
}

/// See [`Store::take`](dwell_store::Store::take).
pub(super) async fn take(inner: &Arc<Inner>, runtime: &Handle, take: Take) -> TakeAnswer {
    let waits = take.wait_ms > 0 && take.max > 0 && !take.queues.is_empty();
    if !waits {
        let shared = Arc::clone(inner);
        return serve(inner, runtime, async move { Ok(shared.take(&take, false).await?.deliveries) }).await;
    }
    inner.check_take(&take)?;
    let (ticket, answer) = Ticket::new(inner.wire.mono_ms());
    let end_ms = inner.clock.now().mono_ms.saturating_add(take.wait_ms);
    let (turn, waiting) = inner.waiters.list(take, &ticket, inner.limits.waiting_per_queue)?;
    let mut taking = TakeFuture::new(inner, runtime, ticket, answer);
    taking.end = Some((turn, inner.timer.sleep_until(end_ms)));
    let guard = ServeGuard::new(inner, runtime, &waiting.ticket);
    runtime.spawn(ask_once(Arc::clone(inner), runtime.clone(), turn, waiting, guard));
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
    let shared = Arc::clone(inner);
    let taken = serve(inner, runtime, async move { Ok(vec![shared.take_id(&queue, id, terms).await?]) });
    taken.await?.pop().ok_or(Error::Closed)
}

/// Runs a take that does not wait to its end. Its messages are the answer, or are given back.
async fn serve(
    inner: &Arc<Inner>,
    runtime: &Handle,
    take: impl Future<Output = TakeAnswer> + Send + 'static,
) -> TakeAnswer {
    let (ticket, answer) = Ticket::new(inner.wire.mono_ms());
    let (shared, handle, served) = (Arc::clone(inner), runtime.clone(), Arc::clone(&ticket));
    let guard = ServeGuard::new(inner, runtime, &ticket);
    runtime.spawn(async move {
        shared.await_returns().await;
        if served.begin() {
            let answer = take.await;
            finish(&shared, &handle, &served, answer);
        }
        guard.end();
    });
    TakeFuture::new(inner, runtime, ticket, answer).await
}

/// Asks for a waiting take for the first time. Where others wait already, it does not go before them.
async fn ask_once(inner: Arc<Inner>, runtime: Handle, turn: u64, waiting: WaitingTake, guard: ServeGuard) {
    inner.await_returns().await;
    let asks = inner.waiters.may_ask(turn, &waiting).await;
    if !waiting.ticket.begin() {
        return guard.end();
    }
    let answer = match asks {
        true => inner.take(&waiting.take, false).await.map(|taken| taken.deliveries),
        false => Ok(Vec::new()),
    };
    if let Ok(deliveries) = &answer {
        inner.waiters.note_found(deliveries);
    }
    let answer = match answer {
        Ok(none) if none.is_empty() => {
            inner.check_queues_waited_on(turn, &waiting.queues).await.map(|()| none)
        }
        answer => answer,
    };
    let goes_on = leave_waiting(&inner, &runtime, turn, &waiting, answer);
    guard.end();
    if goes_on && !inner.waiters.begin_asking(&inner, &runtime, &waiting) {
        give_up(&inner, &runtime, &waiting.ticket, Error::Closed);
    }
}

/// Ends the serving of a waiting take; true if it continues to wait.
fn leave_waiting(
    inner: &Arc<Inner>,
    runtime: &Handle,
    turn: u64,
    waiting: &WaitingTake,
    answer: TakeAnswer,
) -> bool {
    if answer.as_ref().is_ok_and(Vec::is_empty) {
        let mut state = locked(&waiting.ticket.state);
        if !state.gone && !state.over {
            (state.busy, state.begun) = (false, false);
            drop(state);
            waiting.ticket.freed.notify_waiters();
            return true;
        }
    }
    inner.waiters.unlist(turn, &inner.returns);
    finish(inner, runtime, &waiting.ticket, answer);
    pay(inner, runtime);
    false
}

impl Serving {
    /// Its caller goes: what it is being served with is given back, and the next call waits for that.
    fn go(&mut self, returns: &GiveBacks) {
        if !std::mem::replace(&mut self.gone, true) && self.begun {
            returns.owe();
        }
    }
}

impl Ticket {
    /// A take that is about to be served, and the receiver of its answer.
    fn new(now_ms: u64) -> (Arc<Ticket>, oneshot::Receiver<TakeAnswer>) {
        let (sender, answer) = oneshot::channel();
        let state = Serving {
            busy: true,
            busy_since_ms: now_ms,
            begun: false,
            gone: false,
            over: false,
            has_panicked: false,
            turn: None,
            answer: Some(sender),
        };
        (Arc::new(Ticket { state: Mutex::new(state), freed: Notify::new() }), answer)
    }

    /// Begins to serve it; false if its caller has gone.
    fn begin(&self) -> bool {
        let mut state = locked(&self.state);
        state.begun = !state.gone;
        state.begun
    }

    /// Whether its serving has taken so long that others do not wait behind it.
    fn is_held_up(&self, now_ms: u64) -> bool {
        let state = locked(&self.state);
        state.busy && now_ms.saturating_sub(state.busy_since_ms) >= BEHIND.as_millis() as u64
    }

    /// Whether its caller has gone, or its time is over.
    fn is_over(&self) -> bool {
        let state = locked(&self.state);
        state.gone || state.over
    }
}

impl WaitingTakes {
    /// Lists a take, if no more than `most` wait on each of its queues then.
    fn list(&self, take: Take, ticket: &Arc<Ticket>, most: usize) -> Result<(u64, WaitingTake)> {
        let mut queues = take.queues.clone();
        queues.sort();
        queues.dedup();
        let waiting = WaitingTake { take: Arc::new(take), queues: queues.into(), ticket: Arc::clone(ticket) };
        let mut state = locked(&ticket.state);
        let mut waits = locked(&self.0);
        if waits.closed {
            return Err(Error::Closed);
        }
        if waits.takes.len() >= LIMIT {
            return Err(Error::TooManyWaiting { limit: LIMIT });
        }
        let is_full = |queue| waits.queues.get(queue).is_some_and(|watched| watched.turns.len() >= most);
        if waiting.queues.iter().any(is_full) {
            return Err(Error::TooManyWaiting { limit: most });
        }
        let turn = waits.next_turn;
        waits.next_turn += 1;
        for queue in waiting.queues.iter() {
            let new = || WatchedQueue {
                turns: BTreeSet::new(),
                notify: Arc::default(),
                look: Arc::default(),
                asked: false,
                flows: false,
                moved: Arc::default(),
            };
            waits.queues.entry(queue.clone()).or_insert_with(new).turns.insert(turn);
        }
        waits.takes.insert(turn, waiting.clone());
        state.turn = Some(turn);
        Ok((turn, waiting))
    }

    /// The take that waits longest on a queue, except for those that are held up while there are others. If no take
    /// waits any more, the queue is not watched from here on.
    fn next_take(&self, queue: &QueueName, now_ms: u64) -> Option<(u64, WaitingTake)> {
        let (mut from, mut first) = (0, None);
        loop {
            let next = {
                let mut waits = locked(&self.0);
                let WaitingState { takes, queues, .. } = &mut *waits;
                let turns = queues.get(queue).map(|watched| &watched.turns);
                if turns.is_none_or(BTreeSet::is_empty) {
                    queues.remove(queue);
                    return None;
                }
                let next = turns.and_then(|turns| turns.range(from..).next().copied());
                next.and_then(|turn| Some((turn, takes.get(&turn)?.clone())))
            };
            // A ticket is not locked while the waiters are.
            match next {
                Some((turn, waiting)) if waiting.ticket.is_held_up(now_ms) => {
                    from = turn + 1;
                    first = first.or(Some((turn, waiting)));
                }
                next => return next.or(first),
            }
        }
    }

    fn place(&self, turn: u64, waiting: &WaitingTake) -> AskRole {
        let waits = locked(&self.0);
        let mut place = AskRole::Asks;
        for watched in waiting.queues.iter().filter_map(|queue| waits.queues.get(queue)) {
            if watched.asked {
                return AskRole::InLine;
            }
            if !watched.flows && watched.turns.first() != Some(&turn) {
                place = AskRole::Behind(Arc::clone(&watched.moved).notified_owned());
            }
        }
        place
    }

    /// Returns whether a take that has just arrived asks by itself, once that is known. If its time is over, or its
    /// caller has gone, it does not.
    async fn may_ask(&self, turn: u64, waiting: &WaitingTake) -> bool {
        let known = async {
            loop {
                let freed = waiting.ticket.freed.notified();
                if waiting.ticket.is_over() {
                    return false;
                }
                match self.place(turn, waiting) {
                    AskRole::Asks => return true,
                    AskRole::InLine => return false,
                    AskRole::Behind(moved) => tokio::select! {
                        () = moved => {}
                        () = freed => {}
                    },
                }
            }
        };
        tokio::time::timeout(BEHIND, known).await.unwrap_or(true)
    }

    /// A take has found these when it asked by itself: the takes behind it ask concurrently.
    fn note_found(&self, deliveries: &[Delivery]) {
        let mut waits = locked(&self.0);
        for delivery in deliveries {
            if let Some(watched) = waits.queues.get_mut(&delivery.receipt.queue)
                && !watched.asked
                && !std::mem::replace(&mut watched.flows, true)
            {
                watched.moved.notify_waiters();
            }
        }
    }

    /// Makes sure that the queues of a take are asked for: those without an asker get one, the others are asked once
    /// more. False if the runtime has ended.
    fn begin_asking(&self, inner: &Arc<Inner>, runtime: &Handle, waiting: &WaitingTake) -> bool {
        let mut waits = locked(&self.0);
        let WaitingState { queues, askers, .. } = &mut *waits;
        for queue in waiting.queues.iter() {
            if let Some(watched) = queues.get_mut(queue) {
                watched.notify.notify_one();
                if !watched.asked {
                    if !askers.begin(inner, runtime, queue) {
                        return false;
                    }
                    watched.asked = true;
                    watched.flows = false;
                    watched.moved.notify_waiters();
                }
            }
        }
        true
    }
}

/// Ends the serving of a ticket with an answer, which goes to its caller, or is given back.
fn finish(inner: &Arc<Inner>, runtime: &Handle, ticket: &Ticket, answer: TakeAnswer) {
    let mut state = locked(&ticket.state);
    let has_begun = std::mem::take(&mut state.begun);
    (state.busy, state.turn) = (false, None);
    if state.gone {
        inner.returns.add(receipts(answer));
        if has_begun {
            inner.returns.arrived();
        }
        pay(inner, runtime);
    } else {
        let unsent = match state.answer.take() {
            Some(sender) => sender.send(answer).err(),
            None => Some(answer),
        };
        if let Some(answer) = unsent {
            inner.returns.add(receipts(answer));
            pay(inner, runtime);
        }
    }
    drop(state);
    ticket.freed.notify_waiters();
}

fn pay(inner: &Arc<Inner>, runtime: &Handle) {
    let inner = Arc::clone(inner);
    runtime.spawn(async move { inner.pay_returns().await });
}

fn receipts(answer: TakeAnswer) -> impl Iterator<Item = Receipt> {
    answer.into_iter().flatten().map(|delivery| delivery.receipt)
}

/// Asks for a queue as long as takes wait on it.
pub(super) async fn ask_for(mut asking: AskGuard) {
    let (inner, runtime, queue) = asking.asks_for();
    let watched = |watched: &WatchedQueue| (Arc::clone(&watched.notify), Arc::clone(&watched.look));
    let Some((notify, look)) = locked(&inner.waiters.0).queues.get(&queue).map(watched) else {
        return asking.end();
    };
    asking.looks(&look);
    let mut channels: BTreeSet<String> = BTreeSet::new();
    loop {
        let Some((turn, waiting)) = inner.waiters.next_take(&queue, inner.wire.mono_ms()) else { break };
        hear(&inner, &queue, &notify, &mut channels).await;
        let asked_ms = inner.clock.now().mono_ms;
        let mut is_due = false;
        if waiting.queues.len() > 1 {
            locked(&look).under_way = true;
            // The large part of an asker exists while it asks, and not while it sleeps.
            let looked = Box::pin(inner.look(&queue)).await;
            end_look(&inner, &runtime, &queue, &look);
            match looked {
                Ok(ProbeResult { is_due: false, next }) => {
                    sleep(&inner, &notify, asked_ms, next).await;
                    continue;
                }
                Ok(_) => is_due = true,
                // The others are asked as well: the error of this one is reported where they have nothing.
                Err(_) => {}
            }
        }
        let freed = waiting.ticket.freed.notified();
        tokio::pin!(freed);
        freed.as_mut().enable();
        let is_free = {
            let mut state = locked(&waiting.ticket.state);
            let is_free = !state.busy && !state.gone && state.turn == Some(turn);
            if is_free {
                (state.busy, state.begun) = (true, true);
                state.busy_since_ms = inner.wire.mono_ms();
            }
            (is_free, state.busy)
        };
        match is_free {
            (true, _) => {}
            (false, true) => {
                // It may be held up by another of its queues, and then the one behind it has its turn.
                tokio::select! {
                    () = freed => {}
                    () = notify.notified() => {}
                    () = tokio::time::sleep(BEHIND) => {}
                }
                continue;
            }
            (false, false) => {
                // The task that ended it is about to take it off the list.
                tokio::task::yield_now().await;
                continue;
            }
        }
        let guard = ServeGuard::new(&inner, &runtime, &waiting.ticket);
        // Each queue is noted as waited on by its own asker.
        let (next, is_held_up, answer) = match Box::pin(inner.take(&waiting.take, !is_due)).await {
            Ok(taken) => (taken.next, taken.cap.is_some(), Ok(taken.deliveries)),
            Err(error) => (None, false, Err(error)),
        };
        let goes_on = leave_waiting(&inner, &runtime, turn, &waiting, answer);
        guard.end();
        if !goes_on {
            continue;
        }
        if is_due && !is_held_up {
            // Other takes were served first.
            tokio::time::sleep(OTHERS).await;
            continue;
        }
        sleep(&inner, &notify, asked_ms, next).await;
    }
    asking.end();
    channels.into_iter().for_each(|channel| inner.wire.link.leave(channel, Arc::clone(&notify)));
}

/// Ends a look at a queue, if one is under way. If the last take has left the queue meanwhile, has the note in Redis
/// removed.
fn end_look(inner: &Arc<Inner>, runtime: &Handle, queue: &QueueName, look: &Mutex<Probe>) {
    let is_owed = {
        let mut look = locked(look);
        look.under_way = false;
        std::mem::take(&mut look.is_owed)
    };
    if is_owed {
        inner.returns.leave(vec![queue.clone()]);
        inner.returns.arrived();
        pay(inner, runtime);
    }
}

/// Subscribes to hints about the partitions that a queue has by now. A connection that hangs does not keep the queue
/// from being asked.
async fn hear(inner: &Inner, queue: &QueueName, notify: &Arc<Notify>, channels: &mut BTreeSet<String>) {
    let link = &inner.wire.link;
    let channel = |at: Partition| format!("{}waiters", at.keys(link.address().prefix()));
    let all = Partition::all(queue, inner.partitions(queue)).into_iter().map(channel);
    let new: Vec<String> = all.filter(|channel| !channels.contains(channel)).collect();
    if !new.is_empty() {
        let listening = new.iter().map(|channel| link.listen(channel.clone(), Arc::clone(notify)));
        // Without hints it is asked at each sweep.
        let _ = tokio::time::timeout(HINTS, Box::pin(join_all(listening.collect::<Vec<_>>()))).await;
        channels.extend(new);
    }
}

/// Sleeps until there may be something, by the last reply, or a hint arrives.
async fn sleep(inner: &Inner, notify: &Notify, asked_ms: u64, next: Option<(Timestamp, Timestamp)>) {
    let in_ms = next.map_or(SWEEP_MS, |(next, now)| next.ms_since(now).clamp(1, SWEEP_MS));
    tokio::select! {
        () = notify.notified() => {}
        () = inner.timer.sleep_until(asked_ms.saturating_add(in_ms)) => {}
    }
}

/// What a queue has for waiting takes.
struct ProbeResult {
    is_due: bool,
    /// When there may be more, and the server's clock at the reply.
    next: Option<(Timestamp, Timestamp)>,
}

impl Inner {
    /// Asks a queue whether it has something, and lets Redis note that takes of this process wait there.
    async fn look(&self, queue: &QueueName) -> std::result::Result<ProbeResult, NoAnswer> {
        let partitions = self.partitions(queue);
        let waiting = Some(self.waiters.count(queue)).filter(|waiting| *waiting > 0);
        let ended = locked(&self.held_up).ended;
        let pace = ScriptLimit::new();
        let asked = Partition::all(queue, partitions).into_iter().map(|at| {
            let arguments = Fields::new()
                .with("max", 1_u32)
                .with("cap", share(self.limits.leased_per_queue, partitions))
                .flag("peek", true)
                .maybe("wait", waiting)
                .with("process", &self.wire.process[..]);
            let asked =
                async move { self.on_within(&at, partitions, Script::Take, arguments, Retries::Once).await };
            pace.with(1, asked)
        });
        let mut looked = ProbeResult { is_due: false, next: None };
        let mut is_full = false;
        for answered in join_all(asked.collect::<Vec<_>>()).await {
            let answered = answered?;
            looked.is_due |= !answered.reply.get("ids").items().is_empty();
            is_full |= answered.reply.get("full").is_set();
            let soonest = looked.next.into_iter().chain(self.next(&answered));
            looked.next = soonest.min_by_key(|(next, now)| next.as_ms() - now.as_ms());
        }
        if looked.is_due || looked.next.is_some() {
            self.note_used(queue);
        }
        if is_full && !looked.is_due {
            self.hold_up(std::slice::from_ref(queue), ended);
        }
        Ok(looked)
    }
}

/// A take as its caller sees it: a future that, dropped unread, gives its messages back.
struct TakeFuture {
    inner: Arc<Inner>,
    runtime: Handle,
    ticket: Arc<Ticket>,
    answer: oneshot::Receiver<TakeAnswer>,
    /// When the time of a take that waits is over, and its turn.
    end: Option<(u64, Sleep)>,
    read: bool,
}

impl TakeFuture {
    fn new(
        inner: &Arc<Inner>,
        runtime: &Handle,
        ticket: Arc<Ticket>,
        answer: oneshot::Receiver<TakeAnswer>,
    ) -> TakeFuture {
        let (inner, runtime) = (Arc::clone(inner), runtime.clone());
        TakeFuture { inner, runtime, ticket, answer, end: None, read: false }
    }

    /// Its time is over: it is answered with nothing, unless a task serves it, which sees that it is over.
    fn end_now(&self, turn: u64) {
        {
            let mut state = locked(&self.ticket.state);
            state.over = true;
            if state.busy || state.gone || state.answer.is_none() {
                // It may hold back.
                return self.ticket.freed.notify_waiters();
            }
            (state.busy, state.begun) = (true, true);
        }
        self.inner.waiters.unlist(turn, &self.inner.returns);
        finish(&self.inner, &self.runtime, &self.ticket, Ok(Vec::new()));
        pay(&self.inner, &self.runtime);
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
        self.read = true;
        let has_panicked = answer.is_err() && locked(&self.ticket.state).has_panicked;
        // The reason was printed where it panicked.
        assert!(!has_panicked, "the task that served a take has panicked");
        Poll::Ready(answer.unwrap_or(Err(Error::Closed)))
    }
}

impl Drop for TakeFuture {
    /// 1. No task serves it: it is forgotten. 2. A task does: what that brings is given back, and the next call waits
    ///    for it. 3. The answer was sent and not read: it is still here, and its messages are given back.
    fn drop(&mut self) {
        if self.read {
            return;
        }
        {
            let mut state = locked(&self.ticket.state);
            if let Some(turn) = state.turn.take() {
                self.inner.waiters.unlist(turn, &self.inner.returns);
            }
            state.go(&self.inner.returns);
        }
        self.ticket.freed.notify_waiters();
        self.answer.close();
        if let Ok(answer) = self.answer.try_recv() {
            self.inner.returns.add(receipts(answer));
        }
        pay(&self.inner, &self.runtime);
    }
}

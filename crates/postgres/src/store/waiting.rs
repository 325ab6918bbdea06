//! Takes that wait, and takes whose callers have gone.
//!
//! One task asks for all queues that takes of this process wait on: one statement says for each whether something is due, and when to ask
//! next. It asks at that instant, when a call of this process has changed the queue, and in any case every 250 ms, for what other
//! processes do. Where something is due the takes that wait are served, those first that have waited longest.
//!
//! A take that may wait is listed from its first poll on. Where none came before it on its queues it asks once by itself.
//!
//! Ground rules:
//! 1. A take is served by one task at a time: its ticket is busy then.
//! 2. Whoever ends the serving of a ticket looks whether its caller has gone, under the ticket's lock, and gives back what was brought. A
//!    caller that goes says so under the same lock; the next call waits for what goes back.
//! 3. Locks are taken in this order: ticket, waiters.

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

/// What other processes do is heard of after so long.
const SWEEP_MS: u64 = 250;

/// How many takes may wait in one process.
const LIMIT: usize = 1_000_000;

/// So long a call waits for what goes back.
const AWHILE: Duration = Duration::from_secs(1);

/// So long it is believed how many queues there were.
const KNOWN_MS: u64 = 10_000;

/// So many queues more than there were at the last count do not come near the limit.
const MARGIN: u64 = 1_000;

type Answer = Result<Vec<Delivery>>;

/// All takes of this process that wait.
#[derive(Default)]
pub(super) struct Waiters {
    state: Mutex<Waits>,
    /// Something has changed for the task that asks.
    news: Arc<Notify>,
}

#[derive(Default)]
struct Waits {
    closed: bool,
    next_turn: u64,
    takes: BTreeMap<u64, Waiting>,
    queues: HashMap<QueueName, Watched>,
    /// Some take has met with the cap of the store: any lease that ends makes room for it.
    is_at_cap: bool,
    /// When all queues were asked for last.
    swept_ms: u64,
    /// How many queues there were, and when they were counted.
    known: Option<(u64, u64)>,
}

/// A take that waits.
#[derive(Clone)]
struct Waiting {
    take: Arc<Take>,
    queues: Arc<[QueueName]>,
    ticket: Arc<Ticket>,
}

/// A queue that is waited on.
#[derive(Default)]
struct Watched {
    turns: BTreeSet<u64>,
    /// It is to be asked for.
    has_news: bool,
    /// How often there was news.
    news: u64,
    /// What is due there was not to be had, and nothing has changed since.
    is_tried: bool,
    /// When to ask next, on this process's clock.
    next_ms: Option<u64>,
    /// The same by the server's: what is put for an earlier instant is news.
    head_ms: Option<i64>,
}

/// A take under way, shared by its caller and by whoever serves it.
struct Ticket(Mutex<Serving>);

struct Serving {
    /// Somebody serves it now, or is about to.
    busy: bool,
    /// Its caller has gone.
    gone: bool,
    /// Its time is over.
    over: bool,
    answer: Option<oneshot::Sender<Answer>>,
}

/// What goes back, or may: the next call waits for it.
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

    /// Waits until what goes back is there. What is long on its way keeps nobody.
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

impl Waiters {
    /// How many takes of this process wait on a queue.
    pub(super) fn count(&self, queue: &QueueName) -> u64 {
        locked(&self.state).queues.get(queue).map_or(0, |watched| watched.turns.len() as u64)
    }

    /// The queues that takes of this process wait on.
    pub(super) fn names(&self) -> Vec<QueueName> {
        locked(&self.state).queues.keys().cloned().collect()
    }

    /// Something may have changed in a queue.
    pub(super) fn hint(&self, queue: &QueueName) {
        let mut waits = locked(&self.state);
        if let Some(watched) = waits.queues.get_mut(queue) {
            watched.has_news();
            self.news.notify_one();
        }
    }

    /// A message was put that is due at this instant.
    pub(super) fn hint_due(&self, queue: &QueueName, due: dwell_model::Timestamp) {
        let mut waits = locked(&self.state);
        if let Some(watched) = waits.queues.get_mut(queue)
            && watched.head_ms.is_none_or(|head_ms| due.as_ms() < head_ms)
        {
            watched.has_news();
            self.news.notify_one();
        }
    }

    /// A message may be ready again, or a lease have ended.
    pub(super) fn hint_room(&self, queue: &QueueName) {
        let mut waits = locked(&self.state);
        if waits.is_at_cap {
            waits.queues.values_mut().for_each(Watched::has_news);
            self.news.notify_one();
        } else if let Some(watched) = waits.queues.get_mut(queue) {
            watched.has_news();
            self.news.notify_one();
        }
    }

    /// Answers all with nothing, and lists none any more.
    pub(super) fn close(&self) {
        let takes = {
            let mut waits = locked(&self.state);
            waits.closed = true;
            waits.queues.clear();
            std::mem::take(&mut waits.takes)
        };
        for waiting in takes.into_values() {
            let mut serving = locked(&waiting.ticket.0);
            // Whoever serves it sees that it is over.
            serving.over = true;
            if !serving.busy
                && let Some(answer) = serving.answer.take()
            {
                let _ = answer.send(Ok(Vec::new()));
            }
        }
        self.news.notify_one();
    }

    /// Lists a take, if no more than `most` wait on each of its queues then. Says too whether it is the first on all of them.
    fn list(&self, take: Take, ticket: &Arc<Ticket>, most: usize) -> Result<(u64, Waiting, bool)> {
        let mut queues = take.queues.clone();
        queues.sort();
        queues.dedup();
        let waiting = Waiting { take: Arc::new(take), queues: queues.into(), ticket: Arc::clone(ticket) };
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

    /// The queues that takes wait on which came no later than this one, unless it is known that there is room for more.
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

    /// What to ask for now, and else when.
    fn plan(&self, now_ms: u64) -> Plan {
        let mut waits = locked(&self.state);
        if waits.queues.is_empty() {
            return Plan::Sleep(None);
        }
        let is_sweep = now_ms.saturating_sub(waits.swept_ms) >= SWEEP_MS;
        if is_sweep {
            waits.swept_ms = now_ms;
        }
        let mut wake_ms = waits.swept_ms.saturating_add(SWEEP_MS);
        let mut queues = Vec::new();
        for (queue, watched) in &mut waits.queues {
            if is_sweep || watched.next_ms.is_some_and(|next_ms| next_ms <= now_ms) {
                watched.has_news();
            }
            if std::mem::take(&mut watched.has_news) {
                // Whatever is put until the answer comes is news: it may have been too late for the look.
                (watched.next_ms, watched.head_ms) = (None, None);
                queues.push(queue.clone());
            } else if let Some(next_ms) = watched.next_ms {
                wake_ms = wake_ms.min(next_ms);
            }
        }
        if queues.is_empty() { Plan::Sleep(Some(wake_ms)) } else { Plan::Ask(queues, waits.is_at_cap) }
    }

    /// Notes when to ask for a queue again. If takes that wait on it are to be served now: how much news of it there was.
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

    /// Takes to be served from queues that have something, those first that came first. No two of them share a queue, and each is busy.
    fn pick(&self, due: &HashMap<QueueName, u64>) -> Vec<(u64, Waiting)> {
        // Tickets are locked after this, since whoever has a ticket may want this lock.
        let candidates: Vec<(u64, Waiting)> = {
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

    /// What was due in these queues was not to be had: they are asked for once more, to know when to try again. Of one of which there
    /// was more news since this is not known.
    fn tried(&self, queues: &[QueueName], due: &HashMap<QueueName, u64>, is_at_cap: bool) {
        let mut waits = locked(&self.state);
        waits.is_at_cap |= is_at_cap;
        for queue in queues {
            if let (Some(watched), Some(news)) = (waits.queues.get_mut(queue), due.get(queue)) {
                watched.is_tried |= watched.news == *news;
                watched.has_news = true;
            }
        }
    }
}

impl Watched {
    fn has_news(&mut self) {
        (self.has_news, self.is_tried) = (true, false);
        self.news += 1;
    }
}

enum Plan {
    /// These queues, and whether any lease that ends matters.
    Ask(Vec<QueueName>, bool),
    /// Until this moment, if nothing comes before.
    Sleep(Option<u64>),
}

/// The task that asks. It ends with the store.
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
                    inner.ask(queues, is_at_cap).await;
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
    /// Asks for queues that are waited on, and serves takes from those that have something.
    async fn ask(&self, queues: Vec<QueueName>, is_at_cap: bool) {
        let Ok(mut due) = self.due_of(&queues, is_at_cap).await else { return };
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
                        // There may be more, and what was taken has deadlines.
                        waiting.queues.iter().for_each(|queue| self.waiters.hint(queue));
                        self.end(Some(turn), &waiting.ticket, answer.map(|taken| taken.deliveries)).await;
                    }
                }
            }
        }
    }

    /// Which of these queues have something that is due and worth a try, and how much news of each there was.
    async fn due_of(&self, queues: &[QueueName], is_at_cap: bool) -> Result<HashMap<QueueName, u64>> {
        let name_list = names(queues);
        let floors: Vec<i64> = queues.iter().map(|queue| self.floors.of(queue).0).collect();
        let arguments = [
            (&name_list as _, Type::TEXT_ARRAY),
            (&floors as _, Type::INT8_ARRAY),
            (&is_at_cap as _, Type::BOOL),
            (&self.defaults as _, Type::JSONB),
        ];
        // Before the server reads its clock: whoever sleeps so long from here on does not sleep too long.
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
            // While something is due that was not to be had, whatever is put is no news.
            if let Some(news) = self.waiters.note(queue, is_due, next_ms, instant) {
                due.insert(queue.clone(), news);
            }
        }
        Ok(due)
    }

    /// Ends the serving of a waiting take for which there was nothing.
    async fn go_on(&self, turn: u64, waiting: &Waiting) {
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

    /// Answers a take; what it brings goes back if its caller has gone.
    async fn end(&self, turn: Option<u64>, ticket: &Ticket, answer: Answer) {
        if let Some(turn) = turn {
            self.waiters.unlist(turn);
        }
        let (is_gone, unread) = {
            let mut serving = locked(&ticket.0);
            serving.busy = false;
            match (serving.gone, serving.answer.take()) {
                (false, Some(sender)) => {
                    // It goes nowhere else: whoever drops the other end says so under this lock.
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

    /// The first time that a waiting take asks, unless others came before it.
    async fn ask_once(&self, turn: u64, waiting: &Waiting, is_first: bool) {
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

    /// Refuses a take that waits on a queue that would be one too many.
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
pub(super) async fn take(inner: &Arc<Inner>, runtime: &Handle, take: Take) -> Answer {
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
    let taking = Taking {
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

/// Runs a take that does not wait to its end. What it brings is the answer, or goes back.
async fn serve(
    inner: &Arc<Inner>,
    runtime: &Handle,
    ticket: Arc<Ticket>,
    answer: oneshot::Receiver<Answer>,
    asked: impl Future<Output = Answer> + Send + 'static,
) -> Answer {
    let (shared, served) = (Arc::clone(inner), Arc::clone(&ticket));
    runtime.spawn(async move {
        shared.returns.wait().await;
        let is_gone = locked(&served.0).gone;
        let answer = if is_gone { Ok(Vec::new()) } else { asked.await };
        shared.end(None, &served, answer).await;
    });
    let inner = Arc::clone(inner);
    Taking { inner, runtime: runtime.clone(), ticket, answer, end: None, turn: None, is_read: false }.await
}

impl Ticket {
    /// A take that somebody is about to serve, and where its answer comes.
    fn new() -> (Arc<Ticket>, oneshot::Receiver<Answer>) {
        let (sender, answer) = oneshot::channel();
        let serving = Serving { busy: true, gone: false, over: false, answer: Some(sender) };
        (Arc::new(Ticket(Mutex::new(serving))), answer)
    }
}

/// A take seen from its caller: a future that, dropped unread, gives its messages back.
struct Taking {
    inner: Arc<Inner>,
    runtime: Handle,
    ticket: Arc<Ticket>,
    answer: oneshot::Receiver<Answer>,
    /// When its time is over, of one that waits, and its turn.
    end: Option<(u64, Sleep)>,
    turn: Option<u64>,
    is_read: bool,
}

impl Taking {
    /// Its time is over: it is answered with nothing, unless somebody serves it, who sees that it is over.
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

impl Future for Taking {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        if let Some((turn, end)) = &mut self.end
            && Pin::new(end).poll(context).is_ready()
        {
            let turn = *turn;
            self.end = None;
            self.end_now(turn);
        }
        let answer = std::task::ready!(Pin::new(&mut self.answer).poll(context));
        self.is_read = true;
        // Without an answer the runtime has ended.
        Poll::Ready(answer.unwrap_or(Err(Error::Closed)))
    }
}

impl Drop for Taking {
    /// 1. Nobody serves it: it is forgotten. 2. Somebody does: what that brings goes back, and the next call waits for it. 3. The
    ///    answer was sent and not read: it is still here, and its messages go back.
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

fn receipts(answer: Answer) -> Vec<Receipt> {
    answer.into_iter().flatten().map(|delivery| delivery.receipt).collect()
}

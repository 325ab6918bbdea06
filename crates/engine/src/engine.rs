//! The engine as a store: each call is a command to the shard, and bodies are read on the caller's side.

use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use dwell_model::{
    Cursor, Limits, Message, MessageId, Now, Number, QueueName, Receipt, SettingChange, StateKind, Timestamp,
};
use dwell_store::core::WaiterId;
use dwell_store::{
    Blocking, BulkOutcome, Cancelled, Delivery, Error, Forecast, LeaseRef, LeaseTerms, Page, Put, PutAnswer,
    QueueDeaths, QueueStats, Rescheduled, Result, Selection, Settle, Settled, Store, Take, Target, When,
};

use crate::background_failures::{BackgroundFailure, BackgroundFailures};
use crate::disk::{CountedDisk, PooledDisk, Sizes, failure};
use crate::executor::Executor;
use crate::journal::segment::BodyRef;
use crate::open::{OpenedDirectory, open};
use crate::report::{Counters, OpenReport};
use crate::shard::ShardCounters;
use crate::shard::body_prefetch::next_body;
use crate::shard::command::{Command, HandedOut, Reply};
use crate::shard::command_queue::CommandQueue;
use crate::shard::driver::Driver;
use crate::shard::event_loop::{EventLoop, InlineCall};
use crate::sync::{self, JoinHandle, Mutex, MutexGuard, oneshot};
use crate::{BackupError, BackupReport, FileBytes, OpenError, Options};

/// The maximum number of queues per call for which due messages are counted in one turn.
const QUEUES_A_CALL: usize = 64;

/// An open data directory. Clones share the same engine; dropping the last one closes it, and blocks the dropping
/// thread until everything is synced.
///
/// Calls need no async runtime: a future is woken by the shard's thread. The bodies of messages are read from the
/// journal when the future is polled, on the thread that polls it.
#[derive(Clone, Debug)]
pub struct Engine {
    inner: Arc<Inner>,
    /// Whether callers may run turns inline, and for how long.
    takes_turns: Option<InlineCall>,
}

#[derive(Debug)]
struct Inner {
    command_queue: Arc<CommandQueue>,
    /// The seat where callers run turns, if the engine has a thread.
    event_loop: OnceLock<Arc<EventLoop>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    limits: Limits,
    report: OpenReport,
    disk: CountedDisk,
    dir: PathBuf,
    counters: Arc<ShardCounters>,
    background_failures: Arc<BackgroundFailures>,
    next_waiter: AtomicU64,
}

impl Engine {
    /// Opens a data directory, and creates it if it is missing.
    ///
    /// # Errors
    /// [`OpenError`]: the directory was not changed, unless the disk itself failed.
    pub fn open(dir: impl AsRef<Path>, options: Options) -> std::result::Result<Engine, OpenError> {
        let dir = dir.as_ref();
        let (engine, driver) = Engine::open_with(dir, options, true)?;
        let (thread, event_loop) = driver.spawn().map_err(|error| OpenError::io(dir, error))?;
        *engine.inner.thread() = Some(thread);
        engine.inner.event_loop.get_or_init(|| event_loop);
        Ok(engine)
    }

    /// Opens a data directory without a thread: commands run only when [`Driver::turn`] is called. For simulations,
    /// which decide the order of events.
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub fn open_driven(
        dir: impl AsRef<Path>,
        options: Options,
    ) -> std::result::Result<(Engine, Driver), OpenError> {
        Engine::open_with(dir.as_ref(), options, false)
    }

    fn open_with(
        dir: &Path,
        options: Options,
        with_threads: bool,
    ) -> std::result::Result<(Engine, Driver), OpenError> {
        // The program may change its working directory while this one is open.
        let dir = &std::path::absolute(dir).map_err(|error| OpenError::io(dir, error))?;
        let pooled = PooledDisk::new(Arc::clone(&options.disk), options.open_files).at_home_in(dir);
        let disk = CountedDisk::new(Arc::new(pooled));
        let counters = Arc::new(ShardCounters::default());
        let sleeper = options.clock.sleeper();
        // A model checker does not see threads other than the shard's.
        let executor = if with_threads && !cfg!(shuttle) {
            Executor::threads(&options.spawner, sleeper.notifier())
        } else {
            Executor::without_threads()
        };
        let OpenedDirectory { shard, lock, report } = open(dir, &options, &disk, &counters, &executor)?;
        let background_failures = Arc::clone(shard.background_failures());
        let (driver, command_queue) =
            Driver::new(shard, options.clock, sleeper, Arc::clone(&counters), executor, lock);
        let inner = Inner {
            command_queue,
            event_loop: OnceLock::new(),
            thread: Mutex::new(None),
            limits: options.limits,
            report,
            disk,
            dir: dir.to_owned(),
            counters,
            background_failures,
            next_waiter: AtomicU64::new(0),
        };
        Ok((Engine { inner: Arc::new(inner), takes_turns: None }, driver))
    }

    /// Closes the engine. Answers all waiting takes with nothing, frees session leases without spending
    /// an attempt, syncs everything and releases the directory. Other calls under way are finished first, except gets of
    /// dead messages by a key that many had, which are refused.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`] or [`Error::Stopped`] if the disk failed, now or before; [`Error::Closed`] if it was
    /// closed already. The directory is released in either case.
    pub fn close(&self) -> Result<()> {
        self.inner.close()
    }

    /// Copies the directory, as it is at one moment, into `dir`, which has to be empty or missing. The copy has
    /// everything that was answered before; calls go on meanwhile. Tables are linked where the file system
    /// supports it, unless `copies` is set; segments are copied. The I/O is done when the future is polled, on the
    /// thread that polls it.
    ///
    /// The backup is a directory of its own, and can be opened in place. Messages that were settled after it was
    /// taken come again there; [`OpenReport::restored`] reports this.
    ///
    /// # Errors
    /// [`BackupError`]. A backup without its manifest, which is written last, is of no use.
    pub async fn backup(
        &self,
        dir: &Path,
        now: Now,
        copies: bool,
    ) -> std::result::Result<BackupReport, BackupError> {
        let snapshot = self.ask_one(Command::Snapshot).await?;
        let seed = RandomState::new().hash_one(now.wall.as_ms());
        Ok(snapshot.write(&self.inner.disk, dir, now, seed, copies)?)
    }

    /// A blocking interface. Its calls [run turns inline](Engine::with_inline_calls), however long those take.
    pub fn blocking(&self) -> Blocking<Engine> {
        Blocking::new(Arc::new(self.with_inline(InlineCall::Always)))
    }

    /// The same engine for callers whose threads may block for the time of a sync.
    ///
    /// While calls come one at a time, and have at most a thousand messages, each is run, written and synced by the
    /// thread that polls its future, at the first poll. That saves two wake-ups, of the shard's thread and of the
    /// caller, which on a fast disk take as long as the sync. Calls that come together are sent to the shard's thread
    /// and share syncs as usual, and so are nearly all calls while an inline turn takes over a millisecond. An async
    /// runtime that must not block even for that long uses the engine as it was opened.
    #[must_use]
    pub fn with_inline_calls(&self) -> Engine {
        self.with_inline(InlineCall::WhileShort)
    }

    fn with_inline(&self, inline: InlineCall) -> Engine {
        Engine { inner: Arc::clone(&self.inner), takes_turns: Some(inline) }
    }

    /// The report of the opening.
    pub fn report(&self) -> &OpenReport {
        &self.inner.report
    }

    /// Counters since the opening.
    pub fn counters(&self) -> Counters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.inner.counters;
        Counters {
            disk: self.inner.disk.counts(),
            wakeups: read(&counters.wakeups),
            commands: read(&counters.commands),
            batches: read(&counters.batches),
            syncs: read(&counters.syncs),
            segments: read(&counters.segments),
            flushes: read(&counters.flushes),
            tables: read(&counters.tables),
            resident: read(&counters.resident),
            cold: read(&counters.cold),
            resident_bytes: read(&counters.resident_bytes),
            file_bytes: read(&counters.file_bytes),
            idempotency_keys: read(&counters.idempotency_keys),
            table_bytes: read(&counters.table_bytes),
            body_writes: read(&counters.body_writes),
            runs: read(&counters.runs),
            held: read(&counters.held),
            damaged: read(&counters.damaged),
            runs_damaged: read(&counters.runs_damaged),
            memory_full: read(&counters.memory_full),
            runs_rebuilt: read(&counters.runs_rebuilt),
            unread: read(&counters.unread),
        }
    }

    /// Background work that currently fails and is retried: tables that cannot be written, runs that cannot be
    /// merged. It is reported nowhere else until there is no room for puts.
    pub fn background_failures(&self) -> Vec<BackgroundFailure> {
        self.inner.background_failures.now()
    }

    /// The durations of file syncs, in microseconds.
    pub fn sync_us(&self) -> Sizes {
        self.inner.disk.sync_us()
    }

    /// The sizes of writes, in bytes.
    pub fn write_sizes(&self) -> Sizes {
        self.inner.disk.write_sizes()
    }

    /// The number of commands in each batch: written together, with one sync.
    pub fn batch_commands(&self) -> Sizes {
        self.inner.counters.batch_commands.read()
    }

    /// The size of the files in bytes. Lists the directory on the caller's thread.
    ///
    /// # Errors
    /// The disk's.
    pub fn file_bytes(&self) -> std::io::Result<FileBytes> {
        FileBytes::of(&self.inner.disk, &self.inner.dir)
    }

    fn send(&self, command: Command) {
        match (self.inner.event_loop.get(), self.takes_turns) {
            (Some(event_loop), Some(inline)) => event_loop.send(command, inline),
            _ => self.inner.command_queue.send(command),
        }
    }

    /// Sends a command and waits for its answer; `None` if the shard ended without one.
    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.send(command(reply));
        answer.await.ok()
    }

    async fn ask_one<T>(&self, command: impl FnOnce(Reply<Result<T>>) -> Command) -> Result<T> {
        self.ask(command).await.unwrap_or_else(|| Err(gone()))
    }

    async fn ask_each<T>(
        &self,
        items: usize,
        command: impl FnOnce(Reply<Vec<Result<T>>>) -> Command,
    ) -> Vec<Result<T>>
    where
        T: Send + 'static,
    {
        self.ask(command).await.unwrap_or_else(|| (0..items).map(|_| Err(gone())).collect())
    }

    /// A take that may be dropped at any time: messages that it was handed are given back then.
    async fn ask_taken(
        &self,
        command: impl FnOnce(WaiterId, Reply<Result<HandedOut>>) -> Command,
    ) -> Result<Vec<Delivery>> {
        let id = WaiterId(self.inner.next_waiter.fetch_add(1, Ordering::Relaxed));
        let (reply, answer) = oneshot::channel();
        self.send(command(id, reply));
        let mut asked = Asked { inner: &self.inner, id, answer: Some(answer) };
        let answer = match &mut asked.answer {
            Some(answer) => answer.await,
            None => Err(oneshot::Canceled),
        };
        asked.answer = None;
        let (read, Unread { failed, given_back }) = read_deliveries(answer.unwrap_or_else(|_| Err(gone()))?);
        let unread = (failed.len() + given_back.len()) as u64;
        if unread > 0 {
            self.inner.counters.unread.fetch_add(unread, Ordering::Relaxed);
        }
        if !failed.is_empty() {
            self.inner.command_queue.send(Command::Unread(failed));
        }
        if !given_back.is_empty() {
            self.inner.command_queue.send(Command::GiveBack(given_back));
        }
        read
    }
}

/// The shard ended without an answer: its thread panicked after the command was sent.
fn gone() -> Error {
    Error::OutcomeUnknown { reason: "the engine stopped before it answered".into(), needs_reopen: true }
}

/// A take that waits for its answer.
struct Asked<'a> {
    inner: &'a Inner,
    id: WaiterId,
    answer: Option<oneshot::Receiver<Result<HandedOut>>>,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let Some(mut answer) = self.answer.take() else { return };
        // From here on the shard notices that the receiver is closed; an answer sent before is already here.
        answer.close();
        self.inner.command_queue.send(match answer.try_recv() {
            Ok(Some(Ok(handed))) => Command::GiveBack(handed.receipts()),
            _ => Command::Forget(self.id),
        });
    }
}

/// Messages that were taken for a caller but are not delivered.
#[derive(Debug, Default)]
struct Unread {
    /// Those that cannot be read, and why.
    failed: Vec<(Receipt, Arc<str>)>,
    /// Those that could not be read for lack of a resource.
    given_back: Vec<Receipt>,
}

/// Reads the bodies of messages that were handed out. A message whose body cannot be read is not delivered: this is a
/// failed attempt, so it is retried after its queue's backoff, and dead when its attempts are spent. If it were given
/// back at once, it would be the next to be taken, again and again, and block everything behind it. Where the process
/// is short of files or memory, the message is not at fault and is given back.
fn read_deliveries(HandedOut { deliveries, bodies, ahead }: HandedOut) -> (Result<Vec<Delivery>>, Unread) {
    let mut bodies = bodies.into_iter();
    let mut ahead = ahead.map(|reading| reading.take()).unwrap_or_default();
    let mut ready = |number| next_body(&mut bodies, number).or_else(|| next_body(&mut ahead, number));
    let ready: Vec<Option<Bytes>> =
        deliveries.iter().map(|delivery| ready(delivery.message.number)).collect();
    let missing = deliveries.iter().zip(&ready).filter(|(_, ready)| ready.is_none());
    let places: Vec<_> = missing.map(|(delivery, _)| place(&delivery.message)).collect();
    let mut bodies = BodyRef::read_all(&places).into_iter();
    let (mut read, mut unread) = (Vec::with_capacity(deliveries.len()), Unread::default());
    let mut refusal = None;
    for (delivery, ready) in deliveries.into_iter().zip(ready) {
        match ready.map_or_else(|| bodies.next().expect("what is missing was read"), Ok) {
            Ok(body) => read.push(Delivery {
                message: delivery.message.with_body(body),
                receipt: delivery.receipt,
                lease_until: delivery.lease_until,
                taken_at: delivery.taken_at,
                lateness_ms: delivery.lateness_ms,
            }),
            Err(error) if failure::is_passing(&error) => {
                refusal.get_or_insert_with(|| format!("{}; no attempt is spent", reason(&error)));
                unread.given_back.push(delivery.receipt);
            }
            Err(error) => {
                let reason = reason(&error);
                refusal.get_or_insert_with(|| {
                    format!("{reason}; it counts as an attempt, and the message is tried again")
                });
                unread.failed.push((delivery.receipt, reason.into()));
            }
        }
    }
    match refusal {
        Some(reason) if read.is_empty() => (Err(Error::Unavailable { reason: reason.into() }), unread),
        _ => (Ok(read), unread),
    }
}

/// Why a body cannot be read, short enough to be stored with its message.
fn reason(error: &std::io::Error) -> String {
    let mut reason = format!("a body cannot be read: {error}");
    reason.truncate(reason.floor_char_boundary(Limits::MAX_ERROR_TEXT_LEN));
    reason
}

fn place(message: &Message<BodyRef>) -> (Number, &BodyRef) {
    (message.number, &message.body)
}

fn unreadable(error: &std::io::Error) -> Error {
    Error::Unavailable { reason: reason(error).into() }
}

fn read_messages(messages: Vec<Message<BodyRef>>) -> impl Iterator<Item = Result<Message>> {
    let places: Vec<_> = messages.iter().map(place).collect();
    let bodies = BodyRef::read_all(&places);
    let with_body = |(message, body): (Message<BodyRef>, std::io::Result<Bytes>)| match body {
        Ok(body) => Ok(message.with_body(body)),
        Err(error) => Err(unreadable(&error)),
    };
    messages.into_iter().zip(bodies).map(with_body)
}

impl Inner {
    fn thread(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) -> Result<()> {
        let (reply, mut answer) = oneshot::channel();
        self.command_queue.send(Command::Close(reply));
        // A concurrent `close` waits here too: until the thread has ended, the directory is not released.
        let mut guard = self.thread();
        // Without a thread, the driver of the shard runs the turn that answers.
        let Some(thread) = guard.take() else {
            return match answer.try_recv() {
                Ok(Some(answer)) => answer,
                _ => Ok(()),
            };
        };
        // A waker that drops the last handle runs on that thread, which cannot join itself: it closes when it goes
        // on.
        if thread.thread().id() == sync::current().id() {
            return Ok(());
        }
        let has_panicked = thread.join().is_err();
        match answer.try_recv() {
            Ok(Some(answer)) => answer,
            _ if has_panicked => Err(gone()),
            _ => Err(Error::Closed),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A caller that needs the result calls `close`.
        let _ = self.close();
    }
}

#[async_trait]
impl Store for Engine {
    async fn put(&self, puts: Vec<Put>) -> Vec<Result<PutAnswer>> {
        let items = puts.len();
        let answered = Vec::new();
        self.ask_each(items, |reply| Command::Put { puts, answered, reply }).await
    }

    async fn take(&self, take: Take) -> Result<Vec<Delivery>> {
        self.ask_taken(|id, reply| Command::Take { id, take, reply }).await
    }

    async fn take_id(&self, queue: QueueName, id: MessageId, terms: LeaseTerms) -> Result<Delivery> {
        let command = |_, reply| Command::TakeId { queue, id, terms, reply };
        let mut taken = self.ask_taken(command).await?;
        Ok(taken.pop().expect("a take by id is answered with its message or a refusal"))
    }

    async fn settle(&self, settles: Vec<Settle>) -> Vec<Result<Settled>> {
        self.ask_each(settles.len(), |reply| Command::Settle(settles, reply)).await
    }

    async fn expire_lease(&self, queue: QueueName, leases: Vec<LeaseRef>) -> Vec<Result<Settled>> {
        self.ask_each(leases.len(), |reply| Command::ExpireLease(queue, leases, reply)).await
    }

    async fn cancel(&self, queue: QueueName, targets: Vec<Target>) -> Vec<Result<Cancelled>> {
        self.ask_each(targets.len(), |reply| Command::Cancel(queue, targets, reply)).await
    }

    async fn reschedule(&self, queue: QueueName, moves: Vec<(Target, When)>) -> Vec<Result<Rescheduled>> {
        self.ask_each(moves.len(), |reply| Command::Reschedule(queue, moves, reply)).await
    }

    async fn get(&self, queue: QueueName, targets: Vec<Target>, dead: bool) -> Vec<Result<Message>> {
        let items = targets.len();
        let found = self.ask_each(items, |reply| Command::Get { queue, targets, dead, reply }).await;
        let places = found.iter().flatten().map(place).collect::<Vec<_>>();
        let mut bodies = BodyRef::read_all(&places).into_iter();
        let mut with_body = |message: Message<BodyRef>| match bodies.next().expect("each message has a body")
        {
            Ok(body) => Ok(message.with_body(body)),
            Err(error) => Err(unreadable(&error)),
        };
        found.into_iter().map(|found| found.and_then(&mut with_body)).collect()
    }

    async fn locate(&self, numbers: Vec<Number>) -> Vec<Result<Option<(QueueName, MessageId)>>> {
        self.ask_each(numbers.len(), |reply| Command::Locate(numbers, reply)).await
    }

    async fn list(
        &self,
        queue: QueueName,
        state: StateKind,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<Page> {
        let page = self.ask_one(|reply| Command::List { queue, state, after, max, reply }).await?;
        let ids: Vec<MessageId> = page.messages.iter().map(|message| message.id).collect();
        let (mut messages, mut unread) = (Vec::with_capacity(ids.len()), page.unread);
        for (id, read) in ids.into_iter().zip(read_messages(page.messages)) {
            match read {
                Ok(message) => messages.push(message),
                Err(error) => unread.push((id, error)),
            }
        }
        Ok(Page { messages, unread, next: page.next })
    }

    async fn peek(&self, queue: QueueName, state: StateKind) -> Result<Option<Message>> {
        let first = self.ask_one(|reply| Command::Peek(queue, state, reply)).await?;
        read_messages(first.into_iter().collect()).next().transpose()
    }

    async fn stats(&self, queue: QueueName) -> Result<QueueStats> {
        self.ask_one(|reply| Command::Stats(queue, reply)).await
    }

    async fn forecast(&self, queues: Option<Vec<QueueName>>, edges: Vec<Timestamp>) -> Result<Forecast> {
        Forecast::check(&edges)?;
        let (edges, mut sum): (Arc<[Timestamp]>, _) = (edges.as_slice().into(), Forecast::none(edges.len()));
        let Some(queues) = queues else {
            let mut after = None;
            loop {
                let page = |reply| Command::ForecastPage(after, QUEUES_A_CALL, Arc::clone(&edges), reply);
                let (counted, last) = self.ask_one(page).await?;
                sum.add(&counted);
                if last.is_none() {
                    return Ok(sum);
                }
                after = last;
            }
        };
        for queue in queues {
            let of_one = |reply| Command::Forecast(queue, Arc::clone(&edges), reply);
            sum.add(&self.ask_one(of_one).await?);
        }
        Ok(sum)
    }

    async fn queues(&self, after: Option<QueueName>, max: usize) -> Result<Vec<QueueStats>> {
        self.ask_one(|reply| Command::Queues(after, max, reply)).await
    }

    async fn configure(&self, queue: QueueName, changes: Vec<SettingChange>) -> Result<QueueStats> {
        self.ask_one(|reply| Command::Configure(queue, changes, reply)).await
    }

    async fn revive(&self, queue: QueueName, which: Selection, when: When) -> Result<BulkOutcome> {
        self.ask_one(|reply| Command::Revive(queue, which, when, reply)).await
    }

    async fn deaths(&self) -> Result<Vec<QueueDeaths>> {
        self.ask_one(Command::Deaths).await
    }

    async fn discard(&self, queue: QueueName, which: Selection) -> Result<BulkOutcome> {
        self.ask_one(|reply| Command::Discard(queue, which, reply)).await
    }

    async fn purge(&self, queue: QueueName) -> Result<u64> {
        self.ask_one(|reply| Command::Purge(queue, reply)).await
    }

    async fn delete_queue(&self, queue: QueueName) -> Result<u64> {
        self.ask_one(|reply| Command::DeleteQueue(queue, reply)).await
    }

    fn limits(&self) -> &Limits {
        &self.inner.limits
    }
}

//! Putting: one message with its options, or many in one call.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dwell_model::{AttemptLimit, Headers, IdempotencyKey, Invalid, Key, Timestamp};
use futures_core::future::BoxFuture;
use pollster::block_on;

use super::body::{CONTENT_TYPE, IntoBody};
use super::{Answers, whole_ms};
use crate::{Error, OnConflict, Put, PutAnswer, Queue, Result, Store, When};

/// A message to be put: when this is awaited, or when [`call`](PutOne::call) is called.
///
/// An invalid value (an empty key, an instant past 9999) is kept until then, and its error is the answer:
/// nothing is sent.
///
/// ```
/// # use std::sync::Arc;
/// # use dwell_model::Limits;
/// # use dwell_store::{MemoryStore, Queue};
/// # use dwell_time::SystemClock;
/// use std::time::Duration;
///
/// # pollster::block_on(async {
/// # let store = MemoryStore::new(Limits::default(), Arc::new(SystemClock::new()));
/// # let orders = Queue::new(Arc::new(store), "orders")?;
/// let put = orders
///     .put("close order 7")
///     .delay(Duration::from_secs(30 * 60))
///     .key("order-7")
///     .header("trace", "4bf92f35")
///     .max_attempts(5)
///     .await?;
/// println!("{} is due {}", put.id, put.due);
///
/// assert!(orders.put("no name").key("").await.is_err());
/// # Ok::<(), dwell_store::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
#[must_use = "nothing is put before this is awaited or called"]
pub struct PutOne {
    store: Arc<dyn Store>,
    put: Result<Put>,
}

impl PutOne {
    pub(super) fn new(queue: &Queue, body: impl IntoBody) -> PutOne {
        let put = body.into_body().and_then(|body| body.into_put(queue.name().clone()));
        PutOne { store: Arc::clone(queue.store()), put }
    }

    fn set(mut self, set: impl FnOnce(&mut Put) -> Result<()>) -> PutOne {
        if let Ok(put) = &mut self.put
            && let Err(refusal) = set(put)
        {
            self.put = Err(refusal);
        }
        self
    }

    /// Sets the delay after the put, by the store's clock. A part of a millisecond counts as a whole one, so
    /// that no message is early.
    pub fn delay(self, delay: Duration) -> PutOne {
        self.when(When::from(delay))
    }

    /// Sets the due instant: a [`Timestamp`], a [`SystemTime`](std::time::SystemTime), or (feature `jiff`)
    /// one of jiff's. A past one is due now.
    pub fn at<T>(self, due: T) -> PutOne
    where
        T: TryInto<Timestamp>,
        Invalid: From<T::Error>,
    {
        self.set(|put| {
            put.when = When::At(due.try_into().map_err(Invalid::from)?);
            Ok(())
        })
    }

    /// Sets the delay to this level of the queue's table, counted from 1. See
    /// [`Settings::levels`](dwell_model::Settings::levels).
    pub fn level(self, level: u32) -> PutOne {
        self.when(When::Level(level))
    }

    /// Sets when it is due.
    pub fn when(self, when: When) -> PutOne {
        self.set(|put| {
            put.when = when;
            Ok(())
        })
    }

    /// Sets the caller's own name for it: 1 to 512 bytes, unique in the queue among live messages. If it is
    /// taken, [`on_conflict`](PutOne::on_conflict) applies.
    pub fn key<K>(self, key: K) -> PutOne
    where
        K: TryInto<Key>,
        Invalid: From<K::Error>,
    {
        self.set(|put| {
            put.key = Some(key.try_into().map_err(Invalid::from)?);
            Ok(())
        })
    }

    /// Sets what to do if a live message has the key already; by default the put is refused.
    pub fn on_conflict(self, on_conflict: OnConflict) -> PutOne {
        self.set(|put| {
            put.on_conflict = on_conflict;
            Ok(())
        })
    }

    /// Replaces the message that has the key: the old one is removed. For debouncing.
    pub fn replace(self) -> PutOne {
        self.on_conflict(OnConflict::Replace)
    }

    /// Keeps the message that has the key; the earlier of the two instants wins.
    pub fn keep(self) -> PutOne {
        self.on_conflict(OnConflict::Keep)
    }

    /// Adds a header. If a name is repeated, the last value is used. Names are case-sensitive, except
    /// `content-type`, which is always stored in lower case.
    pub fn header(self, name: &str, value: &str) -> PutOne {
        self.headers([(name, value)])
    }

    /// Adds headers, of pairs or of a map of texts: 16 KiB in all with names and values. See
    /// [`header`](PutOne::header).
    pub fn headers<N, V>(self, headers: impl IntoIterator<Item = (N, V)>) -> PutOne
    where
        N: AsRef<str>,
        V: AsRef<str>,
    {
        self.set(|put| {
            let more: Vec<(N, V)> = headers.into_iter().collect();
            let mut all: Vec<(&str, &str)> = put.headers.iter().collect();
            for (name, value) in &more {
                let name = name.as_ref();
                let is_content_type = name.eq_ignore_ascii_case(CONTENT_TYPE);
                all.push((if is_content_type { CONTENT_TYPE } else { name }, value.as_ref()));
            }
            put.headers = Headers::new(all)?;
            Ok(())
        })
    }

    /// Sets its priority among messages that are already due: smaller first, 1,024 by default.
    pub fn priority(self, priority: u32) -> PutOne {
        self.set(|put| {
            put.priority = priority;
            Ok(())
        })
    }

    /// Sets the length of its leases, over the queue's setting. A part of a millisecond counts as a whole
    /// one.
    pub fn lease(self, lease: Duration) -> PutOne {
        self.set(|put| {
            put.lease_ms = Some(whole_ms(lease));
            Ok(())
        })
    }

    /// Sets the number of attempts before it is dead, over the queue's setting: a number from 1 on, or
    /// [`AttemptLimit::Unlimited`].
    pub fn max_attempts<T>(self, limit: T) -> PutOne
    where
        T: TryInto<AttemptLimit>,
        Invalid: From<T::Error>,
    {
        self.set(|put| {
            put.max_attempts = Some(limit.try_into().map_err(Invalid::from)?);
            Ok(())
        })
    }

    /// Sets the instant, after due, past which it is dead unless it is leased.
    pub fn expires<T>(self, expires: T) -> PutOne
    where
        T: TryInto<Timestamp>,
        Invalid: From<T::Error>,
    {
        self.set(|put| {
            put.expires = Some(expires.try_into().map_err(Invalid::from)?);
            Ok(())
        })
    }

    /// Makes the put safe to repeat: for the queue's `idempotency_ttl` (10 minutes by default) the same key
    /// gets the same answer, and nothing is put again. 1 to 256 characters of visible ASCII.
    pub fn idempotency_key<T>(self, key: T) -> PutOne
    where
        T: TryInto<IdempotencyKey>,
        Invalid: From<T::Error>,
    {
        self.set(|put| {
            put.idempotency_key = Some(key.try_into().map_err(Invalid::from)?);
            Ok(())
        })
    }

    /// Puts the message, and blocks until it is answered. Not on a thread of an async runtime: it may hang for
    /// ever there, see [`blocking`](crate::blocking).
    ///
    /// # Errors
    /// As [`Store::put`] for one item.
    pub fn call(self) -> Result<PutAnswer> {
        block_on(self.into_future())
    }
}

impl IntoFuture for PutOne {
    type Output = Result<PutAnswer>;
    type IntoFuture = BoxFuture<'static, Result<PutAnswer>>;

    fn into_future(self) -> BoxFuture<'static, Result<PutAnswer>> {
        Box::pin(async move { super::only(self.store.put(vec![self.put?]).await) })
    }
}

impl fmt::Debug for PutOne {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PutOne").field("put", &self.put).finish_non_exhaustive()
    }
}

/// One item of [`Queue::put_many`]: a body, a body with options ([`PutOne`]), or a [`Put`] of the contract.
pub trait IntoPut {
    /// The put, into `queue` unless the item names another.
    ///
    /// # Errors
    /// The first invalid value.
    fn into_put(self, queue: &Queue) -> Result<Put>;
}

impl<B: IntoBody> IntoPut for B {
    fn into_put(self, queue: &Queue) -> Result<Put> {
        self.into_body()?.into_put(queue.name().clone())
    }
}

impl IntoPut for PutOne {
    fn into_put(self, _queue: &Queue) -> Result<Put> {
        self.put
    }
}

impl IntoPut for Put {
    fn into_put(self, _queue: &Queue) -> Result<Put> {
        Ok(self)
    }
}

/// Messages to be put together: when this is awaited, or when [`call`](PutMany::call) is called.
///
/// There is one answer per item, in their order ([`Answers`]): an item that is refused fails alone. If there
/// are more than one call of the store may have ([`Limits::batch`](dwell_model::Limits::batch)), they are
/// sent in several, one after the other.
#[must_use = "nothing is put before this is awaited or called"]
pub struct PutMany {
    store: Arc<dyn Store>,
    puts: Vec<Put>,
    /// Items that were refused before a call of the store, by their indexes among all.
    refused: Vec<(usize, Error)>,
}

impl PutMany {
    pub(super) fn new<P: IntoPut>(queue: &Queue, items: impl IntoIterator<Item = P>) -> PutMany {
        let (mut puts, mut refused) = (Vec::new(), Vec::new());
        for (place, item) in items.into_iter().enumerate() {
            match item.into_put(queue) {
                Ok(put) => puts.push(put),
                Err(refusal) => refused.push((place, refusal)),
            }
        }
        PutMany { store: Arc::clone(queue.store()), puts, refused }
    }

    /// Puts the messages, and blocks until they are answered. Not on a thread of an async runtime: it may hang for
    /// ever there, see [`blocking`](crate::blocking).
    pub fn call(self) -> Answers<PutAnswer> {
        block_on(self.into_future())
    }
}

impl IntoFuture for PutMany {
    type Output = Answers<PutAnswer>;
    type IntoFuture = BoxFuture<'static, Answers<PutAnswer>>;

    fn into_future(self) -> BoxFuture<'static, Answers<PutAnswer>> {
        Box::pin(async move {
            let PutMany { store, puts, refused } = self;
            Answers::from(with_refused(in_batches(&*store, puts).await, refused))
        })
    }
}

/// Puts all of `puts`, in as many calls as the store's limit requires.
async fn in_batches(store: &dyn Store, puts: Vec<Put>) -> Vec<Result<PutAnswer>> {
    let batch = store.limits().batch.max(1);
    if (1..=batch).contains(&puts.len()) {
        return store.put(puts).await;
    }
    let mut answers = Vec::with_capacity(puts.len());
    let mut puts = puts.into_iter();
    loop {
        let some: Vec<Put> = puts.by_ref().take(batch).collect();
        if some.is_empty() {
            return answers;
        }
        answers.extend(store.put(some).await);
    }
}

/// All answers in the order of the items: those of the store, and the refusals at their indexes.
fn with_refused(answers: Vec<Result<PutAnswer>>, refused: Vec<(usize, Error)>) -> Vec<Result<PutAnswer>> {
    if refused.is_empty() {
        return answers;
    }
    let items = answers.len() + refused.len();
    let mut answers = answers.into_iter();
    let mut refused = refused.into_iter().peekable();
    let answer = |place| match refused.next_if(|(refused, _)| *refused == place) {
        Some((_, refusal)) => Some(Err(refusal)),
        None => answers.next(),
    };
    (0..items).filter_map(answer).collect()
}

impl fmt::Debug for PutMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PutMany")
            .field("puts", &self.puts.len())
            .field("refused", &self.refused)
            .finish_non_exhaustive()
    }
}

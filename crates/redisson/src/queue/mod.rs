//! The delayed queue as Java has it: `RDelayedQueue` for pending elements, `RBlockingQueue` for due ones.
//!
//! # Layout
//! - `debounce`: replaces equal pending elements by one
//! - `take`: takes from the destination
//! - `walk`: walks along the pending list

mod debounce;
mod take;
mod walk;

use dwell_model::{Invalid, Timestamp};
use dwell_redis::{AddressKind, Link};

use self::walk::{QueuePosition, QueueWalk};
use super::blocking::Blocking;
use super::codec::Codec;
use super::element::{self, Layout};
use super::error::Error;
use super::keys::Keys;
use super::script::{self, Script, decimal};

/// When an element is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// This many milliseconds after the offer, on the server's clock.
    In(u64),
    /// At this instant; a past one is due at once.
    At(Timestamp),
}

/// The result of an offer under the caller's own id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// It is pending.
    New {
        /// Its due instant.
        due: Timestamp,
    },
    /// It is pending, and replaces the element that was pending under this id.
    Replaced {
        /// Its due instant.
        due: Timestamp,
    },
    /// An offer under this id is already known: nothing was offered.
    Known {
        /// The due instant of the known one; `None` if it is no longer pending.
        due: Option<Timestamp>,
    },
}

/// The result of a debounce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debounced {
    /// The number of pending elements that were removed.
    pub taken_out: usize,
    /// The due instant of the new element.
    pub due: Timestamp,
}

/// An element that was set aside, since Java's transfer script would fail at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// Its original bytes.
    pub packed: Vec<u8>,
    /// Its score and the reason: `1763740800000 undecodable`.
    pub why: String,
}

/// How long an id is remembered after its element is due, so that a repeated offer does no harm.
pub const REMEMBER_MS: u64 = 10 * 60 * 1000;

/// The number of elements per page of a walk over the queue.
const PAGE: usize = 250;

/// A queue on Redisson's own keys, shared with Java clients.
///
/// Instants and delays refer to Redis' clock. Due elements are moved only by a [`Mover`](super::Mover) or a Java client
/// that holds this delayed queue.
pub struct DelayedQueue<C> {
    link: Link,
    keys: Keys,
    codec: C,
    layout: Layout,
    blocking: Blocking,
}

impl<C: Codec> DelayedQueue<C> {
    /// Creates a queue with these keys. Does not contact Redis.
    pub fn new(link: Link, keys: Keys, codec: C) -> DelayedQueue<C> {
        DelayedQueue { link, keys, codec, layout: Layout::New, blocking: Blocking::default() }
    }

    /// Offers elements in the old layout, for Java clients up to 3.21.0.
    pub fn with_layout(mut self, layout: Layout) -> DelayedQueue<C> {
        self.layout = layout;
        self
    }

    /// The queue's keys.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Offers a value. Returns its due instant.
    ///
    /// # Errors
    /// [`Error::Invalid`] past the year 9999, [`Error::Value`]. After [`Error::OutcomeUnknown`] a repeat may offer the
    /// value twice; [`offer_as`](DelayedQueue::offer_as) avoids that.
    pub async fn offer(&self, value: &C::Value, when: When) -> Result<Timestamp, Error> {
        let dues = self.offer_packed(&[(self.pack(value)?, when)]).await?;
        dues.first().copied().ok_or_else(|| odd("an offer without an instant"))
    }

    /// Offers many values atomically, in their order.
    ///
    /// # Errors
    /// As [`offer`](DelayedQueue::offer).
    pub async fn offer_many(&self, values: &[(C::Value, When)]) -> Result<Vec<Timestamp>, Error> {
        if values.is_empty() {
            return Ok(Vec::new());
        }
        let packed: Result<Vec<_>, Error> =
            values.iter().map(|(value, when)| Ok((self.pack(value)?, *when))).collect();
        self.offer_packed(&packed?).await
    }

    /// Offers a value under an id, once: a repeat offers nothing while the id is known.
    ///
    /// The id is known until [`REMEMBER_MS`] after the instant, even if the element is delivered or removed meanwhile.
    ///
    /// # Errors
    /// As [`offer`](DelayedQueue::offer); after [`Error::OutcomeUnknown`] a repeat is safe.
    pub async fn offer_as(&self, id: &str, value: &C::Value, when: When) -> Result<Offered, Error> {
        self.offer_under(id, value, when, "keep").await
    }

    /// Debounces by id: replaces the element that is pending under the id by this one, atomically.
    ///
    /// It costs an offer, and a search of the pending list from its end.
    ///
    /// # Errors
    /// As [`offer_as`](DelayedQueue::offer_as).
    pub async fn replace_as(&self, id: &str, value: &C::Value, when: When) -> Result<Offered, Error> {
        self.offer_under(id, value, when, "replace").await
    }

    /// Removes the element that was offered under an id, and forgets the id. Returns whether it was pending.
    ///
    /// # Errors
    /// Connection errors.
    pub async fn cancel_as(&self, id: &str) -> Result<bool, Error> {
        let keys = [self.keys.pending(), self.keys.timeouts(), self.keys.offer(id)];
        Ok(self.call::<i64>(&script::CANCEL_AS, &keys, &[]).await? == 1)
    }

    /// Debounces by value: replaces every pending element with the same bytes by this one, whoever offered it.
    ///
    /// The pending list is read first, in pages. Of several equal elements, all but the one that was offered last are
    /// removed next, a few per script. One atomic step replaces that one, and checks what was offered since. So at
    /// least one element is pending at all times, unless it became due. Each removal costs a search of the list: for a
    /// queue of more than about ten thousand elements, prefer [`replace_as`](DelayedQueue::replace_as).
    ///
    /// # Errors
    /// As [`offer`](DelayedQueue::offer). Some of several equal elements, but not the last one, may then be removed.
    pub async fn debounce(&self, value: &C::Value, when: When) -> Result<Debounced, Error> {
        self.replace_equal(&self.codec.encode(value)?, when).await
    }

    /// Removes the first pending element with this value, like Java's `remove(o)`.
    ///
    /// # Errors
    /// Codec and connection errors.
    pub async fn remove(&self, value: &C::Value) -> Result<bool, Error> {
        let payload = self.codec.encode(value)?;
        Ok(self.walk(&[payload], QueueWalk::TakeFirst).await? > 0)
    }

    /// Removes all pending elements with one of these values, like Java's `removeAll`. Returns their number.
    ///
    /// # Errors
    /// Codec and connection errors; some elements may then be removed.
    pub async fn remove_all(&self, values: &[C::Value]) -> Result<usize, Error> {
        let payloads: Result<Vec<_>, Error> = values.iter().map(|value| self.codec.encode(value)).collect();
        self.walk(&payloads?, QueueWalk::TakeAll).await
    }

    /// Whether an element with this value is pending.
    ///
    /// # Errors
    /// Codec and connection errors.
    pub async fn contains(&self, value: &C::Value) -> Result<bool, Error> {
        let payload = self.codec.encode(value)?;
        Ok(self.walk(&[payload], QueueWalk::Find).await? > 0)
    }

    /// The number of pending elements: the length of Redisson's list, as Java counts.
    ///
    /// # Errors
    /// Connection errors.
    pub async fn size(&self) -> Result<usize, Error> {
        self.ask(redis::cmd("LLEN").arg(self.keys.pending())).await
    }

    /// The number of payloads at the destination.
    ///
    /// # Errors
    /// Connection errors.
    pub async fn ready_size(&self) -> Result<usize, Error> {
        self.ask(redis::cmd("LLEN").arg(self.keys.ready())).await
    }

    /// Reads all pending values, in the order in which they were offered.
    ///
    /// Reads in pages: an element that is offered or removed meanwhile may be included or not; an element that is
    /// pending all the time is included once.
    ///
    /// # Errors
    /// [`Error::Value`] at the first element that cannot be read.
    pub async fn read_all(&self) -> Result<Vec<C::Value>, Error> {
        let (mut values, mut place) = (Vec::new(), QueuePosition::default());
        loop {
            let (is_end, page) = self.find(&mut place, &[]).await?;
            if place.is_first() && !is_end {
                values.clear();
            }
            for packed in &page {
                values.push(self.value_of(packed)?);
            }
            if is_end {
                return Ok(values);
            }
        }
    }

    /// Reads the pending value that was offered first, like Java's `peek`: not the one that is due first.
    ///
    /// # Errors
    /// [`Error::Value`] if it cannot be read.
    pub async fn peek(&self) -> Result<Option<C::Value>, Error> {
        let first: Option<Vec<u8>> = self.ask(redis::cmd("LINDEX").arg(self.keys.pending()).arg(0)).await?;
        first.map(|packed| self.value_of(&packed)).transpose()
    }

    /// Removes up to `max` pending values, first offered first, due or not, like Java's `poll(limit)`.
    ///
    /// An element that cannot be read stays in the queue, and ends the call.
    ///
    /// # Errors
    /// [`Error::Value`] if the first one cannot be read.
    pub async fn poll(&self, max: usize) -> Result<Vec<C::Value>, Error> {
        let mut values = Vec::new();
        while values.len() < max {
            let first: Option<Vec<u8>> =
                self.ask(redis::cmd("LINDEX").arg(self.keys.pending()).arg(0)).await?;
            let Some(packed) = first else { break };
            match self.value_of(&packed) {
                // Another client may have removed it between the two calls.
                Ok(value) if self.take_out(vec![packed]).await? == 1 => values.push(value),
                Ok(_) => {}
                Err(error) if values.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        Ok(values)
    }

    /// Removes all pending elements, like Java's `clear`. Due elements that were moved stay.
    ///
    /// # Errors
    /// Connection errors.
    pub async fn clear(&self) -> Result<(), Error> {
        self.call::<usize>(&script::CLEAR, &[self.keys.pending(), self.keys.timeouts()], &[]).await.map(drop)
    }

    /// Takes one due value from the destination, and waits for it up to `wait_ms`, like Java's `poll(timeout)`.
    ///
    /// Destructive, as in Java: a value is gone when Redis hands it out, even if this process dies before it reads it,
    /// if the future is dropped, or if the codec refuses it. [`Consumer`](super::Consumer) takes with a lease. On a
    /// cluster it polls four times a second instead of blocking at the server.
    ///
    /// # Errors
    /// Codec and connection errors.
    pub async fn take(&self, wait_ms: u64) -> Result<Option<C::Value>, Error> {
        let payload = match self.link.address().kind() {
            AddressKind::Cluster => self.take_by_asking(wait_ms).await?,
            _ => self.take_blocking(wait_ms).await?,
        };
        payload.map(|payload| self.codec.decode(&payload)).transpose()
    }

    /// Returns up to `max` of the elements that were set aside.
    ///
    /// # Errors
    /// Connection errors.
    pub async fn set_aside(&self, max: usize) -> Result<Vec<SetAside>, Error> {
        let mut found = Vec::new();
        let mut cursor = 0_u64;
        loop {
            let (next, page): (u64, Vec<(Vec<u8>, String)>) = self
                .ask(redis::cmd("HSCAN").arg(self.keys.set_aside()).arg(cursor).arg("COUNT").arg(PAGE))
                .await?;
            found.extend(page.into_iter().map(|(packed, why)| SetAside { packed, why }));
            cursor = next;
            if cursor == 0 || found.len() >= max {
                found.truncate(max);
                return Ok(found);
            }
        }
    }

    async fn offer_under(
        &self,
        id: &str,
        value: &C::Value,
        when: When,
        policy: &str,
    ) -> Result<Offered, Error> {
        let [kind, ms] = arguments(when);
        let [pending, timeouts, channel] = self.offer_keys();
        let keys = [pending, timeouts, channel, self.keys.offer(id)];
        let rest = [kind, ms, self.pack(value)?, policy.as_bytes().to_vec(), decimal(REMEMBER_MS)];
        let (became, due): (String, String) = self.call(&script::OFFER_AS, &keys, &rest).await?;
        match (became.as_str(), due.as_str()) {
            ("known", "") => Ok(Offered::Known { due: None }),
            ("known", due) => Ok(Offered::Known { due: Some(instant(due)?) }),
            ("replaced", due) => Ok(Offered::Replaced { due: instant(due)? }),
            (_, due) => Ok(Offered::New { due: instant(due)? }),
        }
    }

    async fn offer_packed(&self, packed: &[(Vec<u8>, When)]) -> Result<Vec<Timestamp>, Error> {
        let triples = packed.iter().flat_map(|(packed, when)| {
            let [kind, ms] = arguments(*when);
            [kind, ms, packed.clone()]
        });
        let triples: Vec<_> = triples.collect();
        let dues: Vec<String> = self.call(&script::OFFER, &self.offer_keys(), &triples).await?;
        dues.iter().map(|due| instant(due)).collect()
    }

    fn offer_keys(&self) -> [String; 3] {
        [self.keys.pending(), self.keys.timeouts(), self.keys.channel()]
    }

    fn pack(&self, value: &C::Value) -> Result<Vec<u8>, Error> {
        Ok(element::pack(self.layout, &self.codec.encode(value)?))
    }

    fn value_of(&self, packed: &[u8]) -> Result<C::Value, Error> {
        let element = element::decode(packed);
        let element =
            element.map_err(|error| Error::Value { codec: "element", reason: format!("found {error}") })?;
        self.codec.decode(element.payload)
    }

    async fn call<T: redis::FromRedisValue>(
        &self,
        script: &Script,
        keys: &[String],
        arguments: &[Vec<u8>],
    ) -> Result<T, Error> {
        script.call(&self.link, &self.keys, keys, arguments).await.map_err(|error| self.error(&error))
    }

    async fn ask<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> Result<T, Error> {
        self.link.ask(command).await.map_err(|error| self.error(&error))
    }

    fn error(&self, error: &redis::RedisError) -> Error {
        Error::of(self.keys.name(), error)
    }
}

fn arguments(when: When) -> [Vec<u8>; 2] {
    match when {
        When::In(delay_ms) => [b"in".to_vec(), decimal(delay_ms)],
        When::At(at) => [b"at".to_vec(), decimal(at.as_ms())],
    }
}

/// Parses an instant as a script writes it.
fn instant(text: &str) -> Result<Timestamp, Error> {
    // Java may have written a score with a fraction or out of range.
    let ms: f64 = text.parse().map_err(|_| odd("an instant that is no number"))?;
    Timestamp::from_ms(ms as i64).map_err(|_| Error::Invalid(Invalid::DueOutOfRange { ms: ms as i64 }))
}

fn odd(what: &str) -> Error {
    Error::Refused { reason: format!("a script answered {what}") }
}

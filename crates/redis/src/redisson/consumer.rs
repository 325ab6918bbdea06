//! The reliable consumer: takes with a lease, where Java's takes are destructive.
//!
//! A payload goes from the destination into a lease in one script; it is gone only when it is acked. A lease that
//! runs out gives the payload back to the front of the destination, for Rust and Java consumers alike. Waiting
//! happens in `BLMOVE` to an inbox that all consumers share and empty first: whoever dies between the two leaves
//! the payload there for the next.
//!
//! At the destination a payload has no id. So attempts are counted by the payload's digest: equal payloads share
//! their count, and it is forgotten a day after the last failure.

use std::fmt::Write as _;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

use dwell_model::Timestamp;
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};
use tokio::sync::Mutex;

use super::element::{self, Layout};
use super::error::Error;
use super::keys::Keys;
use super::script::{self, decimal};
use crate::{Kind, Link};

/// How often a payload may fail before it is dead, unless told otherwise.
pub const DEFAULT_MAX_ATTEMPTS: u32 = 10;

/// How long a consumer waits at the server before it looks at inbox and leases again.
const LOOK_MS: u64 = 1_000;

/// A payload that is leased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// What the codec wrote.
    pub payload: Vec<u8>,
    /// Proves the lease.
    pub token: String,
    /// The first delivery is 1.
    pub attempt: u32,
    /// When the lease runs out, by Redis' clock.
    pub deadline: Timestamp,
}

/// What became of a settled payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It is gone.
    Acked,
    /// Its lease is longer.
    Extended,
    /// It is back at the destination.
    Ready,
    /// It is pending again.
    Scheduled,
    /// Its attempts are spent, or it was buried.
    Dead,
    /// The lease was not in force: it ran out or was settled. Nothing changed.
    LeaseLost,
}

/// A payload whose attempts are spent, or that was buried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// What the codec wrote.
    pub payload: Vec<u8>,
    /// How often it failed.
    pub attempts: u32,
    /// Why, in the words of whoever failed last.
    pub reason: String,
}

/// Takes from a destination with leases.
pub struct Consumer {
    link: Link,
    keys: Keys,
    layout: Layout,
    max_attempts: u32,
    blocking: Mutex<Option<MultiplexedConnection>>,
}

impl Consumer {
    /// A consumer of the queue with these keys, with [`DEFAULT_MAX_ATTEMPTS`].
    pub fn new(link: Link, keys: Keys) -> Consumer {
        Consumer {
            link,
            keys,
            layout: Layout::New,
            max_attempts: DEFAULT_MAX_ATTEMPTS,
            blocking: Mutex::default(),
        }
    }

    /// After how many failed attempts a payload is dead; 0 for never. All consumers and movers of a queue should
    /// be told the same.
    pub fn with_max_attempts(mut self, max_attempts: u32) -> Consumer {
        self.max_attempts = max_attempts;
        self
    }

    /// Offers retries in the old layout, for a fleet of Java clients up to 3.21.0.
    pub fn with_layout(mut self, layout: Layout) -> Consumer {
        self.layout = layout;
        self
    }

    /// Leases up to `max` payloads for `lease_ms`; waits up to `wait_ms` for the first. Also ends leases that ran
    /// out. Dropped, it loses nothing: what it had leased comes back when the lease runs out.
    ///
    /// # Errors
    /// [`Error::WrongType`], and those of the connection.
    pub async fn claim(&self, max: usize, wait_ms: u64, lease_ms: u64) -> Result<Vec<Claimed>, Error> {
        let mut left_ms = wait_ms;
        loop {
            let (claimed, _) = self.claim_now(max.max(1), lease_ms).await?;
            if !claimed.is_empty() || left_ms == 0 {
                return Ok(claimed);
            }
            let wait_ms = left_ms.min(LOOK_MS);
            self.wait(wait_ms).await?;
            left_ms -= wait_ms;
        }
    }

    /// Ends the work on a payload: it is gone.
    ///
    /// # Errors
    /// Those of the connection; [`Settled::LeaseLost`] is an answer.
    pub async fn ack(&self, token: &str) -> Result<Settled, Error> {
        self.settle(token, "ack", &[]).await
    }

    /// Moves a lease's deadline to `lease_ms` from now.
    ///
    /// # Errors
    /// As [`ack`](Consumer::ack).
    pub async fn extend(&self, token: &str, lease_ms: u64) -> Result<Settled, Error> {
        self.settle(token, "extend", &[decimal(lease_ms)]).await
    }

    /// Gives a payload back to the front of the destination, without counting an attempt.
    ///
    /// # Errors
    /// As [`ack`](Consumer::ack).
    pub async fn release(&self, token: &str) -> Result<Settled, Error> {
        self.settle(token, "release", &[]).await
    }

    /// Counts a failed attempt: the payload is pending again for `delay_ms`, at the front of the destination for
    /// 0, or dead if it was the last attempt.
    ///
    /// # Errors
    /// As [`ack`](Consumer::ack).
    pub async fn retry(&self, claimed: &Claimed, delay_ms: u64, reason: &str) -> Result<Settled, Error> {
        let packed = element::pack(self.layout, &claimed.payload);
        let rest = [decimal(delay_ms), decimal(self.max_attempts), plain(reason), packed];
        self.settle(&claimed.token, "retry", &rest).await
    }

    /// Makes a payload dead.
    ///
    /// # Errors
    /// As [`ack`](Consumer::ack).
    pub async fn bury(&self, token: &str, reason: &str) -> Result<Settled, Error> {
        self.settle(token, "bury", &[plain(reason)]).await
    }

    /// Dead letters, the oldest first, from `skip` on.
    ///
    /// # Errors
    /// Those of the connection.
    pub async fn dead(&self, skip: usize, max: usize) -> Result<Vec<DeadLetter>, Error> {
        if max == 0 {
            return Ok(Vec::new());
        }
        let mut command = redis::cmd("LRANGE");
        command.arg(self.keys.dead()).arg(skip).arg(skip + max - 1);
        let letters: Vec<Vec<u8>> = self.link.ask(&command).await.map_err(|error| self.error(&error))?;
        Ok(letters.iter().filter_map(|letter| dead_letter(letter)).collect())
    }

    /// Puts up to `max` dead letters back to the end of the destination, the oldest first. How many.
    ///
    /// # Errors
    /// Those of the connection.
    pub async fn revive(&self, max: usize) -> Result<usize, Error> {
        let keys = [self.keys.ready().to_owned(), self.keys.dead()];
        let revived = script::REVIVE.call(&self.link, &keys, &[decimal(max)]).await;
        revived.map_err(|error| self.error(&error))
    }

    async fn claim_now(&self, max: usize, lease_ms: u64) -> Result<(Vec<Claimed>, usize), Error> {
        let tokens = (0..max.min(1_000)).map(|_| token().into_bytes());
        let arguments: Vec<_> =
            [decimal(lease_ms), decimal(self.max_attempts)].into_iter().chain(tokens).collect();
        let reply: Vec<Value> = script::CLAIM
            .call(&self.link, &keys(&self.keys), &arguments)
            .await
            .map_err(|error| self.error(&error))?;
        let odd = || Error::Refused { reason: "a claim was answered in another form".to_owned() };
        let (head, leased) = reply.split_at_checked(2).ok_or_else(odd)?;
        let reaped = redis::from_redis_value(head[1].clone()).map_err(|_| odd())?;
        let mut claimed = Vec::with_capacity(leased.len() / 4);
        for four in leased.chunks_exact(4) {
            let read = || -> Option<Claimed> {
                let deadline: String = redis::from_redis_value(four[2].clone()).ok()?;
                Some(Claimed {
                    token: redis::from_redis_value(four[0].clone()).ok()?,
                    attempt: redis::from_redis_value(four[1].clone()).ok()?,
                    deadline: Timestamp::from_ms(deadline.parse().ok()?).ok()?,
                    payload: redis::from_redis_value(four[3].clone()).ok()?,
                })
            };
            claimed.push(read().ok_or_else(odd)?);
        }
        Ok((claimed, reaped))
    }

    /// Waits until something is in the inbox, or for `wait_ms`.
    async fn wait(&self, wait_ms: u64) -> Result<(), Error> {
        if self.link.address().kind() == Kind::Cluster {
            tokio::time::sleep(Duration::from_millis(wait_ms.min(250))).await;
            return Ok(());
        }
        let mut kept = self.blocking.lock().await;
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => self.link.connect().await.map_err(|error| self.error(&error))?,
        };
        connection.set_response_timeout(Duration::from_millis(wait_ms) + Duration::from_secs(5));
        let mut command = redis::cmd("BLMOVE");
        command.arg(self.keys.ready()).arg(self.keys.inbox()).arg("LEFT").arg("RIGHT");
        command.arg(wait_ms.max(1) as f64 / 1000.0);
        let moved: RedisResult<Value> = command.query_async(&mut connection).await;
        moved.map_err(|error| self.error(&error))?;
        *kept = Some(connection);
        Ok(())
    }

    async fn settle(&self, token: &str, action: &str, rest: &[Vec<u8>]) -> Result<Settled, Error> {
        let mut arguments = vec![token.as_bytes().to_vec(), action.as_bytes().to_vec()];
        arguments.extend_from_slice(rest);
        let state: String = script::SETTLE
            .call(&self.link, &keys(&self.keys), &arguments)
            .await
            .map_err(|error| self.error(&error))?;
        match state.as_str() {
            "acked" => Ok(Settled::Acked),
            "extended" => Ok(Settled::Extended),
            "ready" => Ok(Settled::Ready),
            "scheduled" => Ok(Settled::Scheduled),
            "dead" => Ok(Settled::Dead),
            _ => Ok(Settled::LeaseLost),
        }
    }

    fn error(&self, error: &redis::RedisError) -> Error {
        Error::of(self.keys.name(), error)
    }
}

/// Ends leases that ran out; at most a hundred. How many.
pub(super) async fn reap(link: &Link, of: &Keys, max_attempts: u32) -> Result<usize, Error> {
    let reply: RedisResult<(Value, usize)> =
        script::CLAIM.call(link, &keys(of), &[decimal(1), decimal(max_attempts)]).await;
    reply.map(|(_, reaped)| reaped).map_err(|error| Error::of(of.name(), &error))
}

fn keys(keys: &Keys) -> [String; 9] {
    [
        keys.ready().to_owned(),
        keys.inbox(),
        keys.leases(),
        keys.leased(),
        keys.dead(),
        keys.attempts(),
        keys.pending(),
        keys.timeouts(),
        keys.channel(),
    ]
}

/// 128 bits that no other lease has.
fn token() -> String {
    let mut token = String::with_capacity(32);
    for _ in 0..2 {
        write!(token, "{:016x}", RandomState::new().build_hasher().finish()).expect("a string takes all");
    }
    token
}

/// A reason without the byte that ends it in a dead letter.
fn plain(reason: &str) -> Vec<u8> {
    reason.replace('\0', " ").into_bytes()
}

fn dead_letter(letter: &[u8]) -> Option<DeadLetter> {
    let mut parts = letter.splitn(3, |byte| *byte == 0);
    Some(DeadLetter {
        attempts: std::str::from_utf8(parts.next()?).ok()?.parse().ok()?,
        reason: String::from_utf8_lossy(parts.next()?).into_owned(),
        payload: parts.next()?.to_vec(),
    })
}

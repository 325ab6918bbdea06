//! The reliable consumer: takes with a lease, where Java's takes are destructive.
//!
//! A script moves a payload from the destination into a lease; the payload is removed only when it is acked. When a
//! lease lapses, the payload goes back to the front of the destination, for Rust and Java consumers alike. Waiting uses
//! `BLMOVE` to an inbox that all consumers share and that each empties first: if a consumer dies between the two steps,
//! its payload stays in the inbox for the next one.
//!
//! At the destination a payload has no id. So attempts are counted by the payload's digest: equal payloads share their
//! count, and it is forgotten a day after the last failure.

use dwell_model::{Invalid, Setting, Timestamp};
use dwell_redis::{AddressKind, Link};
use redis::{RedisResult, Value};

use super::blocking::Blocking;
use super::element::{self, Layout};
use super::error::Error;
use super::keys::Keys;
use super::script::{self, decimal};

/// The default number of times that a payload may fail before it is dead.
pub const DEFAULT_MAX_ATTEMPTS: u32 = 10;

/// The maximum time for which a consumer blocks at the server before it checks inbox and leases again, in ms.
const LOOK_MS: u64 = 1_000;
/// The polling interval where a consumer cannot block at the server, in ms.
const ASK_MS: u64 = 250;
/// The number of payloads that one script leases.
const CLAIMED_AT_ONCE: usize = 50;
/// The number of dead letters that one script revives.
const REVIVED_AT_ONCE: usize = 100;
/// The number of leases that one script ends.
const REAPED_AT_ONCE: usize = 100;

/// How long the inbox may be non-empty before a mover gives its payloads back, in ms: the consumer that waited for them
/// has gone by then.
///
/// Any claim takes them at once.
pub const INBOX_MS: u64 = 5_000;

/// A leased payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// The bytes that the codec wrote.
    pub payload: Vec<u8>,
    /// Proof of the lease.
    pub token: String,
    /// The number of this delivery, from 1.
    pub attempt: u32,
    /// The deadline of the lease, on Redis' clock.
    pub deadline: Timestamp,
}

/// The result of settling a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It is removed.
    Acked,
    /// Its lease was extended.
    Extended,
    /// It is back at the destination.
    Ready,
    /// It is pending again.
    Scheduled,
    /// Its attempts are spent, or it was buried.
    Dead,
    /// The lease is not current: it has lapsed or was settled. Nothing changed.
    LeaseLost,
}

/// A payload whose attempts are spent, or that was buried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The bytes that the codec wrote.
    pub payload: Vec<u8>,
    /// The number of times that it failed.
    pub attempts: u32,
    /// The reason given with its last failure.
    pub reason: String,
}

/// Takes from a destination with leases.
pub struct Consumer {
    link: Link,
    keys: Keys,
    layout: Layout,
    max_attempts: u32,
    blocking: Blocking,
}

impl Consumer {
    /// Creates a consumer of the queue with these keys, with [`DEFAULT_MAX_ATTEMPTS`].
    pub fn new(link: Link, keys: Keys) -> Consumer {
        Consumer {
            link,
            keys,
            layout: Layout::New,
            max_attempts: DEFAULT_MAX_ATTEMPTS,
            blocking: Blocking::default(),
        }
    }

    /// Sets the number of failed attempts after which a payload is dead; 0 for no limit.
    ///
    /// All consumers and movers of a queue should have the same value.
    pub fn with_max_attempts(mut self, max_attempts: u32) -> Consumer {
        self.max_attempts = max_attempts;
        self
    }

    /// Offers retries in the old layout, for Java clients up to 3.21.0.
    pub fn with_layout(mut self, layout: Layout) -> Consumer {
        self.layout = layout;
        self
    }

    /// Leases up to `max` payloads for `lease_ms`, 1 to [`Setting::MAX_LEASE_MS`], and waits up to `wait_ms` for the
    /// first.
    ///
    /// It also ends lapsed leases. Dropping the future loses nothing: payloads that it has leased come back when the
    /// leases lapse.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a lease out of range, [`Error::WrongType`], and connection errors.
    pub async fn claim(&self, max: usize, wait_ms: u64, lease_ms: u64) -> Result<Vec<Claimed>, Error> {
        check_lease(lease_ms)?;
        let until_ms = self.blocking.deadline_ms(wait_ms);
        loop {
            let claimed = self.claim_now(max.max(1), lease_ms).await?;
            let now_ms = self.blocking.now_ms();
            if !claimed.is_empty() || now_ms >= until_ms {
                return Ok(claimed);
            }
            self.wait(until_ms.min(now_ms + LOOK_MS)).await?;
        }
    }

    /// Ends the work on a payload, and removes it.
    ///
    /// # Errors
    /// Connection errors; [`Settled::LeaseLost`] is not an error.
    pub async fn ack(&self, token: &str) -> Result<Settled, Error> {
        self.settle(token, "ack", &[]).await
    }

    /// Moves a lease's deadline to `lease_ms` from now, 1 to [`Setting::MAX_LEASE_MS`].
    ///
    /// # Errors
    /// As [`ack`](Consumer::ack), and [`Error::Invalid`] for a lease out of range.
    pub async fn extend(&self, token: &str, lease_ms: u64) -> Result<Settled, Error> {
        check_lease(lease_ms)?;
        self.settle(token, "extend", &[decimal(lease_ms)]).await
    }

    /// Gives a payload back to the front of the destination, without counting an attempt.
    ///
    /// # Errors
    /// As [`ack`](Consumer::ack).
    pub async fn release(&self, token: &str) -> Result<Settled, Error> {
        self.settle(token, "release", &[]).await
    }

    /// Counts a failed attempt, and retries the payload after `delay_ms`.
    ///
    /// With a delay of 0 it goes to the front of the destination. If this was its last attempt, it is dead.
    ///
    /// # Errors
    /// As [`ack`](Consumer::ack), and [`Error::Invalid`] for a delay that ends past the year 9999.
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

    /// Returns up to `max` dead letters, oldest first, from index `skip` on.
    ///
    /// # Errors
    /// Connection errors.
    pub async fn dead(&self, skip: usize, max: usize) -> Result<Vec<DeadLetter>, Error> {
        if max == 0 {
            return Ok(Vec::new());
        }
        let mut command = redis::cmd("LRANGE");
        let last = skip.saturating_add(max - 1).min(i64::MAX as usize);
        command.arg(self.keys.dead()).arg(skip.min(last)).arg(last);
        let letters: Vec<Vec<u8>> = self.link.ask(&command).await.map_err(|error| self.error(&error))?;
        Ok(letters.iter().filter_map(|letter| dead_letter(letter)).collect())
    }

    /// Moves up to `max` dead letters to the end of the destination, oldest first. Returns their number.
    ///
    /// # Errors
    /// Connection errors; some dead letters may then be revived.
    pub async fn revive(&self, max: usize) -> Result<usize, Error> {
        let keys = [self.keys.ready().to_owned(), self.keys.dead()];
        let mut revived = 0;
        while revived < max {
            let at_once = (max - revived).min(REVIVED_AT_ONCE);
            let (some, more): (usize, u8) = script::REVIVE
                .call(&self.link, &self.keys, &keys, &[decimal(at_once), decimal(script::MOST_BYTES)])
                .await
                .map_err(|error| self.error(&error))?;
            revived += some;
            if more == 0 {
                break;
            }
        }
        Ok(revived)
    }

    async fn claim_now(&self, max: usize, lease_ms: u64) -> Result<Vec<Claimed>, Error> {
        let (mut claimed, mut more) = self.claim_some(max.min(CLAIMED_AT_ONCE), lease_ms).await?;
        while claimed.len() < max && more {
            let at_once = (max - claimed.len()).min(CLAIMED_AT_ONCE);
            match self.claim_some(at_once, lease_ms).await {
                Ok((some, _)) if some.is_empty() => break,
                Ok((some, may_go_on)) => {
                    claimed.extend(some);
                    more = may_go_on;
                }
                // The payloads that are already leased are returned.
                Err(_) => break,
            }
        }
        Ok(claimed)
    }

    /// Leases payloads with one script.
    ///
    /// Returns them, and whether there may be more: the script has a limit in bytes too.
    async fn claim_some(&self, max: usize, lease_ms: u64) -> Result<(Vec<Claimed>, bool), Error> {
        let tokens = (0..max).map(|_| token().into_bytes());
        let first = [decimal(lease_ms), decimal(self.max_attempts), decimal(script::MOST_BYTES)];
        let arguments: Vec<_> = first.into_iter().chain(tokens).collect();
        let reply: Vec<Value> = script::CLAIM
            .call(&self.link, &self.keys, &keys(&self.keys), &arguments)
            .await
            .map_err(|error| self.error(&error))?;
        let odd = || Error::Refused { reason: "a claim was answered in another form".to_owned() };
        let Some((first, leased)) = reply.split_at_checked(2) else { return Err(odd()) };
        let was_cut = first[1] == Value::Int(1);
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
        let more = was_cut || claimed.len() == max;
        Ok((claimed, more))
    }

    /// Waits until a payload is in the inbox, which another consumer may empty first, or until `until_ms`.
    async fn wait(&self, until_ms: u64) -> Result<(), Error> {
        let soon_ms = until_ms.min(self.blocking.now_ms() + ASK_MS);
        if self.link.address().kind() == AddressKind::Cluster {
            tokio::time::sleep(self.blocking.left(soon_ms)).await;
            return Ok(());
        }
        let seat = self.blocking.sit(&self.link, soon_ms).await.map_err(|error| self.error(&error))?;
        let Some(seat) = seat else { return Ok(()) };
        let mut command = redis::cmd("BLMOVE");
        command.arg(self.keys.ready()).arg(self.keys.inbox()).arg("LEFT").arg("RIGHT");
        match seat.wait::<Value>(&mut command, until_ms).await {
            Ok(_) => {}
            // A Redis that is out of memory refuses the blocking command, but still allows claims.
            Err(error) if error.code() == Some("OOM") => {
                tokio::time::sleep(self.blocking.left(soon_ms)).await;
            }
            Err(error) => return Err(self.error(&error)),
        }
        Ok(())
    }

    async fn settle(&self, token: &str, action: &str, rest: &[Vec<u8>]) -> Result<Settled, Error> {
        let mut arguments = vec![token.as_bytes().to_vec(), action.as_bytes().to_vec()];
        arguments.extend_from_slice(rest);
        let state: String = script::SETTLE
            .call(&self.link, &self.keys, &keys(&self.keys), &arguments)
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

/// The payloads that were given back to the destination, or are now dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reaped {
    /// The number of leases that were ended and of payloads from the inbox.
    pub(super) count: usize,
    /// Whether there may be more.
    pub(super) more: bool,
}

/// Ends lapsed leases, and gives back the payloads of an inbox that has been non-empty for `inbox_ms`; at most a
/// hundred of each.
pub(super) async fn reap(link: &Link, of: &Keys, max_attempts: u32, inbox_ms: u64) -> Result<Reaped, Error> {
    let arguments =
        [max_attempts.into(), inbox_ms, REAPED_AT_ONCE as u64, script::MOST_BYTES as u64].map(decimal);
    let reply: RedisResult<(usize, usize, u8)> = script::REAP.call(link, of, &keys(of), &arguments).await;
    let (ended, given, more) = reply.map_err(|error| Error::of(of.name(), &error))?;
    Ok(Reaped { count: ended + given, more: more == 1 })
}

fn check_lease(lease_ms: u64) -> Result<(), Error> {
    if (1..=Setting::MAX_LEASE_MS).contains(&lease_ms) {
        return Ok(());
    }
    let reason = format!("a lease has 1 to {} ms, not {lease_ms}", Setting::MAX_LEASE_MS);
    Err(Invalid::InvalidSetting { setting: "lease_ms", reason: reason.into() }.into())
}

fn keys(keys: &Keys) -> [String; 10] {
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
        keys.inbox_since(),
    ]
}

/// A random token of 128 bits, unique to a lease.
fn token() -> String {
    format!("{:016x}{:016x}", script::random(), script::random())
}

/// A reason without the byte that terminates it in a dead letter.
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

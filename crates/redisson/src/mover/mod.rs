//! The mover: moves due elements to the destination, whether or not a Java client is alive.
//!
//! Java moves due elements only while some process holds the delayed queue object and is subscribed to its channel.
//! This mover needs neither: it sleeps until the first instant, treats the channel as a hint, and checks again at each
//! sweep. Every step is one script, so any number of movers, including those of Java, can run concurrently.
//!
//! # Layout
//! - `pace`: limits the load on Redis
//! - `mend`: fixes elements that would jam Java's script, before they are due

mod mend;
mod pace;

use std::pin::pin;
use std::time::Duration;

use dwell_model::Timestamp;
use dwell_redis::{Ear, Link};
use futures_util::future::{Either, select};

pub use self::mend::Mended;
use self::mend::Mender;
use self::pace::{MoverPace, PaceReport};
use super::consumer;
use super::element::Layout;
use super::error::Error;
use super::keys::Keys;
use super::script::{self, decimal};

/// The options of a [`Mover`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoverOptions {
    /// The interval at which it checks the queue without a notification, in ms. A lost notification costs at most this.
    pub sweep_ms: u64,
    /// The target for the time of one script in Redis, in µs. The batch size is derived from it.
    pub budget_us: u64,
    /// The maximum number of elements that one script moves.
    pub batch_max: usize,
    /// The layout of the Java clients. Elements of the other layout are rewritten before they are due.
    ///
    /// The wrong layout jams Java's movers. With `None` no element is rewritten, and each is moved as it is.
    pub layout: Option<Layout>,
    /// The number of lapsed leases of [`Consumer`](super::Consumer) after which a payload is dead; 0 for no limit.
    pub max_attempts: u32,
}

impl Default for MoverOptions {
    /// A sweep per second, 2 ms and 500 elements per script, nothing rewritten, 10 attempts.
    fn default() -> MoverOptions {
        MoverOptions {
            sweep_ms: 1_000,
            budget_us: 2_000,
            batch_max: 500,
            layout: None,
            max_attempts: consumer::DEFAULT_MAX_ATTEMPTS,
        }
    }
}

/// The result of one script of a mover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveResult {
    /// The number of elements moved to the destination.
    pub moved: usize,
    /// The number of elements set aside.
    pub set_aside: usize,
    /// The due instant of the next element, if its score is a valid instant.
    pub next: Option<Timestamp>,
    /// The server's clock, in ms since 1970.
    pub now_ms: i64,
    /// Whether more elements may be due.
    pub more: bool,
    /// The total size of the packed elements in bytes.
    pub bytes: usize,
    /// The approximate time that it took in Redis, in µs.
    pub spent_us: u64,
}

/// An event of a running mover.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// It has subscribed to the queue's channel.
    Listening,
    /// It moved or set aside elements.
    Moved(MoveResult),
    /// It fixed elements that are not due yet.
    Mended(Mended),
    /// This many leases of [`Consumer`](super::Consumer) have lapsed, or payloads of its inbox were given back.
    Reaped(usize),
    /// An error. The mover continues after a pause.
    Failure(Error),
}

/// Moves the due elements of one queue.
pub struct Mover {
    link: Link,
    keys: Keys,
    options: MoverOptions,
    pace: MoverPace,
    mender: Mender,
}

/// The script's reply.
type MoveReply = (usize, usize, String, i64, u8, i64, usize, u64, Vec<u8>, u8, u8);

/// The state of the queue that a mover sees when it moves elements.
struct Look {
    moved: MoveResult,
    /// A fingerprint that changes when an element is offered or removed: lengths, and the first and last elements.
    signs: Vec<u8>,
    /// Whether nothing is pending.
    is_empty: bool,
    /// Whether there are leases, or payloads in the inbox.
    is_held: bool,
}

/// The state of a mover's sweeps.
#[derive(Default)]
struct SweepResult {
    /// The time of the last sweep, on the server's clock.
    at_ms: Option<i64>,
    /// The time of the last check of the pending elements, and the fingerprint at that time.
    looked: Option<(i64, Vec<u8>)>,
}

/// The interval at which a mover checks the pending elements even if nothing has changed, in ms.
const LOOK_MS: i64 = 60_000;

/// The pause after a failure, initial and maximum, in ms.
const PAUSE_MS: (u64, u64) = (50, 2_000);

impl Mover {
    /// Creates a mover of the queue with these keys. Does not contact Redis.
    pub fn new(link: Link, keys: Keys, options: MoverOptions) -> Mover {
        let pace = MoverPace::new(options.budget_us, options.batch_max);
        let mender = Mender::new(options.layout);
        Mover { link, keys, options, pace, mender }
    }

    /// Moves one batch of due elements.
    ///
    /// # Errors
    /// [`Error::WrongType`] if a key has the wrong type: nothing was moved. Connection errors.
    pub async fn step(&mut self) -> Result<MoveResult, Error> {
        Ok(self.look().await?.moved)
    }

    async fn look(&mut self) -> Result<Look, Error> {
        let keys = [
            self.keys.ready().to_owned(),
            self.keys.pending(),
            self.keys.timeouts(),
            self.keys.set_aside(),
            self.keys.inbox(),
            self.keys.leases(),
            self.keys.inbox_since(),
        ];
        let batch = self.pace.next();
        let arguments = [
            decimal(batch.size),
            decimal(batch.end.count()),
            decimal(u8::from(batch.sample)),
            decimal(batch.bytes),
        ];
        let reply: MoveReply = script::MOVE
            .call(&self.link, &self.keys, &keys, &arguments)
            .await
            .map_err(|error| self.error(&error))?;
        let (moved, set_aside, next, now_ms, more, passed, bytes, took_us, signs, is_empty, is_held) = reply;
        let passed = u64::try_from(passed).ok();
        let spent_us =
            self.pace.learn(batch, PaceReport { count: moved + set_aside, bytes, passed, took_us });
        // A fractional instant is due in the next whole millisecond; a score that is not an instant is never due.
        let next = next.parse().ok().and_then(|ms: f64| Timestamp::from_ms(ms.ceil() as i64).ok());
        let moved = MoveResult { moved, set_aside, next, now_ms, more: more == 1, bytes, spent_us };
        Ok(Look { moved, signs, is_empty: is_empty == 1, is_held: is_held == 1 })
    }

    /// Moves all due elements, and fixes pending ones. Returns the total numbers of moved and of set-aside elements.
    ///
    /// # Errors
    /// As [`step`](Mover::step); elements that were moved before stay moved.
    pub async fn pass(&mut self) -> Result<(usize, usize), Error> {
        let (moved, set_aside) = self.move_due().await?;
        Ok((moved, set_aside + self.mend_all().await?.set_aside))
    }

    /// Moves all due elements. Returns the numbers of moved and of set-aside elements.
    pub(super) async fn move_due(&mut self) -> Result<(usize, usize), Error> {
        let (mut moved, mut set_aside) = (0, 0);
        loop {
            let step = self.step().await?;
            moved += step.moved;
            set_aside += step.set_aside;
            if !step.more {
                return Ok((moved, set_aside));
            }
            rest(&step).await;
        }
    }

    /// Checks all pending elements that it has not seen yet, and fixes those that would jam Java's script.
    ///
    /// # Errors
    /// As [`step`](Mover::step); elements that were fixed before stay fixed.
    pub async fn mend_all(&mut self) -> Result<Mended, Error> {
        let (mut mended, mut is_new) = (Mended::default(), true);
        loop {
            mended.add(self.mender.sweep(&self.link, &self.keys, is_new).await?);
            is_new = false;
            if self.mender.is_done() {
                return Ok(mended);
            }
        }
    }

    /// Runs until `stop` is ready. A script in progress is then completed.
    pub async fn run(mut self, stop: impl Future<Output = ()>, mut report: impl FnMut(Event)) {
        let mut stop = pin!(stop);
        // All movers of a process that share a link share its subscription.
        let ear = Ear::new(&self.link, self.keys.channel());
        let mut is_listening = false;
        // Without a subscription, the mover retries it when there is nothing else to do.
        let (mut is_at_rest, mut is_told) = (true, false);
        let mut pause_ms = PAUSE_MS.0;
        let mut swept = SweepResult::default();
        loop {
            let deaf = match is_listening || !is_at_rest {
                true => None,
                // Subscribes before it reads the queue, so that nothing is missed in between. If that fails, it moves
                // elements all the same: it sees new offers at its sweeps.
                false => match ear.listen().await {
                    Ok(()) => {
                        (is_listening, is_told) = (true, false);
                        report(Event::Listening);
                        None
                    }
                    Err(error) => Some(self.error(&error)),
                },
            };
            let wait_ms = match self.turn(&mut swept, &mut report).await {
                Ok(wait_ms) => {
                    if let (Some(error), false) = (deaf, is_told) {
                        is_told = true;
                        report(Event::Failure(error));
                    }
                    is_at_rest = wait_ms > 1;
                    pause_ms = PAUSE_MS.0;
                    wait_ms
                }
                Err(error) => {
                    report(Event::Failure(error));
                    (is_listening, is_at_rest) = (false, true);
                    pause_ms = (pause_ms * 2).min(PAUSE_MS.1);
                    pause_ms
                }
            };
            let waited = pin!(tokio::time::timeout(Duration::from_millis(wait_ms), ear.heard()));
            if let Either::Left(_) = select(&mut stop, waited).await {
                return;
            }
        }
    }

    /// Moves a batch, and sweeps if it is time to. Returns how long there is nothing to do, in ms.
    async fn turn(&mut self, swept: &mut SweepResult, report: &mut impl FnMut(Event)) -> Result<u64, Error> {
        let Look { moved: step, signs, is_empty, is_held } = self.look().await?;
        if step.moved + step.set_aside > 0 {
            report(Event::Moved(step));
        }
        let sweep_ms = self.options.sweep_ms.clamp(1, i64::MAX as u64);
        // The server's clock may have been set back.
        let is_within = |at: i64, ms: i64| at <= step.now_ms && step.now_ms - at < ms;
        let is_new = !swept.at_ms.is_some_and(|at| is_within(at, sweep_ms as i64));
        let is_known = |(at, before): &(i64, Vec<u8>)| is_within(*at, LOOK_MS) && *before == signs;
        let is_changed = is_new && !is_empty && !swept.looked.as_ref().is_some_and(is_known);
        if is_changed || !self.mender.is_done() {
            let mended = self.mender.sweep(&self.link, &self.keys, is_changed).await?;
            if is_changed {
                swept.looked = Some((step.now_ms, signs));
            }
            if !mended.is_nothing() {
                report(Event::Mended(mended));
            }
        }
        let mut goes_on = !self.mender.is_done();
        if is_new {
            swept.at_ms = Some(step.now_ms);
        }
        if is_new && is_held {
            let most = self.options.max_attempts;
            let reaped = consumer::reap(&self.link, &self.keys, most, consumer::INBOX_MS).await?;
            if reaped.count > 0 {
                report(Event::Reaped(reaped.count));
            }
            if reaped.more {
                swept.at_ms = None;
                goes_on = true;
            }
        }
        if goes_on && !step.more {
            return Ok(1);
        }
        if step.more {
            rest(&step).await;
            return Ok(0);
        }
        let to_next = step.next.map_or(i64::MAX, |next| next.as_ms().saturating_sub(step.now_ms));
        Ok((to_next.max(1) as u64).min(sweep_ms))
    }

    fn error(&self, error: &redis::RedisError) -> Error {
        Error::of(self.keys.name(), error)
    }
}

/// Leaves Redis to other clients for about as long as the last script took.
async fn rest(step: &MoveResult) {
    tokio::time::sleep(Duration::from_micros(step.spent_us.min(100_000))).await;
}

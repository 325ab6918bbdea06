//! The mover: due elements to the destination, whether or not a Java client is alive.
//!
//! Java moves due elements only while some process holds the delayed queue object and hears its channel. This
//! mover needs neither: it sleeps to the first instant, takes the channel as a hint alone, and looks again each
//! sweep. Every step is one script, so that any number of movers, Java's among them, run beside each other.
//!
//! # Layout
//! - `pace`: how much is asked of Redis at once
//! - `mend`: what would jam Java's script, mended before it is due

mod mend;
mod pace;

use std::pin::pin;
use std::time::Duration;

use dwell_model::Timestamp;
use dwell_redis::{Ear, Link};
use futures_util::future::{Either, select};

pub use self::mend::Mended;
use self::mend::Mender;
use self::pace::{Pace, Told};
use super::consumer;
use super::element::Layout;
use super::error::Error;
use super::keys::Keys;
use super::script::{self, decimal};

/// What a mover is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoverOptions {
    /// How often it looks though nothing told it to, in ms. A lost notification costs at most this.
    pub sweep_ms: u64,
    /// How much of Redis' time one script may take, in µs; batches are sized by it.
    pub budget_us: u64,
    /// The most elements that one script moves.
    pub batch_max: usize,
    /// What the Java clients read: elements of the other layout are rewritten before they are due. Naming the wrong
    /// one jams Java's movers. With `None` no element is rewritten, and each is moved as it is.
    pub layout: Option<Layout>,
    /// After how many lapsed leases of [`Consumer`](super::Consumer) a payload is dead; 0 for never.
    pub max_attempts: u32,
}

impl Default for MoverOptions {
    /// A sweep a second, 2 ms and 500 elements a script, nothing rewritten, 10 attempts.
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

/// What one script of a mover did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Elements moved to the destination.
    pub moved: usize,
    /// Elements set aside.
    pub set_aside: usize,
    /// When the next one is due, if that is an instant at all.
    pub next: Option<Timestamp>,
    /// The server's clock, in ms since 1970.
    pub now_ms: i64,
    /// Whether more may be due.
    pub more: bool,
    /// How many bytes the elements had, packed.
    pub bytes: usize,
    /// About how much of Redis' time it took, in µs.
    pub spent_us: u64,
}

/// What a running mover tells.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// It hears the queue's channel.
    Listening,
    /// It moved or set aside elements.
    Moved(Moved),
    /// It mended elements that are not due yet.
    Mended(Mended),
    /// So many leases of [`Consumer`](super::Consumer) ran out, or payloads of its inbox were given back.
    Reaped(usize),
    /// Something failed. It goes on, after a pause.
    Trouble(Error),
}

/// Moves what is due in one queue.
pub struct Mover {
    link: Link,
    keys: Keys,
    options: MoverOptions,
    pace: Pace,
    mender: Mender,
}

/// What the script answers.
type Reply = (usize, usize, String, i64, u8, i64, usize, u64, Vec<u8>, u8, u8);

/// What a mover sees of its queue when it moves.
struct Look {
    moved: Moved,
    /// What changes when something is offered or taken out: lengths, and which elements are first and last.
    signs: Vec<u8>,
    /// Whether nothing is pending.
    is_empty: bool,
    /// Whether there are leases, or payloads in the inbox.
    is_held: bool,
}

/// What a mover knows of its last sweep.
#[derive(Default)]
struct Swept {
    /// When it was, by the server's clock.
    at_ms: Option<i64>,
    /// When it last looked at what is pending, and the signs of it then.
    looked: Option<(i64, Vec<u8>)>,
}

/// How often a mover looks at what is pending though nothing has changed, in ms.
const LOOK_MS: i64 = 60_000;

/// The pause after a failure, at first and at most.
const PAUSE_MS: (u64, u64) = (50, 2_000);

impl Mover {
    /// A mover of the queue with these keys. Touches nothing.
    pub fn new(link: Link, keys: Keys, options: MoverOptions) -> Mover {
        let pace = Pace::new(options.budget_us, options.batch_max);
        let mender = Mender::new(options.layout);
        Mover { link, keys, options, pace, mender }
    }

    /// Moves one batch of what is due now.
    ///
    /// # Errors
    /// [`Error::WrongType`] if a key holds something else: nothing was moved. Those of the connection.
    pub async fn step(&mut self) -> Result<Moved, Error> {
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
        let reply: Reply = script::MOVE
            .call(&self.link, &self.keys, &keys, &arguments)
            .await
            .map_err(|error| self.error(&error))?;
        let (moved, set_aside, next, now_ms, more, passed, bytes, took_us, signs, is_empty, is_held) = reply;
        let passed = u64::try_from(passed).ok();
        let spent_us = self.pace.learn(batch, Told { count: moved + set_aside, bytes, passed, took_us });
        // A fraction is due with the next whole millisecond; what is no instant is never due.
        let next = next.parse().ok().and_then(|ms: f64| Timestamp::from_ms(ms.ceil() as i64).ok());
        let moved = Moved { moved, set_aside, next, now_ms, more: more == 1, bytes, spent_us };
        Ok(Look { moved, signs, is_empty: is_empty == 1, is_held: is_held == 1 })
    }

    /// Moves all that is due now, and mends what is pending; returns what was moved and set aside in all.
    ///
    /// # Errors
    /// As [`step`](Mover::step); what was moved before stays moved.
    pub async fn pass(&mut self) -> Result<(usize, usize), Error> {
        let (moved, set_aside) = self.move_due().await?;
        Ok((moved, set_aside + self.mend_all().await?.set_aside))
    }

    /// Moves all that is due now; what was moved and set aside.
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

    /// Looks at all pending elements that it has not seen, and mends what would jam Java's script.
    ///
    /// # Errors
    /// As [`step`](Mover::step); what was mended before stays mended.
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

    /// Moves until `stop` is ready. A script that is under way then is waited for.
    pub async fn run(mut self, stop: impl Future<Output = ()>, mut report: impl FnMut(Event)) {
        let mut stop = pin!(stop);
        // All movers of a process that share a link share its subscription.
        let ear = Ear::new(&self.link, self.keys.channel());
        let mut is_listening = false;
        // Who can not listen tries it when there is nothing else to do.
        let (mut is_at_rest, mut is_told) = (true, false);
        let mut pause_ms = PAUSE_MS.0;
        let mut swept = Swept::default();
        loop {
            let deaf = match is_listening || !is_at_rest {
                true => None,
                // Listens before it looks, so that nothing falls between the two. Where that can not be it moves all the same:
                // what is offered meanwhile it sees when it sweeps.
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
                        report(Event::Trouble(error));
                    }
                    is_at_rest = wait_ms > 1;
                    pause_ms = PAUSE_MS.0;
                    wait_ms
                }
                Err(error) => {
                    report(Event::Trouble(error));
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

    /// Moves a batch, sweeps if it is time to; gives how long there is nothing to do, in ms.
    async fn turn(&mut self, swept: &mut Swept, report: &mut impl FnMut(Event)) -> Result<u64, Error> {
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

/// Leaves Redis to others for about as long as the last script took.
async fn rest(step: &Moved) {
    tokio::time::sleep(Duration::from_micros(step.spent_us.min(100_000))).await;
}

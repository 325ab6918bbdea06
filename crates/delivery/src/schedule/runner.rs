//! The runner: takes schedules that are due, puts their runs and their next messages, and acks.
//!
//! What happens if it dies:
//!
//! 1. Before the runs are put: the lease ends, and the next runner that takes the message puts them.
//! 2. After the runs, before the next message: the same; the runs' idempotency keys answer, and nothing is put twice.
//! 3. After the next message, before the ack: the old message has lost its key. The runner that takes it acks it and
//!    runs nothing.
//!
//! What happens if it stalls instead: it reads the clock before it puts the next message. If its lease may be over, it
//! leaves everything to the runner that has the message now.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dwell_model::{Headers, IdempotencyKey, Key, Timestamp};
use dwell_store::{Action, Delivery, Error as StoreError, OnConflict, Put, PutAnswer, Settle, Store, Take};
use dwell_time::Clock;

use super::plan::Plan;
use super::stored::Stored;
use super::{INSTANT_HEADER, NAME_HEADER, Overlap, Schedule, queue};
use crate::timer::Timer;
use crate::{IntoStore, Result};

/// The maximum number of schedules per turn.
const AT_ONCE: usize = 1_000;
/// The maximum body bytes that one turn holds in memory, except for a single message.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// How long a take waits, in milliseconds. It ends at the instant of the next schedule; this bounds the length of one
/// call.
const WAIT_MS: u64 = 60_000;
/// A take that lasts at least this many milliseconds has its leases extended before they are relied on, since their
/// beginning is unknown.
const OLD_MS: u64 = LEASE_MS / 2;
/// The lease of a schedule's message, in milliseconds. A turn is two puts and a settlement.
const LEASE_MS: u64 = 30_000;
/// When a schedule is tried again whose puts the store could not do, in milliseconds; twice as long each time, up to the longest.
const AGAIN_AFTER_MS: u64 = 1_000;
const LONGEST_AGAIN_AFTER_MS: u64 = 30_000;
/// When a schedule is tried again whose message this version cannot read, in milliseconds: a newer server may, meanwhile.
const UNREADABLE_AGAIN_AFTER_MS: u64 = 60_000;

/// Runs the schedules of a store. Any number of runners may do so, in one process or many.
#[derive(Clone)]
pub struct Runner {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    put: AtomicU64,
    missed: AtomicU64,
    skipped: AtomicU64,
    failed: AtomicU64,
    unreadable: AtomicU64,
}

/// The counts of a runner since it was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Runs {
    /// Runs that were put, including those that another runner had put before it died.
    pub put: u64,
    /// Instants that were missed and are not run. At most [`RUNS_AT_ONCE`](super::RUNS_AT_ONCE) are counted per
    /// message.
    pub missed: u64,
    /// Runs that were skipped because an earlier one was not done.
    pub skipped: u64,
    /// Runs that the store refused for good.
    pub failed: u64,
    /// Schedules that were taken and cannot be read by this version: each counts again when it is looked at again.
    pub unreadable: u64,
}

/// A schedule in progress: its remaining work, and its settlement.
struct InHand {
    settle: Settle,
    /// How often its message was given back before.
    releases: u32,
    todo: Option<Todo>,
}

struct Todo {
    stored: Stored,
    plan: Plan,
    /// The idempotency key of the next message's put: a runner that repeats it for the same message puts nothing.
    idempotency_key: IdempotencyKey,
}

impl Runner {
    /// A runner for the schedules of this store. Instants use the store's clock; `clock` measures calls and delays of
    /// retries.
    pub fn new(store: impl IntoStore, clock: Arc<dyn Clock>) -> Runner {
        Runner { store: store.into_store(), clock, counters: Arc::default() }
    }

    /// Its counts so far. Clones share them.
    pub fn runs(&self) -> Runs {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &*self.counters;
        Runs {
            put: read(&counters.put),
            missed: read(&counters.missed),
            skipped: read(&counters.skipped),
            failed: read(&counters.failed),
            unreadable: read(&counters.unreadable),
        }
    }

    /// Runs schedules until `stop` completes, or the store has to be opened again. A turn that has begun is finished.
    ///
    /// # Errors
    /// The store's, if it has to be opened again. Retryable errors are retried.
    pub async fn run_until(&self, stop: impl Future<Output = ()> + Send) -> Result<()> {
        let timer = Timer::start(&self.clock)?;
        let mut stop = std::pin::pin!(stop);
        loop {
            let asked_ms = self.now_ms();
            let take =
                Take::from(queue()).max(AT_ONCE).max_bytes(MAX_BYTES).wait_ms(WAIT_MS).lease_ms(LEASE_MS);
            // A take that is dropped gives back the messages that it was about to return.
            let taken = tokio::select! {
                biased;
                () = &mut stop => return Ok(()),
                taken = self.store.take(take) => taken,
            };
            let error = match taken {
                Ok(deliveries) => match self.turn(deliveries, asked_ms).await {
                    Ok(()) => continue,
                    Err(error) => error,
                },
                Err(error) => error.into(),
            };
            if !error.is_retryable() {
                return Err(error);
            }
            tokio::select! {
                biased;
                () = &mut stop => return Ok(()),
                () = timer.sleep_until(self.now_ms() + AGAIN_AFTER_MS) => {}
            }
        }
    }

    /// Runs what is due now, and returns the number of schedules.
    ///
    /// # Errors
    /// The store's, including retryable ones.
    pub async fn run_due(&self) -> Result<usize> {
        let mut in_all = 0;
        loop {
            let asked_ms = self.now_ms();
            let deliveries = self.store.take(Take::from(queue()).max(AT_ONCE).lease_ms(LEASE_MS)).await?;
            let count = deliveries.len();
            self.turn(deliveries, asked_ms).await?;
            in_all += count;
            if count < AT_ONCE {
                return Ok(in_all);
            }
        }
    }

    fn now_ms(&self) -> u64 {
        self.clock.now().mono_ms
    }

    /// Executes the plans of these messages, which were taken by a call that began at `asked_ms`. They are split into
    /// groups of [`AT_ONCE`] runs: missed runs of some would take longer than the leases of all.
    async fn turn(&self, mut left: Vec<Delivery>, mut asked_ms: u64) -> Result<()> {
        while !left.is_empty() {
            if self.now_ms().saturating_sub(asked_ms) > OLD_MS {
                asked_ms = self.now_ms();
                let extend = |delivery: &Delivery| Settle {
                    receipt: delivery.receipt.clone(),
                    action: Action::Extend { lease_ms: Some(LEASE_MS) },
                };
                let answers = self.settle(left.iter().map(extend).collect()).await?;
                left = left.into_iter().zip(answers).filter_map(|(one, ok)| ok.then_some(one)).collect();
            }
            let (mut in_hand, mut runs) = (Vec::new(), 0);
            let mut rest = left.into_iter();
            while runs < AT_ONCE
                && let Some(delivery) = rest.next()
            {
                let one = self.planned(delivery);
                runs += one.todo.as_ref().map_or(0, |todo| todo.plan.runs.len());
                in_hand.push(one);
            }
            left = rest.collect();
            self.carry_out(in_hand, asked_ms).await?;
        }
        Ok(())
    }

    async fn carry_out(&self, mut in_hand: Vec<InHand>, asked_ms: u64) -> Result<()> {
        self.put_runs(&mut in_hand).await?;
        if self.now_ms().saturating_sub(asked_ms) >= LEASE_MS {
            return Ok(());
        }
        self.put_next(&mut in_hand).await?;
        // Where a lease is lost, the runner that has the message now does the same, and puts nothing twice.
        self.settle(in_hand.into_iter().map(|schedule| schedule.settle).collect()).await.map(drop)
    }

    /// Settles; returns which of them the store has settled.
    async fn settle(&self, settles: Vec<Settle>) -> Result<Vec<bool>> {
        let mut done = Vec::with_capacity(settles.len());
        for batch in settles.chunks(self.store.limits().batch.max(1)) {
            for settled in self.store.settle(batch.to_vec()).await {
                match settled {
                    Err(error) if error.needs_reopen() => return Err(error.into()),
                    other => done.push(other.is_ok()),
                }
            }
        }
        Ok(done)
    }

    /// The plan for a message of the schedules' queue.
    fn planned(&self, delivery: Delivery) -> InHand {
        let settle = |action| Settle { receipt: delivery.receipt.clone(), action };
        let releases = delivery.message.standing.counts.releases;
        match Stored::read(&delivery.message) {
            Ok(Some(stored)) if stored.is_paused => {
                // Taken by its id: a paused schedule is due in 9999. It is put there again.
                let plan =
                    Plan { runs: Vec::new(), next: stored.instant.or(Some(Timestamp::MAX)), missed: 0 };
                InHand {
                    settle: settle(Action::Ack),
                    releases,
                    todo: Some(Todo { stored, plan, idempotency_key: next_idempotency_key(&delivery) }),
                }
            }
            Ok(Some(stored)) => {
                // A schedule that was just defined runs from then on, even if no runner has run for a while.
                let first = || stored.schedule.first_after(delivery.message.created);
                let plan = stored.schedule.plan(stored.instant.or_else(first), delivery.taken_at);
                InHand {
                    settle: settle(Action::Ack),
                    releases,
                    todo: Some(Todo { stored, plan, idempotency_key: next_idempotency_key(&delivery) }),
                }
            }
            Ok(None) => InHand { settle: settle(Action::Ack), releases, todo: None },
            Err(_) => {
                count(&self.counters.unreadable, 1);
                InHand { settle: settle(release(UNREADABLE_AGAIN_AFTER_MS)), releases, todo: None }
            }
        }
    }

    async fn put_runs(&self, in_hand: &mut [InHand]) -> Result<()> {
        let mut puts = Vec::new();
        let mut owners = Vec::new();
        for (owner, todo) in in_hand.iter().enumerate().filter_map(|(n, one)| Some((n, one.todo.as_ref()?))) {
            count(&self.counters.missed, todo.plan.missed);
            for instant in &todo.plan.runs {
                match run(&todo.stored.schedule, *instant) {
                    Ok(put) => {
                        puts.push(put);
                        owners.push((owner, *instant));
                    }
                    Err(_) => count(&self.counters.failed, 1),
                }
            }
        }
        for ((owner, instant), answer) in owners.into_iter().zip(self.put(puts).await) {
            match answer {
                Ok(_) => count(&self.counters.put, 1),
                Err(StoreError::KeyTaken { .. }) => count(&self.counters.skipped, 1),
                Err(error) if error.needs_reopen() => return Err(error.into()),
                Err(error) if error.is_retryable() => in_hand[owner].put_off_from(instant),
                // The schedule goes on: the store may accept its next run.
                Err(_) => count(&self.counters.failed, 1),
            }
        }
        Ok(())
    }

    async fn put_next(&self, in_hand: &mut [InHand]) -> Result<()> {
        let mut puts = Vec::new();
        let mut owners = Vec::new();
        for (owner, one) in in_hand.iter_mut().enumerate() {
            let Some(todo) = &one.todo else { continue };
            // Without a next instant the schedule is over: the ack removes it.
            let Some(next) = todo.plan.next else { continue };
            let instant = Some(next).filter(|next| *next != Timestamp::MAX);
            match todo.stored.put(instant) {
                Ok(put) => {
                    puts.push(Put { idempotency_key: Some(todo.idempotency_key.clone()), ..put });
                    owners.push(owner);
                }
                Err(_) => one.put_off(),
            }
        }
        for (owner, answer) in owners.into_iter().zip(self.put(puts).await) {
            match answer {
                Ok(_) => {}
                Err(error) if error.needs_reopen() => return Err(error.into()),
                Err(_) => in_hand[owner].put_off(),
            }
        }
        Ok(())
    }

    async fn put(&self, puts: Vec<Put>) -> Vec<dwell_store::Result<PutAnswer>> {
        let mut answers = Vec::with_capacity(puts.len());
        let mut puts = puts.into_iter();
        let most = self.store.limits().batch.clamp(1, AT_ONCE);
        while let Some(batch) = next_batch(&mut puts, most) {
            answers.extend(self.store.put(batch).await);
        }
        answers
    }
}

/// The puts of one call: `most` of them at most, and [`MAX_BYTES`] of bodies, unless a single one has more.
fn next_batch(puts: &mut std::vec::IntoIter<Put>, most: usize) -> Option<Vec<Put>> {
    let mut bytes = 0_usize;
    let fits = |put: &&Put| {
        bytes = bytes.saturating_add(put.body.len());
        bytes <= MAX_BYTES
    };
    let count = puts.as_slice().iter().take(most).take_while(fits).count();
    let batch: Vec<Put> = puts.take(count.max(1)).collect();
    (!batch.is_empty()).then_some(batch)
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runner").field("runs", &self.runs()).finish_non_exhaustive()
    }
}

impl InHand {
    /// The store could not put the run of this instant now. Earlier ones are put, and must not be repeated when their
    /// idempotency keys have expired: the next message begins with this one.
    fn put_off_from(&mut self, instant: Timestamp) {
        match &mut self.todo {
            Some(todo) if todo.plan.runs.first() != Some(&instant) => {
                todo.plan.next = Some(todo.plan.next.map_or(instant, |next| next.min(instant)));
            }
            _ => self.put_off(),
        }
    }

    /// The store could not do all of it: the message is given back, and its plan is executed a little later.
    fn put_off(&mut self) {
        self.todo = None;
        let doublings = self.releases.min(16);
        self.settle.action = release((AGAIN_AFTER_MS << doublings).min(LONGEST_AGAIN_AFTER_MS));
    }
}

fn release(after_ms: u64) -> Action {
    Action::Release { after_ms: Some(after_ms), priority: None }
}

fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

/// The idempotency key of the put of the message that follows this one.
fn next_idempotency_key(delivery: &Delivery) -> IdempotencyKey {
    IdempotencyKey::new(&format!("after:{}", delivery.message.id)).expect("an id is visible ASCII")
}

/// The put of the run of this instant.
pub(super) fn run(schedule: &Schedule, instant: Timestamp) -> Result<Put> {
    let at = format!("{}@{instant}", schedule.name());
    let (key, on_conflict) = match schedule.overlap {
        Overlap::Skip => (schedule.name(), OnConflict::Reject),
        Overlap::Replace => (schedule.name(), OnConflict::Replace),
        Overlap::Allow => (at.as_str(), OnConflict::Reject),
    };
    let instant = instant.to_string();
    let mut headers: BTreeMap<&str, &str> = schedule.headers.iter().collect();
    headers.insert(NAME_HEADER, schedule.name());
    headers.insert(INSTANT_HEADER, &instant);
    Ok(Put {
        key: Some(Key::new(key).map_err(StoreError::from)?),
        on_conflict,
        headers: Headers::new(headers).map_err(StoreError::from)?,
        idempotency_key: Some(IdempotencyKey::new(&at).map_err(StoreError::from)?),
        ..Put::new(schedule.queue.clone(), schedule.body.clone())
    })
}

/// The put of a manual run, which has no instant.
pub(super) fn run_by_hand(schedule: &Schedule) -> Result<Put> {
    let (key, on_conflict) = match schedule.overlap {
        Overlap::Skip => (Some(schedule.name()), OnConflict::Reject),
        Overlap::Replace => (Some(schedule.name()), OnConflict::Replace),
        Overlap::Allow => (None, OnConflict::Reject),
    };
    let mut headers: BTreeMap<&str, &str> = schedule.headers.iter().collect();
    headers.insert(NAME_HEADER, schedule.name());
    Ok(Put {
        key: key.map(Key::new).transpose().map_err(StoreError::from)?,
        on_conflict,
        headers: Headers::new(headers).map_err(StoreError::from)?,
        ..Put::new(schedule.queue.clone(), schedule.body.clone())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_puts_so_many_runs_and_so_many_bytes_of_them() {
        let counts = |lens: &[usize], most: usize| -> Vec<usize> {
            let put = |len: &usize| Put::new("q".parse().unwrap(), vec![0_u8; *len]);
            let mut puts = lens.iter().map(put).collect::<Vec<Put>>().into_iter();
            std::iter::from_fn(|| next_batch(&mut puts, most)).map(|batch| batch.len()).collect()
        };
        assert_eq!(counts(&[], 3), [0; 0]);
        assert_eq!(counts(&[1, 1, 1, 1], 3), [3, 1]);
        assert_eq!(counts(&[MAX_BYTES / 2, MAX_BYTES / 2, 1], 3), [2, 1]);
        assert_eq!(counts(&[MAX_BYTES + 1, 1], 3), [1, 1], "a single one is put however large it is");
    }
}

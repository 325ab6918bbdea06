//! A connection's state: the tube it uses, those it watches, the jobs it holds.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dwell_model::{Message, MessageId, Number, QueueName, State, StateKind};
use dwell_store::{Action, Error, Settle, Settled, Target};

use super::BeanstalkdShared;
use super::reserved_jobs::ReservedJobs;
use super::tubes::{Tie, TieKind};
use crate::MOST_NAMES;
use crate::admission::ConnectionNames;

/// The tube that a new connection uses and watches.
pub(super) fn default_tube() -> QueueName {
    QueueName::new("default").expect("it follows the alphabet")
}

/// The number of jobs that a connection may always hold, as far as the store has leases.
const HELD_IN_ANY_CASE: usize = 64;

/// One connection's state. When it is dropped, its jobs are given back.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) shared: Arc<BeanstalkdShared>,
    /// The peer's address, as the log shows it.
    pub(super) peer: String,
    pub(super) held: ReservedJobs,
    used: Tie,
    watched: Vec<Tie>,
    /// Room for the tubes that it watches.
    names: ConnectionNames,
    is_producer: bool,
    is_worker: bool,
}

impl Session {
    pub(super) fn new(shared: Arc<BeanstalkdShared>, peer: String) -> Session {
        let default = default_tube();
        let used = Tie::new(&shared.tubes, default.clone(), TieKind::Using);
        let watched = vec![Tie::new(&shared.tubes, default, TieKind::Watching)];
        shared.counters.connections.add(1);
        shared.counters.connections_ever.add(1);
        let held = ReservedJobs::among(Arc::clone(&shared.held_by_all));
        let names = shared.memory.names(watched.len()).expect("each may watch a few in any case");
        Session { shared, peer, held, used, watched, names, is_producer: false, is_worker: false }
    }

    /// Milliseconds on the clock of the deadlines of held jobs.
    pub(super) fn now_ms(&self) -> u64 {
        self.shared.clock.now().mono_ms
    }

    /// The tube in use.
    pub(super) fn used(&self) -> &QueueName {
        self.used.name()
    }

    pub(super) fn use_tube(&mut self, name: QueueName) {
        self.used = Tie::new(&self.shared.tubes, name, TieKind::Using);
    }

    /// The watched tubes, in the order of their `watch`.
    pub(super) fn watched(&self) -> impl ExactSizeIterator<Item = &QueueName> {
        self.watched.iter().map(Tie::name)
    }

    /// False if it cannot watch any more.
    pub(super) fn watch(&mut self, name: QueueName) -> bool {
        if self.watched().any(|watched| *watched == name) {
            return true;
        }
        // The maximum number of queues per take.
        if self.watched.len() >= self.shared.store.limits().batch.min(MOST_NAMES) {
            return false;
        }
        if !self.names.set(self.watched.len() + 1) {
            return false;
        }
        self.watched.push(Tie::new(&self.shared.tubes, name, TieKind::Watching));
        true
    }

    /// False if it is the last one.
    pub(super) fn ignore(&mut self, name: &QueueName) -> bool {
        let Some(place) = self.watched().position(|watched| watched == name) else { return true };
        if self.watched.len() == 1 {
            return false;
        }
        self.watched.remove(place);
        self.names.set(self.watched.len());
        true
    }

    /// Marks the connection as a producer.
    pub(super) fn is_producer(&mut self) {
        if !std::mem::replace(&mut self.is_producer, true) {
            self.shared.counters.producers.add(1);
        }
    }

    /// Marks the connection as a worker.
    pub(super) fn is_worker(&mut self) {
        if !std::mem::replace(&mut self.is_worker, true) {
            self.shared.counters.workers.add(1);
        }
    }

    /// The number of jobs that it may still reserve. Of the leases that all other connections leave free, it may hold
    /// as many as it then leaves free itself, and a few in any case. So one connection holds at most half of them, each
    /// of two a third, and some are always left for the next connection: the dynamic threshold of Choudhury and Hahne,
    /// "Dynamic queue length thresholds for shared-memory packet switches" (1998).
    pub(super) fn may_reserve(&self) -> usize {
        let limit = self.shared.store.limits().leased;
        let left = limit.saturating_sub(self.shared.held_by_all.load(Ordering::Relaxed));
        let share = left.saturating_sub(self.held.len()).div_ceil(2);
        share.max(HELD_IN_ANY_CASE.saturating_sub(self.held.len()))
    }

    /// Forgets jobs whose leases have run out.
    pub(super) fn forget_lapsed(&mut self) {
        self.held.forget_lapsed(self.now_ms());
        self.shared.counters.timeouts.add(self.held.take_lapsed());
    }

    /// Forgets the job whose lease would run out first, if the store says that the lease is over, since an operator may
    /// have ended it. Returns whether it was.
    pub(super) async fn forget_ended(&mut self) -> bool {
        let Some((number, receipt)) = self.held.soonest() else { return false };
        let (token, targets) = (receipt.token, vec![Target::Id(receipt.id)]);
        let found = self.shared.store.get(receipt.queue.clone(), targets, false).await.pop();
        let is_over = match found {
            Some(Ok(message)) => {
                !matches!(message.standing.state, State::Leased(lease) if lease.token == token)
            }
            Some(Err(Error::MessageNotFound { .. } | Error::UnknownQueue { .. })) => true,
            // Where the store does not know now, the connection's own deadline counts.
            Some(Err(_)) | None => false,
        };
        if is_over {
            self.held.lost(number);
            self.shared.counters.timeouts.add(self.held.take_lapsed());
        }
        is_over
    }

    /// Settles different jobs, as far as this connection holds them, in one call.
    pub(super) async fn settle(&mut self, jobs: Vec<(u64, Action)>) -> Vec<Result<(), Error>> {
        let settle = |(number, action)| {
            let receipt = self.held.receipt(number).cloned();
            (number, receipt.map(|receipt| Settle { receipt, action }))
        };
        let (numbers, settles): (Vec<u64>, Vec<Option<Settle>>) = jobs.into_iter().map(settle).unzip();
        let is_held: Vec<bool> = settles.iter().map(Option::is_some).collect();
        let settles: Vec<Settle> = settles.into_iter().flatten().collect();
        let answers = if settles.is_empty() { Vec::new() } else { self.shared.store.settle(settles).await };
        let mut answers = answers.into_iter();
        let now_ms = self.now_ms();
        let mut outcome = |(number, is_held): (u64, bool)| {
            if !is_held {
                return Err(Error::LeaseLost);
            }
            let settled = answers.next().expect("an answer for each settlement");
            match &settled {
                Ok(Settled::Leased(_)) => self.held.touched(number, now_ms),
                Ok(_) => self.held.remove(number),
                Err(Error::LeaseLost) => self.held.lost(number),
                Err(_) => {}
            }
            settled.map(drop)
        };
        numbers.into_iter().zip(is_held).map(&mut outcome).collect()
    }

    /// Locates jobs. Numbers that no job can have are not found.
    pub(super) async fn locate(&self, numbers: &[u64]) -> Vec<Result<Option<(QueueName, MessageId)>, Error>> {
        let numbers: Vec<Option<Number>> = numbers.iter().map(|number| Number::new(*number).ok()).collect();
        let mut located =
            self.shared.store.locate(numbers.iter().flatten().copied().collect()).await.into_iter();
        let mut next = || located.next().expect("an answer for each number");
        numbers.iter().map(|number| number.map_or(Ok(None), |_| next())).collect()
    }

    /// Locates one job.
    pub(super) async fn locate_one(&self, number: u64) -> Result<Option<(QueueName, MessageId)>, Error> {
        self.locate(&[number]).await.into_iter().next().expect("an answer for each number")
    }

    /// The first job in a state in the tube in use. A tube that the store does not know has none.
    pub(super) async fn first_of(&self, state: StateKind) -> Result<Option<Message>, Error> {
        match self.shared.store.peek(self.used().clone(), state).await {
            Err(Error::UnknownQueue { .. }) => Ok(None),
            found => found,
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.forget_lapsed();
        self.shared.returns.give_back(self.held.take_receipts());
        let counters = &self.shared.counters;
        counters.connections.sub(1);
        counters.producers.sub(u64::from(self.is_producer));
        counters.workers.sub(u64::from(self.is_worker));
    }
}

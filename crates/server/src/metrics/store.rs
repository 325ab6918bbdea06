//! A store that counts the calls that pass through it, so that neither protocol counts for itself.
//!
//! Events are counted when the store has answered, in runs of one queue: a batch for one queue costs one look-up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use dwell_model::{MessageId, QueueName};
use dwell_store::{
    Action, Cancelled, Delivery, Error, LeaseTerms, Put, PutAnswer, Result, Settle, Settled, Store, Take,
    Target, delegate_store,
};
use dwell_time::Clock;

use super::Metrics;
use super::queues::Meter;
use super::recent::Tally;

/// A store with counters.
pub(crate) struct Metered {
    store: Arc<dyn Store>,
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
    /// Whether the store's last answer was that it cannot serve.
    is_ill: AtomicBool,
    /// Whether the disk had no room for the last put. The store still takes and acks.
    is_full: AtomicBool,
}

/// Consecutive items that belong to one queue.
struct Runs<T> {
    runs: Vec<(QueueName, usize)>,
    each: Vec<T>,
}

impl<T> Runs<T> {
    fn of<'a>(items: impl ExactSizeIterator<Item = (&'a QueueName, T)>) -> Runs<T> {
        let mut runs: Vec<(QueueName, usize)> = Vec::with_capacity(1);
        let mut each = Vec::with_capacity(items.len());
        for (queue, item) in items {
            match runs.last_mut() {
                Some((last, len)) if last == queue => *len += 1,
                _ => runs.push((queue.clone(), 1)),
            }
            each.push(item);
        }
        Runs { runs, each }
    }
}

impl Metered {
    pub(crate) fn new(store: Arc<dyn Store>, metrics: Arc<Metrics>, clock: Arc<dyn Clock>) -> Metered {
        Metered { store, metrics, clock, is_ill: AtomicBool::new(false), is_full: AtomicBool::new(false) }
    }

    /// Counts one answer for each item, per queue.
    fn count<T, A>(&self, runs: Runs<T>, answers: &[Result<A>], count: impl Fn(&Meter, &mut Tally, &T, &A)) {
        let mut pairs = runs.each.iter().zip(answers);
        for (queue, len) in &runs.runs {
            let meter = self.metrics.queues.of(queue, *len as u64);
            let mut tally = Tally::default();
            for (item, answer) in pairs.by_ref().take(*len) {
                match answer {
                    Ok(answer) => count(&meter, &mut tally, item, answer),
                    Err(error) => self.refused(error),
                }
            }
            self.happened(&meter, &tally);
        }
        if answers.iter().any(Result::is_ok) {
            self.is_well();
        }
    }

    fn count_deliveries(&self, deliveries: &[Delivery]) {
        let mut rest = deliveries;
        while let Some(first) = rest.first() {
            let queue = &first.receipt.queue;
            let len = rest.iter().take_while(|delivery| delivery.receipt.queue == *queue).count();
            let meter = self.metrics.queues.of(queue, len as u64);
            meter.takes.add(len as u64);
            let (run, others) = rest.split_at(len);
            let mut tally = Tally::default();
            for delivery in run {
                meter.lateness.record(delivery.lateness_ms);
                tally.take(delivery.lateness_ms);
            }
            self.happened(&meter, &tally);
            rest = others;
        }
    }

    fn happened(&self, meter: &Meter, tally: &Tally) {
        self.metrics.queues.happened(meter, self.clock.now().wall, tally);
    }

    /// Counts the refusal of a whole call, and returns the answer.
    fn heard<T>(&self, answer: Result<T>) -> Result<T> {
        match &answer {
            Ok(_) => self.is_well(),
            Err(error) => self.refused(error),
        }
        answer
    }

    /// Counts the refusals of single items.
    fn each_heard<T>(&self, answers: Vec<Result<T>>) -> Vec<Result<T>> {
        answers.iter().filter_map(|answer| answer.as_ref().err()).for_each(|error| self.refused(error));
        answers
    }

    fn refused(&self, error: &Error) {
        self.metrics.refused(error.code());
        match error {
            Error::DiskFull { .. } if !self.is_full.swap(true, Ordering::Relaxed) => {
                tracing::warn!(code = error.code(), %error, "the store's disk is full: puts are refused");
            }
            Error::Stopped { .. }
            | Error::Unavailable { .. }
            | Error::OutcomeUnknown { .. }
            | Error::Overloaded { .. }
                if !self.is_ill.swap(true, Ordering::Relaxed) =>
            {
                tracing::warn!(code = error.code(), %error, "the store cannot serve");
            }
            _ => {}
        }
    }

    /// Logged once when the store serves again, and not at each call.
    fn is_well(&self) {
        if self.is_ill.load(Ordering::Relaxed) && self.is_ill.swap(false, Ordering::Relaxed) {
            tracing::info!("the store serves again");
        }
    }

    /// Logged once when a put is accepted again.
    fn has_room(&self) {
        if self.is_full.load(Ordering::Relaxed) && self.is_full.swap(false, Ordering::Relaxed) {
            tracing::info!("the store's disk has room again: puts are taken");
        }
    }
}

#[async_trait]
impl Store for Metered {
    async fn put(&self, puts: Vec<Put>) -> Vec<Result<PutAnswer>> {
        let runs = Runs::of(puts.iter().map(|put| (&put.queue, ())));
        let answers = self.store.put(puts).await;
        self.count(runs, &answers, |meter, tally, (), _| {
            meter.puts.add(1);
            tally.puts += 1;
        });
        if answers.iter().any(Result::is_ok) {
            self.has_room();
        }
        answers
    }

    async fn take(&self, take: Take) -> Result<Vec<Delivery>> {
        let taken = self.heard(self.store.take(take).await)?;
        self.count_deliveries(&taken);
        Ok(taken)
    }

    async fn take_id(&self, queue: QueueName, id: MessageId, terms: LeaseTerms) -> Result<Delivery> {
        let taken = self.heard(self.store.take_id(queue, id, terms).await)?;
        self.count_deliveries(std::slice::from_ref(&taken));
        Ok(taken)
    }

    async fn settle(&self, settles: Vec<Settle>) -> Vec<Result<Settled>> {
        let counted = |action: &Action| match action {
            Action::Ack => |meter: &Meter, tally: &mut Tally| {
                meter.acks.add(1);
                tally.acks += 1;
            },
            Action::Retry { .. } => |meter: &Meter, tally: &mut Tally| {
                meter.retries.add(1);
                tally.retries += 1;
            },
            Action::Release { .. } => |meter: &Meter, _: &mut Tally| meter.releases.add(1),
            Action::Bury { .. } => |meter: &Meter, _: &mut Tally| meter.buries.add(1),
            Action::Extend { .. } => |meter: &Meter, _: &mut Tally| meter.extends.add(1),
        };
        let runs = Runs::of(settles.iter().map(|settle| (&settle.receipt.queue, counted(&settle.action))));
        let answers = self.store.settle(settles).await;
        self.count(runs, &answers, |meter, tally, counted, settled| {
            counted(meter, tally);
            if matches!(settled, Settled::Dead(_)) {
                tally.deaths += 1;
            }
        });
        answers
    }

    async fn cancel(&self, queue: QueueName, targets: Vec<Target>) -> Vec<Result<Cancelled>> {
        let runs = Runs { runs: vec![(queue.clone(), targets.len())], each: vec![(); targets.len()] };
        let answers = self.store.cancel(queue, targets).await;
        self.count(runs, &answers, |meter, _, (), found| {
            meter.cancels.add(u64::from(matches!(found, Cancelled::Cancelled(_))));
        });
        answers
    }

    delegate_store! {
        self.store;
        own: put take take_id settle cancel;
        forward, each_heard: expire_lease reschedule get locate;
        forward, heard: list peek stats forecast queues ready configure revive deaths discard purge delete_queue;
    }
}

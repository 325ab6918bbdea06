//! A mixed run over all commands: the same seed on the same store does the same.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use dwell_model::{
    AttemptLimit, MessageId, Number, Pause, QueueName, Receipt, Setting, SettingChange, SettingName,
};
use dwell_store::{
    Action, Delivery, Error, LeaseRef, LeaseTerms, OnConflict, Put, PutAnswer, PutOutcome, Result, Selection,
    Settle, Store, Take, Target, When,
};
use dwell_testkit::Random;

use crate::support::{Driven, queue};

type PendingTake = std::pin::Pin<Box<dyn Future<Output = Result<Vec<Delivery>>>>>;

pub(super) struct Workload {
    chance: Random,
    steps: usize,
    held: Option<PendingTake>,
    pub(super) ids: Vec<(QueueName, MessageId, Number)>,
    pub(super) receipts: Vec<Receipt>,
    /// The same leases, as an operator would name them.
    leases: Vec<(QueueName, LeaseRef)>,
    /// Puts under an idempotency key: the step, the put, and the answer.
    pub(super) idempotency_keys: Vec<(usize, Put, PutAnswer)>,
    /// Messages that replaced another: the step, the other, and the new one.
    pub(super) replaced: Vec<(usize, MessageId, Number)>,
    /// How often each command did something.
    pub(super) done: BTreeMap<&'static str, u32>,
}

/// The outcome of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    /// Whether an answer was given, including a refusal: not if the disk failed during it.
    pub(super) answered: bool,
    /// Whether the answer promises that its effect is durable, if it changed anything.
    pub(super) promises: bool,
}

impl Outcome {
    const QUIET: Outcome = Outcome { answered: true, promises: false };
}

/// Whether an answer was given, including a refusal: not if the disk failed during it.
fn is_answered<T>(answer: &Result<T>) -> bool {
    !matches!(
        answer,
        Err(Error::OutcomeUnknown { .. } | Error::Stopped { .. } | Error::Unavailable { .. } | Error::Closed)
    )
}

impl Workload {
    pub(super) fn new(seed: u64) -> Workload {
        Workload {
            chance: Random::new(seed),
            steps: 0,
            held: None,
            ids: Vec::new(),
            receipts: Vec::new(),
            leases: Vec::new(),
            idempotency_keys: Vec::new(),
            replaced: Vec::new(),
            done: BTreeMap::new(),
        }
    }

    pub(super) fn queues() -> [QueueName; 3] {
        [queue("a"), queue("b"), queue("c")]
    }

    /// Counts an answer to a command that is durable when it is answered.
    fn durable<T>(&mut self, what: &'static str, answer: &Result<T>) -> Outcome {
        Outcome { promises: answer.is_ok(), ..self.passing(what, answer) }
    }

    /// Counts an answer to a command that a power failure may take back.
    fn passing<T>(&mut self, what: &'static str, answer: &Result<T>) -> Outcome {
        if answer.is_ok() {
            *self.done.entry(what).or_default() += 1;
        }
        Outcome { answered: is_answered(answer), promises: false }
    }

    fn queue(&mut self) -> QueueName {
        let [a, b, c] = Workload::queues();
        self.chance.pick(&[a.clone(), a, b, c]).clone()
    }

    fn message(&mut self) -> Option<(QueueName, MessageId)> {
        if self.ids.is_empty() {
            return None;
        }
        // Recent ones rather than old ones, which are mostly gone.
        let recent = self.ids.len().min(12);
        let (queue, id, _) = &self.ids[self.ids.len() - 1 - self.chance.below(recent as u64) as usize];
        Some((queue.clone(), *id))
    }

    fn receipt(&mut self) -> Option<Receipt> {
        let recent = self.receipts.len().min(6);
        let at = self.receipts.len().checked_sub(1 + self.chance.below(recent as u64) as usize)?;
        self.receipts.get(at).cloned()
    }

    /// Does one thing.
    pub(super) fn step(&mut self, store: &mut Driven) -> Outcome {
        self.steps += 1;
        if let Some(held) = self.held.take() {
            return self.give_back(held, store);
        }
        match self.chance.below(100) {
            0..35 => self.put(store),
            35..50 => self.take(store),
            50..53 => self.take_by_id(store),
            53..71 => self.settle(store),
            71..75 => self.expire_lease(store),
            75..79 => self.cancel(store),
            79..84 => self.reschedule(store),
            84..87 => self.configure(store),
            87..90 => self.sweep(store),
            90..91 => self.purge(store),
            91..92 => self.delete_queue(store),
            92..95 => self.hold(store),
            _ => self.advance(store),
        }
    }

    fn put(&mut self, store: &mut Driven) -> Outcome {
        let engine = store.engine.clone();
        let mut puts = Vec::new();
        for _ in 0..1 + self.chance.below(3) {
            let body = vec![b'x'; self.chance.below(700) as usize];
            let mut put = Put::new(self.queue(), body).priority(self.chance.below(3) as u32 * 1_000);
            if self.chance.coin() {
                put = put.after_ms(self.chance.below(40_000));
            }
            if self.chance.below(3) == 0 {
                let key = format!("key{}", self.chance.below(3));
                let conflict = [OnConflict::Reject, OnConflict::Replace, OnConflict::Keep];
                put = put.key(key.parse().unwrap()).on_conflict(*self.chance.pick(&conflict));
            }
            if self.chance.below(4) == 0 {
                put.max_attempts = Some(AttemptLimit::At(NonZeroU32::new(1).unwrap()));
            }
            if self.chance.below(6) == 0 {
                put.expires = Some(store.now().after(41_000 + self.chance.below(30_000)).unwrap());
            }
            if self.chance.below(4) == 0 {
                put = put.idempotency_key(format!("t{}", self.chance.next()).parse().unwrap());
            }
            puts.push(put);
        }
        let answers = store.run(engine.put(puts.clone()));
        let mut outcome = Outcome::QUIET;
        for (put, answer) in puts.into_iter().zip(answers) {
            let Outcome { answered, promises } = self.durable("put", &answer);
            outcome.answered &= answered;
            outcome.promises |= promises;
            let Ok(answer) = answer else { continue };
            self.ids.push((put.queue.clone(), answer.id, answer.number));
            if let PutOutcome::Replaced(old) = answer.outcome {
                self.replaced.push((self.steps, old, answer.number));
            }
            if put.idempotency_key.is_some() {
                self.idempotency_keys.push((self.steps, put, answer));
            }
        }
        outcome
    }

    fn taken(&mut self, what: &'static str, answer: Result<Vec<Delivery>>) -> Outcome {
        let outcome = self.passing(what, &answer);
        for delivery in answer.into_iter().flatten() {
            let lease = LeaseRef { id: delivery.message.id, takes: delivery.message.standing.counts.takes };
            self.leases.push((delivery.receipt.queue.clone(), lease));
            self.receipts.push(delivery.receipt);
        }
        outcome
    }

    fn take(&mut self, store: &mut Driven) -> Outcome {
        let mut take = Take::from_all(Workload::queues()).max(1 + self.chance.below(4) as usize);
        take = take.lease_ms(2_000 + self.chance.below(30_000));
        if self.chance.below(4) == 0 {
            take = take.session();
        }
        let answer = store.take(take);
        self.taken("take", answer)
    }

    fn take_by_id(&mut self, store: &mut Driven) -> Outcome {
        let Some((queue, id)) = self.message() else { return Outcome::QUIET };
        let engine = store.engine.clone();
        let answer = store.run(engine.take_id(queue, id, LeaseTerms::default()));
        self.taken("take by id", answer.map(|delivery| vec![delivery]))
    }

    fn settle(&mut self, store: &mut Driven) -> Outcome {
        let Some(receipt) = self.receipt() else { return Outcome::QUIET };
        let after_ms = self.chance.coin().then(|| self.chance.below(20_000));
        let priority = self.chance.coin().then(|| self.chance.below(2_000) as u32);
        let (what, action) = match self.chance.below(8) {
            0..3 => ("ack", Action::Ack),
            3 => ("retry", Action::Retry { after_ms, priority, error: Some("no luck".into()) }),
            4 => ("release", Action::Release { after_ms, priority }),
            5..7 => ("bury", Action::Bury { reason: None, priority }),
            _ => ("extend", Action::Extend { lease_ms: Some(1 + self.chance.below(60_000)) }),
        };
        let answer = store.settle(Settle { receipt, action });
        // A lease and its extension are only handed to the operating system.
        if what == "extend" { self.passing(what, &answer) } else { self.durable(what, &answer) }
    }

    fn expire_lease(&mut self, store: &mut Driven) -> Outcome {
        // Those that were taken first have most likely run out or been settled.
        let recent = self.leases.len().min(3);
        let at = self.leases.len().checked_sub(1 + self.chance.below(recent.max(1) as u64) as usize);
        let Some((queue, lease)) = at.and_then(|at| self.leases.get(at).cloned()) else {
            return Outcome::QUIET;
        };
        let engine = store.engine.clone();
        let answer = store.run(engine.expire_lease(queue, vec![lease])).pop().unwrap();
        self.durable("expire lease", &answer)
    }

    fn cancel(&mut self, store: &mut Driven) -> Outcome {
        let Some((queue, id)) = self.message() else { return Outcome::QUIET };
        let engine = store.engine.clone();
        let answer = store.run(engine.cancel(queue, vec![Target::Id(id)])).pop().unwrap();
        self.durable("cancel", &answer)
    }

    fn reschedule(&mut self, store: &mut Driven) -> Outcome {
        let Some((queue, id)) = self.message() else { return Outcome::QUIET };
        let engine = store.engine.clone();
        let when = When::AfterMs(self.chance.below(30_000));
        let answer = store.run(engine.reschedule(queue, vec![(Target::Id(id), when)])).pop().unwrap();
        self.durable("reschedule", &answer)
    }

    fn configure(&mut self, store: &mut Driven) -> Outcome {
        let engine = store.engine.clone();
        let lease = SettingChange::Set(Setting::LeaseMs(1_000 + self.chance.below(60_000)));
        let pause = SettingChange::Set(Setting::Pause(Pause::Until(store.now().after(5_000).unwrap())));
        let reset = SettingChange::Reset(SettingName::Pause);
        let changes = self.chance.pick(&[vec![lease.clone()], vec![pause, lease], vec![reset]]).clone();
        let answer = store.run(engine.configure(self.queue(), changes));
        self.durable("configure", &answer)
    }

    fn sweep(&mut self, store: &mut Driven) -> Outcome {
        let engine = store.engine.clone();
        let which = self.chance.pick(&[Selection::All, Selection::Oldest(1)]).clone();
        let queue = self.queue();
        if self.chance.below(3) > 0 {
            let answer = store.run(engine.revive(queue, which, When::AfterMs(self.chance.below(5_000))));
            self.durable("revive", &answer)
        } else {
            let answer = store.run(engine.discard(queue, which));
            self.durable("discard", &answer)
        }
    }

    fn purge(&mut self, store: &mut Driven) -> Outcome {
        let engine = store.engine.clone();
        let answer = store.run(engine.purge(self.queue()));
        self.durable("purge", &answer)
    }

    fn delete_queue(&mut self, store: &mut Driven) -> Outcome {
        let engine = store.engine.clone();
        let answer = store.run(engine.delete_queue(self.queue()));
        self.durable("delete queue", &answer)
    }

    /// A take whose caller goes before it looks at the answer; it is dropped in the next step.
    fn hold(&mut self, store: &mut Driven) -> Outcome {
        let engine = store.engine.clone();
        let take = Take::from_all(Workload::queues()).max(2);
        let mut held: PendingTake = Box::pin(async move { engine.take(take).await });
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(held.as_mut().poll(&mut context).is_pending());
        store.driver.turn();
        self.held = Some(held);
        Outcome { answered: !store.disk.is_off(), promises: false }
    }

    fn give_back(&mut self, held: PendingTake, store: &mut Driven) -> Outcome {
        drop(held);
        store.driver.turn();
        *self.done.entry("give back").or_default() += 1;
        Outcome { answered: !store.disk.is_off(), promises: false }
    }

    fn advance(&mut self, store: &mut Driven) -> Outcome {
        store.advance(self.chance.below(12_000));
        *self.done.entry("advance").or_default() += 1;
        Outcome { answered: !store.disk.is_off(), promises: false }
    }
}

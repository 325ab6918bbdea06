//! Drives a store and the reference with the same steps, and compares every answer.

use std::fmt::Debug;

use dwell_model::{
    AttemptLimit, Backoff, Limits, Message, MessageId, Now, Number, QueueName, Receipt, Settings, StateKind,
    Timestamp,
};

use super::reference::{Reference, shown};
use super::step::{PutPlan, Step, TakePlan, Then};
use crate::conformance::stage::queue;
use crate::conformance::waiting::{PendingTake, await_true};
use crate::conformance::{Factory, Harness};
use crate::{Action, Blocking, Delivery, Forecast, Page, PutAnswer, QueueStats, Result, Settle, Store, Take};

/// A difference, with the calls that led to it.
pub(super) type Difference = String;

/// Limits and defaults that random calls reach.
fn limits() -> Limits {
    Limits {
        leased: 6,
        leased_per_queue: 4,
        queues: 3,
        defaults: Settings {
            lease_ms: 500,
            max_attempts: AttemptLimit::At(3.try_into().unwrap()),
            backoff: Backoff { base_ms: 10, factor_percent: 300, cap_ms: 1_000, jitter_percent: 0 },
            idempotency_ms: 1_000,
            ..Settings::default()
        },
        ..Limits::default()
    }
}

/// Runs one life of a store; returns the first difference.
pub(super) fn drive(factory: &Factory, steps: &[Step]) -> std::result::Result<(), Difference> {
    let mut driver = Driver::open(factory);
    for (index, step) in steps.iter().enumerate() {
        // A look at the queues lets time act on all of them. What passes is left to be noticed by the next step, where
        // a store discards at once what is beyond its retention then.
        let looks = !matches!(step, Step::Advance(_)) || !driver.harness.shows_retention_at_once();
        let done = driver.step(step).and_then(|()| if looks { driver.compare_queues() } else { Ok(()) });
        done.map_err(|difference| format!("at step {index}, {step:?}:\n{difference}"))?;
    }
    let done = driver.compare_queues().and_then(|()| driver.compare_everything());
    done.map_err(|difference| format!("at the end:\n{difference}"))
}

pub(super) struct Driver {
    pub(super) harness: Box<dyn Harness>,
    pub(super) reference: Reference,
    pub(super) names: Vec<QueueName>,
    mono_ms: u64,
    /// All messages so far, latest last.
    pub(super) known: Vec<(MessageId, Number)>,
    /// All receipts so far, latest last.
    pub(super) receipts: Vec<Receipt>,
    /// Whether an expiry may have been counted by the process that has ended, by its successor, or by both.
    deaths_are_shared: bool,
}

impl Driver {
    fn open(factory: &Factory) -> Driver {
        let harness = factory(limits());
        let now = Now { wall: harness.now(), mono_ms: 0 };
        Driver {
            reference: Reference::new(limits(), now, [1, 2].map(|partitions| harness.partitions(partitions))),
            harness,
            names: ["b", "a/1", "B", "a"].map(queue).to_vec(),
            mono_ms: 0,
            known: Vec::new(),
            receipts: Vec::new(),
            deaths_are_shared: false,
        }
    }

    fn store(&self) -> Blocking<dyn Store> {
        Blocking::new(self.harness.store())
    }

    fn now(&self) -> Now {
        Now { wall: self.harness.now(), mono_ms: self.mono_ms }
    }

    fn step(&mut self, step: &Step) -> std::result::Result<(), Difference> {
        match step {
            Step::Put(puts) => self.put(puts),
            Step::Take(take) => {
                let take = self.take_of(take);
                let answer = self.store().take(take.clone());
                self.compare_take(&take, answer)
            }
            Step::TakeId { q, pick, lease_ms, session, holder } => {
                let (name, id) = (self.name(*q), self.message(*q, *pick));
                let session = *session && self.harness.has_sessions();
                let terms = Driver::terms_of(*lease_ms, session, *holder);
                let answer = self.store().take_id(name.clone(), id, terms.clone());
                let given = answer.as_ref().ok();
                let expected = self.reference.take_id(&name, id, &terms, given);
                let expected = expected.map(|delivery| vec![delivery]);
                self.compare_deliveries(&(name, id), answer.map(|delivery| vec![delivery]), expected)
            }
            Step::Settle(plans) => {
                let settles: Vec<_> = plans.iter().map(|plan| self.settle_of(plan)).collect();
                let answers = self.store().settle(settles.clone());
                let expected = settles.iter().map(|settle| self.reference.settle(settle)).collect();
                same("settle", &settles, answers, expected)
            }
            Step::ExpireLease { q, leases } => {
                let name = self.name(*q);
                let leases: Vec<_> = leases.iter().map(|lease| self.lease_ref(*q, *lease)).collect();
                let answers = self.store().expire_lease(name.clone(), leases.clone());
                let expected =
                    leases.iter().map(|lease| self.reference.expire_lease(&name, *lease)).collect();
                same("expire_lease", &leases, answers, expected)
            }
            Step::Cancel { q, targets } => {
                let (name, targets) = (self.name(*q), self.targets(*q, targets));
                let answers = self.store().cancel(name.clone(), targets.clone());
                let expected = targets.iter().map(|target| self.reference.cancel(&name, target)).collect();
                same("cancel", &targets, answers, expected)
            }
            Step::Reschedule { q, moves } => {
                let name = self.name(*q);
                let moves: Vec<_> = moves
                    .iter()
                    .map(|(target, when)| (self.target(*q, target), self.when_of(when)))
                    .collect();
                let answers = self.store().reschedule(name.clone(), moves.clone());
                let reference = &mut self.reference;
                let expected =
                    moves.iter().map(|(target, when)| reference.reschedule(&name, target, *when)).collect();
                same("reschedule", &moves, answers, expected)
            }
            Step::Get { q, targets, dead } => {
                let (name, targets) = (self.name(*q), self.targets(*q, targets));
                let answers = self.store().get(name.clone(), targets.clone(), *dead);
                let shown = |answer: Result<Message>| answer.map(|message| self.shown(message));
                let answers: Vec<_> = answers.into_iter().map(shown).collect();
                let reference = &self.reference;
                let expected =
                    targets.iter().map(|target| shown(reference.get(&name, target, *dead))).collect();
                same("get", &(targets, dead), answers, expected)
            }
            Step::Locate(picks) => {
                let numbers: Vec<_> = picks.iter().map(|pick| self.number(*pick)).collect();
                let answer = self.store().locate(numbers.clone());
                let expected: Vec<_> = numbers.iter().map(|number| self.reference.locate(*number)).collect();
                let answer = answer.into_iter().collect();
                self.unless_expiry_is_under_way("locate", &numbers, answer, Ok(expected))
            }
            Step::List { q, state, max } => self.list(&self.name(*q), *state, *max),
            Step::Stats(q) => {
                let name = self.name(*q);
                let answer = self.store().stats(name.clone());
                self.unless_expiry_is_under_way("stats", &name, answer, self.reference.stats(&name))
            }
            Step::Queues { after, max } => {
                let after = after.map(|q| self.name(q));
                let answer = self.store().queues(after.clone(), *max);
                let expected = Ok(self.reference.queues(after.as_ref(), *max));
                self.unless_expiry_is_under_way("queues", &after, answer, expected)
            }
            Step::Configure { q, changes } => {
                let name = self.name(*q);
                let changes: Vec<_> = changes.iter().map(|change| self.change_of(change)).collect();
                let answer = self.store().configure(name.clone(), changes.clone());
                let expected = self.reference.configure(&name, &changes);
                self.unless_expiry_is_under_way("configure", &changes, answer, expected)
            }
            Step::Revive { q, which, when } => {
                let (name, which) = (self.name(*q), self.selection(*q, which));
                let when = self.when_of(when);
                let answer = self.store().revive(name.clone(), which.clone(), when);
                let expected = self.reference.revive(&name, &which, when);
                same("revive", &which, answer, expected)
            }
            Step::Discard { q, which } => {
                let (name, which) = (self.name(*q), self.selection(*q, which));
                let answer = self.store().discard(name.clone(), which.clone());
                let expected = self.reference.discard(&name, &which);
                same("discard", &which, answer, Ok(expected))
            }
            Step::Purge(q) => {
                let name = self.name(*q);
                let answer = self.store().purge(name.clone());
                same("purge", &name, answer, Ok(self.reference.purge(&name)))
            }
            Step::DeleteQueue(q) => {
                let name = self.name(*q);
                let answer = self.store().delete_queue(name.clone());
                same("delete_queue", &name, answer, Ok(self.reference.delete_queue(&name)))
            }
            Step::Advance(ms) => {
                self.advance(*ms);
                Ok(())
            }
            Step::MoveWall(by_ms) => self.step_wall(*by_ms),
            Step::Restart => self.restart(false),
            Step::Close => self.restart(true),
            Step::Wait { take, then, dropped } => self.wait(take, then, *dropped),
        }
    }

    fn advance(&mut self, ms: u64) {
        self.harness.advance(ms);
        self.mono_ms += ms;
        self.reference.at(self.now());
    }

    /// Lets time act on all queues before the step, and on the store after it: otherwise the set of ready
    /// messages would be undetermined.
    fn step_wall(&mut self, by_ms: i64) -> std::result::Result<(), Difference> {
        self.compare_queues()?;
        if self.harness.step_wall(by_ms) {
            self.reference.at(self.now());
        }
        self.compare_queues()
    }

    fn restart(&mut self, is_clean: bool) -> std::result::Result<(), Difference> {
        if self.harness.durable() {
            self.compare_queues()?;
            self.deaths_are_shared = self.reference.has_expired();
            if is_clean {
                self.reference.closed();
                self.harness.close();
            } else {
                self.harness.restart();
            }
            self.reference.restarted(self.now());
        }
        self.compare_queues()
    }

    fn put(&mut self, plans: &[PutPlan]) -> std::result::Result<(), Difference> {
        let puts: Vec<_> = plans.iter().map(|plan| self.put_of(plan)).collect();
        let answers = self.store().put(puts.clone());
        let expected: Vec<Result<PutAnswer>> = puts
            .iter()
            .enumerate()
            .map(|(index, put)| self.reference.put(put, answers.get(index).and_then(|a| a.as_ref().ok())))
            .collect();
        self.known.extend(expected.iter().flatten().map(|answer| (answer.id, answer.number)));
        self.complain()?;
        same("put", &puts, answers, expected)
    }

    fn wait(&mut self, take: &TakePlan, then: &Then, dropped: bool) -> std::result::Result<(), Difference> {
        let take = Take { wait_ms: 1_000_000_000, ..self.take_of(take) };
        if let Some(answer) = self.would_answer(&take) {
            let given = self.store().take(take.clone());
            return if answer {
                self.compare_take(&take, given)
            } else {
                same("take", &take, given, Ok(vec![]))
            };
        }
        if let Err(refusal) = self.reference.check_waits(&take) {
            return same("take", &take, self.store().take(take.clone()), Err(refusal));
        }
        let mut waiting = PendingTake::start(self.harness.store(), take.clone());
        if let Some(answer) = waiting.poll() {
            return Err(format!("{take:?} had to wait, and was answered {answer:?}"));
        }
        let mut names = take.queues.clone();
        names.sort();
        names.dedup();
        self.await_waiting(&names);
        self.reference.waited_on = names;
        self.compare_queues()?;
        match then {
            Then::Put(plan) => self.put(std::slice::from_ref(plan))?,
            Then::Advance(ms) => self.advance(*ms),
        }
        let ends = self.would_answer(&take).is_some();
        self.reference.waited_on.clear();
        match (ends, dropped) {
            (true, true) => {
                waiting.await_wake();
                drop(waiting);
                self.harness.quiesce();
                let given = self.reference.take(&take, &[]).unwrap_or_default();
                self.give_back(given);
            }
            (true, false) => {
                let answer = waiting.answer();
                self.compare_take(&take, answer)?;
            }
            (false, _) => {
                drop(waiting);
                self.harness.quiesce();
            }
        }
        Ok(())
    }

    /// Waits until the store counts a waiting take on each of these queues, which had none.
    fn await_waiting(&self, names: &[QueueName]) {
        let store = self.store();
        let waits = |name: &QueueName| store.stats(name.clone()).is_ok_and(|stats| stats.waiting > 0);
        await_true("the take counts as waiting", || names.iter().all(waits));
    }

    /// Gives unread messages back, in the way of this store.
    fn give_back(&mut self, given: Vec<Delivery>) {
        if !self.harness.gives_back_by_release() {
            return self.reference.give_back(&given);
        }
        for Delivery { receipt, .. } in given {
            let action = Action::Release { after_ms: None, priority: None };
            self.reference.settle(&Settle { receipt, action }).unwrap();
        }
    }

    /// A message as far as this store shows it.
    fn shown(&self, message: Message) -> Message {
        self.harness.as_shown(shown(message))
    }

    /// Whether a take is answered at once: with messages or a refusal (`true`), or with nothing since it does
    /// not wait (`false`); `None` if it waits.
    fn would_answer(&mut self, take: &Take) -> Option<bool> {
        if take.max == 0 || take.lease_ms == Some(0) {
            return Some(take.lease_ms == Some(0));
        }
        let refused_or_ready = self.reference.has_answer(take);
        refused_or_ready.then_some(true)
    }

    fn compare_take(
        &mut self,
        take: &Take,
        answer: Result<Vec<Delivery>>,
    ) -> std::result::Result<(), Difference> {
        let expected = self.reference.take(take, answer.as_deref().unwrap_or_default());
        self.compare_deliveries(take, answer, expected)
    }

    fn compare_deliveries(
        &mut self,
        asked: &dyn Debug,
        answer: Result<Vec<Delivery>>,
        expected: Result<Vec<Delivery>>,
    ) -> std::result::Result<(), Difference> {
        self.complain()?;
        let taken = expected.iter().flatten();
        self.receipts.extend(taken.map(|delivery| delivery.receipt.clone()));
        let comparable = |mut delivery: Delivery| {
            if !self.reference.knows_lateness(delivery.message.id) {
                delivery.lateness_ms = 0;
            }
            delivery.message = self.shown(delivery.message);
            delivery
        };
        let comparable = |answer: Result<Vec<Delivery>>| {
            answer.map(|deliveries| deliveries.into_iter().map(comparable).collect::<Vec<_>>())
        };
        same("take", asked, comparable(answer), comparable(expected))
    }

    fn list(&self, name: &QueueName, state: StateKind, max: usize) -> std::result::Result<(), Difference> {
        let mut after = None;
        loop {
            let answer = self.store().list(name.clone(), state, after, max);
            let shown = |mut page: Page| {
                page.messages = page.messages.into_iter().map(|message| self.shown(message)).collect();
                page
            };
            let answer = answer.map(shown);
            let expected = self.reference.list(name, state, after, max).map(shown);
            let next = expected.as_ref().ok().and_then(|page| page.next);
            self.unless_expiry_is_under_way("list", &(name, state, after, max), answer, expected)?;
            match next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }

    fn compare_queues(&self) -> std::result::Result<(), Difference> {
        let answer: Result<Vec<QueueStats>> = self.store().queues(None, 100);
        let expected = Ok(self.reference.queues(None, 100));
        self.unless_expiry_is_under_way("queues", &"from the first on", answer, expected)?;
        self.compare_forecast(None)
    }

    /// Compares the forecast of a queue, or of all, at the instants of its messages and at adjacent ones.
    fn compare_forecast(&self, name: Option<&QueueName>) -> std::result::Result<(), Difference> {
        let dues = self.reference.dues(name);
        let beside = |due: &Timestamp| [-1, 0, 1].map(|by| Timestamp::from_ms(due.as_ms() + by).ok());
        let edges = dues.iter().rev().flat_map(beside).flatten().chain([Timestamp::MIN, Timestamp::MAX]);
        let edges: Vec<_> = edges.take(Forecast::MAX_EDGES).collect();
        let answer = self.store().forecast(name.map(|name| vec![name.clone()]), edges.clone());
        let due_by = |edge: &Timestamp| dues.partition_point(|due| due <= edge) as u64;
        let expected =
            Forecast { scheduled: dues.len() as u64, due_by: edges.iter().map(due_by).collect(), within: 0 };
        let is_near = answer.as_ref().is_ok_and(|said| {
            let mut off = said.due_by.iter().zip(&expected.due_by).map(|(said, due)| said.abs_diff(*due));
            said.scheduled == expected.scheduled
                && said.due_by.len() == edges.len()
                && off.all(|off| off <= said.within)
        });
        if is_near { Ok(()) } else { same("forecast", &(name, edges), answer, Ok(expected)) }
    }

    fn compare_everything(&self) -> std::result::Result<(), Difference> {
        for name in &self.names {
            for state in StateKind::ALL {
                self.list(name, state, 7)?;
            }
            if self.reference.stats(name).is_ok() {
                self.compare_forecast(Some(name))?;
            }
        }
        let numbers: Vec<_> = self.known.iter().map(|(_, number)| *number).collect();
        let expected: Vec<_> = numbers.iter().map(|number| self.reference.locate(*number)).collect();
        let located = self.store().locate(numbers.clone()).into_iter().collect();
        self.unless_expiry_is_under_way("locate", &numbers, located, Ok(expected))?;
        if self.deaths_are_shared {
            return Ok(());
        }
        let (deaths, expected) = (self.store().deaths(), Ok(self.reference.deaths()));
        self.unless_expiry_is_under_way("deaths", &"since the last opening", deaths, expected)
    }

    fn unless_expiry_is_under_way<T: PartialEq + Debug>(
        &self,
        call: &str,
        asked: &dyn Debug,
        answer: Result<T>,
        expected: Result<T>,
    ) -> std::result::Result<(), Difference> {
        let expiry = !self.harness.shows_expiry_at_once() && self.reference.has_lately_expired();
        let retention = !self.harness.shows_retention_at_once() && self.reference.has_lately_discarded();
        if expiry || retention {
            return Ok(());
        }
        same(call, asked, answer, expected)
    }

    fn complain(&mut self) -> std::result::Result<(), Difference> {
        if self.reference.complaints.is_empty() { Ok(()) } else { Err(self.reference.complaints.join("\n")) }
    }
}

fn same<T: PartialEq + Debug>(
    call: &str,
    asked: &dyn Debug,
    answer: T,
    expected: T,
) -> std::result::Result<(), Difference> {
    if answer == expected {
        return Ok(());
    }
    Err(format!("{call} {asked:?}\n  the store says  {answer:?}\n  the model says  {expected:?}"))
}

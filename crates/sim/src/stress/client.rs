//! One caller: all commands of the contract, for one message or many,
//! waiting takes next to other commands, and takes that are dropped.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use dwell_engine::Engine;
use dwell_model::{MessageId, Receipt, SettingChange, StateKind};
use dwell_store::{self as wish, Delivery, Error, LeaseRef, LeaseTerms, Result, Settled, Store as _};
use dwell_testkit::Random;

use super::StressShared;
use super::wait::polled;
use crate::oracle::{
    Action, Address, GroupId, GroupTarget, Member, Op, PutHeard, StoreAnswer, StoreCall, Sweep, Terms,
    ViolationKind,
};
use crate::run::answers::{self, CommandFate};
use crate::workload::{self, Choice, NewPut, key_name, queue_name, words};

/// A caller avoids a group while this many commands to it are unexplained.
const CROWD: usize = 24;
/// The number of further commands after which a waiting take is dropped.
const PATIENCE: u32 = 5;

/// The pace from which on the clock also leaps.
const LEAPS: u64 = 60;

/// The behaviour of all callers for a while.
pub(super) struct Burst {
    /// How far they move the clock at a time; 0 if time stands still.
    pub(super) pace: u64,
    /// Whether one of them closes the store during the burst.
    pub(super) closes: bool,
    /// Whether some leases are bound to the process.
    pub(super) binds: bool,
    /// The number of commands per caller.
    pub(super) commands: u64,
    /// The number of further takes that may wait. A dropped take may have leased anything, and what overlaps with several
    /// of them has more explanations than can be tried.
    pub(super) may_wait: AtomicUsize,
}

impl Burst {
    fn lets_wait(&self) -> bool {
        let less = |left: usize| left.checked_sub(1);
        self.may_wait.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

/// A lease that the caller holds.
#[derive(Clone, Debug)]
struct HeldLease {
    address: Address,
    id: MessageId,
    receipt: Receipt,
    /// The number of the take that granted it.
    takes: u32,
}

/// The state of a caller between bursts.
pub(super) struct Hands {
    rng: Random,
    held: Vec<HeldLease>,
    /// Receipts that were settled: they must not prove a lease any more.
    spent: Vec<HeldLease>,
    /// A put to be retried.
    again: Option<NewPut>,
    /// Whether to put something else under its idempotency key first, after the store has answered the put.
    is_mismatch: bool,
}

impl Hands {
    pub(super) fn new(rng: Random) -> Hands {
        Hands { rng, held: Vec::new(), spent: Vec::new(), again: None, is_mismatch: false }
    }
}

/// A message as it is named to the oracle and to the store.
type NamedMessage = (GroupId, GroupTarget, wish::Target);

/// A take that waits while its caller continues.
struct Flight {
    op: Op,
    age: u32,
    future: Pin<Box<dyn Future<Output = Result<Vec<Delivery>>> + Send>>,
}

/// A caller; see the [module](self).
pub(super) struct Client<'a> {
    shared: &'a StressShared,
    burst: &'a Burst,
    engine: Engine,
    hands: &'a mut Hands,
    flights: Vec<Flight>,
    /// Whether this caller closes the store.
    closes: bool,
    is_over: bool,
}

impl<'a> Client<'a> {
    pub(super) fn new(
        shared: &'a StressShared,
        burst: &'a Burst,
        engine: Engine,
        hands: &'a mut Hands,
        closes: bool,
    ) -> Client<'a> {
        Client { shared, burst, engine, hands, flights: Vec::new(), closes, is_over: false }
    }

    /// Sends the commands of the burst, or stops at a violation.
    pub(super) fn run(mut self) {
        let closes_after = self.hands.rng.below(self.burst.commands);
        for number in 0..self.burst.commands {
            if self.is_over || self.shared.is_stuck.load(Ordering::SeqCst) {
                break;
            }
            if self.closes && number == closes_after {
                if let Err(error) = self.engine.close() {
                    self.shared.accuse(ViolationKind::Contradiction, format!("the first close said {error}"));
                }
                break;
            }
            self.pass_time();
            self.step();
            self.hear_flights();
        }
        for flight in std::mem::take(&mut self.flights) {
            self.give_up(flight);
        }
        // Time may leap before the next burst.
        self.hands.is_mismatch = false;
        if let Some(put) = self.hands.again.take() {
            self.shared.oracle().unpin(put.address.group(), put.spec.no);
        }
    }

    fn pass_time(&mut self) {
        let rng = &mut self.hands.rng;
        let pace = self.burst.pace;
        if pace == 0 {
            return;
        }
        match rng.below(1_000) {
            0..500 => {}
            500..990 => self.shared.advance(rng.between(1, pace)),
            990..998 => self.shared.advance(rng.between(1, 200 * pace)),
            // Days at a time, if time moves fast: distant instants come near.
            _ if pace >= LEAPS => self.shared.advance(rng.between(60_000, 60 * 86_400_000)),
            _ => {}
        }
    }

    fn step(&mut self) {
        if let Some(mut again) = self.hands.again.take() {
            if self.hands.is_mismatch {
                self.hands.is_mismatch = false;
                self.send_mismatch(&again);
            }
            if self.shared.uses.percent(&mut self.hands.rng, 50) {
                again = workload::again_otherwise(&mut self.hands.rng, &again, self.shared.wall());
            }
            return self.send_puts(vec![again]);
        }
        if self.hands.rng.percent(6) {
            return self.look();
        }
        match workload::choose(&mut self.hands.rng, self.shared.uses) {
            Choice::Put => self.put(),
            Choice::Take => self.take(),
            Choice::Settle => self.settle(),
            Choice::Stale => self.settle_spent(),
            Choice::EndLease => self.end_leases(),
            Choice::TakeById => self.take_by_id(),
            Choice::Cancel => self.cancel(),
            Choice::Reschedule => self.reschedule(),
            Choice::Get => self.get(),
            Choice::Peek => self.peek(),
            Choice::Revive => self.revive(),
            Choice::Discard => self.discard(),
            Choice::Configure => self.configure(),
            Choice::Retain => self.retain(),
            Choice::Sweep => self.sweep(),
        }
    }

    fn begin(&self, ask: StoreCall) -> Op {
        let now = self.shared.now();
        self.shared.oracle().begin(ask, now)
    }

    /// Checks that an error is allowed while there is no fault of the disk.
    fn check<'e>(&mut self, errors: impl Iterator<Item = &'e Error>) {
        for error in errors {
            match error {
                Error::Closed if self.burst.closes => self.is_over = true,
                // A bulk operation was interrupted by a close, or for lack of room for what it revived.
                Error::OutcomeUnknown { .. } if self.burst.closes => self.is_over = true,
                Error::OutcomeUnknown { .. } if !answers::is_fatal(error) => {}
                Error::Closed
                | Error::OutcomeUnknown { .. }
                | Error::Stopped { .. }
                | Error::Unavailable { .. }
                | Error::DiskFull { .. } => {
                    let text = format!("nothing is wrong with the disk, and the store says {error}");
                    self.shared.accuse(ViolationKind::Contradiction, text);
                    self.is_over = true;
                }
                _ => {}
            }
        }
    }

    /// Reports the outcome of each of these commands to the oracle.
    fn conclude_each<T>(
        &mut self,
        ops: Vec<Op>,
        answers: Option<Vec<Result<T>>>,
        fate: impl Fn(&Result<T>) -> CommandFate,
    ) -> Vec<Result<T>> {
        let Some(answers) = answers else {
            self.is_over = true;
            ops.into_iter().for_each(|op| self.shared.conclude(op, CommandFate::Unknown));
            return Vec::new();
        };
        self.check(answers.iter().filter_map(|answer| answer.as_ref().err()));
        if answers.len() != ops.len() {
            let text = format!("{} items were given {} answers", ops.len(), answers.len());
            self.shared.accuse(ViolationKind::Contradiction, text);
        }
        for (op, answer) in ops.into_iter().zip(&answers) {
            self.shared.conclude(op, fate(answer));
        }
        answers
    }

    fn conclude_one<T>(
        &mut self,
        op: Op,
        answer: Option<Result<T>>,
        fate: impl Fn(&Result<T>) -> CommandFate,
    ) -> Option<Result<T>> {
        self.conclude_each(vec![op], answer.map(|answer| vec![answer]), fate).pop()
    }

    fn is_crowded(&self, group: GroupId) -> bool {
        self.shared.oracle().waiting(group) > CROWD
    }

    /// A random queue: mostly the one in focus, if there is one.
    fn queue(&mut self) -> u32 {
        let rng = &mut self.hands.rng;
        match self.shared.focus {
            Some(queue) if rng.percent(80) => queue,
            _ => workload::queue(rng),
        }
    }

    fn put(&mut self) {
        let count = *self.hands.rng.pick(&[1, 1, 1, 1, 3, 12, 100]);
        let (queue, now) = (self.queue(), self.shared.wall());
        let mut puts = Vec::new();
        for _ in 0..count {
            let no = self.shared.pool().next_no();
            let rng = &mut self.hands.rng;
            let key = rng.percent(if count > 50 { 10 } else { 35 }).then(|| workload::key(rng));
            let put = workload::put_at(rng, Address { queue, key, no }, now);
            let group = put.address.group();
            if self.is_crowded(group) {
                continue;
            }
            if put.spec.idempotency_key {
                self.shared.oracle().pin(group);
            }
            puts.push(put);
        }
        self.send_puts(puts);
    }

    /// Sends puts, or their retries.
    fn send_puts(&mut self, puts: Vec<NewPut>) {
        if puts.is_empty() {
            return;
        }
        let ask = |put: &NewPut| self.begin(StoreCall::Put(put.address.group(), put.spec));
        let ops = puts.iter().map(ask).collect();
        let wishes = puts.iter().map(|put| put.put.clone()).collect();
        let answers = self.shared.answer("a put", self.engine.put(wishes));
        let answers = self.conclude_each(ops, answers, answers::put);
        for (put, answer) in puts.iter().zip(&answers) {
            if let (
                Ok(answer),
                CommandFate::Heard(StoreAnswer::Put(PutHeard::Created { .. } | PutHeard::Replaced { .. })),
            ) = (answer, answers::put(answer))
            {
                self.shared.oracle().numbered(put.spec.no, answer.number.get());
                self.shared.pool().add(&mut self.hands.rng, put.address, answer.id);
            }
        }
        let is_put: Vec<bool> = answers.iter().map(Result::is_ok).collect();
        for (at, put) in puts.into_iter().enumerate().filter(|(_, put)| put.spec.idempotency_key) {
            if self.may_repeat() && self.hands.again.is_none() && self.hands.rng.percent(10) {
                let is_put = is_put.get(at).copied().unwrap_or_default();
                self.hands.is_mismatch = is_put && self.shared.uses.percent(&mut self.hands.rng, 50);
                self.hands.again = Some(put);
            } else {
                self.shared.oracle().unpin(put.address.group(), put.spec.no);
            }
        }
    }

    /// Puts something else under the idempotency key of a put that was answered.
    fn send_mismatch(&mut self, first: &NewPut) {
        let no = self.shared.pool().next_no();
        let put = workload::mismatched(&mut self.hands.rng, first, no);
        let op = self.begin(StoreCall::Mismatch { group: first.address.group(), no: first.spec.no });
        let answer = self.shared.answer("a put", self.engine.put(vec![put]));
        self.conclude_each(vec![op], answer, answers::put);
    }

    /// Whether the idempotency key of a put is certainly still stored when the put is retried.
    fn may_repeat(&self) -> bool {
        self.burst.pace < LEAPS
    }

    fn take(&mut self) {
        let mut queues = workload::queues(&mut self.hands.rng);
        if let (Some(queue), true) = (self.shared.focus, self.hands.rng.percent(80)) {
            queues = vec![queue];
        }
        if queues.iter().any(|queue| self.shared.oracle().takes_waiting(*queue) > CROWD) {
            return;
        }
        let rng = &mut self.hands.rng;
        let lease_ms = workload::lease_ms(rng);
        let session = self.burst.binds && rng.percent(20);
        let max = *rng.pick(&[1, 3, 8, 8, 70, 200]);
        let waits = rng.percent(30) && self.burst.lets_wait();
        let mut take =
            wish::Take::from_all(queues.iter().copied().map(queue_name)).max(max).lease_ms(lease_ms);
        if waits {
            take = take.wait_ms(*rng.pick(&[20, 3_000, 60_000]));
        }
        take.session = session;
        let terms = workload::terms(&mut self.hands.rng, self.shared.uses, lease_ms, session);
        take.holder = terms.holder.map(words::holder);
        let op = self.begin(StoreCall::Take { queues, terms });
        if waits {
            let engine = self.engine.clone();
            let future = Box::pin(async move { engine.take(take).await });
            self.flights.push(Flight { op, age: 0, future });
            return;
        }
        match self.shared.answer("a take that does not wait", self.engine.take(take)) {
            Some(answer) => self.took(op, answer),
            None => self.shared.conclude(op, CommandFate::Unknown),
        }
    }

    fn took(&mut self, op: Op, answer: Result<Vec<Delivery>>) {
        let answer = self.conclude_one(op, Some(answer), |answer| answers::took(answer, false));
        if let Some(Ok(deliveries)) = answer {
            deliveries.iter().for_each(|delivery| self.hold(delivery));
        }
    }

    /// Polls the waiting takes; drops some without a poll, and those that have waited for long.
    fn hear_flights(&mut self) {
        for mut flight in std::mem::take(&mut self.flights) {
            if flight.age > 0 && !self.burst.closes && self.hands.rng.percent(15) {
                self.give_up(flight);
                continue;
            }
            match polled(&mut flight.future) {
                Some(answer) => {
                    self.burst.may_wait.fetch_add(1, Ordering::Relaxed);
                    self.took(flight.op, answer);
                }
                None if self.burst.closes || flight.age < PATIENCE && self.hands.rng.percent(80) => {
                    self.flights.push(Flight { age: flight.age + 1, ..flight });
                }
                None => self.give_up(flight),
            }
        }
    }

    /// Drops a take. Calls sent afterwards are answered only after the store has noticed, and has taken back what it
    /// could not deliver. A store that is closed does not notice, but answers the take.
    fn give_up(&mut self, flight: Flight) {
        let Flight { op, future, .. } = flight;
        if self.burst.closes {
            return match self.shared.answer("a take that waits when the store is closed", future) {
                Some(answer) => self.took(op, answer),
                None => self.shared.conclude(op, CommandFate::Unknown),
            };
        }
        drop(future);
        let probe = queue_name(0);
        for _ in 0..2 {
            let _ =
                self.shared.answer("stats behind a take that was given up", self.engine.stats(probe.clone()));
        }
        let now = self.shared.now();
        self.shared.oracle().abandon(op, now);
    }

    fn hold(&mut self, delivery: &Delivery) {
        let Some((address, _)) = answers::delivered(delivery) else { return };
        let id = delivery.message.id;
        self.shared.pool().add(&mut self.hands.rng, address, id);
        let takes = delivery.message.standing.counts.takes;
        self.hands.held.push(HeldLease { address, id, receipt: delivery.receipt.clone(), takes });
    }

    fn settle(&mut self) {
        let most = *self.hands.rng.pick(&[1, 6, 6, 100]);
        let mut batch = Vec::new();
        while !self.hands.held.is_empty() && batch.len() < most {
            let at = self.hands.rng.below(self.hands.held.len() as u64) as usize;
            let held = self.hands.held.swap_remove(at);
            // A lease that is dropped here runs out.
            if self.hands.rng.percent(90) && !self.is_crowded(held.address.group()) {
                batch.push(held);
            }
        }
        self.settle_batch(batch);
    }

    fn settle_spent(&mut self) {
        let spent = &mut self.hands.spent;
        if spent.is_empty() {
            return;
        }
        let at = self.hands.rng.below(spent.len() as u64) as usize;
        let held = spent.swap_remove(at);
        if !self.is_crowded(held.address.group()) {
            self.settle_batch(vec![held]);
        }
    }

    fn settle_batch(&mut self, batch: Vec<HeldLease>) {
        if batch.is_empty() {
            return;
        }
        let (mut settles, mut ops, mut extends) = (Vec::new(), Vec::new(), Vec::new());
        for held in &batch {
            let (action, wish) = workload::action(&mut self.hands.rng);
            let token = held.receipt.token.0;
            ops.push(self.begin(StoreCall::Settle { message: held.address, token, action }));
            settles.push(wish::Settle { receipt: held.receipt.clone(), action: wish });
            extends.push(matches!(action, Action::Extend { .. }));
        }
        let answers = self.shared.answer("a settlement", self.engine.settle(settles));
        let answers = self.conclude_each(ops, answers, answers::settled);
        for ((held, extends), answer) in batch.into_iter().zip(extends).zip(answers) {
            if matches!(answer, Ok(Settled::Dead(_))) {
                self.shared.pool().add_dead(&mut self.hands.rng, held.address, held.id);
            }
            if extends {
                self.hands.held.push(held);
            } else if self.hands.spent.len() < 50 {
                self.hands.spent.push(held);
            }
        }
    }

    /// Ends leases that this caller holds in a queue, as an operator does, and sometimes one of a message that is not
    /// leased. Other callers settle and take meanwhile; this caller still tries to settle, which must fail.
    fn end_leases(&mut self) {
        let (mut queue, mut leases) = (None, Vec::new());
        for _ in 0..*self.hands.rng.pick(&[1, 1, 3, 20]) {
            let meant = if self.hands.rng.percent(85) && !self.hands.held.is_empty() {
                let held = self.hands.rng.pick(&self.hands.held).clone();
                let takes = workload::meant_take(&mut self.hands.rng, held.takes);
                Some((held.address, held.id, takes))
            } else {
                self.some_message().map(|(address, id)| (address, id, 1))
            };
            leases.extend(meant.filter(|(address, ..)| {
                *queue.get_or_insert(address.queue) == address.queue && !self.is_crowded(address.group())
            }));
        }
        let Some(queue) = queue.filter(|_| !leases.is_empty()) else { return };
        let ask = |(message, _, takes): &(Address, MessageId, u32)| {
            self.begin(StoreCall::EndLease { message: *message, takes: *takes })
        };
        let ops = leases.iter().map(ask).collect();
        let named = leases.iter().map(|(_, id, takes)| LeaseRef { id: *id, takes: *takes }).collect();
        let call = self.engine.expire_lease(queue_name(queue), named);
        let answers = self.shared.answer("the end of leases", call);
        let answers = self.conclude_each(ops, answers, answers::ended);
        for ((address, id, _), answer) in leases.into_iter().zip(answers) {
            if matches!(answer, Ok(Settled::Dead(_))) {
                self.shared.pool().add_dead(&mut self.hands.rng, address, id);
            }
        }
    }

    fn some_message(&mut self) -> Option<(Address, MessageId)> {
        let (address, id) = self.shared.pool().any(&mut self.hands.rng)?;
        (!self.is_crowded(address.group())).then_some((address, id))
    }

    fn some_dead(&mut self) -> Option<(Address, MessageId)> {
        let (address, id) = self.shared.pool().dead(&mut self.hands.rng)?;
        (!self.is_crowded(address.group())).then_some((address, id))
    }

    /// Random messages of one queue, by id or key.
    fn some_targets(&mut self) -> Option<(u32, Vec<NamedMessage>)> {
        let most = *self.hands.rng.pick(&[1, 1, 3, 20]);
        let (queue, mut targets) = (self.queue(), Vec::new());
        for _ in 0..most {
            let target = if self.hands.rng.percent(40) {
                let key = workload::key(&mut self.hands.rng);
                let group = GroupId { queue, member: Member::Key(key) };
                Some((group, GroupTarget::Key, wish::Target::Key(key_name(key))))
            } else {
                self.some_message().map(|(address, id)| {
                    (address.group(), GroupTarget::Message(address.no), wish::Target::Id(id))
                })
            };
            targets.extend(target.filter(|(group, ..)| group.queue == queue && !self.is_crowded(*group)));
        }
        (!targets.is_empty()).then_some((queue, targets))
    }

    fn take_by_id(&mut self) {
        let Some((address, id)) = self.some_message() else { return };
        let lease_ms = workload::lease_ms(&mut self.hands.rng);
        let session = self.burst.binds && self.hands.rng.percent(20);
        let terms = workload::terms(&mut self.hands.rng, self.shared.uses, lease_ms, session);
        let op = self.begin(StoreCall::TakeById { message: address, terms });
        let Terms { session, holder, .. } = terms;
        let terms = LeaseTerms { session, holder: holder.map(words::holder), ..LeaseTerms::of_ms(lease_ms) };
        let call = self.engine.take_id(queue_name(address.queue), id, terms);
        let answer = self.shared.answer("a take by id", call);
        if let Some(Ok(delivery)) = self.conclude_one(op, answer, answers::took_by_id) {
            self.hold(&delivery);
        }
    }

    fn cancel(&mut self) {
        let Some((queue, targets)) = self.some_targets() else { return };
        let ask = |(group, target, _): &_| self.begin(StoreCall::Cancel(*group, *target));
        let ops = targets.iter().map(ask).collect();
        let wishes = targets.into_iter().map(|(_, _, wish)| wish).collect();
        let answers = self.shared.answer("a cancel", self.engine.cancel(queue_name(queue), wishes));
        self.conclude_each(ops, answers, answers::cancelled);
    }

    fn reschedule(&mut self) {
        let Some((queue, targets)) = self.some_targets() else { return };
        let (mut ops, mut moves) = (Vec::new(), Vec::new());
        for (group, target, wish) in targets {
            let due = workload::due(&mut self.hands.rng, self.shared.wall());
            ops.push(self.begin(StoreCall::Reschedule(group, target, due)));
            moves.push((wish, words::when(due)));
        }
        let answers = self.shared.answer("a reschedule", self.engine.reschedule(queue_name(queue), moves));
        self.conclude_each(ops, answers, answers::moved);
    }

    fn get(&mut self) {
        let Some((queue, targets)) = self.some_targets() else { return };
        let dead = self.shared.uses.percent(&mut self.hands.rng, 50);
        let ask = |(group, target, _): &_| self.begin(StoreCall::Get(*group, *target, dead));
        let ops = targets.iter().map(ask).collect();
        let wishes = targets.into_iter().map(|(_, _, wish)| wish).collect();
        let answers = self.shared.answer("a get", self.engine.get(queue_name(queue), wishes, dead));
        self.conclude_each(ops, answers, answers::got);
    }

    fn peek(&mut self) {
        let (queue, state) = (self.queue(), *self.hands.rng.pick(&StateKind::ALL));
        let op = self.begin(StoreCall::Peek { queue });
        let answer = self.shared.answer("a peek", self.engine.peek(queue_name(queue), state));
        let _ = self.conclude_one(op, answer, |answer| answers::peeked(state, answer));
    }

    fn revive(&mut self) {
        let Some((address, id)) = self.some_dead() else { return };
        let due = workload::due(&mut self.hands.rng, self.shared.wall());
        let op = self.begin(StoreCall::Revive(address, due));
        let which = wish::Selection::Ids(vec![id]);
        let call = self.engine.revive(queue_name(address.queue), which, words::when(due));
        let answer = self.shared.answer("a revive", call);
        self.conclude_one(op, answer, answers::raised);
    }

    fn discard(&mut self) {
        let Some((address, id)) = self.some_dead() else { return };
        let op = self.begin(StoreCall::Discard(address));
        let call = self.engine.discard(queue_name(address.queue), wish::Selection::Ids(vec![id]));
        let answer = self.shared.answer("a discard", call);
        self.conclude_one(op, answer, answers::raised);
    }

    fn configure(&mut self) {
        let queue = workload::queue(&mut self.hands.rng);
        let change = workload::setting(&mut self.hands.rng, self.shared.wall());
        self.change(queue, change);
    }

    fn retain(&mut self) {
        let queue = workload::queue(&mut self.hands.rng);
        let change = workload::retention(&mut self.hands.rng);
        self.change(queue, change);
    }

    fn change(&mut self, queue: u32, change: SettingChange) {
        let (setting, value) = words::change(&change);
        let op = self.begin(StoreCall::Configure { queue, setting, value });
        let answer = self.shared.answer("a setting", self.engine.configure(queue_name(queue), vec![change]));
        self.conclude_one(op, answer, answers::done);
    }

    fn sweep(&mut self) {
        let (queue, name) = (self.queue(), queue_name);
        let sweep = workload::sweep(&mut self.hands.rng, self.shared.wall());
        let op = self.begin(StoreCall::Sweep { queue, sweep });
        let (engine, name, all) = (&self.engine, name(queue), wish::Selection::All);
        let call = async {
            match sweep {
                Sweep::Purge => engine.purge(name).await,
                Sweep::DeleteQueue => engine.delete_queue(name).await,
                Sweep::ReviveAll(due) => {
                    engine.revive(name, all, words::when(due)).await.and_then(answers::revived_all)
                }
                Sweep::DiscardAll => engine.discard(name, all).await.map(|swept| swept.done),
            }
        };
        // A revive of many messages lets other puts run in between for a while.
        let answer = self.shared.wait("a sweep", call, 250);
        self.conclude_one(op, answer, answers::done);
    }

    /// Lists a queue while others change it.
    fn look(&mut self) {
        let (queue, name) = (self.queue(), queue_name);
        let state = *self.hands.rng.pick(&StateKind::ALL);
        let name = name(queue);
        match self.hands.rng.below(3) {
            0 => {
                let answer = self.shared.answer("stats", self.engine.stats(name));
                self.check(answer.iter().filter_map(|answer| answer.as_ref().err()));
            }
            1 => {
                let answer = self.shared.answer("a list of queues", self.engine.queues(None, 100));
                self.check(answer.iter().filter_map(|answer| answer.as_ref().err()));
            }
            _ => self.walk(queue, state),
        }
    }

    /// Reads some pages of a list.
    fn walk(&mut self, queue: u32, state: StateKind) {
        let max = self.hands.rng.between(1, 60) as usize;
        let mut cursor = None;
        for _ in 0..4 {
            let op = self.begin(StoreCall::Look { queue });
            let answer =
                self.shared.answer("a list", self.engine.list(queue_name(queue), state, cursor, max));
            let unread: Vec<Error> = match &answer {
                Some(Ok(page)) => page.unread.iter().map(|(_, error)| error.clone()).collect(),
                _ => Vec::new(),
            };
            self.check(unread.iter());
            let answer = self.conclude_one(op, answer, |answer| match answer {
                Ok(page) => match answers::page(page) {
                    Ok(shown) => CommandFate::Heard(StoreAnswer::Seen(shown)),
                    Err(text) => CommandFate::Odd(text),
                },
                Err(_) => CommandFate::Heard(StoreAnswer::Seen(Vec::new())),
            });
            let Some(Ok(page)) = answer else { return };
            cursor = page.next;
            if cursor.is_none() {
                return;
            }
        }
    }
}

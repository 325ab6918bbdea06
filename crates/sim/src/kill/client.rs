//! A thread that sends commands, reports to the oracle before and after each, and waits at the gate when its server is killed.

use dwell_model::{MessageId, Receipt, SettingChange, Timestamp};
use dwell_store::{self as store, Blocking, Delivery, Error, LeaseTerms};
use dwell_testkit::Random;

use super::KillShared;
use super::wire::{self, NoAnswer};
use crate::oracle::{
    Action, Address, GroupId, GroupTarget, Member, Op, PutHeard, StoreAnswer, StoreCall, Sweep, Terms,
    ViolationKind,
};
use crate::server::Pass;
use crate::workload::{self, Choice, NewPut, Uses, key_name, queue_name, words};

/// Also what operators do: retention, caps of queues, backoff after lapses, and ended leases.
const USES: Uses = Uses::All;
/// A client avoids a group while this many of its commands are unexplained.
const CROWD: usize = 40;

/// A lease that this client holds.
#[derive(Clone, Debug)]
struct HeldLease {
    address: Address,
    id: MessageId,
    receipt: Receipt,
    /// The number of the take that granted it.
    takes: u32,
}

/// The answer to the single item of a call.
fn only<T>(mut answers: Vec<T>) -> T {
    answers.pop().expect("each item is answered")
}

/// A client; see the [module](self).
pub(super) struct Client<'a> {
    shared: &'a KillShared,
    rng: Random,
    held: Vec<HeldLease>,
    /// Receipts that were settled: they must not prove a lease any more.
    spent: Vec<HeldLease>,
    /// A put to be retried.
    again: Option<NewPut>,
    /// Commands without an answer.
    lost: Vec<Op>,
    server: Option<dwell_client::Client>,
    gone: bool,
}

impl<'a> Client<'a> {
    /// A client with a random generator of its own.
    pub(super) fn new(shared: &'a KillShared, rng: Random) -> Client<'a> {
        Client {
            shared,
            rng,
            held: Vec::new(),
            spent: Vec::new(),
            again: None,
            lost: Vec::new(),
            server: None,
            gone: false,
        }
    }

    /// Sends commands until the run is over.
    pub(super) fn run(mut self) {
        loop {
            let server = match self.shared.gate.server() {
                Some(server) => server,
                None => match self.shared.gate.park() {
                    Pass::Server(server) => server,
                    Pass::Over => break,
                },
            };
            self.server = Some(server);
            self.gone = false;
            self.step();
            if self.gone {
                self.shared.gate.await_killed();
                let now = self.shared.now();
                for op in self.lost.drain(..) {
                    self.shared.oracle().lose(op, now);
                }
            }
        }
        self.shared.gate.leave();
    }

    fn step(&mut self) {
        if let Some(again) = self.again.take() {
            return self.send_put(again);
        }
        match workload::choose(&mut self.rng, USES) {
            Choice::Put => self.put(),
            Choice::Take => self.take(),
            Choice::Settle => self.settle(),
            Choice::Stale => self.settle_spent(),
            Choice::EndLease => self.end_leases(),
            Choice::TakeById => self.take_by_id(),
            Choice::Cancel => self.cancel(),
            Choice::Reschedule => self.reschedule(),
            // HTTP has no peek.
            Choice::Get | Choice::Peek => self.get(),
            Choice::Revive => self.revive(),
            Choice::Discard => self.discard(),
            Choice::Configure => self.configure(),
            Choice::Retain => self.retain(),
            Choice::Sweep => self.sweep(),
        }
    }

    fn http(&self) -> Blocking<dwell_client::Client> {
        self.server.as_ref().expect("a step has a server").blocking()
    }

    fn begin(&self, ask: StoreCall) -> Op {
        let now = self.shared.now();
        self.shared.oracle().begin(ask, now)
    }

    /// Reports the outcome of a command to the oracle.
    fn conclude(&mut self, op: Op, answer: Result<StoreAnswer, NoAnswer>) {
        let now = self.shared.now();
        match answer {
            Ok(answer) => {
                self.shared.oracle().end(op, answer, now);
                self.shared.gate.answered();
            }
            Err(NoAnswer::Unsent) => {
                self.shared.oracle().end(op, StoreAnswer::Refused, now);
                self.gone = true;
            }
            Err(NoAnswer::Unknown) => {
                self.lost.push(op);
                self.gone = true;
            }
            Err(NoAnswer::Odd(text)) => {
                self.shared.oracle().accuse(ViolationKind::Contradiction, text);
                self.lost.push(op);
                self.gone = true;
            }
        }
    }

    fn is_crowded(&self, group: GroupId) -> bool {
        self.shared.oracle().waiting(group) > CROWD
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_ms(self.shared.now().wall).expect("a machine's clock lies between 1970 and 9999")
    }

    fn put(&mut self) {
        let no = self.shared.pool().next_no();
        let now = self.wall();
        let put = workload::put(&mut self.rng, no, now);
        let group = put.address.group();
        if self.is_crowded(group) {
            return;
        }
        if put.spec.idempotency_key {
            self.shared.oracle().pin(group);
        }
        self.send_put(put);
    }

    /// Sends a put, or its retry.
    fn send_put(&mut self, again: NewPut) {
        let group = again.address.group();
        let op = self.begin(StoreCall::Put(group, again.spec));
        let answer = self.http().put_one(again.put.clone());
        let told = answer.as_ref().ok().map(|answer| (answer.id, answer.number.get()));
        let answer = wire::put(answer);
        let answered = answer.is_ok();
        if let (
            Ok(StoreAnswer::Put(PutHeard::Created { .. } | PutHeard::Replaced { .. })),
            Some((id, number)),
        ) = (&answer, told)
        {
            self.shared.oracle().numbered(again.spec.no, number);
            self.shared.pool().add(&mut self.rng, again.address, id);
        }
        self.conclude(op, answer);
        if !again.spec.idempotency_key {
            return;
        }
        if !answered || self.rng.percent(10) {
            self.again = Some(again);
        } else {
            self.shared.oracle().unpin(group, again.spec.no);
        }
    }

    fn take(&mut self) {
        let queues = workload::queues(&mut self.rng);
        let lease_ms = workload::lease_ms(&mut self.rng);
        let wait_ms = *self.rng.pick(&[0, 0, 20, 100]);
        let mut take = store::Take::from_all(queues.iter().copied().map(queue_name))
            .max(self.rng.between(1, 8) as usize)
            .wait_ms(wait_ms)
            .lease_ms(lease_ms);
        let terms = workload::terms(&mut self.rng, USES, lease_ms, false);
        take.holder = terms.holder.map(words::holder);
        let op = self.begin(StoreCall::Take { queues, terms });
        let answer = self.http().take(take);
        let told = wire::took(&answer);
        self.conclude(op, told);
        for delivery in answer.unwrap_or_default() {
            self.hold(&delivery);
        }
    }

    fn hold(&mut self, delivery: &Delivery) {
        let Some((address, _)) = wire::delivered(delivery) else { return };
        let id = delivery.message.id;
        self.shared.pool().add(&mut self.rng, address, id);
        let takes = delivery.message.standing.counts.takes;
        self.held.push(HeldLease { address, id, receipt: delivery.receipt.clone(), takes });
    }

    /// Settles some of the held messages, in one request. The others are settled later, or their leases run out.
    fn settle(&mut self) {
        let mut batch = Vec::new();
        while !self.held.is_empty() && batch.len() < 6 && (batch.is_empty() || self.rng.percent(70)) {
            let at = self.rng.below(self.held.len() as u64) as usize;
            let held = self.held.swap_remove(at);
            if self.rng.percent(90) && !self.is_crowded(held.address.group()) {
                batch.push(held);
            }
        }
        self.settle_batch(batch);
    }

    /// Settles with receipts that were settled before.
    fn settle_spent(&mut self) {
        if self.spent.is_empty() {
            return;
        }
        let at = self.rng.below(self.spent.len() as u64) as usize;
        let held = self.spent.swap_remove(at);
        if !self.is_crowded(held.address.group()) {
            self.settle_batch(vec![held]);
        }
    }

    fn settle_batch(&mut self, batch: Vec<HeldLease>) {
        let mut settles = Vec::new();
        let mut ops = Vec::new();
        for held in &batch {
            let (action, wish) = workload::action(&mut self.rng);
            let token = held.receipt.token.0;
            ops.push((self.begin(StoreCall::Settle { message: held.address, token, action }), action));
            settles.push(store::Settle { receipt: held.receipt.clone(), action: wish });
        }
        if ops.is_empty() {
            return;
        }
        let answers = self.http().settle(settles);
        for ((held, (op, action)), answer) in batch.into_iter().zip(ops).zip(answers) {
            if matches!(answer, Ok(store::Settled::Dead(_))) {
                self.shared.pool().add_dead(&mut self.rng, held.address, held.id);
            }
            let broken = matches!(answer, Err(Error::OutcomeUnknown { .. } | Error::Unreachable { .. }));
            self.conclude(op, wire::settled(answer));
            // An ack of unknown outcome is retried, and an extended lease continues.
            if broken || matches!(action, Action::Extend { .. }) {
                self.held.push(held);
            } else if self.spent.len() < 50 {
                self.spent.push(held);
            }
        }
    }

    /// Ends leases of a queue, as an operator does: those believed to be in force, and sometimes one of a message
    /// that is not leased. The former holder still tries to settle, which must fail.
    fn end_leases(&mut self) {
        let (mut queue, mut leases) = (None, Vec::new());
        for _ in 0..self.rng.between(1, 3) {
            let meant = if self.rng.percent(85) && !self.held.is_empty() {
                let held = self.rng.pick(&self.held).clone();
                let takes = workload::meant_take(&mut self.rng, held.takes);
                Some((held.address, held.id, takes))
            } else {
                self.some_message().map(|(address, id)| (address, id, 1))
            };
            leases.extend(meant.filter(|(address, ..)| {
                *queue.get_or_insert(address.queue) == address.queue && !self.is_crowded(address.group())
            }));
        }
        let Some(queue) = queue.filter(|_| !leases.is_empty()) else { return };
        let begin = |(message, _, takes): &(Address, MessageId, u32)| {
            self.begin(StoreCall::EndLease { message: *message, takes: *takes })
        };
        let ops: Vec<Op> = leases.iter().map(begin).collect();
        let named = leases.iter().map(|(_, id, takes)| store::LeaseRef { id: *id, takes: *takes }).collect();
        let answers = self.http().expire_lease(queue_name(queue), named);
        for ((op, (address, id, _)), answer) in ops.into_iter().zip(leases).zip(answers) {
            if matches!(answer, Ok(store::Settled::Dead(_))) {
                self.shared.pool().add_dead(&mut self.rng, address, id);
            }
            self.conclude(op, wire::ended(&answer));
        }
    }

    /// A recently seen message, if its group is not crowded.
    fn some_message(&mut self) -> Option<(Address, MessageId)> {
        let (address, id) = self.shared.pool().any(&mut self.rng)?;
        (!self.is_crowded(address.group())).then_some((address, id))
    }

    /// A target by id, or by the key of a message.
    fn some_target(&mut self) -> Option<(GroupId, GroupTarget, store::Target)> {
        if self.rng.percent(40) {
            let (queue, key) = (workload::queue(&mut self.rng), workload::key(&mut self.rng));
            let group = GroupId { queue, member: Member::Key(key) };
            let target = (group, GroupTarget::Key, store::Target::Key(key_name(key)));
            return (!self.is_crowded(group)).then_some(target);
        }
        let (address, id) = self.some_message()?;
        Some((address.group(), GroupTarget::Message(address.no), store::Target::Id(id)))
    }

    fn take_by_id(&mut self) {
        let Some((address, id)) = self.some_message() else { return };
        let lease_ms = workload::lease_ms(&mut self.rng);
        let terms = workload::terms(&mut self.rng, USES, lease_ms, false);
        let op = self.begin(StoreCall::TakeById { message: address, terms });
        let Terms { holder, .. } = terms;
        let terms = LeaseTerms { holder: holder.map(words::holder), ..LeaseTerms::of_ms(lease_ms) };
        let answer = self.http().take_id(queue_name(address.queue), id, terms);
        let told = wire::took_by_id(&answer);
        self.conclude(op, told);
        if let Ok(delivery) = answer {
            self.hold(&delivery);
        }
    }

    fn cancel(&mut self) {
        let Some((group, target, wish)) = self.some_target() else { return };
        let op = self.begin(StoreCall::Cancel(group, target));
        let answer = only(self.http().cancel(queue_name(group.queue), vec![wish]));
        self.conclude(op, wire::cancelled(answer));
    }

    fn reschedule(&mut self) {
        let Some((group, target, wish)) = self.some_target() else { return };
        let now = self.wall();
        let due = workload::due(&mut self.rng, now);
        let op = self.begin(StoreCall::Reschedule(group, target, due));
        let answer = self.http().reschedule(queue_name(group.queue), vec![(wish, words::when(due))]);
        self.conclude(op, wire::moved(only(answer)));
    }

    fn get(&mut self) {
        let Some((group, target, wish)) = self.some_target() else { return };
        let dead = USES.percent(&mut self.rng, 50);
        let op = self.begin(StoreCall::Get(group, target, dead));
        let answer = only(self.http().get(queue_name(group.queue), vec![wish], dead));
        self.conclude(op, wire::got(answer));
    }

    fn revive(&mut self) {
        let Some((address, id)) = self.some_dead() else { return };
        let now = self.wall();
        let due = workload::due(&mut self.rng, now);
        let op = self.begin(StoreCall::Revive(address, due));
        let which = store::Selection::Ids(vec![id]);
        let answer = self.http().revive(queue_name(address.queue), which, words::when(due));
        self.conclude(op, wire::raised(answer));
    }

    fn discard(&mut self) {
        let Some((address, id)) = self.some_dead() else { return };
        let op = self.begin(StoreCall::Discard(address));
        let answer = self.http().discard(queue_name(address.queue), store::Selection::Ids(vec![id]));
        self.conclude(op, wire::raised(answer));
    }

    fn some_dead(&mut self) -> Option<(Address, MessageId)> {
        let (address, id) = self.shared.pool().dead(&mut self.rng)?;
        (!self.is_crowded(address.group())).then_some((address, id))
    }

    fn configure(&mut self) {
        let queue = workload::queue(&mut self.rng);
        let now = self.wall();
        let change = workload::setting(&mut self.rng, now);
        self.change(queue, change);
    }

    fn retain(&mut self) {
        let queue = workload::queue(&mut self.rng);
        let change = workload::retention(&mut self.rng);
        self.change(queue, change);
    }

    fn change(&mut self, queue: u32, change: SettingChange) {
        let (setting, value) = words::change(&change);
        let op = self.begin(StoreCall::Configure { queue, setting, value });
        let answer = self.http().configure(queue_name(queue), vec![change]);
        self.conclude(op, wire::done(answer));
    }

    fn sweep(&mut self) {
        let queue = workload::queue(&mut self.rng);
        let now = self.wall();
        let sweep = workload::sweep(&mut self.rng, now);
        let op = self.begin(StoreCall::Sweep { queue, sweep });
        let (http, name) = (self.http(), queue_name(queue));
        let answer = match sweep {
            Sweep::Purge => wire::done(http.purge(name)),
            Sweep::DeleteQueue => wire::done(http.delete_queue(name)),
            Sweep::ReviveAll(due) => wire::done(http.revive(name, store::Selection::All, words::when(due))),
            Sweep::DiscardAll => wire::done(http.discard(name, store::Selection::All)),
        };
        self.conclude(op, answer);
    }
}

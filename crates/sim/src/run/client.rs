//! The commands that are sent: all of the contract, for one message or a
//! batch, with session leases, and takes whose caller is dropped.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use dwell_model::{Message, MessageId, Receipt, SettingChange, StateKind};
use dwell_store::{
    self as wish, BulkOutcome, Cancelled, Delivery, Error, LeaseTerms, PutAnswer, Rescheduled, Result,
    Settled, Store,
};

use super::again::Again;
use super::answers::{self, CommandFate};
use super::disaster::Climate;
use super::world::World;
use crate::oracle::{
    Action, Address, Attempt, Due, GroupId, GroupTarget, Member, Op, PutHeard, StoreAnswer, StoreCall, Sweep,
    TakenById, Terms, ViolationKind,
};
use crate::workload::{self, Choice, key_name, queue_name, words};

/// A lease that the client holds.
#[derive(Clone, Debug)]
pub(super) struct HeldLease {
    address: Address,
    id: MessageId,
    receipt: Receipt,
    /// The number of the take that granted it.
    takes: u32,
}

impl HeldLease {
    /// The queue of the message.
    pub(super) fn queue(&self) -> u32 {
        self.address.queue
    }
}

/// Commands under way in one call to the store.
pub(super) struct Flight {
    /// Their numbers in the oracle: one, or one per item.
    pub(super) ops: Vec<Op>,
    /// Whether the call may wait for messages.
    pub(super) is_take: bool,
    /// Whether the call runs in slices, some of which may take effect before it is answered.
    pub(super) is_sweep: bool,
    pub(super) about: CallSubject,
    pub(super) future: Pin<Box<dyn Future<Output = CallAnswer>>>,
}

/// The subject of a call, kept until its answer arrives.
pub(super) enum CallSubject {
    Put(Box<Again>),
    /// A put of something else under the idempotency key of this put.
    Mismatch(Box<Again>),
    Settle(Vec<(HeldLease, Action)>),
    EndLease(Vec<(Address, MessageId)>),
    TakeById(u32),
    Cancel(u32),
    Revive(u32),
    Discard(u32),
    Sweep(u32, Sweep),
    Other,
}

/// The answer to a call.
#[derive(Debug)]
pub(super) enum CallAnswer {
    Put(Result<PutAnswer>),
    Took(Result<Vec<Delivery>>),
    TookById(Result<Delivery>),
    Settled(Vec<Result<Settled>>),
    Ended(Vec<Result<Settled>>),
    Cancelled(Result<Cancelled>),
    Moved(Result<Rescheduled>),
    Got(Result<Message>),
    Peeked(StateKind, Result<Option<Message>>),
    Raised(Result<BulkOutcome>),
    /// With the number of messages.
    Swept(Result<u64>),
}

impl World {
    /// Sends a random command.
    pub(super) fn send(&mut self) {
        if let Some(again) = self.again.take() {
            let (group, no) = (again.put.address.group(), again.put.spec.no);
            if let Some(mut again) = again.repeated() {
                if again.is_mismatch {
                    return self.send_mismatch(again);
                }
                if self.uses.percent(&mut self.rng, 50) {
                    let now = self.wall();
                    again.put = workload::again_otherwise(&mut self.rng, &again.put, now);
                }
                return self.send_put(again);
            }
            self.oracle.unpin(group, no);
        }
        match workload::choose(&mut self.rng, self.uses) {
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

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.running.as_ref().expect("a tick has a store").store)
    }

    /// Begins a command in the oracle just before it is sent.
    fn begin(&mut self, ask: StoreCall) -> Op {
        self.trace.add(format_args!("  ask {ask:?}"));
        let now = self.reading();
        self.oracle.begin(ask, now)
    }

    fn fly(&mut self, ops: Vec<Op>, about: CallSubject, future: impl Future<Output = CallAnswer> + 'static) {
        self.launch(Flight { ops, is_take: false, is_sweep: false, about, future: Box::pin(future) });
    }

    fn is_crowded(&self, group: GroupId) -> bool {
        self.oracle.waiting(group) > 40
    }

    pub(super) fn put(&mut self) {
        let no = self.pool.next_no();
        let now = self.wall();
        let put = workload::put(&mut self.rng, no, now);
        let group = put.address.group();
        if self.is_crowded(group) {
            return;
        }
        if put.spec.idempotency_key {
            self.oracle.pin(group);
        }
        self.send_put(Again::new(put, now.as_ms()));
    }

    fn send_put(&mut self, again: Again) {
        let op = self.begin(StoreCall::Put(again.put.address.group(), again.put.spec));
        let (store, put) = (self.store(), again.put.put.clone());
        let future = async move { CallAnswer::Put(one(store.put(vec![put]).await)) };
        self.fly(vec![op], CallSubject::Put(Box::new(again)), future);
    }

    /// Puts something else under the idempotency key of a put that was answered.
    fn send_mismatch(&mut self, again: Again) {
        let no = self.pool.next_no();
        let put = workload::mismatched(&mut self.rng, &again.put, no);
        let op = self.begin(StoreCall::Mismatch { group: again.put.address.group(), no: again.put.spec.no });
        let store = self.store();
        let future = async move { CallAnswer::Put(one(store.put(vec![put]).await)) };
        self.fly(vec![op], CallSubject::Mismatch(Box::new(again)), future);
    }

    fn take(&mut self) {
        let queues = workload::queues(&mut self.rng);
        let lease_ms = workload::lease_ms(&mut self.rng);
        let session = self.rng.percent(20);
        let mut take = wish::Take::from_all(queues.iter().copied().map(queue_name))
            .max(self.rng.between(1, 8) as usize)
            .wait_ms(*self.rng.pick(&[0, 0, 50, 3_000]))
            .lease_ms(lease_ms);
        take.session = session;
        let terms = workload::terms(&mut self.rng, self.uses, lease_ms, session);
        take.holder = terms.holder.map(words::holder);
        let op = self.begin(StoreCall::Take { queues, terms });
        let store = self.store();
        let future = Box::pin(async move { CallAnswer::Took(store.take(take).await) });
        self.launch(Flight {
            ops: vec![op],
            is_take: true,
            is_sweep: false,
            about: CallSubject::Other,
            future,
        });
    }

    fn take_by_id(&mut self) {
        let Some((address, id)) = self.some_message() else { return };
        let lease_ms = workload::lease_ms(&mut self.rng);
        let session = self.rng.percent(20);
        let terms = workload::terms(&mut self.rng, self.uses, lease_ms, session);
        let op = self.begin(StoreCall::TakeById { message: address, terms });
        let store = self.store();
        let queue = queue_name(address.queue);
        self.fly(vec![op], CallSubject::TakeById(address.queue), async move {
            let Terms { session, holder, .. } = terms;
            let terms =
                LeaseTerms { session, holder: holder.map(words::holder), ..LeaseTerms::of_ms(lease_ms) };
            CallAnswer::TookById(store.take_id(queue, id, terms).await)
        });
    }

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

    fn settle_spent(&mut self) {
        if self.spent.is_empty() {
            return;
        }
        let at = self.rng.below(self.spent.len() as u64) as usize;
        let held = self.spent.swap_remove(at);
        self.settle_batch(vec![held]);
    }

    fn settle_batch(&mut self, batch: Vec<HeldLease>) {
        if batch.is_empty() {
            return;
        }
        let (mut settles, mut ops, mut about) = (Vec::new(), Vec::new(), Vec::new());
        for held in batch {
            let (action, wish) = workload::action(&mut self.rng);
            let token = held.receipt.token.0;
            ops.push(self.begin(StoreCall::Settle { message: held.address, token, action }));
            settles.push(wish::Settle { receipt: held.receipt.clone(), action: wish });
            about.push((held, action));
        }
        let store = self.store();
        self.fly(
            ops,
            CallSubject::Settle(about),
            async move { CallAnswer::Settled(store.settle(settles).await) },
        );
    }

    /// Ends leases of a queue, as an operator does: those believed to be in force, and sometimes one of a message that is
    /// not leased. The former holder still tries to settle, which must fail.
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
        let ask = |(message, _, takes): &(Address, MessageId, u32)| StoreCall::EndLease {
            message: *message,
            takes: *takes,
        };
        let asks: Vec<StoreCall> = leases.iter().map(ask).collect();
        let ops = asks.into_iter().map(|ask| self.begin(ask)).collect();
        let about = CallSubject::EndLease(leases.iter().map(|(address, id, _)| (*address, *id)).collect());
        let named = leases.into_iter().map(|(_, id, takes)| wish::LeaseRef { id, takes }).collect();
        let store = self.store();
        self.fly(
            ops,
            about,
            async move { CallAnswer::Ended(store.expire_lease(queue_name(queue), named).await) },
        );
    }

    fn some_message(&mut self) -> Option<(Address, MessageId)> {
        let (address, id) = self.pool.any(&mut self.rng)?;
        (!self.is_crowded(address.group())).then_some((address, id))
    }

    fn some_dead(&mut self) -> Option<(Address, MessageId)> {
        let (address, id) = self.pool.dead(&mut self.rng)?;
        (!self.is_crowded(address.group())).then_some((address, id))
    }

    fn some_target(&mut self) -> Option<(GroupId, GroupTarget, wish::Target)> {
        if self.rng.percent(40) {
            let (queue, key) = (workload::queue(&mut self.rng), workload::key(&mut self.rng));
            let group = GroupId { queue, member: Member::Key(key) };
            let target = (group, GroupTarget::Key, wish::Target::Key(key_name(key)));
            return (!self.is_crowded(group)).then_some(target);
        }
        let (address, id) = self.some_message()?;
        Some((address.group(), GroupTarget::Message(address.no), wish::Target::Id(id)))
    }

    fn cancel(&mut self) {
        let Some((group, target, wish)) = self.some_target() else { return };
        let op = self.begin(StoreCall::Cancel(group, target));
        let (store, queue) = (self.store(), queue_name(group.queue));
        self.fly(vec![op], CallSubject::Cancel(group.queue), async move {
            CallAnswer::Cancelled(one(store.cancel(queue, vec![wish]).await))
        });
    }

    fn reschedule(&mut self) {
        let Some((group, target, wish)) = self.some_target() else { return };
        let now = self.wall();
        let due = workload::due(&mut self.rng, now);
        let op = self.begin(StoreCall::Reschedule(group, target, due));
        let (store, queue) = (self.store(), queue_name(group.queue));
        self.fly(vec![op], CallSubject::Other, async move {
            CallAnswer::Moved(one(store.reschedule(queue, vec![(wish, words::when(due))]).await))
        });
    }

    fn get(&mut self) {
        let Some((group, target, wish)) = self.some_target() else { return };
        let dead = self.uses.percent(&mut self.rng, 50);
        let op = self.begin(StoreCall::Get(group, target, dead));
        let (store, queue) = (self.store(), queue_name(group.queue));
        self.fly(vec![op], CallSubject::Other, async move {
            CallAnswer::Got(one(store.get(queue, vec![wish], dead).await))
        });
    }

    fn peek(&mut self) {
        let (queue, state) = (workload::queue(&mut self.rng), *self.rng.pick(&StateKind::ALL));
        let op = self.begin(StoreCall::Peek { queue });
        let store = self.store();
        self.fly(vec![op], CallSubject::Other, async move {
            CallAnswer::Peeked(state, store.peek(queue_name(queue), state).await)
        });
    }

    fn revive(&mut self) {
        let Some((address, id)) = self.some_dead() else { return };
        let now = self.wall();
        let due = workload::due(&mut self.rng, now);
        let op = self.begin(StoreCall::Revive(address, due));
        let (store, queue) = (self.store(), queue_name(address.queue));
        self.fly(vec![op], CallSubject::Revive(address.queue), async move {
            CallAnswer::Raised(store.revive(queue, wish::Selection::Ids(vec![id]), words::when(due)).await)
        });
    }

    fn discard(&mut self) {
        let Some((address, id)) = self.some_dead() else { return };
        let op = self.begin(StoreCall::Discard(address));
        let (store, queue) = (self.store(), queue_name(address.queue));
        self.fly(vec![op], CallSubject::Discard(address.queue), async move {
            CallAnswer::Raised(store.discard(queue, wish::Selection::Ids(vec![id])).await)
        });
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
        let store = self.store();
        self.fly(vec![op], CallSubject::Other, async move {
            CallAnswer::Swept(store.configure(queue_name(queue), vec![change]).await.map(|_| 0))
        });
    }

    fn sweep(&mut self) {
        let queue = workload::queue(&mut self.rng);
        let now = self.wall();
        let sweep = workload::sweep(&mut self.rng, now);
        let op = self.begin(StoreCall::Sweep { queue, sweep });
        let (store, name, all) = (self.store(), queue_name(queue), wish::Selection::All);
        let future = async move {
            CallAnswer::Swept(match sweep {
                Sweep::Purge => store.purge(name).await,
                Sweep::DeleteQueue => store.delete_queue(name).await,
                Sweep::ReviveAll(due) => {
                    store.revive(name, all, words::when(due)).await.and_then(answers::revived_all)
                }
                Sweep::DiscardAll => store.discard(name, all).await.map(|swept| swept.done),
            })
        };
        let (about, future) = (CallSubject::Sweep(queue, sweep), Box::pin(future));
        self.launch(Flight { ops: vec![op], is_take: false, is_sweep: true, about, future });
    }

    /// Reports the answer to a call to the oracle, and remembers what later commands may refer to. `bad_reads`: whether
    /// something could not be read for this answer.
    pub(super) fn land(&mut self, ops: Vec<Op>, about: CallSubject, said: CallAnswer, bad_reads: bool) {
        let fates = match &said {
            CallAnswer::Put(answer) => vec![answers::put(answer)],
            CallAnswer::Took(answer) => vec![answers::took(answer, bad_reads)],
            CallAnswer::TookById(answer) => vec![answers::took_by_id(answer)],
            CallAnswer::Settled(answers) => answers.iter().map(answers::settled).collect(),
            CallAnswer::Ended(answers) => answers.iter().map(answers::ended).collect(),
            CallAnswer::Cancelled(answer) => vec![answers::cancelled(answer)],
            CallAnswer::Moved(answer) => vec![answers::moved(answer)],
            CallAnswer::Got(answer) => vec![answers::got(answer)],
            CallAnswer::Peeked(state, answer) => vec![answers::peeked(*state, answer)],
            CallAnswer::Raised(answer) => vec![answers::raised(answer)],
            CallAnswer::Swept(answer) => vec![answers::done(answer)],
        };
        self.note_failure(&ops, &said);
        self.note_deaths(&about, &said, &fates);
        if let (
            CallAnswer::Put(Ok(answer)),
            CommandFate::Heard(StoreAnswer::Put(heard)),
            CallSubject::Put(again),
        ) = (&said, &fates[0], &about)
            && matches!(heard, PutHeard::Created { .. } | PutHeard::Replaced { .. })
        {
            self.oracle.numbered(again.put.spec.no, answer.number.get());
            self.pool.add(&mut self.rng, again.put.address, answer.id);
            if self.climate == Climate::BadSectors {
                self.addresses.insert(answer.id, again.put.address);
                // It may be stored in a sector that was lost before.
                self.forget_what_is_hidden(&[answer.id]);
            }
        }
        // A put whose key cannot be looked up is refused for that reason.
        if let (CallAnswer::Put(answer), CallSubject::Put(_)) = (&said, &about)
            && !matches!(answer, Err(Error::Overloaded { .. } | Error::DiskFull { .. }))
        {
            self.puts_decided += 1;
        }
        let unread = self.leased_unread(&ops, &fates);
        let heard: Vec<bool> = fates.iter().map(|fate| matches!(fate, CommandFate::Heard(_))).collect();
        for (op, fate) in ops.into_iter().zip(fates) {
            self.conclude(op, fate);
        }
        if let Some(queues) = unread {
            let due = Due::Within(workload::BACKOFF_CAP_MS);
            let attempt = match self.climate {
                Climate::FewFiles => Attempt::Unspent,
                _ if self.weather.lacks_files() => Attempt::Unknown,
                _ => Attempt::Spent,
            };
            let op = self.begin(StoreCall::Unread { queues, due, attempt });
            self.unread.push(op);
        }
        match (said, about) {
            (CallAnswer::Put(answer), CallSubject::Put(mut again)) if again.put.spec.idempotency_key => {
                again.is_mismatch = answer.is_ok() && self.uses.percent(&mut self.rng, 15);
                if !heard[0] || again.is_mismatch || self.rng.percent(10) {
                    self.repeat(*again);
                } else {
                    self.oracle.unpin(again.put.address.group(), again.put.spec.no);
                }
            }
            // The put that owns the idempotency key is unchanged.
            (CallAnswer::Put(_), CallSubject::Mismatch(mut again)) => {
                again.is_mismatch = false;
                self.repeat(*again);
            }
            (CallAnswer::Ended(answers), CallSubject::EndLease(leases)) => {
                for ((address, id), answer) in leases.into_iter().zip(answers) {
                    if matches!(answer, Ok(Settled::Dead(_))) {
                        self.pool.add_dead(&mut self.rng, address, id);
                    }
                }
            }
            (CallAnswer::Took(Ok(deliveries)), _) => {
                deliveries.iter().for_each(|delivery| self.hold(delivery))
            }
            (CallAnswer::TookById(Ok(delivery)), _) => self.hold(&delivery),
            (CallAnswer::Settled(answers), CallSubject::Settle(batch)) => {
                for ((held, action), answer) in batch.into_iter().zip(answers) {
                    let extends = matches!(action, Action::Extend { .. });
                    self.settled(held, extends, &answer);
                }
            }
            _ => {}
        }
    }

    fn settled(&mut self, held: HeldLease, extends: bool, answer: &Result<Settled>) {
        if matches!(answer, Ok(Settled::Dead(_))) {
            self.pool.add_dead(&mut self.rng, held.address, held.id);
        }
        // An ack of unknown outcome is retried, and an extended lease continues.
        if extends || answer.as_ref().is_err_and(answers::is_fatal) {
            self.held.push(held);
        } else if self.spent.len() < 50 {
            self.spent.push(held);
        }
    }

    fn hold(&mut self, delivery: &Delivery) {
        let Some((address, _)) = answers::delivered(delivery) else { return };
        let id = delivery.message.id;
        self.pool.add(&mut self.rng, address, id);
        let takes = delivery.message.standing.counts.takes;
        self.held.push(HeldLease { address, id, receipt: delivery.receipt.clone(), takes });
    }

    /// Keeps a put of unknown outcome, and sometimes any other, for a retry. At most one is kept.
    pub(super) fn repeat(&mut self, again: Again) {
        if let Some(other) = self.again.replace(again) {
            self.oracle.unpin(other.put.address.group(), other.put.spec.no);
        }
    }

    /// The queues of a take that has leased messages which it could not read.
    fn leased_unread(&self, ops: &[Op], fates: &[CommandFate]) -> Option<Vec<u32>> {
        let is_unread = matches!(
            fates,
            [CommandFate::Heard(StoreAnswer::TookPart(_) | StoreAnswer::TookById(TakenById::Unread))]
        );
        is_unread.then(|| self.oracle.queues_of(ops[0]))
    }

    fn note_failure(&mut self, ops: &[Op], said: &CallAnswer) {
        let errors: Vec<&Error> = match said {
            CallAnswer::Put(Err(error))
            | CallAnswer::Took(Err(error))
            | CallAnswer::TookById(Err(error))
            | CallAnswer::Cancelled(Err(error))
            | CallAnswer::Moved(Err(error))
            | CallAnswer::Got(Err(error))
            | CallAnswer::Peeked(_, Err(error))
            | CallAnswer::Raised(Err(error))
            | CallAnswer::Swept(Err(error)) => vec![error],
            CallAnswer::Settled(answers) | CallAnswer::Ended(answers) => {
                answers.iter().filter_map(|answer| answer.as_ref().err()).collect()
            }
            CallAnswer::Raised(Ok(swept)) => swept.refused.iter().map(|(_, error)| error).collect(),
            _ => Vec::new(),
        };
        let is_fatal = errors.iter().any(|error| answers::is_fatal(error));
        let unread = errors.into_iter().find(|error| answers::is_unread(error));
        let has_let_read = ops.iter().all(|op| self.weather.has_let_read(*op));
        let may_be = !has_let_read || self.disk.is_off() || self.is_scarred;
        if let Some(error) = unread.filter(|_| !may_be) {
            let text = format!("nothing keeps the store from reading, and it says {error}");
            self.oracle.accuse(ViolationKind::Contradiction, text);
        }
        self.has_failed |= is_fatal;
    }
}

/// The answer to the single item of a call.
fn one<T>(mut answers: Vec<Result<T>>) -> Result<T> {
    answers.pop().expect("a store answers each item")
}

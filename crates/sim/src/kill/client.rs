//! One thread that sends commands, tells the oracle before and after, and comes to the gate when its server
//! is gone.

use dwell_client::{Delivery, Error};
use dwell_model::{MessageId, PutToken, Receipt, Timestamp};
use dwell_store as store;

use super::wire::{self, Broken};
use super::workload::{self, Choice, key_name, queue_name};
use super::{Shared, body};
use crate::oracle::{
    Action, Address, Answer, Ask, Due, GroupId, Kind, Member, OnConflict, Op, PutHeard, Spec, Sweep, Target,
};
use crate::rng::Rng;
use crate::server::Pass;

/// A client leaves a group alone while so many commands to it wait for others.
const CROWD: usize = 40;

/// A lease that this client was granted.
#[derive(Clone, Debug)]
struct Held {
    address: Address,
    id: MessageId,
    receipt: Receipt,
}

/// A put that may be sent again.
#[derive(Clone, Debug)]
struct Again {
    put: store::Put,
    spec: Spec,
    address: Address,
}

/// See the module.
pub(super) struct Client<'a> {
    shared: &'a Shared,
    rng: Rng,
    held: Vec<Held>,
    /// Receipts that were settled: they must prove nothing any more.
    spent: Vec<Held>,
    again: Option<Again>,
    /// Commands without an answer.
    lost: Vec<Op>,
    server: Option<dwell_client::Client>,
    gone: bool,
}

impl<'a> Client<'a> {
    /// A client with chance of its own.
    pub(super) fn new(shared: &'a Shared, rng: Rng) -> Client<'a> {
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

    /// Sends commands until all is over.
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
        match workload::choose(&mut self.rng) {
            Choice::Put => self.put(),
            Choice::Take => self.take(),
            Choice::Settle => self.settle(),
            Choice::Stale => self.settle_spent(),
            Choice::TakeById => self.take_by_id(),
            Choice::Cancel => self.cancel(),
            Choice::Reschedule => self.reschedule(),
            Choice::Get => self.get(),
            Choice::Revive => self.revive(),
            Choice::Discard => self.discard(),
            Choice::Configure => self.configure(),
            Choice::Sweep => self.sweep(),
        }
    }

    fn http(&self) -> dwell_client::Client {
        self.server.clone().expect("a step has a server")
    }

    fn begin(&self, ask: Ask) -> Op {
        let now = self.shared.now();
        self.shared.oracle().begin(ask, now)
    }

    /// Tells the oracle what came of a command.
    fn conclude(&mut self, op: Op, answer: Result<Answer, Broken>) {
        let now = self.shared.now();
        match answer {
            Ok(answer) => {
                self.shared.oracle().end(op, answer, now);
                self.shared.gate.answered();
            }
            Err(Broken::Unsent) => {
                self.shared.oracle().end(op, Answer::Refused, now);
                self.gone = true;
            }
            Err(Broken::Unknown) => {
                self.lost.push(op);
                self.gone = true;
            }
            Err(Broken::Odd(text)) => {
                self.shared.oracle().accuse(Kind::Contradiction, text);
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
        let queue = workload::queue(&mut self.rng);
        let key = self.rng.percent(35).then(|| workload::key(&mut self.rng));
        let no = self.shared.pool().next_no();
        let address = Address { queue, key, no };
        if self.is_crowded(address.group()) {
            return;
        }
        let now = self.wall();
        let due = workload::due(&mut self.rng, now);
        let latest = match due {
            Due::At(at) => at.max(now.as_ms()),
            Due::After(ms) | Due::Within(ms) => now.as_ms() + ms,
        };
        // Well behind the latest instant that it may be due at, so that the put is never refused for it.
        let expires = self.rng.percent(8).then(|| latest + 5_000 + self.rng.below(5_000) as i64);
        let token = self.rng.percent(50);
        let spec = Spec {
            no,
            keyed: key.is_some(),
            on_conflict: if key.is_some() {
                workload::on_conflict(&mut self.rng)
            } else {
                OnConflict::Reject
            },
            due,
            priority: workload::priority(&mut self.rng),
            max_attempts: self.rng.between(0, 5) as u32,
            expires,
            token,
        };
        let mut put = store::Put::new(queue_name(queue), body::make(address));
        put.when = when(due);
        put.key = key.map(key_name);
        put.on_conflict = match spec.on_conflict {
            OnConflict::Reject => store::OnConflict::Reject,
            OnConflict::Replace => store::OnConflict::Replace,
            OnConflict::Keep => store::OnConflict::Keep,
        };
        put.priority = spec.priority;
        put.max_attempts = Some(wire::attempts(spec.max_attempts));
        put.expires = expires.map(instant);
        if token {
            put.token = Some(PutToken::new(&format!("put-{no}")).expect("it is visible ASCII"));
            self.shared.oracle().pin(address.group());
        }
        self.send_put(Again { put, spec, address });
    }

    /// Sends a put, for the first time or again.
    fn send_put(&mut self, again: Again) {
        let group = again.address.group();
        let op = self.begin(Ask::Put(group, again.spec));
        let answer = self.http().put_one(again.put.clone());
        let told = answer.as_ref().ok().map(|answer| (answer.id, answer.number));
        let answer = wire::put(answer);
        let answered = answer.is_ok();
        if let (Ok(Answer::Put(PutHeard::Created { .. } | PutHeard::Replaced { .. })), Some((id, number))) =
            (&answer, told)
        {
            self.shared.oracle().numbered(again.spec.no, number);
            self.shared.pool().add(&mut self.rng, again.address, id);
        }
        self.conclude(op, answer);
        if !again.spec.token {
            return;
        }
        if !answered || self.rng.percent(10) {
            self.again = Some(again);
        } else {
            self.shared.oracle().unpin(group, again.spec.no);
        }
    }

    fn take(&mut self) {
        let mut queues = vec![workload::queue(&mut self.rng)];
        while self.rng.percent(30) && queues.len() < 3 {
            let queue = workload::queue(&mut self.rng);
            if !queues.contains(&queue) {
                queues.push(queue);
            }
        }
        let lease_ms = workload::lease_ms(&mut self.rng);
        let wait_ms = *self.rng.pick(&[0, 0, 20, 100]);
        let take = store::Take::from_all(queues.iter().copied().map(queue_name))
            .max(self.rng.between(1, 8) as usize)
            .wait_ms(wait_ms)
            .lease_ms(lease_ms);
        let op = self.begin(Ask::Take { queues, lease_ms: lease_ms as i64, bound: false });
        let answer = self.http().take(&take);
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
        self.held.push(Held { address, id, receipt: delivery.receipt.clone() });
    }

    /// Settles some of what is held, in one request. What stays is settled later, or lapses.
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

    fn settle_batch(&mut self, batch: Vec<Held>) {
        let mut settles = Vec::new();
        let mut ops = Vec::new();
        for held in &batch {
            let (action, wish) = self.action();
            let token = held.receipt.token.0;
            ops.push((self.begin(Ask::Settle { message: held.address, token, action }), action));
            settles.push(store::Settle { receipt: held.receipt.clone(), action: wish });
        }
        if ops.is_empty() {
            return;
        }
        let answers = self.http().settle(&settles);
        for ((held, (op, action)), answer) in batch.into_iter().zip(ops).zip(answers) {
            if matches!(answer, Ok(dwell_client::Settled::Dead { .. })) {
                self.shared.pool().add_dead(&mut self.rng, held.address, held.id);
            }
            let broken = matches!(answer, Err(Error::OutcomeUnknown { .. } | Error::Unreachable { .. }));
            self.conclude(op, wire::settled(answer));
            // Whoever does not know whether an ack was done tries it again, and an extended lease goes on.
            if broken || matches!(action, Action::Extend { .. }) {
                self.held.push(held);
            } else if self.spent.len() < 50 {
                self.spent.push(held);
            }
        }
    }

    /// What to do with a message that is held, as the oracle and as the server is told.
    fn action(&mut self) -> (Action, store::Action) {
        let rng = &mut self.rng;
        match rng.below(100) {
            0..58 => (Action::Ack, store::Action::Ack),
            58..75 => {
                let priority = workload::new_priority(rng);
                let after_ms = rng.percent(70).then(|| workload::delay_ms(rng) % 30_000);
                let due = match after_ms {
                    Some(ms) => Due::After(ms as i64),
                    None => Due::Within(workload::BACKOFF_CAP_MS),
                };
                let error = rng.percent(50).then(|| "no route".into());
                (Action::Retry { due, priority }, store::Action::Retry { after_ms, error, priority })
            }
            75..87 => {
                let priority = workload::new_priority(rng);
                let after_ms = rng.percent(50).then(|| workload::delay_ms(rng) % 30_000);
                let due = after_ms.map(|ms| Due::After(ms as i64));
                (Action::Release { due, priority }, store::Action::Release { after_ms, priority })
            }
            87..93 => {
                let priority = workload::new_priority(rng);
                (Action::Bury { priority }, store::Action::Bury { reason: None, priority })
            }
            _ => {
                let lease_ms = workload::lease_ms(rng);
                let wish = store::Action::Extend { lease_ms: Some(lease_ms) };
                (Action::Extend { lease_ms: lease_ms as i64 }, wish)
            }
        }
    }

    /// A message told of lately, if it is not crowded.
    fn some_message(&mut self) -> Option<(Address, MessageId)> {
        let (address, id) = self.shared.pool().any(&mut self.rng)?;
        (!self.is_crowded(address.group())).then_some((address, id))
    }

    /// A message by id, or whichever has some key.
    fn some_target(&mut self) -> Option<(GroupId, Target, store::Target)> {
        if self.rng.percent(40) {
            let (queue, key) = (workload::queue(&mut self.rng), workload::key(&mut self.rng));
            let group = GroupId { queue, member: Member::Key(key) };
            let target = (group, Target::Key, store::Target::Key(key_name(key)));
            return (!self.is_crowded(group)).then_some(target);
        }
        let (address, id) = self.some_message()?;
        Some((address.group(), Target::Message(address.no), store::Target::Id(id)))
    }

    fn take_by_id(&mut self) {
        let Some((address, id)) = self.some_message() else { return };
        let lease_ms = workload::lease_ms(&mut self.rng);
        let op = self.begin(Ask::TakeById { message: address, lease_ms: lease_ms as i64, bound: false });
        let answer = self.http().take_id(&queue_name(address.queue), id, Some(lease_ms));
        let told = wire::took_by_id(&answer);
        self.conclude(op, told);
        if let Ok(delivery) = answer {
            self.hold(&delivery);
        }
    }

    fn cancel(&mut self) {
        let Some((group, target, wish)) = self.some_target() else { return };
        let op = self.begin(Ask::Cancel(group, target));
        let answer = self.http().cancel(&queue_name(group.queue), &wish);
        self.conclude(op, wire::cancelled(answer));
    }

    fn reschedule(&mut self) {
        let Some((group, target, wish)) = self.some_target() else { return };
        let now = self.wall();
        let due = workload::due(&mut self.rng, now);
        let op = self.begin(Ask::Reschedule(group, target, due));
        let answer = self.http().reschedule(&queue_name(group.queue), &wish, when(due));
        self.conclude(op, wire::moved(answer));
    }

    fn get(&mut self) {
        let Some((group, target, wish)) = self.some_target() else { return };
        let op = self.begin(Ask::Get(group, target));
        let answer = self.http().get(&queue_name(group.queue), &wish);
        self.conclude(op, wire::got(answer));
    }

    fn revive(&mut self) {
        let Some((address, id)) = self.some_dead() else { return };
        let now = self.wall();
        let due = workload::due(&mut self.rng, now);
        let op = self.begin(Ask::Revive(address, due));
        let which = store::Selection::Ids(vec![id]);
        let answer = self.http().revive(&queue_name(address.queue), &which, when(due));
        self.conclude(op, wire::raised(answer));
    }

    fn discard(&mut self) {
        let Some((address, id)) = self.some_dead() else { return };
        let op = self.begin(Ask::Discard(address));
        let answer = self.http().discard(&queue_name(address.queue), &store::Selection::Ids(vec![id]));
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
        let (setting, value) = wire::change(&change);
        let op = self.begin(Ask::Configure { queue, setting, value });
        let answer = self.http().configure(&queue_name(queue), &[change]);
        self.conclude(op, wire::done(answer));
    }

    fn sweep(&mut self) {
        let queue = workload::queue(&mut self.rng);
        let now = self.wall();
        let sweep = workload::sweep(&mut self.rng, now);
        let op = self.begin(Ask::Sweep { queue, sweep });
        let (http, name) = (self.http(), queue_name(queue));
        let answer = match sweep {
            Sweep::Purge => wire::done(http.purge(&name)),
            Sweep::DeleteQueue => wire::done(http.delete_queue(&name)),
            Sweep::ReviveAll(due) => wire::done(http.revive(&name, &store::Selection::All, when(due))),
            Sweep::DiscardAll => wire::done(http.discard(&name, &store::Selection::All)),
        };
        self.conclude(op, answer);
    }
}

/// When a message is due, as the store's vocabulary has it.
fn when(due: Due) -> store::When {
    match due {
        Due::At(at) => store::When::At(instant(at)),
        Due::After(ms) | Due::Within(ms) => store::When::AfterMs(ms.unsigned_abs()),
    }
}

fn instant(ms: i64) -> Timestamp {
    Timestamp::from_ms(ms).expect("a workload stays between 1970 and 9999")
}

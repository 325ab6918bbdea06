//! The deterministic part of a shard: a command comes in, records and answers come out.
//!
//! It uses no thread, no file and no clock. The same commands at the same times give the same bytes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use dwell_model::{Limits, Message, Now, QueueName, Receipt, SettingChange, SettingName, StateKind};
use dwell_store::core::{
    BulkProgress, Cold, Core, Durability, Getting, Log, Peeking, PutRecord, Record, WaiterId,
};
use dwell_store::{Action, BulkOutcome, Error, Put, Result, Selection, Settle, contained};

use super::body_prefetch::BodyPrefetch;
use super::command::{Command, HandedOut, HeldAnswer, Reply};
use crate::cold::ColdSet;
use crate::executor::Executor;
use crate::journal::batch::Batch;
use crate::journal::segment::BodyRef;

/// The maximum size of the bodies of one put command in one batch, in bytes; the rest waits for the next batch.
const MOST_PUT_BYTES: usize = 16 * 1024 * 1024;

/// A shard's messages, and the waiting takes.
pub(crate) struct Step {
    core: Core<BodyRef>,
    cold: ColdSet,
    /// The prefetch of bodies, if there is one.
    ahead: Option<BodyPrefetch>,
    waiting: HashMap<WaiterId, Reply<Result<HandedOut>>>,
    /// Queues of takes that are to wait, but whose expired leases this batch could not handle: later takes on these
    /// stay behind them.
    late: HashSet<QueueName>,
    /// Whether a peek in this batch has read files for dead messages, and goes on in the next: one at a time, so that
    /// others do not displace what it has read so far.
    peeks: bool,
    /// Whether a bulk revive or discard that reads files has begun in this batch: one at a time.
    sweeps: bool,
}

/// The result of a command, apart from its records.
pub(crate) enum Stepped {
    Answered(HeldAnswer),
    /// It waits, or needs no answer.
    Quiet,
    /// The rest of it belongs into the next batch, if this one succeeds.
    Unfinished(HeldAnswer),
    /// The rest of it belongs into other batches, and other commands may come first.
    GoesOn(Command),
    /// It is to be run again after a slice of other work: more expired leases of a queue that it names, or more
    /// expired messages that it met. Or when all expired cold messages are handled; or in the next batch, if it reads
    /// files a piece at a time.
    Behind(Command),
    /// Nothing comes after this.
    Closed(HeldAnswer),
}

impl Step {
    pub(crate) fn new(core: Core<BodyRef>, cold: ColdSet) -> Step {
        Step {
            core,
            cold,
            ahead: None,
            waiting: HashMap::new(),
            late: HashSet::new(),
            peeks: false,
            sweeps: false,
        }
    }

    /// Enables the prefetch for takes: of bodies, and of messages in files.
    pub(crate) fn read_ahead(&mut self, executor: &Arc<Executor>) {
        self.cold.use_executor(Arc::clone(executor));
        self.ahead = Some(BodyPrefetch::new(Arc::clone(executor)));
    }

    /// The messages in memory, and the cold ones.
    pub(crate) fn both(&mut self) -> (&mut Core<BodyRef>, &mut ColdSet) {
        (&mut self.core, &mut self.cold)
    }

    /// The messages that are not in memory.
    pub(crate) fn cold(&self) -> &ColdSet {
        &self.cold
    }

    /// Begins service.
    pub(crate) fn opened(&mut self, now: Now, batch: &mut Batch) {
        self.cold.look_again_at_left();
        self.core.opened(now, &mut StepLog { batch, cold: &mut self.cold });
    }

    /// Frees leases that were bound to the previous process, as many as belong into one batch; true if there are
    /// more.
    pub(crate) fn release_session_leases(&mut self, now: Now, batch: &mut Batch) -> bool {
        self.core.release_session_leases(now, &mut StepLog { batch, cold: &mut self.cold })
    }

    pub(crate) fn core(&self) -> &Core<BodyRef> {
        &self.core
    }

    /// Whether a cold message could not be read.
    pub(crate) fn has_failure(&self) -> bool {
        self.cold.has_failure()
    }

    pub(crate) fn core_mut(&mut self) -> &mut Core<BodyRef> {
        &mut self.core
    }

    /// A batch begins. During it no due cold message becomes resident if memory `is_full`, and no expired one if it
    /// `is_tight`.
    pub(crate) fn begin_batch(&mut self, is_full: bool, is_tight: bool) {
        (self.peeks, self.sweeps) = (false, false);
        self.late.clear();
        self.cold.begin_turn(is_full);
        self.cold.set_tight(is_tight);
    }

    /// Whether a command has to wait until more expired leases of the queues that it names are handled. Handles some
    /// of them.
    fn is_behind(&mut self, command: &Command, now: Now, batch: &mut Batch) -> bool {
        if let Command::Take { take, .. } = command
            && take.queues.iter().any(|queue| self.late.contains(queue))
        {
            return true;
        }
        let core = &mut self.core;
        let log = &mut StepLog { batch, cold: &mut self.cold };
        if let Command::Configure(_, changes, _) = command
            && changes.iter().any(is_of_expiry)
        {
            return core.lapse_some_everywhere(now, log);
        }
        command.names_any(|queue| core.has_lapsed(queue, now) && core.lapse_some(queue, now, log))
    }

    /// Handles some of the expired cold messages.
    pub(crate) fn catch_up(&mut self, now: Now, batch: &mut Batch) {
        self.core.catch_up(now, &mut StepLog { batch, cold: &mut self.cold });
    }

    /// Whether a command depends on all pending or dead messages of a queue that may have unhandled expired ones: it
    /// would have to do at once what is to be done in slices. Expired messages of other queues delay it only where it
    /// changes what becomes of messages that expire.
    fn is_too_early(&mut self, command: &Command, now: Now, batch: &mut Batch) -> bool {
        let (core, log) = (&self.core, &mut StepLog { batch, cold: &mut self.cold });
        match command {
            Command::List { queue, .. }
            | Command::Stats(queue, _)
            | Command::Peek(queue, ..)
            | Command::Revive(queue, Selection::All | Selection::Oldest(_), ..)
            | Command::Discard(queue, Selection::All | Selection::Oldest(_), _)
            | Command::Purge(queue, _) => core.is_behind_in(queue, now, log),
            // Only if it would be refused otherwise.
            Command::Put { puts, .. } => {
                puts.iter().any(|put| core.is_full_behind(&put.queue, puts.len(), now, log))
            }
            // The change applies to the expired messages of all files.
            Command::Configure(_, changes, _) => changes.iter().any(is_of_expiry),
            _ => false,
        }
    }

    /// Whether a command begins a sweep over the dead messages of a queue of which some are in files.
    fn begins_bulk(&self, command: &Command) -> bool {
        match command {
            Command::Revive(queue, Selection::All | Selection::Oldest(_), ..)
            | Command::Discard(queue, Selection::Oldest(_), _) => self.core.has_cold_dead(queue),
            _ => false,
        }
    }

    /// Gives back leases without a holder. Those of queues with too many expired leases wait; the others do not.
    fn give_back(&mut self, receipts: Vec<Receipt>, now: Now, batch: &mut Batch) -> Stepped {
        let core = &mut self.core;
        let log = &mut StepLog { batch, cold: &mut self.cold };
        // They are mostly of one queue.
        let mut last: Option<(QueueName, bool)> = None;
        let (late, rest): (Vec<_>, Vec<_>) = receipts.into_iter().partition(|Receipt { queue, .. }| {
            if let Some((_, is_late)) = last.as_ref().filter(|(name, _)| name == queue) {
                return *is_late;
            }
            let is_late = core.has_lapsed(queue, now) && core.lapse_some(queue, now, log);
            last = Some((queue.clone(), is_late));
            is_late
        });
        core.give_back(&rest, now, log);
        if late.is_empty() { Stepped::Quiet } else { Stepped::Behind(Command::GiveBack(late)) }
    }

    /// Runs one command. `refuses_puts` is the reason if there is no room for more messages.
    pub(crate) fn step(
        &mut self,
        command: Command,
        now: Now,
        batch: &mut Batch,
        refuses_puts: Option<&Error>,
    ) -> Stepped {
        if let Command::GiveBack(receipts) = command {
            return self.give_back(receipts, now, batch);
        }
        if self.is_behind(&command, now, batch)
            || self.core.is_behind() && self.is_too_early(&command, now, batch)
        {
            if let Command::Take { take, .. } = &command
                && take.wait_ms > 0
            {
                self.late.extend(take.queues.iter().cloned());
            }
            return Stepped::Behind(command);
        }
        if self.begins_bulk(&command) && std::mem::replace(&mut self.sweeps, true) {
            return Stepped::Behind(command);
        }
        let core = &mut self.core;
        let batch = &mut StepLog { batch, cold: &mut self.cold };
        Stepped::Answered(match command {
            Command::Put { .. } if let Some(error) = refuses_puts => {
                command.refuse(error);
                return Stepped::Quiet;
            }
            Command::Put { puts, answered, reply } => {
                return put(core, puts, answered, reply, now, batch);
            }
            // Its caller dropped it while it waited for leases to expire, and the command to forget it did not find
            // it: it must not wait now.
            Command::Take { reply, .. } if reply.is_canceled() => return Stepped::Quiet,
            Command::Take { id, take, reply } => {
                let taken = core.take(&take, now, batch);
                let nothing = taken.as_ref().is_ok_and(Vec::is_empty);
                if nothing && take.wait_ms == 0 && core.gave_up() {
                    return Stepped::Behind(Command::Take { id, take, reply });
                }
                if !nothing || take.wait_ms == 0 {
                    let handed = taken.map(|deliveries| {
                        let bodies =
                            batch.cold.bodies_of(deliveries.iter().map(|delivery| &delivery.message));
                        let ahead = match (&mut self.ahead, take.queues.as_slice()) {
                            (Some(ahead), [queue]) if bodies.is_empty() => {
                                ahead.go_on(core, queue, deliveries.len())
                            }
                            _ => None,
                        };
                        HandedOut { deliveries, bodies, ahead }
                    });
                    HeldAnswer::Deliver(reply, handed)
                } else if let Err(refusal) = core.wait(id, take, now, batch) {
                    HeldAnswer::Deliver(reply, Err(refusal))
                } else {
                    self.waiting.insert(id, reply);
                    return Stepped::Quiet;
                }
            }
            Command::Forget(id) => {
                core.forget(id, now, batch);
                self.waiting.remove(&id);
                return Stepped::Quiet;
            }
            Command::GiveBack(_) => unreachable!("that was done before"),
            Command::Unread(unread) => {
                let retry = |error| Action::Retry { after_ms: None, error: Some(error), priority: None };
                let settle = |(receipt, error)| Settle { receipt, action: retry(error) };
                // A lease that has expired by now was handled already.
                drop(core.settle(unread.into_iter().map(settle).collect(), now, batch));
                return Stepped::Quiet;
            }
            Command::TakeId { .. } if batch.cold.is_full() => {
                command.refuse(&super::overloaded());
                return Stepped::Quiet;
            }
            Command::TakeId { queue, id, terms, reply } => {
                let taken = core.take_id(&queue, id, terms, now, batch);
                HeldAnswer::Deliver(reply, taken.map(|delivery| vec![delivery].into()))
            }
            Command::Settle(settles, reply) => HeldAnswer::change(reply, core.settle(settles, now, batch)),
            Command::ExpireLease(queue, leases, reply) => {
                HeldAnswer::change(reply, core.expire_lease(&queue, leases, now, batch))
            }
            Command::Cancel(queue, targets, reply) => {
                HeldAnswer::change(reply, core.cancel(&queue, targets, now, batch))
            }
            Command::Reschedule(queue, moves, reply) => {
                HeldAnswer::change(reply, core.reschedule(&queue, moves, now, batch))
            }
            Command::Get { queue, targets, dead, reply } => {
                return got(core.begin_get(&queue, targets, dead, now, batch), reply);
            }
            // The caller is gone: it would read files for nothing.
            Command::GetOn(_, reply) if reply.is_canceled() => return Stepped::Quiet,
            Command::GetOn(get, reply) => return got(core.go_on_getting(get, now, batch), reply),
            Command::Locate(numbers, reply) => HeldAnswer::look(reply, core.locate(numbers, now, batch)),
            Command::List { queue, state, after, max, reply } => {
                let page = core.list(&queue, state, after, max, now, batch);
                if core.gave_up() {
                    return Stepped::Behind(Command::List { queue, state, after, max, reply });
                }
                HeldAnswer::look(reply, page)
            }
            // The caller is gone: it would read files for nothing, and others would wait for that.
            Command::Peek(_, _, reply) | Command::PeekOn(_, reply) if reply.is_canceled() => {
                return Stepped::Quiet;
            }
            Command::Peek(queue, StateKind::Dead, reply) if self.peeks && core.has_cold_dead(&queue) => {
                return Stepped::Behind(Command::Peek(queue, StateKind::Dead, reply));
            }
            Command::PeekOn(peek, reply) if self.peeks => {
                return Stepped::Behind(Command::PeekOn(peek, reply));
            }
            Command::Peek(queue, state, reply) => {
                let peeking = core.peek(&queue, state, now, batch);
                if core.gave_up() {
                    return Stepped::Behind(Command::Peek(queue, state, reply));
                }
                return peeked(peeking, reply, &mut self.peeks);
            }
            Command::PeekOn(peek, reply) => {
                let peeking = core.go_on_peeking(peek, now, batch);
                return peeked(peeking, reply, &mut self.peeks);
            }
            Command::Stats(queue, reply) => HeldAnswer::look(reply, core.stats(&queue, now, batch)),
            Command::Forecast(queue, edges, reply) => {
                HeldAnswer::look(reply, core.forecast(&queue, &edges, now, batch))
            }
            Command::ForecastPage(after, max, edges, reply) => {
                let page = core.forecast_page(after.as_ref(), max, &edges, now, batch);
                if core.gave_up() {
                    return Stepped::Behind(Command::ForecastPage(after, max, edges, reply));
                }
                HeldAnswer::look(reply, Ok(page))
            }
            Command::Queues(after, max, reply) => {
                let page = core.queues(after.as_ref(), max, now, batch);
                if core.gave_up() {
                    return Stepped::Behind(Command::Queues(after, max, reply));
                }
                HeldAnswer::look(reply, Ok(page))
            }
            Command::Configure(queue, changes, reply) => {
                HeldAnswer::change(reply, core.configure(&queue, changes, now, batch))
            }
            Command::Revive(queue, which, when, reply) => {
                return swept(core.revive(&queue, which, when, now, batch), reply);
            }
            Command::Discard(queue, which, reply) => {
                return swept(core.discard(&queue, which, now, batch), reply);
            }
            Command::Deaths(reply) => HeldAnswer::look(reply, Ok(core.deaths())),
            Command::GoOn(sweep, reply) => return swept(core.go_on(sweep, now, batch), reply),
            Command::Purge(queue, reply) => HeldAnswer::change(reply, core.purge(&queue, now, batch)),
            Command::DeleteQueue(queue, reply) => {
                HeldAnswer::change(reply, Ok(core.delete_queue(&queue, now, batch)))
            }
            Command::Snapshot(_) => unreachable!("the shard takes it itself"),
            Command::Close(reply) => {
                if core.give_back_session_leases(now, batch) {
                    return Stepped::Behind(Command::Close(reply));
                }
                batch.batch.close();
                return Stepped::Closed(HeldAnswer::change(reply, Ok(())));
            }
        })
    }

    /// Answers waiting takes that have messages now, or whose time is over.
    pub(crate) fn serve(&mut self, now: Now, batch: &mut Batch) -> Vec<HeldAnswer> {
        let answers = self.core.serve(now, &mut StepLog { batch, cold: &mut self.cold });
        self.effects(answers)
    }

    /// Answers all waiting takes with nothing.
    pub(crate) fn dismiss(&mut self) -> Vec<HeldAnswer> {
        let answers = self.core.dismiss_all();
        self.effects(answers)
    }

    /// Drops all waiting takes. It may run while a panic unwinds, and a waker must not add another.
    pub(crate) fn let_waiting_go(&mut self) {
        for (_, reply) in self.waiting.drain() {
            contained(|| drop(reply));
        }
    }

    fn effects(&mut self, answers: Vec<dwell_store::core::TakeAnswer<BodyRef>>) -> Vec<HeldAnswer> {
        let waiting = &mut self.waiting;
        answers
            .into_iter()
            .map(|(id, answer)| {
                let reply = waiting.remove(&id).expect("a take that waits has its reply here");
                HeldAnswer::Deliver(reply, answer.map(HandedOut::from))
            })
            .collect()
    }
}

/// Whether a change may affect what becomes of messages that expire.
fn is_of_expiry(change: &SettingChange) -> bool {
    let name = match change {
        SettingChange::Set(setting) => setting.name(),
        SettingChange::Reset(name) => *name,
    };
    name == SettingName::OnExpiry
}

/// Puts as many messages as the bodies of one batch allow.
fn put(
    core: &mut Core<BodyRef>,
    mut puts: Vec<Put>,
    mut answered: Vec<Result<dwell_store::PutAnswer>>,
    reply: Reply<Vec<Result<dwell_store::PutAnswer>>>,
    now: Now,
    batch: &mut StepLog<'_>,
) -> Stepped {
    let (mut bytes, before) = (0, answered.len());
    let fits = puts.iter().take_while(|put| {
        let has_room = bytes < MOST_PUT_BYTES;
        bytes += put.body.len();
        has_room
    });
    let fits = fits.count();
    // A call with too many items is refused as a whole, by the core; so it must not be split.
    let is_whole = fits == puts.len() || core.limits().check_batch(puts.len()).is_err();
    if !batch.batch.reaches(puts[..fits].iter().map(bytes_of).sum()) {
        let reason = "the journal can begin no new segment, and this one has no room for more messages";
        let error = Error::DiskFull { reason: reason.into() };
        Command::Put { puts, answered, reply }.refuse(&error);
        return Stepped::Quiet;
    }
    if is_whole {
        answered.extend(core.put(puts, now, batch));
        return Stepped::Answered(HeldAnswer::put(reply, answered, before));
    }
    let rest = puts.split_off(fits);
    answered.extend(core.put(puts, now, batch));
    Stepped::Unfinished(HeldAnswer::Rest { puts: rest, answered, before, reply })
}

/// The maximum size of a put in the journal in bytes, including the change of a message that has its key.
fn bytes_of(put: &Put) -> usize {
    let texts = put.queue.as_str().len() + put.key.as_ref().map_or(0, |key| key.as_str().len());
    let headers: usize = put.headers.iter().map(|(name, value)| name.len() + value.len() + 20).sum();
    let idempotency_key =
        put.idempotency_key.as_ref().map_or(0, |idempotency_key| idempotency_key.as_str().len());
    put.body.len() + 2 * texts + headers + idempotency_key + Limits::MAX_ERROR_TEXT_LEN + 1024
}

/// The answer to a bulk revive or discard, or its next slice.
fn swept(sweeping: Result<BulkProgress>, reply: Reply<Result<BulkOutcome>>) -> Stepped {
    match sweeping {
        Ok(BulkProgress::Unfinished(sweep)) => Stepped::GoesOn(Command::GoOn(sweep, reply)),
        Ok(BulkProgress::Done(swept)) => Stepped::Answered(HeldAnswer::change(reply, Ok(swept))),
        Err(refusal) => Stepped::Answered(HeldAnswer::change(reply, Err(refusal))),
    }
}

/// The answer to a get, or its rest for the next batch.
fn got(getting: Getting<BodyRef>, reply: Reply<Vec<Result<Message<BodyRef>>>>) -> Stepped {
    match getting {
        Getting::Unfinished(get) => Stepped::Behind(Command::GetOn(get, reply)),
        Getting::Done(answers) => Stepped::Answered(HeldAnswer::look(reply, answers)),
    }
}

/// The answer to a peek, or its rest for the next batch.
fn peeked(
    peeking: Result<Peeking<BodyRef>>,
    reply: Reply<Result<Option<Message<BodyRef>>>>,
    peeks: &mut bool,
) -> Stepped {
    let found = match peeking {
        Ok(Peeking::Unfinished(peek)) => {
            *peeks = true;
            return Stepped::Behind(Command::PeekOn(peek, reply));
        }
        Ok(Peeking::Done(found)) => Ok(found),
        Err(refusal) => Err(refusal),
    };
    Stepped::Answered(HeldAnswer::look(reply, found))
}

/// The log of the core, and the source of its cold messages.
struct StepLog<'a> {
    batch: &'a mut Batch,
    cold: &'a mut ColdSet,
}

impl Log<BodyRef> for StepLog<'_> {
    fn put(&mut self, record: &PutRecord, body: &Bytes) -> BodyRef {
        self.batch.put(record, body)
    }

    fn record(&mut self, record: &Record, durability: Durability) {
        self.batch.record(record, durability);
    }

    fn keep_time(&mut self) {
        self.batch.keep_time();
    }

    fn cold(&mut self) -> Option<&mut dyn Cold<BodyRef>> {
        Some(self.cold)
    }
}

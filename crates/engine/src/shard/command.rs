//! The commands of a shard, and how its answers are sent.

use std::sync::Arc;

use bytes::Bytes;
use dwell_model::{
    Cursor, Message, MessageId, Number, QueueName, Receipt, SettingChange, StateKind, Timestamp,
};
use dwell_store::core::{BulkOperation, Get, Peek, WaiterId};
use dwell_store::{
    BulkOutcome, Cancelled, Delivery, Error, Forecast, LeaseRef, LeaseTerms, Page, Put, PutAnswer,
    QueueDeaths, QueueStats, Rescheduled, Result, Selection, Settle, Settled, Take, Target, When, contained,
};

use super::body_prefetch::PendingBodies;
use crate::backup::BackupFiles;
use crate::journal::segment::BodyRef;
use crate::sync::oneshot;

/// The maximum number of messages, and bytes of them, of a short command: about as long as a sync, with it.
const SHORT_MESSAGES: usize = 1024;
const SHORT_BYTES: usize = 1024 * 1024;

/// The way back to the caller, who may have dropped the receiver.
pub(crate) type Reply<T> = oneshot::Sender<T>;

/// Answers the caller. A waker that panics does not end the turn: the answer is already there when it is called.
pub(crate) fn send<T>(reply: Reply<T>, answer: T) -> std::result::Result<(), T> {
    contained(|| reply.send(answer)).unwrap_or(Ok(()))
}

/// The queues and ids of messages, by their numbers.
type Located = Vec<Result<Option<(QueueName, MessageId)>>>;

/// The combined forecast of some queues, and the last of these queues if there was one.
pub(crate) type PartialForecast = (Forecast, Option<QueueName>);

/// Messages handed out, with those of their bodies that were read already.
#[derive(Debug)]
pub(crate) struct HandedOut {
    pub(crate) deliveries: Vec<Delivery<BodyRef>>,
    /// The bodies that were read with their messages, in the order of these.
    pub(crate) bodies: Vec<(Number, Bytes)>,
    pub(crate) ahead: Option<Arc<PendingBodies>>,
}

impl From<Vec<Delivery<BodyRef>>> for HandedOut {
    fn from(deliveries: Vec<Delivery<BodyRef>>) -> HandedOut {
        HandedOut { deliveries, bodies: Vec::new(), ahead: None }
    }
}

impl HandedOut {
    /// The receipts of the messages.
    pub(crate) fn receipts(&self) -> Vec<Receipt> {
        self.deliveries.iter().map(|delivery| delivery.receipt.clone()).collect()
    }
}

/// A command with its reply. Bodies are returned as places: the caller reads them.
#[derive(Debug)]
pub(crate) enum Command {
    Put {
        puts: Vec<Put>,
        answered: Vec<Result<PutAnswer>>,
        reply: Reply<Vec<Result<PutAnswer>>>,
    },
    Take {
        id: WaiterId,
        take: Take,
        reply: Reply<Result<HandedOut>>,
    },
    Forget(WaiterId),
    GiveBack(Vec<Receipt>),
    /// Messages that were leased but whose bodies could not be read, and why.
    Unread(Vec<(Receipt, Arc<str>)>),
    TakeId {
        queue: QueueName,
        id: MessageId,
        terms: LeaseTerms,
        reply: Reply<Result<HandedOut>>,
    },
    Settle(Vec<Settle>, Reply<Vec<Result<Settled>>>),
    ExpireLease(QueueName, Vec<LeaseRef>, Reply<Vec<Result<Settled>>>),
    Cancel(QueueName, Vec<Target>, Reply<Vec<Result<Cancelled>>>),
    Reschedule(QueueName, Vec<(Target, When)>, Reply<Vec<Result<Rescheduled>>>),
    Get {
        queue: QueueName,
        targets: Vec<Target>,
        dead: bool,
        reply: Reply<Vec<Result<Message<BodyRef>>>>,
    },
    /// The rest of a get that searches for the youngest of many dead messages with a key.
    GetOn(Box<Get<BodyRef>>, Reply<Vec<Result<Message<BodyRef>>>>),
    Locate(Vec<Number>, Reply<Located>),
    Peek(QueueName, StateKind, Reply<Result<Option<Message<BodyRef>>>>),
    /// The rest of a peek at the oldest of many dead messages.
    PeekOn(Peek, Reply<Result<Option<Message<BodyRef>>>>),
    List {
        queue: QueueName,
        state: StateKind,
        after: Option<Cursor>,
        max: usize,
        reply: Reply<Result<Page<BodyRef>>>,
    },
    Stats(QueueName, Reply<Result<QueueStats>>),
    Forecast(QueueName, Arc<[Timestamp]>, Reply<Result<Forecast>>),
    /// The same for a page of queues: their maximum number, and the queue that the page starts after.
    ForecastPage(Option<QueueName>, usize, Arc<[Timestamp]>, Reply<Result<PartialForecast>>),
    Queues(Option<QueueName>, usize, Reply<Result<Vec<QueueStats>>>),
    Configure(QueueName, Vec<SettingChange>, Reply<Result<QueueStats>>),
    Revive(QueueName, Selection, When, Reply<Result<BulkOutcome>>),
    Discard(QueueName, Selection, Reply<Result<BulkOutcome>>),
    Deaths(Reply<Result<Vec<QueueDeaths>>>),
    /// The rest of a bulk revive or discard.
    GoOn(Box<BulkOperation>, Reply<Result<BulkOutcome>>),
    Purge(QueueName, Reply<Result<u64>>),
    DeleteQueue(QueueName, Reply<Result<u64>>),
    /// A snapshot for a backup. The shard handles it itself.
    Snapshot(Reply<Result<BackupFiles>>),
    Close(Reply<Result<()>>),
}

/// Whether the batch that an answer depends on was written, and synced if required.
#[derive(Clone, Debug)]
pub(crate) enum BatchOutcome {
    Done,
    /// The error of the disk.
    Failed(Box<str>),
}

/// An answer that is held until its batch is written, and synced if required.
pub(crate) enum HeldAnswer {
    /// Any answer but messages handed out.
    Answer(Box<dyn FnOnce(&BatchOutcome) + Send>),
    /// Messages handed out: if the receiver is gone, they are given back.
    Deliver(Reply<Result<HandedOut>>, Result<HandedOut>),
    /// A put of which a part is in the batch, and the rest belongs into later ones. The first `before` of its answers
    /// are of earlier batches, which are safe.
    Rest {
        puts: Vec<Put>,
        answered: Vec<Result<PutAnswer>>,
        before: usize,
        reply: Reply<Vec<Result<PutAnswer>>>,
    },
}

impl HeldAnswer {
    /// An answer to a command that may have changed something.
    pub(crate) fn change<T: Refusable>(reply: Reply<T>, answer: T) -> HeldAnswer {
        HeldAnswer::Answer(Box::new(move |outcome| {
            // The caller may be gone; the command has taken effect all the same.
            let _ = match outcome {
                BatchOutcome::Done => send(reply, answer),
                BatchOutcome::Failed(reason) => send(reply, answer.failed(outcome_unknown(reason))),
            };
        }))
    }

    /// The answer to a put; all but the first `before` of its answers depend on this batch.
    pub(crate) fn put(
        reply: Reply<Vec<Result<PutAnswer>>>,
        answered: Vec<Result<PutAnswer>>,
        before: usize,
    ) -> HeldAnswer {
        HeldAnswer::Answer(Box::new(move |outcome| {
            let answered = match outcome {
                BatchOutcome::Done => answered,
                BatchOutcome::Failed(reason) => failed_from(before, answered, reason),
            };
            let _ = send(reply, answered);
        }))
    }

    /// An answer to a read-only command.
    pub(crate) fn look<T: Refusable>(reply: Reply<T>, answer: T) -> HeldAnswer {
        HeldAnswer::Answer(Box::new(move |outcome| {
            let _ = match outcome {
                BatchOutcome::Done => send(reply, answer),
                BatchOutcome::Failed(reason) => send(reply, answer.failed(stopped(reason))),
            };
        }))
    }

    /// Sends the answer, and returns what is to be done next: messages whose receiver is gone are given back, and
    /// what is unfinished goes on.
    pub(crate) fn release(self, outcome: &BatchOutcome) -> Option<Command> {
        match (self, outcome) {
            (HeldAnswer::Answer(answer), _) => answer(outcome),
            (HeldAnswer::Deliver(reply, answer), BatchOutcome::Done) => {
                if let Err(Ok(handed)) = send(reply, answer) {
                    return Some(Command::GiveBack(handed.receipts())).filter(Command::gives_back);
                }
            }
            (HeldAnswer::Rest { puts, answered, reply, .. }, BatchOutcome::Done) => {
                return Some(Command::Put { puts, answered, reply });
            }
            (HeldAnswer::Rest { puts, answered, before, reply }, BatchOutcome::Failed(reason)) => {
                let answered = failed_from(before, answered, reason);
                Command::Put { puts, answered, reply }.refuse(&stopped(reason));
            }
            (HeldAnswer::Deliver(reply, answer), BatchOutcome::Failed(reason)) => {
                // It is not known whether the leases were written; without messages nothing was done.
                let took = answer.is_ok_and(|handed| !handed.deliveries.is_empty());
                let error = if took { outcome_unknown(reason) } else { stopped(reason) };
                let _ = send(reply, Err(error));
            }
        }
        None
    }
}

/// An answer that can be replaced by an error as a whole.
pub(crate) trait Refusable: Send + 'static {
    fn failed(self, error: Error) -> Self;
}

impl<T: Send + 'static> Refusable for Result<T> {
    fn failed(self, error: Error) -> Self {
        Err(error)
    }
}

impl<T: Send + 'static> Refusable for Vec<Result<T>> {
    fn failed(self, error: Error) -> Self {
        self.into_iter().map(|_| Err(error.clone())).collect()
    }
}

/// Answers; those from index `at` on are of a batch that failed.
fn failed_from<T: Send + 'static>(at: usize, mut answered: Vec<Result<T>>, reason: &str) -> Vec<Result<T>> {
    let of_batch = answered.split_off(at);
    answered.extend(of_batch.failed(outcome_unknown(reason)));
    answered
}

pub(crate) fn outcome_unknown(reason: &str) -> Error {
    Error::OutcomeUnknown { reason: reason.into(), needs_reopen: true }
}

pub(crate) fn stopped(reason: &str) -> Error {
    Error::Stopped { reason: reason.into() }
}

impl Command {
    /// Whether it puts messages: these are the first to be refused when room gets short.
    pub(crate) fn is_put(&self) -> bool {
        matches!(self, Command::Put { .. })
    }

    /// Whether it gives leases back that have no holder.
    pub(crate) fn gives_back(&self) -> bool {
        match self {
            Command::GiveBack(receipts) => !receipts.is_empty(),
            Command::Unread(_) => true,
            _ => false,
        }
    }

    /// Whether it may bring more messages into memory than can be freed before the next flush: new ones, or those of
    /// files that are to be rewritten.
    pub(crate) fn brings_many(&self) -> bool {
        matches!(self, Command::Put { .. } | Command::Revive(..) | Command::Reschedule(..))
    }

    /// Whether it names a queue for which `holds` is true. A command on all queues names none.
    pub(crate) fn names_any(&self, mut holds: impl FnMut(&QueueName) -> bool) -> bool {
        // The items of a call are mostly of one queue.
        fn any<'a>(
            mut names: impl Iterator<Item = &'a QueueName>,
            mut holds: impl FnMut(&QueueName) -> bool,
        ) -> bool {
            let mut last = None;
            names.any(|name| last.replace(name) != Some(name) && holds(name))
        }
        match self {
            Command::Put { puts, .. } => any(puts.iter().map(|put| &put.queue), holds),
            Command::Take { take, .. } => any(take.queues.iter(), holds),
            Command::GiveBack(receipts) => any(receipts.iter().map(|receipt| &receipt.queue), holds),
            Command::Unread(unread) => any(unread.iter().map(|(receipt, _)| &receipt.queue), holds),
            Command::Settle(settles, _) => any(settles.iter().map(|settle| &settle.receipt.queue), holds),
            Command::TakeId { queue, .. }
            | Command::List { queue, .. }
            | Command::ExpireLease(queue, ..)
            | Command::Cancel(queue, ..)
            | Command::Reschedule(queue, ..)
            | Command::Get { queue, .. }
            | Command::Peek(queue, ..)
            | Command::Stats(queue, _)
            | Command::Forecast(queue, ..)
            | Command::Configure(queue, ..)
            | Command::Revive(queue, ..)
            | Command::Discard(queue, ..)
            | Command::Purge(queue, _)
            | Command::DeleteQueue(queue, _) => holds(queue),
            Command::GoOn(sweep, _) => holds(sweep.queue()),
            Command::PeekOn(peek, _) => holds(peek.queue()),
            Command::GetOn(get, _) => holds(get.queue()),
            Command::Forget(_)
            | Command::Locate(..)
            | Command::ForecastPage(..)
            | Command::Queues(..)
            | Command::Deaths(_)
            | Command::Snapshot(_)
            | Command::Close(_) => false,
        }
    }

    /// Whether it touches few messages, so that it takes about as long as its sync.
    pub(crate) fn is_short(&self) -> bool {
        match self {
            Command::Put { puts, .. } => {
                let is_light = || puts.iter().map(|put| put.body.len()).sum::<usize>() <= SHORT_BYTES;
                puts.len() <= SHORT_MESSAGES && is_light()
            }
            Command::Take { take, .. } => take.max <= SHORT_MESSAGES,
            Command::Settle(items, _) => items.len() <= SHORT_MESSAGES,
            Command::Cancel(_, items, _) | Command::Get { targets: items, .. } => {
                items.len() <= SHORT_MESSAGES
            }
            Command::ExpireLease(_, items, _) => items.len() <= SHORT_MESSAGES,
            Command::Reschedule(_, items, _) => items.len() <= SHORT_MESSAGES,
            Command::Locate(items, _) => items.len() <= SHORT_MESSAGES,
            Command::TakeId { .. } | Command::Peek(..) | Command::PeekOn(..) | Command::Stats(..) => true,
            Command::Deaths(_) | Command::GetOn(..) => true,
            Command::Forget(_)
            | Command::GiveBack(_)
            | Command::Unread(_)
            | Command::List { .. }
            | Command::Forecast(..)
            | Command::ForecastPage(..)
            | Command::Queues(..)
            | Command::Configure(..)
            | Command::Revive(..)
            | Command::Discard(..)
            | Command::GoOn(..)
            | Command::Purge(..)
            | Command::DeleteQueue(..)
            | Command::Snapshot(_)
            | Command::Close(_) => false,
        }
    }

    /// Refuses it before anything, or any more, was done.
    pub(crate) fn refuse(self, error: &Error) {
        fn one<T>(reply: Reply<Result<T>>, error: &Error) {
            let _ = send(reply, Err(error.clone()));
        }
        fn each<T>(reply: Reply<Vec<Result<T>>>, count: usize, error: &Error) {
            let _ = send(reply, (0..count).map(|_| Err(error.clone())).collect());
        }
        match self {
            Command::Put { puts, mut answered, reply } => {
                answered.extend(puts.iter().map(|_| Err(error.clone())));
                let _ = send(reply, answered);
            }
            Command::Take { reply, .. } | Command::TakeId { reply, .. } => one(reply, error),
            Command::Forget(_) | Command::GiveBack(_) | Command::Unread(_) => {}
            Command::Settle(items, reply) => each(reply, items.len(), error),
            Command::ExpireLease(_, items, reply) => each(reply, items.len(), error),
            Command::Cancel(_, items, reply) => each(reply, items.len(), error),
            Command::Reschedule(_, items, reply) => each(reply, items.len(), error),
            Command::Get { targets, reply, .. } => each(reply, targets.len(), error),
            Command::GetOn(get, reply) => drop(send(reply, get.refused(error))),
            Command::Locate(items, reply) => each(reply, items.len(), error),
            Command::List { reply, .. } => one(reply, error),
            Command::Peek(_, _, reply) | Command::PeekOn(_, reply) => one(reply, error),
            Command::Stats(_, reply) | Command::Configure(_, _, reply) => one(reply, error),
            Command::Forecast(_, _, reply) => one(reply, error),
            Command::ForecastPage(_, _, _, reply) => one(reply, error),
            Command::Queues(_, _, reply) => one(reply, error),
            Command::Deaths(reply) => one(reply, error),
            Command::Revive(_, _, _, reply) | Command::Discard(_, _, reply) => one(reply, error),
            Command::GoOn(sweep, reply) => one(reply, &sweep.interrupted(error.clone())),
            Command::Purge(_, reply) | Command::DeleteQueue(_, reply) => one(reply, error),
            Command::Snapshot(reply) => one(reply, error),
            Command::Close(reply) => one(reply, error),
        }
    }
}

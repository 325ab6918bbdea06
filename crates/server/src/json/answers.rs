//! Answers in JSON, made of a store's answers.

use axum::http::StatusCode;
use dwell_model::{Limits, Message, MessageId};
use dwell_store::Error;
use dwell_wire::{
    Cancelled, Found, Moved, PutAnswer, PutOutcome, QueuePage, RefusedOne, ServerInfo, Settled, UnreadQueue,
};
use serde::{Serialize, Serializer};

/// The answer to one item, with the status that it has when it is alone.
pub(crate) trait ItemAnswer: Serialize + Send + 'static {
    /// 200, unless something was created.
    fn status(&self) -> StatusCode {
        StatusCode::OK
    }
}

impl ItemAnswer for PutAnswer {
    fn status(&self) -> StatusCode {
        if self.outcome == PutOutcome::Kept { StatusCode::OK } else { StatusCode::CREATED }
    }
}

impl ItemAnswer for Settled {}
impl ItemAnswer for Cancelled {}
impl ItemAnswer for Moved {}

/// The answer to one item of a batch of gets: a [`Found`] with its message.
#[derive(Debug)]
pub(crate) struct FoundOut(pub(crate) Message);

impl Serialize for FoundOut {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Found { message: dwell_wire::Message::of(&self.0, true) }.serialize(serializer)
    }
}

impl ItemAnswer for FoundOut {}

/// Messages of a page that cannot be read, and why.
pub(crate) fn unread(unread: Vec<(MessageId, Error)>) -> Vec<RefusedOne> {
    unread.into_iter().map(|(id, error)| RefusedOne { id, error: (&error).into() }).collect()
}

/// A page of queues that a store has listed, and where the next page begins, if there is one.
pub(crate) fn queue_page(found: Vec<dwell_store::QueueStats>, is_more: bool) -> QueuePage {
    let next = found.last().filter(|_| is_more).map(|last| last.name.clone());
    let (mut queues, mut unread) = (Vec::with_capacity(found.len()), Vec::new());
    for mut stats in found {
        match stats.unread.take() {
            None => queues.push(stats.into()),
            Some(error) => unread.push(UnreadQueue { queue: stats.name, error: (&error).into() }),
        }
    }
    QueuePage { queues, unread, next }
}

/// The store's limits, and the server's: queues per take, the longest wait, bytes of JSON and of a line.
pub(crate) fn server_info(
    limits: &Limits,
    take_queues: usize,
    wait_ms: u64,
    json_bytes: usize,
    line_bytes: usize,
) -> ServerInfo {
    ServerInfo {
        version: env!("CARGO_PKG_VERSION").into(),
        limits: dwell_wire::Limits {
            body_bytes: limits.body_len,
            batch: limits.batch,
            leased: limits.leased,
            leased_per_queue: limits.leased_per_queue,
            waiting_per_queue: limits.waiting_per_queue,
            queues: limits.queues,
            idempotency_keys: limits.idempotency_keys,
            idempotency_keys_per_queue: limits.idempotency_keys_per_queue,
            take_queues,
            wait_ms,
            json_bytes,
            line_bytes,
        },
        defaults: (&limits.defaults).into(),
    }
}

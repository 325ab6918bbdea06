//! Reading messages.

use std::sync::Arc;

use dwell_model::{Cursor, Message, MessageId, Number, QueueName, StateKind};
use dwell_store::{Page, Result, Target};
use dwell_wire::{Found, Operation, Path, TargetFields};
use futures_util::StreamExt as _;

use crate::Client;
use crate::call::Call;
use crate::client::Inner;

/// The most messages in one page of a server.
pub(crate) const MAX_PAGE: usize = 1_000;
/// The most messages that are looked up by number concurrently.
const MAX_LOOKUPS: usize = 16;

impl Client {
    /// Reads a message by its number, in any queue, with one request, where [`locate`](dwell_store::Store::locate) and
    /// [`get`](dwell_store::Store::get) need two.
    ///
    /// # Errors
    /// As `get`.
    pub async fn get_number(&self, number: Number) -> Result<Message> {
        self.inner.reactor.enter(self.inner.get_number(number, true)).await
    }

    /// Returns one page of the messages in a state, at most `max` (1 to 1,000), without their bodies, for callers that
    /// read many of them. Each has the length of its body.
    ///
    /// # Errors
    /// As [`list`](dwell_store::Store::list).
    pub async fn list_without_bodies(
        &self,
        queue: &QueueName,
        state: StateKind,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<dwell_wire::Page<'static>> {
        self.inner.reactor.enter(self.inner.page(queue, state, after, max, false)).await
    }
}

impl Inner {
    pub(crate) async fn get(
        &self,
        queue: QueueName,
        targets: Vec<Target>,
        dead: bool,
    ) -> Vec<Result<Message>> {
        // Left out unless it is set, so that a server that does not know the parameter accepts the request.
        let with_dead = dead.then_some(true);
        let call =
            || Call::read(Path::of(Operation::GetMany, &[queue.as_str()]).query_some("dead", with_dead));
        let items: Vec<_> = targets.iter().map(TargetFields::from).collect();
        let found = self.send_all::<_, Found<'static>>(items, call).await;
        found.into_iter().map(|found| self.message(found?.message)).collect()
    }

    fn message(&self, message: dwell_wire::Message<'static>) -> Result<Message> {
        message.into_message().map_err(|reason| self.unreadable(true, &reason))
    }

    async fn get_number(&self, number: Number, with_body: bool) -> Result<Message> {
        let path = Path::of(Operation::GetNumber, &[&number.to_string()]).query("body", with_body);
        let message = self.send::<dwell_wire::Message<'static>>(Call::read(path)).await?;
        self.message(message)
    }

    pub(crate) async fn locate(
        self: &Arc<Inner>,
        numbers: Vec<Number>,
    ) -> Vec<Result<Option<(QueueName, MessageId)>>> {
        let one = |number| {
            let inner = Arc::clone(self);
            async move {
                match inner.get_number(number, false).await {
                    Ok(found) => Ok(Some((found.queue, found.id))),
                    Err(error) if error.code() == "message_not_found" => Ok(None),
                    Err(error) => Err(error),
                }
            }
        };
        futures_util::stream::iter(numbers.into_iter().map(one)).buffered(MAX_LOOKUPS).collect().await
    }

    pub(crate) async fn list(
        &self,
        queue: QueueName,
        state: StateKind,
        after: Option<Cursor>,
        max: usize,
    ) -> Result<Page> {
        let page = self.page(&queue, state, after, max, true).await?;
        page.into_page(&self.server).map_err(|reason| self.unreadable(true, &reason))
    }

    async fn page(
        &self,
        queue: &QueueName,
        state: StateKind,
        after: Option<Cursor>,
        max: usize,
        with_bodies: bool,
    ) -> Result<dwell_wire::Page<'static>> {
        let path = Path::of(Operation::List, &[queue.as_str()]);
        let path =
            path.query("state", state).query_some("cursor", after).query("max", max.clamp(1, MAX_PAGE));
        self.send(Call::read(path.query("body", with_bodies))).await
    }
}

//! What falls due: counted by the server, exactly, one script per partition.

use dwell_model::{QueueName, Timestamp};
use dwell_store::{Error, Forecast, Result};
use futures_util::future::try_join_all;
use futures_util::stream::{self, StreamExt as _};
use tokio::time::timeout;

use super::Inner;
use super::inspect::{NAMES, QUEUE, Retries, ScriptLimit, is_bare, late};
use super::layout::Partition;
use super::pack::{Fields, PackReply};
use super::partition::{NoAnswer, unreadable, with_partitions};
use super::script_call::locked;
use super::scripts::Script;

/// The maximum number of concurrent queues, or of scripts where all queues are asked. A script with the maximum
/// number of instants blocks its node for up to about a millisecond.
const SIDE_BY_SIDE: u32 = 16;

impl Inner {
    /// See [`Store::forecast`](dwell_store::Store::forecast).
    pub(super) async fn forecast(
        &self,
        queues: Option<Vec<QueueName>>,
        edges: &[Timestamp],
    ) -> Result<Forecast> {
        Forecast::check(edges)?;
        let Some(queues) = queues else { return self.forecast_all(edges).await };
        let mut sum = Forecast::none(edges.len());
        let of_one = |queue: QueueName| async move { self.forecast_of(&queue, edges, Retries::Usual).await };
        let counted = queues.into_iter().map(of_one);
        let mut counted = std::pin::pin!(stream::iter(counted).buffered(SIDE_BY_SIDE as usize));
        while let Some(counted) = counted.next().await {
            sum.add(&counted?);
        }
        Ok(sum)
    }

    /// All queues, by the directory. A queue that cannot be asked now, and one under whose keys foreign data lies, is
    /// left out.
    async fn forecast_all(&self, edges: &[Timestamp]) -> Result<Forecast> {
        let mut sum = Forecast::none(edges.len());
        let mut after: Option<String> = None;
        loop {
            let arguments = Fields::new().maybe("after", after.as_deref()).with("max", NAMES);
            let reply = self.wire.directory(Script::Names, arguments).await?;
            self.note_count(&reply);
            let names: Vec<&str> = reply.get("names").items().iter().filter_map(PackReply::text).collect();
            // A name that is not valid for a queue has nothing to count.
            let queues: Vec<_> = names.iter().filter_map(|name| QueueName::new(name).ok()).collect();
            // The queues of a node that does not answer delay the others for a moment only.
            let pace = ScriptLimit::of(SIDE_BY_SIDE);
            let of_one = |queue: QueueName| {
                let pace = &pace;
                async move {
                    // Its timeout starts with its turn.
                    let counted = async {
                        let counted = timeout(QUEUE, self.forecast_of(&queue, edges, Retries::Brief)).await;
                        counted.unwrap_or_else(|_| Err(late(queue.as_str())))
                    };
                    let counted = pace.with(self.partitions(&queue), counted).await;
                    (queue, counted)
                }
            };
            let counted = queues.into_iter().map(of_one);
            let mut counted = std::pin::pin!(stream::iter(counted).buffer_unordered(NAMES));
            while let Some((queue, counted)) = counted.next().await {
                match counted {
                    Ok(counted) => sum.add(&counted),
                    Err(Error::UnknownQueue { .. }) => drop(locked(&self.bare).insert(queue)),
                    Err(_) => {}
                }
            }
            let is_last = reply.get("names").items().len() < NAMES;
            match names.last() {
                Some(last) if !is_last => after = Some((*last).to_owned()),
                _ => return Ok(sum),
            }
        }
    }

    async fn forecast_of(
        &self,
        queue: &QueueName,
        edges: &[Timestamp],
        patience: Retries,
    ) -> Result<Forecast> {
        let counted = with_partitions!(self, queue, |partitions| self
            .forecast_over(queue, partitions, edges, patience)
            .await);
        let (sum, bare) = counted?;
        if bare && self.waiters.count(queue) == 0 {
            return Err(Error::UnknownQueue { queue: queue.clone() });
        }
        Ok(sum)
    }

    /// The sum over all partitions of a queue, and whether all are empty.
    async fn forecast_over(
        &self,
        queue: &QueueName,
        partitions: u16,
        edges: &[Timestamp],
        patience: Retries,
    ) -> std::result::Result<(Forecast, bool), NoAnswer> {
        let parts = Partition::all(queue, partitions);
        let pace = ScriptLimit::new();
        let asked = parts.iter().map(|at| {
            // The arguments are built when the turn has come: for a thousand partitions they are megabytes.
            let asked = async move {
                let instants: Vec<i64> = edges.iter().map(|edge| edge.as_ms()).collect();
                let arguments = Fields::new().with("edges", instants);
                self.on_within(at, partitions, Script::Forecast, arguments, patience).await
            };
            pace.with(1, asked)
        });
        let (mut sum, mut bare) = (Forecast::none(edges.len()), true);
        for answered in try_join_all(asked.collect::<Vec<_>>()).await? {
            sum.add(&read(&answered.reply, edges.len()).ok_or_else(|| unreadable(queue))?);
            bare &= is_bare(&answered.reply);
        }
        Ok((sum, bare))
    }
}

/// Reads the reply of `forecast.lua` for `edges` instants.
fn read(reply: &PackReply, edges: usize) -> Option<Forecast> {
    let due_by: Vec<u64> = reply.get("due").items().iter().map(PackReply::uint).collect::<Option<_>>()?;
    let scheduled = reply.get("scheduled").uint()?;
    (due_by.len() == edges).then_some(Forecast { scheduled, due_by, within: 0 })
}

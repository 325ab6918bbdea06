//! Takes: a wait is a long poll, and a wait longer than the server allows is several of them.

use dwell_model::{MessageId, QueueName, format_duration_ms};
use dwell_store::{Delivery, LeaseTerms, Result, Take};
use dwell_time::{Clock as _, SystemClock};
use dwell_wire::{Operation, Path};

use crate::call::Call;
use crate::client::Inner;
use crate::transport::Caller;

/// The most bytes of bodies that a server returns in one answer.
const MAX_BYTES: usize = 64 * 1024 * 1024;

impl Inner {
    pub(crate) async fn take(&self, take: &Take, caller: &mut impl Caller) -> Result<Vec<Delivery>> {
        let longest_ms = if take.wait_ms > 0 { self.info().await?.limits.wait_ms } else { 0 };
        // The server refuses a larger batch than its limit, and a take may return fewer messages than it requests.
        let max = if take.max > 1 { take.max.min(self.known_limits().await?.batch) } else { take.max };
        let clock = SystemClock::new();
        let end_ms = clock.now().mono_ms.saturating_add(take.wait_ms);
        loop {
            let began_ms = clock.now().mono_ms;
            let left_ms = end_ms.saturating_sub(began_ms).min(take.wait_ms);
            let wait_ms = left_ms.min(longest_ms);
            let deliveries = self.take_once(take, max, wait_ms, caller).await?;
            let waited_ms = clock.now().mono_ms - began_ms;
            // An empty answer well before the wait is over means that the server is shutting down.
            if !deliveries.is_empty() || left_ms <= longest_ms || waited_ms < wait_ms / 2 {
                return Ok(deliveries);
            }
        }
    }

    async fn take_once(
        &self,
        take: &Take,
        max: usize,
        wait_ms: u64,
        caller: &mut impl Caller,
    ) -> Result<Vec<Delivery>> {
        let mut path = match take.queues.as_slice() {
            [queue] => Path::of(Operation::Take, &[queue.as_str()]),
            _ => Path::of(Operation::TakeFrom, &[]),
        };
        if take.queues.len() != 1 {
            for queue in &take.queues {
                path = path.query("queue", queue);
            }
        }
        let path = path
            .query("max", max)
            .query("wait", format_duration_ms(wait_ms))
            .query_some("max_bytes", take.max_bytes.map(|bytes| bytes.min(MAX_BYTES)))
            .query_some("lease", take.lease_ms.map(format_duration_ms))
            .query_some("holder", take.holder.as_ref());
        let call = Call::change(path).wait_ms(wait_ms);
        let taken: dwell_wire::Taken<'static> = self.send_for(call, caller).await?;
        let deliveries = taken.messages.into_iter().map(dwell_wire::Delivery::into_delivery);
        deliveries.collect::<std::result::Result<_, _>>().map_err(|reason| self.no_value(reason))
    }

    pub(crate) async fn take_id(
        &self,
        queue: &QueueName,
        id: MessageId,
        terms: &LeaseTerms,
        caller: &mut impl Caller,
    ) -> Result<Vec<Delivery>> {
        let path = Path::of(Operation::TakeOne, &[queue.as_str(), &id.to_string()]);
        let path = path
            .query_some("lease", terms.lease_ms.map(format_duration_ms))
            .query_some("holder", terms.holder.as_ref());
        let call = Call::change(path);
        let taken: dwell_wire::Delivery<'static> = self.send_for(call, caller).await?;
        Ok(vec![taken.into_delivery().map_err(|reason| self.no_value(reason))?])
    }
}

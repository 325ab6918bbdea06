//! Taking due messages.

use dwell_model::{MessageId, QueueName, format_duration_ms};
use dwell_store::Take;
use dwell_time::{Clock as _, SystemClock};
use dwell_wire::{Operation, Path, Taken};

use crate::transport::Call;
use crate::{Client, Delivery, Result};

/// A server waits no longer in one request; a longer wait is made of several.
const MAX_WAIT_MS: u64 = 60_000;

impl Client {
    /// Takes due messages, and waits for the first one if asked to; for longer than a server does in one
    /// request, too. `take.bound` means nothing here: over HTTP no lease is bound to a process.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`](crate::Error::OutcomeUnknown) if the connection broke: messages may have
    /// been handed out, and come back when their lease runs out. The server's refusals.
    pub fn take(&self, take: &Take) -> Result<Vec<Delivery>> {
        let clock = SystemClock::new();
        let deadline_ms = clock.now().mono_ms.saturating_add(take.wait_ms);
        loop {
            let left_ms = deadline_ms.saturating_sub(clock.now().mono_ms);
            let asked_ms = left_ms.min(MAX_WAIT_MS);
            let started_ms = clock.now().mono_ms;
            let messages = self.take_once(take, asked_ms)?;
            let waited_ms = clock.now().mono_ms - started_ms;
            // An empty answer before its time is a server that shuts down.
            if !messages.is_empty() || left_ms <= MAX_WAIT_MS || waited_ms < asked_ms / 2 {
                return Ok(messages);
            }
        }
    }

    fn take_once(&self, take: &Take, wait_ms: u64) -> Result<Vec<Delivery>> {
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
            .query("max", take.max)
            .query("wait", format_duration_ms(wait_ms))
            .query_some("max_bytes", take.max_bytes)
            .query_some("lease", take.lease_ms.map(format_duration_ms));
        let answer: Taken<'static> = self.send(&Call::change(path).wait_ms(wait_ms))?;
        Ok(answer.messages)
    }

    /// Takes this very message, be it scheduled, ready or dead; also from a paused queue.
    ///
    /// # Errors
    /// As [`Client::take`]; the server's refusals, such as `message_not_found` and `leased`.
    pub fn take_id(&self, queue: &QueueName, id: MessageId, lease_ms: Option<u64>) -> Result<Delivery> {
        let path = Path::of(Operation::TakeOne, &[queue.as_str(), &id.to_string()]);
        self.send(&Call::change(path.query_some("lease", lease_ms.map(format_duration_ms))))
    }
}

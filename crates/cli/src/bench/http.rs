//! A server over HTTP.

use dwell_model::{QueueName, Receipt, Setting, SettingChange};
use dwell_store::{Action, Error, Put, Settle, Take};

use super::peer::{ItemAnswer, Peer, PeerConnection, TakeAnswer, TakenMessage, sent_us};
use crate::access::Server;
use crate::command::Context;
use crate::exit::Failure;

/// The wait of a take, and so the delay until an interruption is noticed.
const WAIT_MS: u64 = 500;

/// Messages are acked at once, so their leases may be short, in case this process is killed.
const LEASE_MS: u64 = 60_000;

/// How long the server remembers the idempotency keys of puts, which would otherwise stay in its memory for long after
/// a bench.
const TOKEN_MS: u64 = 10_000;

pub(super) struct Http<'a> {
    context: &'a Context,
    queue: QueueName,
}

impl<'a> Http<'a> {
    pub(super) fn new(context: &'a Context, queue: QueueName) -> Http<'a> {
        Http { context, queue }
    }

    /// The number of messages in the queue; 0 if there is no such queue.
    fn count(&self, client: &Server) -> Result<u64, Failure> {
        match client.stats(self.queue.clone()) {
            Ok(queue) => {
                let counts = queue.counts;
                Ok(counts.scheduled + counts.ready + counts.leased + counts.dead)
            }
            Err(Error::UnknownQueue { .. }) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }
}

impl Peer for Http<'_> {
    type Wire = HttpWire;

    fn protocol(&self) -> &'static str {
        "http"
    }

    fn address(&self) -> &str {
        &self.context.server
    }

    fn queue(&self) -> &QueueName {
        &self.queue
    }

    fn claim(&self) -> Result<(), Failure> {
        let client = self.context.client()?;
        match client.stats(self.queue.clone()) {
            Err(Error::UnknownQueue { .. }) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => {
                let queue = &self.queue;
                return Err(Failure::usage(format!(
                    "the queue '{queue}' is there already; name one that is not, or none"
                )));
            }
        }
        // A caller without the right to do this may not clean up either: then nothing is put.
        client.configure(self.queue.clone(), vec![SettingChange::Set(Setting::IdempotencyMs(TOKEN_MS))])?;
        Ok(())
    }

    fn connect(&self) -> Result<HttpWire, Failure> {
        // Each client has its own connections.
        Ok(HttpWire { client: self.context.client()?, queue: self.queue.clone() })
    }

    fn clean(&self) -> Result<(u64, u64), Failure> {
        let client = self.context.client()?;
        let removed = client.delete_queue(self.queue.clone())?;
        Ok((removed, self.count(&client)?))
    }
}

pub(super) struct HttpWire {
    client: Server,
    queue: QueueName,
}

/// A transient error is the item's; any other ends the bench.
fn refused(error: Error) -> Result<String, Failure> {
    match error {
        error @ (Error::Unreachable { .. } | Error::OutcomeUnknown { .. }) => Err(error.into()),
        error if error.is_retryable() || error == Error::LeaseLost => Ok(error.code().to_owned()),
        error => Err(error.into()),
    }
}

fn answers<T>(answers: Vec<Result<T, Error>>) -> Result<Vec<ItemAnswer>, Failure> {
    let answer = |answer: Result<T, Error>| match answer {
        Ok(_) => Ok(Ok(())),
        Err(error) => refused(error).map(Err),
    };
    answers.into_iter().map(answer).collect()
}

impl PeerConnection for HttpWire {
    type Held = Receipt;

    fn put(&mut self, bodies: Vec<Vec<u8>>, delay_ms: u64) -> Result<Vec<ItemAnswer>, Failure> {
        let put = |body| {
            let put = Put::new(self.queue.clone(), body);
            if delay_ms == 0 { put } else { put.after_ms(delay_ms) }
        };
        let puts: Vec<Put> = bodies.into_iter().map(put).collect();
        answers(self.client.put(puts))
    }

    fn take(&mut self, max: usize) -> Result<TakeAnswer<Receipt>, Failure> {
        let take =
            Take { lease_ms: Some(LEASE_MS), ..Take::from(self.queue.clone()).max(max).wait_ms(WAIT_MS) };
        match self.client.take(take) {
            Ok(deliveries) => {
                let taken = deliveries.into_iter().map(|delivery| TakenMessage {
                    sent_us: sent_us(&delivery.message.body),
                    held: delivery.receipt,
                });
                Ok(Ok(taken.collect()))
            }
            Err(error) => refused(error).map(Err),
        }
    }

    fn ack(&mut self, held: Vec<Receipt>) -> Result<Vec<ItemAnswer>, Failure> {
        let settles: Vec<Settle> =
            held.into_iter().map(|receipt| Settle { receipt, action: Action::Ack }).collect();
        answers(self.client.settle(settles))
    }
}

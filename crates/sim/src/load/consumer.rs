//! A consumer: takes due messages of its queues and acks them, across kills.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dwell_client::Client;
use dwell_model::{QueueName, Receipt};
use dwell_store::{Action, Delivery, Error, Settle, Take};
use dwell_time::{Clock as _, SystemClock};

use super::LEASE_MS;
use super::ledger::{LoadLedger, SeenMessage, TakenMessage};
use crate::jsonl::{QUEUES, queue_name};
use crate::server::{ClientGate, Pass};

/// The most messages in one take.
const MAX: usize = 500;

/// A consumer; see the [module](self).
pub(super) struct Consumer<'a> {
    number: u32,
    queues: Vec<QueueName>,
    gate: &'a ClientGate,
    ledger: &'a Mutex<LoadLedger>,
    clock: &'a SystemClock,
}

/// The lines that a consumer holds, with their receipts.
type HeldDelivery = Vec<(u64, Receipt)>;

impl<'a> Consumer<'a> {
    /// Makes the consumer of every `of`th queue.
    pub(super) fn new(
        number: u32,
        of: u32,
        gate: &'a ClientGate,
        ledger: &'a Mutex<LoadLedger>,
        clock: &'a SystemClock,
    ) -> Consumer<'a> {
        let name = |queue| queue_name(queue).parse().expect("our queues have valid names");
        let queues = (0..QUEUES).filter(|queue| queue % of == number).map(name).collect();
        Consumer { number, queues, gate, ledger, clock }
    }

    /// Takes and acks until the run is over.
    pub(super) fn run(self) {
        let mut held = HeldDelivery::new();
        loop {
            let client = match self.gate.server() {
                Some(client) => client,
                None => match self.gate.park() {
                    Pass::Server(client) => client,
                    Pass::Over => break,
                },
            };
            let served =
                if held.is_empty() { self.take(&client, &mut held) } else { self.ack(&client, &mut held) };
            if served.is_err() {
                self.gate.await_killed();
            }
        }
        self.gate.leave();
    }

    /// Takes due messages. Returns an error if the server is gone.
    fn take(&self, client: &Client, held: &mut HeldDelivery) -> Result<(), ()> {
        let begun_ms = self.clock.now().mono_ms;
        let take = Take::from_all(self.queues.clone()).max(MAX).wait_ms(200).lease_ms(LEASE_MS);
        match client.blocking().take(take) {
            Ok(deliveries) => {
                let mut ledger = self.ledger();
                if deliveries.len() < MAX / 2 {
                    ledger.caught_up(self.number, begun_ms);
                }
                note(&mut ledger, &deliveries, begun_ms, held);
                Ok(())
            }
            Err(error) if is_gone(&error) => {
                self.ledger().lost_take(self.queues.iter().map(QueueName::as_str));
                Err(())
            }
            Err(error) => {
                self.ledger().accuse(format!("a take was refused: {error}"));
                Err(())
            }
        }
    }

    /// Acks what is held. Returns an error if the server is gone; the same receipts are then retried with the next server.
    fn ack(&self, client: &Client, held: &mut HeldDelivery) -> Result<(), ()> {
        let settles: Vec<Settle> = held
            .iter()
            .map(|(_, receipt)| Settle { receipt: receipt.clone(), action: Action::Ack })
            .collect();
        let answers = client.blocking().settle(settles);
        let mut ledger = self.ledger();
        let mut again = HeldDelivery::new();
        for ((line, receipt), answer) in held.drain(..).zip(answers) {
            match answer {
                Ok(_) => ledger.acked(line),
                Err(Error::LeaseLost) => ledger.ack_lost(line, self.clock.now().wall),
                Err(error) if is_gone(&error) => {
                    ledger.ack_unknown(line);
                    again.push((line, receipt));
                }
                Err(error) => ledger.accuse(format!("the ack of line {line} was refused: {error}")),
            }
        }
        *held = again;
        if held.is_empty() { Ok(()) } else { Err(()) }
    }

    fn ledger(&self) -> MutexGuard<'_, LoadLedger> {
        // A thread that panicked fails the run anyway.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records the deliveries of a take.
fn note(ledger: &mut LoadLedger, deliveries: &[Delivery], begun_ms: u64, held: &mut HeldDelivery) {
    let mut by_queue: BTreeMap<&str, Vec<&Delivery>> = BTreeMap::new();
    for delivery in deliveries {
        by_queue.entry(delivery.message.queue.as_str()).or_default().push(delivery);
    }
    for (queue, deliveries) in by_queue {
        let place =
            |delivery: &&Delivery| (delivery.message.standing.due.as_ms(), delivery.message.id.as_bits());
        if !deliveries.is_sorted_by_key(place) {
            ledger.accuse(format!("one take of {queue} brought messages out of order"));
        }
        let mut last = None;
        for delivery in &deliveries {
            let message = &delivery.message;
            let seen = SeenMessage {
                id: message.id.as_bits(),
                queue,
                key: message.key.as_ref().map(|key| key.as_str()),
                body: &message.body,
                due: message.standing.due,
                created: message.created,
                attempt: message.standing.attempt(),
            };
            let Delivery { taken_at, lease_until, .. } = **delivery;
            let taken = TakenMessage { begun_ms, taken_at, lease_until };
            if let Some(line) = ledger.delivered(&seen, taken) {
                held.push((line, delivery.receipt.clone()));
            }
            last = Some(taken);
        }
        if let Some(taken) = last {
            ledger.took(queue, taken, deliveries.iter().map(place));
        }
    }
}

/// Whether the server went away during or before a request.
fn is_gone(error: &Error) -> bool {
    matches!(error, Error::OutcomeUnknown { .. } | Error::Unreachable { .. })
}

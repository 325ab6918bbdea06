//! The end of a lease: by its consumer, or because its caller has disconnected.

use dwell_model::{Command, Limits, MessageId, Now, Receipt, Refusal, Timestamp, is_acked};

use super::placement::check_lease;
use super::take::PREFETCHED;
use super::{Core, Durability, Log, StoredBody};
use crate::{Action, Error, Result, Settle, Settled};

impl<B: StoredBody> Core<B> {
    /// See [`Store::settle`](crate::Store::settle).
    pub fn settle(&mut self, settles: Vec<Settle>, now: Now, log: &mut impl Log<B>) -> Vec<Result<Settled>> {
        self.begin(now, log);
        let receipts: Vec<MessageId> = settles.iter().map(|settle| settle.receipt.id).collect();
        let mut rest = receipts.as_slice();
        let mut fetched = 0;
        self.each(settles, |core, settle| {
            if fetched == 0 {
                let (next, others) = rest.split_at(rest.len().min(PREFETCHED));
                core.fetch_held(next);
                (rest, fetched) = (others, next.len());
            }
            fetched -= 1;
            core.settle_one(settle, now, log)
        })
    }

    /// Prefetches the messages to be settled, as [`hand_out`](Core::hand_out) does: since they were handed
    /// out, a thousand others may have passed through the processor's cache.
    fn fetch_held(&self, ids: &[MessageId]) {
        let mut slots = [0; PREFETCHED];
        let found = ids.iter().filter_map(|id| {
            let number = self.numbering.number(*id)?;
            self.by_number.find(number, |slot| self.entries.get(slot).number == number)
        });
        let count = slots.iter_mut().zip(found).map(|(into, slot)| *into = slot).count();
        self.fetch_entries(&slots[..count]);
        let leases = slots[..count].iter().filter_map(|slot| self.lease_of(*slot));
        std::hint::black_box(leases.fold(0, |met, lease| met ^ lease.token.0 as u32));
    }

    fn settle_one(&mut self, settle: Settle, now: Now, log: &mut impl Log<B>) -> Result<Settled> {
        let Settle { receipt, action } = settle;
        check(&action)?;
        let slot = self.held(&receipt, now, log).ok_or(Error::LeaseLost)?;
        let queue = self.entries.get(slot).queue;
        if action == Action::Ack {
            let lease = self.lease_of(slot).expect("the message is held");
            if !is_acked(&lease, receipt.token, now) {
                return Err(Error::LeaseLost);
            }
            self.drop_message(slot, log);
            self.queues.remove_if_bare(queue);
            return Ok(Settled::Gone);
        }
        let durability = match action {
            Action::Extend { .. } => Durability::Written,
            _ => Durability::Synced,
        };
        let after_ms = match action {
            Action::Retry { after_ms, .. } | Action::Release { after_ms, .. } => after_ms,
            _ => None,
        };
        let command = self.command(slot, &receipt, action);
        let state = self.change(slot, &command, now, durability, log).map_err(|refusal| match refusal {
            Refusal::DueOutOfRange => out_of_range(now.wall, after_ms),
            _ => Error::LeaseLost,
        })?;
        Ok(self.settled(slot, queue, state, now, log))
    }

    fn command(&mut self, slot: u32, receipt: &Receipt, action: Action) -> Command {
        let token = receipt.token;
        match action {
            Action::Ack => Command::Ack(token),
            Action::Retry { after_ms, error, priority } => {
                let after_ms = after_ms.unwrap_or_else(|| {
                    let random = self.random.next_u32();
                    let entry = self.entries.get(slot);
                    let attempt = entry.attempts.saturating_add(1);
                    self.settings(entry.queue).backoff.delay_ms(attempt, random)
                });
                Command::Retry { token, after_ms, priority, error }
            }
            Action::Release { after_ms, priority } => Command::Release { token, after_ms, priority },
            Action::Bury { reason, priority } => Command::Bury { token, priority, reason },
            Action::Extend { lease_ms } => {
                let old = self.lease_of(slot).expect("the message is held").lease_ms;
                Command::Extend { token, lease_ms: lease_ms.unwrap_or(old) }
            }
        }
    }

    /// Gives messages back without spending an attempt, since their caller has disconnected. Stale receipts are
    /// skipped. No caller waits for an answer.
    pub fn give_back(&mut self, receipts: &[Receipt], now: Now, log: &mut impl Log<B>) {
        self.begin(now, log);
        for receipt in receipts {
            if let Some(slot) = self.held(receipt, now, log) {
                let queue = self.entries.get(slot).queue;
                let state =
                    self.change(slot, &Command::GiveBack(receipt.token), now, Durability::Written, log);
                let state = state.expect("the lease is in force");
                self.trim_changed(slot, state, now, log);
                self.queues.remove_if_bare(queue);
            }
        }
    }

    /// The message whose current lease the receipt proves.
    fn held(&mut self, receipt: &Receipt, now: Now, log: &mut impl Log<B>) -> Option<u32> {
        let queue = self.touched(&receipt.queue, now, log)?;
        // Leased messages are resident.
        let slot = self.resident_id(queue, receipt.id)?;
        self.lease_of(slot).is_some_and(|lease| lease.token == receipt.token).then_some(slot)
    }
}

fn check(action: &Action) -> Result<()> {
    match action {
        Action::Retry { error: Some(text), .. } | Action::Bury { reason: Some(text), .. } => {
            Ok(Limits::check_error_text(text)?)
        }
        Action::Extend { lease_ms } => check_lease(*lease_ms),
        _ => Ok(()),
    }
}

fn out_of_range(wall: Timestamp, after_ms: Option<u64>) -> Error {
    let refusal = wall.after(after_ms.unwrap_or(u64::MAX)).expect_err("the state machine refused it");
    refusal.into()
}

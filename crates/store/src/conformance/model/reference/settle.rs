//! Settle, and the end of a lease.

use dwell_model::{Command, Limits, QueueName, Refusal, State};

use super::{Reference, check_lease};
use crate::{Action, Error, LeaseRef, Result, Settle, Settled};

impl Reference {
    pub(in super::super) fn settle(&mut self, settle: &Settle) -> Result<Settled> {
        let Settle { receipt, action } = settle;
        match action {
            Action::Retry { error: Some(text), .. } | Action::Bury { reason: Some(text), .. } => {
                Limits::check_error_text(text)?;
            }
            Action::Extend { lease_ms } => check_lease(*lease_ms)?,
            _ => {}
        }
        let index = self.find_id(&receipt.queue, receipt.id).ok_or(Error::LeaseLost)?;
        let State::Leased(lease) = self.kept[index].message.standing.state else {
            return Err(Error::LeaseLost);
        };
        if lease.token != receipt.token {
            return Err(Error::LeaseLost);
        }
        let token = receipt.token;
        let attempt = self.kept[index].message.standing.attempt();
        let backoff = self.settings(&receipt.queue).backoff;
        let (command, delay_ms) = match action.clone() {
            Action::Ack => (Command::Ack(token), None),
            Action::Retry { after_ms, error, priority } => {
                let after_ms = after_ms.unwrap_or_else(|| backoff.delay_ms(attempt, 0));
                (Command::Retry { token, after_ms, priority, error }, Some(after_ms))
            }
            Action::Release { after_ms, priority } => {
                (Command::Release { token, after_ms, priority }, after_ms)
            }
            Action::Bury { reason, priority } => (Command::Bury { token, priority, reason }, None),
            Action::Extend { lease_ms } => {
                (Command::Extend { token, lease_ms: lease_ms.unwrap_or(lease.lease_ms) }, None)
            }
        };
        match self.change(index, &command) {
            Ok(false) => return Ok(Settled::Gone),
            Ok(true) => {}
            Err(Refusal::DueOutOfRange) => {
                self.now.wall.after(delay_ms.expect("only a delay leaves the range"))?;
            }
            Err(_) => return Err(Error::LeaseLost),
        }
        Ok(self.settled(index))
    }

    pub(in super::super) fn expire_lease(&mut self, queue: &QueueName, lease: LeaseRef) -> Result<Settled> {
        let LeaseRef { id, takes } = lease;
        let index = self.find_id(queue, id).ok_or_else(|| Error::MessageNotFound { queue: queue.clone() })?;
        let takes_now = self.kept[index].message.standing.counts.takes;
        match self.change(index, &Command::ExpireLease { takes }) {
            Ok(true) => Ok(self.settled(index)),
            Ok(false) => Ok(Settled::Gone),
            Err(Refusal::LeaseChanged) => Err(Error::LeaseChanged { id, takes: takes_now }),
            Err(_) => Err(Error::NotLeased { id }),
        }
    }

    /// The new state of a message that was just changed.
    fn settled(&mut self, index: usize) -> Settled {
        self.note_ready(index);
        let standing = &self.kept[index].message.standing;
        let settled = match standing.state {
            State::Scheduled => Settled::Scheduled(standing.due),
            State::Ready => Settled::Ready,
            State::Leased(lease) => Settled::Leased(lease.deadline),
            State::Dead(death) => Settled::Dead(death.reason),
        };
        self.retain();
        settled
    }
}

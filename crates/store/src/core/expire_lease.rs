//! Leases that an operator ends.

use dwell_model::{Command, Now, QueueName, Refusal, State};

use super::{Core, Durability, Log, StoredBody};
use crate::{Error, LeaseRef, Result, Settled};

impl<B: StoredBody> Core<B> {
    /// See [`Store::expire_lease`](crate::Store::expire_lease).
    pub fn expire_lease(
        &mut self,
        name: &QueueName,
        leases: Vec<LeaseRef>,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Vec<Result<Settled>> {
        self.begin(now, log);
        self.each(leases, |core, lease| core.expire_one(name, lease, now, log))
    }

    fn expire_one(
        &mut self,
        name: &QueueName,
        lease: LeaseRef,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Result<Settled> {
        let LeaseRef { id, takes } = lease;
        let not_found = || Error::MessageNotFound { queue: name.clone() };
        let queue = self.touched(name, now, log).ok_or_else(not_found)?;
        let slot = self.find_id(queue, id, now, log)?.ok_or_else(not_found)?;
        let command = Command::ExpireLease { takes };
        let state =
            self.change(slot, &command, now, Durability::Synced, log).map_err(|refusal| match refusal {
                Refusal::LeaseChanged => Error::LeaseChanged { id, takes: self.entries.get(slot).takes },
                Refusal::NotLeased => Error::NotLeased { id },
                other => unreachable!("no answer to the end of a lease: {other:?}"),
            })?;
        Ok(self.settled(slot, queue, state, now, log))
    }

    /// The new `state` of a changed message, in the terms of a settlement. Its queue is then trimmed to its
    /// limit of dead messages, and so the message may have been removed.
    pub(super) fn settled(
        &mut self,
        slot: u32,
        queue: u32,
        state: Option<State>,
        now: Now,
        log: &mut impl Log<B>,
    ) -> Settled {
        let Some(state) = state else {
            self.queues.remove_if_bare(queue);
            return Settled::Gone;
        };
        self.note_ready(slot, now.wall);
        let settled = match state {
            State::Scheduled => Settled::Scheduled(self.entries.get(slot).due),
            State::Ready => Settled::Ready,
            State::Leased(lease) => Settled::Leased(lease.deadline),
            State::Dead(death) => Settled::Dead(death.reason),
        };
        self.trim_changed(slot, Some(state), now, log);
        self.queues.remove_if_bare(queue);
        settled
    }
}

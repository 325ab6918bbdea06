//! Take, by order and by id.

use dwell_model::{Command, Grant, LeaseToken, MessageId, QueueName, Receipt, State, StateKind, Timestamp};

use super::{Reference, check_lease};
use crate::{Delivery, Error, LeaseTerms, Result, Take};

impl Reference {
    /// Hands out ready messages; the tokens of the leases are those of the store's answer.
    pub(in super::super) fn take(&mut self, take: &Take, answer: &[Delivery]) -> Result<Vec<Delivery>> {
        check_lease(take.lease_ms)?;
        let runs = |queue: &QueueName| {
            take.queues.contains(queue) && !self.settings(queue).pause.is_paused_at(self.now.wall)
        };
        let mut heads: Vec<_> = self
            .kept
            .iter()
            .filter(|kept| kept.kind() == StateKind::Ready && runs(&kept.message.queue))
            .map(|kept| (kept.message.standing.priority, kept.message.standing.due, kept.message.id))
            .collect();
        heads.sort();
        let (mut deliveries, mut refusal): (Vec<Delivery>, _) = (Vec::new(), None);
        let mut bytes = 0;
        for (_, _, id) in heads {
            if deliveries.len() == take.max {
                break;
            }
            let index = self.index_of(id);
            if self.is_at_max_leased(&self.kept[index].message.queue, id) {
                continue;
            }
            if let Err(error) = self.check_leased_of(&self.kept[index].message.queue, id) {
                refusal = Some(error);
                continue;
            }
            bytes += self.kept[index].message.body.len();
            if !deliveries.is_empty() && take.max_bytes.is_some_and(|most| bytes > most) {
                break;
            }
            if let Err(error) = self.check_leased() {
                refusal = Some(error);
                break;
            }
            let token = answer.get(deliveries.len()).map(|delivery| delivery.receipt.token);
            let lease_ms = self.lease_ms(index, take.lease_ms);
            let terms =
                LeaseTerms { lease_ms: Some(lease_ms), session: take.session, holder: take.holder.clone() };
            deliveries.push(self.deliver(index, Command::Take, token, terms));
        }
        match refusal {
            Some(refusal) if deliveries.is_empty() && take.wait_ms == 0 => Err(refusal),
            _ => Ok(deliveries),
        }
    }

    /// Whether a message can be handed out to a take.
    pub(in super::super) fn has_answer(&self, take: &Take) -> bool {
        let is_due = |kept: &super::ModelMessage| {
            let queue = &kept.message.queue;
            kept.kind() == StateKind::Ready
                && take.queues.contains(queue)
                && !self.settings(queue).pause.is_paused_at(self.now.wall)
                && !self.is_at_max_leased(queue, kept.message.id)
                && self.check_leased_of(queue, kept.message.id).is_ok()
        };
        self.check_leased().is_ok() && self.kept.iter().any(is_due)
    }

    /// Why a take may not wait on its queues, if it may not.
    pub(in super::super) fn check_waits(&self, take: &Take) -> Result<()> {
        let mut names: Vec<_> = take.queues.iter().filter(|queue| !self.is_known(queue)).collect();
        names.sort();
        names.dedup();
        let limit = self.limits.queues;
        if !names.is_empty() && self.queue_names().len() + names.len() > limit {
            return Err(Error::TooManyQueues { limit });
        }
        Ok(())
    }

    pub(in super::super) fn take_id(
        &mut self,
        queue: &QueueName,
        id: MessageId,
        terms: &LeaseTerms,
        answer: Option<&Delivery>,
    ) -> Result<Delivery> {
        check_lease(terms.lease_ms)?;
        let not_found = || Error::MessageNotFound { queue: queue.clone() };
        let index = self.find_id(queue, id).ok_or_else(not_found)?;
        match self.kept[index].kind() {
            StateKind::Leased => return Err(Error::Leased { id }),
            StateKind::Dead => self.check_key(index)?,
            StateKind::Scheduled | StateKind::Ready => {}
        }
        if self.is_at_max_leased(queue, id) {
            let limit = self.settings(queue).max_leased.expect("it is at it") as usize;
            return Err(Error::TooManyLeased { limit });
        }
        self.check_leased()?;
        self.check_leased_of(queue, id)?;
        let token = answer.map(|delivery| delivery.receipt.token);
        let lease_ms = Some(self.lease_ms(index, terms.lease_ms));
        Ok(self.deliver(index, Command::TakeById, token, LeaseTerms { lease_ms, ..terms.clone() }))
    }

    /// Gives back deliveries that no caller received.
    pub(in super::super) fn give_back(&mut self, deliveries: &[Delivery]) {
        for delivery in deliveries {
            let index = self.index_of(delivery.message.id);
            let token = self.lease_token(index).expect("it has just been taken");
            self.change(index, &Command::GiveBack(token)).expect("it has just been taken");
        }
        self.retain();
    }

    /// The current receipts.
    pub(in super::super) fn receipts(&self) -> Vec<Receipt> {
        let receipt = |index: usize| {
            let message = &self.kept[index].message;
            Some(Receipt { queue: message.queue.clone(), id: message.id, token: self.lease_token(index)? })
        };
        (0..self.kept.len()).filter_map(receipt).collect()
    }

    fn deliver(
        &mut self,
        index: usize,
        command: fn(Grant) -> Command,
        token: Option<LeaseToken>,
        terms: LeaseTerms,
    ) -> Delivery {
        let LeaseTerms { lease_ms, session, holder } = terms;
        let lease_ms = lease_ms.expect("it was found out before");
        if let Some(token) = token.filter(|token| !self.leases.insert(*token)) {
            self.complaints.push(format!("lease token {token:?} was issued before"));
        }
        let token = token.unwrap_or(LeaseToken(0));
        self.change(index, &command(Grant { token, lease_ms, session, holder })).expect("it can be taken");
        let taken_at = self.now.wall;
        let message = self.shown(index);
        let since = message.standing.due.max(message.created).max(self.kept[index].made_ready);
        Delivery {
            receipt: Receipt { queue: message.queue.clone(), id: message.id, token },
            lease_until: self.now.wall.saturating_after(lease_ms),
            taken_at,
            lateness_ms: taken_at.ms_since(since),
            message,
        }
    }

    /// Whether a store has to report the same lateness as the reference.
    pub(in super::super) fn knows_lateness(&self, id: MessageId) -> bool {
        self.kept.iter().any(|kept| kept.message.id == id && kept.exact)
    }

    fn check_leased(&self) -> Result<()> {
        let limit = self.limits.leased;
        let leased = self.kept.iter().filter(|kept| kept.kind() == StateKind::Leased).count();
        if leased < limit { Ok(()) } else { Err(Error::TooManyLeased { limit }) }
    }

    /// Whether the partition of this message has as many leases as its queue's own setting allows there: it
    /// behaves as if paused.
    fn is_at_max_leased(&self, queue: &QueueName, id: MessageId) -> bool {
        let places = u64::from(self.places_of(queue));
        let share = self.settings(queue).max_leased.map(|most| most.div_ceil(places));
        share.is_some_and(|most| self.leased_beside(queue, id) as u64 >= most)
    }

    /// The number of leased messages in the partition of this one.
    fn leased_beside(&self, queue: &QueueName, id: MessageId) -> usize {
        let place = self.place_of(queue, id);
        let is_leased = |kept: &&super::ModelMessage| {
            let message = &kept.message;
            message.queue == *queue
                && kept.kind() == StateKind::Leased
                && self.place_of(queue, message.id) == place
        };
        self.kept.iter().filter(is_leased).count()
    }

    fn check_leased_of(&self, queue: &QueueName, id: MessageId) -> Result<()> {
        let limit = self.limits.leased_per_queue;
        let share = limit.div_ceil(usize::from(self.places_of(queue)));
        if self.leased_beside(queue, id) < share { Ok(()) } else { Err(Error::TooManyLeased { limit }) }
    }

    /// The take's lease, else the message's, else the queue's.
    fn lease_ms(&self, index: usize, asked: Option<u64>) -> u64 {
        let message = &self.kept[index].message;
        asked.or(message.lease_ms).unwrap_or_else(|| self.settings(&message.queue).lease_ms)
    }

    pub(super) fn index_of(&self, id: MessageId) -> usize {
        self.kept.iter().position(|kept| kept.message.id == id).expect("it was found a moment ago")
    }

    pub(super) fn lease_token(&self, index: usize) -> Option<LeaseToken> {
        match self.kept[index].message.standing.state {
            State::Leased(lease) => Some(lease.token),
            _ => None,
        }
    }

    pub(in super::super) fn wall(&self) -> Timestamp {
        self.now.wall
    }
}

//! Changes to messages: settle leased ones, cancel and reschedule those that are not leased, revive and discard dead ones.

use dwell_model::{MessageId, QueueName};
use dwell_store::{
    BulkOutcome, Cancelled, Error, LeaseRef, Rescheduled, Result, Selection, Settle, Settled, Target, When,
};
use dwell_wire::{
    LeaseItem, Moved, Operation, Path, RescheduleItem, ReviveFields, SelectFields, SettleItem, TargetFields,
};

use crate::call::Call;
use crate::client::Inner;

impl Inner {
    pub(crate) async fn settle(&self, settles: Vec<Settle>) -> Vec<Result<Settled>> {
        let call = || Call::change(Path::of(Operation::SettleMany, &[]));
        let items: Vec<_> = settles.iter().map(SettleItem::from).collect();
        let answers = self.send_all::<_, dwell_wire::Settled>(items, call).await;
        answers.into_iter().map(|answer| answer.map(Settled::from)).collect()
    }

    pub(crate) async fn expire_lease(&self, queue: QueueName, leases: Vec<LeaseRef>) -> Vec<Result<Settled>> {
        let call = || Call::change(Path::of(Operation::ExpireLeases, &[queue.as_str()]));
        let items: Vec<_> = leases.iter().map(LeaseItem::from).collect();
        let answers = self.send_all::<_, dwell_wire::Settled>(items, call).await;
        answers.into_iter().map(|answer| answer.map(Settled::from)).collect()
    }

    pub(crate) async fn cancel(&self, queue: QueueName, targets: Vec<Target>) -> Vec<Result<Cancelled>> {
        let call = || Call::change(Path::of(Operation::CancelMany, &[queue.as_str()]));
        let items: Vec<_> = targets.iter().map(TargetFields::from).collect();
        let answers = self.send_all::<_, dwell_wire::Cancelled>(items, call).await;
        let found = |answer: Result<dwell_wire::Cancelled>| match answer {
            Ok(cancelled) => Ok(Cancelled::Cancelled(cancelled.id)),
            Err(error) => Ok(match Absent::of(error)? {
                Absent::Leased(id) => Cancelled::Leased(id),
                Absent::Dead(id) => Cancelled::Dead(id),
                Absent::NotFound => Cancelled::NotFound,
            }),
        };
        answers.into_iter().map(found).collect()
    }

    pub(crate) async fn reschedule(
        &self,
        queue: QueueName,
        moves: Vec<(Target, When)>,
    ) -> Vec<Result<Rescheduled>> {
        let call = || Call::change(Path::of(Operation::RescheduleMany, &[queue.as_str()]));
        let items: Vec<_> = moves.iter().map(RescheduleItem::from).collect();
        let answers = self.send_all::<_, Moved>(items, call).await;
        let found = |answer: Result<Moved>| match answer {
            Ok(moved) => Ok(Rescheduled::Moved(moved.id, moved.due)),
            Err(error) => Ok(match Absent::of(error)? {
                Absent::Leased(id) => Rescheduled::Leased(id),
                Absent::Dead(id) => Rescheduled::Dead(id),
                Absent::NotFound => Rescheduled::NotFound,
            }),
        };
        answers.into_iter().map(found).collect()
    }

    pub(crate) async fn revive(&self, queue: QueueName, which: Selection, when: When) -> Result<BulkOutcome> {
        let call = Call::change(Path::of(Operation::ReviveMany, &[queue.as_str()]));
        let swept = self.send::<dwell_wire::Swept>(call.json(&ReviveFields::new(&which, when))).await?;
        Ok(swept.into_swept(&self.server))
    }

    pub(crate) async fn discard(&self, queue: QueueName, which: Selection) -> Result<BulkOutcome> {
        let call = Call::change(Path::of(Operation::DiscardMany, &[queue.as_str()]));
        let swept = self.send::<dwell_wire::Swept>(call.json(&SelectFields::from(&which))).await?;
        Ok(swept.into_swept(&self.server))
    }
}

/// Why a cancel or reschedule changed nothing: HTTP reports these as errors, and a store as outcomes.
enum Absent {
    Leased(MessageId),
    Dead(MessageId),
    NotFound,
}

impl Absent {
    /// # Errors
    /// Any other refusal.
    fn of(error: Error) -> Result<Absent> {
        match error {
            Error::Leased { id } => Ok(Absent::Leased(id)),
            Error::Dead { id } => Ok(Absent::Dead(id)),
            Error::MessageNotFound { .. } => Ok(Absent::NotFound),
            error => Err(error),
        }
    }
}

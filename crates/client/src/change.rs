//! Changes to messages: settle those that are held, cancel and reschedule those that nobody holds, revive and discard dead ones.

use dwell_model::{MessageId, QueueName, Timestamp};
use dwell_store::{Cancelled, Error, Rescheduled, Result, Selection, Settle, Settled, Swept, Target, When};
use dwell_wire::{
    Moved, Operation, Path, RescheduleItem, ReviveFields, SelectFields, SettleItem, TargetFields,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::call::{CHUNK_ITEMS, Call, arrays, vec_of};
use crate::client::Inner;

impl Inner {
    /// Sends items, in as many requests as they need; one answer an item.
    pub(crate) async fn send_all<T, I: Serialize, A: DeserializeOwned>(
        &self,
        items: &[T],
        item: impl Fn(&T) -> I,
        call: impl Fn() -> Call,
    ) -> Vec<Result<A>> {
        // A batch that is sent as one the server checks itself.
        if items.len() > CHUNK_ITEMS
            && let Err(error) = self.check_batch(items.len()).await
        {
            return vec_of(items.len(), &error);
        }
        let mut answers = Vec::with_capacity(items.len());
        for (array, count) in arrays(items, item) {
            answers.extend(self.send_items(call().array(array), count).await);
        }
        answers
    }

    pub(crate) async fn settle(&self, settles: Vec<Settle>) -> Vec<Result<Settled>> {
        let call = || Call::change(Path::of(Operation::SettleMany, &[]));
        let item = |settle| SettleItem::from(settle);
        let answers = self.send_all::<_, _, dwell_wire::Settled>(&settles, item, call).await;
        answers.into_iter().map(|answer| answer.map(Settled::from)).collect()
    }

    pub(crate) async fn cancel(&self, queue: QueueName, targets: Vec<Target>) -> Vec<Result<Cancelled>> {
        let call = || Call::change(Path::of(Operation::CancelMany, &[queue.as_str()]));
        let item = |target| TargetFields::from(target);
        let answers = self.send_all::<_, _, dwell_wire::Cancelled>(&targets, item, call).await;
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
        let item = |one| RescheduleItem::from(one);
        let answers = self.send_all::<_, _, Moved>(&moves, item, call).await;
        let found = |answer: Result<Moved>| match answer {
            Ok(moved) => {
                let (id, due): (MessageId, Timestamp) = (moved.id, moved.due);
                Ok(Rescheduled::Moved(id, due))
            }
            Err(error) => Ok(match Absent::of(error)? {
                Absent::Leased(id) => Rescheduled::Leased(id),
                Absent::Dead(id) => Rescheduled::Dead(id),
                Absent::NotFound => Rescheduled::NotFound,
            }),
        };
        answers.into_iter().map(found).collect()
    }

    pub(crate) async fn revive(&self, queue: QueueName, which: Selection, when: When) -> Result<Swept> {
        let call = Call::change(Path::of(Operation::ReviveMany, &[queue.as_str()]));
        let swept = self.send::<dwell_wire::Swept>(call.json(&ReviveFields::new(&which, when))).await?;
        Ok(swept.into_swept(&self.server))
    }

    pub(crate) async fn discard(&self, queue: QueueName, which: Selection) -> Result<Swept> {
        let call = Call::change(Path::of(Operation::DiscardMany, &[queue.as_str()]));
        let swept = self.send::<dwell_wire::Swept>(call.json(&SelectFields::from(&which))).await?;
        Ok(swept.into_swept(&self.server))
    }
}

/// What a cancel and a reschedule answer where nothing was changed: refusals over HTTP, and none to a store.
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

//! Settling what was taken.

use dwell_model::Receipt;
use dwell_store::{Action, Settle};
use dwell_wire::{Operation, Path, SettleItem};

use crate::transport::{Call, Payload};
use crate::{Client, Result, Settled};

impl Client {
    /// Settles messages, each of which is answered by itself, in order.
    ///
    /// # Errors
    /// Per item, such as `lease_lost`. Where a whole request failed, each of its items fails with the
    /// request's error; after [`Error::OutcomeUnknown`](crate::Error::OutcomeUnknown) each may or may not be settled.
    pub fn settle(&self, settles: &[Settle]) -> Vec<Result<Settled>> {
        settles.chunks(1_000).flat_map(|chunk| self.settle_chunk(chunk)).collect()
    }

    /// Settles one message. See [`Client::settle`].
    ///
    /// # Errors
    /// The item's.
    pub fn settle_one(&self, receipt: Receipt, action: Action) -> Result<Settled> {
        self.settle(&[Settle { receipt, action }]).pop().expect("each item is answered")
    }

    fn settle_chunk(&self, settles: &[Settle]) -> Vec<Result<Settled>> {
        let items: Vec<SettleItem<'_>> = settles.iter().map(SettleItem::from).collect();
        let call = Call::change(Path::of(Operation::SettleMany, &[])).payload(Payload::json(&items));
        self.send_items(&call, settles.len())
    }
}

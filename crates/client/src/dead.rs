//! Dead messages: reviving and discarding them.

use dwell_model::QueueName;
use dwell_store::{Selection, When};
use dwell_wire::{Operation, Path, ReviveFields, SelectFields};

use crate::transport::{Call, Payload};
use crate::{Client, Result, Swept};

impl Client {
    /// Brings dead messages back, oldest first.
    ///
    /// # Errors
    /// The server's refusals; what is refused singly is in the answer.
    pub fn revive(&self, queue: &QueueName, which: &Selection, when: When) -> Result<Swept> {
        let wish = ReviveFields::new(which, when);
        self.send(
            &Call::change(Path::of(Operation::ReviveMany, &[queue.as_str()])).payload(Payload::json(&wish)),
        )
    }

    /// Removes dead messages.
    ///
    /// # Errors
    /// As [`Client::revive`].
    pub fn discard(&self, queue: &QueueName, which: &Selection) -> Result<Swept> {
        let wish = SelectFields::from(which);
        self.send(
            &Call::change(Path::of(Operation::DiscardMany, &[queue.as_str()])).payload(Payload::json(&wish)),
        )
    }
}

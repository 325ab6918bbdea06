//! `dwell get`

use clap::Args;
use dwell_model::{Key, MessageId, Number, QueueName};
use dwell_store::Target;
use pollster::block_on;

use super::{Context, Outcome, only};
use crate::exit::{Exit, Failure};
use crate::human;

/// Show a message, in any state
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell get orders 0197c5e2-…
  dwell get orders --key order-7
  dwell get orders --key order-7 --dead
  dwell get --number 17
  dwell get orders --key order-7 --raw > body")]
pub(crate) struct Get {
    /// The queue
    #[arg(required_unless_present = "number", conflicts_with = "number")]
    queue: Option<QueueName>,
    /// The message's id
    id: Option<MessageId>,
    /// The live message with this key
    #[arg(long, conflicts_with = "id")]
    key: Option<Key>,
    /// Where no live message has the key, the youngest of the dead that had it
    #[arg(long, requires = "key", conflicts_with_all = ["id", "number"])]
    dead: bool,
    /// The message with this number, in any queue
    #[arg(long, conflicts_with_all = ["id", "key"])]
    number: Option<Number>,
    /// Write the body alone, as it was put
    #[arg(long)]
    raw: bool,
}

impl Get {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        let message = match (self.number, self.queue, self.id, self.key) {
            (Some(number), ..) => block_on(client.store().get_number(number))?,
            (None, Some(queue), Some(id), _) => only(client.get(queue, vec![Target::Id(id)], false))?,
            (None, Some(queue), None, Some(key)) => {
                only(client.get(queue, vec![Target::Key(key)], self.dead))?
            }
            _ => {
                return Err(Failure::usage(
                    "name the message: QUEUE ID, QUEUE --key KEY, or --number NUMBER",
                ));
            }
        };
        if self.raw {
            context.output.raw(&message.body)?;
        } else {
            let message = dwell_wire::Message::of(&message, true);
            context.output.show(&message, |out| human::message(out, &message, message.lease_until))?;
        }
        Ok(Exit::Ok)
    }
}

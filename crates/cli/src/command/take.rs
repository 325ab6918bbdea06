//! `dwell take`

use clap::Args;
use dwell_model::{Holder, QueueName, format_duration_ms};
use dwell_store::{Action, Delivery, Settle};

use super::{Context, Outcome};
use crate::access::Server;
use crate::args::duration_ms;
use crate::exit::{Exit, Failure};
use crate::human::{self, FAINT, PLAIN, WAITING};

/// Take due messages, under a lease; wait for the first one if asked to
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell take orders                             what is due now, or exit code 3
  dwell take orders --wait 10m --lease 2m       when the next one is due
  dwell take orders mails --max 100             in order across both queues
  dwell take orders --wait 1m --raw --ack | sh  the body alone, as it was put

A message that is neither acked nor otherwise settled is ready again when its
lease ends, and the attempt counts. With --ack it is settled after it was
printed: if printing fails, it is given back instead.")]
pub(crate) struct Take {
    /// One or several queues
    #[arg(required = true, value_name = "QUEUE")]
    queues: Vec<QueueName>,
    /// The maximum number of messages
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    max: u32,
    /// The maximum bytes of bodies; one message is always taken
    #[arg(long, value_name = "BYTES")]
    max_bytes: Option<usize>,
    /// How long to wait for the first message
    #[arg(long, value_parser = duration_ms, allow_hyphen_values = true, default_value = "0s", value_name = "DURATION")]
    wait: u64,
    /// The length of the lease; by default the message's, else the queue's
    #[arg(long, value_parser = duration_ms, allow_hyphen_values = true, value_name = "DURATION")]
    lease: Option<u64>,
    /// The holder, a name shown to people with the leases
    #[arg(long, value_name = "NAME")]
    holder: Option<Holder>,
    /// Ack each message after it is printed
    #[arg(long)]
    ack: bool,
    /// Write the body alone, as it was put; one message only
    #[arg(long, conflicts_with = "max")]
    raw: bool,
}

impl Take {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        let take = dwell_store::Take {
            max: self.max as usize,
            max_bytes: self.max_bytes,
            wait_ms: self.wait,
            lease_ms: self.lease,
            holder: self.holder.clone(),
            ..dwell_store::Take::from_all(self.queues.clone())
        };
        let deliveries = client.take(take)?;
        if deliveries.is_empty() {
            return Ok(Exit::Nothing);
        }
        let printed = deliveries.iter().try_for_each(|delivery| self.show(context, delivery));
        match printed {
            Ok(()) if self.ack => ack(&client, context, deliveries),
            Ok(()) => Ok(Exit::Ok),
            Err(failure) => {
                give_back(&client, deliveries);
                Err(failure)
            }
        }
    }

    fn show(&self, context: &Context, delivery: &Delivery) -> Result<(), Failure> {
        if self.raw {
            return context.output.raw(&delivery.message.body);
        }
        let delivery = dwell_wire::Delivery::from(delivery);
        context.output.show(&delivery, |out| {
            human::message(out, &delivery.message, Some(delivery.lease_until))?;
            let late = format_duration_ms(delivery.lateness_ms);
            writeln!(out, "{FAINT}late{FAINT:#} {late}")?;
            let style = if self.ack { PLAIN } else { WAITING };
            writeln!(out, "{FAINT}receipt{FAINT:#} {style}{}{style:#}", delivery.receipt)
        })
    }
}

/// Acks the printed messages; returns the exit code of the first failure.
fn ack(client: &Server, context: &Context, deliveries: Vec<Delivery>) -> Outcome {
    let mut exit = Exit::Ok;
    for error in settle(client, deliveries, &Action::Ack).into_iter().filter_map(Result::err) {
        let failure = Failure::from(error);
        context.output.failure(&failure);
        if exit == Exit::Ok {
            exit = failure.exit;
        }
    }
    Ok(exit)
}

/// Gives back messages that were not printed. If that fails too, their leases run out.
fn give_back(client: &Server, deliveries: Vec<Delivery>) {
    drop(settle(client, deliveries, &Action::Release { after_ms: None, priority: None }));
}

fn settle(
    client: &Server,
    deliveries: Vec<Delivery>,
    action: &Action,
) -> Vec<dwell_store::Result<dwell_store::Settled>> {
    let settle = |delivery: Delivery| Settle { receipt: delivery.receipt, action: action.clone() };
    client.settle(deliveries.into_iter().map(settle).collect())
}

//! `dwell bench`

use clap::Args;
use dwell_model::QueueName;

use super::{Context, Outcome};
use crate::args::duration_ms;
use crate::bench;

/// Put load on a running server, and measure it
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell bench                                   ten seconds over HTTP
  dwell bench --beanstalkd                      the same over beanstalkd's protocol
  dwell bench --rate 5000 --delay 3s            how late do messages come?
  dwell bench --messages 100000 --batch 1000 --connections 1
  dwell bench --beanstalkd 127.0.0.1:11400      also against beanstalkd itself

As many connections put as take, and each message is acked when it was taken;
with --put-only nothing is taken. It works in a queue of its own, which is
removed in the end, also on Ctrl-C; a second Ctrl-C ends it at once and leaves
the queue. Where the server asks for tokens, yours has to be good for put, take
and manage of that queue.

Times of put and ack are those of a call with all its messages. That of take is
from the moment a message was due, by this process's clock, counted from before
it was sent, to the moment it was received.")]
pub(crate) struct Bench {
    /// A queue that does not exist yet; without it one with a new name
    #[arg(long, value_name = "NAME")]
    queue: Option<QueueName>,
    /// Use beanstalkd's protocol, at this address
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:11300")]
    beanstalkd: Option<String>,
    /// The number of connections that put, and of others that take
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1_000), value_name = "COUNT")]
    connections: u16,
    /// The number of messages per call, 1 to 1,000; over beanstalkd's protocol, the number of commands that are sent
    /// before the first is answered
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1_000), value_name = "COUNT")]
    batch: u16,
    /// Bytes of a body, at least 16
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(16..=64 << 20), value_name = "BYTES")]
    body: u32,
    /// The delay of each message
    #[arg(long, value_parser = duration_ms, allow_hyphen_values = true, default_value = "0s", value_name = "DURATION")]
    delay: u64,
    /// The number of messages to put
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..), value_name = "COUNT")]
    messages: Option<u64>,
    /// How long to put [default: 10s, unless --messages is given]
    #[arg(long = "for", value_parser = duration_ms, allow_hyphen_values = true, value_name = "DURATION")]
    for_ms: Option<u64>,
    /// The maximum number of puts per second, over all connections
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), value_name = "COUNT")]
    rate: Option<u32>,
    /// Take nothing
    #[arg(long)]
    put_only: bool,
}

/// How long it puts by default.
const DEFAULT_FOR_MS: u64 = 10_000;

impl Bench {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let for_ms = self.for_ms.or(self.messages.is_none().then_some(DEFAULT_FOR_MS));
        bench::run(
            context,
            &bench::BenchOptions {
                queue: self.queue,
                beanstalkd: self.beanstalkd,
                connections: self.connections.into(),
                batch: self.batch.into(),
                body: self.body as usize,
                delay_ms: self.delay,
                messages: self.messages,
                for_ms,
                rate: self.rate,
                put_only: self.put_only,
            },
        )
    }
}

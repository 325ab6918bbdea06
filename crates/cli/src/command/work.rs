//! `dwell work`: a command for each message of a queue.

mod child;
mod environment;

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use dwell_delivery::{Job, Ladder, Lane, Rate, Stats, Worker};
use dwell_model::QueueName;
use serde::Serialize;

use super::{Context, Outcome, Signals};
use crate::args::duration_ms;
use crate::exit::{Exit, Failure, Own};
use crate::human::STRONG;

/// Run a command for each message of a queue, until a signal ends it
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  dwell work orders -- ./close
  dwell work mails --concurrency 8 --rate 50 -- sendmail -t
  dwell work images --timeout 2m --retry 1s,30s,10m -- ./resize --fast

The command gets the body on its standard input, as it was put, and what else is
known of the message in its environment: DWELL_ID, DWELL_NUMBER, DWELL_QUEUE,
DWELL_ATTEMPT, DWELL_DUE, DWELL_CREATED, DWELL_KEY, DWELL_HEADER_… for each
header, and TRACEPARENT and TRACESTATE. What it writes goes where this command's
output goes.

  exit 0      done: the message is acked
  exit 65     it will never succeed: the message is buried
  any other   a failed attempt, with the end of its standard error

A message is handed over again when this process dies, so a command may run
twice for one. SIGTERM and SIGINT let running commands end, for --drain; then
they get SIGTERM, a second later SIGKILL, and their messages are given back.")]
pub(crate) struct Work {
    /// The queue
    queue: QueueName,
    /// The number of concurrent commands
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000), value_name = "COUNT")]
    concurrency: u32,
    /// The maximum number of messages per second
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), value_name = "COUNT")]
    rate: Option<u32>,
    /// One after the other in the queue's order; a message that fails delays those after it
    #[arg(long, conflicts_with = "concurrency")]
    strict: bool,
    /// The timeout of a command; then it is killed, and the attempt has failed
    #[arg(long, value_parser = duration_ms, allow_hyphen_values = true, default_value = "10m", value_name = "DURATION")]
    timeout: u64,
    /// The lease: when others get the messages of this process if it dies; renewed while commands run
    #[arg(long, value_parser = duration_ms, allow_hyphen_values = true, default_value = "30s", value_name = "DURATION")]
    lease: u64,
    /// Delays between attempts, of which the last repeats, in place of the queue's backoff
    #[arg(long, value_parser = ladder, allow_hyphen_values = true, value_name = "DURATION,…")]
    retry: Option<Ladder>,
    /// How long running commands have when this one is asked to end
    #[arg(long, value_parser = duration_ms, allow_hyphen_values = true, default_value = "30s", value_name = "DURATION")]
    drain: u64,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Parses delays separated by commas.
fn ladder(text: &str) -> Result<Ladder, dwell_delivery::Error> {
    Ladder::parse(text.split(','))
}

/// Counts of messages by outcome.
#[derive(Serialize)]
struct Summary {
    done: u64,
    retried: u64,
    buried: u64,
    released: u64,
    lost: u64,
}

impl Summary {
    fn of(stats: &Stats) -> Summary {
        Summary {
            done: stats.done(),
            retried: stats.retried(),
            buried: stats.buried(),
            released: stats.released(),
            lost: stats.lost(),
        }
    }
}

impl Work {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let (program, args) = self.command.split_first().ok_or_else(|| Failure::usage("say -- COMMAND"))?;
        if !is_there(program) {
            let program = program.to_string_lossy();
            return Err(Failure::usage(format!(
                "there is no program '{program}'; write its path, or put its folder into PATH"
            )));
        }
        let program = Arc::new(child::Program { path: program.clone(), args: args.to_vec() });
        let handle = move |job: Job| {
            let program = Arc::clone(&program);
            async move { child::run(&program, &job).await }
        };
        let mut lane = Lane::new(self.queue.as_str(), handle)
            .concurrency(self.concurrency as usize)
            .timeout(Duration::from_millis(self.timeout))
            .lease(Duration::from_millis(self.lease));
        if let Some(rate) = self.rate {
            lane = lane.rate(Rate::per_second(rate));
        }
        if let Some(ladder) = self.retry {
            lane = lane.retry(ladder);
        }
        if self.strict {
            lane = lane.strict();
        }
        let worker = Worker::new(Arc::clone(context.client()?.store()))
            .drain(Duration::from_millis(self.drain))
            .lane(lane);
        let stats = worker.stats();

        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::new(Exit::Refused, Own::Threads.code(), error))?;
        runtime.block_on(async {
            let signals =
                Signals::listen().map_err(|error| Failure::new(Exit::Refused, Own::Signals.code(), error))?;
            let stop = async move {
                signals.first().await;
            };
            Ok::<_, Failure>(worker.run_until(stop).await?)
        })?;
        for stats in stats {
            let summary = Summary::of(&stats);
            context.output.show(&summary, |out| {
                let Summary { done, retried, buried, released, lost } = summary;
                writeln!(
                    out,
                    "{STRONG}{done}{STRONG:#} done, {retried} to be tried again, {buried} buried, \
                     {released} given back, {lost} lost"
                )
            })?;
        }
        Ok(Exit::Ok)
    }
}

/// Whether the system would find a program with this name.
fn is_there(program: &OsStr) -> bool {
    let path = Path::new(program);
    if path.components().count() != 1 || cfg!(windows) {
        return cfg!(windows) || path.is_file();
    }
    let folders = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&folders).any(|folder| folder.join(path).is_file())
}

//! The subcommands: this index, and one file each.

mod ack;
mod bench;
mod bury;
mod cancel;
mod completions;
mod config;
mod configure;
mod delete_queue;
mod discard;
mod engine;
mod expire_lease;
mod extend;
mod forecast;
mod get;
mod list;
mod man;
mod pause;
mod postgres;
mod purge;
mod put;
mod queues;
mod redisson;
mod release;
mod reschedule;
mod resume;
mod retry;
mod revive;
mod schedules;
mod serve;
mod settings;
mod sinks;
mod stats;
mod take;
mod token;
mod top;
mod work;

use clap::Subcommand;
use dwell_model::{MessageId, Receipt, StateKind};
use dwell_store::{Action, BulkOutcome, QueueStats, Settle, Settled};
use dwell_wire::Removed;
use serde::Serialize;

pub(crate) use self::serve::signals::Signals;
use crate::access::{Access, Server};
use crate::exit::{Exit, Failure};
use crate::human::{self, BAD, STRONG, state_style};
use crate::output::Output;

/// The result of a subcommand.
pub(crate) type Outcome = Result<Exit, Failure>;

/// The context of every subcommand.
pub(crate) struct Context {
    pub(crate) server: String,
    pub(crate) access: Access,
    pub(crate) output: Output,
}

impl Context {
    /// A client of the configured server.
    pub(crate) fn client(&self) -> Result<Server, Failure> {
        self.access.client(&self.server)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Serve(Box<serve::Serve>),
    Put(Box<put::Put>),
    Take(take::Take),
    Work(Box<work::Work>),
    Ack(ack::Ack),
    Retry(retry::Retry),
    Release(release::Release),
    Bury(bury::Bury),
    Extend(extend::Extend),
    ExpireLease(expire_lease::ExpireLease),
    Cancel(cancel::Cancel),
    Reschedule(reschedule::Reschedule),
    Get(get::Get),
    List(list::List),
    Queues(queues::Queues),
    Stats(stats::Stats),
    Forecast(forecast::Forecast),
    Top(top::Top),
    Settings(settings::Settings),
    Configure(Box<configure::Configure>),
    Pause(pause::Pause),
    Resume(resume::Resume),
    Revive(revive::Revive),
    Discard(discard::Discard),
    Purge(purge::Purge),
    DeleteQueue(delete_queue::DeleteQueue),
    Sinks(sinks::Sinks),
    Schedules(schedules::Schedules),
    Bench(bench::Bench),
    Engine(engine::Engine),
    Redisson(Box<redisson::Redisson>),
    Postgres(Box<postgres::Postgres>),
    Config(config::Config),
    Token(token::Token),
    Completions(completions::Completions),
    #[command(name = "man")]
    Manual(man::Manual),
}

impl Command {
    /// Runs the subcommand.
    pub(crate) fn run(self, context: &Context) -> Outcome {
        match self {
            Command::Serve(it) => it.run(context),
            Command::Put(it) => it.run(context),
            Command::Take(it) => it.run(context),
            Command::Work(it) => it.run(context),
            Command::Ack(it) => it.run(context),
            Command::Retry(it) => it.run(context),
            Command::Release(it) => it.run(context),
            Command::Bury(it) => it.run(context),
            Command::Extend(it) => it.run(context),
            Command::ExpireLease(it) => it.run(context),
            Command::Cancel(it) => it.run(context),
            Command::Reschedule(it) => it.run(context),
            Command::Get(it) => it.run(context),
            Command::List(it) => it.run(context),
            Command::Queues(it) => it.run(context),
            Command::Stats(it) => it.run(context),
            Command::Forecast(it) => it.run(context),
            Command::Top(it) => it.run(context),
            Command::Settings(it) => it.run(context),
            Command::Configure(it) => it.run(context),
            Command::Pause(it) => it.run(context),
            Command::Resume(it) => it.run(context),
            Command::Revive(it) => it.run(context),
            Command::Discard(it) => it.run(context),
            Command::Purge(it) => it.run(context),
            Command::DeleteQueue(it) => it.run(context),
            Command::Sinks(it) => it.run(context),
            Command::Schedules(it) => it.run(context),
            Command::Bench(it) => it.run(context),
            Command::Engine(it) => it.run(context),
            Command::Redisson(it) => it.run(context),
            Command::Postgres(it) => it.run(context),
            Command::Config(it) => it.run(context),
            Command::Token(it) => it.run(context),
            Command::Completions(it) => it.run(),
            Command::Manual(it) => it.run(),
        }
    }
}

/// The answer to the only item of a call.
pub(crate) fn only<T>(mut answers: Vec<T>) -> T {
    answers.pop().expect("each item is answered")
}

impl Context {
    /// Settles each receipt by `action`, prints the results, and returns the exit code of the first failure.
    pub(crate) fn settle(&self, receipts: &[Receipt], action: &Action) -> Outcome {
        let settles: Vec<Settle> = receipts
            .iter()
            .map(|receipt| Settle { receipt: receipt.clone(), action: action.clone() })
            .collect();
        let ids = receipts.iter().map(|receipt| receipt.id);
        self.show_settled(ids.zip(self.client()?.settle(settles)))
    }

    /// Prints the results for messages that were held, and returns the exit code of the first failure.
    pub(crate) fn show_settled(
        &self,
        answers: impl IntoIterator<Item = (MessageId, dwell_store::Result<Settled>)>,
    ) -> Outcome {
        #[derive(Serialize)]
        struct Shown<'a> {
            id: String,
            #[serde(flatten)]
            settled: &'a dwell_wire::Settled,
        }
        let mut exit = Exit::Ok;
        for (id, answer) in answers {
            match answer {
                Ok(settled) => {
                    let shown = Shown { id: id.to_string(), settled: &settled.into() };
                    self.output.show(&shown, |out| {
                        let state = match settled {
                            Settled::Gone => None,
                            Settled::Scheduled(_) => Some(StateKind::Scheduled),
                            Settled::Ready => Some(StateKind::Ready),
                            Settled::Leased(_) => Some(StateKind::Leased),
                            Settled::Dead(_) => Some(StateKind::Dead),
                        };
                        let (style, word) = match state {
                            Some(state) => (state_style(state), state.as_str()),
                            None => (STRONG, "gone"),
                        };
                        write!(out, "{id}  {style}{word}{style:#}")?;
                        match settled {
                            Settled::Scheduled(due) => writeln!(out, "  due {}", human::instant(due)),
                            Settled::Leased(until) => writeln!(out, "  until {}", human::instant(until)),
                            Settled::Dead(reason) => writeln!(out, "  {}", reason.as_str()),
                            Settled::Gone | Settled::Ready => writeln!(out),
                        }
                    })?
                }
                Err(error) => {
                    let failure = Failure::from(error);
                    self.output.failure(&failure);
                    if exit == Exit::Ok {
                        exit = failure.exit;
                    }
                }
            }
        }
        Ok(exit)
    }

    /// Prints the result of a revive or a discard; refused messages make it a refusal.
    pub(crate) fn show_swept(&self, swept: &BulkOutcome, done: &str) -> Outcome {
        self.output.show(&dwell_wire::Swept::from(swept), |out| {
            writeln!(out, "{STRONG}{}{STRONG:#} {done}", swept.done)?;
            for (id, error) in &swept.refused {
                writeln!(out, "{id}  {BAD}{}{BAD:#}: {error}", error.code())?;
            }
            Ok(())
        })?;
        Ok(if swept.refused_in_all == 0 { Exit::Ok } else { Exit::Refused })
    }

    /// Prints how many messages were removed.
    pub(crate) fn show_removed(&self, removed: u64) -> Outcome {
        self.output.show(&Removed { removed }, |out| writeln!(out, "{STRONG}{removed}{STRONG:#} removed"))?;
        Ok(Exit::Ok)
    }

    /// Prints a queue after a change to it.
    pub(crate) fn show_queue(&self, queue: QueueStats) -> Outcome {
        let queue = dwell_wire::QueueStats::from(queue);
        self.output.show(&queue, |out| stats::detail(out, &queue))?;
        Ok(Exit::Ok)
    }
}

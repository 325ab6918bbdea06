//! The subcommands: this index, and a file each.

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
mod extend;
mod get;
mod list;
mod man;
mod pause;
mod purge;
mod put;
mod queues;
mod redisson;
mod release;
mod reschedule;
mod resume;
mod retry;
mod revive;
mod serve;
mod settings;
mod stats;
mod take;
mod token;

use clap::Subcommand;
use dwell_client::{Client, QueueStats, Removed, Settled, Swept};
use dwell_model::Receipt;
use dwell_store::{Action, Settle};
use serde::Serialize;

pub(crate) use self::serve::signals::Signals;
use crate::access::Access;
use crate::exit::{Exit, Failure};
use crate::human::{self, BAD, STRONG, state_style};
use crate::output::Output;

/// What a subcommand ends with.
pub(crate) type Outcome = Result<Exit, Failure>;

/// What every subcommand is given.
pub(crate) struct Context {
    pub(crate) server: String,
    pub(crate) access: Access,
    pub(crate) output: Output,
}

impl Context {
    /// A client of the server that was named.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        self.access.client(&self.server)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Serve(Box<serve::Serve>),
    Put(Box<put::Put>),
    Take(take::Take),
    Ack(ack::Ack),
    Retry(retry::Retry),
    Release(release::Release),
    Bury(bury::Bury),
    Extend(extend::Extend),
    Cancel(cancel::Cancel),
    Reschedule(reschedule::Reschedule),
    Get(get::Get),
    List(list::List),
    Queues(queues::Queues),
    Stats(stats::Stats),
    Settings(settings::Settings),
    Configure(Box<configure::Configure>),
    Pause(pause::Pause),
    Resume(resume::Resume),
    Revive(revive::Revive),
    Discard(discard::Discard),
    Purge(purge::Purge),
    DeleteQueue(delete_queue::DeleteQueue),
    Bench(bench::Bench),
    Engine(engine::Engine),
    Redisson(Box<redisson::Redisson>),
    Config(config::Config),
    Token(token::Token),
    Completions(completions::Completions),
    #[command(name = "man")]
    Manual(man::Manual),
}

impl Command {
    /// Does it.
    pub(crate) fn run(self, context: &Context) -> Outcome {
        match self {
            Command::Serve(it) => it.run(context),
            Command::Put(it) => it.run(context),
            Command::Take(it) => it.run(context),
            Command::Ack(it) => it.run(context),
            Command::Retry(it) => it.run(context),
            Command::Release(it) => it.run(context),
            Command::Bury(it) => it.run(context),
            Command::Extend(it) => it.run(context),
            Command::Cancel(it) => it.run(context),
            Command::Reschedule(it) => it.run(context),
            Command::Get(it) => it.run(context),
            Command::List(it) => it.run(context),
            Command::Queues(it) => it.run(context),
            Command::Stats(it) => it.run(context),
            Command::Settings(it) => it.run(context),
            Command::Configure(it) => it.run(context),
            Command::Pause(it) => it.run(context),
            Command::Resume(it) => it.run(context),
            Command::Revive(it) => it.run(context),
            Command::Discard(it) => it.run(context),
            Command::Purge(it) => it.run(context),
            Command::DeleteQueue(it) => it.run(context),
            Command::Bench(it) => it.run(context),
            Command::Engine(it) => it.run(context),
            Command::Redisson(it) => it.run(context),
            Command::Config(it) => it.run(context),
            Command::Token(it) => it.run(context),
            Command::Completions(it) => it.run(),
            Command::Manual(it) => it.run(),
        }
    }
}

impl Context {
    /// Settles each receipt by `action`, shows what became of it, and ends as the first that failed.
    pub(crate) fn settle(&self, receipts: &[Receipt], action: &Action) -> Outcome {
        #[derive(Serialize)]
        struct Shown<'a> {
            id: String,
            #[serde(flatten)]
            settled: &'a Settled,
        }
        let settles: Vec<Settle> = receipts
            .iter()
            .map(|receipt| Settle { receipt: receipt.clone(), action: action.clone() })
            .collect();
        let mut exit = Exit::Ok;
        for (receipt, answer) in receipts.iter().zip(self.client()?.settle(&settles)) {
            match answer {
                Ok(settled) => {
                    self.output.show(&Shown { id: receipt.id.to_string(), settled: &settled }, |out| {
                        let (style, word) = match settled.state() {
                            Some(state) => (state_style(state), state.as_str()),
                            None => (STRONG, "gone"),
                        };
                        write!(out, "{}  {style}{word}{style:#}", receipt.id)?;
                        match settled {
                            Settled::Scheduled { due } => writeln!(out, "  due {}", human::instant(due)),
                            Settled::Leased { lease_until } => {
                                writeln!(out, "  until {}", human::instant(lease_until))
                            }
                            Settled::Dead { dead_reason } => {
                                writeln!(out, "  {}", dead_reason.as_str())
                            }
                            _ => writeln!(out),
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

    /// Shows what a revive or a discard did; refused ones make it a refusal.
    pub(crate) fn show_swept(&self, swept: &Swept, done: &str) -> Outcome {
        self.output.show(swept, |out| {
            writeln!(out, "{STRONG}{}{STRONG:#} {done}", swept.done)?;
            for one in &swept.refused {
                writeln!(out, "{}  {BAD}{}{BAD:#}: {}", one.id, one.error.code, one.error.detail)?;
            }
            Ok(())
        })?;
        Ok(if swept.refused_in_all == 0 { Exit::Ok } else { Exit::Refused })
    }

    /// Shows how many messages were removed.
    pub(crate) fn show_removed(&self, removed: Removed) -> Outcome {
        self.output.show(&removed, |out| writeln!(out, "{STRONG}{}{STRONG:#} removed", removed.removed))?;
        Ok(Exit::Ok)
    }

    /// Shows a queue after a change to it.
    pub(crate) fn show_queue(&self, queue: &QueueStats) -> Outcome {
        self.output.show(queue, |out| stats::detail(out, queue))?;
        Ok(Exit::Ok)
    }
}

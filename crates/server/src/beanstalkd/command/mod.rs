//! The commands, and the index of verbs. Each command has a file, with its parser and its implementation.

mod bury;
mod delete;
mod ignore;
mod kick;
mod kick_job;
mod list_tube_used;
mod list_tubes;
mod list_tubes_watched;
mod pause_tube;
mod peek;
mod peek_buried;
mod peek_delayed;
mod peek_ready;
mod put;
mod release;
mod reserve;
mod reserve_job;
mod settle;
mod stats;
mod stats_job;
mod stats_tube;
mod touch;
mod use_tube;
mod watch;

use dwell_model::QueueName;

use super::arguments::Arguments;
use super::counters::CountedCommand;
use super::frame::Malformed;
use super::reply::Replies;
use super::session::Session;

pub(super) use delete::delete_all;
pub(crate) use put::PutJob;
pub(super) use put::{PutLine, put_all};
pub(super) use reserve::{ReserveRequest, Reserved};
pub(super) use settle::{Settling, settle_all};

/// A command, as a client sent it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Put(PutJob),
    Use(QueueName),
    /// Without a timeout it waits for ever.
    Reserve {
        timeout_s: Option<u32>,
    },
    ReserveJob(u64),
    Delete(u64),
    Release {
        number: u64,
        priority: u32,
        delay_s: u32,
    },
    Bury {
        number: u64,
        priority: u32,
    },
    Touch(u64),
    Watch(QueueName),
    Ignore(QueueName),
    Peek(u64),
    PeekReady,
    PeekDelayed,
    PeekBuried,
    Kick(u64),
    KickJob(u64),
    Stats,
    StatsTube(QueueName),
    StatsJob(u64),
    ListTubes,
    ListTubeUsed,
    ListTubesWatched,
    PauseTube {
        tube: QueueName,
        delay_s: u32,
    },
    Quit,
}

type Parse = fn(Arguments<'_>) -> Result<Command, Malformed>;

/// Verbs at the beginning of a line, and the parser of the rest. The first match counts: `stats-job` without its space
/// is `stats` with an argument, and malformed.
const VERBS: [(&str, Parse); 24] = [
    ("peek ", peek::parse),
    ("peek-ready", |rest| rest.end().map(|()| Command::PeekReady)),
    ("peek-delayed", |rest| rest.end().map(|()| Command::PeekDelayed)),
    ("peek-buried", |rest| rest.end().map(|()| Command::PeekBuried)),
    ("reserve-with-timeout ", reserve::parse_with_timeout),
    ("reserve-job ", reserve_job::parse),
    ("reserve", |rest| rest.end().map(|()| Command::Reserve { timeout_s: None })),
    ("delete ", delete::parse),
    ("release ", release::parse),
    ("bury ", bury::parse),
    ("kick ", kick::parse),
    ("kick-job ", kick_job::parse),
    ("touch ", touch::parse),
    ("stats-job ", stats_job::parse),
    ("stats-tube ", stats_tube::parse),
    ("stats", |rest| rest.end().map(|()| Command::Stats)),
    ("use ", use_tube::parse),
    ("watch ", watch::parse),
    ("ignore ", ignore::parse),
    ("list-tubes-watched", |rest| rest.end().map(|()| Command::ListTubesWatched)),
    ("list-tube-used", |rest| rest.end().map(|()| Command::ListTubeUsed)),
    ("list-tubes", |rest| rest.end().map(|()| Command::ListTubes)),
    ("quit", |rest| rest.end().map(|()| Command::Quit)),
    ("pause-tube", pause_tube::parse),
];

impl Command {
    /// Parses a line; `None` if its verb is unknown. `put` is not among them: see [`PutLine`].
    pub(super) fn parse(line: &str) -> Option<Result<Command, Malformed>> {
        VERBS.iter().find_map(|(verb, parse)| line.strip_prefix(verb).map(|rest| parse(Arguments::new(rest))))
    }

    /// The beginnings of all lines other than that of a put.
    pub(super) fn verbs() -> impl Iterator<Item = &'static str> {
        VERBS.iter().map(|(verb, _)| *verb)
    }

    /// The counter of `stats` for this command; not all have one.
    pub(super) fn counted(&self) -> Option<CountedCommand> {
        Some(match self {
            Command::Put(_) => CountedCommand::Put,
            Command::Use(_) => CountedCommand::Use,
            Command::Reserve { timeout_s: None } => CountedCommand::Reserve,
            Command::Reserve { timeout_s: Some(_) } => CountedCommand::ReserveWithTimeout,
            Command::Delete(_) => CountedCommand::Delete,
            Command::Release { .. } => CountedCommand::Release,
            Command::Bury { .. } => CountedCommand::Bury,
            Command::Touch(_) => CountedCommand::Touch,
            Command::Watch(_) => CountedCommand::Watch,
            Command::Ignore(_) => CountedCommand::Ignore,
            Command::Peek(_) => CountedCommand::Peek,
            Command::PeekReady => CountedCommand::PeekReady,
            Command::PeekDelayed => CountedCommand::PeekDelayed,
            Command::PeekBuried => CountedCommand::PeekBuried,
            Command::Kick(_) => CountedCommand::Kick,
            Command::Stats => CountedCommand::Stats,
            Command::StatsTube(_) => CountedCommand::StatsTube,
            Command::StatsJob(_) => CountedCommand::StatsJob,
            Command::ListTubes => CountedCommand::ListTubes,
            Command::ListTubeUsed => CountedCommand::ListTubeUsed,
            Command::ListTubesWatched => CountedCommand::ListTubesWatched,
            Command::PauseTube { .. } => CountedCommand::PauseTube,
            Command::ReserveJob(_) | Command::KickJob(_) | Command::Quit => return None,
        })
    }

    /// The beginning of its line.
    pub(super) fn verb(&self) -> &'static str {
        match self {
            Command::Put(_) => "put",
            Command::Use(_) => "use",
            Command::Reserve { timeout_s: None } => "reserve",
            Command::Reserve { timeout_s: Some(_) } => "reserve-with-timeout",
            Command::ReserveJob(_) => "reserve-job",
            Command::Delete(_) => "delete",
            Command::Release { .. } => "release",
            Command::Bury { .. } => "bury",
            Command::Touch(_) => "touch",
            Command::Watch(_) => "watch",
            Command::Ignore(_) => "ignore",
            Command::Peek(_) => "peek",
            Command::PeekReady => "peek-ready",
            Command::PeekDelayed => "peek-delayed",
            Command::PeekBuried => "peek-buried",
            Command::Kick(_) => "kick",
            Command::KickJob(_) => "kick-job",
            Command::Stats => "stats",
            Command::StatsTube(_) => "stats-tube",
            Command::StatsJob(_) => "stats-job",
            Command::ListTubes => "list-tubes",
            Command::ListTubeUsed => "list-tube-used",
            Command::ListTubesWatched => "list-tubes-watched",
            Command::PauseTube { .. } => "pause-tube",
            Command::Quit => "quit",
        }
    }

    /// Whether the reply may be large: a job, or the names of all tubes.
    pub(super) fn replies_with_much(&self) -> bool {
        use Command::{ListTubes, Peek, PeekBuried, PeekDelayed, PeekReady, ReserveJob};
        matches!(self, Peek(_) | PeekReady | PeekDelayed | PeekBuried | ReserveJob(_) | ListTubes)
    }

    /// The settlement, if the command is one by the holder and not a delete.
    pub(super) fn settling(&self) -> Option<Settling> {
        match *self {
            Command::Release { number, priority, delay_s } => {
                Some(release::settling(number, priority, delay_s))
            }
            Command::Bury { number, priority } => Some(bury::settling(number, priority)),
            Command::Touch(number) => Some(touch::settling(number)),
            _ => None,
        }
    }

    /// Executes the command, and replies. The connection itself executes puts, deletes and
    /// [settlements](Command::settling), which come in runs, reserves, which may wait, and `quit`, which ends the
    /// connection.
    pub(super) async fn run(self, session: &mut Session, replies: &mut Replies) {
        match self {
            Command::Put(_)
            | Command::Delete(_)
            | Command::Release { .. }
            | Command::Bury { .. }
            | Command::Touch(_)
            | Command::Reserve { .. }
            | Command::Quit => unreachable!("the connection's own"),
            Command::Use(tube) => use_tube::run(session, tube, replies).await,
            Command::ReserveJob(number) => reserve_job::run(session, number, replies).await,
            Command::Watch(tube) => watch::run(session, tube, replies).await,
            Command::Ignore(tube) => ignore::run(session, &tube, replies),
            Command::Peek(number) => peek::run(session, number, replies).await,
            Command::PeekReady => peek_ready::run(session, replies).await,
            Command::PeekDelayed => peek_delayed::run(session, replies).await,
            Command::PeekBuried => peek_buried::run(session, replies).await,
            Command::Kick(bound) => kick::run(session, bound, replies).await,
            Command::KickJob(number) => kick_job::run(session, number, replies).await,
            Command::Stats => stats::run(session, replies).await,
            Command::StatsTube(tube) => stats_tube::run(session, tube, replies).await,
            Command::StatsJob(number) => stats_job::run(session, number, replies).await,
            Command::ListTubes => list_tubes::run(session, replies).await,
            Command::ListTubeUsed => list_tube_used::run(session, replies),
            Command::ListTubesWatched => list_tubes_watched::run(session, replies),
            Command::PauseTube { tube, delay_s } => pause_tube::run(session, tube, delay_s, replies).await,
        }
    }
}

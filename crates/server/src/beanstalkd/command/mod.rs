//! The commands: the index of verbs. Each has a file of its own, with what it reads and what it does.

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
mod stats;
mod stats_job;
mod stats_tube;
mod touch;
mod use_tube;
mod watch;

use dwell_model::QueueName;

use super::arguments::Arguments;
use super::counters::Counted;
use super::frame::Malformed;
use super::reply::Replies;
use super::session::Session;

pub(super) use delete::delete_all;
pub(crate) use put::PutJob;
pub(super) use put::{PutLine, put_all};
pub(super) use reserve::{Reserved, Wish};

/// A command, as a client sent it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Put(PutJob),
    Use(QueueName),
    /// Without a timeout it waits for as long as it takes.
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

/// What a line begins with, and how it is read from there. The first that fits counts: `stats-job` without its
/// space is `stats` with something behind it, and malformed.
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
    /// Reads a line; `None` if its verb is none. A `put` is not among them: see [`PutLine`].
    pub(super) fn parse(line: &str) -> Option<Result<Command, Malformed>> {
        VERBS.iter().find_map(|(verb, parse)| line.strip_prefix(verb).map(|rest| parse(Arguments::new(rest))))
    }

    /// What lines begin with, other than that of a put.
    pub(super) fn verbs() -> impl Iterator<Item = &'static str> {
        VERBS.iter().map(|(verb, _)| *verb)
    }

    /// What `stats` counts it as; not all commands are.
    pub(super) fn counted(&self) -> Option<Counted> {
        Some(match self {
            Command::Put(_) => Counted::Put,
            Command::Use(_) => Counted::Use,
            Command::Reserve { timeout_s: None } => Counted::Reserve,
            Command::Reserve { timeout_s: Some(_) } => Counted::ReserveWithTimeout,
            Command::Delete(_) => Counted::Delete,
            Command::Release { .. } => Counted::Release,
            Command::Bury { .. } => Counted::Bury,
            Command::Touch(_) => Counted::Touch,
            Command::Watch(_) => Counted::Watch,
            Command::Ignore(_) => Counted::Ignore,
            Command::Peek(_) => Counted::Peek,
            Command::PeekReady => Counted::PeekReady,
            Command::PeekDelayed => Counted::PeekDelayed,
            Command::PeekBuried => Counted::PeekBuried,
            Command::Kick(_) => Counted::Kick,
            Command::Stats => Counted::Stats,
            Command::StatsTube(_) => Counted::StatsTube,
            Command::StatsJob(_) => Counted::StatsJob,
            Command::ListTubes => Counted::ListTubes,
            Command::ListTubeUsed => Counted::ListTubeUsed,
            Command::ListTubesWatched => Counted::ListTubesWatched,
            Command::PauseTube { .. } => Counted::PauseTube,
            Command::ReserveJob(_) | Command::KickJob(_) | Command::Quit => return None,
        })
    }

    /// Does what it says, and replies. Puts and deletes come in runs, reserves may wait, and `quit` ends the
    /// connection: these the connection does itself.
    pub(super) async fn run(self, session: &mut Session, replies: &mut Replies) {
        match self {
            Command::Put(put) => put_all(session, vec![put], replies).await,
            Command::Delete(number) => delete_all(session, &[number], replies).await,
            Command::Reserve { .. } | Command::Quit => unreachable!("the connection's own"),
            Command::Use(tube) => use_tube::run(session, tube, replies).await,
            Command::ReserveJob(number) => reserve_job::run(session, number, replies).await,
            Command::Release { number, priority, delay_s } => {
                release::run(session, number, priority, delay_s, replies).await;
            }
            Command::Bury { number, priority } => bury::run(session, number, priority, replies).await,
            Command::Touch(number) => touch::run(session, number, replies).await,
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

//! One connection: reads commands, executes them in order, writes replies.
//!
//! - `reading`: commands as they arrive; `runs`: those that share a call to the store
//! - `reserving`: waits for jobs, and meanwhile for the client to disconnect
//! - `writing`: replies, before any wait
//!
//! Ground rules:
//! 1. Replies go out in the order of their commands, and a command begins when the one before it has its reply.
//! 2. Consecutive puts that have arrived share one call to the store, and so one sync; so do deletes, so do releases,
//!    buries and touches, and so do reserves.
//! 3. While a reserve waits, no later command is executed; but the socket is read, a little, to detect its end. The
//!    reserve's reply is written before any later command begins, since the lease runs.
//! 4. A client that always has another command ready yields to others after a few turns.
//! 5. Jobs belong to the connection. However it ends, dropping its [`Session`] gives them back.

mod reading;
mod reserving;
mod runs;
mod writing;

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::time::sleep;

use self::reading::Coming;
use self::writing::WRITE;
use super::BeanstalkdShared;
use super::command::{Command, delete_all, put_all, settle_all};
use super::command_log::Logged;
use super::counters::CountedCommand;
use super::frame::{Frame, Parser};
use super::reply::{Replies, Word};
use super::session::Session;
use crate::admission::Growing;
use crate::listener::Admitted;
use crate::metrics::Protocol;

/// The number of turns, each a command or a run of them, after which the connection yields.
const TURNS: u32 = 16;

/// The initial and the maximum pause in reading a connection after the store had no room.
const FIRST_PAUSE_MS: u64 = 10;
const LONGEST_PAUSE_MS: u64 = 1_000;

/// Serves a connection to its end.
pub(crate) async fn serve(stream: TcpStream, _place: Admitted, shared: Arc<BeanstalkdShared>) {
    // A failure costs only speed, or delays the notice of a disconnect.
    let _ = stream.set_nodelay(true);
    let _ = SockRef::from(&stream).set_keepalive(true);
    let _connected = shared.metrics.connection(Protocol::Beanstalkd);
    // The client sees for itself what breaks a connection.
    let _ = Connection::new(stream, shared).run().await;
}

/// Whether a connection is over, other than by an error.
type Ended = ControlFlow<()>;

struct Connection {
    stream: TcpStream,
    session: Session,
    parser: Parser,
    bytes: BytesMut,
    replies: Replies,
    /// A frame that was parsed and did not belong to the run before it.
    ahead: Option<Frame>,
    /// Everything that the client sends has been read.
    ended: bool,
    /// The client has closed its half of the connection, and there is nothing to wait for.
    hung_up: bool,
    /// The rate of a command that has arrived in part.
    command: Option<Coming>,
    /// Room for the large job that is arriving.
    room: Option<Growing>,
    /// The number of consecutive refusals because the store had no room.
    pushed_back: u32,
    /// The number of turns since the connection last yielded.
    turns: u32,
}

impl Connection {
    fn new(stream: TcpStream, shared: Arc<BeanstalkdShared>) -> Connection {
        let parser = Parser::new(shared.store.limits().body_len);
        let peer = stream.peer_addr().map_or_else(|_| String::new(), |peer| peer.to_string());
        Connection {
            stream,
            session: Session::new(shared, peer),
            parser,
            bytes: BytesMut::new(),
            replies: Replies::default(),
            ahead: None,
            ended: false,
            hung_up: false,
            command: None,
            room: None,
            pushed_back: 0,
            turns: 0,
        }
    }

    async fn run(&mut self) -> io::Result<()> {
        loop {
            while let Some(frame) = self.next() {
                let room = self.room.take();
                if room.is_some() {
                    // What follows the job must not keep the job's buffer.
                    self.bytes = BytesMut::from(&self.bytes[..]);
                }
                if self.handle(frame).await?.is_break() {
                    return self.flush().await;
                }
                if self.replies.urgent || self.replies.bytes.len() >= WRITE {
                    self.flush().await?;
                }
                self.turn().await?;
            }
            self.flush().await?;
            // A connection that holds jobs may finish them while the server drains; a line that has arrived in part has
            // had no effect.
            let is_done = !self.parser.is_in_body() && self.session.held.is_empty();
            if self.ended || (is_done && self.session.shared.is_draining()) {
                return Ok(());
            }
            self.slow_down().await;
            self.read().await?;
        }
    }

    /// Yields now and then. A store that answers at once would never make this task wait.
    async fn turn(&mut self) -> io::Result<()> {
        self.turns += 1;
        if self.turns == TURNS {
            self.turns = 0;
            self.flush().await?;
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Slows down a client that goes on putting into a full store: the pause grows up to a second, until a command
    /// succeeds. Only its own connection waits.
    async fn slow_down(&mut self) {
        if !std::mem::take(&mut self.replies.pushed_back) {
            self.pushed_back = 0;
            return;
        }
        let pause = (FIRST_PAUSE_MS << self.pushed_back.min(16)).min(LONGEST_PAUSE_MS);
        self.pushed_back += 1;
        let shared = Arc::clone(&self.session.shared);
        tokio::select! {
            () = sleep(Duration::from_millis(pause)) => {}
            () = shared.drained() => {}
        }
    }

    fn next(&mut self) -> Option<Frame> {
        let frame = self.ahead.take().or_else(|| self.parser.next(&mut self.bytes))?;
        self.command = None;
        self.session.forget_lapsed();
        Some(frame)
    }

    async fn handle(&mut self, frame: Frame) -> io::Result<Ended> {
        match frame {
            Frame::Command(command) => return self.command(command).await,
            Frame::Foreign => return Ok(Ended::Break(())),
            Frame::BadFormat => self.refuse(Word::BadFormat, "bad_format"),
            Frame::UnknownCommand => self.refuse(Word::UnknownCommand, "unknown_command"),
            Frame::ExpectedCrlf => {
                self.session.shared.counters.count(CountedCommand::Put);
                self.session.is_producer();
                self.refuse(Word::ExpectedCrlf, "expected_crlf");
            }
            Frame::JobTooBig => {
                self.session.shared.counters.count(CountedCommand::Put);
                self.refuse(Word::JobTooBig, "body_too_large");
            }
            Frame::NoRoom => {
                self.session.shared.counters.count(CountedCommand::Put);
                self.session.is_producer();
                if self.session.shared.is_draining() {
                    self.replies.word(Word::Draining);
                } else {
                    self.refuse(Word::OutOfMemory, "overloaded");
                }
            }
        }
        Ok(Ended::Continue(()))
    }

    /// Refuses what no store could execute.
    pub(super) fn refuse(&mut self, word: Word, code: &'static str) {
        tracing::debug!(target: "dwell::beanstalkd", peer = %self.session.peer, code, "refused");
        self.session.shared.metrics.refused(code);
        self.replies.word(word);
    }

    async fn command(&mut self, command: Command) -> io::Result<Ended> {
        let logged = Logged::begin(&command, &self.session);
        if let Some(counted) = command.counted() {
            self.session.shared.counters.count(counted);
        }
        let mut flow = Ended::Continue(());
        let commands = match command {
            Command::Quit => {
                flow = Ended::Break(());
                1
            }
            Command::Put(first) => {
                let jobs = self.puts(first);
                let count = jobs.len();
                self.answer(async |session, replies| put_all(session, jobs, replies).await).await?;
                count
            }
            Command::Delete(first) => {
                let numbers = self.deletes(first);
                let count = numbers.len();
                self.answer(async |session, replies| delete_all(session, &numbers, replies).await).await?;
                count
            }
            Command::Reserve { timeout_s } => {
                let count = self.reserves(timeout_s);
                self.reserve(timeout_s, count).await?;
                count
            }
            other => match other.settling() {
                Some(first) => {
                    let run = self.settlements(first);
                    let count = run.len();
                    self.answer(async |session, replies| settle_all(session, run, replies).await).await?;
                    count
                }
                None => {
                    if other.replies_with_much() && !self.has_room().await? {
                        self.refuse(Word::OutOfMemory, "overloaded");
                    } else {
                        self.answer(async |session, replies| other.run(session, replies).await).await?;
                    }
                    1
                }
            },
        };
        if let Some(logged) = logged {
            logged.end(&self.session, commands);
        }
        Ok(flow)
    }
}

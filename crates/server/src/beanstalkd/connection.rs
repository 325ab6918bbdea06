//! One connection: reads, does what was asked in the order of asking, writes.
//!
//! Ground rules:
//! 1. Replies go out in the order of their commands, and a command begins when the one before it has its reply.
//! 2. Puts that have arrived one behind the other go to the store in one call, so that one sync serves them;
//!    so do deletes, so do releases, buries and touches, and so do reserves.
//! 3. While a reserve waits, nothing behind it is looked at; but the socket is read, a little, to learn of its end.
//! 4. A client that always has another command for us is left alone after a few, so that others have their turn.
//! 5. Jobs belong to the connection. However it ends, dropping its [`Session`] gives them back.

use std::collections::HashSet;
use std::future::poll_fn;
use std::io;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use dwell_store::{Delivery, Error, Take};
use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::Shared;
use super::command::{Command, PutJob, Reserved, Settling, Wish, delete_all, put_all, settle_all};
use super::counters::Counted;
use super::frame::{Frame, Parser};
use super::logged::Logged;
use super::reply::{Replies, Word};
use super::session::Session;
use crate::admission::Held;
use crate::listener::Admitted;
use crate::metrics::Protocol;

/// What one read may bring.
const READ: usize = 64 * 1024;

/// A job of so many bytes is large: room is set aside for it before it is read.
const LARGE: usize = 16 * 1024;

/// Replies are written at the latest when they have come to so many bytes.
const WRITE: usize = 256 * 1024;

/// The most commands, and the most bytes of bodies, that go to the store in one call.
const RUN: usize = 1_024;
const RUN_BYTES: usize = 4 * 1024 * 1024;

/// After so many turns, each a command or a run of them, it is the others' turn.
const TURNS: u32 = 16;

/// How long a connection is left unread after the store had no room, at first and at most.
const FIRST_PAUSE_MS: u64 = 10;
const LONGEST_PAUSE_MS: u64 = 1_000;

/// Serves a connection to its end.
pub(crate) async fn serve(stream: TcpStream, _place: Admitted, shared: Arc<Shared>) {
    // Either only costs speed, or late notice that the other side has gone.
    let _ = stream.set_nodelay(true);
    let _ = SockRef::from(&stream).set_keepalive(true);
    let _connected = shared.metrics.connection(Protocol::Beanstalkd);
    let parser = Parser::new(shared.store.limits().body_len);
    let peer = stream.peer_addr().map_or_else(|_| String::new(), |peer| peer.to_string());
    let mut connection = Connection {
        stream,
        session: Session::new(shared, peer),
        parser,
        bytes: BytesMut::new(),
        replies: Replies::default(),
        ahead: None,
        ended: false,
        command: None,
        held: None,
        pushed_back: 0,
        turns: 0,
    };
    // What breaks a connection is the client's to see.
    let _ = connection.run().await;
}

/// Why a connection is over, other than by its own fault.
type Flow = ControlFlow<()>;

struct Connection {
    stream: TcpStream,
    session: Session,
    parser: Parser,
    bytes: BytesMut,
    replies: Replies,
    /// A frame that was read and did not belong to the run before it.
    ahead: Option<Frame>,
    /// The client sends no more.
    ended: bool,
    /// The command that has begun and not yet arrived: when it began, and how many bytes have come since.
    command: Option<(u64, u64)>,
    /// Room for a large job that is coming.
    held: Option<Held>,
    /// How often in a row the store had no room for what was asked.
    pushed_back: u32,
    /// How many turns it has had since the others had theirs.
    turns: u32,
}

impl Connection {
    async fn run(&mut self) -> io::Result<()> {
        loop {
            while let Some(frame) = self.next() {
                if self.handle(frame).await?.is_break() {
                    return self.flush().await;
                }
                if self.replies.bytes.len() >= WRITE {
                    self.flush().await?;
                }
                self.turn().await;
            }
            self.flush().await?;
            // A connection that holds jobs may finish them while the server drains.
            let is_idle = self.bytes.is_empty() && self.session.held.is_empty();
            if self.ended || (is_idle && self.session.shared.is_draining()) {
                return Ok(());
            }
            self.slow_down().await;
            self.read().await?;
        }
    }

    /// Lets the others have their turn, now and then. A store that answers at once would never make this one wait.
    async fn turn(&mut self) {
        self.turns += 1;
        if self.turns == TURNS {
            self.turns = 0;
            tokio::task::yield_now().await;
        }
    }

    /// A client that goes on putting into a full store is read ever more slowly, up to once a second, until
    /// something was done again. Only its own connection waits.
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

    async fn handle(&mut self, frame: Frame) -> io::Result<Flow> {
        match frame {
            Frame::Command(command) => return self.command(command).await,
            Frame::Foreign => return Ok(Flow::Break(())),
            Frame::BadFormat => self.refuse(Word::BadFormat, "bad_format"),
            Frame::UnknownCommand => self.refuse(Word::UnknownCommand, "unknown_command"),
            Frame::ExpectedCrlf => {
                self.session.shared.counters.count(Counted::Put);
                self.session.is_producer();
                self.refuse(Word::ExpectedCrlf, "expected_crlf");
            }
            Frame::JobTooBig => {
                self.session.shared.counters.count(Counted::Put);
                self.refuse(Word::JobTooBig, "body_too_large");
            }
        }
        Ok(Flow::Continue(()))
    }

    /// Answers what can not be a command of any store's.
    fn refuse(&mut self, word: Word, code: &'static str) {
        tracing::debug!(target: "dwell::beanstalkd", peer = %self.session.peer, code, "refused");
        self.session.shared.metrics.refused(code);
        self.replies.word(word);
    }

    async fn command(&mut self, command: Command) -> io::Result<Flow> {
        let logged = Logged::begin(&command, &self.session);
        if let Some(counted) = command.counted() {
            self.session.shared.counters.count(counted);
        }
        let mut flow = Flow::Continue(());
        let commands = match command {
            Command::Quit => {
                flow = Flow::Break(());
                1
            }
            Command::Put(first) => {
                let jobs = self.puts(first);
                let count = jobs.len();
                put_all(&mut self.session, jobs, &mut self.replies).await;
                count
            }
            Command::Delete(first) => {
                let numbers = self.deletes(first);
                delete_all(&mut self.session, &numbers, &mut self.replies).await;
                numbers.len()
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
                    settle_all(&mut self.session, run, &mut self.replies).await;
                    count
                }
                None => {
                    other.run(&mut self.session, &mut self.replies).await;
                    1
                }
            },
        };
        if let Some(logged) = logged {
            logged.end(&self.session, commands);
        }
        Ok(flow)
    }

    /// The next command if it has arrived and `fits`; it stays where it is if not.
    fn next_if<T>(&mut self, fits: impl FnOnce(Command) -> Result<T, Command>) -> Option<T> {
        match self.ahead.take().or_else(|| self.parser.next(&mut self.bytes))? {
            Frame::Command(command) => {
                let counted = command.counted();
                match fits(command) {
                    Ok(fitting) => {
                        counted.into_iter().for_each(|counted| self.session.shared.counters.count(counted));
                        return Some(fitting);
                    }
                    Err(command) => self.ahead = Some(Frame::Command(command)),
                }
            }
            other => self.ahead = Some(other),
        }
        None
    }

    fn run_len(&self) -> usize {
        RUN.min(self.session.shared.batch())
    }

    /// `first` and the puts behind it.
    fn puts(&mut self, first: PutJob) -> Vec<PutJob> {
        let mut bytes = first.body.len();
        let mut jobs = vec![first];
        while jobs.len() < self.run_len() && bytes < RUN_BYTES {
            let next = self.next_if(|command| match command {
                Command::Put(job) => Ok(job),
                other => Err(other),
            });
            let Some(job) = next else { break };
            bytes += job.body.len();
            jobs.push(job);
        }
        jobs
    }

    /// `first` and the deletes behind it, up to the first that is named twice.
    fn deletes(&mut self, first: u64) -> Vec<u64> {
        let mut numbers = vec![first];
        let mut seen = HashSet::from([first]);
        while numbers.len() < self.run_len() {
            let next = self.next_if(|command| match command {
                Command::Delete(number) if seen.insert(number) => Ok(number),
                other => Err(other),
            });
            let Some(number) = next else { break };
            numbers.push(number);
        }
        numbers
    }

    /// `first` and the releases, buries and touches behind it, up to the first of a job that is named twice.
    fn settlements(&mut self, first: Settling) -> Vec<Settling> {
        let mut seen = HashSet::from([first.number]);
        let mut run = vec![first];
        while run.len() < self.run_len() {
            let next = self.next_if(|command| match command.settling() {
                Some(one) if seen.insert(one.number) => Ok(one),
                _ => Err(command),
            });
            let Some(one) = next else { break };
            run.push(one);
        }
        run
    }

    /// How many reserves of the same kind there are, with the one in hand.
    fn reserves(&mut self, timeout_s: Option<u32>) -> usize {
        let same = Command::Reserve { timeout_s };
        let mut count = 1;
        while count < self.run_len()
            && self.next_if(|command| if command == same { Ok(()) } else { Err(command) }).is_some()
        {
            count += 1;
        }
        count
    }

    /// Answers `count` reserves that came together: what is ready goes to the first of them in one take, and
    /// each that finds nothing waits in its turn.
    async fn reserve(&mut self, timeout_s: Option<u32>, count: usize) -> io::Result<()> {
        self.session.is_worker();
        let mut left = count;
        while left > 0 {
            left -= self.reserve_some(timeout_s, left).await?;
            if self.replies.bytes.len() >= WRITE {
                self.flush().await?;
            }
        }
        Ok(())
    }

    /// Answers at least one of `count` reserves; says how many.
    async fn reserve_some(&mut self, timeout_s: Option<u32>, count: usize) -> io::Result<usize> {
        let until_ms =
            timeout_s.map(|seconds| self.session.now_ms().saturating_add(u64::from(seconds) * 1_000));
        let wish = Wish { count, until_ms };
        let mut empty = false;
        loop {
            self.session.forget_lapsed();
            let draining = self.session.shared.is_draining();
            let may_wait = !self.ended && !draining;
            // Once nothing was there, waiting is all that is left; a server that stops hands out no more.
            match wish.step(&self.session, may_wait, empty || draining, self.session.now_ms()) {
                Reserved::Answer(word) => {
                    self.replies.word(word);
                    return Ok(1);
                }
                Reserved::Take(take) => match self.take(take).await? {
                    Ok(deliveries) if deliveries.is_empty() => empty = true,
                    Ok(deliveries) => {
                        self.session.reserved(&deliveries, &mut self.replies);
                        return Ok(deliveries.len());
                    }
                    Err(error) => {
                        self.replies.word(Word::from(&error));
                        return Ok(1);
                    }
                },
            }
        }
    }

    /// Takes; if it has to wait, until the client hangs up or the server drains.
    async fn take(&mut self, take: Take) -> io::Result<Result<Vec<Delivery>, Error>> {
        let shared = Arc::clone(&self.session.shared);
        shared.memory.room().await;
        if take.wait_ms == 0 {
            return Ok(shared.store.take(take).await);
        }
        // Replies to what came before do not wait with it.
        self.flush().await?;
        let _waiting = Waiting::begin(&shared);
        let mut taken = pin!(shared.store.take(take));
        let mut drained = pin!(shared.drained());
        loop {
            // A client that sends ever more behind a waiting reserve is read no further.
            let listens = self.bytes.len() < READ;
            self.bytes.reserve(if listens { 256 } else { 0 });
            tokio::select! {
                biased;
                taken = &mut taken => return Ok(taken),
                () = &mut drained => return Ok(Ok(Vec::new())),
                read = self.stream.read_buf(&mut self.bytes), if listens => {
                    if read? == 0 {
                        self.ended = true;
                        return Ok(Ok(Vec::new()));
                    }
                }
            }
        }
    }

    /// Waits for more bytes, or for the server to drain. A client that is idle for too long, or too slow with
    /// a command that it has begun, is cut off.
    async fn read(&mut self) -> io::Result<()> {
        let shared = Arc::clone(&self.session.shared);
        self.make_room().await;
        let is_idle = self.bytes.is_empty() && self.parser.is_between_commands();
        let limit_ms = if is_idle { shared.config.idle_ms } else { Some(shared.config.read_ms) };
        if is_idle {
            // An idle connection keeps no buffer.
            self.bytes = BytesMut::new();
            self.command = None;
        }
        let may_stop = is_idle && !shared.is_draining();
        let read = tokio::select! {
            read = within(limit_ms, self.read_some()) => read?,
            () = shared.drained(), if may_stop => return Ok(()),
        };
        if read == 0 {
            self.ended = true;
        }
        let now_ms = self.session.now_ms();
        let (began_ms, len) = self.command.get_or_insert((now_ms, 0));
        *len += read as u64;
        let allowed_ms = len.saturating_mul(1_000).checked_div(shared.config.read_rate);
        let took_ms = now_ms.saturating_sub(*began_ms);
        match allowed_ms {
            Some(allowed_ms) if took_ms > shared.config.read_ms.saturating_add(allowed_ms) => {
                Err(io::ErrorKind::TimedOut.into())
            }
            _ => Ok(()),
        }
    }

    /// Sets room aside for a large job that is coming, before it is read, and gives back what one had that has come.
    async fn make_room(&mut self) {
        let body = self.parser.coming_body().filter(|body| *body >= LARGE).unwrap_or(0) as u64;
        if self.held.as_ref().map_or(0, Held::bytes) == body {
            return;
        }
        if self.held.take().is_some() {
            // What came behind the job is not to keep the job's buffer.
            self.bytes = BytesMut::from(&self.bytes[..]);
        }
        if body > 0 {
            self.held = Some(self.session.shared.memory.admit(body).await);
        }
    }

    /// Reads what has come; while nothing has, there is no buffer to read it into. May be dropped: nothing is lost.
    async fn read_some(&mut self) -> io::Result<usize> {
        let (stream, bytes, turns) = (&mut self.stream, &mut self.bytes, &mut self.turns);
        let kept = bytes.len();
        let body = self.parser.coming_body().map_or(0, |body| (body + 2).saturating_sub(kept));
        poll_fn(|context| {
            // A stream seems readable until a read has found nothing, or less than there was room for: a new one does, and
            // one whose last read was full.
            let mut read = stream.poll_read_ready(context).map_ok(|()| 0);
            if let Poll::Ready(Ok(_)) = read {
                bytes.reserve(body.max(READ));
                read = pin!(stream.read_buf(bytes)).poll(context);
                if read.is_pending() && kept == 0 {
                    *bytes = BytesMut::new();
                }
            }
            if read.is_pending() {
                // While it waits, the others have their turn.
                *turns = 0;
            }
            read
        })
        .await
    }

    /// Writes all replies. A client that does not read them is cut off in time.
    async fn flush(&mut self) -> io::Result<()> {
        if self.replies.bytes.is_empty() {
            return Ok(());
        }
        let limit = Duration::from_millis(self.session.shared.config.write_ms);
        let len = self.replies.bytes.len();
        let _held = (len >= READ).then(|| self.session.shared.memory.add(len as u64));
        while !self.replies.bytes.is_empty() {
            match timeout(limit, self.stream.write_buf(&mut self.replies.bytes)).await {
                Ok(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => written?,
                Err(_) => return Err(io::ErrorKind::TimedOut.into()),
            };
        }
        self.replies.bytes = BytesMut::new();
        Ok(())
    }
}

/// Waits for `done`, for at most `limit_ms` if there is a limit.
async fn within<T>(limit_ms: Option<u64>, done: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match limit_ms {
        None => done.await,
        Some(ms) => match timeout(Duration::from_millis(ms), done).await {
            Ok(done) => done,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        },
    }
}

/// Counts a connection that waits.
struct Waiting<'a>(&'a Shared);

impl<'a> Waiting<'a> {
    fn begin(shared: &'a Shared) -> Waiting<'a> {
        shared.counters.waiting.add(1);
        Waiting(shared)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.counters.waiting.sub(1);
    }
}

//! The connection pool, and one statement per call.
//!
//! Statements are unnamed and take one round trip, so that PgBouncer may send each to a different server connection. A
//! call has a connection of its own while it runs: a call that waits for a lock delays no other, and a warning of the
//! server belongs to the call under way.

use std::future::poll_fn;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_postgres::config::{Host, LoadBalanceHosts};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, CancelToken, Client, Config, Notification, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::Address;
use crate::fault::Fault;

/// The most retries of a statement after a deadlock or serialization failure.
const REPEATS: u32 = 5;

/// The function of PostgreSQL that warns when a commit no longer waits for a standby.
const WAIT_FOR_STANDBY: &str = "SyncRepWaitForLSN";

/// The most notifications that wait to be read; what comes then is lost, and the sweeps of takes make up for it.
const MOST_NOTIFICATIONS: usize = 1_024;

/// An argument of a statement, with its type.
pub(crate) type Argument<'a> = (&'a (dyn ToSql + Sync), Type);

/// Why a statement returned no rows.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A refusal by dwell's functions: its code, its details, and the server's message.
    Refused { code: String, info: String, words: String },
    /// An error of the server.
    Fault { fault: Fault, reason: String },
    /// No connection was available: nothing was sent.
    NotSent { fault: Fault, reason: String },
    /// The statement was sent, and its outcome is unknown.
    Unknown { reason: String },
}

/// A pool of connections to one PostgreSQL.
pub(crate) struct Link {
    address: Address,
    /// It is not used where the address says that there is no TLS.
    tls: MakeRustlsConnect,
    schema: String,
    permits: Semaphore,
    idle: Mutex<Vec<Connected>>,
    /// Each host by itself, and which one the last connection led to.
    hosts: Vec<Config>,
    last_host: AtomicUsize,
    /// The number of lost connections. What was learnt from the server
    /// before a loss may not hold for the server that answers next.
    lost: AtomicU64,
}

/// A connection.
pub(crate) struct Connected {
    client: Client,
    warned: Arc<AtomicBool>,
    /// The task that reads and writes the connection.
    task: AbortHandle,
}

impl Connected {
    pub(crate) fn get(&self) -> &Client {
        &self.client
    }

    /// Closes the connection at once, also while it waits for an answer.
    pub(crate) fn abort(self) {
        self.task.abort();
    }
}

/// A connection outside the pool, for calls that must not wait for others.
#[derive(Default)]
pub(crate) struct Own(Option<Connected>);

/// How far a call has come, for when its time is over.
#[derive(Default)]
struct Way {
    /// It has one of the pool's places for a connection.
    has_permit: bool,
    /// A statement was sent: how to cancel it, and its connection's task.
    sent: Option<(CancelToken, AbortHandle)>,
    /// Why the outcome of an earlier attempt is unknown.
    doubt: Option<String>,
}

impl Link {
    pub(crate) fn new(address: Address, tls: MakeRustlsConnect) -> Link {
        Link {
            tls,
            schema: address.quoted_schema(),
            permits: Semaphore::new(address.connections),
            idle: Mutex::new(Vec::new()),
            hosts: address.by_host(),
            last_host: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
            address,
        }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Notes that another server answers, though no connection was lost.
    pub(crate) fn has_moved(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of connections lost so far.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// The schema, quoted for SQL.
    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    /// Calls a function of the schema. `call` is its name with placeholders for the
    /// arguments, as in `get_1($1, $2)`. The last columns of each row have the notes of the call (`noted_1`), and
    /// whether it is to be repeated (`is_behind`); a call without rows returns one row with these alone.
    ///
    /// It is retried after a deadlock; if `is_harmless`, also once after a lost connection. The timeout of the address bounds
    /// all of it.
    pub(crate) async fn call(
        &self,
        call: &str,
        arguments: &[Argument<'_>],
        is_harmless: bool,
    ) -> Result<Vec<Row>, Failure> {
        let (sql, limit) = (self.sql(call), self.address.timeout);
        let mut way = Way::default();
        let answered = timeout(limit, self.attempts(&mut way, &sql, arguments, is_harmless)).await;
        let failure = match answered {
            Ok(Ok(rows)) => return Ok(rows),
            Ok(Err(failure)) => failure,
            Err(_) => self.overdue(&mut way, limit),
        };
        Err(match (failure, way.doubt) {
            // Nothing was done by the last attempt, but perhaps by the first.
            (Failure::NotSent { .. } | Failure::Fault { .. }, Some(reason)) => Failure::Unknown { reason },
            (failure, _) => failure,
        })
    }

    /// As [`call`](Link::call), once, on a connection outside the pool, which is opened if there is none.
    pub(crate) async fn call_on(
        &self,
        own: &mut Own,
        call: &str,
        arguments: &[Argument<'_>],
        limit: Duration,
    ) -> Result<Vec<Row>, Failure> {
        let sql = self.sql(call);
        let mut way = Way { has_permit: true, ..Way::default() };
        let answered = timeout(limit, async {
            let connected = match own.0.take().filter(|connected| !connected.client.is_closed()) {
                Some(connected) => connected,
                None => self.connect(limit).await?,
            };
            let (answered, is_over) = self.ask(&mut way, &connected, &sql, arguments).await;
            if !is_over {
                own.0 = Some(connected);
            }
            answered
        });
        match answered.await {
            Ok(answered) => answered,
            Err(_) => Err(self.overdue(&mut way, limit)),
        }
    }

    fn sql(&self, call: &str) -> String {
        let schema = &self.schema;
        format!(
            "SELECT f.*, {schema}.noted_1() AS noted, current_setting('dwell.again', true) AS again \
            FROM (VALUES (1)) one LEFT JOIN {schema}.{call} f ON true"
        )
    }

    async fn attempts(
        &self,
        way: &mut Way,
        sql: &str,
        arguments: &[Argument<'_>],
        is_harmless: bool,
    ) -> Result<Vec<Row>, Failure> {
        for repeats in 1_u32.. {
            let failure = match self.once(way, sql, arguments).await {
                Ok(rows) => return Ok(rows),
                Err(failure) => failure,
            };
            match failure {
                Failure::Fault { fault: Fault::Repeat, .. } if repeats <= REPEATS => {}
                Failure::Unknown { reason } if is_harmless && way.doubt.is_none() => way.doubt = Some(reason),
                failure => return Err(failure),
            }
            // The delay grows, so that the same statements do not collide again.
            tokio::time::sleep(Duration::from_millis(u64::from(repeats * repeats))).await;
        }
        Err(Failure::Unknown { reason: "no answer".to_owned() })
    }

    async fn once(&self, way: &mut Way, sql: &str, arguments: &[Argument<'_>]) -> Result<Vec<Row>, Failure> {
        way.has_permit = false;
        let _permit = self.permits.acquire().await.map_err(|_| Failure::NotSent {
            fault: Fault::Unavailable,
            reason: "the store is closed".to_owned(),
        })?;
        way.has_permit = true;
        let connected = match self.pooled() {
            Some(connected) => connected,
            None => self.connect(self.address.timeout).await?,
        };
        let (answered, is_over) = self.ask(way, &connected, sql, arguments).await;
        match is_over {
            // If the server is ending or read only, the other idle connections lead to the same server.
            true => {
                self.lost.fetch_add(1, Ordering::Relaxed);
                locked(&self.idle).clear();
            }
            false => self.keep(connected),
        }
        answered
    }

    /// Sends a statement. Returns the answer, and whether the connection is not to be used again.
    async fn ask(
        &self,
        way: &mut Way,
        connected: &Connected,
        sql: &str,
        arguments: &[Argument<'_>],
    ) -> (Result<Vec<Row>, Failure>, bool) {
        connected.warned.store(false, Ordering::Relaxed);
        way.sent = Some((connected.client.cancel_token(), connected.task.clone()));
        let answered = connected.client.query_typed(sql, arguments).await;
        way.sent = None;
        let has_warned = connected.warned.load(Ordering::Relaxed);
        let failure = match answered {
            // A commit whose wait for a standby was cancelled succeeds with a warning.
            Ok(_) if has_warned => Failure::Unknown {
                reason: "PostgreSQL warned about the commit; a standby may not have it".to_owned(),
            },
            Ok(rows) => return (Ok(rows), false),
            Err(error) => match failure_of(&error) {
                // PgBouncer has lost its server, perhaps after the commit.
                Failure::Fault { reason, .. } if is_of_the_connection(&error) => Failure::Unknown { reason },
                failure => failure,
            },
        };
        let is_over = connected.client.is_closed()
            || matches!(&failure, Failure::Fault { fault: Fault::ReadOnly | Fault::Unavailable, .. });
        (Err(failure), is_over)
    }

    /// The failure of a call whose time is over. A statement that may still be running is cancelled, and its connection
    /// ended, in the background.
    fn overdue(&self, way: &mut Way, limit: Duration) -> Failure {
        let ms = limit.as_millis();
        let Some((cancel, task)) = way.sent.take() else {
            return match way.has_permit {
                true => Failure::NotSent {
                    fault: Fault::Unavailable,
                    reason: format!("no connection within {ms} ms"),
                },
                false => Failure::NotSent {
                    fault: Fault::Overloaded,
                    reason: format!("all {} connections were busy for {ms} ms", self.address.connections),
                },
            };
        };
        self.lost.fetch_add(1, Ordering::Relaxed);
        let tls = self.tls.clone();
        tokio::spawn(async move {
            // PgBouncer knows whom to cancel only while the connection is there.
            let _ = timeout(limit, cancel.cancel_query(tls)).await;
            task.abort();
        });
        Failure::Unknown { reason: format!("no answer within {ms} ms") }
    }

    fn pooled(&self) -> Option<Connected> {
        let mut idle = locked(&self.idle);
        let before = idle.len();
        idle.retain(|connected| !connected.client.is_closed());
        self.lost.fetch_add((before - idle.len()) as u64, Ordering::Relaxed);
        idle.pop()
    }

    fn keep(&self, connected: Connected) {
        if !self.permits.is_closed() {
            locked(&self.idle).push(connected);
        }
    }

    /// Opens a connection, at first to the host that the last one led to. Each host gets an equal share
    /// of the time, so that one that does not answer leaves some for the others.
    async fn connect(&self, limit: Duration) -> Result<Connected, Failure> {
        self.connect_with(limit, None).await
    }

    async fn connect_with(
        &self,
        limit: Duration,
        heard: Option<mpsc::Sender<Notification>>,
    ) -> Result<Connected, Failure> {
        let hosts = self.hosts.len();
        let first = match self.address.config.get_load_balance_hosts() {
            LoadBalanceHosts::Random => usize::from(random_byte()) % hosts,
            _ => self.last_host.load(Ordering::Relaxed),
        };
        // With several hosts one share is left for the statement.
        let shares = if hosts == 1 { 1 } else { u32::try_from(hosts + 1).unwrap_or(u32::MAX) };
        let share = limit / shares;
        let mut failures = Vec::new();
        for index in (first..hosts).chain(0..first) {
            // A handshake is a large future, and rare.
            match Box::pin(self.connect_to(&self.hosts[index], share, heard.clone())).await {
                Ok(connected) => {
                    self.last_host.store(index, Ordering::Relaxed);
                    return Ok(connected);
                }
                Err((fault, reason)) => {
                    failures.push((fault, format!("{}: {reason}", name_of(&self.hosts[index]))))
                }
            }
        }
        // The fault of the last one, with the reasons of all.
        let reasons: Vec<_> = failures.iter().map(|(_, reason)| reason.as_str()).collect();
        let reason = reasons.join("; ");
        let fault = failures.last().map_or(Fault::Unavailable, |(fault, _)| *fault);
        Err(Failure::NotSent { fault, reason })
    }

    async fn connect_to(
        &self,
        host: &Config,
        limit: Duration,
        heard: Option<mpsc::Sender<Notification>>,
    ) -> Result<Connected, (Fault, String)> {
        let connecting = timeout(limit, host.connect(self.tls.clone())).await;
        let connecting = connecting.map_err(|_| {
            (Fault::Unavailable, format!("it does not answer within {} ms", limit.as_millis()))
        })?;
        let (client, mut connection) = connecting.map_err(|error| match failure_of(&error) {
            // No statement was sent yet.
            Failure::Fault { fault: Fault::Unexpected, reason } => (Fault::Unavailable, reason),
            Failure::Fault { fault, reason } => (fault, reason),
            Failure::Unknown { reason } | Failure::NotSent { reason, .. } => (Fault::Unavailable, reason),
            Failure::Refused { words, .. } => (Fault::Unavailable, words),
        })?;
        let warned = Arc::new(AtomicBool::new(false));
        let has_warned = Arc::clone(&warned);
        let task = tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                match (message, &heard) {
                    // Other warnings, such as one about a collation's version, say nothing of a commit.
                    (AsyncMessage::Notice(notice), _) if notice.routine() == Some(WAIT_FOR_STANDBY) => {
                        has_warned.store(true, Ordering::Relaxed);
                    }
                    (AsyncMessage::Notification(notification), Some(heard)) => {
                        let _ = heard.try_send(notification);
                    }
                    _ => {}
                }
            }
        });
        Ok(Connected { client, warned, task: task.abort_handle() })
    }

    /// Opens a connection outside the pool, for the caller alone.
    pub(crate) async fn client(&self) -> Result<Connected, Failure> {
        self.connect(self.address.timeout).await
    }

    /// Opens a connection for LISTEN, with the notifications that it receives. They end with the connection.
    pub(crate) async fn listen(
        &self,
        limit: Duration,
    ) -> Result<(Connected, mpsc::Receiver<Notification>), Failure> {
        let (sender, heard) = mpsc::channel(MOST_NOTIFICATIONS);
        Ok((self.connect_with(limit, Some(sender)).await?, heard))
    }

    /// Closes the idle connections, and lets no further call begin.
    pub(crate) fn close(&self) {
        self.permits.close();
        locked(&self.idle).clear();
    }
}

/// Whether an error of the server is of class 08: the connection has failed, whatever became of the statement.
fn is_of_the_connection(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| code.code().starts_with("08"))
}

/// Classifies an error by its SQLSTATE.
pub(crate) fn failure_of(error: &tokio_postgres::Error) -> Failure {
    let Some(db) = error.as_db_error() else {
        let hint = crate::tls::hint(error).unwrap_or_default();
        return Failure::Unknown { reason: with_sources(error) + hint };
    };
    let reason = format!("{} ({})", db.message(), db.code().code());
    match Fault::of(db.code().code()) {
        Fault::Refused => Failure::Refused {
            code: db.detail().unwrap_or_default().to_owned(),
            info: db.constraint().unwrap_or_default().to_owned(),
            words: db.message().to_owned(),
        },
        fault => Failure::Fault { fault, reason },
    }
}

fn with_sources(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(Some(error), |error| error.source());
    sources.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// The name of the one host of this configuration.
fn name_of(host: &Config) -> String {
    let port = host.get_ports().first().copied().unwrap_or(5432);
    match host.get_hosts().first() {
        Some(Host::Tcp(name)) => format!("{name}:{port}"),
        #[cfg(unix)]
        Some(Host::Unix(folder)) => format!("{}:{port}", folder.display()),
        None => format!("port {port}"),
    }
}

/// Spreads connections over hosts; it need not be unpredictable.
fn random_byte() -> u8 {
    // The cast keeps the lowest bits.
    RandomState::new().hash_one(()) as u8
}

/// Locks a mutex, also after a panic: the data behind it is consistent between any two statements.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! The connection pool, and one statement per call.
//!
//! Statements are unnamed and take one round trip, so that PgBouncer may send each to a different server connection. A
//! call has a connection of its own while it runs: a call that waits for a lock delays no other, and a warning of the
//! server belongs to the call under way.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::Address;
use crate::fault::Fault;

/// The most retries of a statement after a deadlock or serialization failure.
const REPEATS: u32 = 5;

/// The function of PostgreSQL that warns when a commit no longer waits for a standby.
const WAIT_FOR_STANDBY: &str = "SyncRepWaitForLSN";

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
    /// The number of lost connections. What was learnt from the server
    /// before a loss may not hold for the server that answers next.
    lost: AtomicU64,
}

struct Connected {
    client: Client,
    warned: Arc<AtomicBool>,
}

impl Link {
    pub(crate) fn new(address: Address, tls: MakeRustlsConnect) -> Link {
        Link {
            tls,
            schema: address.quoted_schema(),
            permits: Semaphore::new(address.connections),
            idle: Mutex::new(Vec::new()),
            lost: AtomicU64::new(0),
            address,
        }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
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
    /// arguments, as in `get_1($1, $2)`. The last column of each row has the notes of the
    /// call (`noted_1`); a call without rows returns one row with the notes alone.
    ///
    /// It is retried after a deadlock; if `is_harmless`, also once after a lost connection.
    pub(crate) async fn call(
        &self,
        call: &str,
        arguments: &[Argument<'_>],
        is_harmless: bool,
    ) -> Result<Vec<Row>, Failure> {
        let schema = &self.schema;
        let sql = format!(
            "SELECT f.*, {schema}.noted_1() AS noted FROM (VALUES (1)) one LEFT JOIN {schema}.{call} f ON true"
        );
        let mut repeats = 0;
        loop {
            let failure = match self.once(&sql, arguments).await {
                Ok(rows) => return Ok(rows),
                Err(failure) => failure,
            };
            let again = match &failure {
                Failure::Fault { fault: Fault::Repeat, .. } => true,
                Failure::Unknown { .. } => is_harmless && repeats == 0,
                _ => false,
            };
            if !again || repeats == REPEATS {
                return Err(failure);
            }
            repeats += 1;
            // The delay grows, so that the same statements do not collide again.
            tokio::time::sleep(Duration::from_millis(u64::from(repeats * repeats))).await;
        }
    }

    async fn once(&self, sql: &str, arguments: &[Argument<'_>]) -> Result<Vec<Row>, Failure> {
        let limit = self.address.timeout;
        let Ok(permit) = timeout(limit, self.permits.acquire()).await else {
            let connections = self.address.connections;
            let reason = format!("all {connections} connections were busy for {} ms", limit.as_millis());
            return Err(Failure::NotSent { fault: Fault::Overloaded, reason });
        };
        let _permit = permit.map_err(|_| Failure::NotSent {
            fault: Fault::Unavailable,
            reason: "the store is closed".to_owned(),
        })?;
        let connected = match self.pooled() {
            Some(connected) => connected,
            None => self.connect().await?,
        };
        connected.warned.store(false, Ordering::Relaxed);
        let cancel = connected.client.cancel_token();
        let answered = timeout(limit, connected.client.query_typed(sql, arguments)).await;
        let Ok(answered) = answered else {
            // The statement may still be running: it is cancelled, and the connection is dropped.
            self.lost.fetch_add(1, Ordering::Relaxed);
            let _ = timeout(limit, cancel.cancel_query(self.tls.clone())).await;
            return Err(Failure::Unknown { reason: format!("no answer within {} ms", limit.as_millis()) });
        };
        let has_warned = connected.warned.load(Ordering::Relaxed);
        let failure = match answered {
            // A commit whose wait for a standby was cancelled succeeds with a warning.
            Ok(_) if has_warned => Some(Failure::Unknown {
                reason: "PostgreSQL warned about the commit; a standby may not have it".to_owned(),
            }),
            Ok(rows) => {
                self.keep(connected);
                return Ok(rows);
            }
            Err(error) => Some(match failure_of(&error) {
                // PgBouncer has lost its server, perhaps after the commit.
                Failure::Fault { reason, .. } if is_of_the_connection(&error) => Failure::Unknown { reason },
                failure => failure,
            }),
        };
        let is_over = connected.client.is_closed()
            || matches!(&failure, Some(Failure::Fault { fault: Fault::ReadOnly | Fault::Unavailable, .. }));
        match is_over {
            // If the server is ending or read only, the other idle connections lead to the same server.
            true => {
                self.lost.fetch_add(1, Ordering::Relaxed);
                locked(&self.idle).clear();
            }
            false => self.keep(connected),
        }
        Err(failure.unwrap_or(Failure::Unknown { reason: "no answer".to_owned() }))
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

    async fn connect(&self) -> Result<Connected, Failure> {
        let not_sent = |fault, reason| Failure::NotSent { fault, reason };
        let connecting = timeout(self.address.timeout, self.address.config.connect(self.tls.clone())).await;
        let connecting = connecting.map_err(|_| not_sent(Fault::Unavailable, "nobody answers".to_owned()))?;
        let (client, mut connection) = connecting.map_err(|error| match failure_of(&error) {
            // No statement was sent yet.
            Failure::Fault { fault: Fault::Unexpected, reason } => not_sent(Fault::Unavailable, reason),
            Failure::Fault { fault, reason } => not_sent(fault, reason),
            Failure::Unknown { reason } | Failure::NotSent { reason, .. } => {
                not_sent(Fault::Unavailable, reason)
            }
            Failure::Refused { words, .. } => not_sent(Fault::Unavailable, words),
        })?;
        let warned = Arc::new(AtomicBool::new(false));
        let heard = Arc::clone(&warned);
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                // Other warnings, such as one about a collation's version, say nothing of a commit.
                if let AsyncMessage::Notice(notice) = message
                    && notice.routine() == Some(WAIT_FOR_STANDBY)
                {
                    heard.store(true, Ordering::Relaxed);
                }
            }
        });
        Ok(Connected { client, warned })
    }

    /// Opens a connection outside the pool, for the caller alone.
    pub(crate) async fn client(&self) -> Result<Client, Failure> {
        Ok(self.connect().await?.client)
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

/// Locks a mutex, also after a panic: the data behind it is consistent between any two statements.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

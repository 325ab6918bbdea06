//! Connections, and one statement a call.
//!
//! Statements are unnamed and take one round trip, so that PgBouncer may give each to another server connection. A call has a connection
//! to itself while it runs: one that waits for a lock holds nobody up, and a warning of the server is known to be about it.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, NoTls, Row};

use crate::Address;
use crate::fault::Fault;

/// How often a statement is repeated that met a deadlock or could not be serialized.
const REPEATS: u32 = 5;

/// An argument of a statement and its type.
pub(crate) type Argument<'a> = (&'a (dyn ToSql + Sync), Type);

/// Why a statement gave no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A refusal of ours: its code, what it is about, and the server's words.
    Refused { code: String, info: String, words: String },
    /// The server's.
    Fault { fault: Fault, reason: String },
    /// No connection was to be had: nothing was sent.
    NotSent { fault: Fault, reason: String },
    /// The statement was sent, and what became of it is not known.
    Unknown { reason: String },
}

/// A pool of connections to one PostgreSQL.
pub(crate) struct Link {
    address: Address,
    schema: String,
    permits: Semaphore,
    idle: Mutex<Vec<Connected>>,
    /// How many connections were lost: what was learnt from the server may be another's then.
    lost: AtomicU64,
}

struct Connected {
    client: Client,
    warned: Arc<AtomicBool>,
}

impl Link {
    pub(crate) fn new(address: Address) -> Link {
        Link {
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

    /// How many connections were lost so far.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// The schema as SQL has it.
    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    /// Calls a function of the schema, whose arguments `call` names, as in `get_1($1, $2)`. The last column of each row is what it has
    /// noted (`noted_1`); where it has no rows there is one with nothing but that.
    ///
    /// It is repeated after a deadlock; `is_harmless` says that it may be repeated too where a connection was lost.
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
            // Those that met each other do not meet again at once.
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
            // It may be on its way yet: nobody waits for it any more, and the connection goes.
            self.lost.fetch_add(1, Ordering::Relaxed);
            let _ = timeout(limit, cancel.cancel_query(NoTls)).await;
            return Err(Failure::Unknown { reason: format!("no answer within {} ms", limit.as_millis()) });
        };
        let has_warned = connected.warned.load(Ordering::Relaxed);
        let failure = match answered {
            // A commit whose wait for a standby was cancelled is a success with a warning.
            Ok(_) if has_warned => Some(Failure::Unknown {
                reason: "PostgreSQL warned about the commit; a standby may not have it".to_owned(),
            }),
            Ok(rows) => {
                self.keep(connected);
                return Ok(rows);
            }
            Err(error) => Some(failure_of(&error)),
        };
        let is_over = connected.client.is_closed()
            || matches!(&failure, Some(Failure::Fault { fault: Fault::ReadOnly | Fault::Unavailable, .. }));
        match is_over {
            // Of a server that ends, or takes no writes any more, the others are no better.
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
        let connecting = timeout(self.address.timeout, self.address.config.connect(NoTls)).await;
        let connecting = connecting.map_err(|_| not_sent(Fault::Unavailable, "nobody answers".to_owned()))?;
        let (client, mut connection) = connecting.map_err(|error| match failure_of(&error) {
            // Nothing was asked yet.
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
                if let AsyncMessage::Notice(notice) = message
                    && notice.parsed_severity() == Some(tokio_postgres::error::Severity::Warning)
                {
                    heard.store(true, Ordering::Relaxed);
                }
            }
        });
        Ok(Connected { client, warned })
    }

    /// A connection of the caller's own.
    pub(crate) async fn client(&self) -> Result<Client, Failure> {
        Ok(self.connect().await?.client)
    }

    /// Ends the connections that nobody uses, and lets no call begin any more.
    pub(crate) fn close(&self) {
        self.permits.close();
        locked(&self.idle).clear();
    }
}

/// What an error is, by its SQLSTATE.
pub(crate) fn failure_of(error: &tokio_postgres::Error) -> Failure {
    let Some(db) = error.as_db_error() else {
        return Failure::Unknown { reason: with_sources(error) };
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

/// A lock's content, also after a panic: what is guarded here is whole between any two statements.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

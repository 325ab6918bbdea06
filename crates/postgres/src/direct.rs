//! Statements on a connection outside the pool, for openings and administration: each has a timeout, and fails with an
//! [`OpenError`].

use std::future::Future;
use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::types::FromSql;
use tokio_postgres::{Client, Row};

use crate::fault::Fault;
use crate::link::{Argument, Failure, failure_of};
use crate::{Address, OpenError};

/// The oldest supported server: 13 introduced `pg_current_snapshot` and `gen_random_uuid`.
const OLDEST: i32 = 130_000;

const SERVER: &str = "SELECT current_setting('server_version_num')::int, current_setting('server_version'), \
    current_setting('server_encoding'), current_setting('fsync'), current_setting('synchronous_commit')";

/// Checks version and encoding. Columns 3 and 4 of the row are `fsync` and `synchronous_commit`.
pub(crate) async fn check_server(client: &Client, address: &Address) -> Result<Row, OpenError> {
    let row = one(client, address, SERVER, &[]).await?;
    let version: i32 = read(&row, 0)?;
    if version < OLDEST {
        return Err(OpenError::TooOld { version: read(&row, 1)? });
    }
    let encoding: String = read(&row, 2)?;
    if encoding != "UTF8" {
        return Err(OpenError::Encoding { encoding });
    }
    Ok(row)
}

/// Runs a query that returns one row.
pub(crate) async fn one(
    client: &Client,
    address: &Address,
    sql: &str,
    arguments: &[Argument<'_>],
) -> Result<Row, OpenError> {
    let rows = in_time(address, address.timeout, client.query_typed(sql, arguments)).await?;
    let mut rows = rows.map_err(|error| refused(address, failure_of(&error)))?;
    rows.pop().ok_or_else(|| OpenError::Unreachable {
        at: address.to_string(),
        reason: "it gave no answer".to_owned(),
    })
}

/// Runs statements that return nothing, at most for `limit`.
pub(crate) async fn run(
    client: &Client,
    address: &Address,
    sql: &str,
    limit: Duration,
) -> Result<(), OpenError> {
    let ran = in_time(address, limit, client.batch_execute(sql)).await?;
    ran.map_err(|error| refused(address, failure_of(&error)))
}

/// Runs `work` in a transaction, which is rolled back if it fails. Each of the two statements around it may last `limit`.
pub(crate) async fn in_transaction<T>(
    client: &Client,
    address: &Address,
    limit: Duration,
    work: impl Future<Output = Result<T, OpenError>>,
) -> Result<T, OpenError> {
    run(client, address, "BEGIN", limit).await?;
    let done = match work.await {
        Ok(done) => run(client, address, "COMMIT", limit).await.map(|()| done),
        Err(error) => Err(error),
    };
    if done.is_err() {
        // The connection is not used for anything else, and ends with its only caller.
        let _ = timeout(address.timeout, client.batch_execute("ROLLBACK")).await;
    }
    done
}

/// A column of a row.
pub(crate) fn read<'a, T: FromSql<'a>>(row: &'a Row, place: usize) -> Result<T, OpenError> {
    row.try_get(place).map_err(|error| OpenError::Unreachable {
        at: "it".to_owned(),
        reason: format!("an answer that cannot be read: {error}"),
    })
}

/// Ends a statement that lasts too long: it waits for a lock, or the server does not answer.
async fn in_time<T>(
    address: &Address,
    limit: Duration,
    call: impl Future<Output = T>,
) -> Result<T, OpenError> {
    timeout(limit, call).await.map_err(|_| OpenError::Unreachable {
        at: address.to_string(),
        reason: format!("no answer to a statement within {} ms", limit.as_millis()),
    })
}

/// The error of an opening for a failed statement or connection.
pub(crate) fn refused(address: &Address, failure: Failure) -> OpenError {
    let at = address.to_string();
    match failure {
        Failure::Fault { fault: Fault::NotGranted, reason }
        | Failure::NotSent { fault: Fault::NotGranted, reason } => OpenError::NotGranted { reason },
        Failure::Fault { fault: Fault::Busy | Fault::Repeat, reason } => OpenError::Busy { reason },
        Failure::Fault { fault: Fault::Foreign | Fault::Unexpected, reason } => {
            OpenError::Foreign { schema: address.schema().to_owned(), found: reason }
        }
        Failure::Fault { reason, .. } | Failure::NotSent { reason, .. } | Failure::Unknown { reason } => {
            OpenError::Unreachable { at, reason }
        }
        Failure::Refused { words, .. } => {
            OpenError::Foreign { schema: address.schema().to_owned(), found: words }
        }
    }
}

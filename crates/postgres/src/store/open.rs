//! Opening a store: the requirements on a PostgreSQL, and the installation of the schema.

use std::future::Future;
use std::time::Duration;

use dwell_store::Error;
use tokio::time::timeout;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use crate::link::{Failure, Link, failure_of};
use crate::schema::{FUNCTIONS, LAYOUTS};
use crate::{Address, OpenError};

/// The oldest supported server: 13 introduced `pg_current_snapshot` and `gen_random_uuid`.
const OLDEST: i32 = 130_000;

/// How long each step of an installation may last at least, including the wait for that of another process.
const INSTALLATION: Duration = Duration::from_secs(60);

/// The first key of the advisory lock that an installation or migration holds; the second is made from the schema's name.
const INSTALLING: i32 = 0x6477_656c;

/// Functions that calls need. If one is missing, others may be missing too.
const NEEDED: [&str; 25] = [
    "put_1",
    "take_1",
    "take_id_1",
    "settle_1",
    "expire_lease_1",
    "change_1",
    "get_1",
    "locate_1",
    "list_1",
    "peek_1",
    "stats_1",
    "queues_1",
    "forecast_1",
    "configure_1",
    "publish_1",
    "sweep_dead_1",
    "purge_1",
    "delete_queue_1",
    "next_1",
    "known_1",
    "writers_1",
    "maintain_1",
    "idle_1",
    "give_back_1",
    "noted_1",
];

/// Checks that the store can be used, and installs the schema if there is none.
pub(super) async fn check(link: &Link) -> Result<(), OpenError> {
    let client = link.client().await.map_err(|failure| refused(link.address(), failure))?;
    let checked = check_with(link, client.get()).await;
    if checked.is_err() {
        client.abort();
    }
    checked
}

async fn check_with(link: &Link, client: &Client) -> Result<(), OpenError> {
    let address = link.address();
    let row = one(client, address, SERVER, &[]).await?;
    let version: i32 = read(&row, 0)?;
    if version < OLDEST {
        return Err(OpenError::TooOld { version: read(&row, 1)? });
    }
    let encoding: String = read(&row, 2)?;
    if encoding != "UTF8" {
        return Err(OpenError::Encoding { encoding });
    }
    for (place, setting) in [(3, "fsync"), (4, "synchronous_commit")] {
        let value: String = read(&row, place)?;
        if value == "off" && !address.allows_unsynced {
            return Err(OpenError::Unsynced { setting });
        }
    }
    install(client, address).await?;
    let needed = NEEDED.as_slice();
    let schema = address.schema();
    let missing =
        one(client, address, MISSING, &[(&needed, Type::TEXT_ARRAY), (&schema, Type::TEXT)]).await?;
    let missing: Vec<String> = read(&missing, 0)?;
    if let Some(missing) = missing.first() {
        let found = format!("it lacks the function {missing}: only a part of it is there");
        return Err(OpenError::Foreign { schema: schema.to_owned(), found });
    }
    let opened = one(client, address, &format!("SELECT * FROM {}.open_1()", link.schema()), &[]).await?;
    let found: i32 = read(&opened, 0)?;
    // The cast is lossless: there are few layouts.
    let known = LAYOUTS.len() as i32;
    if found > known {
        return Err(OpenError::Layout { schema: schema.to_owned(), found, known });
    }
    Ok(())
}

const SERVER: &str = "SELECT current_setting('server_version_num')::int, current_setting('server_version'), \
    current_setting('server_encoding'), current_setting('fsync'), current_setting('synchronous_commit')";

const MISSING: &str = "SELECT ARRAY(SELECT n FROM unnest($1) AS n WHERE NOT EXISTS (SELECT FROM pg_proc p \
    JOIN pg_namespace s ON s.oid = p.pronamespace WHERE s.nspname = $2 AND p.proname = n) ORDER BY n)";

/// The contents of the schema: whether it exists, its layout table, and its number of tables.
const THERE: &str = "SELECT EXISTS (SELECT FROM pg_namespace s WHERE s.nspname = $1), \
    EXISTS (SELECT FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace WHERE s.nspname = $1 AND c.relname = 'layout' \
        AND (SELECT count(*) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname IN ('version', 'product')) = 2), \
    (SELECT count(*) FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace WHERE s.nspname = $1)";

/// Installs the schema in one transaction, if it does not exist.
async fn install(client: &Client, address: &Address) -> Result<(), OpenError> {
    if is_there(client, address).await? {
        return Ok(());
    }
    let installed = install_alone(client, address).await;
    if installed.is_err() {
        // The connection is not used for anything else, and ends with the opening.
        let _ = timeout(address.timeout, client.batch_execute("ROLLBACK")).await;
    }
    installed
}

async fn install_alone(client: &Client, address: &Address) -> Result<(), OpenError> {
    let sql = |text: String| async move {
        let limit = address.timeout.max(INSTALLATION);
        let ran = in_time(address, limit, client.batch_execute(&text)).await?;
        ran.map_err(|error| refused(address, failure_of(&error)))
    };
    let quoted = address.quoted_schema();
    sql("BEGIN".to_owned()).await?;
    let literal = address.schema().replace('\'', "''");
    sql(format!("SELECT pg_advisory_xact_lock({INSTALLING}, hashtext('{literal}'))")).await?;
    // Another process may have installed it meanwhile.
    if is_there(client, address).await? {
        return sql("ROLLBACK".to_owned()).await;
    }
    sql(format!("CREATE SCHEMA IF NOT EXISTS {quoted}; SET LOCAL search_path = {quoted}, pg_temp")).await?;
    for script in LAYOUTS.iter().chain(FUNCTIONS) {
        sql(script.sql.to_owned()).await?;
    }
    sql("COMMIT".to_owned()).await
}

/// Whether dwell's schema exists; an error if the schema belongs to something else.
async fn is_there(client: &Client, address: &Address) -> Result<bool, OpenError> {
    let schema = address.schema();
    let row = one(client, address, THERE, &[(&schema, Type::TEXT)]).await?;
    let (has_layout, tables): (bool, i64) = (read(&row, 1)?, read(&row, 2)?);
    if !has_layout && tables > 0 {
        let found =
            format!("{tables} tables and indexes lie in it that are not dwell's, or not all of dwell's");
        return Err(OpenError::Foreign { schema: schema.to_owned(), found });
    }
    Ok(has_layout)
}

/// Ends a statement of an opening that lasts too long: it waits for a lock, or the server does not answer.
async fn in_time<T>(
    address: &Address,
    limit: Duration,
    call: impl Future<Output = T>,
) -> Result<T, OpenError> {
    timeout(limit, call).await.map_err(|_| OpenError::Unreachable {
        at: address.to_string(),
        reason: format!("no answer to a statement of the opening within {} ms", limit.as_millis()),
    })
}

async fn one(
    client: &Client,
    address: &Address,
    sql: &str,
    arguments: &[crate::link::Argument<'_>],
) -> Result<Row, OpenError> {
    let rows = in_time(address, address.timeout, client.query_typed(sql, arguments)).await?;
    let mut rows = rows.map_err(|error| refused(address, failure_of(&error)))?;
    rows.pop().ok_or_else(|| OpenError::Unreachable {
        at: address.to_string(),
        reason: "it gave no answer".to_owned(),
    })
}

fn read<'a, T: tokio_postgres::types::FromSql<'a>>(row: &'a Row, place: usize) -> Result<T, OpenError> {
    row.try_get(place).map_err(|error| OpenError::Unreachable {
        at: "it".to_owned(),
        reason: format!("an answer that cannot be read: {error}"),
    })
}

fn refused(address: &Address, failure: Failure) -> OpenError {
    use crate::fault::Fault;
    let at = address.to_string();
    match failure {
        Failure::Fault { fault: Fault::NotGranted, reason }
        | Failure::NotSent { fault: Fault::NotGranted, reason } => OpenError::NotGranted { reason },
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

impl super::Inner {
    /// Ends the leases bound to an earlier process of the same name, if this one has a name.
    pub(super) async fn end_client(&self) -> Result<(), Error> {
        let Some(client) = self.link.address().client.clone() else { return Ok(()) };
        let arguments = [(&client as _, Type::TEXT), (&self.defaults as _, Type::JSONB)];
        let rows = self.rows("end_client_1($1, $2)", &arguments, true).await;
        rows.map(drop).map_err(|failure| super::refusal::failed(failure, None))
    }
}

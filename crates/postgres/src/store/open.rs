//! Opening a store: what a PostgreSQL must be, and the installation into one that has none.

use dwell_store::Error;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use crate::link::{Failure, Link, failure_of};
use crate::schema::{FUNCTIONS, LAYOUTS};
use crate::{Address, OpenError};

/// The oldest server: 13 has `pg_current_snapshot` and `gen_random_uuid`.
const OLDEST: i32 = 130_000;

/// Whoever installs or migrates holds this advisory lock, made of the schema's name.
const INSTALLING: i32 = 0x6477_656c;

/// Some of the functions that calls need: where one is missing, so may be others.
const NEEDED: [&str; 22] = [
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
    "sweep_dead_1",
    "purge_1",
    "delete_queue_1",
    "next_1",
    "known_1",
    "writers_1",
    "maintain_1",
    "noted_1",
];

/// Makes sure that the store can be used; installs the schema where there is none.
pub(super) async fn check(link: &Link) -> Result<(), OpenError> {
    let address = link.address();
    let client = link.client().await.map_err(|failure| refused(address, failure))?;
    let row = one(&client, address, SERVER, &[]).await?;
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
    install(&client, address).await?;
    let needed = NEEDED.as_slice();
    let schema = address.schema();
    let missing =
        one(&client, address, MISSING, &[(&needed, Type::TEXT_ARRAY), (&schema, Type::TEXT)]).await?;
    let missing: Vec<String> = read(&missing, 0)?;
    if let Some(missing) = missing.first() {
        let found = format!("it lacks the function {missing}: only a part of it is there");
        return Err(OpenError::Foreign { schema: schema.to_owned(), found });
    }
    let opened = one(&client, address, &format!("SELECT * FROM {}.open_1()", link.schema()), &[]).await?;
    let found: i32 = read(&opened, 0)?;
    // It fits: there are not that many.
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

/// What lies in the schema: whether it is there, its layout table, and how many tables.
const THERE: &str = "SELECT EXISTS (SELECT FROM pg_namespace s WHERE s.nspname = $1), \
    EXISTS (SELECT FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace WHERE s.nspname = $1 AND c.relname = 'layout' \
        AND (SELECT count(*) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname IN ('version', 'product', 'old_numbers')) = 3), \
    (SELECT count(*) FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace WHERE s.nspname = $1)";

/// Installs the schema in one transaction, if there is none.
async fn install(client: &Client, address: &Address) -> Result<(), OpenError> {
    if is_there(client, address).await? {
        return Ok(());
    }
    let installed = install_alone(client, address).await;
    if installed.is_err() {
        // The connection is not used for anything else.
        let _ = client.batch_execute("ROLLBACK").await;
    }
    installed
}

async fn install_alone(client: &Client, address: &Address) -> Result<(), OpenError> {
    let sql = |text: String| async move {
        client.batch_execute(&text).await.map_err(|error| refused(address, failure_of(&error)))
    };
    let quoted = address.quoted_schema();
    sql("BEGIN".to_owned()).await?;
    let literal = address.schema().replace('\'', "''");
    sql(format!("SELECT pg_advisory_xact_lock({INSTALLING}, hashtext('{literal}'))")).await?;
    // Somebody else may have been faster.
    if is_there(client, address).await? {
        return sql("ROLLBACK".to_owned()).await;
    }
    sql(format!("CREATE SCHEMA IF NOT EXISTS {quoted}; SET LOCAL search_path = {quoted}, pg_temp")).await?;
    for script in LAYOUTS.iter().chain(FUNCTIONS) {
        sql(script.sql.to_owned()).await?;
    }
    sql("COMMIT".to_owned()).await
}

/// Whether the schema is dwell's; a refusal where it is somebody else's.
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

async fn one(
    client: &Client,
    address: &Address,
    sql: &str,
    arguments: &[crate::link::Argument<'_>],
) -> Result<Row, OpenError> {
    let rows = client.query_typed(sql, arguments).await;
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
    /// Ends what a process of the same name had bound before, if this one has a name.
    pub(super) async fn end_client(&self) -> Result<(), Error> {
        let Some(client) = self.link.address().client.clone() else { return Ok(()) };
        let arguments = [(&client as _, Type::TEXT), (&self.defaults as _, Type::JSONB)];
        let rows = self.rows("end_client_1($1, $2)", &arguments, true).await;
        rows.map(drop).map_err(|failure| super::refusal::failed(failure, None))
    }
}

//! The schema in a database: whether it is there, its installation, and its migration to the newest layout. Both run in one
//! transaction, under an advisory lock.

use std::time::Duration;

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::direct::{in_transaction, one, read, run};
use crate::schema::{FUNCTIONS, LAYOUTS, Script};
use crate::{Address, OpenError};

/// The newest layout. The cast is lossless: there are few.
pub(crate) const KNOWN: i32 = LAYOUTS.len() as i32;

/// How long each step of an installation may last at least, including the wait for that of another process.
const INSTALLATION: Duration = Duration::from_secs(60);

/// The first key of the advisory lock that an installation or migration holds; the second is made from the schema's name.
const INSTALLING: i32 = 0x6477_656c;

/// The contents of the schema: its layout table, and its number of tables.
const THERE: &str = "SELECT \
    EXISTS (SELECT FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace WHERE s.nspname = $1 AND c.relname = 'layout' \
        AND (SELECT count(*) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname IN ('version', 'product')) = 2), \
    (SELECT count(*) FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace WHERE s.nspname = $1)";

/// The owner of the schema, and whether the connection's role is it, or may become it.
const OWNER: &str = "SELECT pg_get_userbyid(s.nspowner)::text, pg_get_userbyid(s.nspowner) = current_user, \
    pg_has_role(s.nspowner, 'MEMBER') FROM pg_namespace s WHERE s.nspname = $1";

/// What a migration did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migrated {
    /// The layout that was found; `None` if the schema was installed.
    pub from: Option<i32>,
    /// The layout that the schema has now.
    pub to: i32,
}

/// Installs the schema, if it does not exist.
pub(crate) async fn install(client: &Client, address: &Address) -> Result<(), OpenError> {
    if is_there(client, address).await? {
        return Ok(());
    }
    let limit = address.timeout.max(INSTALLATION);
    in_transaction(client, address, limit, async {
        lock(client, address, limit).await?;
        // Another process may have installed it meanwhile.
        match is_there(client, address).await? {
            true => Ok(()),
            false => create(client, address, limit).await,
        }
    })
    .await
}

/// Installs the schema if it does not exist. Otherwise brings it to the newest layout, and replaces its functions by those of
/// this version.
pub(crate) async fn migrate(client: &Client, address: &Address) -> Result<Migrated, OpenError> {
    let limit = address.timeout.max(INSTALLATION);
    in_transaction(client, address, limit, async {
        lock(client, address, limit).await?;
        if !is_there(client, address).await? {
            create(client, address, limit).await?;
            return Ok(Migrated { from: None, to: KNOWN });
        }
        become_owner(client, address, limit).await?;
        let found = layout(client, address).await?;
        let Some(newer) = usize::try_from(found).ok().and_then(|found| LAYOUTS.get(found..)) else {
            let schema = address.schema().to_owned();
            return Err(OpenError::Layout { schema, found, known: KNOWN });
        };
        // Behind a lock that is waited for, every other call would wait too.
        let wait = format!("SET LOCAL lock_timeout = {}", address.lock_timeout_ms());
        run(client, address, &format!("{wait}; {}", path(address)), limit).await?;
        scripts(client, address, newer.iter().chain(FUNCTIONS), limit).await?;
        if !newer.is_empty() {
            run(client, address, &format!("UPDATE layout SET version = {KNOWN}"), limit).await?;
        }
        Ok(Migrated { from: Some(found), to: KNOWN })
    })
    .await
}

/// Waits until no other process installs, migrates or drops the schema, and keeps others from it until the transaction ends.
pub(crate) async fn lock(client: &Client, address: &Address, limit: Duration) -> Result<(), OpenError> {
    let literal = address.schema().replace('\'', "''");
    let sql = format!("SELECT pg_advisory_xact_lock({INSTALLING}, hashtext('{literal}'))");
    run(client, address, &sql, limit).await
}

/// Goes on as the schema's owner until the transaction ends, if the connection's role is a member of it, as a superuser is of
/// all. What a superuser created here would run with its rights, and the owner could not change it.
pub(crate) async fn become_owner(
    client: &Client,
    address: &Address,
    limit: Duration,
) -> Result<(), OpenError> {
    let row = one(client, address, OWNER, &[(&address.schema(), Type::TEXT)]).await?;
    let (owner, is_it, may_become): (String, bool, bool) = (read(&row, 0)?, read(&row, 1)?, read(&row, 2)?);
    match (is_it, may_become) {
        (true, _) => Ok(()),
        (false, true) => run(client, address, &format!("SET LOCAL ROLE {}", quoted(&owner)), limit).await,
        (false, false) => Err(OpenError::NotGranted {
            reason: format!("schema '{}' belongs to the role '{owner}': connect as it", address.schema()),
        }),
    }
}

/// Whether dwell's schema exists; an error if the schema belongs to something else.
pub(crate) async fn is_there(client: &Client, address: &Address) -> Result<bool, OpenError> {
    let schema = address.schema();
    let row = one(client, address, THERE, &[(&schema, Type::TEXT)]).await?;
    let (has_layout, tables): (bool, i64) = (read(&row, 0)?, read(&row, 1)?);
    if !has_layout && tables > 0 {
        let found =
            format!("{tables} tables and indexes lie in it that are not dwell's, or not all of dwell's");
        return Err(OpenError::Foreign { schema: schema.to_owned(), found });
    }
    Ok(has_layout)
}

/// The layout of the schema. The right to read it is the owner's.
async fn layout(client: &Client, address: &Address) -> Result<i32, OpenError> {
    let sql = format!("SELECT coalesce((SELECT version FROM {}.layout), 0)", address.quoted_schema());
    let found = read(&one(client, address, &sql, &[]).await?, 0)?;
    if found < 1 {
        let found = format!("it says that it has layout {found}, which there never was");
        return Err(OpenError::Foreign { schema: address.schema().to_owned(), found });
    }
    Ok(found)
}

async fn create(client: &Client, address: &Address, limit: Duration) -> Result<(), OpenError> {
    let sql = format!("CREATE SCHEMA IF NOT EXISTS {}; {}", address.quoted_schema(), path(address));
    run(client, address, &sql, limit).await?;
    scripts(client, address, LAYOUTS.iter().chain(FUNCTIONS), limit).await
}

async fn scripts(
    client: &Client,
    address: &Address,
    scripts: impl Iterator<Item = &Script>,
    limit: Duration,
) -> Result<(), OpenError> {
    for script in scripts {
        run(client, address, script.sql, limit).await?;
    }
    Ok(())
}

/// The search path that the scripts need: objects are created in the schema.
fn path(address: &Address) -> String {
    format!("SET LOCAL search_path = {}, pg_temp", address.quoted_schema())
}

/// A name, quoted for SQL.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

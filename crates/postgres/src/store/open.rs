//! Opening a store: the requirements on a PostgreSQL, and the installation of the schema.

use dwell_store::Error;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::OpenError;
use crate::direct::{check_server, one, read, refused};
use crate::install::{KNOWN, install};
use crate::link::Link;

/// Functions that calls need. If one is missing, others may be missing too.
const NEEDED: [&str; 27] = [
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
    "clean_1",
    "idle_1",
    "give_back_1",
    "noted_1",
    "hint_1",
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
    let row = check_server(client, address).await?;
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
        return Err(OpenError::Incomplete { schema: schema.to_owned(), missing: missing.clone() });
    }
    let opened = one(client, address, &format!("SELECT * FROM {}.open_1()", link.schema()), &[]).await?;
    let found: i32 = read(&opened, 0)?;
    if found > KNOWN {
        return Err(OpenError::Layout { schema: schema.to_owned(), found, known: KNOWN });
    }
    Ok(())
}

const MISSING: &str = "SELECT ARRAY(SELECT n FROM unnest($1) AS n WHERE NOT EXISTS (SELECT FROM pg_proc p \
    JOIN pg_namespace s ON s.oid = p.pronamespace WHERE s.nspname = $2 AND p.proname = n) ORDER BY n)";

impl super::Inner {
    /// Ends the leases bound to an earlier process of the same name, if this one has a name.
    pub(super) async fn end_client(&self) -> Result<(), Error> {
        let Some(client) = self.link.address().client.clone() else { return Ok(()) };
        let arguments = [(&client as _, Type::TEXT), (&self.defaults as _, Type::JSONB)];
        let rows = self.rows("end_client_1($1, $2)", &arguments, true).await;
        rows.map(drop).map_err(|failure| super::refusal::failed(failure, None))
    }
}

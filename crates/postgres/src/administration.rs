//! Administration of a schema: its migration, the rights of other roles, and its removal.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::direct::{check_server, in_transaction, one, read, refused, run};
use crate::install::{Migrated, become_owner, is_there, lock, migrate, quoted};
use crate::link::{Connected, Link, failure_of};
use crate::schema::{FOR_CALLERS, FUNCTIONS, LAYOUTS};
use crate::{Address, OpenError};

/// A connection that administrates the schema of an [`Address`]. It needs no server of dwell, and those that run go on.
///
/// Each call is one transaction: it takes effect as a whole or not at all. A call needs the schema's owner, or a member of that
/// role; for a schema that does not exist, a role that may create one.
pub struct Administration {
    connected: Connected,
    address: Address,
}

/// What a role is to be able to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Grant<'a> {
    /// Call these of the functions [for callers](FOR_CALLERS) in its own transactions.
    Calls(&'a [&'a str]),
    /// Open the store, as a server or with the library, without being the schema's owner. It includes what is not for callers alone:
    /// the role can read and change every message.
    Store,
}

/// What a schema holds, as far as it is counted at this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contents {
    /// The number of names of queues.
    pub queues: u64,
    /// The number of messages that are scheduled or ready.
    pub pending: u64,
    /// The number of leased messages.
    pub leased: u64,
    /// The number of dead messages.
    pub dead: u64,
}

impl Administration {
    /// Connects to the server.
    ///
    /// # Errors
    /// An [`OpenError`]: the server does not answer, or cannot be used whatever the schema is.
    ///
    /// # Panics
    /// If it is not called on a Tokio runtime. The later calls need the same one.
    pub async fn connect(address: Address) -> Result<Administration, OpenError> {
        let tls = crate::tls::connector(address.tls.as_ref())?;
        let link = Link::new(address.clone(), tls);
        let connected = Box::pin(link.client()).await.map_err(|failure| refused(&address, failure))?;
        check_server(connected.get(), &address).await?;
        Ok(Administration { connected, address })
    }

    /// Installs the schema if there is none. Otherwise brings it to the newest layout, and replaces its functions by those of this
    /// version. Rights that were granted stay. Processes of the version before this one go on.
    ///
    /// # Errors
    /// - [`OpenError::Layout`]: the schema has a newer layout
    /// - [`OpenError::Foreign`]: it is not dwell's
    /// - [`OpenError::NotGranted`]: the role is neither its owner nor a member of that
    /// - [`OpenError::Busy`]: an open transaction holds what has to change, for longer than `lock_ms`
    pub async fn migrate(&self) -> Result<Migrated, OpenError> {
        migrate(self.client(), &self.address).await
    }

    /// Grants an existing role what `grant` says, and returns the names of the functions that it may call by that. What it was granted
    /// before stays.
    ///
    /// # Errors
    /// - [`OpenError::UnknownRole`]: there is no such role
    /// - [`OpenError::UnknownFunction`]: one of the functions is not for callers
    /// - [`OpenError::NotInstalled`]: there is no schema
    /// - [`OpenError::NotGranted`]: the connection's role may not grant it
    pub async fn grant(&self, role: &str, grant: Grant<'_>) -> Result<Vec<String>, OpenError> {
        if let Grant::Calls(functions) = grant
            && let Some(name) = functions.iter().find(|name| !FOR_CALLERS.contains(name))
        {
            return Err(OpenError::UnknownFunction { name: (*name).to_owned() });
        }
        let (client, address) = (self.client(), &self.address);
        in_transaction(client, address, address.timeout, async {
            self.enter().await?;
            // A text with U+0000 cannot be sent, and names no role.
            let is_known = !role.contains('\0')
                && read(&one(client, address, IS_ROLE, &[(&role, Type::TEXT)]).await?, 0)?;
            if !is_known {
                return Err(OpenError::UnknownRole { role: role.to_owned() });
            }
            let names = match grant {
                Grant::Calls(functions) => Some(functions),
                Grant::Store => None,
            };
            let schema = address.schema();
            let arguments: [(_, Type); 2] = [(&schema as _, Type::TEXT), (&names as _, Type::TEXT_ARRAY)];
            let row = one(client, address, TO_GRANT, &arguments).await?;
            let (names, signatures): (Vec<String>, Vec<String>) = (read(&row, 0)?, read(&row, 1)?);
            let to = quoted(role);
            let mut sql = format!("GRANT USAGE ON SCHEMA {} TO {to};", address.quoted_schema());
            for signature in &signatures {
                let _ = write!(sql, "GRANT EXECUTE ON FUNCTION {signature} TO {to};");
            }
            run(client, address, &sql, address.timeout).await?;
            Ok(names.into_iter().collect::<BTreeSet<_>>().into_iter().collect())
        })
        .await
    }

    /// What is in the schema, and would be lost with it.
    ///
    /// # Errors
    /// [`OpenError::NotInstalled`] if there is no schema, [`OpenError::NotGranted`] if the role is not its owner's.
    pub async fn contents(&self) -> Result<Contents, OpenError> {
        let (client, address) = (self.client(), &self.address);
        in_transaction(client, address, address.timeout, async {
            self.enter().await?;
            let schema = address.quoted_schema();
            let sql = format!(
                "SELECT (SELECT count(DISTINCT q.qid) FROM {schema}.queue q WHERE NOT q.gone), \
                coalesce(sum(t.pending), 0)::bigint, coalesce(sum(t.leased), 0)::bigint, coalesce(sum(t.dead), 0)::bigint \
                FROM {schema}.tally t"
            );
            let row = one(client, address, &sql, &[]).await?;
            let count = |place| read(&row, place).map(|count: i64| u64::try_from(count).unwrap_or(0));
            Ok(Contents { queues: count(0)?, pending: count(1)?, leased: count(2)?, dead: count(3)? })
        })
        .await
    }

    /// Removes the schema with all messages, for good. Calls of processes that still use it fail with `foreign_data`.
    ///
    /// # Errors
    /// - [`OpenError::NotInstalled`]: there is no schema
    /// - [`OpenError::StillNeeded`]: there is a table in it that is not dwell's, or something outside of it, such as a view, depends
    ///   on it; nothing is removed then
    /// - [`OpenError::NotGranted`]: the role is neither its owner nor a member of that
    /// - [`OpenError::Busy`]: an open transaction uses it, for longer than `lock_ms`
    pub async fn drop_schema(&self) -> Result<(), OpenError> {
        let (client, address) = (self.client(), &self.address);
        in_transaction(client, address, address.timeout, async {
            self.enter().await?;
            let schema = address.schema();
            let routines: String = read(&one(client, address, ROUTINES, &[(&schema, Type::TEXT)]).await?, 0)?;
            // Without CASCADE, which would remove what is not dwell's along with it. Functions come first: they depend on types.
            let mut sql = format!("SET LOCAL lock_timeout = {}; {routines};", address.lock_timeout_ms());
            let quoted_schema = address.quoted_schema();
            for kind in ["TABLE", "SEQUENCE", "TYPE"] {
                let names = created(kind).into_iter().map(|name| format!("{quoted_schema}.{}", quoted(name)));
                let names: Vec<_> = names.collect();
                let _ = write!(sql, "DROP {kind} IF EXISTS {};", names.join(", "));
            }
            let _ = write!(sql, "DROP SCHEMA {quoted_schema}");
            let dropped = tokio::time::timeout(address.timeout, client.batch_execute(&sql)).await;
            match dropped {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => Err(self.kept(&error)),
                Err(_) => Err(OpenError::Unreachable {
                    at: address.to_string(),
                    reason: format!("the removal did not end within {} ms", address.timeout.as_millis()),
                }),
            }
        })
        .await
    }

    /// Begins a transaction's work: on an existing schema, alone, and as its owner.
    async fn enter(&self) -> Result<(), OpenError> {
        let (client, address) = (self.client(), &self.address);
        lock(client, address, address.timeout).await?;
        match is_there(client, address).await? {
            true => become_owner(client, address, address.timeout).await,
            false => Err(OpenError::NotInstalled { schema: address.schema().to_owned() }),
        }
    }

    /// Why the schema was not removed.
    fn kept(&self, error: &tokio_postgres::Error) -> OpenError {
        let Some(db) = error.as_db_error().filter(|db| db.code().code() == STILL_NEEDED) else {
            return refused(&self.address, failure_of(error));
        };
        let by = db.detail().unwrap_or(db.message()).replace('\n', "; ");
        OpenError::StillNeeded { schema: self.address.schema().to_owned(), by }
    }

    fn client(&self) -> &Client {
        self.connected.get()
    }
}

/// The SQLSTATE of a removal that would leave something without what it depends on.
const STILL_NEEDED: &str = "2BP01";

const IS_ROLE: &str = "SELECT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = $1)";

/// The functions to be granted, with their signatures: those of these names, or, without names, what the store calls. That is what ends
/// in the number of its contract and runs as the owner; functions made for one slot end in a number too.
const TO_GRANT: &str = "SELECT coalesce(array_agg(p.proname::text), '{}'), coalesce(array_agg(p.oid::regprocedure::text), '{}') \
    FROM pg_proc p JOIN pg_namespace s ON s.oid = p.pronamespace WHERE s.nspname = $1 AND p.prosecdef \
    AND CASE WHEN $2 IS NULL THEN p.proname ~ '_[0-9]+$' ELSE p.proname = ANY ($2) END";

/// The statement that removes all functions of the schema. There are some for each slot, and a migration may have left others.
const ROUTINES: &str = "SELECT coalesce('DROP ROUTINE ' || string_agg(p.oid::regprocedure::text, ', '), '') \
    FROM pg_proc p JOIN pg_namespace s ON s.oid = p.pronamespace WHERE s.nspname = $1";

/// The names of all tables, sequences or types that the scripts create, partitions apart, which go with their tables.
fn created(kind: &str) -> Vec<&'static str> {
    let head = format!("CREATE {kind} ");
    let scripts = LAYOUTS.iter().chain(FUNCTIONS);
    let names = scripts.flat_map(|script| script.sql.lines()).filter_map(|line| {
        let name = line.trim_start().strip_prefix(head.as_str())?;
        name.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next()
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_scripts_create_is_found_in_them() {
        let (tables, sequences, types) = (created("TABLE"), created("SEQUENCE"), created("TYPE"));
        assert!(["layout", "body", "pend", "standing", "key"].iter().all(|name| tables.contains(name)));
        assert!(!tables.contains(&"body_"), "a partition goes with its table");
        assert!(["numbers", "timeline"].iter().all(|name| sequences.contains(name)), "{sequences:?}");
        assert!(["put_answer", "message_row"].iter().all(|name| types.contains(name)), "{types:?}");
    }
}

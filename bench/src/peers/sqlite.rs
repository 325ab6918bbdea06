//! SQLite in WAL mode, with every commit synced (`synchronous = FULL`).

use std::path::Path;

use rusqlite::{Connection, params};

use super::{Kind, Peer};
use crate::Result;
use crate::workload::{Item, Tally};

pub(super) const KIND: Kind = Kind { name: "sqlite", open };

struct Sqlite(Connection);

fn open(folder: &Path, cache_bytes: u64) -> Result<Box<dyn Peer>> {
    let connection = Connection::open(folder.join("items.sqlite"))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // A negative cache size is in KiB.
    connection.pragma_update(None, "cache_size", -i64::try_from(cache_bytes / 1024)?)?;
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS items (key BLOB PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID",
    )?;
    Ok(Box::new(Sqlite(connection)))
}

impl Peer for Sqlite {
    fn put(&mut self, items: &[Item]) -> Result<()> {
        let transaction = self.0.transaction()?;
        {
            let mut insert = transaction.prepare_cached("INSERT INTO items VALUES (?1, ?2)")?;
            for item in items {
                insert.execute(params![item.key(), item.body])?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn take(&mut self, max: usize, tally: &mut Tally) -> Result<usize> {
        let transaction = self.0.transaction()?;
        let mut last: Option<Vec<u8>> = None;
        let mut count = 0;
        {
            let mut first =
                transaction.prepare_cached("SELECT key, body FROM items ORDER BY key LIMIT ?1")?;
            let mut rows = first.query([i64::try_from(max)?])?;
            while let Some(row) = rows.next()? {
                tally.add(row.get_ref(1)?.as_blob()?);
                last = Some(row.get(0)?);
                count += 1;
            }
        }
        if let Some(last) = last {
            // Every key up to the last one was read, so this deletes one range of the tree, without a search for each.
            transaction.prepare_cached("DELETE FROM items WHERE key <= ?1")?.execute([last])?;
        }
        transaction.commit()?;
        Ok(count)
    }
}

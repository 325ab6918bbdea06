//! fjall: a log-structured merge tree. Reads from the front need a lower bound that advances, or they scan the
//! tombstones of everything taken before.

use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::{Kind, Peer};
use crate::Result;
use crate::workload::{Item, Tally};

pub(super) const KIND: Kind = Kind { name: "fjall", open };

struct Fjall {
    database: Database,
    items: Keyspace,
    /// The last key taken. There are no keys below it.
    taken: Vec<u8>,
}

fn open(folder: &Path, cache_bytes: u64) -> Result<Box<dyn Peer>> {
    let database = Database::builder(folder).cache_size(cache_bytes).open()?;
    let items = database.keyspace("items", KeyspaceCreateOptions::default)?;
    Ok(Box::new(Fjall { database, items, taken: Vec::new() }))
}

impl Peer for Fjall {
    fn put(&mut self, items: &[Item]) -> Result<()> {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        for item in items {
            batch.insert(&self.items, item.key(), item.body);
        }
        Ok(batch.commit()?)
    }

    fn take(&mut self, max: usize, tally: &mut Tally) -> Result<usize> {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        for entry in self.items.range(self.taken.clone()..).take(max) {
            let (key, body) = entry.into_inner()?;
            tally.add(&body);
            self.taken = key.to_vec();
            batch.remove(&self.items, key);
        }
        let count = batch.len();
        batch.commit()?;
        Ok(count)
    }
}

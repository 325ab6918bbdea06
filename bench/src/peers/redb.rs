//! redb: a copy-on-write B-tree.

use std::path::Path;

use redb::{Database, Durability, TableDefinition};

use super::{Kind, Peer};
use crate::Result;
use crate::workload::{Item, Tally};

pub(super) const KIND: Kind = Kind { name: "redb", open };

const ITEMS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("items");

struct Redb(Database);

fn open(folder: &Path, cache_bytes: u64) -> Result<Box<dyn Peer>> {
    let mut builder = Database::builder();
    builder.set_cache_size(usize::try_from(cache_bytes)?);
    Ok(Box::new(Redb(builder.create(folder.join("items.redb"))?)))
}

impl Peer for Redb {
    fn put(&mut self, items: &[Item]) -> Result<()> {
        let mut transaction = self.0.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        {
            let mut table = transaction.open_table(ITEMS)?;
            for item in items {
                table.insert(item.key().as_slice(), item.body.as_slice())?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn take(&mut self, max: usize, tally: &mut Tally) -> Result<usize> {
        let mut transaction = self.0.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        let mut count = 0;
        {
            let mut table = transaction.open_table(ITEMS)?;
            while count < max {
                let Some((_, body)) = table.pop_first()? else { break };
                tally.add(body.value());
                count += 1;
            }
        }
        transaction.commit()?;
        Ok(count)
    }
}

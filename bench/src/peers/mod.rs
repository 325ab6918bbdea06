//! The other sides: a plain file, and other stores, used as a delay queue would use them.
//!
//! All have the same durability: the writes of a call are synced (`fdatasync`, or the store's equivalent) before the
//! call returns. Keys are due and number, big-endian, so that key order is due order.

pub(crate) mod bare;
pub(crate) mod beanstalkd;
#[cfg(feature = "peers")]
mod fjall;
#[cfg(feature = "peers")]
mod redb;
#[cfg(feature = "redis")]
pub(crate) mod redisson;
#[cfg(feature = "redis")]
pub(crate) mod redisson_scripts;
#[cfg(feature = "peers")]
mod sqlite;

use std::path::Path;

use crate::Result;
use crate::workload::{Item, Tally};

/// The cache size of each peer, in bytes.
pub(crate) const CACHE_BYTES: u64 = 256 << 20;

/// A store of another project.
pub(crate) trait Peer {
    /// Writes a batch.
    fn put(&mut self, items: &[Item]) -> Result<()>;

    /// Reads the first `max` items in due order, adds their bodies to `tally`, and removes them. Returns their number.
    fn take(&mut self, max: usize, tally: &mut Tally) -> Result<usize>;
}

/// A peer's name, and a function that opens it in a folder with a cache of a given size in bytes.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) open: fn(&Path, u64) -> Result<Box<dyn Peer>>,
}

/// The stores; empty if this was built without the feature `peers`.
#[cfg(feature = "peers")]
pub(crate) const STORES: &[Kind] = &[fjall::KIND, redb::KIND, sqlite::KIND];
#[cfg(not(feature = "peers"))]
pub(crate) const STORES: &[Kind] = &[];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Items;

    /// Every peer returns what was put, in order and once, also after a restart.
    #[test]
    fn peers_do_what_is_measured() {
        for kind in STORES {
            let dir =
                std::env::temp_dir().join(format!("dwell-bench-test-{}-{}", kind.name, std::process::id()));
            std::fs::create_dir_all(&dir).unwrap();
            let items: Vec<Item> = Items::new(3_000).collect();
            (kind.open)(&dir, 8 << 20).unwrap().put(&items).unwrap();

            let mut peer = (kind.open)(&dir, 8 << 20).unwrap();
            let mut earliest = Tally::default();
            let mut sorted = items.clone();
            sorted.sort_by_key(Item::key);
            sorted.iter().take(1_000).for_each(|item| earliest.add(&item.body));
            let mut tally = Tally::default();
            assert_eq!(peer.take(1_000, &mut tally).unwrap(), 1_000, "{}", kind.name);
            assert_eq!(tally, earliest, "{} does not take what is due first", kind.name);
            while peer.take(1_000, &mut tally).unwrap() > 0 {}
            assert_eq!(tally, Items::new(3_000).tally(), "{} lost a body", kind.name);
            drop(peer);
            std::fs::remove_dir_all(&dir).unwrap();
        }
    }
}

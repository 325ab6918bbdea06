//! The walk over all queues that `stats` and `list-tubes` need.
//!
//! Ground rules:
//! 1. Pages are small, and other calls run between them, so that a walk over many queues blocks nothing.
//! 2. What a client did before its request is counted: requests during a walk wait for the next one, and share it. So
//!    there is one walk at a time, for any number of requests.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use dwell_model::QueueName;
use dwell_store::{Error, StateCounts, Store};
use tokio::sync::Mutex;

use super::{has_jobs, session};
use crate::present::Present;

/// The number of queues per page.
const PAGE: usize = 256;

/// All tubes, and their jobs by state.
#[derive(Debug)]
pub(super) struct Census {
    pub(super) tubes: BTreeSet<QueueName>,
    pub(super) counts: StateCounts,
}

impl Census {
    /// Walks over all queues of the store; those in `connected` are tubes even without jobs.
    async fn walk(store: &dyn Store, connected: Vec<QueueName>) -> Result<Census, Error> {
        let mut tubes: BTreeSet<QueueName> = connected.into_iter().collect();
        tubes.insert(session::default_tube());
        let mut census = Census { tubes, counts: StateCounts::default() };
        let mut after = None;
        loop {
            let page = store.queues(after, PAGE.min(store.limits().batch.max(1))).await?;
            let Some(last) = page.last() else { return Ok(census) };
            after = Some(last.name.clone());
            for queue in page.into_iter().filter(has_jobs) {
                census.counts.scheduled += queue.counts.scheduled;
                census.counts.ready += queue.counts.ready;
                census.counts.ready_urgent += queue.counts.ready_urgent;
                census.counts.leased += queue.counts.leased;
                census.counts.dead += queue.counts.dead;
                census.tubes.insert(queue.name);
            }
            tokio::task::yield_now().await;
        }
    }
}

/// The walks, and those that wait for them.
#[derive(Debug, Default)]
pub(super) struct Walks {
    /// Numbers requests and beginnings of walks in one order.
    order: AtomicU64,
    asking: AtomicUsize,
    /// The last walk and its number, while requests may share it. Locked during a walk.
    last: Mutex<Option<(u64, Arc<Census>)>>,
}

impl Walks {
    /// The result of a walk that began after this was called.
    ///
    /// # Errors
    /// The store's.
    pub(super) async fn census(
        &self,
        store: &dyn Store,
        connected: impl FnOnce() -> Vec<QueueName>,
    ) -> Result<Arc<Census>, Error> {
        let asked = self.order.fetch_add(1, Ordering::SeqCst);
        let _asking = Present::among(&self.asking);
        let mut last = self.last.lock().await;
        let census = match &*last {
            Some((began, census)) if *began > asked => Arc::clone(census),
            _ => {
                let began = self.order.fetch_add(1, Ordering::SeqCst);
                let census = Arc::new(Census::walk(store, connected()).await?);
                *last = Some((began, Arc::clone(&census)));
                census
            }
        };
        if self.asking.load(Ordering::SeqCst) == 1 {
            // Requests from now on need a later walk.
            *last = None;
        }
        Ok(census)
    }
}

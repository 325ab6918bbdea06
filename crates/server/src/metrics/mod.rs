//! What the server counts, and how it is shown at `/metrics`.
//!
//! - `store`: a store that counts what passes through it, for both protocols
//! - `queues`: counts by queue, of which a bounded number have series of their own
//! - `histogram`: counts by size
//! - `census`: the walk over all queues that counts their present messages
//! - `deaths`: adds the store's counts of deaths and discards to the counts by queue
//! - `recent`: counts of the last quarter of an hour, and of the last day
//! - `readiness`: whether the store serves
//! - `page`: names of metrics, and the text format
//! - `process`: the operating system's figures of this process
//! - `source`: counts of others, such as the engine
//!
//! `docs/metrics.md` describes all of it for operators; a test compares the two.

mod census;
mod deaths;
mod histogram;
mod page;
mod process;
mod queues;
mod readiness;
mod recent;
mod source;
mod store;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use dwell_store::Store;
use dwell_time::Clock;
use tokio::time::timeout;

use self::census::Census;
use self::deaths::LastCounts;
pub(crate) use self::page::CONTENT_TYPE;
use self::page::Snapshot;
pub(crate) use self::queues::QueueMeters;
use self::readiness::Readiness;
pub use self::source::{Sample, SampleValue, Samples};
pub(crate) use self::store::Metered;
use crate::delivery::Delivery;

/// The timeout of the walk over all queues; the page is then made without it.
const CENSUS_PATIENCE: Duration = Duration::from_secs(5);

/// How long a walk over the queues is shared by other pages, in milliseconds.
const CENSUS_MS: u64 = 1_000;

/// A counter that many threads change. Counters are not compared with each other, so relaxed ordering is enough.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, fewer: u64) {
        self.0.fetch_sub(fewer, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP, with TLS or without.
    Http,
    /// beanstalkd's.
    Beanstalkd,
}

impl Protocol {
    pub(crate) const ALL: [Protocol; 2] = [Protocol::Http, Protocol::Beanstalkd];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Protocol::Http => "http",
            Protocol::Beanstalkd => "beanstalkd",
        }
    }
}

/// All counters of the server.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) queues: QueueMeters,
    connections: [Counter; 2],
    connections_ever: [Counter; 2],
    /// Answers by HTTP status, beginning at 100.
    statuses: Vec<Counter>,
    /// Refusals by code. Only codes that have occurred have an entry, and there are few codes.
    refusals: Mutex<BTreeMap<&'static str, u64>>,
    /// The last walk over all queues, and its time on the monotonic clock.
    census: tokio::sync::Mutex<Option<(u64, Arc<Census>)>>,
    /// The store's last counts of deaths and discards.
    deaths: tokio::sync::Mutex<LastCounts>,
    /// Whether the store has reported any.
    has_deaths: AtomicBool,
    readiness: Readiness,
    source: OnceLock<Arc<dyn Samples>>,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            queues: QueueMeters::default(),
            connections: Default::default(),
            connections_ever: Default::default(),
            statuses: (100..600).map(|_| Counter::default()).collect(),
            refusals: Mutex::default(),
            census: tokio::sync::Mutex::default(),
            deaths: tokio::sync::Mutex::default(),
            has_deaths: AtomicBool::new(false),
            readiness: Readiness::default(),
            source: OnceLock::new(),
        }
    }
}

impl Metrics {
    /// Counts a connection, until the returned guard is dropped.
    pub(crate) fn connection(self: &Arc<Metrics>, protocol: Protocol) -> Connected {
        self.connections[protocol as usize].add(1);
        self.connections_ever[protocol as usize].add(1);
        Connected { metrics: Arc::clone(self), protocol }
    }

    /// Counts an answered request.
    pub(crate) fn answered(&self, status: u16) {
        if let Some(count) = usize::from(status).checked_sub(100).and_then(|at| self.statuses.get(at)) {
            count.add(1);
        }
    }

    /// Counts a refusal.
    pub(crate) fn refused(&self, code: &'static str) {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        *refusals.entry(code).or_default() += 1;
    }

    /// Adds a source of samples to the page. Only the first one is kept.
    pub(crate) fn set_source(&self, source: Arc<dyn Samples>) {
        let _ = self.source.set(source);
    }

    /// Whether the store serves, as of at most a second ago.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn ready(
        &self,
        store: &Arc<dyn Store>,
        clock: &Arc<dyn Clock>,
    ) -> dwell_store::Result<()> {
        let store = Arc::clone(store);
        self.readiness.ask(clock, async move { store.ready().await }).await
    }

    /// Renders the page.
    pub(crate) async fn page(
        &self,
        store: &Arc<dyn Store>,
        held_bytes: u64,
        clock: &Arc<dyn Clock>,
        delivery: &Delivery,
    ) -> String {
        let is_up = self.ready(store, clock).await.is_ok();
        let now_ms = clock.now().mono_ms;
        // A store that does not serve does not list its queues either, and would only delay the page.
        let census = if is_up { self.census(&**store, now_ms).await } else { None };
        self.queues.rank(now_ms);
        if is_up {
            self.hear_of_deaths(&**store).await;
        }
        let has_deaths = self.has_deaths.load(Ordering::Relaxed);
        let is_known = |event: &str| event != queues::DEATH || has_deaths;
        let refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let snapshot = Snapshot {
            is_up,
            census,
            queues: self.queues.all(),
            has_deaths,
            events: self.queues.totals().into_iter().filter(|(event, _)| is_known(event)).collect(),
            connections: Protocol::ALL.map(|protocol| {
                let at = protocol as usize;
                (protocol.as_str(), self.connections[at].get(), self.connections_ever[at].get())
            }),
            statuses: (100..)
                .zip(self.statuses.iter().map(Counter::get))
                .filter(|(_, count)| *count > 0)
                .collect(),
            refusals: refusals.into_iter().collect(),
            samples: self.source.get().map(|source| source.samples()).unwrap_or_default(),
            sinks: delivery.sinks(),
            runs: delivery.runs(),
            held_bytes,
            process: process::read(),
        };
        snapshot.text()
    }

    /// Reads the store's deaths and counts the increase. If the store does not answer in time, the previous counts
    /// stand.
    async fn hear_of_deaths(&self, store: &dyn Store) {
        let hearing = async {
            // Locked during the call, so that an older answer is never taken for a count that has fallen.
            let mut heard = self.deaths.lock().await;
            if let Ok(all) = store.deaths().await {
                heard.hear(all, &self.queues);
                self.has_deaths.store(true, Ordering::Relaxed);
            }
        };
        let _ = timeout(CENSUS_PATIENCE, hearing).await;
    }

    /// The counts of all queues now; `None` if the store does not answer.
    async fn census(&self, store: &dyn Store, now_ms: u64) -> Option<Arc<Census>> {
        // Locked during the walk, so that concurrent pages share one walk.
        let mut last = self.census.lock().await;
        if let Some((at_ms, census)) = &*last
            && now_ms.saturating_sub(*at_ms) < CENSUS_MS
        {
            return Some(Arc::clone(census));
        }
        let walked = timeout(CENSUS_PATIENCE, Census::walk(store, |name| self.queues.has_own(name))).await;
        let census = Arc::new(walked.ok()?.ok()?);
        *last = Some((now_ms, Arc::clone(&census)));
        Some(census)
    }
}

/// A connection that is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Connected {
    metrics: Arc<Metrics>,
    protocol: Protocol,
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.metrics.connections[self.protocol as usize].sub(1);
    }
}

//! The store under a clock that stands still until a test moves it, on real servers that tests share.

#![allow(dead_code, reason = "each test file is a program of its own, and not all need all of it")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, Weak};

use dwell_model::{Limits, Timestamp};
use dwell_redis::{Address, RedisStore};
use dwell_store::Store;
use dwell_store::conformance::Harness;
use dwell_testkit::redis::{Cluster, Server};
use dwell_time::{Clock, ManualClock};
use tokio::runtime::Runtime;

/// The runtime of all stores: the suite's threads have none.
pub(crate) static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be made")
});

/// A server that the tests of a program share; it stops when the last of them drops it.
pub(crate) struct Shared<T>(Mutex<Weak<T>>);

impl<T> Shared<T> {
    pub(crate) const fn new() -> Shared<T> {
        Shared(Mutex::new(Weak::new()))
    }

    pub(crate) fn get(&self, start: impl FnOnce() -> T) -> Arc<T> {
        let mut shared = self.0.lock().expect("no test panics while it starts a server");
        shared.upgrade().unwrap_or_else(|| {
            let started = Arc::new(start());
            *shared = Arc::downgrade(&started);
            started
        })
    }
}

/// The command in the documentation, for the prefixes of tests.
fn least_rights() -> Vec<&'static str> {
    let page = include_str!("../../../../docs/redis.md");
    let line = page.lines().find_map(|line| line.strip_prefix("    ACL SETUSER ")).expect("the page has it");
    let words = line.split(' ').map(|word| match word {
        "~dwell:*" => "~t*:*",
        "~{dwell}:*" => "~{t*}:*",
        "&dwell:*" => "&t*:*",
        word => word,
    });
    ["ACL", "SETUSER"].into_iter().chain(words).collect()
}

static SERVER: Shared<Server> = Shared::new();
static CLUSTER: Shared<Mutex<Cluster>> = Shared::new();
static PREFIXES: AtomicU64 = AtomicU64::new(0);

/// Keeps a server for as long as a test needs it.
enum Kept {
    Server(#[expect(dead_code, reason = "held, not read")] Arc<Server>),
    Cluster(#[expect(dead_code, reason = "held, not read")] Arc<Mutex<Cluster>>),
}

pub(crate) struct RedisHarness {
    store: Option<Arc<RedisStore>>,
    address: Address,
    limits: Limits,
    clock: ManualClock,
    _kept: Kept,
}

impl RedisHarness {
    /// As the user with the minimum rights that `docs/redis.md` describes.
    pub(crate) fn on_one_server(limits: Limits) -> RedisHarness {
        RedisHarness::on_one_server_behind(limits, |port| port)
    }

    /// The same, connected to the port that `lead` returns for the server's, on which a proxy may listen.
    pub(crate) fn on_one_server_behind(limits: Limits, lead: impl FnOnce(u16) -> u16) -> RedisHarness {
        let server = SERVER.get(|| {
            let server = Server::start();
            server.command(&least_rights());
            server
        });
        let url = format!("redis://dwell:PASSWORD@127.0.0.1:{}", lead(server.port()));
        RedisHarness::open(url.parse().expect("it is a URL"), limits, Kept::Server(server))
    }

    pub(crate) fn on_a_cluster(limits: Limits) -> RedisHarness {
        let cluster = CLUSTER.get(|| Mutex::new(Cluster::start()));
        let address = cluster.lock().expect("nobody panics with it").address();
        RedisHarness::open(address, limits, Kept::Cluster(cluster))
    }

    fn open(address: Address, limits: Limits, kept: Kept) -> RedisHarness {
        let prefix = format!("t{}", PREFIXES.fetch_add(1, Ordering::Relaxed));
        let address = address.with_prefix(&prefix).with_client("under test");
        let clock = ManualClock::new(Timestamp::from_ms(1_795_000_000_000).expect("it is an instant"));
        let mut harness = RedisHarness { store: None, address, limits, clock, _kept: kept };
        harness.restart();
        harness
    }
}

impl Harness for RedisHarness {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(self.store.as_ref().expect("it is open")) as Arc<dyn Store>
    }

    fn now(&self) -> Timestamp {
        self.clock.now().wall
    }

    fn advance(&mut self, ms: u64) {
        self.clock.advance(ms);
    }

    /// Redis has one clock, and leases run on it.
    fn step_wall(&mut self, _: i64) -> bool {
        false
    }

    fn durable(&self) -> bool {
        true
    }

    fn close(&mut self) {
        let left = self.store.as_ref().map(|store| RUNTIME.block_on(store.leave()));
        assert_eq!(left, Some(Ok(true)), "it is closed once");
        self.restart();
    }

    fn partitions(&self, partitions: u16) -> u16 {
        partitions
    }

    /// Each partition has an even share, rounded up, and is exact; the suite spreads a queue over four at most.
    fn cap_slack(&self, _: u64, _: u64) -> u64 {
        3
    }

    fn restart(&mut self) {
        self.store = None;
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        let opened = RedisStore::open_for_test(self.address.clone(), self.limits.clone(), clock);
        self.store = Some(Arc::new(RUNTIME.block_on(opened).expect("Redis is there")));
    }
}

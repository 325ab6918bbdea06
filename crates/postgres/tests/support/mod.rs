//! The store under a manual clock, on a real server that the tests of a program share.
//!
//! Each store has a database of its own. The store installs the first one; the others are copies of it, and are emptied
//! and reused, since installing the schema takes longer than most tests.
//!
//! With `DWELL_POSTGRES_BOUNCER=1` stores connect through PgBouncer in transaction mode.

#![allow(dead_code, reason = "each test file is a program of its own, and not all need all of it")]

use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use dwell_model::{Limits, Timestamp};
use dwell_postgres::{Address, PostgresStore};
use dwell_store::Store;
use dwell_store::conformance::Harness;
use dwell_testkit::postgres::{Bouncer, Server};
use dwell_testkit::{PATIENCE, until_async, within};
use dwell_time::{Clock, ManualClock};
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls};

/// The runtime of all stores: the threads of the suite have none.
pub(crate) static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be made")
});

/// The server, its unused databases, and the number of all databases. The server ends with the test program.
struct Databases {
    server: Server,
    bouncer: Option<Bouncer>,
    free: Vec<String>,
    made: usize,
}

static DATABASES: Mutex<Option<Databases>> = Mutex::new(None);

/// The database as the store has installed it, and a copy with the manual clock.
const PLAIN: &str = "plain_template";
const TEMPLATE: &str = "template_of_tests";

/// Replaces the one function that reads the server's clock.
const CLOCK_OF_TESTS: &str = "
    CREATE TABLE dwell.test_clock (us bigint NOT NULL);
    CREATE OR REPLACE FUNCTION dwell.clock_us() RETURNS bigint LANGUAGE sql VOLATILE AS 'SELECT us FROM dwell.test_clock';
    INSERT INTO dwell.test_clock VALUES (0);";

/// Resets a schema to its state after installation, except for its numbers.
const EMPTIED: &str = "
    DELETE FROM dwell.key; DELETE FROM dwell.idempotency; DELETE FROM dwell.tally; DELETE FROM dwell.queue; DELETE FROM dwell.purge;
    DELETE FROM dwell.pend; DELETE FROM dwell.body; DELETE FROM dwell.standing; DELETE FROM dwell.session;
    DELETE FROM dwell.setting WHERE qid <> 0; UPDATE dwell.slot SET quiet_until = 0 WHERE quiet_until <> 0;
    SELECT setval('dwell.purges', 1, false);";

/// The initial reading of each test's clock.
fn beginning() -> Timestamp {
    Timestamp::from_ms(1_795_000_000_000).expect("it is an instant")
}

/// A connection for the test itself.
pub(crate) async fn connect(url: &str) -> Client {
    let connected = tokio_postgres::connect(url, NoTls).await;
    let (client, connection) = connected.unwrap_or_else(|error| panic!("{url}: {error:?}"));
    tokio::spawn(connection);
    client
}

pub(crate) async fn run(client: &Client, sql: &str) {
    client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
}

impl Databases {
    async fn start() -> Databases {
        let server = Server::start();
        let admin = connect(&server.url("postgres")).await;
        run(&admin, &format!("CREATE DATABASE {PLAIN}")).await;
        let address: Address = address(&server.url(PLAIN));
        let store = PostgresStore::open(address, Limits::default()).await.expect("it can be installed");
        assert!(store.leave().await);
        drop(store);
        await_alone(&admin, PLAIN).await;
        run(&admin, &format!("CREATE DATABASE {TEMPLATE} TEMPLATE {PLAIN}")).await;
        let client = connect(&server.url(TEMPLATE)).await;
        run(&client, CLOCK_OF_TESTS).await;
        let is_asked_for = std::env::var_os("DWELL_POSTGRES_BOUNCER").is_some_and(|asked| asked == "1");
        let bouncer = is_asked_for.then(|| Bouncer::start(&server));
        Databases { server, bouncer, free: Vec::new(), made: 0 }
    }

    async fn database(&mut self) -> String {
        if let Some(free) = self.free.pop() {
            return free;
        }
        self.copy(TEMPLATE).await
    }

    async fn copy(&mut self, template: &str) -> String {
        let admin = connect(&self.server.url("postgres")).await;
        await_alone(&admin, template).await;
        self.made += 1;
        let name = format!("t{}", self.made);
        run(&admin, &format!("CREATE DATABASE {name} TEMPLATE {template}")).await;
        name
    }
}

/// Waits until there are no connections to a database.
async fn await_alone(admin: &Client, database: &str) {
    await_quiet(admin, database, false).await;
}

/// The same, but optionally ignores idle connections that are kept for reuse.
async fn await_quiet(admin: &Client, database: &str, may_be_idle: bool) {
    until_async("the connections of a database to end", async || {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND pid <> pg_backend_pid() \
            AND (state <> 'idle' OR NOT $2)";
        let row = admin.query_one(sql, &[&database, &may_be_idle]).await.expect("the server answers");
        row.get::<_, i64>(0) == 0
    })
    .await;
}

/// How many messages may be leased beyond the cap of a queue, if at most `takes` takes run at the same time, each of up
/// to `max` messages: a take does not see what others lease that have not committed.
pub(crate) fn cap_slack(takes: u64, max: u64) -> u64 {
    takes.saturating_sub(1) * max
}

pub(crate) fn address(url: &str) -> Address {
    let url = format!("{url}?unsynced=allow&connections=4");
    url.parse::<Address>().expect("it is a URL").with_client("under test")
}

/// The URL of a new database on the shared server. Its schema is installed, and
/// it uses the server's real clock. With `None` the database is empty.
pub(crate) async fn database(template: Option<&str>) -> String {
    tokio::task::spawn_blocking({
        let template = template.unwrap_or("template1").to_owned();
        move || {
            let mut shared = DATABASES.lock().expect("no test panics while it holds this");
            let databases =
                shared.get_or_insert_with(|| RUNTIME.block_on(within("a server", Databases::start())));
            let name = RUNTIME.block_on(within("a database", databases.copy(&template)));
            databases.server.url(&name)
        }
    })
    .await
    .expect("a database can be made")
}

/// See [`database`].
pub(crate) async fn installed() -> String {
    database(Some(PLAIN)).await
}

pub(crate) struct PostgresHarness {
    store: Option<Arc<PostgresStore>>,
    database: String,
    /// The URL for the test, and the one for its store.
    url: String,
    store_url: String,
    limits: Limits,
    clock: ManualClock,
    /// The connection that sets the server's clock.
    client: OnceLock<Client>,
}

impl PostgresHarness {
    pub(crate) fn open(limits: Limits) -> PostgresHarness {
        let (database, url, store_url) = {
            let mut shared = DATABASES.lock().expect("no test panics while it holds this");
            let databases =
                shared.get_or_insert_with(|| RUNTIME.block_on(within("a server", Databases::start())));
            let database = RUNTIME.block_on(within("a database", databases.database()));
            let url = databases.server.url(&database);
            let store_url =
                databases.bouncer.as_ref().map_or_else(|| url.clone(), |bouncer| bouncer.url(&database));
            (database, url, store_url)
        };
        let clock = ManualClock::new(beginning());
        let client = OnceLock::new();
        let mut harness = PostgresHarness { store: None, database, url, store_url, limits, clock, client };
        harness.set_clock();
        harness.restart();
        harness
    }

    fn client(&self) -> &Client {
        self.client.get_or_init(|| RUNTIME.block_on(connect(&self.url)))
    }

    fn set_clock(&self) {
        self.advance_unattended(0);
    }

    /// Moves the server's clock alone ahead of this process's: no maintenance follows, so calls bring about what time
    /// has changed.
    pub(crate) fn advance_unattended(&self, ms: u64) {
        let us = (self.clock.now().wall.as_ms() + ms as i64) * 1_000;
        RUNTIME.block_on(run(self.client(), &format!("UPDATE dwell.test_clock SET us = {us}")));
    }
}

impl Harness for PostgresHarness {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(self.store.as_ref().expect("it is open")) as Arc<dyn Store>
    }

    fn now(&self) -> Timestamp {
        self.clock.now().wall
    }

    /// The server's clock is set first, since a task that wakes reads it.
    fn advance(&mut self, ms: u64) {
        self.advance_unattended(ms);
        self.clock.advance(ms);
        // A call skips what the maintenance holds locked, and there would be no later moment under a clock that leaps.
        let store = self.store.as_ref().expect("it is open");
        RUNTIME.block_on(within("the upkeep", store.await_upkeep()));
    }

    /// PostgreSQL has only one clock, and leases use it too.
    fn step_wall(&mut self, _: i64) -> bool {
        false
    }

    fn durable(&self) -> bool {
        true
    }

    fn cap_slack(&self, takes: u64, max: u64) -> u64 {
        cap_slack(takes, max)
    }

    fn close(&mut self) {
        let left = self.store.as_ref().map(|store| RUNTIME.block_on(store.leave()));
        assert_eq!(left, Some(true), "it is closed once");
        self.restart();
    }

    fn restart(&mut self) {
        self.store = None;
        let address = address(&self.store_url);
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        let opened = PostgresStore::open_for_test(address, self.limits.clone(), clock);
        self.store = Some(Arc::new(RUNTIME.block_on(opened).expect("PostgreSQL is there")));
    }
}

impl Drop for PostgresHarness {
    fn drop(&mut self) {
        self.store = None;
        let client = self.client.take();
        // Statements that the store was still running when it was dropped end with its connections.
        let emptied = RUNTIME.block_on(async {
            let client = client?;
            let alone = await_quiet(&client, &self.database, self.store_url != self.url);
            tokio::time::timeout(PATIENCE, alone).await.ok()?;
            client.batch_execute(EMPTIED).await.ok()
        });
        let mut shared = DATABASES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let (Some(()), Some(databases)) = (emptied, shared.as_mut()) {
            databases.free.push(std::mem::take(&mut self.database));
        }
    }
}

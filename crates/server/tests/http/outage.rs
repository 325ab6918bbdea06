//! A store that refuses some calls for a while: deleted queues and counts in spite of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use dwell_model::{Limits, QueueName, Setting, SettingChange};
use dwell_server::{Control, Drained, QueueConfig, Server, ServerConfig};
use dwell_store::{
    Action, Error, MemoryStore, Put, QueueDeaths, QueueStats, Result, Settle, Store, Take, delegate_store,
};
use dwell_time::SystemClock;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::{Answer, Connection, soon, until};

/// A store that during an outage neither reports deaths nor accepts settings.
struct Failing {
    memory: MemoryStore,
    is_out: AtomicBool,
    refused: AtomicU64,
}

impl Failing {
    fn refuses(&self) -> Result<()> {
        if !self.is_out.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.refused.fetch_add(1, Ordering::SeqCst);
        Err(Error::Unavailable { reason: "the node is away".into() })
    }
}

#[async_trait]
impl Store for Failing {
    async fn configure(&self, queue: QueueName, changes: Vec<SettingChange>) -> Result<QueueStats> {
        self.refuses()?;
        self.memory.configure(queue, changes).await
    }

    async fn deaths(&self) -> Result<Vec<QueueDeaths>> {
        self.refuses()?;
        self.memory.deaths().await
    }

    delegate_store! {
        self.memory;
        own: configure deaths;
        forward: put take take_id settle expire_lease cancel reschedule get locate list peek stats queues;
        forward: ready revive forecast discard purge delete_queue;
    }
}

struct Running {
    address: SocketAddr,
    store: Arc<Failing>,
    control: Control,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Drained>,
}

async fn start() -> Running {
    let memory = MemoryStore::new(Limits::default(), Arc::new(SystemClock::new()));
    let store = Arc::new(Failing { memory, is_out: AtomicBool::new(false), refused: AtomicU64::new(0) });
    let mut config = ServerConfig::default();
    config.http.listen = "127.0.0.1:0".parse().unwrap();
    let server = Server::bind(Arc::clone(&store) as Arc<dyn Store>, config).await.unwrap();
    let (address, control) = (server.http_addr(), server.control());
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(server.run(async {
        let _ = stopped.await;
    }));
    Running { address, store, control, stop, task }
}

impl Running {
    async fn ask(&self, method: &str, target: &str) -> Answer {
        let mut connection = Connection::open(self.address).await;
        connection.request(method, target, &[], b"").await;
        connection.answer().await
    }

    fn is_out(&self, is_out: bool) {
        self.store.is_out.store(is_out, Ordering::SeqCst);
    }

    /// Buries a message, not by a call of this server.
    async fn bury_one(&self, queue: &str) {
        let queue: QueueName = queue.parse().unwrap();
        self.store.put(vec![Put::new(queue.clone(), "x")]).await.remove(0).unwrap();
        let taken = self.store.take(Take::from(queue)).await.unwrap().remove(0);
        let bury = Settle { receipt: taken.receipt, action: Action::Bury { priority: None, reason: None } };
        self.store.settle(vec![bury]).await.remove(0).unwrap();
    }

    /// The lines of the page about deaths and discards.
    async fn deaths(&self) -> Vec<String> {
        let page = self.ask("GET", "/metrics").await;
        assert_eq!(page.status, 200);
        let families = ["dwell_deaths_total", "dwell_discarded_total", "dwell_events_total{event=\"death\""];
        let told = |line: &&str| families.iter().any(|family| line.starts_with(family));
        page.text().lines().filter(told).map(str::to_owned).collect()
    }

    async fn stop(self) {
        let _ = self.stop.send(());
        soon("it stops", self.task).await.unwrap();
    }
}

fn lease(queue: &str, ms: u64) -> QueueConfig {
    QueueConfig { name: queue.parse().unwrap(), settings: vec![Setting::LeaseMs(ms)] }
}

#[tokio::test]
async fn a_deleted_queue_is_said_to_be_so_and_has_its_configured_settings_as_soon_as_the_store_takes_them() {
    let server = start().await;
    server.control.keep_queues(&[lease("q", 60_000)]);
    let queue: QueueName = "q".parse().unwrap();
    server.store.put(vec![Put::new(queue.clone(), "x")]).await.remove(0).unwrap();
    server.is_out(true);
    let deleted = server.ask("DELETE", "/v1/queues/q").await;
    assert_eq!((deleted.status, deleted.json()), (200, json!({"removed": 1})));
    until("it is tried again", || async { server.store.refused.load(Ordering::SeqCst) >= 3 }).await;
    // It gets the settings in force by then, and only those that it lacks.
    server.control.keep_queues(&[QueueConfig {
        settings: vec![Setting::LeaseMs(120_000), Setting::MaxPending(7)],
        ..lease("q", 0)
    }]);
    let given = vec![SettingChange::Set(Setting::MaxPending(5))];
    server.store.memory.configure(queue.clone(), given).await.unwrap();
    server.is_out(false);
    until("it has its settings", || async {
        let settings = server.store.stats(queue.clone()).await.unwrap().settings;
        assert_eq!(settings.max_pending, Some(5), "what it was given since stays");
        settings.lease_ms == 120_000
    })
    .await;
    server.stop().await;
}

#[tokio::test]
async fn a_server_ends_though_a_deleted_queue_lacks_its_settings() {
    let server = start().await;
    server.control.keep_queues(&[lease("q", 60_000)]);
    server.is_out(true);
    assert_eq!(server.ask("DELETE", "/v1/queues/q").await.json(), json!({"removed": 0}));
    until("it is tried again", || async { server.store.refused.load(Ordering::SeqCst) >= 2 }).await;
    let store = Arc::downgrade(&server.store);
    server.stop().await;
    until("nobody has the store", || async { store.strong_count() == 0 }).await;
}

#[tokio::test]
async fn deaths_that_the_store_does_not_tell_of_are_left_out_and_none_is_counted_less() {
    let server = start().await;
    server.bury_one("q").await;
    server.is_out(true);
    assert_eq!(server.deaths().await, [""; 0], "nothing is known, and nothing is said");
    server.is_out(false);
    let one = server.deaths().await;
    assert!(one.contains(&"dwell_deaths_total{queue=\"q\",reason=\"buried\"} 1".to_owned()), "{one:?}");
    assert!(one.contains(&"dwell_events_total{event=\"death\"} 1".to_owned()), "{one:?}");
    server.is_out(true);
    server.bury_one("q").await;
    assert_eq!(server.deaths().await, one, "what it has said stands");
    server.is_out(false);
    let two = server.deaths().await;
    assert!(two.contains(&"dwell_deaths_total{queue=\"q\",reason=\"buried\"} 2".to_owned()), "{two:?}");
    // Deaths outside of this server's calls are in the sum too.
    assert!(two.contains(&"dwell_events_total{event=\"death\"} 2".to_owned()), "{two:?}");
    server.stop().await;
}

//! A harness around another one: the same store, with HTTP between it and the suite.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, LazyLock};

use dwell_client::Client;
use dwell_model::Timestamp;
use dwell_server::{HttpConfig, Server, ServerConfig};
use dwell_store::Store;
use dwell_store::conformance::{Harness, await_true};
use dwell_time::Clock;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The runtime of all servers, and of stores that need one: the suite's threads have none.
pub(crate) static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
});

/// A store under test that exposes its clock.
pub(crate) trait OnClock: Harness {
    fn clock(&self) -> Arc<dyn Clock>;
}

/// See the module.
pub(crate) struct Over<H> {
    inner: H,
    client: Client,
    address: SocketAddr,
    serving: Option<Serving>,
}

/// A running server.
struct Serving {
    stop: oneshot::Sender<()>,
    ended: JoinHandle<()>,
}

impl<H: OnClock> Over<H> {
    pub(crate) fn new(inner: H) -> Over<H> {
        let (address, serving) = serve(&inner, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let client = Client::builder(&format!("http://{address}")).patience_ms(20_000).build().unwrap();
        // The client knows the store's limits from the first call on.
        pollster::block_on(client.info()).unwrap();
        Over { inner, client, address, serving: Some(serving) }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The number of waiting takes, as the store behind the server counts them: once for each queue.
    fn waiting(&self) -> u64 {
        let queues = pollster::block_on(self.inner.store().queues(None, 1_000)).unwrap();
        queues.iter().map(|queue| queue.waiting).sum()
    }
}

/// Serves the store of `inner` in its current instance.
fn serve(inner: &impl OnClock, address: SocketAddr) -> (SocketAddr, Serving) {
    let mut http = HttpConfig::default();
    http.listen = address;
    // The clock stands still, so no wait times out.
    http.max_wait_ms = u64::MAX / 4;
    let mut config = ServerConfig::default();
    config.http = http;
    // A restart is as abrupt as a crash.
    config.drain_ms = 0;
    let server = RUNTIME.block_on(Server::bind_on(inner.store(), config, inner.clock())).unwrap();
    let address = server.http_addr();
    let (stop, stopped) = oneshot::channel();
    let ended = RUNTIME.spawn(async move {
        let stopped = async {
            // Sent, or dropped with the harness.
            let _ = stopped.await;
        };
        server.run(stopped).await;
    });
    (address, Serving { stop, ended })
}

impl Serving {
    fn end(self) {
        // It may have ended by itself.
        let _ = self.stop.send(());
        RUNTIME.block_on(self.ended).unwrap();
    }
}

impl<H> Drop for Over<H> {
    fn drop(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.end();
        }
    }
}

impl<H: OnClock> Harness for Over<H> {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.client.clone())
    }

    fn now(&self) -> Timestamp {
        self.inner.now()
    }

    fn advance(&mut self, ms: u64) {
        self.inner.advance(ms);
    }

    fn step_wall(&mut self, by_ms: i64) -> bool {
        self.inner.step_wall(by_ms)
    }

    fn durable(&self) -> bool {
        self.inner.durable()
    }

    fn restart(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.end();
        }
        self.inner.restart();
        self.serving = Some(serve(&self.inner, self.address).1);
    }

    fn close(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.end();
        }
        self.inner.close();
        self.serving = Some(serve(&self.inner, self.address).1);
    }

    fn partitions(&self, partitions: u16) -> u16 {
        self.inner.partitions(partitions)
    }

    fn cap_slack(&self, takes: u64, max: u64) -> u64 {
        self.inner.cap_slack(takes, max)
    }

    fn shows_expiry_at_once(&self) -> bool {
        self.inner.shows_expiry_at_once()
    }

    fn shows_retention_at_once(&self) -> bool {
        self.inner.shows_retention_at_once()
    }

    /// Only the holder has a lease's token.
    fn shows_leases(&self) -> bool {
        false
    }

    /// A lease over HTTP belongs to no process.
    fn has_sessions(&self) -> bool {
        false
    }

    /// The answer had left the server, so the client gives its messages back.
    fn gives_back_by_release(&self) -> bool {
        true
    }

    /// So that a put can be sent again.
    fn makes_idempotency_keys(&self) -> bool {
        true
    }

    fn quiesce(&self) {
        await_true("the server notices that a take is gone", || {
            self.client.is_quiet_for_test() && self.waiting() <= self.client.waits_for_test()
        });
    }
}

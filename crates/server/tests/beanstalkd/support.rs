//! A server on a free port, and a client that writes and reads lines.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dwell_model::{Limits, Setting, SettingChange};
use dwell_server::{BeanstalkdConfig, Drained, Server, ServerConfig};
use dwell_store::{MemoryStore, StateCounts, Store};
use dwell_time::{Clock as _, ManualClock, SystemClock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::counting::Counting;

/// The timeout of every wait in tests.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for `future`, with a timeout.
pub(crate) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"))
}

/// Polls until `condition` holds.
pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    soon(what, async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// Monotonic milliseconds, for measuring waits.
pub(crate) fn now_ms() -> u64 {
    SystemClock::new().now().mono_ms
}

/// The limit on bodies in tests about other things.
const BODIES: u64 = 64 << 20;

/// A running server.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    http: SocketAddr,
    pub(crate) store: Arc<MemoryStore>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Drained>,
}

pub(crate) async fn start() -> Running {
    start_with(Limits::default()).await
}

pub(crate) async fn start_with(limits: Limits) -> Running {
    let store = Arc::new(MemoryStore::new(limits, Arc::new(SystemClock::new())));
    start_on(Arc::clone(&store) as Arc<dyn Store>, store, 50).await
}

/// A server whose store uses this clock.
pub(crate) async fn start_at(clock: ManualClock) -> Running {
    let store = Arc::new(MemoryStore::new(Limits::default(), Arc::new(clock)));
    start_on(Arc::clone(&store) as Arc<dyn Store>, store, 50).await
}

/// A server that waits for its connections when it stops; others soon disconnect clients that hold jobs.
pub(crate) async fn start_patient() -> Running {
    let store = Arc::new(MemoryStore::new(Limits::default(), Arc::new(SystemClock::new())));
    start_on(Arc::clone(&store) as Arc<dyn Store>, store, PATIENCE.as_millis() as u64).await
}

/// A server whose listener is configured by `configure`.
pub(crate) async fn start_configured(configure: impl FnOnce(&mut BeanstalkdConfig)) -> Running {
    start_configured_roomy(BODIES, configure).await
}

/// The same, with a limit of `bodies` bytes on all bodies.
pub(crate) async fn start_configured_roomy(
    bodies: u64,
    configure: impl FnOnce(&mut BeanstalkdConfig),
) -> Running {
    let store = Arc::new(MemoryStore::new(Limits::default(), Arc::new(SystemClock::new())));
    let mut beanstalkd = BeanstalkdConfig::default();
    configure(&mut beanstalkd);
    start_listener(Arc::clone(&store) as Arc<dyn Store>, store, 50, bodies, beanstalkd).await
}

/// A server with a limit of `bodies` bytes on all bodies.
pub(crate) async fn start_roomy(bodies: u64) -> Running {
    start_with_room(bodies, 50).await
}

/// The same; it waits for its connections when it stops.
pub(crate) async fn start_roomy_patient(bodies: u64) -> Running {
    start_with_room(bodies, PATIENCE.as_millis() as u64).await
}

async fn start_with_room(bodies: u64, drain_ms: u64) -> Running {
    let store = Arc::new(MemoryStore::new(Limits::default(), Arc::new(SystemClock::new())));
    let beanstalkd = BeanstalkdConfig::default();
    start_listener(Arc::clone(&store) as Arc<dyn Store>, store, drain_ms, bodies, beanstalkd).await
}

/// A server whose calls to the store are counted.
pub(crate) async fn start_counting() -> (Running, Arc<Counting>) {
    let inner = Arc::new(MemoryStore::new(Limits::default(), Arc::new(SystemClock::new())));
    let counting = Arc::new(Counting::new(Arc::clone(&inner) as Arc<dyn Store>));
    (start_on(Arc::clone(&counting) as Arc<dyn Store>, inner, 50).await, counting)
}

/// The same, with a limit of `bodies` bytes on all bodies.
pub(crate) async fn start_counting_roomy(bodies: u64) -> (Running, Arc<Counting>) {
    start_counting_with_room(bodies, 50).await
}

/// The same; it waits for its connections when it stops.
pub(crate) async fn start_counting_roomy_patient(bodies: u64) -> (Running, Arc<Counting>) {
    start_counting_with_room(bodies, PATIENCE.as_millis() as u64).await
}

async fn start_counting_with_room(bodies: u64, drain_ms: u64) -> (Running, Arc<Counting>) {
    let inner = Arc::new(MemoryStore::new(Limits::default(), Arc::new(SystemClock::new())));
    let counting = Arc::new(Counting::new(Arc::clone(&inner) as Arc<dyn Store>));
    let store = Arc::clone(&counting) as Arc<dyn Store>;
    (start_listener(store, inner, drain_ms, bodies, BeanstalkdConfig::default()).await, counting)
}

/// A server on `store`, whose innermost store is `memory`.
pub(crate) async fn start_on(store: Arc<dyn Store>, memory: Arc<MemoryStore>, drain_ms: u64) -> Running {
    start_listener(store, memory, drain_ms, BODIES, BeanstalkdConfig::default()).await
}

async fn start_listener(
    store: Arc<dyn Store>,
    memory: Arc<MemoryStore>,
    drain_ms: u64,
    bodies: u64,
    mut beanstalkd: BeanstalkdConfig,
) -> Running {
    beanstalkd.listen = "127.0.0.1:0".parse().unwrap();
    let mut config = ServerConfig::default();
    config.http.listen = "127.0.0.1:0".parse().unwrap();
    config.beanstalkd = Some(beanstalkd);
    config.drain_ms = drain_ms;
    config.memory_bytes = bodies;
    let server = Server::bind(store, config).await.unwrap();
    let (address, http) = (server.beanstalkd_addr().unwrap(), server.http_addr());
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(server.run(async {
        let _ = stopped.await;
    }));
    Running { address, http, store: memory, stop, task }
}

impl Running {
    pub(crate) async fn connect(&self) -> Client {
        let stream = soon("connect", TcpStream::connect(self.address)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, buffer: Vec::new() }
    }

    /// A client with very small receive buffers.
    pub(crate) async fn connect_narrow(&self) -> Client {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4 * 1024).unwrap();
        let stream = soon("connect", socket.connect(self.address)).await.unwrap();
        Client { stream, buffer: Vec::new() }
    }

    /// The store's counts of the tube `default`; all zero if it does not know it.
    pub(crate) async fn counts(&self) -> StateCounts {
        let stats = self.store.stats("default".parse().unwrap()).await;
        stats.map(|stats| stats.counts).unwrap_or_default()
    }

    /// Changes a setting of the tube `default`.
    pub(crate) async fn set(&self, setting: Setting) {
        let changes = vec![SettingChange::Set(setting)];
        self.store.configure("default".parse().unwrap(), changes).await.unwrap();
    }

    /// The bytes that bodies hold, from the metrics.
    pub(crate) async fn held_bytes(&self) -> u64 {
        let mut stream = soon("connect", TcpStream::connect(self.http)).await.unwrap();
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        soon("ask", stream.write_all(request.as_bytes())).await.unwrap();
        let mut answer = String::new();
        soon("hear", stream.read_to_string(&mut answer)).await.unwrap();
        let line = answer.lines().find_map(|line| line.strip_prefix("dwell_held_bytes "));
        line.unwrap_or_else(|| panic!("{answer}")).parse().unwrap()
    }

    /// Waits until `count` takes wait on the tube `default`.
    pub(crate) async fn until_waiting(&self, count: u64) {
        until("takes wait", || async {
            self.store.stats("default".parse().unwrap()).await.map_or(0, |stats| stats.waiting) == count
        })
        .await;
    }

    /// Begins its shutdown.
    pub(crate) fn begin_stop(self) -> JoinHandle<Drained> {
        let _ = self.stop.send(());
        self.task
    }

    /// Stops it, and waits until it has stopped.
    pub(crate) async fn stop(self) -> Drained {
        soon("the server stops", self.begin_stop()).await.unwrap()
    }
}

/// A connection.
pub(crate) struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        soon("write", self.stream.write_all(bytes.as_ref())).await.unwrap();
    }

    /// Writes, unless the server has closed the connection.
    pub(crate) async fn try_write(&mut self, bytes: &[u8]) -> bool {
        soon("write", self.stream.write_all(bytes)).await.is_ok()
    }

    /// Closes the sending half; reading goes on.
    pub(crate) async fn half_close(&mut self) {
        self.stream.shutdown().await.unwrap();
    }

    async fn more(&mut self) {
        let read = soon("a reply", self.stream.read_buf(&mut self.buffer)).await.unwrap();
        assert_ne!(read, 0, "closed, after {:?}", String::from_utf8_lossy(&self.buffer));
    }

    /// The next line, without its end.
    pub(crate) async fn line(&mut self) -> String {
        loop {
            if let Some(at) = self.buffer.windows(2).position(|window| window == b"\r\n") {
                let line: Vec<u8> = self.buffer.drain(..at + 2).collect();
                return String::from_utf8(line[..at].to_vec()).unwrap();
            }
            self.more().await;
        }
    }

    /// The body that a reply's line announces, whose last field is its length.
    pub(crate) async fn body(&mut self, line: &str) -> Vec<u8> {
        let len: usize = line.rsplit(' ').next().unwrap().parse().unwrap();
        while self.buffer.len() < len + 2 {
            self.more().await;
        }
        let mut body: Vec<u8> = self.buffer.drain(..len + 2).collect();
        assert!(body.ends_with(b"\r\n"));
        body.truncate(len);
        body
    }

    /// Writes a line, and reads one.
    pub(crate) async fn ask(&mut self, line: &str) -> String {
        self.write(format!("{line}\r\n")).await;
        self.line().await
    }

    /// Writes a line, and asserts the reply.
    pub(crate) async fn expect(&mut self, line: &str, reply: &str) {
        assert_eq!(self.ask(line).await, reply, "to {line:?}");
    }

    /// Puts a job; returns its id.
    pub(crate) async fn put(&mut self, priority: u32, delay: u32, ttr: u32, body: &str) -> u64 {
        let put = format!("put {priority} {delay} {ttr} {}\r\n{body}", body.len());
        let reply = self.ask(&put).await;
        reply.strip_prefix("INSERTED ").unwrap_or_else(|| panic!("{reply}")).parse().unwrap()
    }

    /// Writes a line that is answered with a job: the reply's first word, the id and the body.
    pub(crate) async fn job(&mut self, line: &str) -> (String, u64, String) {
        self.write(format!("{line}\r\n")).await;
        self.next_job().await
    }

    /// Reads a job.
    pub(crate) async fn next_job(&mut self) -> (String, u64, String) {
        let reply = self.line().await;
        let fields: Vec<&str> = reply.split(' ').collect();
        assert_eq!(fields.len(), 3, "{reply}");
        let body = String::from_utf8(self.body(&reply).await).unwrap();
        (fields[0].to_owned(), fields[1].parse().unwrap(), body)
    }

    /// Reserves without waiting; returns a job's id.
    pub(crate) async fn reserve(&mut self) -> u64 {
        let (word, id, _) = self.job("reserve-with-timeout 0").await;
        assert_eq!(word, "RESERVED");
        id
    }

    /// Writes a line that is answered with YAML; returns its text.
    pub(crate) async fn yaml(&mut self, line: &str) -> String {
        let reply = self.ask(line).await;
        assert!(reply.starts_with("OK "), "{reply} to {line}");
        String::from_utf8(self.body(&reply).await).unwrap()
    }

    /// Writes a line that is answered with a YAML map.
    pub(crate) async fn map(&mut self, line: &str) -> BTreeMap<String, String> {
        let text = self.yaml(line).await;
        let lines = text.strip_prefix("---\n").unwrap().lines();
        lines
            .map(|line| {
                let (name, value) = line.split_once(": ").unwrap();
                (name.to_owned(), value.to_owned())
            })
            .collect()
    }

    /// Writes a line that is answered with a YAML list.
    pub(crate) async fn list(&mut self, line: &str) -> Vec<String> {
        let text = self.yaml(line).await;
        let lines = text.strip_prefix("---\n").unwrap().lines();
        lines.map(|line| line.strip_prefix("- ").unwrap().to_owned()).collect()
    }

    /// Whether the server has closed the connection, with nothing left to read.
    pub(crate) async fn is_closed(&mut self) -> bool {
        let read = soon("the server closes", self.stream.read_buf(&mut self.buffer)).await;
        self.buffer.is_empty() && read.unwrap_or(0) == 0
    }
}

//! A server on a free port, a clock that a test moves, and a client that speaks raw HTTP.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dwell_model::{Limits, QueueName, Timestamp};
use dwell_server::{Control, Delivery, Drained, Samples, Server, ServerConfig, Token, TokenDigest, Tokens};
use dwell_store::{MemoryStore, StateCounts, Store};
use dwell_time::ManualClock;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The timeout of every wait in tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for `future`, with a timeout.
pub(crate) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"))
}

/// Polls until `condition` holds.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    soon(what, async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// A running server.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) clock: ManualClock,
    pub(crate) control: Control,
    pub(crate) delivery: Delivery,
    pub(crate) stop: oneshot::Sender<()>,
    pub(crate) task: JoinHandle<Drained>,
}

/// With defaults.
pub(crate) async fn start() -> Running {
    start_with(Limits::default(), |_| {}).await
}

/// With these limits, and a configuration changed by `configure`.
pub(crate) async fn start_with(limits: Limits, configure: impl FnOnce(&mut ServerConfig)) -> Running {
    start_as(limits, configure, |_| {}).await
}

/// With defaults, and with these samples on its metrics page.
pub(crate) async fn start_showing(samples: Arc<dyn Samples>) -> Running {
    start_as(Limits::default(), |_| {}, |server| server.show_samples(samples)).await
}

async fn start_as(
    limits: Limits,
    configure: impl FnOnce(&mut ServerConfig),
    prepare: impl FnOnce(&Server),
) -> Running {
    let clock = ManualClock::new(Timestamp::from_ms(1_795_000_000_000).unwrap());
    let store = Arc::new(MemoryStore::new(limits, Arc::new(clock.clone())));
    let mut config = ServerConfig::default();
    config.http.listen = "127.0.0.1:0".parse().unwrap();
    configure(&mut config);
    let server = Server::bind(Arc::clone(&store) as Arc<dyn Store>, config).await.unwrap();
    prepare(&server);
    let address = server.http_addr();
    let (control, delivery) = (server.control(), server.delivery());
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(server.run(async {
        let _ = stopped.await;
    }));
    Running { address, store, clock, control, delivery, stop, task }
}

/// Tokens, each with a name that is its secret too, and its scopes.
pub(crate) fn tokens(tokens: &[(&str, &[&str])]) -> Tokens {
    let token = |(name, scopes): &(&str, &[&str])| Token {
        name: (*name).to_owned(),
        digest: TokenDigest::of(name.as_bytes()),
        scopes: scopes.iter().map(|scope| scope.parse().unwrap()).collect(),
    };
    Tokens::new(tokens.iter().map(token).collect())
}

impl Running {
    /// Sends a request on a new connection. Its answer has to be one that the OpenAPI document lists.
    pub(crate) async fn send(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let mut connection = Connection::open(self.address).await;
        connection.request(method, target, headers, body).await;
        let answer = connection.answer().await;
        crate::openapi::check(self, method, target, &answer).await;
        answer
    }

    pub(crate) async fn get(&self, target: &str) -> Answer {
        self.send("GET", target, &[], b"").await
    }

    pub(crate) async fn post(&self, target: &str) -> Answer {
        self.send("POST", target, &[], b"").await
    }

    pub(crate) async fn delete(&self, target: &str) -> Answer {
        self.send("DELETE", target, &[], b"").await
    }

    pub(crate) async fn post_json(&self, target: &str, body: &Value) -> Answer {
        self.send("POST", target, &[("content-type", "application/json")], body.to_string().as_bytes()).await
    }

    pub(crate) async fn patch_json(&self, target: &str, body: &Value) -> Answer {
        self.send("PATCH", target, &[("content-type", "application/json")], body.to_string().as_bytes()).await
    }

    /// Puts `body` into the queue `q` with this query; the answer must be 201.
    pub(crate) async fn put(&self, query: &str, body: &[u8]) -> Value {
        let answer = self.send("POST", &format!("/v1/queues/q/messages{query}"), &[], body).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json()
    }

    /// Takes one message from the queue `q`; null if it has none.
    pub(crate) async fn take(&self, query: &str) -> Value {
        let answer = self.post(&format!("/v1/queues/q/take{query}")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["messages"].get_mut(0).map(Value::take).unwrap_or_default()
    }

    /// The number of messages of the queue `q` in a state, as the store counts them; `None` if it has no such queue.
    pub(crate) async fn count(&self, state: &str) -> Option<u64> {
        let stats = self.store.stats(QueueName::new("q").unwrap()).await.ok()?;
        Some(match state {
            "scheduled" => stats.counts.scheduled,
            "ready" => stats.counts.ready,
            "leased" => stats.counts.leased,
            "dead" => stats.counts.dead,
            "waiting" => stats.waiting,
            _ => panic!("no such state"),
        })
    }

    /// Waits until this many are in `state`.
    pub(crate) async fn until_count(&self, state: &str, count: u64) {
        until(&format!("{count} {state}"), || async { self.count(state).await == Some(count) }).await;
    }

    /// Waits until the counts of the queue `q` satisfy `are`.
    pub(crate) async fn until(&self, what: &str, are: impl Fn(StateCounts) -> bool) {
        let queue = QueueName::new("q").unwrap();
        until(what, || async { self.store.stats(queue.clone()).await.is_ok_and(|stats| are(stats.counts)) })
            .await;
    }

    /// Stops it, and waits until it has stopped.
    pub(crate) async fn stop(self) -> Drained {
        let _ = self.stop.send(());
        soon("the server stops", self.task).await.unwrap()
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(given, _)| given.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The answer's lines, each as JSON.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The status and code of a problem, which must be well formed.
    pub(crate) fn problem(&self) -> (u16, String) {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let problem = self.json();
        let code = problem["code"].as_str().unwrap().to_owned();
        assert_eq!(problem["type"], format!("/errors/{code}"));
        assert_eq!(problem["status"], self.status);
        assert!(problem["title"].is_string() && problem["detail"].is_string());
        assert_eq!(problem["retryable"].as_bool().unwrap(), self.header("retry-after").is_some());
        (self.status, code)
    }
}

/// A connection that a test writes to freely.
pub(crate) struct Connection<S = TcpStream> {
    stream: S,
    address: SocketAddr,
    buffer: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Connection {
        let stream = soon("connect", TcpStream::connect(address)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Connection { stream, address, buffer: Vec::new() }
    }

    /// For reading and writing at the same time.
    pub(crate) fn split(self) -> (Connection<OwnedReadHalf>, Connection<OwnedWriteHalf>) {
        let (reader, writer) = self.stream.into_split();
        let address = self.address;
        let reader = Connection { stream: reader, address, buffer: self.buffer };
        (reader, Connection { stream: writer, address, buffer: Vec::new() })
    }
}

impl<S> Connection<S> {
    /// Over a stream of the test's own to the server at `address`.
    pub(crate) fn over(stream: S, address: SocketAddr) -> Connection<S> {
        Connection { stream, address, buffer: Vec::new() }
    }

    /// The stream itself.
    pub(crate) fn stream_mut(&mut self) -> &mut S {
        &mut self.stream
    }
}

impl<S: AsyncWrite + Unpin> Connection<S> {
    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        soon("write", self.stream.write_all(bytes)).await.unwrap();
    }

    /// Writes, unless the server has closed the connection.
    pub(crate) async fn try_write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        soon("write", self.stream.write_all(bytes)).await
    }

    /// Writes the head of a request; `Host` is added unless it is there.
    pub(crate) async fn head(&mut self, method: &str, target: &str, headers: &[(&str, &str)]) {
        let mut head = format!("{method} {target} HTTP/1.1\r\n");
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            head.push_str(&format!("Host: {}\r\n", self.address));
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        self.write(head.as_bytes()).await;
    }

    /// Writes a whole request.
    pub(crate) async fn request(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) {
        let len = body.len().to_string();
        let mut all = headers.to_vec();
        if !body.is_empty() {
            all.push(("content-length", &len));
        }
        self.head(method, target, &all).await;
        self.write(body).await;
    }

    /// Writes a piece of a chunked body.
    pub(crate) async fn chunk(&mut self, bytes: &[u8]) {
        self.try_chunk(bytes).await.unwrap();
    }

    /// Writes a piece of a chunked body, unless the server has closed the connection.
    pub(crate) async fn try_chunk(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let mut piece = format!("{:x}\r\n", bytes.len()).into_bytes();
        piece.extend_from_slice(bytes);
        piece.extend_from_slice(b"\r\n");
        soon("write", self.stream.write_all(&piece)).await
    }
}

impl<S: AsyncRead + Unpin> Connection<S> {
    async fn more(&mut self) -> usize {
        soon("read", self.stream.read_buf(&mut self.buffer)).await.unwrap()
    }

    /// Everything until the server closes or resets the connection.
    pub(crate) async fn read_to_end(&mut self) -> Vec<u8> {
        while soon("read", self.stream.read_buf(&mut self.buffer)).await.unwrap_or(0) > 0 {}
        std::mem::take(&mut self.buffer)
    }

    /// Reads at most `len` bytes; returns the number read.
    pub(crate) async fn read_some(&mut self, len: usize) -> usize {
        let mut bytes = vec![0; len];
        soon("read", self.stream.read(&mut bytes)).await.unwrap()
    }

    /// Everything up to and with `end`.
    pub(crate) async fn read_until(&mut self, end: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = self.buffer.windows(end.len()).position(|window| window == end) {
                return self.buffer.drain(..at + end.len()).collect();
            }
            assert_ne!(self.more().await, 0, "closed, after {:?}", String::from_utf8_lossy(&self.buffer));
        }
    }

    async fn read_exactly(&mut self, len: usize) -> Vec<u8> {
        while self.buffer.len() < len {
            assert_ne!(self.more().await, 0, "closed in the middle of an answer");
        }
        self.buffer.drain(..len).collect()
    }

    /// The head of an answer.
    pub(crate) async fn answer_head(&mut self) -> Answer {
        let head = String::from_utf8(self.read_until(b"\r\n\r\n").await).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.map(|line| {
            let (name, value) = line.split_once(':').unwrap();
            (name.to_owned(), value.trim().to_owned())
        });
        Answer { status, headers: headers.collect(), body: Vec::new() }
    }

    /// A piece of a chunked answer; empty at its end.
    pub(crate) async fn answer_chunk(&mut self) -> Vec<u8> {
        let size = String::from_utf8(self.read_until(b"\r\n").await).unwrap();
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        let mut chunk = self.read_exactly(size + 2).await;
        chunk.truncate(size);
        chunk
    }

    /// A whole answer.
    pub(crate) async fn answer(&mut self) -> Answer {
        let mut answer = self.answer_head().await;
        if let Some(len) = answer.header("content-length") {
            answer.body = self.read_exactly(len.parse().unwrap()).await;
        } else if answer.header("transfer-encoding") == Some("chunked") {
            loop {
                let mut chunk = self.answer_chunk().await;
                if chunk.is_empty() {
                    break;
                }
                answer.body.append(&mut chunk);
            }
        }
        answer
    }

    /// Whether the server has closed the connection, with nothing left to read.
    pub(crate) async fn is_closed(&mut self) -> bool {
        let read = soon("the server closes", self.stream.read_buf(&mut self.buffer)).await;
        self.buffer.is_empty() && read.unwrap_or(0) == 0
    }
}

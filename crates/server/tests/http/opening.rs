//! A server whose store is still being opened.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dwell_model::Limits;
use dwell_server::{BeanstalkdConfig, Listeners, Server, ServerConfig};
use dwell_store::{MemoryStore, Store};
use dwell_time::SystemClock;
use tokio::io::AsyncReadExt as _;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::{Connection, soon, until};

async fn ask(address: SocketAddr, method: &str, target: &str, body: &[u8]) -> (u16, Option<String>) {
    let mut connection = Connection::open(address).await;
    connection.request(method, target, &[], body).await;
    let answer = connection.answer().await;
    assert!(connection.is_closed().await, "it is asked again on another connection");
    if answer.status == 200 {
        return (200, None);
    }
    assert_eq!(answer.header("retry-after"), Some("1"), "{answer:?}");
    let (status, code) = answer.problem();
    (status, Some(code))
}

/// A server with this many permits for connections, whose store is being opened until the sender completes it.
async fn opening(places: usize) -> (SocketAddr, oneshot::Sender<()>, JoinHandle<(Listeners, ServerConfig)>) {
    let mut config = ServerConfig::default();
    config.http.listen = "127.0.0.1:0".parse().unwrap();
    config.http.max_connections = places;
    let mut listeners = Listeners::bind(&config).await.unwrap();
    let address = listeners.http_addr();
    let (open, opening) = oneshot::channel::<()>();
    let answering = tokio::spawn(async move {
        listeners.answer_while(&config, opening).await.unwrap();
        (listeners, config)
    });
    (address, open, answering)
}

/// The number of these that the server has closed, as far as is known without waiting.
fn closed(connections: &mut [Connection]) -> usize {
    let is_closed = |one: &mut Connection| match one.stream_mut().try_read(&mut [0]) {
        Ok(len) => len == 0,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    };
    connections.iter_mut().map(is_closed).filter(|is_closed| *is_closed).count()
}

const PLACES: usize = 16;

/// Ten times as many connections as permits, all of which send nothing, or half a request.
#[tokio::test]
async fn who_stalls_while_the_store_opens_keeps_nobody_from_being_answered() {
    for begun in [&b""[..], b"GET /health/live HT"] {
        let (address, open, answering) = opening(PLACES).await;
        let mut stalled = Vec::new();
        for _ in 0..10 * PLACES {
            let mut connection = Connection::open(address).await;
            connection.write(begun).await;
            stalled.push(connection);
        }
        let answered = timeout(Duration::from_secs(5), ask(address, "GET", "/health/live", b"")).await;
        assert_eq!(answered.expect("it is answered at once"), (200, None));
        // Long before the timeout of one of their requests: no more are open than there are permits.
        let all_but_those_with_a_place = timeout(
            Duration::from_secs(5),
            until("the first to come have gone", || {
                let closed = closed(&mut stalled);
                async move { closed >= 9 * PLACES }
            }),
        );
        all_but_those_with_a_place.await.expect("whoever came first makes place");
        open.send(()).unwrap();
        let opened = timeout(Duration::from_secs(5), answering).await;
        opened.expect("nobody who stalls holds the server up").unwrap();
    }
}

/// Connections from before the store was open count like all others.
#[tokio::test]
async fn those_who_came_early_have_the_servers_places() {
    let (address, open, answering) = opening(2).await;
    let mut early = Vec::new();
    for _ in 0..2 {
        early.push(Connection::open(address).await);
    }
    open.send(()).unwrap();
    let (listeners, config) = soon("the listeners are free", answering).await.unwrap();
    let store = Arc::new(MemoryStore::new(Limits::default(), Arc::new(SystemClock::new())));
    let server = Server::new(store, listeners, config);
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(server.run(async {
        let _ = stopped.await;
    }));
    for connection in &mut early {
        connection.request("GET", "/health/ready", &[], b"").await;
        assert_eq!(connection.answer().await.status, 200);
    }
    let mut late = Connection::open(address).await;
    late.request("GET", "/health/ready", &[], b"").await;
    assert_eq!(late.answer().await.problem(), (503, "too_many_connections".to_owned()));
    drop(stop);
    soon("it stops", running).await.unwrap();
}

#[tokio::test]
async fn whoever_asks_before_the_store_is_open_is_told_to_come_again() {
    let mut config = ServerConfig::default();
    config.http.listen = "127.0.0.1:0".parse().unwrap();
    let mut beanstalkd = BeanstalkdConfig::default();
    beanstalkd.listen = "127.0.0.1:0".parse().unwrap();
    config.beanstalkd = Some(beanstalkd);
    let mut listeners = Listeners::bind(&config).await.unwrap();
    let (address, beanstalkd) = (listeners.http_addr(), listeners.beanstalkd_addr().unwrap());

    let (open, opening) = oneshot::channel::<()>();
    let answering = {
        let config = config.clone();
        tokio::spawn(async move {
            listeners.answer_while(&config, opening).await.unwrap();
            listeners
        })
    };
    let unavailable = (503, Some("unavailable".to_owned()));
    assert_eq!(ask(address, "GET", "/health/live", b"").await, (200, None));
    assert_eq!(ask(address, "GET", "/health/ready", b"").await, unavailable);
    assert_eq!(ask(address, "POST", "/v1/queues/q/messages", b"x").await, unavailable);
    // More than is read with the head: the answer still arrives.
    assert_eq!(ask(address, "POST", "/v1/queues/q/messages", &vec![b'x'; 1 << 20]).await, unavailable);
    assert_eq!(ask(address, "GET", "/nowhere", b"").await, unavailable);

    // These send nothing yet, or use a protocol that has no refusal.
    let mut quiet = Connection::open(address).await;
    let mut early = Connection::open(beanstalkd).await;
    early.write(b"put 0 0 60 1\r\nx\r\n").await;

    open.send(()).unwrap();
    let listeners = soon("the listeners are free", answering).await.unwrap();
    let store = Arc::new(MemoryStore::new(Limits::default(), Arc::new(SystemClock::new())));
    let server = Server::new(Arc::clone(&store) as Arc<dyn Store>, listeners, config);
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(server.run(async {
        let _ = stopped.await;
    }));
    assert_eq!(early.read_until(b"\r\n").await, b"INSERTED 1\r\n");
    for _ in 0..2 {
        quiet.request("GET", "/health/ready", &[], b"").await;
        let answer = quiet.answer().await;
        assert_eq!(answer.status, 200, "it is served like any other: {answer:?}");
    }
    let stats = store.stats("default".parse().unwrap()).await.unwrap();
    assert_eq!(stats.counts.ready, 1, "what was refused was not put");
    drop(stop);
    soon("it stops", running).await.unwrap();
    let mut bytes = [0; 1];
    assert_eq!(soon("it is closed", quiet.stream_mut().read(&mut bytes)).await.unwrap_or(0), 0);
}

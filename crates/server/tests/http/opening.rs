//! A server whose store is still being opened.

use std::net::SocketAddr;
use std::sync::Arc;

use dwell_model::Limits;
use dwell_server::{BeanstalkdConfig, Listeners, Server, ServerConfig};
use dwell_store::{MemoryStore, Store};
use dwell_time::SystemClock;
use tokio::io::AsyncReadExt as _;
use tokio::sync::oneshot;

use crate::support::{Connection, soon};

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
    // More than is read with the head: the answer comes all the same.
    assert_eq!(ask(address, "POST", "/v1/queues/q/messages", &vec![b'x'; 1 << 20]).await, unavailable);
    assert_eq!(ask(address, "GET", "/nowhere", b"").await, unavailable);

    // These ask nothing yet, or in words that know no refusal.
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

//! The listener's lifecycle: a port that is taken, and shutdown.

use std::sync::Arc;

use dwell_model::Limits;
use dwell_server::{BeanstalkdConfig, Drained, Server, ServerConfig};
use dwell_store::{MemoryStore, Store as _};
use dwell_time::SystemClock;
use tokio::net::TcpStream;

use crate::support::{soon, start, start_patient, until};

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let server = start().await;
    let store = Arc::new(MemoryStore::new(Limits::default(), Arc::new(SystemClock::new())));
    let mut beanstalkd = BeanstalkdConfig::default();
    beanstalkd.listen = server.address;
    let mut config = ServerConfig::default();
    config.http.listen = "127.0.0.1:0".parse().unwrap();
    config.beanstalkd = Some(beanstalkd);
    let error = Server::bind(store, config).await.unwrap_err();
    assert_eq!(error.code(), "address_in_use");
    assert!(error.to_string().contains(&server.address.to_string()), "{error}");
    server.connect().await.expect("list-tube-used", "USING default").await;
    server.stop().await;
}

#[tokio::test]
async fn a_server_that_stops_tells_those_who_wait_and_closes_all() {
    let server = start_patient().await;
    let mut silent = server.connect().await;
    let (mut waiting, mut idle) = (server.connect().await, server.connect().await);
    waiting.write("reserve\r\n").await;
    server.until_waiting(1).await;
    idle.ask("list-tube-used").await;
    let address = server.address;
    assert_eq!(server.stop().await, Drained { cut_off: 0 });
    assert_eq!(waiting.line().await, "TIMED_OUT");
    assert!(waiting.is_closed().await && idle.is_closed().await && silent.is_closed().await);
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn a_worker_may_finish_what_it_holds_while_the_server_drains() {
    let server = start_patient().await;
    let mut worker = server.connect().await;
    let id = worker.put(0, 0, 60, "x").await;
    worker.put(0, 0, 60, "y").await;
    worker.reserve().await;
    let address = server.address;
    let store = Arc::clone(&server.store);
    let stopping = server.begin_stop();
    until("nobody listens", || async { TcpStream::connect(address).await.is_err() }).await;
    worker.expect("put 0 0 60 1\r\nz", "DRAINING").await;
    worker.expect("reserve-with-timeout 5", "TIMED_OUT").await;
    assert_eq!(worker.map("stats").await["draining"], "true");
    worker.expect(&format!("delete {id}"), "DELETED").await;
    assert!(worker.is_closed().await);
    assert_eq!(soon("it stops", stopping).await.unwrap(), Drained { cut_off: 0 });
    assert_eq!(store.stats("default".parse().unwrap()).await.unwrap().counts.ready, 1);
}

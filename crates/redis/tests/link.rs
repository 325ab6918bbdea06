//! Connections to each kind of deployment, and what is said of one that is not there.

use dwell_redis::testing::{Cluster, Sentinels, Server, free_port};
use dwell_redis::{Address, Link, OpenError};

async fn pings(address: Address) -> Result<(), OpenError> {
    let link = Link::open(address).await?;
    let set: String = link.ask(redis::cmd("SET").arg("k").arg("v")).await.expect("it is reached");
    assert_eq!(set, "OK");
    Ok(())
}

#[tokio::test]
async fn one_server_is_reached_with_and_without_a_password() {
    let server = Server::start();
    pings(server.address()).await.unwrap();
    let server = Server::with_password("sesame");
    pings(server.address()).await.unwrap();
    let stranger = format!("redis://:wrong@127.0.0.1:{}", server.port()).parse().unwrap();
    let refused = pings(stranger).await.unwrap_err();
    assert!(matches!(refused, OpenError::Unreachable { .. }), "{refused}");
    assert!(!refused.to_string().contains("wrong"));
}

#[tokio::test]
async fn nobody_there_is_a_typed_error() {
    let address = format!("redis://127.0.0.1:{}", free_port()).parse().unwrap();
    assert!(matches!(pings(address).await, Err(OpenError::Unreachable { .. })));
}

#[tokio::test]
async fn a_socket_is_reached() {
    let server = Server::start_with(&["--unixsocket", "redis.sock"]);
    let url = format!("redis+unix://{}/redis.sock?db=3", server.folder().display());
    pings(url.parse().unwrap()).await.unwrap();
    assert_eq!(server.info("db3").map(|keys| keys.starts_with("keys=1")), Some(true));
}

#[tokio::test]
async fn a_cluster_is_reached() {
    let cluster = Cluster::start();
    pings(cluster.address()).await.unwrap();
}

#[tokio::test]
async fn a_primary_is_found_through_sentinels_and_its_successor_too() {
    let mut sentinels = Sentinels::start();
    let link = Link::open((sentinels.url() + "?connections=1").parse().unwrap()).await.unwrap();
    let old = sentinels.primary_port().unwrap();
    let first = sentinels.servers().iter_mut().find(|server| server.port() == old).unwrap();
    first.kill();
    sentinels.await_failover(old);
    // The lost connection is noticed by the first call or by none.
    let _ = link.send(&redis::cmd("PING")).await;
    let role: Vec<redis::Value> = link.ask(&redis::cmd("ROLE")).await.unwrap();
    assert_eq!(role[0], redis::Value::BulkString(b"master".to_vec()));
}

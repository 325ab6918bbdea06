//! Opening the listener.

use std::sync::Arc;

use dwell_model::Limits;
use dwell_server::{BeanstalkdConfig, BindError, Server, ServerConfig};
use dwell_store::MemoryStore;
use dwell_time::SystemClock;

use crate::support::{start, tokens};

async fn bind(address: &str) -> Result<Server, BindError> {
    let store = Arc::new(MemoryStore::new(Limits::default(), Arc::new(SystemClock::new())));
    let mut config = ServerConfig::default();
    config.http.listen = address.parse().unwrap();
    config.http.insecure = true;
    Server::bind(store, config).await
}

#[tokio::test]
async fn where_others_reach_it_nobody_goes_unasked() {
    let store = || Arc::new(MemoryStore::new(Limits::default(), Arc::new(SystemClock::new())));
    let config = |address: &str| {
        let mut config = ServerConfig::default();
        config.http.listen = address.parse().unwrap();
        config
    };
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let error = Server::bind(store(), config(address)).await.unwrap_err();
        assert_eq!(error.code(), "listener_exposed", "{address}");
    }
    let mut guarded = config("0.0.0.0:0");
    guarded.http.tokens = tokens(&[("secret", &["put:*"])]);
    assert!(Server::bind(store(), guarded).await.is_ok());

    let mut beanstalkd = config("127.0.0.1:0");
    beanstalkd.http.tokens = tokens(&[("secret", &["put:*"])]);
    let mut listener = BeanstalkdConfig::default();
    listener.listen = "0.0.0.0:0".parse().unwrap();
    beanstalkd.beanstalkd = Some(listener.clone());
    let error = Server::bind(store(), beanstalkd.clone()).await.unwrap_err();
    assert_eq!(error.code(), "listener_exposed", "its protocol knows no tokens");
    listener.insecure = true;
    beanstalkd.beanstalkd = Some(listener);
    assert!(Server::bind(store(), beanstalkd).await.is_ok());
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let server = start().await;
    let error = bind(&server.address.to_string()).await.unwrap_err();
    assert_eq!(error.code(), "address_in_use");
    let text = error.to_string();
    assert!(text.contains(&server.address.to_string()) && text.contains("another port"), "{text}");
    assert_eq!(server.get("/health/live").await.status, 200, "the first one goes on");
    server.stop().await;
}

#[tokio::test]
async fn an_address_of_another_machine_is_refused() {
    // 192.0.2.0/24 is kept for documentation (RFC 5737).
    assert_eq!(bind("192.0.2.1:0").await.unwrap_err().code(), "address_not_ours");
}

#[tokio::test]
async fn the_address_of_a_chosen_port_is_reported() {
    let (one, two) = (bind("127.0.0.1:0").await.unwrap(), bind("127.0.0.1:0").await.unwrap());
    assert_ne!(one.http_addr().port(), 0);
    assert_ne!(one.http_addr(), two.http_addr());
}

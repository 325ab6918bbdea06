//! Opening the listener.

use std::sync::Arc;

use dwell_model::Limits;
use dwell_server::{BindError, Server, ServerConfig};
use dwell_store::MemoryStore;
use dwell_time::SystemClock;

use crate::support::start;

async fn bind(address: &str) -> Result<Server, BindError> {
    let store = Arc::new(MemoryStore::new(Limits::default(), Arc::new(SystemClock::new())));
    let mut config = ServerConfig::default();
    config.http.listen = address.parse().unwrap();
    Server::bind(store, config).await
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

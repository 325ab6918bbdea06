//! Health: what a failed store reveals to unauthenticated callers.

use std::sync::Arc;

use async_trait::async_trait;
use dwell_model::{
    Cursor, Limits, Message, MessageId, Number, QueueName, SettingChange, StateKind, Timestamp,
};
use dwell_server::{Server, ServerConfig};
use dwell_store::{
    BulkOutcome, Cancelled, Delivery, Error, Forecast, LeaseRef, LeaseTerms, Page, Put, PutAnswer,
    QueueDeaths, QueueStats, Rescheduled, Result, Selection, Settle, Settled, Store, Take, Target, When,
};
use tokio::sync::oneshot;

use crate::support::{Connection, soon};

/// What a store's error may contain: paths, addresses, names of queues.
const TOLD: &str = "/srv/data/journal-000 of 10.0.0.5:6379, queue orders: Input/output error";

/// A store that answers everything with an error.
struct BrokenStore(Limits);

fn broken<T>() -> Result<T> {
    Err(Error::Unavailable { reason: TOLD.into() })
}

#[async_trait]
impl Store for BrokenStore {
    async fn put(&self, puts: Vec<Put>) -> Vec<Result<PutAnswer>> {
        puts.iter().map(|_| broken()).collect()
    }
    async fn take(&self, _: Take) -> Result<Vec<Delivery>> {
        broken()
    }
    async fn take_id(&self, _: QueueName, _: MessageId, _: LeaseTerms) -> Result<Delivery> {
        broken()
    }
    async fn settle(&self, settles: Vec<Settle>) -> Vec<Result<Settled>> {
        settles.iter().map(|_| broken()).collect()
    }
    async fn expire_lease(&self, _: QueueName, leases: Vec<LeaseRef>) -> Vec<Result<Settled>> {
        leases.iter().map(|_| broken()).collect()
    }
    async fn cancel(&self, _: QueueName, targets: Vec<Target>) -> Vec<Result<Cancelled>> {
        targets.iter().map(|_| broken()).collect()
    }
    async fn reschedule(&self, _: QueueName, moves: Vec<(Target, When)>) -> Vec<Result<Rescheduled>> {
        moves.iter().map(|_| broken()).collect()
    }
    async fn get(&self, _: QueueName, targets: Vec<Target>, _: bool) -> Vec<Result<Message>> {
        targets.iter().map(|_| broken()).collect()
    }
    async fn locate(&self, numbers: Vec<Number>) -> Vec<Result<Option<(QueueName, MessageId)>>> {
        numbers.iter().map(|_| broken()).collect()
    }
    async fn list(&self, _: QueueName, _: StateKind, _: Option<Cursor>, _: usize) -> Result<Page> {
        broken()
    }
    async fn stats(&self, _: QueueName) -> Result<QueueStats> {
        broken()
    }
    async fn forecast(&self, _: Option<Vec<QueueName>>, _: Vec<Timestamp>) -> Result<Forecast> {
        broken()
    }
    async fn queues(&self, _: Option<QueueName>, _: usize) -> Result<Vec<QueueStats>> {
        broken()
    }
    async fn configure(&self, _: QueueName, _: Vec<SettingChange>) -> Result<QueueStats> {
        broken()
    }
    async fn revive(&self, _: QueueName, _: Selection, _: When) -> Result<BulkOutcome> {
        broken()
    }
    async fn discard(&self, _: QueueName, _: Selection) -> Result<BulkOutcome> {
        broken()
    }
    async fn deaths(&self) -> Result<Vec<QueueDeaths>> {
        broken()
    }
    async fn purge(&self, _: QueueName) -> Result<u64> {
        broken()
    }
    async fn delete_queue(&self, _: QueueName) -> Result<u64> {
        broken()
    }
    fn limits(&self) -> &Limits {
        &self.0
    }
}

/// No token is required there.
#[tokio::test]
async fn a_store_that_does_not_serve_is_told_by_its_code_alone() {
    let mut config = ServerConfig::default();
    config.http.listen = "127.0.0.1:0".parse().unwrap();
    config.http.tokens = crate::support::tokens(&[("somebody", &["manage:*"])]);
    let server = Server::bind(Arc::new(BrokenStore(Limits::default())), config).await.unwrap();
    let address = server.http_addr();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(server.run(async {
        let _ = stopped.await;
    }));
    let mut connection = Connection::open(address).await;
    connection.request("GET", "/health/ready", &[], b"").await;
    let answer = connection.answer().await;
    assert_eq!(answer.problem(), (503, "unavailable".to_owned()));
    for told in ["/srv", "10.0.0.5", "orders", "Input"] {
        assert!(!answer.text().contains(told), "{answer:?}");
    }
    // A caller with `manage` receives the error.
    connection.request("GET", "/v1/queues", &[("authorization", "Bearer somebody")], b"").await;
    assert!(connection.answer().await.text().contains(TOLD));
    drop(stop);
    soon("it stops", running).await.unwrap();
}

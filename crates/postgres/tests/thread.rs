//! A store with its own thread, for callers without a runtime.

use dwell_model::{Limits, QueueName};
use dwell_postgres::{Address, PostgresStore};
use dwell_store::{Error, Put, Store as _, Take};
use dwell_testkit::postgres::Server;

#[test]
fn callers_without_a_runtime_are_served_and_what_is_held_is_released_at_the_end() {
    let server = Server::start();
    let address: Address = format!("{}?unsynced=allow", server.url("postgres")).parse().unwrap();
    let queue = QueueName::new("orders").unwrap();
    let take = || Take::from(queue.clone()).lease_ms(3_600_000);

    let store = PostgresStore::open_with_thread(address.clone(), Limits::default()).unwrap();
    pollster::block_on(async {
        store.put(vec![Put::new(queue.clone(), "order 7")]).await.remove(0).unwrap();
        assert_eq!(store.take(take().session()).await.unwrap().len(), 1);
        assert!(!store.has_left());
        assert!(store.leave().await, "what was held is released");
        assert!(store.has_left());
        assert_eq!(store.take(take()).await.unwrap_err(), Error::Closed);
    });

    let opened = PostgresStore::open_with_thread_async(address, Limits::default());
    let store = pollster::block_on(opened).unwrap();
    let taken = pollster::block_on(store.take(take())).unwrap().remove(0);
    assert_eq!((&taken.message.body[..], taken.message.standing.attempts), (&b"order 7"[..], 0));
}

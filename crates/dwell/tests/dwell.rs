//! `Dwell`: each store opened in one line, and the effects of closing it, dropping it and failing to open it.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use dwell::{
    BoxFuture, Bytes, Dwell, Error, Job, Limits, ManualClock, MemoryStore, PutAnswer, Queue, QueueStats,
    Result, Store, Stream, SystemClock, Timestamp, blocking,
};

/// A timeout that no machine should reach: a wait of this length is a failure.
const LONG: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_store_in_memory_hands_over_what_was_put() {
    let dwell = Dwell::memory();
    let orders = dwell.queue("orders").unwrap();
    let put = orders.put("close order 7").delay(Duration::from_millis(5)).key("order-7").await.unwrap();
    let job = orders.take().wait(LONG).await.unwrap().unwrap();
    assert_eq!((job.id(), job.text().unwrap()), (put.id, "close order 7"));
    assert!(job.taken_at >= put.due);
    job.ack().await.unwrap();
    assert_eq!(dwell.queue("a b").unwrap_err().code(), "invalid_queue_name");
}

#[tokio::test]
async fn clones_and_queues_are_one_store_and_a_closed_one_says_so() {
    let dwell = Dwell::memory();
    let (orders, clone) = (dwell.queue("orders").unwrap(), dwell.clone());
    orders.put("body").await.unwrap();
    assert_eq!(clone.queue("orders").unwrap().stats().await.unwrap().counts.ready, 1);
    assert_eq!(
        blocking::Dwell::from(clone.clone()).queue("orders").unwrap().stats().unwrap().counts.ready,
        1
    );

    clone.close().await.unwrap();
    let refused = orders.put("body").await.unwrap_err();
    assert!(refused == Error::Closed && refused.needs_reopen(), "{refused}");
    assert_eq!(clone.close().await, Err(Error::Closed), "it is closed already");
}

#[tokio::test]
async fn a_store_of_somebody_elses_is_left_open() {
    let clock = ManualClock::new(Timestamp::from_ms(1_795_000_000_000).unwrap());
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Limits::default(), Arc::new(clock.clone())));
    let dwell = Dwell::on(Arc::clone(&store));
    assert!(Arc::ptr_eq(dwell.store(), &store));
    let orders = dwell.queue("orders").unwrap();
    orders.put("body").delay(Duration::from_secs(1)).await.unwrap();
    dwell.close().await.unwrap();
    clock.advance(1_000);
    orders.take().await.unwrap().unwrap().ack().await.unwrap();
}

#[tokio::test]
async fn a_store_that_a_dwell_is_made_from_is_closed_by_it() {
    let dwell = Dwell::from(MemoryStore::new(Limits::default(), Arc::new(SystemClock::new())));
    dwell.close().await.unwrap();
    assert_eq!(dwell.queue("orders").unwrap().put("body").await.unwrap_err(), Error::Closed);
}

#[tokio::test]
async fn queues_are_listed_and_messages_are_found_by_their_numbers() {
    let clock = ManualClock::new(Timestamp::from_ms(1_795_000_000_000).unwrap());
    let limits = Limits { queues: 2, ..Limits::default() };
    let dwell = Dwell::memory_with(limits, Arc::new(clock.clone()));
    let (mails, orders) = (dwell.queue("mails").unwrap(), dwell.queue("orders").unwrap());
    let put = mails.put("body").delay(Duration::from_secs(1)).await.unwrap();
    orders.put("body").await.unwrap();
    assert_eq!(dwell.queue("third").unwrap().put("body").await.unwrap_err().code(), "too_many_queues");

    let names = |queues: Vec<QueueStats>| queues.into_iter().map(|queue| queue.name).collect::<Vec<_>>();
    let both = names(dwell.queues(None, 9).await.unwrap());
    assert_eq!(both, [mails.name().clone(), orders.name().clone()]);
    let rest = names(dwell.queues(Some(mails.name().clone()), 9).await.unwrap());
    assert_eq!(rest, [orders.name().clone()]);

    let number = mails.get(put.id).await.unwrap().number;
    assert_eq!(dwell.locate(number).await, Ok(Some((mails.name().clone(), put.id))));
    clock.advance(1_000);
    mails.take().await.unwrap().unwrap().ack().await.unwrap();
    assert_eq!(dwell.locate(number).await, Ok(None));

    let twin = blocking::Dwell::from(dwell);
    assert_eq!((names(twin.queues(None, 9).unwrap()).len(), twin.locate(number)), (1, Ok(None)));
}

#[tokio::test]
async fn what_signatures_name_can_be_named() {
    fn stream_of(orders: &Queue) -> impl Stream<Item = Result<Job>> + use<> {
        orders.take().stream()
    }
    let orders = Dwell::memory().queue("orders").unwrap();
    let putting: BoxFuture<'static, Result<PutAnswer>> =
        orders.put(Bytes::from_static(b"body")).into_future();
    putting.await.unwrap();
    let mut jobs = Box::pin(stream_of(&orders));
    let next = std::future::poll_fn(|context| jobs.as_mut().poll_next(context)).await;
    let job = next.unwrap().unwrap();
    let body: &Bytes = job.body();
    assert_eq!(&body[..], b"body");
    job.ack().await.unwrap();
}

#[test]
fn a_close_answers_a_thread_that_waits() {
    let dwell = blocking::Dwell::memory();
    let orders = dwell.queue("orders").unwrap();
    let (sender, receiver) = channel();
    let taker = std::thread::spawn({
        let orders = orders.clone();
        move || sender.send(orders.take().wait(LONG).call().map(|job| job.is_some())).unwrap()
    });
    // The take waits once the store counts it.
    while orders.stats().map_or(0, |stats| stats.waiting) == 0 {
        std::thread::yield_now();
    }
    dwell.close().unwrap();
    assert_eq!(receiver.recv_timeout(LONG / 2).unwrap(), Ok(false));
    taker.join().unwrap();
}

#[cfg(feature = "engine")]
mod engine {
    use dwell::engine::{Engine, Options};
    use dwell::{OpenError, PutOutcome, Settled};

    use super::*;

    #[tokio::test]
    async fn what_was_put_is_there_when_the_directory_is_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let put = {
            let orders = Dwell::open(dir.path()).unwrap().queue("orders").unwrap();
            // The store stays open as long as one of its queues exists.
            orders.put("close order 7").key("order-7").await.unwrap()
        };
        let dwell = Dwell::open(dir.path()).unwrap();
        let orders = dwell.queue("orders").unwrap();
        assert_eq!(orders.get("order-7").await.unwrap().id, put.id);
        orders.take().await.unwrap().unwrap().ack().await.unwrap();
        assert!(dwell.engine().is_some() && Dwell::memory().engine().is_none());
        dwell.close().await.unwrap();
        assert_eq!(dwell.close().await, Err(Error::Closed));
        assert_eq!(orders.stats().await.unwrap_err(), Error::Closed);
    }

    #[test]
    fn a_blocking_one_does_the_same_and_its_session_leases_end_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let dwell = blocking::Dwell::open_with(dir.path(), Options::default()).unwrap();
        let orders = dwell.queue("orders").unwrap();
        let answers = orders.put_many(["one", "two"]).call();
        assert!(answers.iter().all(|answer| answer.as_ref().unwrap().outcome == PutOutcome::Created));
        let held = orders.take().session().lease(Duration::from_secs(3600)).call().unwrap().unwrap();
        assert_eq!(held.text().unwrap(), "one");
        let other = orders.take().call().unwrap().unwrap();
        assert_eq!(orders.ack_all([other]).call().all().unwrap(), [Settled::Gone]);
        dwell.close().unwrap();
        drop((dwell, orders, held));

        let orders = blocking::Dwell::open(dir.path()).unwrap().queue("orders").unwrap();
        let again = orders.take().call().unwrap().unwrap();
        assert_eq!((again.text().unwrap(), again.attempt()), ("one", 1), "no attempt was spent");
        again.ack().unwrap();
    }

    #[test]
    fn puts_and_jobs_of_two_twins_of_a_store_go_together() {
        let dir = tempfile::tempdir().unwrap();
        let dwell = Dwell::open(dir.path()).unwrap();
        let (one, another) = (blocking::Dwell::from(dwell.clone()), blocking::Dwell::from(dwell));
        let (ones, others) = (one.queue("orders").unwrap(), another.queue("orders").unwrap());
        ones.put_many([others.put("one"), ones.put("two")]).call().all().unwrap();
        let jobs = [ones.take().call().unwrap().unwrap(), others.take().call().unwrap().unwrap()];
        assert_eq!(ones.ack_all(&jobs).call().all().unwrap(), [Settled::Gone, Settled::Gone]);
        one.close().unwrap();
    }

    #[test]
    fn what_cannot_be_opened_has_a_code() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "no directory").unwrap();
        let error = Dwell::open(&file).unwrap_err();
        assert_eq!((error.code(), error.is_retryable()), ("not_a_directory", false), "{error}");
        assert!(matches!(error, OpenError::Engine(_)));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "no directory");

        let data = dir.path().join("data");
        let open = Engine::open(&data, Options::default()).unwrap();
        let error = blocking::Dwell::open(&data).unwrap_err();
        assert_eq!((error.code(), error.is_retryable()), ("locked", true), "{error}");
        open.close().unwrap();
    }
}

#[cfg(feature = "http")]
mod http {
    use dwell::OpenError;

    use super::*;

    #[tokio::test]
    async fn a_server_that_is_not_there_has_a_code() {
        let error = Dwell::connect("localhost:7411").unwrap_err();
        assert_eq!((error.code(), error.is_retryable()), ("bad_server", false), "{error}");
        assert!(matches!(error, OpenError::Http(_)));
        // A closed listener leaves a port at which no server listens.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let dwell = Dwell::connect(&url).unwrap();
        let orders = dwell.queue("orders").unwrap();
        assert_eq!(orders.put("body").await.unwrap_err().code(), "unreachable");
        let error = orders.take().wait(LONG).await.unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }) && error.is_retryable(), "{error}");
        dwell.close().await.unwrap();

        let error = blocking::Dwell::connect("ftp://localhost").unwrap_err();
        assert_eq!(error.code(), "bad_server", "{error}");
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use dwell::OpenError;

    use super::*;

    /// A port at which no server listens.
    fn nobody() -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("a listener has an address");
        format!("postgres://{address}/shop?timeout_ms=1000")
    }

    #[tokio::test]
    async fn a_postgres_that_is_not_there_has_a_code() {
        let error = Dwell::postgres("postgres:/nowhere").await.unwrap_err();
        assert_eq!((error.code(), error.is_retryable()), ("postgres_url", false), "{error}");
        let error = Dwell::postgres(&nobody()).await.unwrap_err();
        assert_eq!((error.code(), error.is_retryable()), ("unreachable", true), "{error}");
        assert!(matches!(error, OpenError::Postgres(_)));
    }

    #[test]
    fn nor_for_a_thread_without_a_runtime() {
        let error = blocking::Dwell::postgres("postgres:/nowhere").unwrap_err();
        assert_eq!(error.code(), "postgres_url", "{error}");
        let error = blocking::Dwell::postgres(&nobody()).unwrap_err();
        assert_eq!(error.code(), "unreachable", "{error}");
    }
}

#[cfg(feature = "redis")]
mod redis {
    use dwell::OpenError;

    use super::*;

    /// A port at which no server listens.
    fn nobody() -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("a listener has an address");
        format!("redis://{address}?retry_ms=1")
    }

    #[tokio::test]
    async fn a_redis_that_is_not_there_has_a_code() {
        let error = Dwell::redis("redis:/nowhere").await.unwrap_err();
        assert_eq!((error.code(), error.is_retryable()), ("redis_url", false), "{error}");
        let error = Dwell::redis(&nobody()).await.unwrap_err();
        assert_eq!((error.code(), error.is_retryable()), ("unreachable", true), "{error}");
        assert!(matches!(error, OpenError::Redis(_)));
    }

    #[test]
    fn nor_for_a_thread_without_a_runtime() {
        let error = blocking::Dwell::redis("redis:/nowhere").unwrap_err();
        assert_eq!(error.code(), "redis_url", "{error}");
        let error = blocking::Dwell::redis(&nobody()).unwrap_err();
        assert_eq!(error.code(), "unreachable", "{error}");
    }
}

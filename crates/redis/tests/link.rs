//! Connections to each kind of deployment, and the error for one that is not there.

#![expect(clippy::unwrap_used, reason = "tests, where a panic is the answer")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use dwell_model::{Limits, MessageId, QueueName, Timestamp};
use dwell_redis::{Address, Link, OpenError, RedisStore};
use dwell_store::{Action, Blocking, Error, LeaseTerms, Put, Settle, Settled, Store, Take};
use dwell_testkit::free_port;
use dwell_testkit::redis::{Cluster, Sentinels, Server};
use tokio::runtime::{Builder, Runtime};

/// A timeout that is long enough for any machine.
const PATIENCE: Duration = Duration::from_secs(60);

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

#[test]
fn a_store_whose_runtime_is_gone_says_that_it_is_closed() {
    let server = Server::start();
    let runtime = Runtime::new().unwrap();
    let store = runtime.block_on(RedisStore::open(server.address(), Limits::default())).unwrap();
    // It has ended when it is dropped here.
    drop(runtime);
    let orders: QueueName = "orders".parse().unwrap();
    Runtime::new().unwrap().block_on(async {
        let refused = store.queues(None, 1).await.unwrap_err();
        assert!(matches!(refused, Error::Closed), "{refused}");
        let refused = store.put(vec![Put::new(orders.clone(), "m")]).await;
        assert_eq!(refused, [Err(Error::Closed)]);
        for wait_ms in [0, 50, 3_600_000] {
            let take = store.take(Take::from(orders.clone()).wait_ms(wait_ms));
            let refused = tokio::time::timeout(PATIENCE, take).await.expect("it is answered").unwrap_err();
            assert!(matches!(refused, Error::Closed), "{wait_ms} ms: {refused}");
        }
        let id = MessageId::new(Timestamp::MIN, 0, 0, 1);
        let take = store.take_id(orders.clone(), id, LeaseTerms::default());
        let refused = tokio::time::timeout(PATIENCE, take).await.expect("it is answered").unwrap_err();
        assert!(matches!(refused, Error::Closed), "{refused}");
    });
}

#[test]
fn takes_that_wait_when_the_runtime_of_their_store_ends_are_answered() {
    let server = Server::start();
    let orders: QueueName = "orders".parse().unwrap();
    // One thread, so that none of its tasks goes on while it ends.
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let store = runtime.block_on(RedisStore::open(server.address(), Limits::default())).unwrap();
    let store = Arc::new(store);
    let callers = Runtime::new().unwrap();
    let take = Take::from(orders.clone()).wait_ms(3_600_000);
    let waiting = callers.spawn({
        let store = Arc::clone(&store);
        async move { store.take(take).await }
    });
    // It waits once the store counts it.
    callers.block_on(async {
        while store.stats(orders.clone()).await.map_or(0, |stats| stats.waiting) == 0 {
            tokio::task::yield_now().await;
        }
    });
    drop(runtime);
    let ended = callers.block_on(async { tokio::time::timeout(PATIENCE, waiting).await });
    let refused = ended.expect("it is answered").unwrap().unwrap_err();
    assert!(refused.needs_reopen(), "{refused}");
}

#[test]
fn a_store_with_a_thread_of_its_own_serves_threads_without_a_runtime() {
    let server = Server::start();
    let orders: QueueName = "orders".parse().unwrap();
    let store = RedisStore::open_with_thread(server.address(), Limits::default()).unwrap();
    let store = Blocking::new(Arc::new(store));
    store.put_one(Put::new(orders.clone(), "due").after_ms(5)).unwrap();
    store.put_one(Put::new(orders.clone(), "later").after_ms(60_000)).unwrap();
    let taken = store.take(Take::from(orders.clone()).wait_ms(30_000).lease_ms(60_000).session()).unwrap();
    assert_eq!(&taken[0].message.body[..], b"due");

    // Awaited on a thread without a runtime, it releases what this process holds.
    pollster::block_on(store.store().leave()).unwrap();
    // Dropped on a thread of another runtime, it does not block there.
    Runtime::new().unwrap().block_on(async move { drop(store) });
    let store =
        Blocking::new(Arc::new(RedisStore::open_with_thread(server.address(), Limits::default()).unwrap()));
    let again = store.take(Take::from(orders)).unwrap();
    assert_eq!((&again[0].message.body[..], again[0].message.standing.attempt()), (&b"due"[..], 1));
    assert_eq!(again[0].message.standing.counts.releases, 1);
}

/// On a current-thread runtime, whose only thread blocks on the calls.
#[tokio::test]
async fn a_store_with_a_thread_of_its_own_can_be_blocked_on_in_a_task() {
    let server = Server::start();
    let orders: QueueName = "orders".parse().unwrap();
    let store = RedisStore::open_with_thread_async(server.address(), Limits::default()).await.unwrap();
    let store = Arc::new(store);
    let blocking = Blocking::new(Arc::clone(&store));
    blocking.put_one(Put::new(orders.clone(), "due")).unwrap();
    let taken = store.take(Take::from(orders.clone())).await.unwrap().pop().unwrap();
    let settle = Settle { receipt: taken.receipt, action: Action::Ack };
    assert_eq!(store.settle(vec![settle]).await, [Ok(Settled::Gone)]);

    // Dropped while it opens, it does not block here. It is polled once.
    let opening = RedisStore::open_with_thread_async(server.address(), Limits::default());
    let mut opening = Box::pin(opening);
    let polled = opening.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    drop((polled, opening));
}

#[test]
fn a_store_with_a_thread_of_its_own_is_opened_without_a_runtime() {
    let server = Server::start();
    let refused = pollster::block_on(RedisStore::open(server.address(), Limits::default()));
    assert_eq!(refused.map(drop).unwrap_err().code(), "redis_unsupported");
    let opening = RedisStore::open_with_thread_async(server.address(), Limits::default());
    let store = pollster::block_on(opening).unwrap();
    assert!(pollster::block_on(store.queues(None, 1)).unwrap().is_empty());
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

/// Puts, waits, takes and acks; and a subscription receives what is published.
async fn serves(url: &str) -> Result<(), OpenError> {
    let store = RedisStore::open(url.parse()?, Limits::default()).await?;
    let queue = QueueName::new("orders").unwrap();
    let take = store.take(Take::from(queue.clone()).wait_ms(30_000));
    let put = async { store.put(vec![Put::new(queue.clone(), "m").after_ms(50)]).await };
    let (taken, answers) = tokio::join!(take, put);
    let taken = taken.unwrap().pop().unwrap();
    assert_eq!(Ok(taken.message.id), answers[0].as_ref().map(|answer| answer.id));
    let settle = Settle { receipt: taken.receipt, action: Action::Ack };
    assert_eq!(store.settle(vec![settle]).await, [Ok(Settled::Gone)]);
    Ok(())
}

/// A certificate authority, and its certificates for a server on the loopback and for a client.
fn certificates(folder: &Path) {
    let write = |name: &str, text: String| std::fs::write(folder.join(name), text).unwrap();
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    // Its name differs from those that it signs: OpenSSL takes them for self-signed otherwise.
    authority.distinguished_name.push(rcgen::DnType::CommonName, "an authority");
    write("ca.pem", authority.self_signed(&authority_key).unwrap().pem());
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
    write("cert.pem", params.signed_by(&key, &issuer).unwrap().pem());
    write("key.pem", key.serialize_pem());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_is_spoken_with_an_authority_of_ones_own_and_a_client_s_certificate() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (port, [ca, cert, key]) = (free_port().to_string(), ["ca.pem", "cert.pem", "key.pem"].map(file));
    let options =
        ["--tls-port", &port, "--tls-ca-cert-file", &ca, "--tls-cert-file", &cert, "--tls-key-file", &key];
    let _server = Server::start_with(&options);
    let url = format!("rediss://localhost:{port}/1?timeout_ms=20000&");
    serves(&format!("{url}ca={ca}&certificate={cert}&key={key}")).await.unwrap();
    // No client certificate; an untrusted server; a file that is missing or of another kind.
    for options in [format!("ca={ca}"), format!("certificate={cert}&key={key}")] {
        let refused = serves(&(url.clone() + &options)).await.unwrap_err();
        assert!(matches!(refused, OpenError::Unreachable { .. }), "{options}: {refused}");
    }
    for options in [format!("ca={key}"), "ca=/nowhere".to_owned(), format!("certificate={cert}&key={cert}")] {
        let refused = serves(&(url.clone() + &options)).await.unwrap_err();
        assert!(matches!(refused, OpenError::Certificate { .. }), "{options}: {refused}");
        assert_eq!(refused.code(), "tls_invalid");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn databases_are_apart_and_a_socket_serves() {
    let server = Server::start_with(&["--unixsocket", "redis.sock"]);
    for url in
        [format!("{}/2", server.url()), format!("redis+unix://{}/redis.sock?db=3", server.folder().display())]
    {
        serves(&url).await.unwrap();
    }
    let keys = |db: &str| server.info(db).unwrap_or_default();
    assert!(keys("db0").is_empty() && keys("db2").starts_with("keys=") && keys("db3").starts_with("keys="));
}

#[tokio::test]
async fn a_user_without_the_rights_is_refused_and_told_which() {
    let server = Server::start();
    server.command(&["ACL", "SETUSER", "poor", "on", ">sesame", "~*", "+ping", "+info", "+type", "+hget"]);
    let url = format!("redis://poor:sesame@127.0.0.1:{}", server.port());
    let refused = serves(&url).await.unwrap_err();
    assert!(
        refused.to_string().contains("NOPERM") || refused.to_string().contains("no permissions"),
        "{refused}"
    );
    assert!(!refused.to_string().contains("sesame"), "{refused}");
    assert_eq!(server.command(&["DBSIZE"]), redis::Value::Int(0));
}

/// A primary of Redis 6.2 that has become a replica: errors inside a script have an `ERR` before them.
#[tokio::test]
async fn a_server_that_takes_no_more_writes_of_scripts_is_left() {
    let said = "-ERR Error running script (call to f_86fde4ef5751c44fce94a7d39215086ca601922b): @user_script:1: \
                @user_script: 1: -READONLY You can't write against a read only replica.\r\n";
    for (said, is_left) in [
        (said, true),
        ("-READONLY You can't write against a read only replica.\r\n", true),
        ("-ERR no\r\n", false),
    ] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}?connections=1", listener.local_addr().unwrap());
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        let server = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(answer_all(connection, said));
            }
        });
        let link = Link::open(url.parse().unwrap()).await.unwrap();
        let refused = link.send(redis::cmd("EVAL").arg("return 1").arg(0)).await;
        assert!(refused.is_err(), "{refused:?}");
        link.send(&redis::cmd("PING")).await.unwrap();
        assert_eq!(connections.load(Ordering::SeqCst), if is_left { 2 } else { 1 }, "{said}");
        server.abort();
    }
}

/// Answers each command that is no script with `PONG`.
async fn answer_all(connection: tokio::net::TcpStream, to_scripts: &str) {
    let mut bytes = [0; 4096];
    loop {
        connection.readable().await.unwrap();
        let read = match connection.try_read(&mut bytes) {
            Ok(0) => return,
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(_) => return,
        };
        let asked = String::from_utf8_lossy(&bytes[..read]).into_owned();
        for command in asked.split('*').skip(1) {
            let answer = if command.contains("EVAL") { to_scripts } else { "+PONG\r\n" };
            connection.writable().await.unwrap();
            assert_eq!(connection.try_write(answer.as_bytes()).unwrap(), answer.len());
        }
    }
}

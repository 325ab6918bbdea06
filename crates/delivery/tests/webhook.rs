//! The webhook against a small server: its requests, the meaning of answers, its limits, and the addresses that it
//! refuses.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use dwell_delivery::breaker::Report;
use dwell_delivery::sinks::webhook::{Builder, Network, Secret, Webhook, sign};
use dwell_delivery::{Error, Outcome, Worker};
use dwell_model::{Limits, Message, State, Timestamp};
use dwell_store::{Delivery, MemoryStore, PutAnswer, Queue, Store, Take};
use dwell_time::{ManualClock, SystemClock};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

const PATIENCE: Duration = Duration::from_secs(60);
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// The future's output; panics if it takes too long.
async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it takes too long")
}

/// A server that records requests and sends the answers that a test has prepared; 204 by default.
struct Receiver {
    address: SocketAddr,
    heard: mpsc::UnboundedReceiver<(Parts, Bytes)>,
    answers: Arc<Mutex<VecDeque<Response<Full<Bytes>>>>>,
    connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Receiver {
    async fn start() -> Receiver {
        Receiver::on("127.0.0.1:0".parse().unwrap()).await
    }

    async fn on(address: SocketAddr) -> Receiver {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, heard) = mpsc::unbounded_channel();
        let answers = Arc::new(Mutex::new(VecDeque::new()));
        let connections = Arc::new(AtomicUsize::new(0));
        let (its_answers, its_connections) = (Arc::clone(&answers), Arc::clone(&connections));
        let task = tokio::spawn(async move {
            // Dropping it ends its connections.
            let mut serving = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                its_connections.fetch_add(1, Ordering::Relaxed);
                let (sender, answers) = (sender.clone(), Arc::clone(&its_answers));
                serving.spawn(serve(stream, sender, answers));
            }
        });
        Receiver { address, heard, answers, connections, task }
    }

    fn url(&self) -> String {
        format!("http://{}/hook?a=b", self.address)
    }

    fn answer(&self, status: u16, headers: &[(&str, &str)], body: &str) {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        let response = response.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap();
        self.answers.lock().unwrap().push_back(response);
    }

    async fn next(&mut self) -> (Parts, Bytes) {
        within(self.heard.recv()).await.unwrap()
    }

    /// Whether no request was received that the test has not read.
    fn has_heard_nothing(&mut self) -> bool {
        self.heard.try_recv().is_err()
    }
}

async fn serve(
    stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    sender: mpsc::UnboundedSender<(Parts, Bytes)>,
    answers: Arc<Mutex<VecDeque<Response<Full<Bytes>>>>>,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (sender, answers) = (sender.clone(), Arc::clone(&answers));
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let answer = answers.lock().unwrap().pop_front();
            let _ = sender.send((parts, body));
            let nothing = || Response::builder().status(204).body(Full::default()).unwrap();
            Ok::<_, Infallible>(answer.unwrap_or_else(nothing))
        }
    });
    // A client that closes its connection is expected.
    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
}

/// A server that reads a request's head and then does what a test says with the connection.
async fn raw<F, R>(act: F) -> SocketAddr
where
    F: Fn(TcpStream) -> R + Send + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\nbody") {
                let Ok(byte) = stream.read_u8().await else { break };
                head.push(byte);
            }
            tokio::spawn(act(stream));
        }
    });
    address
}

/// Writes endlessly, until the peer has closed.
async fn without_end(mut stream: TcpStream, head: &'static str, part: String) {
    let mut goes_on = stream.write_all(head.as_bytes()).await.is_ok();
    while goes_on {
        goes_on = stream.write_all(part.as_bytes()).await.is_ok();
    }
}

fn store() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(Limits::default(), Arc::new(SystemClock::new())))
}

fn queue(store: &Arc<dyn Store>) -> Queue {
    Queue::new(Arc::clone(store), "q").unwrap()
}

/// A message with these headers, taken.
async fn taken(body: &str, headers: &[(&str, &str)]) -> Delivery {
    let store = store();
    let put = headers.iter().fold(queue(&store).put(body), |put, (name, value)| put.header(name, value));
    put.key("k ü").await.unwrap();
    let take = Take::from("q".parse().unwrap());
    store.take(take).await.unwrap().remove(0)
}

async fn delivered(webhook: &Webhook) -> Outcome {
    within(webhook.deliver(&taken("body", &[]).await)).await
}

fn retry(error: &str) -> Outcome {
    Outcome::Retry { error: error.into(), after: None }
}

fn destination(outcome: &Outcome) -> Report {
    match outcome {
        Outcome::Destination { report, .. } => *report,
        other => panic!("{other:?}"),
    }
}

/// A worker that runs in a task, until it is stopped.
struct Running {
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<(), Error>>,
}

fn start(worker: Worker) -> Running {
    let (stop, mut stopped) = watch::channel(false);
    let until = async move { drop(stopped.wait_for(|stop| *stop).await) };
    Running { stop, task: tokio::spawn(worker.run_until(until)) }
}

impl Running {
    async fn stop(self) {
        self.stop.send_replace(true);
        within(self.task).await.unwrap().unwrap();
    }
}

/// Polls until it is true, for what sends no event; panics if it takes too long.
async fn eventually(is_so: impl AsyncFn() -> bool) {
    let so = async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    };
    within(so).await;
}

async fn get(store: &Arc<dyn Store>, put: &PutAnswer) -> Message {
    queue(store).get(put.id).await.unwrap()
}

#[tokio::test]
async fn a_message_is_a_signed_request_with_its_body_as_it_is() {
    let mut receiver = Receiver::start().await;
    let secrets = [Secret::parse(SECRET).unwrap(), Secret::parse(&format!("{SECRET}AAAA")).unwrap()];
    let webhook = Webhook::to(&receiver.url()).secrets(secrets.clone()).build().unwrap();
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let headers = [
        ("content-type", "text/plain"),
        ("traceparent", trace),
        ("tracestate", "a=1,b=2"),
        ("x-shop", "Köln"),
        ("host", "elsewhere"),
        ("webhook-id", "another"),
    ];
    let delivery = taken("{\"order\": 7} é\n", &headers).await;
    assert_eq!(within(webhook.deliver(&delivery)).await, Outcome::Done);

    let (request, body) = receiver.next().await;
    assert_eq!((request.method.as_str(), request.uri.to_string().as_str()), ("POST", "/hook?a=b"));
    assert_eq!(body, "{\"order\": 7} é\n");
    let all = |name: &str| {
        let values = request.headers.get_all(name).iter();
        values.map(|value| String::from_utf8(value.as_bytes().into()).unwrap()).collect::<Vec<_>>()
    };
    let id = delivery.message.id.to_string();
    let timestamp = all("webhook-timestamp")[0].parse::<i64>().unwrap();
    let apart = timestamp - delivery.taken_at.as_ms() / 1_000;
    assert!((0..60).contains(&apart), "{timestamp}");
    for (name, value) in [
        ("host", receiver.address.to_string()),
        ("content-type", "text/plain".into()),
        ("traceparent", trace.into()),
        ("tracestate", "a=1,b=2".into()),
        ("webhook-id", id.clone()),
        ("webhook-signature", sign(&secrets, &id, timestamp, &body)),
        ("dwell-id", id.clone()),
        ("dwell-queue", "q".into()),
        ("dwell-attempt", "1".into()),
        ("dwell-number", delivery.message.number.to_string()),
        ("dwell-due", delivery.message.standing.due.to_string()),
        ("dwell-created", delivery.message.created.to_string()),
        ("dwell-key", "k%20%C3%BC".into()),
        ("dwell-header-x-shop", "Köln".into()),
        ("dwell-header-host", "elsewhere".into()),
        ("dwell-header-webhook-id", "another".into()),
    ] {
        assert_eq!(all(name), [value], "{name}");
    }
    assert_eq!(all("webhook-signature")[0].split(' ').count(), 2, "each secret signs");

    let unsigned = Webhook::to(&receiver.url()).build().unwrap();
    assert_eq!(delivered(&unsigned).await, Outcome::Done);
    let (request, _) = receiver.next().await;
    assert!(!request.headers.contains_key("webhook-signature"));
    assert_eq!(request.headers["content-type"], "application/octet-stream");
}

#[tokio::test]
async fn an_answer_decides_what_becomes_of_the_message() {
    let receiver = Receiver::start().await;
    let webhook = Webhook::to(&receiver.url()).build().unwrap();
    receiver.answer(201, &[], "made");
    assert_eq!(delivered(&webhook).await, Outcome::Done);
    receiver.answer(500, &[], "broken");
    assert_eq!(delivered(&webhook).await, retry("HTTP 500: broken"));
    receiver.answer(302, &[("location", "http://127.0.0.1:1/")], "");
    assert_eq!(delivered(&webhook).await, retry("HTTP 302"));
    receiver.answer(422, &[], "no such order");
    assert_eq!(delivered(&webhook).await, Outcome::Bury { reason: "HTTP 422: no such order".into() });
    receiver.answer(503, &[("retry-after", "7")], "");
    assert_eq!(destination(&delivered(&webhook).await), Report::Throttled { for_ms: 7_000 });
    receiver.answer(429, &[("retry-after", "86400")], "");
    assert_eq!(destination(&delivered(&webhook).await), Report::Throttled { for_ms: 3_600_000 });
    receiver.answer(500, &[], &"x".repeat(50_000));
    assert_eq!(delivered(&webhook).await, retry(&format!("HTTP 500: {}", "x".repeat(1_024))));
    assert_eq!(webhook.switch().paused(), None);
    receiver.answer(410, &[], "moved out");
    assert_eq!(delivered(&webhook).await, Outcome::Release { after: None });
    assert_eq!(webhook.switch().paused().as_deref(), Some("HTTP 410: moved out"));
    assert_eq!(receiver.connections.load(Ordering::Relaxed), 1, "one connection does for all of them");
}

#[tokio::test]
async fn a_destination_that_is_down_or_silent_has_failed_itself() {
    let receiver = Receiver::start().await;
    let (address, url) = (receiver.address, receiver.url());
    let webhook = Webhook::to(&url).build().unwrap();
    assert_eq!(delivered(&webhook).await, Outcome::Done);
    assert!(within(webhook.probe()).await);
    drop(receiver);
    let nobody_listens = async || TcpStream::connect(address).await.is_err();
    eventually(nobody_listens).await;
    assert_eq!(destination(&delivered(&webhook).await), Report::Refused);
    assert!(!within(webhook.probe()).await);
    // A pooled connection that has died is not a failure.
    let _receiver = Receiver::on(address).await;
    assert_eq!(delivered(&webhook).await, Outcome::Done);

    let silent = raw(|stream| async move {
        let _stream = stream;
        std::future::pending().await
    })
    .await;
    let hasty = |address: SocketAddr| {
        Webhook::to(&format!("http://{address}/")).timeout(Duration::from_millis(50)).build().unwrap()
    };
    assert_eq!(destination(&delivered(&hasty(silent)).await), Report::TimedOut);

    let breaks = raw(|stream| async move { drop(stream) }).await;
    let webhook = Webhook::to(&format!("http://{breaks}/")).build().unwrap();
    assert_eq!(destination(&delivered(&webhook).await), Report::Refused);
}

#[tokio::test]
async fn a_kept_connection_that_breaks_is_replaced_once() {
    // Each connection answers one request as if it stayed open, and closes at the next.
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&accepted);
    let address = raw(move |mut stream| {
        count.fetch_add(1, Ordering::Relaxed);
        async move {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            let _ = stream.read_u8().await;
        }
    })
    .await;
    let webhook = Webhook::to(&format!("http://{address}/")).build().unwrap();
    for connections in 1..=3 {
        assert_eq!(delivered(&webhook).await, Outcome::Done);
        assert_eq!(accepted.load(Ordering::Relaxed), connections);
    }
}

#[tokio::test]
async fn an_answer_without_end_is_bounded() {
    let chunk = || format!("1000\r\n{}\r\n", "a".repeat(0x1000));
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let body = raw(move |stream| without_end(stream, head, chunk())).await;
    let webhook = Webhook::to(&format!("http://{body}/")).build().unwrap();
    assert_eq!(delivered(&webhook).await, Outcome::Done, "its status is all that counts");

    let head = "HTTP/1.1 500 No\r\ntransfer-encoding: chunked\r\n\r\n";
    let body = raw(move |stream| without_end(stream, head, chunk())).await;
    let webhook = Webhook::to(&format!("http://{body}/")).build().unwrap();
    assert_eq!(delivered(&webhook).await, retry(&format!("HTTP 500: {}", "a".repeat(1_024))));

    // A server that sends nothing after the head.
    let stalls = raw(|mut stream| async move {
        stream.write_all(b"HTTP/1.1 500 No\r\ncontent-length: 9\r\n\r\nhalf").await.unwrap();
        std::future::pending().await
    })
    .await;
    let webhook = Webhook::to(&format!("http://{stalls}/")).timeout(Duration::from_millis(200)).build();
    assert_eq!(delivered(&webhook.unwrap()).await, retry("HTTP 500: half"));

    for part in ["x: ".to_owned() + &"y".repeat(0x1000), "x: y\r\n".repeat(200)] {
        let head = raw(move |stream| without_end(stream, "HTTP/1.1 200 OK\r\n", part.clone())).await;
        let webhook = Webhook::to(&format!("http://{head}/")).build().unwrap();
        let outcome = delivered(&webhook).await;
        assert!(
            matches!(&outcome, Outcome::Retry { error, .. } if error.contains("HTTP has it")),
            "{outcome:?}"
        );
    }
    let other = raw(|stream| without_end(stream, "SSH-2.0-OpenSSH_9.6\r\n", "x".repeat(0x1000))).await;
    let outcome = delivered(&Webhook::to(&format!("http://{other}/")).build().unwrap()).await;
    assert!(matches!(&outcome, Outcome::Retry { error, .. } if error.contains("HTTP has it")), "{outcome:?}");
}

/// A webhook whose messages name their URLs, in a network where loopback is allowed.
fn by_header(hosts: &[&str]) -> Builder {
    let loopback: Network = "127.0.0.0/8".parse().unwrap();
    Webhook::by_header("dest").hosts(hosts.iter().copied()).allow(loopback)
}

#[tokio::test]
async fn a_message_names_its_url_among_hosts_that_are_allowed() {
    let mut receiver = Receiver::start().await;
    let port = receiver.address.port();
    let webhook = by_header(&[&format!("127.0.0.1:{port}")]).build().unwrap();
    let url = format!("http://127.0.0.1:{port}/tenant/7");
    let send = async |webhook: &Webhook, url: &str| {
        within(webhook.deliver(&taken("x", &[("dest", url), ("a", "b")]).await)).await
    };
    assert_eq!(send(&webhook, &url).await, Outcome::Done);
    let (request, _) = receiver.next().await;
    assert_eq!(request.uri.path(), "/tenant/7");
    assert!(!request.headers.contains_key("dwell-header-dest"), "the URL may hold a password");
    assert_eq!(request.headers["dwell-header-a"], "b");

    let buried = |outcome: &Outcome| matches!(outcome, Outcome::Bury { reason } if reason.starts_with("refused_target: "));
    let others =
        [format!("http://localhost:{port}/"), format!("http://127.0.0.1:{}/", port - 1), "no url".into()];
    for url in others {
        let outcome = send(&webhook, &url).await;
        assert!(buried(&outcome), "{url}: {outcome:?}");
    }
    let outcome = delivered(&webhook).await;
    assert!(buried(&outcome), "without the header: {outcome:?}");

    // One recipient's 410 pauses no other.
    receiver.answer(410, &[], "");
    assert_eq!(send(&webhook, &url).await, Outcome::Bury { reason: "HTTP 410".into() });
    assert_eq!(webhook.switch().paused(), None);
    receiver.next().await;
    assert!(receiver.has_heard_nothing());
}

#[tokio::test]
async fn an_address_that_is_not_public_is_refused_however_its_name_hides_it() {
    let mut receiver = Receiver::start().await;
    let port = receiver.address.port();
    let pattern = format!("*:{port}");
    let webhook = Webhook::by_header("dest").hosts([pattern]).build().unwrap();
    let hosts = ["127.0.0.1", "localhost", "127.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]"];
    for host in hosts {
        let url = format!("http://{host}:{port}/");
        let outcome = within(webhook.deliver(&taken("x", &[("dest", &url)]).await)).await;
        let is_refused =
            matches!(&outcome, Outcome::Retry { error, .. } if error.starts_with("refused_address: "));
        // An address that this machine cannot even represent does not resolve.
        let is_unknown = matches!(&outcome, Outcome::Release { .. });
        assert!(is_refused || (host == "127.1" && is_unknown), "{host}: {outcome:?}");
    }
    assert_eq!(receiver.connections.load(Ordering::Relaxed), 0);
    assert!(receiver.has_heard_nothing());
}

#[tokio::test]
async fn the_address_that_was_checked_is_the_one_that_is_dialled() {
    let mut receiver = Receiver::start().await;
    let address = receiver.address;
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    // A name that changes between two answers, to be checked as public and connected to as private.
    let resolve = move |host: String, port: u16| {
        let is_first = count.fetch_add(1, Ordering::Relaxed) == 0;
        async move {
            assert_eq!(host, "shop.example");
            let private = SocketAddr::new("10.0.0.1".parse().unwrap(), port);
            Ok(if is_first { vec![private, address] } else { vec![private] })
        }
    };
    let webhook = by_header(&[&format!("*.example:{}", address.port())]).resolve_by(resolve).build().unwrap();
    let url = format!("http://shop.example:{}/", address.port());
    let send = async || within(webhook.deliver(&taken("x", &[("dest", &url)]).await)).await;
    assert_eq!(send().await, Outcome::Done, "the one of two that may be dialled");
    let (request, _) = receiver.next().await;
    assert_eq!(request.headers["host"], format!("shop.example:{}", address.port()));
    assert_eq!(asked.load(Ordering::Relaxed), 1, "a name is resolved once a connection");

    // Its connection ends with the receiver, and the next one is checked again.
    drop(receiver);
    eventually(async || TcpStream::connect(address).await.is_err()).await;
    let outcome = send().await;
    assert!(
        matches!(&outcome, Outcome::Retry { error, .. } if error.contains("10.0.0.1 is refused: it is private")),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_host_that_is_down_holds_up_its_own_messages_alone() {
    let up = Receiver::start().await;
    let down = Receiver::start().await.address;
    eventually(async || TcpStream::connect(down).await.is_err()).await;
    let pattern = |address: SocketAddr| address.to_string();
    let webhook = by_header(&[&pattern(up.address), &pattern(down)]).build().unwrap();
    let send = async |address: SocketAddr| {
        let url = format!("http://{address}/");
        within(webhook.deliver(&taken("x", &[("dest", &url)]).await)).await
    };
    let is_given_back = |outcome: &Outcome| matches!(outcome, Outcome::Release { after: Some(_) });
    assert!(is_given_back(&send(down).await));
    assert!(is_given_back(&send(down).await));
    assert_eq!(send(up.address).await, Outcome::Done);

    // A message that was given back often returns rarely, whatever is remembered of its host.
    let mut delivery = taken("x", &[("dest", &format!("http://{down}/"))]).await;
    delivery.message.standing.counts.releases = 20;
    let outcome = within(webhook.deliver(&delivery)).await;
    let Outcome::Release { after: Some(after) } = outcome else { panic!("{outcome:?}") };
    assert!((Duration::from_secs(24)..=Duration::from_secs(30)).contains(&after), "{after:?}");
}

#[tokio::test]
async fn a_destination_that_is_down_costs_no_attempt_and_leases_nothing() {
    let receiver = Receiver::start().await;
    let (address, url) = (receiver.address, receiver.url());
    drop(receiver);
    eventually(async || TcpStream::connect(address).await.is_err()).await;

    let store = store();
    let puts = queue(&store).put_many(["a", "b", "c"]).await.all().unwrap();
    let worker = Worker::new(Arc::clone(&store)).lane(Webhook::to(&url).build().unwrap().lane("q"));
    let stats = worker.stats().remove(0);
    let running = start(worker);
    eventually(async || stats.breaker() == "open" && stats.running() == 0).await;
    for put in &puts {
        let message = get(&store, put).await;
        assert_eq!((message.standing.state, message.standing.attempts), (State::Ready, 0));
    }
    let mut receiver = Receiver::on(address).await;
    let mut bodies = Vec::new();
    for _ in &puts {
        let (request, body) = receiver.next().await;
        assert_eq!(request.headers["dwell-attempt"], "1");
        bodies.push(body);
    }
    bodies.sort();
    assert_eq!(bodies, ["a", "b", "c"]);
    eventually(async || stats.done() == 3).await;
    running.stop().await;
}

#[tokio::test]
async fn a_request_is_dropped_when_the_lease_of_its_message_is_lost() {
    let clock = ManualClock::new(Timestamp::from_ms(1_795_000_000_000).unwrap());
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Limits::default(), Arc::new(clock.clone())));
    let put = queue(&store).put("body").await.unwrap();
    let (said, mut hears) = mpsc::unbounded_channel();
    let requests = AtomicUsize::new(0);
    let address = raw(move |mut stream| {
        let (said, number) = (said.clone(), requests.fetch_add(1, Ordering::Relaxed));
        async move {
            said.send("begun").unwrap();
            if number == 0 {
                // Until the other side has closed: it has sent all it had.
                let _ = stream.read_u8().await;
                said.send("dropped").unwrap();
            } else {
                stream.write_all(b"HTTP/1.1 204 X\r\n\r\n").await.unwrap();
            }
        }
    })
    .await;
    let webhook = Webhook::to(&format!("http://{address}/")).timeout(Webhook::MAX_TIMEOUT).build().unwrap();
    let lane = webhook.lane("q").concurrency(1);
    let worker = Worker::new(Arc::clone(&store)).on_clock(Arc::new(clock.clone())).lane(lane);
    let stats = worker.stats().remove(0);
    let running = start(worker);
    assert_eq!(within(hears.recv()).await, Some("begun"));
    clock.advance(30_000);
    let next = [within(hears.recv()).await.unwrap(), within(hears.recv()).await.unwrap()];
    assert!(next.contains(&"dropped") && next.contains(&"begun"), "{next:?}");
    eventually(async || stats.done() == 1).await;
    assert_eq!(stats.lost(), 1);
    running.stop().await;
    assert!(queue(&store).get(put.id).await.is_err(), "the second attempt has done it");
}

#[tokio::test]
async fn a_410_pauses_the_lane_until_it_is_resumed() {
    let mut receiver = Receiver::start().await;
    let store = store();
    let webhook = Webhook::to(&receiver.url()).build().unwrap();
    receiver.answer(410, &[], "gone");
    let first = queue(&store).put("first").await.unwrap();
    let worker = Worker::new(Arc::clone(&store)).lane(webhook.lane("q"));
    let stats = worker.stats().remove(0);
    let running = start(worker);
    receiver.next().await;
    eventually(async || stats.released() == 1).await;
    let second = queue(&store).put("second").await.unwrap();
    // Without a waiting take nothing is handed over.
    let waiting = async || queue(&store).stats().await.unwrap().waiting;
    eventually(async || waiting().await == 0).await;
    for put in [&first, &second] {
        let message = get(&store, put).await;
        assert_eq!((message.standing.state, message.standing.attempts), (State::Ready, 0));
    }
    assert!(receiver.has_heard_nothing());
    webhook.switch().resume();
    let bodies = [receiver.next().await.1, receiver.next().await.1];
    assert!(bodies.contains(&Bytes::from("first")) && bodies.contains(&Bytes::from("second")));
    running.stop().await;
}

#[tokio::test]
async fn a_message_that_is_rejected_is_dead_with_what_the_receiver_said() {
    let mut receiver = Receiver::start().await;
    let store = store();
    receiver.answer(400, &[], "no order in it");
    let put = queue(&store).put("x").await.unwrap();
    let worker =
        Worker::new(Arc::clone(&store)).lane(Webhook::to(&receiver.url()).build().unwrap().lane("q"));
    let stats = worker.stats().remove(0);
    let running = start(worker);
    receiver.next().await;
    eventually(async || stats.buried() == 1).await;
    let message = get(&store, &put).await;
    assert!(matches!(message.standing.state, State::Dead(_)));
    assert_eq!(message.standing.last_error.as_deref(), Some("HTTP 400: no order in it"));
    running.stop().await;
}

#[tokio::test]
async fn tls_checks_the_name_in_the_url() {
    let made = rcgen::generate_simple_self_signed(["shop.example".to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, mut heard) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, sender) = (acceptor.clone(), sender.clone());
            tokio::spawn(async move {
                // A client that does not trust the certificate ends the handshake.
                if let Ok(stream) = acceptor.accept(stream).await {
                    serve(stream, sender, Arc::default()).await;
                }
            });
        }
    });
    let to = |host: &str| {
        let resolve = move |_: String, _: u16| async move { Ok(vec![address]) };
        Webhook::to(&format!("https://{host}/")).resolve_by(resolve)
    };
    let pem = made.cert.pem();
    let trusted = to("shop.example").ca_pem(pem.as_bytes()).build().unwrap();
    assert_eq!(delivered(&trusted).await, Outcome::Done);
    assert_eq!(within(heard.recv()).await.unwrap().1, "body");
    let another = to("other.example").ca_pem(pem.as_bytes()).build().unwrap();
    assert_eq!(destination(&delivered(&another).await), Report::Refused);
    let untrusted = to("shop.example").build().unwrap();
    assert_eq!(destination(&delivered(&untrusted).await), Report::Refused);
    assert!(heard.try_recv().is_err());
}

#[tokio::test]
async fn what_can_be_no_webhook_is_refused() {
    let loopback: Network = "127.0.0.0/8".parse().unwrap();
    let ok = || Webhook::to("https://example.com/");
    let none: [&str; 0] = [];
    let cases = [
        Webhook::to("example.com"),
        Webhook::to("https://me:password@example.com/"),
        ok().timeout(Duration::ZERO),
        ok().timeout(Duration::from_secs(301)),
        ok().hosts(["example.com"]),
        ok().allow(loopback),
        ok().ca_pem(b"no certificate"),
        Webhook::by_header("dest"),
        Webhook::by_header("dest").hosts(none),
        Webhook::by_header("dest").hosts(["https://example.com"]),
        Webhook::by_header("no name").hosts(["*"]),
    ];
    for (number, builder) in cases.into_iter().enumerate() {
        let error = builder.build().unwrap_err();
        assert_eq!(error.code(), "invalid_sink", "case {number}");
        assert!(!error.to_string().contains("password"), "{error}");
    }
    assert!(ok().build().is_ok());
}

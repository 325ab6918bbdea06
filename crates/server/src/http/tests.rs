//! Requests whose caller's token is revoked while they wait, or whose client disconnects.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use axum::body::{Body, to_bytes};
use axum::http::{Request, Response, StatusCode};
use dwell_model::{Limits, QueueName, Setting, SettingChange, Timestamp};
use dwell_store::{Error, MemoryStore, Put, StateCounts, delegate_store};
use dwell_time::SystemClock;
use futures_util::{FutureExt as _, stream};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::timeout;
use tower_service::Service as _;

use super::connection::Unwritten;
use super::*;
use crate::QueueConfig;
use crate::security::{Token, TokenDigest, Tokens};

/// An app on its own store, with room for a million bytes and no tokens.
pub(super) fn app() -> App {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Limits::default(), Arc::new(SystemClock::new())));
    let (returns, _) = Returns::start(Arc::clone(&store));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let delivery = Delivery::new(Arc::clone(&store), Arc::clone(&store), Arc::clone(&clock), Duration::ZERO);
    App {
        store,
        config: HttpConfig::default(),
        live: Arc::new(Live::new(Hosts::new(0, &[]), Tokens::default(), None)),
        clock,
        returns,
        draining: watch::channel(false).1,
        metrics: Arc::default(),
        memory: Memory::new(1_000_000),
        ailment: LastFailure::default(),
        forecasts: Walks::default(),
        forecast_turn: Arc::new(Semaphore::new(1)),
        overviews: Walks::default(),
        configured: Configured::default(),
        delivery,
    }
}

/// A bearer's request in progress, to a server whose queue `q` has one message.
struct Sent {
    app: Arc<App>,
    queue: QueueName,
    what: String,
    answer: Pin<Box<dyn Future<Output = Response<Body>>>>,
}

/// One token, whose name is its secret too.
fn token(name: &str) -> Tokens {
    let scopes = ["put:*", "take:*"].map(|scope| scope.parse().unwrap()).into();
    Tokens::new(vec![Token { name: name.to_owned(), digest: TokenDigest::of(name.as_bytes()), scopes }])
}

impl Sent {
    /// `{id}` in the target is the message's.
    async fn new(method: &str, target: &str, body: Body) -> Sent {
        let app = Arc::new(app());
        let queue = QueueName::new("q").unwrap();
        let put = app.store.put(vec![Put::new(queue.clone(), "x")]).await.pop().unwrap().unwrap();
        app.live.replace(Hosts::new(0, &[]), token("gone"), None);

        let request = Request::builder().method(method).uri(target.replace("{id}", &put.id.to_string()));
        let request = request.header("content-type", "application/json");
        let caller = app.live.tokens().caller(Some(b"gone")).unwrap();
        let request = request.extension(caller).extension(Arc::new(Unwritten::new(app.returns.clone())));
        let (mut router, request) = (router(Arc::clone(&app)), request.body(body).unwrap());
        let answer = Box::pin(async move { router.call(request).await.unwrap() });
        Sent { app, queue, what: format!("{method} {target}"), answer }
    }

    /// Polls until it waits.
    fn until_it_waits(&mut self) {
        assert!(self.answer.as_mut().now_or_never().is_none(), "{}: it waits", self.what);
    }

    /// Revokes its token.
    fn outlives_its_token(&self) {
        self.app.live.replace(Hosts::new(0, &[]), token("new"), None);
    }

    /// It must be refused once its token is revoked, with no effect.
    async fn must_be_refused(self) {
        let answer = timeout(Duration::from_secs(20), self.answer).await.unwrap();
        let counts = self.app.store.stats(self.queue).await.unwrap().counts;
        assert_eq!(counts, StateCounts { ready: 1, ..StateCounts::default() }, "{}", self.what);
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{}", self.what);
        let problem = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        let problem: Value = serde_json::from_slice(&problem).unwrap();
        assert_eq!(problem["code"], "token_unknown", "{}", self.what);
    }
}

#[tokio::test]
async fn what_has_waited_for_room_is_not_done_once_its_token_is_gone() {
    let body = |item: Value| Body::from(Value::from(vec![item; 100]).to_string());
    for (held, method, target, body) in [
        (1_000_001, "POST", "/v1/messages:batch", body(json!({"queue": "q", "body": "y"}))),
        (1_000_001, "POST", "/v1/queues/q/messages:batch", body(json!({"body": "y"}))),
        (1_000_001, "GET", "/v1/queues", Body::empty()),
        // There is room, but not for one more message.
        (999_999, "POST", "/v1/queues/q/messages/{id}/take", Body::empty()),
    ] {
        let mut sent = Sent::new(method, target, body).await;
        let held = sent.app.memory.add(held);
        sent.until_it_waits();
        assert!(sent.app.memory.is_pressed(), "{target}: for room");
        sent.outlives_its_token();
        drop(held);
        sent.must_be_refused().await;
    }
}

#[tokio::test]
async fn what_has_come_whole_when_its_token_is_gone_is_not_done() {
    for (target, text) in
        [("/v1/queues/q/messages", "y"), ("/v1/messages:batch", r#"[{"queue": "q", "body": "y"}]"#)]
    {
        let (comes, body) = oneshot::channel::<&str>();
        let mut sent = Sent::new("POST", target, Body::from_stream(stream::once(body))).await;
        sent.until_it_waits();
        comes.send(text).unwrap();
        sent.outlives_its_token();
        sent.must_be_refused().await;
    }
}

const PATIENCE: Duration = Duration::from_secs(20);

/// A store that answers deletions and forecasts when the test lets it. A queue is deleted before that.
struct SlowStore {
    memory: MemoryStore,
    answers: Semaphore,
    /// The number of forecasts in progress, and the maximum so far.
    forecasts: AtomicUsize,
    most_forecasts: AtomicUsize,
}

impl SlowStore {
    /// An app on it.
    fn app() -> (Arc<App>, Arc<SlowStore>) {
        let memory = MemoryStore::new(Limits::default(), Arc::new(SystemClock::new()));
        let (answers, forecasts) = (Semaphore::new(0), AtomicUsize::new(0));
        let slow = Arc::new(SlowStore { memory, answers, forecasts, most_forecasts: AtomicUsize::new(0) });
        (Arc::new(App { store: Arc::clone(&slow) as Arc<dyn Store>, ..app() }), slow)
    }
}

#[async_trait]
impl Store for SlowStore {
    async fn delete_queue(&self, queue: QueueName) -> dwell_store::Result<u64> {
        let deleted = self.memory.delete_queue(queue).await;
        self.answers.acquire().await.unwrap().forget();
        deleted
    }

    async fn forecast(
        &self,
        queues: Option<Vec<QueueName>>,
        edges: Vec<Timestamp>,
    ) -> dwell_store::Result<dwell_store::Forecast> {
        let under_way = self.forecasts.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_forecasts.fetch_max(under_way, Ordering::SeqCst);
        self.answers.acquire().await.unwrap().forget();
        self.forecasts.fetch_sub(1, Ordering::SeqCst);
        self.memory.forecast(queues, edges).await
    }

    delegate_store! {
        self.memory;
        own: delete_queue forecast;
        forward: put take take_id settle expire_lease cancel reschedule get locate list peek stats queues;
        forward: ready configure revive deaths discard purge;
    }
}

/// A request in progress.
type Answering = Pin<Box<dyn Future<Output = Response<Body>>>>;

/// A request without a token.
fn asked(app: &Arc<App>, method: &str, target: &str) -> Answering {
    let request = Request::builder().method(method).uri(target);
    let request = request.extension(app.live.tokens().caller(None).unwrap());
    let request = request.extension(Arc::new(Unwritten::new(app.returns.clone())));
    let (mut router, request) = (router(Arc::clone(app)), request.body(Body::empty()).unwrap());
    Box::pin(async move { router.call(request).await.unwrap() })
}

/// Polls requests that are not answered yet, until `holds`.
async fn while_polled(answers: &mut [Answering], mut holds: impl AsyncFnMut() -> bool) {
    let held = async {
        while !holds().await {
            for answer in answers.iter_mut() {
                assert!(answer.as_mut().now_or_never().is_none(), "it waits for the store");
            }
            yield_now().await;
        }
    };
    timeout(PATIENCE, held).await.unwrap();
}

#[tokio::test]
async fn a_queue_that_is_deleted_for_a_client_that_goes_keeps_the_settings_of_the_configuration() {
    let (app, store) = SlowStore::app();
    let (queue, setting) = (QueueName::new("q").unwrap(), Setting::LeaseMs(61_000));
    app.configured.replace(&[QueueConfig { name: queue.clone(), settings: vec![setting.clone()] }]);
    store.configure(queue.clone(), vec![SettingChange::Set(setting)]).await.unwrap();

    let mut answers = [asked(&app, "DELETE", "/v1/queues/q")];
    let is_deleted = async || matches!(store.stats(queue.clone()).await, Err(Error::UnknownQueue { .. }));
    while_polled(&mut answers, is_deleted).await;
    drop(answers);
    store.answers.add_permits(1);
    let is_restored =
        async || store.stats(queue.clone()).await.is_ok_and(|stats| stats.settings.lease_ms == 61_000);
    while_polled(&mut [], is_restored).await;
}

/// Also where clients disconnect before they are answered.
#[tokio::test]
async fn counts_over_all_queues_by_instants_of_a_callers_own_are_made_one_at_a_time() {
    let (app, store) = SlowStore::app();
    let ask = || asked(&app, "GET", "/v1/forecast?edges=2026-11-26T22:00:00Z");
    let mut answers = [ask(), ask(), ask()];
    let is_counting = async || store.forecasts.load(Ordering::SeqCst) > 0;
    while_polled(&mut answers, is_counting).await;
    let [first, second, third] = answers;
    drop(first);
    store.answers.add_permits(3);
    for answer in [second, third] {
        let answer = timeout(PATIENCE, answer).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
    }
    assert_eq!(store.most_forecasts.load(Ordering::SeqCst), 1);
}

//! What a request does that has waited for room while its caller's token was taken away.

use std::pin::pin;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Request, Response, StatusCode};
use dwell_model::{Limits, QueueName};
use dwell_store::{MemoryStore, Put, StateCounts};
use dwell_time::SystemClock;
use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::time::timeout;
use tower_service::Service as _;

use super::connection::Unwritten;
use super::*;
use crate::security::{Token, TokenDigest, Tokens};

/// On a store of its own, with room for a million bytes. Nobody is asked for a token.
pub(super) fn app() -> App {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Limits::default(), Arc::new(SystemClock::new())));
    let (returns, _) = Returns::start(Arc::clone(&store));
    App {
        store,
        config: HttpConfig::default(),
        live: Arc::new(Live::new(Hosts::new(0, &[]), Tokens::default(), None)),
        clock: Arc::new(SystemClock::new()),
        returns,
        draining: watch::channel(false).1,
        metrics: Arc::default(),
        memory: Memory::new(1_000_000),
        ailment: Ailment::default(),
    }
}

/// What is asked for by a bearer whose token goes while it waits for room, of which so many bytes are held.
async fn outlived_by_its_request(held: u64, method: &str, target: &str, body: &Value) -> Response<Body> {
    let token = |name: &str| {
        let scopes = ["put:*", "take:*"].map(|scope| scope.parse().unwrap()).into();
        Tokens::new(vec![Token { name: name.to_owned(), digest: TokenDigest::of(name.as_bytes()), scopes }])
    };
    let app = Arc::new(app());
    let queue = QueueName::new("q").unwrap();
    let put = app.store.put(vec![Put::new(queue.clone(), "x")]).await.pop().unwrap().unwrap();
    app.live.replace(Hosts::new(0, &[]), token("gone"), None);

    let request = Request::builder().method(method).uri(target.replace("{id}", &put.id.to_string()));
    let request = request.header("content-type", "application/json");
    let caller = app.live.tokens().caller(Some(b"gone")).unwrap();
    let request = request.extension(caller).extension(Arc::new(Unwritten::new(app.returns.clone())));
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    let held = app.memory.add(held);
    let mut router = router(Arc::clone(&app));
    let mut answer = pin!(router.call(request.body(body).unwrap()));
    assert!(answer.as_mut().now_or_never().is_none(), "{target}: it waits");
    assert!(app.memory.is_pressed(), "{target}: for room");

    app.live.replace(Hosts::new(0, &[]), token("new"), None);
    drop(held);
    let answer = timeout(Duration::from_secs(20), answer).await.unwrap().unwrap();
    let counts = app.store.stats(queue).await.unwrap().counts;
    assert_eq!(counts, StateCounts { ready: 1, ..StateCounts::default() }, "{target}: nothing is done");
    answer
}

#[tokio::test]
async fn what_has_waited_for_room_is_not_done_once_its_token_is_gone() {
    let items = json!(vec![json!({"queue": "q", "body": "y"}); 100]);
    for (held, method, target, body) in [
        (1_000_001, "POST", "/v1/messages:batch", &items),
        (1_000_001, "POST", "/v1/queues/q/messages:batch", &json!(vec![json!({"body": "y"}); 100])),
        (1_000_001, "GET", "/v1/queues", &Value::Null),
        // There is room, but not for one more message.
        (999_999, "POST", "/v1/queues/q/messages/{id}/take", &Value::Null),
    ] {
        let answer = outlived_by_its_request(held, method, target, body).await;
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{target}");
        let problem = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        let problem: Value = serde_json::from_slice(&problem).unwrap();
        assert_eq!(problem["code"], "token_unknown", "{target}");
    }
}

//! Requests that foreign web pages could make.

use crate::support::{start, start_with};
use dwell_model::Limits;

#[tokio::test]
async fn a_foreign_host_or_origin_is_refused_before_anything_is_done() {
    let server = start().await;
    let target = "/v1/queues/q/messages";
    let foreign = server.send("POST", target, &[("host", "evil.example")], b"x").await;
    assert_eq!(foreign.problem(), (403, "foreign_host".to_owned()));
    let foreign = server.send("POST", target, &[("origin", "http://evil.example")], b"x").await;
    assert_eq!(foreign.problem(), (403, "foreign_origin".to_owned()));
    let foreign = server.send("GET", "/health/live", &[("host", "evil.example")], b"").await;
    assert_eq!(foreign.problem(), (403, "foreign_host".to_owned()));
    let foreign = server.send("POST", "http://evil.example/v1/queues/q/messages", &[], b"x").await;
    assert_eq!(foreign.problem(), (403, "foreign_host".to_owned()));
    let preflight = server.send("OPTIONS", target, &[("origin", "http://evil.example")], b"").await;
    assert_eq!(preflight.problem(), (403, "foreign_origin".to_owned()));
    assert_eq!(server.count("ready").await, None, "nothing was done");

    let port = server.address.port();
    for host in [format!("localhost:{port}"), "localhost".to_owned(), format!("[::1]:{port}")] {
        let origin = format!("http://localhost:{port}");
        let own = server.send("POST", target, &[("host", &host), ("origin", &origin)], b"x").await;
        assert_eq!(own.status, 201, "{host}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_configured_name_is_our_own() {
    let server =
        start_with(Limits::default(), |config| config.http.hosts = vec!["dwell.example".into()]).await;
    let own = [("host", "dwell.example"), ("origin", "https://dwell.example")];
    assert_eq!(server.send("POST", "/v1/queues/q/messages", &own, b"x").await.status, 201);
    server.stop().await;
}

//! What the web page requests in addition to messages: the caller, prefixes of names, previews, forecasts, recent
//! events.

use dwell_model::Limits;
use serde_json::{Value, json};

use crate::support::{Running, start, start_with, tokens, until};

#[tokio::test]
async fn whoever_calls_is_told_what_their_token_is_good_for() {
    let open = start().await;
    let everything = json!({"scopes": ["put:*", "take:*", "manage:*", "look:*", "metrics"]});
    assert_eq!(open.get("/v1/me").await.json(), everything);
    open.stop().await;
    let known: &[(&str, &[&str])] = &[("support", &["look:orders-*", "metrics"])];
    let server = start_with(Limits::default(), |config| config.http.tokens = tokens(known)).await;
    let me = server.send("GET", "/v1/me", &[("authorization", "Bearer support")], b"").await.json();
    assert_eq!(me, json!({"name": "support", "scopes": ["look:orders-*", "metrics"]}));
    assert_eq!(server.get("/v1/me").await.problem(), (401, "token_required".to_owned()));
    server.stop().await;
}

#[tokio::test]
async fn a_token_that_looks_changes_nothing() {
    let known: &[(&str, &[&str])] = &[("look", &["look:q"]), ("all", &["put:*"])];
    let server = start_with(Limits::default(), |config| config.http.tokens = tokens(known)).await;
    let send = async |token: &str, method: &str, target: &str| {
        let authorization = format!("Bearer {token}");
        server.send(method, target, &[("authorization", &authorization)], b"").await
    };
    let id = send("all", "POST", "/v1/queues/q/messages").await.json()["id"].as_str().unwrap().to_owned();
    for target in ["/v1/queues/q", "/v1/queues/q/messages", &format!("/v1/queues/q/messages/{id}")] {
        assert_eq!(send("look", "GET", target).await.status, 200, "{target}");
    }
    for (method, target) in [
        ("POST", "/v1/queues/q/messages".to_owned()),
        ("POST", "/v1/queues/q/take".to_owned()),
        ("POST", format!("/v1/queues/q/messages/{id}/reschedule?delay=1h")),
        ("DELETE", format!("/v1/queues/q/messages/{id}")),
        ("POST", "/v1/queues/q/pause".to_owned()),
        ("POST", "/v1/queues/q/purge".to_owned()),
        ("DELETE", "/v1/queues/q".to_owned()),
        ("GET", "/v1/queues/other".to_owned()),
        ("GET", "/v1/overview".to_owned()),
    ] {
        assert_eq!(
            send("look", method, &target).await.problem(),
            (403, "forbidden".to_owned()),
            "{method} {target}"
        );
    }
    assert_eq!(server.count("ready").await, Some(1));
    server.stop().await;
}

async fn names(server: &Running, query: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut target = format!("/v1/queues?{query}");
    for page in 0.. {
        assert!(page < 20, "{names:?}");
        let page = server.get(&target).await.json();
        let queues = page["queues"].as_array().unwrap();
        names.extend(queues.iter().map(|queue| queue["queue"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        target = format!("/v1/queues?{query}&cursor={next}");
    }
    names
}

#[tokio::test]
async fn queues_are_listed_by_the_beginning_of_their_names() {
    let server = start().await;
    for queue in ["a", "a/", "a/b", "a/c", "a0", "ab", "b", "$a", ".a", "z"] {
        let encoded = queue.replace('/', "%2F").replace('$', "%24");
        server.send("POST", &format!("/v1/queues/{encoded}/messages"), &[], b"x").await;
    }
    for (prefix, expected) in [
        ("a", &["a", "a/", "a/b", "a/c", "a0", "ab"][..]),
        ("a%2F", &["a/", "a/b", "a/c"]),
        ("ab", &["ab"]),
        ("abc", &[]),
        (".", &[".a"]),
        ("%24", &["$a"]),
        ("z", &["z"]),
        ("", &["$a", ".a", "a", "a/", "a/b", "a/c", "a0", "ab", "b", "z"]),
    ] {
        for max in [1, 2, 100] {
            let found = names(&server, &format!("prefix={prefix}&max={max}")).await;
            assert_eq!(found, expected, "{prefix}, {max} a page");
        }
    }
    for bad in ["a%20b", "-", "%C3%A4", &"a".repeat(201)] {
        let refused = server.get(&format!("/v1/queues?prefix={bad}")).await;
        assert_eq!(refused.problem(), (400, "invalid_queue_name".to_owned()), "{bad}");
    }
    assert_eq!(names(&server, &format!("prefix={}", "a".repeat(200))).await, [""; 0]);
    server.stop().await;
}

#[tokio::test]
async fn a_list_begins_at_an_instant() {
    let server = start().await;
    let mut dues = Vec::new();
    for delay in ["1h", "2h", "2h", "3h"] {
        dues.push(server.put(&format!("?delay={delay}"), b"x").await["due"].as_str().unwrap().to_owned());
    }
    let listed = async |from: &str, more: &str| {
        let page = server.get(&format!("/v1/queues/q/messages?from={from}{more}")).await.json();
        let dues = page["messages"].as_array().unwrap().iter();
        (
            dues.map(|message| message["due"].as_str().unwrap().to_owned()).collect::<Vec<_>>(),
            page["next"].clone(),
        )
    };
    assert_eq!(listed("1970-01-01T00:00:00Z", "").await.0, dues);
    assert_eq!(listed(&dues[1], "").await.0, dues[1..], "those that are due at the instant itself");
    assert_eq!(listed("9999-12-31T23:59:59.999Z", "").await.0, [""; 0]);
    let (first, next) = listed(&dues[1], "&max=1").await;
    assert_eq!(first, dues[1..2]);
    let rest = server.get(&format!("/v1/queues/q/messages?cursor={}", next.as_str().unwrap())).await.json();
    assert_eq!(rest["messages"].as_array().unwrap().len(), 2);
    for (query, code) in [
        ("from=tomorrow", "malformed_instant"),
        ("from=%2B12026-01-01T00:00:00Z", "malformed_instant"),
        ("from=1969-12-31T23:59:59Z", "due_out_of_range"),
        (&format!("from={}&cursor={}", dues[0], next.as_str().unwrap()), "conflicting_fields"),
    ] {
        let refused = server.get(&format!("/v1/queues/q/messages?{query}")).await;
        assert_eq!(refused.problem(), (400, code.to_owned()), "{query}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_preview_is_the_beginning_of_the_body() {
    let server = start().await;
    let euros = "€".repeat(300);
    let bodies: [&[u8]; 5] = [b"", b"short", euros.as_bytes(), b"\xff\xfe binary", b"text, then \xff"];
    for (at, body) in bodies.iter().enumerate() {
        server.put(&format!("?delay={}h", at + 1), body).await;
    }
    let previews = async |count: usize| {
        let page = server.get(&format!("/v1/queues/q/messages?preview={count}")).await.json();
        let messages = page["messages"].as_array().unwrap().clone();
        assert!(
            messages
                .iter()
                .all(|message| message.get("body").is_none() && message.get("body_base64").is_none())
        );
        let sizes: Vec<u64> = messages.iter().map(|message| message["size"].as_u64().unwrap()).collect();
        assert_eq!(sizes, bodies.map(|body| body.len() as u64));
        messages
            .iter()
            .map(|message| (message["preview"].clone(), message["preview_base64"].clone()))
            .collect::<Vec<_>>()
    };
    let text = |text: &str| (json!(text), Value::Null);
    let bytes = |text: &str| (Value::Null, json!(text));
    assert_eq!(previews(4).await, [text(""), text("shor"), text("€€€€"), bytes("//4gYg=="), text("text")]);
    assert_eq!(previews(0).await, [text(""), text(""), text(""), text(""), text("")]);
    let long = previews(256).await;
    assert_eq!(long[2], text(&"€".repeat(256)));
    assert_eq!(long[4], bytes("dGV4dCwgdGhlbiD/"), "not all of it is UTF-8");
    for (query, code) in [
        ("preview=257", "invalid_parameter"),
        ("preview=-1", "invalid_parameter"),
        ("preview=9&body=true", "conflicting_fields"),
    ] {
        let refused = server.get(&format!("/v1/queues/q/messages?{query}")).await;
        assert_eq!(refused.problem(), (400, code.to_owned()), "{query}");
    }
    assert_eq!(server.get("/v1/queues/q/messages?preview=9&body=false").await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_receipt_finds_its_message_also_when_the_lease_is_lost() {
    let server = start().await;
    server.put("", b"x").await;
    let taken = server.take("?lease=1s").await;
    let path = format!("/v1/receipts/{}", taken["receipt"].as_str().unwrap());
    let found = server.get(&format!("{path}?body=false")).await.json();
    assert_eq!((&found["id"], &found["state"]), (&taken["id"], &json!("leased")));
    server.clock.advance(2_000);
    assert_eq!(server.get(&path).await.json()["state"], "ready");
    server.delete(&format!("/v1/queues/q/messages/{}", taken["id"].as_str().unwrap())).await;
    assert_eq!(server.get(&path).await.problem().0, 404);
    assert_eq!(server.get("/v1/receipts/AQGa").await.problem(), (400, "malformed_receipt".to_owned()));
    server.stop().await;
}

#[tokio::test]
async fn a_forecast_says_what_falls_due() {
    let server = start().await;
    let mut dues = Vec::new();
    for delay in ["1h", "2h", "2h", "30d"] {
        dues.push(server.put(&format!("?delay={delay}"), b"x").await["due"].as_str().unwrap().to_owned());
    }
    server.send("POST", "/v1/queues/r/messages?delay=1h", &[], b"x").await;
    let edges = format!("edges={},{},{}", dues[0], dues[1], dues[3]);
    let forecast = server.get(&format!("/v1/queues/q/forecast?{edges}")).await.json();
    assert_eq!((&forecast["queue"], &forecast["scheduled"]), (&json!("q"), &json!(4)));
    assert_eq!((&forecast["due_by"], &forecast["within"]), (&json!([1, 3, 4]), &json!(0)));
    assert_eq!(forecast["edges"], json!([dues[0], dues[1], dues[3]]));
    let all = server.get(&format!("/v1/forecast?{edges}")).await.json();
    assert_eq!((&all["due_by"], &all["scheduled"], all.get("queue")), (&json!([2, 4, 5]), &json!(5), None));
    for (span, count) in [("minute", 60), ("hour", 60), ("day", 24), ("month", 30)] {
        for path in ["/v1/queues/q/forecast", "/v1/forecast"] {
            let forecast = server.get(&format!("{path}?span={span}")).await.json();
            assert_eq!(forecast["edges"].as_array().unwrap().len(), count, "{path} {span}");
            assert_eq!(forecast["due_by"].as_array().unwrap().len(), count, "{path} {span}");
        }
    }
    assert_eq!(server.get("/v1/queues/none/forecast").await.problem(), (404, "unknown_queue".to_owned()));
    for (query, code) in [
        ("span=year", "invalid_parameter"),
        ("edges=now", "malformed_instant"),
        (&format!("edges={},{}", dues[1], dues[0]), "invalid_parameter"),
        (&format!("edges={}&span=day", dues[0]), "conflicting_fields"),
    ] {
        for path in ["/v1/queues/q/forecast", "/v1/forecast"] {
            assert_eq!(
                server.get(&format!("{path}?{query}")).await.problem(),
                (400, code.to_owned()),
                "{path} {query}"
            );
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn what_has_happened_lately_is_counted_for_each_queue_and_for_all() {
    let server = start().await;
    server.put("", b"x").await;
    server.put("", b"y").await;
    let taken = server.take("").await;
    server.post(&format!("/v1/receipts/{}/ack", taken["receipt"].as_str().unwrap())).await;
    let taken = server.take("").await;
    server.post(&format!("/v1/receipts/{}/bury", taken["receipt"].as_str().unwrap())).await;
    server.send("POST", "/v1/queues/r/messages", &[], b"x").await;
    let sums = |recent: &Value| {
        assert_eq!((&recent[0]["step"], &recent[1]["step"]), (&json!("10s"), &json!("10m")));
        let sum = |of: &str| {
            recent[1][of].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).sum::<u64>()
        };
        ["puts", "takes", "acks", "retries", "deaths"].map(sum)
    };
    let of_queue = server.get("/v1/queues/q/recent").await.json();
    assert_eq!((sums(&of_queue["recent"]), &of_queue["kept"]), ([2, 2, 1, 0, 1], &json!(true)));
    let late = of_queue["recent"][1]["lateness_max_ms"].as_array().unwrap();
    assert!(late.iter().any(|late| !late.is_null()), "{late:?}");
    let overview = server.get("/v1/overview").await.json();
    assert_eq!(sums(&overview["recent"]), [3, 2, 1, 0, 1]);
    let none = server.get("/v1/queues/none/recent").await.json();
    assert_eq!((&none["kept"], none.get("recent")), (&json!(false), None));
    server.stop().await;
}

#[tokio::test]
async fn the_overview_counts_all_queues() {
    let server = start().await;
    for queue in ["a", "b"] {
        for delay in ["0s", "30s", "30m", "12h", "40d"] {
            server.send("POST", &format!("/v1/queues/{queue}/messages?delay={delay}"), &[], b"x").await;
        }
    }
    server.post("/v1/queues/b/pause").await;
    until("there is a census", || async { server.get("/v1/overview").await.json()["census"].is_object() })
        .await;
    let census = server.get("/v1/overview").await.json()["census"].clone();
    assert_eq!((&census["queues"], &census["waiting"]), (&json!(2), &json!(0)));
    assert_eq!(
        census["counts"],
        json!({"scheduled": 8, "ready": 2, "ready_urgent": 0, "leased": 0, "dead": 0})
    );
    let top = census["top"].as_array().unwrap();
    assert_eq!((&top[0]["queue"], &top[0]["pause"]), (&json!("a"), &json!("running")));
    assert_eq!((&top[1]["queue"], &top[1]["pause"]), (&json!("b"), &json!("paused")));
    assert_eq!((&census["forecast"]["scheduled"], &census["forecast"]["within"]), (&json!(8), &json!(0)));
    assert_eq!(census["forecast"]["due_by"].as_array().unwrap().len(), 4);
    server.stop().await;
}

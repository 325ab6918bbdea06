//! Every route with every scope: allowed is what the table in `docs/security.md` says, and nothing else.
//!
//! That the table is the server's own a unit test beside it holds; that it holds for each request is held here.

use std::collections::BTreeSet;

use dwell_model::Limits;
use serde_json::{Value, json};

use crate::support::{Answer, Running, start_with, tokens};

const PAGE: &str = include_str!("../../../../docs/security.md");

/// Tokens for each verb, in `mine` and in `others`, and one for everything at once.
const TOKENS: &[(&str, &[&str])] = &[
    ("put", &["put:mine"]),
    ("take", &["take:mine"]),
    ("manage", &["manage:mine"]),
    ("metrics", &["metrics"]),
    ("put-others", &["put:others"]),
    ("take-others", &["take:others"]),
    ("manage-others", &["manage:others"]),
    ("everything", &["put:*", "take:*", "manage:*", "metrics"]),
];

/// The table's rows: method, route, and the verbs of which one is needed.
fn rows() -> Vec<(String, String, String)> {
    let table = PAGE.split("## Which scope for which route").nth(1).unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |"));
    rows.map(|row| {
        let (route, asks) = row.split_once("` | ").unwrap();
        let (method, path) = route.split_once(' ').unwrap();
        (method.to_owned(), path.to_owned(), asks.to_owned())
    })
    .collect()
}

/// What is there before each request.
struct Stage {
    id: String,
    number: u64,
    receipt: String,
}

async fn stage(server: &Running) -> Stage {
    let all = [("authorization", "Bearer everything")];
    server.send("POST", "/v1/queues/mine/resume", &all, b"").await;
    let put =
        server.send("POST", "/v1/queues/mine/messages?key=k&on_conflict=replace", &all, b"x").await.json();
    server.send("POST", "/v1/queues/mine/messages", &all, b"y").await;
    let taken = server.send("POST", "/v1/queues/mine/take?max=9&lease=1h", &all, b"").await.json();
    let receipt = taken["messages"][0]["receipt"].as_str().unwrap().to_owned();
    let (id, number) = (put["id"].as_str().unwrap().to_owned(), put["number"].as_u64().unwrap());
    Stage { id, number, receipt }
}

async fn send(server: &Running, method: &str, route: &str, stage: &Stage, token: Option<&str>) -> Answer {
    let target = route
        .replace("{queue}", "mine")
        .replace("{id}", &stage.id)
        .replace("{key}", "k")
        .replace("{number}", &stage.number.to_string())
        .replace("{receipt}", &stage.receipt)
        .replace("{action}", "extend")
        .replace("{code}", "forbidden");
    let (query, body) = match route {
        "/v1/take" => ("?queue=mine", Value::Null),
        "/v1/messages:batch" => ("", json!([{"queue": "mine", "body": "x"}])),
        "/v1/settle" => ("", json!([{"receipt": stage.receipt, "action": "extend"}])),
        "/v1/queues/{queue}/settings" => ("", json!({"lease": "30s"})),
        route if route.ends_with(":batch") => ("", json!([{"body": "x"}])),
        route if route.contains("messages:") => ("", json!([])),
        _ => ("", Value::Null),
    };
    let authorization = token.map(|token| format!("Bearer {token}"));
    let mut headers: Vec<(&str, &str)> = Vec::new();
    headers.extend(authorization.as_ref().map(|value| ("authorization", value.as_str())));
    let body = if body.is_null() { String::new() } else { body.to_string() };
    if !body.is_empty() {
        headers.push(("content-type", "application/json"));
    }
    server.send(method, &format!("{target}{query}"), &headers, body.as_bytes()).await
}

/// Whether the answer refuses for want of a scope; some routes say so in their own way.
fn is_forbidden(route: &str, answer: &Answer) -> bool {
    match route {
        // One answer an item.
        "/v1/messages:batch" | "/v1/settle" if answer.status == 200 => {
            answer.json()["answers"][0]["error"]["code"] == "forbidden"
        }
        // What may not be seen is not there.
        "/v1/numbers/{number}" if answer.status == 404 => answer.json()["code"] == "message_not_found",
        "/v1/queues" if answer.status == 200 => answer.json()["queues"] == json!([]),
        _ => answer.status == 403 && answer.problem().1 == "forbidden",
    }
}

#[tokio::test]
async fn every_route_takes_the_scopes_that_are_documented_and_no_others() {
    let server = start_with(Limits::default(), |config| config.http.tokens = tokens(TOKENS)).await;
    let rows = rows();
    assert!(rows.len() > 30, "{rows:?}");
    for (method, route, asks) in rows {
        let everywhere = asks.ends_with(", for all queues");
        let verbs: BTreeSet<&str> = asks.trim_end_matches(", for all queues").split(", ").collect();
        for (token, _) in TOKENS {
            let place = stage(&server).await;
            let answer = send(&server, &method, &route, &place, Some(token)).await;
            let allowed = match asks.as_str() {
                "no token" | "any token" => true,
                _ if *token == "everything" => true,
                _ if everywhere => *token == "metrics" && verbs.contains("metrics"),
                _ => verbs.contains(token),
            };
            let said = format!("{method} {route} as {token}: {answer:?}");
            assert_ne!(answer.status, 401, "{said}");
            assert_eq!(is_forbidden(&route, &answer), !allowed, "{said}");
            assert!(!allowed || answer.status < 500, "{said}");
        }
        let place = stage(&server).await;
        let nameless = send(&server, &method, &route, &place, None).await;
        if asks == "no token" {
            assert_eq!(nameless.status, 200, "{method} {route}");
        } else {
            assert_eq!(nameless.problem(), (401, "token_required".to_owned()), "{method} {route}");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn several_queues_need_the_scope_in_each() {
    let both: &[(&str, &[&str])] = &[("one", &["take:a", "put:a"]), ("both", &["take:a", "take:b"])];
    let server = start_with(Limits::default(), |config| config.http.tokens = tokens(both)).await;
    let take = async |token: &str| {
        let authorization = format!("Bearer {token}");
        server.send("POST", "/v1/take?queue=a,b", &[("authorization", &authorization)], b"").await
    };
    assert_eq!(take("both").await.status, 200);
    let refused = take("one").await;
    assert_eq!(refused.problem(), (403, "forbidden".to_owned()));
    assert!(refused.text().contains("take:b"), "{refused:?}");

    // In a batch, items stand alone.
    let lines = b"{\"queue\":\"a\",\"body\":\"1\"}\n{\"queue\":\"b\",\"body\":\"2\"}\n";
    let headers = [("content-type", "application/x-ndjson"), ("authorization", "Bearer one")];
    let answers = server.send("POST", "/v1/messages:batch", &headers, lines).await.lines();
    assert_eq!((&answers[0]["status"], &answers[1]["status"]), (&json!(201), &json!(403)));
    assert_eq!(answers[1]["error"]["code"], "forbidden");
    server.stop().await;
}

#[tokio::test]
async fn the_listing_shows_what_the_token_is_good_for() {
    let known: &[(&str, &[&str])] = &[("a", &["put:a*"]), ("all", &["put:*", "manage:*"])];
    let server = start_with(Limits::default(), |config| config.http.tokens = tokens(known)).await;
    for queue in ["a1", "a2", "b1"] {
        let target = format!("/v1/queues/{queue}/messages");
        server.send("POST", &target, &[("authorization", "Bearer all")], b"x").await;
    }
    let names = async |token: &str| {
        let authorization = format!("Bearer {token}");
        let answer = server.send("GET", "/v1/queues", &[("authorization", &authorization)], b"").await.json();
        let names = answer["queues"].as_array().unwrap().iter().map(|queue| queue["queue"].to_string());
        names.collect::<Vec<String>>().join(" ")
    };
    assert_eq!(names("a").await, r#""a1" "a2""#);
    assert_eq!(names("all").await, r#""a1" "a2" "b1""#);
    server.stop().await;
}

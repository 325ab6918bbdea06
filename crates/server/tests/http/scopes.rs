//! Every route with every scope: allowed is what the table in `docs/security.md` says, and nothing else.
//!
//! A unit test checks that the table is the server's own; these tests check that it holds for each request.

use std::collections::BTreeSet;

use dwell_model::Limits;
use serde_json::{Value, json};

use crate::support::{Answer, Running, start_with, tokens};

const PAGE: &str = include_str!("../../../../docs/security.md");

/// Tokens for each verb, in `mine` and in `others`, some for all queues, and one for everything at once.
const TOKENS: &[(&str, &[&str])] = &[
    ("put", &["put:mine"]),
    ("take", &["take:mine"]),
    ("manage", &["manage:mine"]),
    ("look", &["look:mine"]),
    ("metrics", &["metrics"]),
    ("put-others", &["put:others"]),
    ("take-others", &["take:others"]),
    ("manage-others", &["manage:others"]),
    ("look-others", &["look:others"]),
    ("put-all", &["put:*"]),
    ("manage-all", &["manage:*"]),
    ("look-all", &["look:*"]),
    ("everything", &["put:*", "take:*", "manage:*", "look:*", "metrics"]),
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

/// The objects that exist before each request.
#[derive(Clone)]
struct Stage {
    id: String,
    number: u64,
    receipt: String,
    /// The version of the web page.
    digest: String,
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
    Stage { id, number, receipt, digest: digest(server).await }
}

async fn digest(server: &Running) -> String {
    let page = server.send("GET", "/", &[("accept", "text/html")], b"").await;
    page.text().split("page/").nth(1).unwrap().split('/').next().unwrap().to_owned()
}

/// The route's path, with the stage's objects.
fn target(route: &str, stage: &Stage) -> String {
    route
        .replace("{queue}", "mine")
        .replace("{id}", &stage.id)
        .replace("{key}", "k")
        .replace("{number}", &stage.number.to_string())
        .replace("{receipt}", &stage.receipt)
        .replace("{action}", "extend")
        .replace("{code}", "forbidden")
        .replace("{digest}", &stage.digest)
        .replace("{file}", "main.js")
        .replace("{name}", "s")
}

async fn send(server: &Running, method: &str, route: &str, stage: &Stage, token: Option<&str>) -> Answer {
    let target = target(route, stage);
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

/// Whether the answer refuses for lack of a scope; some routes report it in other ways.
fn is_forbidden(route: &str, answer: &Answer) -> bool {
    match route {
        // One answer per item.
        "/v1/messages:batch" | "/v1/settle" if answer.status == 200 => {
            answer.json()["answers"][0]["error"]["code"] == "forbidden"
        }
        // What may not be seen does not exist.
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
            let (verb, for_all) = match token.strip_suffix("-all") {
                Some(verb) => (verb, true),
                None => (*token, *token == "metrics"),
            };
            let allowed = match asks.as_str() {
                "no token" | "any token" => true,
                _ if *token == "everything" => true,
                _ if everywhere => for_all && verbs.contains(verb),
                _ => verbs.contains(verb),
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
    let refused = server.send("GET", "/metrics", &[("authorization", "Bearer both")], b"").await;
    assert!(refused.text().contains("the scope metrics or manage:*"), "{refused:?}");

    // In a batch, items are independent.
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

/// Part of every name that the tokens below may not know of, before and after those that they may.
const HIDDEN: &str = "hidden";

/// Tokens for `mine` alone, or, with `metrics`, for no queue.
const NARROW: &[(&str, &[&str])] = &[
    ("put", &["put:mine"]),
    ("take", &["take:mine"]),
    ("manage", &["manage:mine"]),
    ("look", &["look:mine"]),
    ("begins", &["put:min*", "take:min*", "manage:min*", "look:min*"]),
    ("metrics", &["metrics"]),
    ("everything", &["put:*", "take:*", "manage:*", "metrics"]),
];

/// A store full of hidden messages, in every state, with keys and dead; returns the identifiers of one of them.
async fn hide(server: &Running) -> Stage {
    let all = [("authorization", "Bearer everything")];
    let mut last = None;
    for at in ["$", "a", "l", "mi", "mj", "n", "z"].map(|begins| format!("{begins}{HIDDEN}")) {
        for query in ["?key=k", "?delay=1h", "", ""] {
            server.send("POST", &format!("/v1/queues/{at}/messages{query}"), &all, b"x").await;
        }
        let taken =
            server.send("POST", &format!("/v1/queues/{at}/take?max=2&lease=1h"), &all, b"").await.json();
        let receipts: Vec<&str> = taken["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["receipt"].as_str().unwrap())
            .collect();
        server.send("POST", &format!("/v1/receipts/{}/bury?reason={HIDDEN}", receipts[1]), &all, b"").await;
        let message = &taken["messages"][0];
        last = Some(Stage {
            id: message["id"].as_str().unwrap().to_owned(),
            number: message["number"].as_u64().unwrap(),
            receipt: receipts[0].to_owned(),
            digest: digest(server).await,
        });
    }
    last.unwrap()
}

/// Every route, with the caller's own objects and with the ids and numbers of others, and every page of lists.
#[tokio::test]
async fn no_answer_tells_of_queues_that_the_token_is_not_for() {
    let server = start_with(Limits::default(), |config| config.http.tokens = tokens(NARROW)).await;
    let theirs = hide(&server).await;
    let looks = |what: &str, answer: &Answer| {
        assert!(!String::from_utf8_lossy(&answer.body).contains(HIDDEN), "{what}: {answer:?}");
        assert!(!answer.headers.iter().any(|(_, value)| value.contains(HIDDEN)), "{what}: {answer:?}");
    };
    for (method, route, _) in rows() {
        for (token, _) in NARROW.iter().filter(|(token, _)| *token != "everything") {
            // The metrics cover all queues, and a caller with `metrics` may know of these.
            if *token == "metrics" && ["/metrics", "/v1/overview", "/v1/deaths"].contains(&route.as_str()) {
                continue;
            }
            let mine = stage(&server).await;
            // A receipt contains the name of its queue: a caller that sends it knows the name.
            let mixed = Stage { id: theirs.id.clone(), number: theirs.number, ..mine.clone() };
            for place in [&mine, &mixed] {
                let answer = send(&server, &method, &route, place, Some(token)).await;
                looks(&format!("{method} {route} as {token}"), &answer);
            }
            let authorization = format!("Bearer {token}");
            let headers = [("authorization", authorization.as_str())];
            let target = target(&route, &mixed);
            for max in ["1", "2", "7", "1000"] {
                let mut cursor = String::new();
                // There are no more pages than queues and messages.
                for _ in 0..100 {
                    let asked = format!("{target}?max={max}{cursor}");
                    let answer = server.send(&method, &asked, &headers, b"").await;
                    looks(&format!("{method} {asked} as {token}"), &answer);
                    let page: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
                    match page["next"].as_str() {
                        Some(next) => cursor = format!("&cursor={next}"),
                        None => break,
                    }
                }
            }
        }
    }
    server.stop().await;
}

/// For any number of others between them.
#[tokio::test]
async fn the_listing_pages_through_all_that_the_token_is_good_for() {
    let known: &[(&str, &[&str])] = &[
        ("some", &["put:b*", "take:b3", "manage:d", "put:d-none", "take:f1", "manage:f2", "put:zz"]),
        ("none", &["metrics"]),
        ("all", &["put:*", "manage:*"]),
    ];
    let server = start_with(Limits::default(), |config| config.http.tokens = tokens(known)).await;
    let mine = ["b", "b1", "b2", "b3", "d", "f1", "f2", "zz"];
    let others = ["a", "a9", "az", "c", "c0", "d0", "d1", "e", "f", "f0", "f10", "f3", "g", "y", "zy", "zzz"];
    for queue in mine.iter().chain(&others) {
        let target = format!("/v1/queues/{queue}/messages");
        server.send("POST", &target, &[("authorization", "Bearer all")], b"x").await;
    }
    for (token, expected) in [("some", &mine[..]), ("none", &[])] {
        for max in 1..=9 {
            let authorization = format!("Bearer {token}");
            let (mut seen, mut cursor) = (Vec::new(), String::new());
            for page in 0.. {
                assert!(page < 20, "{token}: {seen:?}");
                let target = format!("/v1/queues?max={max}{cursor}");
                let answer =
                    server.send("GET", &target, &[("authorization", &authorization)], b"").await.json();
                let queues = answer["queues"].as_array().unwrap();
                seen.extend(queues.iter().map(|queue| queue["queue"].as_str().unwrap().to_owned()));
                match answer["next"].as_str() {
                    Some(next) => {
                        assert_eq!((queues.len(), seen.last().unwrap().as_str()), (max, next));
                        cursor = format!("&cursor={next}");
                    }
                    None => break,
                }
            }
            assert_eq!(seen, expected, "{token}, {max} a page");
        }
    }
    // From a cursor in another caller's queues, too.
    let from =
        server.send("GET", "/v1/queues?cursor=c", &[("authorization", "Bearer some")], b"").await.json();
    assert_eq!(from["queues"][0]["queue"], "d");
    server.stop().await;
}

#[tokio::test]
async fn who_defines_or_runs_a_schedule_may_put_into_its_queue() {
    let scopes: &[(&str, &[&str])] = &[
        ("manager", &["manage:*"]),
        ("other", &["manage:*", "put:others"]),
        ("planner", &["manage:*", "put:mine"]),
    ];
    let server = start_with(Limits::default(), |config| config.http.tokens = tokens(scopes)).await;
    let fields = json!({"queue": "mine", "every": "1h", "body": "x"}).to_string();
    let define = async |token: &str| {
        let authorization = format!("Bearer {token}");
        let headers = [("authorization", authorization.as_str()), ("content-type", "application/json")];
        server.send("PUT", "/v1/schedules/s", &headers, fields.as_bytes()).await
    };
    let run = async |token: &str| {
        let authorization = format!("Bearer {token}");
        server.send("POST", "/v1/schedules/s/run", &[("authorization", &authorization)], b"").await
    };
    for token in ["manager", "other"] {
        assert_eq!(define(token).await.problem(), (403, "forbidden".to_owned()), "{token}");
    }
    assert_eq!(run("planner").await.problem(), (404, "unknown_schedule".to_owned()), "none is there");
    assert_eq!(define("planner").await.status, 201);
    for token in ["manager", "other"] {
        assert_eq!(run(token).await.problem(), (403, "forbidden".to_owned()), "{token}");
    }
    assert_eq!(run("planner").await.status, 201);
    server.stop().await;
}

//! The client's types against `/openapi.json`: every answer that the document describes is deserialized and serialized
//! again unchanged, and the answers seen here have every field that the document lists.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod common;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use dwell_wire::{Cancelled, Moved, PutAnswer, QueuePage, QueueStats, Removed, ServerInfo, Settled, Swept};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The client's type owns its texts.
type Delivery = dwell_wire::Delivery<'static>;
type Message = dwell_wire::Message<'static>;
type Page = dwell_wire::Page<'static>;
type Problem = dwell_wire::Problem<'static>;

use common::{PATIENCE, Server, serve_in_memory};

/// A server, its document, and the fields of it that have been seen.
struct SchemaCheck {
    server: Server,
    document: Value,
    seen: BTreeSet<(String, String)>,
}

impl SchemaCheck {
    fn start() -> SchemaCheck {
        let mut held =
            SchemaCheck { server: serve_in_memory(&[]), document: Value::Null, seen: BTreeSet::new() };
        held.document = held.ask("GET", "/openapi.json", "", b"").1;
        held
    }

    fn ask(&self, method: &str, target: &str, headers: &str, body: &[u8]) -> (u16, Value) {
        let mut stream = TcpStream::connect(self.server.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let host = self.server.address();
        let len = body.len();
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}Content-Length: {len}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let head = String::from_utf8_lossy(&answer[..end]).into_owned();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut body = answer.split_off(end + 4);
        if head.to_lowercase().contains("transfer-encoding: chunked") {
            body = unchunked(&body);
        }
        (status, serde_json::from_slice(&body).unwrap_or_else(|error| panic!("{error}: {head}")))
    }

    /// Sends a request, and converts the answer to the client's type for the schema with this name and back.
    fn hold<T: Serialize + DeserializeOwned>(
        &mut self,
        schema: &str,
        method: &str,
        target: &str,
        body: &Value,
    ) -> Value {
        let json = if body.is_null() { "" } else { "Content-Type: application/json\r\n" };
        let sent = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let (_, answer) = self.ask(method, target, json, &sent);
        self.hold_value::<T>(schema, &answer);
        answer
    }

    fn hold_value<T: Serialize + DeserializeOwned>(&mut self, schema: &str, answer: &Value) {
        let read: T = serde_json::from_value(answer.clone())
            .unwrap_or_else(|error| panic!("{schema} as {}: {error}: {answer}", std::any::type_name::<T>()));
        let written = serde_json::to_value(&read).unwrap();
        assert_eq!(written, *answer, "{schema} as {}", std::any::type_name::<T>());
        let rule = json!({ "$ref": format!("#/components/schemas/{schema}") });
        let document = self.document.clone();
        see(&document, schema, &rule, answer, &mut self.seen);
    }
}

/// A chunked body in one piece.
fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    loop {
        let end = bytes.windows(2).position(|two| two == b"\r\n").unwrap();
        let len = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).unwrap(), 16).unwrap();
        if len == 0 {
            return whole;
        }
        whole.extend_from_slice(&bytes[end + 2..end + 2 + len]);
        bytes = &bytes[end + 2 + len + 2..];
    }
}

/// Records which properties of which schemas a value has.
fn see(document: &Value, name: &str, rule: &Value, value: &Value, seen: &mut BTreeSet<(String, String)>) {
    if let Some(target) = rule["$ref"].as_str() {
        let inner = document.pointer(target.strip_prefix('#').unwrap()).unwrap();
        return see(document, target.rsplit('/').next().unwrap(), inner, value, seen);
    }
    for word in ["allOf", "anyOf", "oneOf"] {
        for part in rule[word].as_array().into_iter().flatten() {
            see(document, name, part, value, seen);
        }
    }
    for (property, rule) in rule["properties"].as_object().into_iter().flatten() {
        if let Some(value) = value.get(property) {
            seen.insert((name.to_owned(), property.clone()));
            see(document, property, rule, value, seen);
        }
    }
    for item in value.as_array().into_iter().flatten() {
        see(document, name, &rule["items"], item, seen);
    }
}

/// Every property of a schema and of those that it refers to.
fn properties(document: &Value, name: &str, rule: &Value, all: &mut BTreeSet<(String, String)>) {
    if let Some(target) = rule["$ref"].as_str() {
        let inner = document.pointer(target.strip_prefix('#').unwrap()).unwrap();
        return properties(document, target.rsplit('/').next().unwrap(), inner, all);
    }
    for word in ["allOf", "anyOf", "oneOf"] {
        for part in rule[word].as_array().into_iter().flatten() {
            properties(document, name, part, all);
        }
    }
    for (property, rule) in rule["properties"].as_object().into_iter().flatten() {
        all.insert((name.to_owned(), property.clone()));
        properties(document, property, rule, all);
    }
    if rule["items"].is_object() {
        properties(document, name, &rule["items"], all);
    }
}

const QUEUE: &str = "/v1/queues/q";

#[test]
fn the_client_reads_every_field_that_the_document_describes_and_loses_none() {
    let mut held = SchemaCheck::start();
    let none = Value::Null;

    // Puts, and one that replaces another.
    let full = "?delay=1h&key=k&priority=7&expires=9999-12-31T23:59:59Z&max_attempts=3&lease=45s";
    let headers = "Content-Type: text/plain\r\nDwell-Header-A: b\r\n";
    let (status, put) = held.ask("POST", &format!("{QUEUE}/messages{full}"), headers, b"first");
    assert_eq!(status, 201, "{put}");
    held.hold_value::<PutAnswer>("PutAnswer", &put);
    let again =
        "?delay=1h&key=k&on_conflict=replace&expires=9999-12-31T23:59:59Z&max_attempts=unlimited&lease=45s";
    let (_, put) = held.ask("POST", &format!("{QUEUE}/messages{again}"), headers, b"second");
    held.hold_value::<PutAnswer>("PutAnswer", &put);
    let keyed = put["id"].as_str().unwrap().to_owned();
    held.hold::<Message>("Message", "GET", &format!("{QUEUE}/messages/{keyed}"), &none);
    held.hold::<Moved>("Moved", "POST", &format!("{QUEUE}/messages/{keyed}/reschedule?delay=2h"), &none);

    // Every settlement. One body is not text.
    for body in [b"\xff\xfe" as &[u8], b"x", b"y", b"z"] {
        held.ask("POST", &format!("{QUEUE}/messages"), "", body);
    }
    for (action, fields) in [
        ("extend", json!({"lease": "1m"})),
        ("retry", json!({"after": "1h", "error": "no luck"})),
        ("release", none.clone()),
        ("ack", none.clone()),
        ("bury", json!({"reason": "broken"})),
    ] {
        let taken = held.ask("POST", &format!("{QUEUE}/take?lease=30s&holder=worker%201"), "", b"").1;
        let delivery = taken["messages"][0].clone();
        held.hold_value::<Delivery>("Delivery", &delivery);
        let receipt = delivery["receipt"].as_str().unwrap().to_owned();
        held.hold::<Settled>("Settled", "POST", &format!("/v1/receipts/{receipt}/{action}"), &fields);
        let id = delivery["id"].as_str().unwrap();
        if action == "extend" {
            let other = json!([{ "id": id, "takes": 7 }]).to_string();
            let headers = "Content-Type: application/json\r\n";
            let answers = held.ask("POST", &format!("{QUEUE}/leases:expire"), headers, other.as_bytes()).1;
            held.hold_value::<Problem>("Problem", &answers["answers"][0]["error"]);
        }
        if action != "ack" {
            held.hold::<Message>("Message", "GET", &format!("{QUEUE}/messages/{id}"), &none);
        }
    }

    // Taken by their ids: one with every attribute of a put, and one with an error.
    let failed = held.ask("GET", &format!("{QUEUE}/messages?state=scheduled"), "", b"").1;
    let failed =
        failed["messages"].as_array().unwrap().iter().find(|message| message["last_error"] == "no luck");
    for id in [keyed.as_str(), failed.unwrap()["id"].as_str().unwrap()] {
        let delivery =
            held.hold::<Delivery>("Delivery", "POST", &format!("{QUEUE}/messages/{id}/take"), &none);
        let receipt = delivery["receipt"].as_str().unwrap();
        held.ask("POST", &format!("/v1/receipts/{receipt}/release?after=1h"), "", b"");
    }

    // Lists, with a second page.
    held.hold::<Page>(
        "MessagePage",
        "GET",
        &format!("{QUEUE}/messages?state=scheduled&max=1&body=true"),
        &none,
    );
    held.hold::<Page>("MessagePage", "GET", &format!("{QUEUE}/messages?state=dead"), &none);
    held.ask("POST", "/v1/queues/previewed/messages", "", b"text");
    held.ask("POST", "/v1/queues/previewed/messages", "", b"\xff\xfe");
    held.hold::<Page>("MessagePage", "GET", "/v1/queues/previewed/messages?state=ready&preview=3", &none);
    // A store in memory can read all its messages: such a page has to be constructed.
    let (_, mut problem) = held.ask("GET", "/v1/queues/unknown/messages", "", b"");
    problem["code"] = json!("unavailable");
    let unread = json!({ "id": put["id"], "error": problem });
    held.hold_value::<Page>("MessagePage", &json!({ "messages": [], "unread": [unread] }));
    let unread = json!({ "queue": "q", "error": problem });
    held.hold_value::<QueuePage>("QueuePage", &json!({ "queues": [], "unread": [unread] }));
    held.hold::<QueueStats>(
        "Queue",
        "PATCH",
        &format!("{QUEUE}/settings"),
        &json!({
            "max_pending": 1000, "levels": ["1s", "5s"], "max_attempts": "unlimited",
        }),
    );
    held.hold::<QueueStats>("Queue", "GET", QUEUE, &none);
    held.ask("POST", "/v1/queues/r/messages?delay=1h", "", b"x");
    held.hold::<QueuePage>("QueuePage", "GET", "/v1/queues?max=1", &none);
    held.hold::<ServerInfo>("Limits", "GET", "/v1/limits", &none);

    // Refusals, with all their fields; and one of an item among others.
    held.hold::<Problem>("Problem", "GET", "/v1/queues/nowhere", &none);
    let taken = json!({"key": "k", "body": "x", "queue": "q"});
    let answers = held
        .ask(
            "POST",
            "/v1/messages:batch",
            "Content-Type: application/json\r\n",
            json!([taken]).to_string().as_bytes(),
        )
        .1;
    held.hold_value::<Problem>("Problem", &answers["answers"][0]["error"]);
    held.hold::<Problem>("Problem", "POST", &format!("{QUEUE}/messages?key={}", "k".repeat(600)), &none);
    for wish in ["delay=9999999d", "level=9", "delay=1h&expires=2000-01-01T00:00:00Z"] {
        held.hold::<Problem>("Problem", "POST", &format!("{QUEUE}/messages?{wish}"), &none);
    }
    held.hold::<Problem>("Problem", "PATCH", &format!("{QUEUE}/settings"), &json!({ "lease": "0s" }));
    let (_, dead) = held.ask("POST", "/v1/queues/s/messages?key=one", "", b"x");
    let receipt = held.ask("POST", "/v1/queues/s/take", "", b"").1["messages"][0]["receipt"].clone();
    held.ask("POST", &format!("/v1/receipts/{}/bury", receipt.as_str().unwrap()), "", b"");
    held.ask("POST", "/v1/queues/s/messages?key=one", "", b"y");
    let swept = held.hold::<Swept>("Swept", "POST", "/v1/queues/s/dead/revive", &json!({"all": true}));
    assert_eq!(swept["refused"][0]["id"], dead["id"], "{swept}");

    held.hold::<Cancelled>("Cancelled", "DELETE", &format!("{QUEUE}/messages/{keyed}"), &none);
    held.hold::<Removed>("Removed", "POST", &format!("{QUEUE}/purge"), &none);

    let mut all = BTreeSet::new();
    for name in [
        "PutAnswer",
        "Message",
        "Moved",
        "Delivery",
        "Settled",
        "MessagePage",
        "Queue",
        "QueuePage",
        "Limits",
        "Problem",
        "Swept",
        "Cancelled",
        "Removed",
    ] {
        let rule = json!({ "$ref": format!("#/components/schemas/{name}") });
        properties(&held.document, name, &rule, &mut all);
    }
    // A delivery is not dead, has just been leased, and only lists have previews.
    let is_elsewhere =
        |field: &str| field.starts_with("dead_") || field.starts_with("preview") || field == "lease_granted";
    all.retain(|(schema, field)| schema != "Delivery" || !is_elsewhere(field));
    let unseen: Vec<_> = all.difference(&held.seen).collect();
    assert!(
        all.len() > 60 && unseen.is_empty(),
        "of {} fields these were in no answer: {unseen:?}",
        all.len()
    );
}

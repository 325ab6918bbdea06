//! Sinks and schedules that the server runs itself.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use dwell_delivery::schedule::Schedule;
use dwell_model::{Headers, Key, Limits, Pause, QueueName, Timestamp};
use dwell_server::{Configuration, Layers, Loaded, Server, ServerConfig, SinkConfig};
use dwell_store::{
    MemoryStore, Put, PutAnswer, Result as StoreResult, Store, Take, Target, When, delegate_store,
};
use dwell_time::ManualClock;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::support::{Running, soon, start, start_with, until};

/// A file with this text.
fn load(text: &str) -> Configuration {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("dwell.toml");
    std::fs::write(&file, text).unwrap();
    Loaded::load(&Layers { file: Some(file), ..Layers::default() }).unwrap().configuration
}

/// The sinks of a file with this text.
fn sinks(text: &str) -> Vec<SinkConfig> {
    load(text).sinks
}

/// A webhook's table.
fn webhook(name: &str, queue: &str, to: SocketAddr, more: &str) -> String {
    format!(
        "[[sinks]]\nname = \"{name}\"\nqueues = [\"{queue}\"]\nkind = \"webhook\"\nurl = \"http://{to}/hush\"\n{more}\n"
    )
}

/// Receives requests and answers each with `status`.
struct Receiver {
    address: SocketAddr,
    status: Arc<AtomicU16>,
    got: Arc<AtomicUsize>,
}

impl Receiver {
    async fn start() -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (status, got) = (Arc::new(AtomicU16::new(204)), Arc::new(AtomicUsize::new(0)));
        let (of, count) = (Arc::clone(&status), Arc::clone(&got));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, Arc::clone(&of), Arc::clone(&count)));
            }
        });
        Receiver { address, status, got }
    }

    fn got(&self) -> usize {
        self.got.load(Ordering::SeqCst)
    }
}

async fn answer(mut stream: TcpStream, status: Arc<AtomicU16>, got: Arc<AtomicUsize>) {
    let mut bytes = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if !matches!(stream.read_buf(&mut bytes).await, Ok(1..)) {
                return;
            }
        };
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.map_or(0, |text| text.parse().unwrap());
        while bytes.len() < end + length {
            if !matches!(stream.read_buf(&mut bytes).await, Ok(1..)) {
                return;
            }
        }
        bytes.drain(..end + length);
        got.fetch_add(1, Ordering::SeqCst);
        let status = status.load(Ordering::SeqCst);
        let head = format!(
            "HTTP/1.1 {status} X\r\n{}\r\n",
            if status == 204 { "" } else { "content-length: 0\r\n" }
        );
        if stream.write_all(head.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// The sink with this name as the server shows it.
async fn shown(server: &Running, name: &str) -> Value {
    let answer = server.get(&format!("/v1/sinks/{name}")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

async fn put_into(server: &Running, queue: &str) {
    let answer = server.send("POST", &format!("/v1/queues/{queue}/messages"), &[], b"x").await;
    assert_eq!(answer.status, 201, "{answer:?}");
}

async fn ready(server: &Running, queue: &str) -> u64 {
    let queue: QueueName = queue.parse().unwrap();
    server.store.stats(queue).await.map_or(0, |stats| stats.counts.ready)
}

#[tokio::test]
async fn a_sink_delivers_and_is_paused_and_resumed() {
    let server = start().await;
    let receiver = Receiver::start().await;
    let text = webhook("shop", "orders", receiver.address, "");
    server.delivery.start(sinks(&text), Vec::new()).await.unwrap();
    put_into(&server, "orders").await;
    until("it is delivered", || async { shown(&server, "shop").await["queues"][0]["acked"] == 1 }).await;
    let sink = shown(&server, "shop").await;
    assert_eq!(
        (&sink["state"], &sink["delivered"], &sink["kind"]),
        (&json!("running"), &json!(1), &json!("webhook"))
    );
    assert_eq!(sink["destination"], receiver.address.to_string());
    assert_eq!(sink["queues"][0]["queue"], "orders");
    assert_eq!(server.get("/v1/sinks").await.json()["sinks"][0]["name"], "shop");
    assert_eq!(server.post("/v1/sinks/shop/test").await.json(), json!({"reached": true}));

    let paused = server.post("/v1/sinks/shop/pause").await.json();
    assert_eq!(
        (&paused["state"], &paused["reason"]),
        (&json!("paused"), &json!("an operator has asked for it"))
    );
    put_into(&server, "orders").await;
    // The answer to another pause shows that the server has seen the message, and the sink has taken nothing.
    assert_eq!(server.post("/v1/sinks/shop/pause").await.json()["queues"][0]["taken"], 1);
    assert_eq!(ready(&server, "orders").await, 1);
    assert_eq!(server.post("/v1/sinks/shop/resume").await.json()["state"], "running");
    until("it goes on", || async { shown(&server, "shop").await["delivered"] == 2 }).await;
    assert_eq!(receiver.got(), 2);

    let page = server.get("/metrics").await;
    let page = page.text();
    for line in [
        "dwell_sink_delivered_total{sink=\"shop\"} 2",
        "dwell_sink_paused{sink=\"shop\"} 0",
        "dwell_sink_breaker{sink=\"shop\",queue=\"orders\",state=\"closed\"} 1",
        "dwell_sink_lateness_seconds_count{sink=\"shop\"} 2",
        "dwell_acks_total{queue=\"orders\"} 2",
    ] {
        assert!(page.contains(line), "{line}: {page}");
    }
    for target in ["/v1/sinks/none", "/v1/sinks/none/test"] {
        let answer =
            if target.ends_with("test") { server.post(target).await } else { server.get(target).await };
        assert_eq!(answer.problem(), (404, "unknown_sink".to_owned()));
    }
    server.delivery.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn a_destination_that_is_down_or_gone_leaves_the_server_ready() {
    let server = start().await;
    let nobody = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let receiver = Receiver::start().await;
    receiver.status.store(410, Ordering::SeqCst);
    let text = webhook("down", "a", nobody, "") + &webhook("gone", "b", receiver.address, "");
    server.delivery.start(sinks(&text), Vec::new()).await.unwrap();
    put_into(&server, "a").await;
    put_into(&server, "b").await;
    until("the breaker opens", || async { shown(&server, "down").await["queues"][0]["breaker"] == "open" })
        .await;
    until("410 pauses", || async { shown(&server, "gone").await["state"] == "paused" }).await;
    let down = shown(&server, "down").await;
    assert!(down["failed"]["refused"].as_u64() >= Some(1), "{down}");
    assert_eq!(shown(&server, "gone").await["failed"], json!({"http_410": 1}));
    let tested = server.post("/v1/sinks/down/test").await.json();
    assert_eq!(tested["reached"], false);
    assert!(tested["error"].as_str().unwrap().contains("no connection"), "{tested}");
    assert_eq!(server.get("/health/ready").await.status, 200);
    until("it is given back", || async { ready(&server, "b").await == 1 }).await;
    let listed = server.get("/v1/queues/b/messages?state=ready").await.json();
    assert_eq!(listed["messages"][0]["attempt"], 0, "{listed}");
    // The other destination has not answered 410.
    receiver.status.store(204, Ordering::SeqCst);
    let moved =
        webhook("down", "a", nobody, "") + &webhook("gone", "b", receiver.address, "timeout = \"9s\"");
    assert_eq!(server.delivery.replace_sinks(sinks(&moved)).await.unwrap(), 1);
    until("it is delivered now", || async { shown(&server, "gone").await["delivered"] == 1 }).await;
    // No attempt is spent, and nothing is lost.
    server.delivery.stop().await;
    let listed = server.get("/v1/queues/a/messages?state=ready").await.json();
    assert_eq!(listed["messages"][0]["attempt"], 0, "{listed}");
    server.stop().await;
}

#[tokio::test]
async fn a_sink_that_an_operator_pauses_after_its_destination_did_stays_paused_over_a_reload() {
    let server = start().await;
    let receiver = Receiver::start().await;
    receiver.status.store(410, Ordering::SeqCst);
    let text = |more: &str| sinks(&webhook("gone", "b", receiver.address, more));
    server.delivery.start(text(""), Vec::new()).await.unwrap();
    put_into(&server, "b").await;
    until("410 pauses", || async { shown(&server, "gone").await["state"] == "paused" }).await;
    let paused = server.post("/v1/sinks/gone/pause").await.json();
    assert_eq!(paused["reason"], "an operator has asked for it");
    receiver.status.store(204, Ordering::SeqCst);
    assert_eq!(server.delivery.replace_sinks(text("timeout = \"9s\"")).await.unwrap(), 1);
    assert_eq!(shown(&server, "gone").await["state"], "paused");
    server.delivery.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn a_reload_restarts_what_changed_alone() {
    let server = start().await;
    let receiver = Receiver::start().await;
    let to = receiver.address;
    let before =
        webhook("same", "a", to, "") + &webhook("other", "b", to, "") + &webhook("dropped", "c", to, "");
    server.delivery.start(sinks(&before), Vec::new()).await.unwrap();
    for (sink, queue) in [("same", "a"), ("other", "b")] {
        put_into(&server, queue).await;
        until("it is delivered", || async { shown(&server, sink).await["delivered"] == 1 }).await;
    }
    server.post("/v1/sinks/other/pause").await;
    // A queue moves from one sink to another, and one sink has another limit.
    let after = webhook("same", "a", to, "") + &webhook("other", "c", to, "concurrency = 2");
    assert_eq!(server.delivery.replace_sinks(sinks(&after)).await.unwrap(), 2);
    let names = |listed: &Value| -> Vec<String> {
        let sinks = listed["sinks"].as_array().unwrap();
        sinks.iter().map(|sink| sink["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&server.get("/v1/sinks").await.json()), ["other", "same"]);
    assert_eq!(shown(&server, "same").await["delivered"], 1, "it was not touched");
    let other = shown(&server, "other").await;
    assert_eq!((&other["delivered"], &other["state"]), (&json!(0), &json!("paused")), "it was started anew");
    assert_eq!(other["queues"][0]["queue"], "c");
    assert_eq!(server.delivery.replace_sinks(sinks(&after)).await.unwrap(), 0);
    server.post("/v1/sinks/other/resume").await;
    put_into(&server, "c").await;
    until("it takes from its new queue", || async { shown(&server, "other").await["delivered"] == 1 }).await;
    put_into(&server, "b").await;
    server.delivery.stop().await;
    assert_eq!(ready(&server, "b").await, 1, "nobody takes from there any more");
    server.stop().await;
}

async fn put_schedule(server: &Running, name: &str, fields: &Value) -> crate::support::Answer {
    let json = [("content-type", "application/json")];
    server.send("PUT", &format!("/v1/schedules/{name}"), &json, fields.to_string().as_bytes()).await
}

#[tokio::test]
async fn a_schedule_is_defined_looked_at_run_paused_and_deleted() {
    let server = start().await;
    let fields = json!({
        "queue": "reports", "cron": "30 9 * * MON-FRI", "zone": "Europe/Berlin", "body": "daily",
        "headers": {"a": "b"}, "missed": "skip", "overlap": "replace", "jitter": "1m",
    });
    let defined = put_schedule(&server, "report", &fields).await;
    assert_eq!((defined.status, defined.json()), (201, json!({"outcome": "created"})));
    let again = put_schedule(&server, "report", &fields).await;
    assert_eq!((again.status, again.json()), (200, json!({"outcome": "unchanged"})));
    let changed = put_schedule(&server, "report", &json!({"queue": "reports", "every_ms": 5_000})).await;
    assert_eq!((changed.status, changed.json()), (200, json!({"outcome": "changed"})));
    put_schedule(&server, "report", &fields).await;

    let mut expected = fields.clone();
    expected["name"] = json!("report");
    expected["paused"] = json!(false);
    assert_eq!(server.get("/v1/schedules/report").await.json(), expected);
    assert_eq!(server.get("/v1/schedules").await.json(), json!({"schedules": [expected]}));
    let next = server.get("/v1/schedules/report/next?count=3").await.json();
    let instants = next["instants"].as_array().unwrap();
    assert!(
        instants.len() == 3 && instants.iter().all(|at| at.as_str().unwrap().contains(":30:00")),
        "{next}"
    );

    let run = server.post("/v1/schedules/report/run").await;
    assert_eq!((run.status, &run.json()["outcome"]), (201, &json!("created")));
    let taken = server.post("/v1/queues/reports/take").await.json();
    let message = &taken["messages"][0];
    assert_eq!((&message["body"], &message["headers"]["a"]), (&json!("daily"), &json!("b")), "{taken}");
    assert_eq!(message["headers"]["dwell-schedule-name"], "report");

    assert_eq!(server.post("/v1/schedules/report/pause").await.json()["paused"], true);
    assert_eq!(server.post("/v1/schedules/report/resume").await.json()["paused"], false);
    assert_eq!(server.delete("/v1/schedules/report").await.json(), json!({"removed": 1}));
    for target in ["/v1/schedules/report", "/v1/schedules/report/next", "/v1/schedules/two%20words"] {
        assert_eq!(server.get(target).await.problem(), (404, "unknown_schedule".to_owned()), "{target}");
    }
    assert_eq!(server.delete("/v1/schedules/report").await.problem(), (404, "unknown_schedule".to_owned()));
    server.stop().await;
}

#[tokio::test]
async fn a_schedule_that_could_never_run_is_refused_and_changes_nothing() {
    let server = start().await;
    let with = |fields: Value| {
        let mut all = json!({"queue": "q"});
        all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        all
    };
    for (fields, status, code) in [
        (json!({"every": "5s"}), 400, "missing_field"),
        (with(json!({})), 400, "missing_field"),
        (with(json!({"cron": "* * * * *", "every": "5s"})), 400, "conflicting_fields"),
        (with(json!({"every": "5s", "every_ms": 5})), 400, "conflicting_fields"),
        (with(json!({"every": "5s", "body": "x", "body_base64": "eA=="})), 400, "conflicting_fields"),
        (with(json!({"every": "5"})), 400, "malformed_delay"),
        (with(json!({"every_ms": 5})), 400, "invalid_schedule"),
        (with(json!({"cron": "x"})), 400, "malformed_cron"),
        (with(json!({"cron": "0 0 9 ? * 2"})), 400, "ambiguous_dialect"),
        (with(json!({"cron": "0 0 30 2 *"})), 400, "cron_never_fires"),
        (with(json!({"cron": "* * * * *", "zone": "Mars/Olympus"})), 400, "unknown_zone"),
        (with(json!({"every": "5s", "missed": "never"})), 400, "invalid_field"),
        (with(json!({"every": "5s", "overlap": "never"})), 400, "invalid_field"),
        (with(json!({"cron": "* * * * *", "dialect": "vixie"})), 400, "invalid_field"),
        (with(json!({"evry": "5s"})), 400, "unknown_field"),
        (json!({"queue": "two words", "every": "5s"}), 400, "invalid_queue_name"),
        (json!({"queue": "dwell:schedules", "every": "5s"}), 403, "queue_reserved"),
    ] {
        let refused = put_schedule(&server, "s", &fields).await;
        assert_eq!(refused.problem(), (status, code.to_owned()), "{fields}");
    }
    let long = "x".repeat(201);
    let refused = put_schedule(&server, &long, &json!({"queue": "q", "every": "5s"})).await;
    assert_eq!(refused.problem(), (400, "invalid_schedule".to_owned()));
    assert_eq!(server.get("/v1/schedules").await.json(), json!({"schedules": []}));
    // None of the refusals has left a queue behind.
    assert_eq!(server.store.queues(None, 9).await.unwrap().len(), 0);
    server.stop().await;
}

#[tokio::test]
async fn a_schedule_that_a_dead_server_has_in_hand_is_waited_for_at_start() {
    let server = start().await;
    put_schedule(&server, "tick", &json!({"queue": "ticks", "every": "1h"})).await;
    let take = Take::from("dwell:schedules".parse::<QueueName>().unwrap()).lease_ms(30_000);
    assert_eq!(server.store.take(take).await.unwrap().len(), 1);
    let changed = load("[[schedules]]\nname = \"tick\"\nqueue = \"ticks\"\nevery = \"2h\"\n").schedules;
    let delivery = server.delivery.clone();
    let starting = tokio::spawn(async move { delivery.start(Vec::new(), changed).await });
    let busy = put_schedule(&server, "tick", &json!({"queue": "ticks", "every": "3h"})).await;
    assert_eq!(busy.problem(), (409, "schedule_busy".to_owned()));
    assert!(!starting.is_finished());
    // The lease is over.
    server.clock.advance(30_000);
    tokio::time::timeout(Duration::from_secs(60), starting).await.unwrap().unwrap().unwrap();
    assert_eq!(server.get("/v1/schedules/tick").await.json()["every"], "2h");
    server.delivery.stop().await;
    server.stop().await;
}

/// The schedules of a file with these tables: a name, and what else it says.
fn schedules(tables: &[(&str, &str)]) -> Vec<Schedule> {
    let table =
        |(name, more): &(&str, &str)| format!("[[schedules]]\nname = \"{name}\"\nqueue = \"q\"\n{more}\n");
    load(&tables.iter().map(table).collect::<String>()).schedules
}

/// The names of all schedules.
async fn names(server: &Running) -> Vec<String> {
    let listed = server.get("/v1/schedules").await.json();
    let listed = listed["schedules"].as_array().unwrap().clone();
    listed.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_schedule_that_is_refused_leaves_the_others_defined_and_known() {
    let server = start().await;
    // A message that no schedule can be read of stands under its name.
    let put = Put { key: Some(Key::new("b").unwrap()), ..Put::new("dwell:schedules".parse().unwrap(), "x") };
    assert!(server.store.put(vec![put]).await[0].is_ok());
    let all = schedules(&[("a", "every = \"1h\""), ("b", "every = \"1h\""), ("c", "every = \"1h\"")]);
    server.delivery.check_schedules(&all).await.unwrap();
    let error = server.delivery.replace_schedules(all).await.unwrap_err();
    assert_eq!((error.changed, error.refused.len(), error.untried.len()), (2, 1, 0), "{error}");
    assert_eq!(
        (&*error.refused[0].what, error.refused[0].error.code()),
        ("schedule 'b'", "unreadable_schedule")
    );
    assert_eq!(names(&server).await, ["a", "c"]);
    // What was defined is taken out again.
    assert_eq!(server.delivery.replace_schedules(Vec::new()).await.unwrap(), 2);
    assert_eq!(names(&server).await, [""; 0]);
    server.stop().await;
}

#[tokio::test]
async fn a_schedule_of_a_newer_version_is_no_reason_not_to_start() {
    let server = start().await;
    let definition = r#"{"queue":"q","every_ms":3600000,"missed":"of_a_later_version"}"#;
    let put = Put {
        key: Some(Key::new("b").unwrap()),
        headers: Headers::new([("dwell-schedule", definition)]).unwrap(),
        when: When::At(Timestamp::MAX),
        ..Put::new("dwell:schedules".parse().unwrap(), "x")
    };
    let id = server.store.put(vec![put.clone()]).await.remove(0).unwrap().id;
    let all = schedules(&[("a", "every = \"1h\""), ("b", "every = \"1h\""), ("c", "every = \"1h\"")]);
    server.delivery.start(Vec::new(), all).await.unwrap();
    assert_eq!(names(&server).await, ["a", "c"]);
    let listed = server.get("/v1/schedules").await.json();
    assert_eq!(listed["unread"][0]["code"], "unreadable_schedule", "{listed}");
    for refused in [
        server.get("/v1/schedules/b").await,
        put_schedule(&server, "b", &json!({"queue": "q", "every": "2h"})).await,
    ] {
        assert_eq!(refused.problem(), (409, "unreadable_schedule".to_owned()));
    }
    let page = server.get("/metrics").await;
    assert!(page.text().contains("dwell_schedule_unreadable_total 1\n"), "{}", page.text());
    let message = server.store.get(put.queue, vec![Target::Id(id)], false).await.remove(0).unwrap();
    assert_eq!((message.headers, message.standing.counts.takes), (put.headers, 0));

    // It can be deleted, and then defined.
    assert_eq!(server.delete("/v1/schedules/b").await.json()["removed"], 1);
    assert_eq!(put_schedule(&server, "b", &json!({"queue": "q", "every": "2h"})).await.status, 201);
    server.delivery.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn a_schedule_that_is_over_takes_what_stood_under_its_name_along() {
    let server = start().await;
    assert_eq!(server.delivery.replace_schedules(schedules(&[("a", "every = \"1h\"")])).await.unwrap(), 1);
    let over = schedules(&[("a", "cron = \"0 0 0 1 1 ? 2020\"")]);
    server.delivery.check_schedules(&over).await.unwrap();
    assert_eq!(server.delivery.replace_schedules(over.clone()).await.unwrap(), 1);
    assert_eq!(names(&server).await, [""; 0]);
    assert_eq!(server.delivery.replace_schedules(over).await.unwrap(), 0);

    // One whose last run is still to come stays.
    let last = schedules(&[("a", "cron = \"0 0 0 1 1 ? 2097\"")]);
    assert_eq!(server.delivery.replace_schedules(last.clone()).await.unwrap(), 1);
    assert_eq!(server.delivery.replace_schedules(last).await.unwrap(), 0);
    assert_eq!(names(&server).await, ["a"]);
    server.stop().await;
}

#[tokio::test]
async fn a_jitter_that_is_too_long_by_now_is_no_reason_not_to_start() {
    let server = start().await;
    // The day in March on which clocks are put forward has 23 hours: since 1980, and not in the years that a file is checked for.
    let noon = |body: &str| {
        let more = format!(
            "cron = \"0 12 * 3 *\"\nzone = \"Europe/Berlin\"\njitter = \"23h30m\"\nbody = \"{body}\""
        );
        schedules(&[("noon", &more), ("tick", "every = \"1h\"")])
    };
    let refused = server.delivery.check_schedules(&noon("")).await.unwrap_err();
    assert_eq!((refused.len(), refused[0].error.code()), (1, "invalid_schedule"));
    server.delivery.start(Vec::new(), noon("")).await.unwrap();
    assert_eq!(names(&server).await, ["tick"]);
    server.delivery.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn a_schedule_runs_though_the_defaults_are_to_pause() {
    let mut limits = Limits::default();
    limits.defaults.pause = Pause::Indefinite;
    let server = start_with(limits, |_| {}).await;
    server.delivery.start(Vec::new(), schedules(&[("tick", "every = \"1h\"")])).await.unwrap();
    until("a runner has found its next instant", || async {
        server.get("/v1/schedules/tick").await.json().get("next").is_some()
    })
    .await;
    server.delivery.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn a_schedule_runs_once_it_is_defined_and_a_server_without_any_waits_on_no_queue() {
    let server = start().await;
    server.delivery.start(Vec::new(), Vec::new()).await.unwrap();
    assert_eq!(server.get("/v1/queues").await.json()["queues"], json!([]));
    put_schedule(&server, "tick", &json!({"queue": "ticks", "every": "1h", "body": "tock"})).await;
    until("a runner has found its next instant", || async {
        server.get("/v1/schedules/tick").await.json().get("next").is_some()
    })
    .await;
    assert_eq!(ready(&server, "ticks").await, 0);
    // The store's clock stands at 6m40s past the hour.
    server.clock.advance(3_200_000);
    until("it has run", || async { ready(&server, "ticks").await == 1 }).await;
    let taken = server.post("/v1/queues/ticks/take").await.json();
    let headers = &taken["messages"][0]["headers"];
    assert_eq!(taken["messages"][0]["body"], "tock");
    assert!(headers["dwell-schedule-instant"].as_str().unwrap().ends_with(":00:00.000Z"), "{taken}");
    let page = server.get("/metrics").await;
    assert!(page.text().contains("dwell_schedule_runs_total 1"), "{}", page.text());
    server.delivery.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn the_list_of_schedules_leaves_long_bodies_out_and_is_bounded() {
    let server = start_with(Limits::default(), |config| config.memory_bytes = 256 * 1024).await;
    let long = "x".repeat(5_000);
    put_schedule(&server, "long", &json!({"queue": "q", "every": "1h", "body": long})).await;
    put_schedule(&server, "empty", &json!({"queue": "q", "every": "1h"})).await;
    let listed = server.get("/v1/schedules").await.json();
    assert_eq!(listed["schedules"][0]["body"], "", "{listed}");
    assert_eq!(listed["schedules"][1]["name"], "long");
    assert_eq!(listed["schedules"][1].get("body"), None);
    assert_eq!(server.get("/v1/schedules/long").await.json()["body"], long);

    let many: String = (0..150)
        .map(|n| {
            let body = "x".repeat(4_000);
            format!("[[schedules]]\nname = \"s{n}\"\nqueue = \"q\"\nevery = \"1h\"\nbody = \"{body}\"\n")
        })
        .collect();
    server.delivery.replace_schedules(load(&many).schedules).await.unwrap();
    let refused = server.get("/v1/schedules").await;
    assert_eq!(refused.problem().1, "overloaded", "they are more than all answers may have");
    assert_eq!(server.get("/v1/schedules/s149").await.status, 200, "what was held for the list is free");
    server.stop().await;
}

/// A store that may be stuck: puts do not return.
struct Stuck {
    memory: MemoryStore,
    is_stuck: AtomicBool,
    stuck: Notify,
}

#[async_trait]
impl Store for Stuck {
    async fn put(&self, puts: Vec<Put>) -> Vec<StoreResult<PutAnswer>> {
        if self.is_stuck.load(Ordering::SeqCst) {
            self.stuck.notify_one();
            std::future::pending::<()>().await;
        }
        self.memory.put(puts).await
    }

    delegate_store! {
        self.memory;
        own: put;
        forward: take take_id settle expire_lease cancel reschedule get locate list peek stats forecast queues;
        forward: ready configure revive deaths discard purge delete_queue;
    }
}

#[tokio::test]
async fn a_shutdown_does_not_wait_for_a_store_that_is_stuck() {
    let clock = ManualClock::new(Timestamp::from_ms(1_795_000_000_000).unwrap());
    let memory = MemoryStore::new(Limits::default(), Arc::new(clock.clone()));
    let store = Arc::new(Stuck { memory, is_stuck: AtomicBool::new(false), stuck: Notify::new() });
    let mut config = ServerConfig::default();
    config.drain_ms = 10;
    config.http.listen = "127.0.0.1:0".parse().unwrap();
    let server = Server::bind(Arc::clone(&store) as Arc<dyn Store>, config).await.unwrap();
    let delivery = server.delivery();
    let tick = load("[[schedules]]\nname = \"tick\"\nqueue = \"ticks\"\nevery = \"1h\"\n").schedules;
    delivery.start(Vec::new(), tick).await.unwrap();
    let schedules: QueueName = "dwell:schedules".parse().unwrap();
    until("the runner waits for the next instant", || async {
        let stats = store.memory.stats(schedules.clone()).await;
        stats.is_ok_and(|stats| stats.waiting == 1 && stats.counts.scheduled == 1)
    })
    .await;
    store.is_stuck.store(true, Ordering::SeqCst);
    clock.advance(3_600_000);
    soon("a run is put", store.stuck.notified()).await;
    soon("it stops", delivery.stop()).await;
    let stats = store.memory.stats(schedules).await.unwrap();
    assert_eq!(stats.counts.leased, 1, "the lease ends by itself");
}

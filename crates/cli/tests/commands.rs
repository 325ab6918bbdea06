//! Every subcommand, over a real socket to a real server, as scripts see it.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod common;

use common::{Server, dwell, run, serve_in_memory};
use serde_json::{Value, json};

const DOCS: &str = include_str!("../../../docs/cli.md");

fn server() -> Server {
    serve_in_memory(&[])
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_else(|| panic!("no {field} in {value}"))
}

#[test]
fn put_take_and_ack() {
    let server = server();
    let put = server.dwell(&["put", "orders", "close order 7", "--key", "order-7"]).ok().json();
    assert_eq!(put["outcome"], "created");
    let taken = server.dwell(&["take", "orders"]).ok().json();
    assert_eq!(taken["id"], put["id"]);
    assert_eq!((&taken["body"], &taken["attempt"]), (&json!("close order 7"), &json!(1)));
    let acked = server.dwell(&["ack", text(&taken, "receipt")]).ok().json();
    assert_eq!(acked, json!({"id": put["id"], "state": "gone"}));

    let again = server.dwell(&["ack", text(&taken, "receipt")]);
    assert_eq!((again.code, again.failure().as_str()), (1, "lease_lost"));
    let nothing = server.dwell(&["take", "orders"]);
    assert_eq!((nothing.code, nothing.stdout.as_str()), (3, ""));
}

#[test]
fn a_put_carries_all_that_it_was_given() {
    let server = server();
    let args = [
        "put",
        "q",
        "-",
        "--delay",
        "1h",
        "--key",
        "k ü/?",
        "--header",
        "a: b",
        "--content-type",
        "x/y",
        "--priority",
        "5",
        "--expires",
        "2999-01-01T00:00:00Z",
        "--lease",
        "90s",
        "--max-attempts",
        "unlimited",
        "--idempotency-key",
        "t-1",
    ];
    let put = server.dwell_with(&args, b"\xff\x00 bytes").ok().json();
    let repeated = server.dwell_with(&args, b"\xff\x00 bytes").ok().json();
    assert_eq!(put, repeated, "the idempotency key makes a second put the first");

    let got = server.dwell(&["get", "q", "--key", "k ü/?"]).ok().json();
    assert_eq!(got["headers"], json!({"a": "b", "content-type": "x/y"}));
    assert_eq!((&got["priority"], &got["lease"]), (&json!(5), &json!("1m30s")));
    assert_eq!((&got["max_attempts"], &got["state"]), (&json!("unlimited"), &json!("scheduled")));
    assert_eq!(
        (text(&got, "expires"), text(&got, "body_base64")),
        ("2999-01-01T00:00:00.000Z", "/wAgYnl0ZXM=")
    );
    let by_number = server.dwell(&["get", "--number", &got["number"].to_string()]).ok().json();
    assert_eq!(by_number, got);
    let raw = server.dwell(&["get", "q", text(&got, "id"), "--raw"]).ok();
    assert!(raw.stdout.ends_with(" bytes"), "{raw:?}");

    let taken = server.dwell(&["put", "q", "x", "--key", "k ü/?"]);
    assert_eq!((taken.code, taken.failure().as_str()), (1, "key_taken"));
    let replaced = server.dwell(&["put", "q", "x", "--key", "k ü/?", "--on-conflict", "replace"]).ok().json();
    assert_eq!((&replaced["outcome"], &replaced["replaced"]), (&json!("replaced"), &put["id"]));
    let kept = server.dwell(&[
        "put",
        "q",
        "y",
        "--key",
        "k ü/?",
        "--on-conflict",
        "keep",
        "--due",
        "2999-01-01T00:00:00Z",
    ]);
    assert_eq!(kept.ok().json()["outcome"], "kept");
}

#[test]
fn a_take_waits_for_the_instant_and_acks_what_it_printed() {
    let server = server();
    let put = server.dwell(&["put", "q", "body\n", "--delay", "300ms"]).ok().json();
    let taken = server.dwell(&["take", "q", "--wait", "1m", "--ack"]).ok().json();
    assert_eq!(taken["id"], put["id"]);
    assert!(text(&taken, "taken_at") >= text(&put, "due"), "{taken} {put}");
    assert_eq!(server.dwell(&["get", "q", text(&put, "id")]).code, 3);

    server.dwell(&["put", "q", "raw\n"]).ok();
    assert_eq!(server.dwell(&["take", "q", "--raw", "--ack"]).ok().stdout, "raw\n");
}

#[test]
fn a_take_goes_over_several_queues_in_order() {
    let server = server();
    server.dwell(&["put", "a", "third", "--priority", "3"]).ok();
    server.dwell(&["put", "b/c", "first", "--priority", "1"]).ok();
    server.dwell(&["put", "a", "second", "--priority", "2"]).ok();
    let taken = server.dwell(&["take", "a", "b/c", "--max", "10", "--lease", "1h"]).ok();
    let bodies: Vec<Value> = taken.lines().iter().map(|delivery| delivery["body"].clone()).collect();
    assert_eq!(bodies, ["first", "second", "third"]);
}

#[test]
fn retry_release_bury_and_extend() {
    let server = server();
    let take = || {
        server.dwell(&["put", "q", "x"]).ok();
        let taken = server.dwell(&["take", "q"]).ok().json();
        (text(&taken, "receipt").to_owned(), text(&taken, "id").to_owned())
    };

    let (receipt, id) = take();
    let retried =
        server.dwell(&["retry", &receipt, "--after", "1h", "--error", "no route", "--priority", "9"]);
    assert_eq!(retried.ok().json()["state"], "scheduled");
    let got = server.dwell(&["get", "q", &id]).ok().json();
    assert_eq!(
        (&got["last_error"], &got["priority"], &got["attempt"]),
        (&json!("no route"), &json!(9), &json!(1))
    );

    let (receipt, id) = take();
    assert_eq!(server.dwell(&["release", &receipt, "--after", "1h"]).ok().json()["state"], "scheduled");
    assert_eq!(server.dwell(&["get", "q", &id]).ok().json()["attempt"], 0);

    let (receipt, id) = take();
    let buried = server.dwell(&["bury", &receipt, "--reason", "bad"]).ok().json();
    assert_eq!(buried, json!({"id": id, "state": "dead", "dead_reason": "buried"}));

    let (receipt, id) = take();
    let extended = server.dwell(&["extend", &receipt, "--lease", "2h"]).ok().json();
    assert_eq!(extended["state"], "leased");
    assert_eq!(server.dwell(&["get", "q", &id]).ok().json()["lease_until"], extended["lease_until"]);
}

#[test]
fn cancel_and_reschedule_by_id_and_key() {
    let server = server();
    let one = server.dwell(&["put", "q", "x", "--delay", "1h"]).ok().json();
    server.dwell(&["put", "q", "y", "--delay", "1h", "--key", "k"]).ok();

    let moved =
        server.dwell(&["reschedule", "q", text(&one, "id"), "--due", "2999-01-01T00:00:00Z"]).ok().json();
    assert_eq!(moved, json!({"outcome": "moved", "id": one["id"], "due": "2999-01-01T00:00:00.000Z"}));
    server.dwell(&["reschedule", "q", "--key", "k", "--delay", "0s"]).ok();
    let taken = server.dwell(&["take", "q"]).ok().json();
    assert_eq!(taken["key"], "k");

    let held = server.dwell(&["cancel", "q", "--key", "k"]);
    assert_eq!((held.code, held.failure().as_str()), (1, "leased"));
    let cancelled = server.dwell(&["cancel", "q", text(&one, "id")]).ok().json();
    assert_eq!(cancelled, json!({"outcome": "cancelled", "id": one["id"]}));
    let gone = server.dwell(&["cancel", "q", text(&one, "id")]);
    assert_eq!((gone.code, gone.failure().as_str()), (3, "message_not_found"));
}

#[test]
fn the_dead_are_listed_revived_and_discarded() {
    let server = server();
    for body in ["1", "2", "3", "4"] {
        server.dwell(&["put", "q", body]).ok();
    }
    let taken = server.dwell(&["take", "q", "--max", "4"]).ok().lines();
    for delivery in &taken {
        server.dwell(&["bury", text(delivery, "receipt")]).ok();
    }
    let dead = server.dwell(&["list", "q", "--state", "dead", "--all"]).ok().lines();
    assert_eq!(dead.len(), 4);
    assert_eq!(server.dwell(&["list", "q", "--state", "dead", "--max", "2"]).ok().lines().len(), 2);
    assert_eq!(dead[0]["dead_reason"], "buried");

    let id = text(&taken[3], "id");
    assert_eq!(server.dwell(&["revive", "q", id, "--delay", "1h"]).ok().json()["done"], 1);
    let twice = server.dwell(&["revive", "q", id]);
    assert_eq!(twice.code, 1, "{twice:?}");
    assert_eq!(twice.json()["refused"][0]["error"]["code"], "not_dead");
    assert_eq!(server.dwell(&["revive", "q", "--oldest", "1"]).ok().json()["done"], 1);
    assert_eq!(server.dwell(&["take", "q"]).ok().json()["body"], "1", "the oldest comes first");
    assert_eq!(server.dwell(&["discard", "q", "--oldest", "1"]).ok().json()["done"], 1);
    assert_eq!(server.dwell(&["discard", "q", "--all"]).ok().json()["done"], 1);
    assert_eq!(server.dwell(&["list", "q", "--state", "dead"]).code, 3);
    let scheduled = server.dwell(&["list", "q", "--no-body"]).ok().json();
    assert_eq!(
        (&scheduled["id"], &scheduled["body"], &scheduled["size"]),
        (&json!(id), &Value::Null, &json!(1))
    );
}

#[test]
fn an_operator_sees_who_holds_what_and_ends_that_lease() {
    let server = server();
    let put = server.dwell(&["put", "q", "x", "--key", "order-7"]).ok().json();
    let id = text(&put, "id");
    let taken = server.dwell(&["take", "q", "--holder", "worker 7", "--lease", "1h"]).ok().json();
    let listed = server.dwell(&["list", "q", "--state", "leased"]).ok().json();
    assert_eq!((&listed["id"], &listed["holder"]), (&put["id"], &json!("worker 7")));
    assert_eq!(
        (&listed["lease_until"], &listed["lease_granted"], &listed["counts"]["takes"]),
        (&taken["lease_until"], &taken["taken_at"], &json!(1))
    );
    let people = server.dwell(&["list", "q", "--state", "leased", "--human"]).ok().stdout;
    let mut lines = people.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    assert_eq!(lines.next().as_deref(), Some("id until granted takes holder key"));
    let row = lines.next().unwrap();
    assert!(row.starts_with(id) && row.ends_with(" 1 worker 7 order-7"), "{people}");

    let later = server.dwell(&["expire-lease", "q", id, "--takes", "2"]);
    assert_eq!((later.code, later.failure().as_str()), (1, "lease_changed"));
    assert_eq!(server.dwell(&["list", "q", "--state", "leased"]).ok().json(), listed, "nothing has changed");
    let ended = server.dwell(&["expire-lease", "q", id, "--takes", "1"]).ok().json();
    assert_eq!(ended, json!({"id": id, "state": "ready"}));
    let again = server.dwell(&["expire-lease", "q", id, "--takes", "1"]);
    assert_eq!((again.code, again.failure().as_str()), (1, "not_leased"));
    let acked = server.dwell(&["ack", text(&taken, "receipt")]);
    assert_eq!((acked.code, acked.failure().as_str()), (1, "lease_lost"));
    let next = server.dwell(&["take", "q"]).ok().json();
    assert_eq!(
        (&next["id"], &next["attempt"], &next["counts"]["lapses"]),
        (&put["id"], &json!(2), &json!(1))
    );
}

#[test]
fn the_dead_are_found_revived_and_discarded_by_key() {
    let server = server();
    let mut ids = Vec::new();
    for body in ["older", "younger"] {
        let put = server.dwell(&["put", "q", body, "--key", "order-7"]).ok().json();
        let taken = server.dwell(&["take", "q"]).ok().json();
        server.dwell(&["bury", text(&taken, "receipt")]).ok();
        ids.push(text(&put, "id").to_owned());
    }
    let by_key = |command: &[&str]| server.dwell(&[command, &["q", "--key", "order-7"]].concat());
    let live = by_key(&["get"]);
    assert_eq!((live.code, live.failure().as_str()), (3, "message_not_found"));
    let found = by_key(&["get", "--dead"]).ok().json();
    assert_eq!(
        (&found["id"], &found["state"], &found["body"]),
        (&json!(ids[1]), &json!("dead"), &json!("younger"))
    );

    assert_eq!(by_key(&["revive"]).ok().json()["done"], 1);
    let revived = by_key(&["get", "--dead"]).ok().json();
    assert_eq!(
        (&revived["id"], &revived["state"]),
        (&json!(ids[1]), &json!("ready")),
        "the live one comes first"
    );
    // An older dead message is not selected while a live message has the key.
    for command in ["revive", "discard"] {
        let refused = by_key(&[command]);
        assert_eq!(refused.code, 1, "{refused:?}");
    }
    assert_eq!(server.dwell(&["get", "q", &ids[0]]).ok().json()["state"], "dead");
    server.dwell(&["cancel", "q", &ids[1]]).ok();
    assert_eq!(by_key(&["discard"]).ok().json()["done"], 1);
    assert_eq!(server.dwell(&["get", "q", &ids[0]]).code, 3);
    let nothing = by_key(&["discard"]);
    assert_eq!((nothing.code, nothing.failure().as_str()), (3, "unknown_queue"), "that was the last of it");
}

#[test]
fn what_becomes_of_the_dead_the_expired_and_the_lapsed_is_configured() {
    let server = server();
    let args = [
        "configure",
        "q",
        "--dead-ttl",
        "30d",
        "--dead-max",
        "1",
        "--on-expiry",
        "drop",
        "--max-leased",
        "1",
        "--lapse-backoff",
        "first",
    ];
    let queue = server.dwell(&args).ok().json();
    let settings = &queue["settings"];
    assert_eq!((&settings["dead_ttl"], &settings["dead_max"]), (&json!("30d"), &json!(1)));
    assert_eq!((&settings["on_expiry"], &settings["max_leased"]), (&json!("drop"), &json!(1)));
    assert_eq!(settings["lapse_backoff"], "first");
    let own = json!(["dead_ttl", "dead_max", "on_expiry", "max_leased", "lapse_backoff"]);
    assert_eq!(queue["own"], own);

    // The settings are in force.
    for body in ["1", "2"] {
        server.dwell(&["put", "q", body]).ok();
    }
    let taken = server.dwell(&["take", "q", "--max", "2"]).ok().json();
    assert_eq!(taken["body"], "1", "one at a time");
    let ended = server.dwell(&["expire-lease", "q", text(&taken, "id"), "--takes", "1"]).ok().json();
    assert_eq!(ended["state"], "scheduled", "a lapse waits for the backoff");

    let mut args = vec!["configure", "q"];
    for name in ["dead_ttl", "dead_max", "on_expiry", "max_leased", "lapse_backoff"] {
        args.extend(["--reset", name]);
    }
    let reset = server.dwell(&args).ok().json();
    assert_eq!(reset["own"], json!([]));
    assert_eq!(
        (&reset["settings"]["dead_max"], &reset["settings"]["on_expiry"]),
        (&Value::Null, &json!("dead"))
    );
}

#[test]
fn queues_stats_and_settings() {
    let server = server();
    server.dwell(&["put", "a", "x"]).ok();
    server.dwell(&["put", "b", "x", "--delay", "1h"]).ok();
    let names: Vec<Value> =
        server.dwell(&["queues"]).ok().lines().iter().map(|queue| queue["queue"].clone()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(server.dwell(&["stats", "a"]).ok().json()["counts"]["ready"], 1);
    let all = server.dwell(&["stats"]).ok().json();
    assert_eq!((&all["queues"], &all["counts"]["scheduled"]), (&json!(2), &json!(1)));
    assert_eq!(text(&all, "version"), env!("CARGO_PKG_VERSION"));

    let args = [
        "configure",
        "a",
        "--lease",
        "2m",
        "--max-attempts",
        "3",
        "--backoff-base",
        "5s",
        "--backoff-cap",
        "1m",
        "--max-pending",
        "10",
        "--levels",
        "1s 1h30m",
        "--idempotency-ttl",
        "1h",
    ];
    let settings = server.dwell(&args).ok().json()["settings"].clone();
    assert_eq!((&settings["lease"], &settings["max_attempts"]), (&json!("2m"), &json!(3)));
    assert_eq!(
        settings["backoff"],
        json!({"base": "5s", "factor_percent": 200, "cap": "1m", "jitter_percent": 20})
    );
    assert_eq!((&settings["max_pending"], &settings["levels"]), (&json!(10), &json!(["1s", "1h30m"])));
    let put = server.dwell(&["put", "a", "x", "--level", "2"]).ok().json();
    let created = server.dwell(&["get", "a", text(&put, "id")]).ok().json();
    let ms = |field: &str| text(&created, field).parse::<dwell_model::Timestamp>().unwrap().as_ms();
    assert_eq!(ms("due") - ms("created"), 5_400_000);

    // A part of the backoff leaves the rest unchanged.
    let args =
        ["configure", "a", "--backoff-jitter-percent", "0", "--reset", "lease", "--reset", "max_attempts"];
    let queue = server.dwell(&args).ok().json();
    assert_eq!(queue["settings"]["backoff"]["base"], "5s");
    assert_eq!(queue["settings"]["lease"], "30s");
    assert_eq!(server.dwell(&["settings", "a"]).ok().json()["own"], queue["own"]);
    assert_eq!(queue["own"], json!(["backoff", "max_pending", "levels", "idempotency_ttl"]));
}

#[test]
fn a_paused_queue_hands_nothing_out() {
    let server = server();
    server.dwell(&["put", "q", "x"]).ok();
    assert_eq!(server.dwell(&["pause", "q"]).ok().json()["settings"]["pause"], "paused");
    assert_eq!(server.dwell(&["take", "q"]).code, 3);
    server.dwell(&["resume", "q"]).ok();
    server.dwell(&["pause", "q", "--until", "2999-01-01T00:00:00Z"]).ok();
    assert_eq!(server.dwell(&["take", "q"]).code, 3);
    server.dwell(&["pause", "q", "--for", "300ms"]).ok();
    server.dwell(&["take", "q", "--wait", "1m"]).ok();
}

#[test]
fn purge_and_delete_queue_ask_for_a_yes() {
    let server = server();
    server.dwell(&["put", "q", "x"]).ok();
    server.dwell(&["put", "q", "y", "--delay", "1h"]).ok();
    for command in ["purge", "delete-queue"] {
        let refused = server.dwell(&[command, "q"]);
        assert_eq!((refused.code, refused.failure().as_str()), (2, "usage"));
    }
    assert_eq!(server.dwell(&["purge", "q", "--yes"]).ok().json()["removed"], 2);
    server.dwell(&["configure", "q", "--lease", "1m"]).ok();
    server.dwell(&["delete-queue", "q", "--yes"]).ok();
    assert_eq!(server.dwell(&["stats", "q"]).code, 3);
}

#[test]
fn people_get_words_and_colours_only_where_they_ask_for_them() {
    let server = server();
    server.dwell(&["put", "q", "close order 7", "--delay", "1h"]).ok();
    let plain = server.dwell(&["list", "q", "--human"]).ok().stdout;
    assert!(plain.contains("close order 7") && plain.contains("(in 59m"), "{plain}");
    assert!(!plain.contains('\u{1b}'), "{plain}");
    let colours = server.dwell(&["list", "q", "--human", "--color", "always"]).ok().stdout;
    assert!(colours.contains('\u{1b}'), "{colours}");
    for args in [&["queues"] as &[&str], &["stats"], &["stats", "q"], &["settings", "q"], &["take", "q"]] {
        let out = server.dwell(&[args, &["--human"]].concat()).stdout;
        assert!(serde_json::from_str::<Value>(&out).is_err(), "{out}");
    }
    // A terminal's width does not affect JSON output.
    server.dwell(&["list", "q", "--json"]).ok().json();
}

#[test]
fn completions_for_each_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let mut command = dwell();
        command.args(["completions", shell]);
        assert!(run(command).ok().stdout.contains("delete-queue"), "{shell}");
    }
}

#[test]
fn each_command_explains_itself() {
    let mut command = dwell();
    command.arg("--help");
    let help = run(command).ok().stdout;
    for name in [
        "serve",
        "put",
        "take",
        "ack",
        "retry",
        "release",
        "bury",
        "extend",
        "cancel",
        "reschedule",
        "get",
        "list",
        "queues",
        "stats",
        "settings",
        "configure",
        "pause",
        "resume",
        "revive",
        "discard",
        "expire-lease",
        "purge",
        "delete-queue",
        "completions",
    ] {
        assert!(help.contains(&format!("\n  {name} ")), "{name} is not listed:\n{help}");
        let mut command = dwell();
        command.args([name, "--help"]);
        let help = run(command).ok().stdout;
        let (_, examples) = help.split_once("\nExample").expect("a help has an example");
        let wide: Vec<_> = examples.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(wide.is_empty(), "a terminal of 80 columns breaks these lines of {name} anywhere: {wide:#?}");
        assert!(DOCS.contains(&format!("`{name}`")), "docs/cli.md does not tell of {name}");
    }
}

//! Bad input: a stable code, an exit code, a detail that says what to do, and nothing changed.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod common;

use std::net::TcpListener;

use common::{dwell, run, serve_in_memory};

/// An id that no message has.
const ID: &str = "0197c5e2-0000-8000-8000-000000000001";

/// Errors found before anything is sent.
#[test]
fn what_makes_no_sense_is_a_usage_error() {
    let long = "q".repeat(201);
    let holder = "h".repeat(129);
    let cases: &[(&[&str], &str)] = &[
        (&["put", "q", "x", "--delay", "-5s"], "negative"),
        (&["put", "q", "x", "--delay", "5"], "not a duration"),
        (&["put", "q", "x", "--delay", "5 parsecs"], "not a duration"),
        (&["put", "q", "x", "--due", "tomorrow"], "not an instant"),
        (&["put", "q", "x", "--due", "10000-01-01T00:00:00Z"], "9999"),
        (&["put", "q", "x", "--due", "1969-12-31T23:59:59Z"], "1970"),
        (&["put", "q", "x", "--delay", "5s", "--due", "2999-01-01T00:00:00Z"], "cannot be used with"),
        (&["put", "q", "x", "--key", ""], "1 to 512 bytes"),
        (&["put", "q", "x", "--idempotency-key", "two words"], "visible ASCII"),
        (&["put", "q", "x", "--max-attempts", "0"], "1 or more"),
        (&["put", "q", "x", "--priority", "4294967296"], "invalid"),
        (&["put", "q", "x", "--header", "no colon"], "name: value"),
        (&["put", "q", "x", "--header", "a b: c"], "header 'a b'"),
        (&["put", "a b", "x"], "cannot name a queue"),
        (&["put", &long, "x"], "cannot name a queue"),
        (&["put", "q"], "required"),
        (&["put", "q", "x", "--from", "f"], "cannot be used with"),
        (&["take", "q", "--max", "0"], "0 is not in"),
        (&["take", "q", "--wait", "5"], "not a duration"),
        (&["ack", "nonsense"], "not a receipt"),
        (&["get", "q", "nonsense"], "not a message id"),
        (&["get", "q", "67e55044-10b1-426f-9247-bb680e5fe0c8"], "not a message id"),
        (&["get", "--number", "0"], "not a message number"),
        (&["get", "q"], "name the message"),
        (&["cancel", "q"], "required"),
        (&["reschedule", "q", "--key", "k"], "--delay"),
        (&["configure", "q"], "at least one setting"),
        (&["configure", "q", "--lease", "1s", "--reset", "lease"], "choose one"),
        (&["configure", "q", "--levels", "1s 5"], "not a duration"),
        (&["configure", "q", "--dead-ttl", "30"], "not a duration"),
        (&["configure", "q", "--dead-max", "-1"], "unexpected argument"),
        (&["configure", "q", "--dead-max", "many"], "invalid digit"),
        (&["configure", "q", "--max-leased", "few"], "invalid digit"),
        (&["configure", "q", "--on-expiry", "keep"], "possible values: dead, drop"),
        (&["configure", "q", "--lapse-backoff", "third"], "possible values: never, second, first"),
        (&["configure", "q", "--max-leased", "1", "--reset", "max_leased"], "choose one"),
        (&["take", "q", "--holder", ""], "1 to 128 bytes"),
        (&["take", "q", "--holder", &holder], "1 to 128 bytes"),
        (&["expire-lease", "q"], "required"),
        (&["expire-lease", "q", ID], "--takes"),
        (&["expire-lease", "q", "nonsense", "--takes", "1"], "not a message id"),
        (&["expire-lease", "q", ID, "--takes", "-1"], "unexpected argument"),
        (&["get", "q", ID, "--dead"], "cannot be used with"),
        (&["get", "q", "--dead"], "--key"),
        (&["revive", "q", ID, "--key", "k"], "cannot be used with"),
        (&["discard", "q", "--key", ""], "1 to 512 bytes"),
        (&["revive", "q"], "required"),
        (&["--server", "localhost:7411", "queues"], "http://host:port"),
        (&["--access-token", "two words", "queues"], "visible ASCII"),
        (&["--access-token-file", "/nowhere/token", "queues"], "/nowhere/token"),
        (&["--ca", "Cargo.toml", "queues"], "no certificate in PEM"),
        (&["--client-key", "k", "queues"], "--client-certificate"),
        (&["token", "new"], "--scope"),
        (&["token", "new", "--scope", "read:q"], "no scope"),
        (&["token", "digest"], "no token"),
        (&["serve", "--durability", "never"], "always"),
        (&["serve", "--max-body", "65MiB"], "at most 64MiB"),
        (&["serve", "--max-body", "1MB"], "no size"),
        (&["serve", "--segment", "1KiB"], "4KiB to 1GiB"),
        (&["serve", "--memory-limit", "1MiB"], "16MiB"),
        (&["serve", "--listen", "here"], "with a port"),
        (&["serve", "--max-batch", "0"], "from 1"),
        (&["config", "check", "--drain", "-1s"], "negative"),
        (&["nonsense"], "unrecognized"),
    ];
    let server = serve_in_memory(&[]);
    for (args, expected) in cases {
        let ran = server.dwell(args);
        assert_eq!(ran.code, 2, "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(expected), "{args:?} does not say '{expected}': {}", ran.stderr);
    }
    assert_eq!(server.dwell(&["queues"]).ok().stdout, "", "nothing has changed");
}

/// Refusals of the server.
#[test]
fn a_refusal_has_its_code_and_changes_nothing() {
    let server = serve_in_memory(&["--max-body", "1KiB", "--max-batch", "16"]);
    server.dwell(&["put", "full", "x", "--delay", "1h"]).ok();
    server.dwell(&["configure", "full", "--max-pending", "1"]).ok();
    let body = "x".repeat(1025);
    let reason = "x".repeat(4097);
    let id = server.dwell(&["put", "q", "held"]).ok().json()["id"].as_str().unwrap().to_owned();
    let receipt = server.dwell(&["take", "q"]).ok().json()["receipt"].as_str().unwrap().to_owned();
    let cases: &[(&[&str], i32, &str)] = &[
        (&["stats", "nope"], 3, "unknown_queue"),
        (&["list", "nope"], 3, "unknown_queue"),
        (&["settings", "nope"], 3, "unknown_queue"),
        (&["get", "nope", &id], 3, "unknown_queue"),
        (&["get", "q", "--key", "nope"], 3, "message_not_found"),
        (&["cancel", "q", "--key", "nope"], 3, "message_not_found"),
        (&["cancel", "q", &id], 1, "leased"),
        (&["reschedule", "q", &id, "--delay", "1s"], 1, "leased"),
        (&["put", "q", &body], 1, "body_too_large"),
        (&["put", "full", "x"], 1, "queue_full"),
        (&["put", "q", "x", "--level", "1"], 1, "unknown_level"),
        (&["put", "q", "x", "--delay", "9999999d"], 1, "due_out_of_range"),
        (
            &["put", "q", "x", "--due", "2999-01-01T00:00:00Z", "--expires", "2998-01-01T00:00:00Z"],
            1,
            "expires_before_due",
        ),
        (&["bury", &receipt, "--reason", &reason], 1, "error_text_too_long"),
        (&["configure", "q", "--partitions", "2"], 1, "setting_fixed"),
        (&["configure", "q", "--backoff-factor-percent", "50"], 1, "invalid_setting"),
        (&["configure", "q", "--lease", "1s", "--dead-ttl", "0s"], 1, "invalid_setting"),
        (&["configure", "q", "--lease", "1s", "--dead-max", "9007199254740992"], 1, "invalid_setting"),
        (&["configure", "q", "--lease", "1s", "--max-leased", "0"], 1, "invalid_setting"),
        (&["expire-lease", "q", &id, "--takes", "2"], 1, "lease_changed"),
        (&["expire-lease", "q", &id, "--takes", "0"], 1, "lease_changed"),
        (&["expire-lease", "q", ID, "--takes", "1"], 3, "message_not_found"),
        (&["expire-lease", "nope", &id, "--takes", "1"], 3, "message_not_found"),
        (&["get", "q", "--key", "nope", "--dead"], 3, "message_not_found"),
        (&["revive", "q", "--key", "nope"], 3, "message_not_found"),
        (&["discard", "q", "--key", "nope"], 3, "message_not_found"),
    ];
    let before = server.dwell(&["queues"]).ok().stdout;
    for (args, code, name) in cases {
        let ran = server.dwell(args);
        assert_eq!(ran.failure(), *name, "{args:?}");
        assert_eq!(ran.code, *code, "{args:?}");
    }
    assert_eq!(server.dwell(&["queues"]).ok().stdout, before, "nothing has changed");
    server.dwell(&["ack", &receipt]).ok();
}

#[test]
fn no_server_is_exit_code_4() {
    // A port that was free a moment ago.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    for args in [
        &["queues"] as &[&str],
        &["put", "q", "x"],
        &["take", "q"],
        &["put", "--from", "-", "--retry-for", "0s", "q"],
    ] {
        let mut command = dwell();
        command.args(["--server", &url]).args(args);
        let ran = common::run_with(command, b"{\"body\":\"x\"}\n");
        assert_eq!((ran.code, ran.failure().as_str()), (4, "unreachable"), "{args:?}");
        assert!(ran.stderr.contains("dwell serve"), "{}", ran.stderr);
    }
}

/// An answer that never arrives, since the server ends during the request.
#[test]
fn a_lost_answer_is_exit_code_5() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = std::io::Read::read(&mut stream, &mut [0; 1024]);
    });
    let mut command = dwell();
    command.args(["--server", &url, "cancel", "q", "--key", "k"]);
    let ran = run(command);
    assert_eq!((ran.code, ran.failure().as_str()), (5, "outcome_unknown"));
}

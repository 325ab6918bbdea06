//! `dwell bench` against real servers: its counts, and that it leaves nothing behind.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod common;

use std::fs;
use std::process::{Child, Command, Stdio};

use common::{KilledOnDrop, Ran, Server, dwell, run, send_signal, serve_in_memory, until};
use serde_json::{Value, json};

/// `dwell bench ARGS` against the server.
fn bench(server: &Server, args: &[&str]) -> Command {
    let mut command = dwell();
    command.env("DWELL_SERVER", server.url()).arg("bench").args(args);
    command
}

fn with_beanstalkd() -> (Server, String) {
    let server = serve_in_memory(&["--beanstalkd", "127.0.0.1:0"]);
    let address = server.serving["beanstalkd"].as_str().unwrap().to_owned();
    (server, address)
}

/// The queues, with the number of messages in each.
fn queues(server: &Server) -> Vec<Value> {
    server.dwell(&["queues"]).lines()
}

fn assert_all_came(found: &Value, messages: u64) {
    for row in ["put", "take", "ack"] {
        assert_eq!(found[row]["messages"], messages, "{row}: {found}");
        assert!(found[row]["per_s"].as_f64().unwrap() > 0.0, "{found}");
        let us = |name: &str| found[row][name].as_u64().unwrap();
        assert!(us("p50_us") <= us("p99_us") && us("p99_us") <= us("max_us"), "{found}");
    }
    assert_eq!((&found["interrupted"], &found["refused"]), (&json!(false), &json!({})), "{found}");
    assert_eq!((&found["removed"], &found["left"]), (&json!(0), &json!(0)), "{found}");
}

#[test]
fn all_that_is_put_over_http_comes_and_nothing_is_left() {
    let server = serve_in_memory(&[]);
    server.dwell(&["put", "mine", "x"]).ok();
    let args = ["--messages", "500", "--batch", "40", "--connections", "2", "--delay", "50ms"];
    let found = run(bench(&server, &args)).ok().json();
    assert_all_came(&found, 500);
    assert_eq!((&found["protocol"], &found["delay_ms"]), (&json!("http"), &json!(50)));
    let left = queues(&server);
    assert!(left.len() == 1 && left[0]["queue"] == "mine" && left[0]["counts"]["ready"] == 1, "{left:?}");
}

#[test]
fn all_that_is_put_over_beanstalkd_s_protocol_comes_and_nothing_is_left() {
    let (server, address) = with_beanstalkd();
    let args = ["--beanstalkd", &address, "--messages", "500", "--batch", "40", "--delay", "1s", "--human"];
    let said = run(bench(&server, &args)).ok().stdout;
    let row =
        |name: &str| said.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{said}"));
    for name in ["put", "take", "ack"] {
        assert_eq!(row(name).split_whitespace().nth(1), Some("500"), "{said}");
    }
    assert_eq!(queues(&server), Vec::<Value>::new());
}

#[test]
fn what_was_only_put_is_removed() {
    let (server, address) = with_beanstalkd();
    for over in [&[] as &[&str], &["--beanstalkd", &address]] {
        // Due at once, and far in the future.
        for delay in ["0s", "1h"] {
            let args = [&["--put-only", "--messages", "700", "--delay", delay], over].concat();
            let found = run(bench(&server, &args)).ok().json();
            assert_eq!((&found["put"]["messages"], &found["removed"]), (&json!(700), &json!(700)), "{found}");
            assert!(found.get("take").is_none() && found["left"] == 0, "{found}");
            assert_eq!(queues(&server), Vec::<Value>::new(), "{args:?}");
        }
    }
}

#[test]
fn a_rate_is_kept_to_and_time_ends_it() {
    let server = serve_in_memory(&[]);
    let args = ["--for", "1s", "--rate", "100", "--batch", "5", "--connections", "2"];
    let found = run(bench(&server, &args)).ok().json();
    let put = found["put"]["messages"].as_u64().unwrap();
    // Each connection begins with a call: no more than these and the rate.
    assert!((10..=110).contains(&put), "{found}");
}

/// An interruption, as Ctrl-C sends it.
fn interrupt(child: &Child) {
    send_signal(child.id(), "INT");
}

#[test]
fn an_interruption_leaves_nothing_either() {
    let (server, address) = with_beanstalkd();
    for over in [&[] as &[&str], &["--beanstalkd", &address]] {
        let args = [&["--for", "1h", "--delay", "1h", "--batch", "20"], over].concat();
        let mut command = bench(&server, &args);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut child = KilledOnDrop(child);
        until("something is put", || {
            queues(&server).iter().any(|queue| queue["counts"]["scheduled"].as_u64() > Some(0))
        });
        interrupt(&child.0);
        let stdout = child.0.stdout.take().unwrap();
        let found: Value = serde_json::from_reader(stdout).unwrap();
        assert!(child.0.wait().unwrap().success());
        assert_eq!((&found["interrupted"], &found["left"]), (&json!(true), &json!(0)), "{found}");
        assert!(found["removed"].as_u64().unwrap() > 0, "{found}");
        assert_eq!(queues(&server), Vec::<Value>::new(), "{args:?}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_put() {
    let (server, address) = with_beanstalkd();
    server.dwell(&["put", "mine", "x"]).ok();
    let cases: [(&[&str], i32, &str); 4] = [
        (&["--queue", "mine"], 2, "usage"),
        (&["--queue", "mine", "--beanstalkd", &address], 2, "usage"),
        (&["--beanstalkd", &address, "--delay", "1500ms"], 2, "usage"),
        (&["--beanstalkd", "127.0.0.1:1"], 4, "unreachable"),
    ];
    for (args, code, word) in cases {
        let ran = run(bench(&server, args));
        assert_eq!((ran.code, ran.failure().as_str()), (code, word), "{args:?}: {ran:?}");
    }
    let left = queues(&server);
    assert!(left.len() == 1 && left[0]["counts"]["ready"] == 1, "{left:?}");
    for args in
        [["--body", "15"], ["--batch", "0"], ["--connections", "0"], ["--messages", "0"], ["--for", "5"]]
    {
        assert_eq!(run(bench(&server, &args)).code, 2, "{args:?}");
    }
    let mut nowhere = dwell();
    nowhere.args(["bench", "--server", "http://127.0.0.1:1"]);
    assert_eq!(run(nowhere).failure(), "unreachable");
}

#[test]
fn it_shows_its_token_under_tls_and_needs_what_cleans_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let signed =
        rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    fs::write(path("cert.pem"), signed.cert.pem()).unwrap();
    fs::write(path("key.pem"), signed.signing_key.serialize_pem()).unwrap();
    let token = |name: &str, scopes: &[&str]| {
        let mut command = dwell();
        command.args(["token", "new", "--name", name]);
        for scope in scopes {
            command.args(["--scope", scope]);
        }
        let made = run(command).ok().json();
        let (secret, sha256) = (made["token"].as_str().unwrap().to_owned(), &made["sha256"]);
        (secret, format!("[[tokens]]\nname = \"{name}\"\nsha256 = {sha256}\nscopes = {}\n", made["scopes"]))
    };
    let (whole, whole_table) = token("whole", &["put:load-*", "take:load-*", "manage:load-*"]);
    let (half, half_table) = token("half", &["put:load-*", "take:load-*"]);
    let tls = "[tls]\ncertificate = \"cert.pem\"\nkey = \"key.pem\"\n";
    fs::write(path("dwell.toml"), [tls, &whole_table, &half_table].concat()).unwrap();
    let mut serve = dwell();
    serve.args(["serve", "--store", "memory", "--listen", "127.0.0.1:0", "--config"]).arg(path("dwell.toml"));
    let server = Server::spawn(serve);
    let as_bearer = |token: &str, args: &[&str]| -> Ran {
        let mut command = bench(&server, args);
        command.env("DWELL_CA", path("cert.pem")).env("DWELL_TOKEN", token);
        run(command)
    };
    let args = ["--queue", "load-1", "--messages", "50", "--batch", "10"];
    assert_all_came(&as_bearer(&whole, &args).ok().json(), 50);
    let refused = as_bearer(&half, &args);
    assert_eq!((refused.code, refused.failure().as_str()), (1, "forbidden"), "{refused:?}");
    assert_eq!(as_bearer("wrong", &args).failure(), "token_unknown");
    assert_eq!(as_bearer(&whole, &["--queue", "other", "--messages", "1"]).failure(), "forbidden");
}

//! `dwell config`, `dwell token`, and a server that reloads: through files, signals and exit codes.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use common::{PATIENCE, Ran, Server, dwell, run, run_with};
use serde_json::{Value, json};

/// A folder with a `dwell.toml`.
struct Folder(tempfile::TempDir);

impl Folder {
    fn with(text: &str) -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        folder.write("dwell.toml", text);
        folder
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// `dwell ARGS --config dwell.toml`.
    fn dwell(&self, args: &[&str]) -> Ran {
        let mut command = dwell();
        command.args(args).arg("--config").arg(self.path("dwell.toml"));
        run(command)
    }

    /// A server in memory, on a free port.
    fn serve(&self) -> Server {
        let mut command = dwell();
        command.args(["serve", "--store", "memory", "--listen", "127.0.0.1:0", "--config"]);
        command.arg(self.path("dwell.toml"));
        Server::spawn(command)
    }
}

/// A new token, and its table for a `dwell.toml`.
fn token(name: &str, scopes: &[&str]) -> (String, String) {
    let mut command = dwell();
    command.args(["token", "new", "--name", name]);
    for scope in scopes {
        command.args(["--scope", scope]);
    }
    let made = run(command).ok().json();
    let text = |field: &str| made[field].as_str().unwrap().to_owned();
    let table = format!(
        "[[tokens]]\nname = \"{name}\"\nsha256 = \"{}\"\nscopes = {}\n",
        text("sha256"),
        made["scopes"]
    );
    (text("token"), table)
}

/// `dwell ARGS` as the bearer of `token`.
fn as_bearer(server: &Server, token: &str, args: &[&str]) -> Ran {
    let mut command = dwell();
    command.env("DWELL_SERVER", server.url()).env("DWELL_TOKEN", token).args(args);
    run(command)
}

#[test]
fn a_mistake_is_told_with_its_place_and_nothing_starts() {
    let folder = Folder::with("[http]\nlisen = \"127.0.0.1:0\"\n[store]\nsegment = 5\n");
    for args in [&["config", "check"] as &[&str], &["config", "show"], &["serve"]] {
        let ran = folder.dwell(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (6, ""), "{ran:?}");
        let told: Vec<Value> = ran.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let codes: Vec<&str> = told.iter().map(|line| line["error"]["code"].as_str().unwrap()).collect();
        assert_eq!(codes, ["config_unknown_key", "config_invalid_value"]);
        let first = told[0]["error"]["detail"].as_str().unwrap();
        assert!(first.contains("dwell.toml:2:1: ") && first.contains("did you mean 'listen'?"), "{first}");
    }
    assert!(!folder.path("dwell-data").exists() && !Path::new("dwell-data").exists());
}

#[test]
fn a_file_that_is_not_there_is_told() {
    let mut command = dwell();
    command.args(["config", "check"]).env("DWELL_CONFIG", "/nowhere/dwell.toml");
    let ran = run(command);
    assert_eq!((ran.code, ran.failure().as_str()), (6, "config_unreadable"));
}

#[test]
fn values_are_shown_with_where_they_are_from_and_without_secrets() {
    let (secret, table) = token("a", &["put:orders*"]);
    let folder = Folder::with(&format!("[http]\nmax_wait = \"5s\"\n{table}"));
    let rows = folder.dwell(&["config", "show", "--max-batch", "7"]).ok().lines();
    let row =
        |key: &str| rows.iter().find(|row| row["key"] == key).unwrap_or_else(|| panic!("{key}: {rows:?}"));
    assert!(row("http.max_wait")["origin"].as_str().unwrap().ends_with("dwell.toml:2:12"));
    assert_eq!(row("limits.batch"), &json!({"key": "limits.batch", "value": 7, "origin": "--max-batch"}));
    assert_eq!(row("beanstalkd.listen")["origin"], "DWELL_BEANSTALKD");
    assert_eq!(row("store.data"), &json!({"key": "store.data", "value": "dwell-data", "origin": "default"}));
    let human = folder.dwell(&["config", "show", "--human"]).ok().stdout;
    assert!(human.contains("[http]") && human.contains("max_wait = \"5s\""), "{human}");
    let digest = table.split('"').nth(3).unwrap();
    assert!(!human.contains(&secret) && !human.contains(digest), "{human}");
}

#[test]
fn a_token_has_its_digest() {
    let (secret, table) = token("a", &["metrics"]);
    assert!(secret.starts_with("dwell_") && secret.len() == 70, "{secret}");
    assert_ne!(secret, token("a", &["metrics"]).0);
    let mut command = dwell();
    command.args(["token", "digest"]);
    let digest = run_with(command, format!("{secret}\n").as_bytes()).ok().json();
    assert!(table.contains(digest["sha256"].as_str().unwrap()), "{table}");
}

#[test]
fn a_server_asks_for_tokens_from_wherever_they_are() {
    let (secret, table) = token("a", &["put:orders", "manage:*"]);
    let folder = Folder::with(&table);
    let server = folder.serve();
    assert_eq!(server.dwell(&["put", "orders", "x"]).failure(), "token_required");
    assert_eq!(as_bearer(&server, "wrong", &["put", "orders", "x"]).failure(), "token_unknown");
    assert_eq!(as_bearer(&server, &secret, &["put", "mails", "x"]).failure(), "forbidden");
    as_bearer(&server, &secret, &["put", "orders", "x"]).ok();
    server.dwell(&["put", "orders", "x", "--access-token", &secret]).ok();
    folder.write("token", &format!("{secret}\n"));
    server.dwell(&["--access-token-file", folder.path("token").to_str().unwrap(), "put", "orders", "x"]).ok();
    let stats = as_bearer(&server, &secret, &["stats", "orders"]).ok().json();
    assert_eq!(stats["counts"]["ready"], 3);
    let said = server.serving.to_string();
    assert!(!said.contains(&secret), "{said}");
}

#[test]
fn a_hangup_reloads_and_a_mistake_changes_nothing() {
    let ((old, old_table), (new, new_table)) =
        (token("old", &["put:*"]), token("new", &["put:*", "manage:*"]));
    let folder = Folder::with(&format!("{old_table}[queues.orders]\nlease = \"1m\"\n"));
    let server = folder.serve();
    as_bearer(&server, &old, &["put", "orders", "x"]).ok();

    folder.write("dwell.toml", &format!("[limits]\nbatch = 5\n[queues.orders]\nlease = \"2m\"\n{new_table}"));
    server.signal("HUP");
    assert_eq!(
        server.next(),
        json!({
            "event": "reloaded", "queues_changed": 1, "sinks_changed": 0, "schedules_changed": 0,
            "needs_restart": ["limits.batch"],
        })
    );
    assert_eq!(as_bearer(&server, &old, &["put", "orders", "x"]).failure(), "token_unknown");
    let settings = as_bearer(&server, &new, &["settings", "orders"]).ok().json();
    assert_eq!(
        settings["settings"]["lease"].as_str().or(settings["lease"].as_str()),
        Some("2m"),
        "{settings}"
    );

    // An error that only the store can find. What was set at run time stays, also in the queues before it.
    as_bearer(&server, &new, &["configure", "a-mails", "--max-attempts", "3"]).ok();
    let refused = "[queues.a-mails]\nmax_attempts = 5\n[queues.orders]\npartitions = 4\n";
    folder.write("dwell.toml", &format!("{refused}{new_table}"));
    server.signal("HUP");
    let said = server.next();
    assert_eq!(
        (&said["event"], &said["errors"][0]["code"]),
        (&json!("reload_refused"), &json!("setting_fixed"))
    );
    let settings = as_bearer(&server, &new, &["settings", "a-mails"]).ok().json();
    assert_eq!(settings["settings"]["max_attempts"], 3, "{settings}");

    for broken in ["[queues.orders]\nlease = 5\n", "[http", "[tls]\nkey = \"k.pem\"\n"] {
        folder.write("dwell.toml", broken);
        server.signal("HUP");
        let said = server.next();
        assert_eq!(said["event"], "reload_refused");
        assert!(said["errors"][0]["code"].as_str().unwrap().starts_with("config_"), "{said}");
        assert!(said["errors"][0]["detail"].as_str().unwrap().contains("dwell.toml:"), "{said}");
        as_bearer(&server, &new, &["put", "orders", "x"]).ok();
    }
    let (stopped, status) = server.stop_by("TERM");
    assert!(status.success() && stopped["event"] == "stopped");
}

/// Where the server listens, and whether it uses TLS, stays as at the start: the new file's values for them protect
/// nothing.
#[test]
fn a_reload_that_would_open_the_listener_to_everybody_is_refused() {
    let (secret, table) = token("secret", &["put:*"]);
    let folder = Folder::with(&format!("[http]\nlisten = \"0.0.0.0:0\"\n{table}"));
    let signed =
        rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    folder.write("cert.pem", &signed.cert.pem());
    folder.write("key.pem", &signed.signing_key.serialize_pem());
    let mut command = dwell();
    command.args(["serve", "--store", "memory", "--config"]).arg(folder.path("dwell.toml"));
    let server = Server::spawn(command);
    let port = server.url().rsplit_once(':').unwrap().1.to_owned();
    let put = |token: Option<&str>| {
        let mut command = dwell();
        command.env("DWELL_SERVER", format!("http://127.0.0.1:{port}"));
        if let Some(token) = token {
            command.env("DWELL_TOKEN", token);
        }
        command.args(["put", "q", "x"]);
        run(command)
    };
    for opens in [
        "[http]\nlisten = \"127.0.0.1:0\"\n",
        "[http]\nlisten = \"0.0.0.0:0\"\n[tls]\ncertificate = \"cert.pem\"\nkey = \"key.pem\"\n\
         client_ca = \"cert.pem\"\n",
    ] {
        folder.write("dwell.toml", opens);
        server.signal("HUP");
        let said = server.next();
        assert_eq!(
            (&said["event"], &said["errors"][0]["code"]),
            (&json!("reload_refused"), &json!("listener_exposed")),
            "{said}"
        );
        assert_eq!(put(None).failure(), "token_required");
        put(Some(&secret)).ok();
    }
    // Like the address, `insecure` takes effect at a start: until the next one, it does not count.
    folder.write("dwell.toml", "[http]\nlisten = \"0.0.0.0:0\"\ninsecure = true\n");
    server.signal("HUP");
    let said = server.next();
    assert_eq!(said["errors"][0]["code"], "listener_exposed", "{said}");
    assert_eq!(put(None).failure(), "token_required");
    folder.write("dwell.toml", &format!("[http]\nlisten = \"0.0.0.0:0\"\ninsecure = true\n{table}"));
    server.signal("HUP");
    assert_eq!(server.next()["needs_restart"], json!(["http.insecure"]));
    server.stop_by("TERM");
}

/// The other way round: what was set at the start stays in force, and tokens may be removed at a reload.
#[test]
fn a_server_that_was_started_for_everybody_may_drop_its_tokens() {
    let (_, table) = token("secret", &["put:*"]);
    let folder = Folder::with(&format!("[http]\nlisten = \"0.0.0.0:0\"\ninsecure = true\n{table}"));
    let mut command = dwell();
    command.args(["serve", "--store", "memory", "--config"]).arg(folder.path("dwell.toml"));
    let server = Server::spawn(command);
    let port = server.url().rsplit_once(':').unwrap().1.to_owned();
    let put = || {
        let mut command = dwell();
        command.env("DWELL_SERVER", format!("http://127.0.0.1:{port}")).args(["put", "q", "x"]);
        run(command)
    };
    assert_eq!(put().failure(), "token_required");
    folder.write("dwell.toml", "[http]\nlisten = \"0.0.0.0:0\"\ninsecure = true\n");
    server.signal("HUP");
    assert_eq!(server.next()["event"], "reloaded");
    put().ok();
    server.stop_by("TERM");
}

/// The store does not answer, so it is being opened for as long as the test needs.
#[test]
fn a_hangup_while_the_store_opens_does_not_end_the_server() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = dwell();
    command.args(["serve", "--listen", "127.0.0.1:0", "--beanstalkd", "off", "--store"]);
    command.arg(format!("redis://{}", silent.local_addr().unwrap()));
    let mut serving =
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
    let (asking, _) = silent.accept().unwrap();
    let pid = rustix::process::Pid::from_child(&serving);
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    drop((asking, silent));
    // It ends by itself, because there is no store; a signal would leave no exit code.
    let status = serving.wait().unwrap();
    assert_eq!(status.code(), Some(6), "{status:?}");
}

#[test]
fn tls_is_spoken_to_those_who_trust_the_certificate() {
    let folder = Folder::with("[tls]\ncertificate = \"cert.pem\"\nkey = \"key.pem\"\n");
    let make = || {
        let signed =
            rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        folder.write("cert.pem", &signed.cert.pem());
        folder.write("key.pem", &signed.signing_key.serialize_pem());
    };
    make();
    fs::copy(folder.path("cert.pem"), folder.path("first.pem")).unwrap();
    let server = folder.serve();
    assert!(server.url().starts_with("https://"), "{}", server.url());
    let trusting = |file: &str, args: &[&str]| {
        let mut command = dwell();
        command.env("DWELL_SERVER", server.url()).env("DWELL_CA", folder.path(file)).args(args);
        run(command)
    };
    trusting("cert.pem", &["put", "q", "x"]).ok();
    let ran = server.dwell(&["put", "q", "x"]);
    assert_eq!((ran.code, ran.failure().as_str()), (4, "unreachable"), "nothing was sent: {ran:?}");

    // A rotation: the client that trusts the old certificate alone is refused, the other is accepted.
    make();
    server.signal("HUP");
    assert_eq!(server.next()["event"], "reloaded");
    trusting("cert.pem", &["put", "q", "x"]).ok();
    assert_eq!(trusting("first.pem", &["put", "q", "x"]).code, 4);

    // A pair that does not match is refused, and the present one stays.
    folder.write("key.pem", &rcgen::KeyPair::generate().unwrap().serialize_pem());
    server.signal("HUP");
    let said = server.next();
    assert_eq!(
        (&said["event"], &said["errors"][0]["code"]),
        (&json!("reload_refused"), &json!("tls_invalid"))
    );
    trusting("cert.pem", &["put", "q", "x"]).ok();
    assert_eq!(server.stop_by("TERM").0["cut_off"], 0);
}

#[test]
fn what_is_shown_to_systemd() {
    let folder = Folder::with("");
    let socket = std::os::unix::net::UnixDatagram::bind(folder.path("notify")).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let told = || {
        let mut bytes = [0; 200];
        let len = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    };
    let mut command = dwell();
    command.args(["serve", "--store", "memory", "--listen", "127.0.0.1:0"]);
    command.env("NOTIFY_SOCKET", folder.path("notify"));
    let server = Server::spawn(command);
    assert!(told().starts_with("READY=1"));
    server.signal("HUP");
    assert!(told().contains("reloading") && told().starts_with("READY=1"));
    server.signal("TERM");
    assert!(told().starts_with("STOPPING=1"));
    let (said, status) = server.end();
    assert!(said.len() == 2 && status.success(), "{said:?}");
}

#[test]
fn manual_pages_have_every_command() {
    let mut page = dwell();
    page.arg("man");
    let page = run(page).ok().stdout;
    assert!(page.starts_with(".ie") && page.contains("serve") && page.contains("config"), "{page}");
    let folder = tempfile::tempdir().unwrap();
    let mut pages = dwell();
    pages.args(["man", "--dir"]).arg(folder.path());
    run(pages).ok();
    for name in ["dwell.1", "dwell-serve.1", "dwell-config-check.1", "dwell-token-new.1"] {
        let text =
            fs::read_to_string(folder.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(text.contains(".TH"), "{name}");
    }
}

/// The option of `serve` that is not a key: the path of the file.
const NO_KEY: &str = "--config";

#[test]
fn every_option_of_serve_is_a_key_and_every_key_s_option_is_one_of_serve() {
    let mut help = dwell();
    help.args(["serve", "--help"]);
    let help = run(help).ok().stdout;
    let own = help.split("Common options:").next().unwrap();
    let options: BTreeSet<&str> = own
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("--").map(|_| line.trim_start()))
        .map(|line| line.split([' ', '=']).next().unwrap())
        .collect();
    let keys: BTreeSet<&str> = dwell_server::config_keys().filter_map(|(_, _, flag)| flag).collect();
    let wanted: BTreeSet<&str> = keys.iter().copied().chain([NO_KEY]).collect();
    assert_eq!(options, wanted, "{own}");

    // Each of them has a help text.
    for (path, _, flag) in dwell_server::config_keys() {
        let Some(flag) = flag else { continue };
        let value = match path {
            "store.url" => "memory",
            "store.durability" => "os",
            "http.listen" | "beanstalkd.listen" => "127.0.0.1:0",
            "shutdown.drain" => "7s",
            "log.level" => "warn",
            "log.format" => "json",
            _ if path.starts_with("limits.") || path == "store.segment" => "65536",
            "store.memory_limit" => "67108864",
            "http.insecure" | "beanstalkd.insecure" => "",
            // Incomplete pairs are refused by themselves.
            "tls.certificate" | "tls.key" | "redisson.url" | "redisson.queues" => continue,
            "redisson.java" => "new",
            _ => "x.example",
        };
        let mut show = dwell();
        show.env_remove("DWELL_BEANSTALKD").args(["config", "show", flag]);
        if !value.is_empty() {
            show.arg(value);
        }
        let rows = run(show).ok().lines();
        let row = rows.iter().find(|row| row["key"] == path).unwrap_or_else(|| panic!("{path}: {rows:?}"));
        assert_eq!(row["origin"], flag, "{path}");
    }
}

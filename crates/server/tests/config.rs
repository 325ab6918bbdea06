//! Configuration parsing: errors with code, line and remedy; precedence; display.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::path::Path;
use std::sync::Arc;

use dwell_model::{Limits, SettingName};
use dwell_server::{
    ConfigError, ConfigValue, Durability, Layers, Loaded, Origin, StoreKind, apply_queues, config_keys,
};
use dwell_store::{MemoryStore, Store};
use dwell_time::SystemClock;

const DIGEST: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

/// Loads `text` as a file.
fn load(text: &str) -> Result<Loaded, Vec<ConfigError>> {
    load_over(text, &[], &[])
}

fn load_over(
    text: &str,
    environment: &[(&str, &str)],
    flags: &[(&'static str, &str)],
) -> Result<Loaded, Vec<ConfigError>> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("dwell.toml");
    std::fs::write(&file, text).unwrap();
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let flags = flags.iter().map(|(path, text)| (*path, vec![(*text).to_owned()])).collect();
    Loaded::load(&Layers { file: Some(file), environment: environment.iter().map(owned).collect(), flags })
}

/// The errors in `text`: code, line, and message.
fn refused(text: &str) -> Vec<(&'static str, usize, String)> {
    let errors = load(text).expect_err(text);
    errors
        .into_iter()
        .map(|error| {
            let line = match &error.origin {
                Origin::File { line, .. } => *line,
                _ => 0,
            };
            assert!(line == 0 || error.to_string().contains(&format!("dwell.toml:{line}:")), "{error}");
            (error.kind.code(), line, error.detail)
        })
        .collect()
}

#[test]
fn every_mistake_has_its_code_its_line_and_a_way_out() {
    let token = |rest: &str| format!("\n[[tokens]]\nname = \"a\"\nsha256 = \"{DIGEST}\"\n{rest}");
    let cases: &[(&str, &str, usize, &str)] = &[
        // Not TOML.
        ("[http", "config_malformed", 1, "no TOML"),
        ("a = ", "config_malformed", 1, "no TOML"),
        ("[http]\nlisten = \"x\nhosts = []", "config_malformed", 2, "no TOML"),
        (
            "[http]\nlisten = \"127.0.0.1:0\"\nlisten = \"127.0.0.1:1\"",
            "config_malformed",
            3,
            "duplicate key",
        ),
        // Unknown keys.
        ("[htp]\nlisten = \"127.0.0.1:0\"", "config_unknown_key", 1, "did you mean 'http'?"),
        ("[http]\n\nlisen = \"127.0.0.1:0\"", "config_unknown_key", 3, "did you mean 'listen'?"),
        ("listen = \"127.0.0.1:0\"", "config_unknown_key", 1, "in the table [http]"),
        ("[http]\nxyzzy = 1", "config_unknown_key", 2, "there is no key 'xyzzy' in [http]"),
        ("[queues.orders]\nlaese = \"1s\"", "config_unknown_key", 2, "did you mean 'lease'?"),
        ("[queues.a.b]\nlease = \"1s\"", "config_unknown_key", 1, "[queues.\"a.b\"]"),
        ("[defaults]\nlease_ms = 5", "config_unknown_key", 2, "did you mean 'lease'?"),
        ("[[tokens]]\ntoken = \"dwell_secret\"", "config_unknown_key", 2, "dwell token new"),
        ("[[tokens]]\nscope = []", "config_unknown_key", 2, "did you mean 'scopes'?"),
        // Wrong types.
        ("http = 5", "config_wrong_type", 1, "http is a table; this is integer"),
        ("[http]\nlisten = 7411", "config_wrong_type", 2, "text in quotes"),
        ("[http]\nmax_connections = \"many\"", "config_wrong_type", 2, "without quotes"),
        ("[http]\nhosts = \"dwell.example\"", "config_wrong_type", 2, "an array of texts"),
        ("[http]\nhosts = [\"a\", 5]", "config_wrong_type", 2, "text in quotes"),
        ("[http]\ninsecure = \"yes\"", "config_wrong_type", 2, "true or false"),
        ("[limits]\nbody = 1.5", "config_wrong_type", 2, "1MiB"),
        ("[http]\nmax_wait = 30", "config_wrong_type", 2, "text in quotes"),
        ("tokens = 5", "config_wrong_type", 1, "[[tokens]]"),
        ("[tokens]\nname = \"a\"", "config_wrong_type", 1, "[[tokens]]"),
        ("queues = []", "config_wrong_type", 1, "[queues.NAME]"),
        ("[queues]\norders = 5", "config_wrong_type", 2, "a table of settings"),
        ("defaults = 5", "config_wrong_type", 1, "a table"),
        // Invalid values.
        ("[store]\nurl = \"user:hush@h\"", "config_invalid_value", 2, "\"engine\""),
        ("[store]\nurl = \"redis://u:hush@h/x\"", "config_invalid_value", 2, "a database is a number"),
        ("[redisson]\nurl = \"redis://u:hush\"", "config_invalid_value", 2, "no port"),
        ("[store]\ndurability = \"never\"", "config_invalid_value", 2, "always"),
        ("[store]\nsegment = \"1KiB\"", "config_invalid_value", 2, "4KiB to 1GiB"),
        ("[store]\nmemory_limit = \"1MiB\"", "config_invalid_value", 2, "16MiB"),
        ("[store]\nmemory_limit = \"none\"", "config_invalid_value", 2, "KiB"),
        ("[store]\ndata = \"\"", "config_invalid_value", 2, "a path"),
        ("[limits]\nbody = \"65MiB\"", "config_invalid_value", 2, "at most 64MiB"),
        ("[limits]\nbody = -1", "config_invalid_value", 2, "size"),
        ("[limits]\nbatch = 0", "config_invalid_value", 2, "from 1"),
        ("[limits]\nqueues = 99999999999999999999", "config_invalid_value", 2, "from 1"),
        ("[http]\nlisten = \"localhost\"", "config_invalid_value", 2, "with a port"),
        ("[http]\nhosts = [\"http://dwell.example\"]", "config_invalid_value", 2, "names such as"),
        ("[http]\nmax_wait = \"30\"", "config_invalid_value", 2, "duration"),
        ("[http]\nbody_timeout = \"0s\"", "config_invalid_value", 2, "at least 1ms"),
        ("[http]\nwrite_timeout = \"9999d\"", "config_invalid_value", 2, "at most 365d"),
        ("[beanstalkd]\nlisten = \"on\"", "config_invalid_value", 2, "\"off\""),
        ("[shutdown]\ndrain = \"-1s\"", "config_invalid_value", 2, "negative"),
        ("[queues.\"a b\"]\nlease = \"1s\"", "config_invalid_value", 1, "cannot name a queue"),
        ("[queues.a]\nlease = 5", "config_invalid_value", 2, "expected a string"),
        ("[queues.a]\npause = \"10000-01-01T00:00:00Z\"", "config_invalid_value", 2, "1970"),
        ("[queues.a]\npause = \"tomorrow\"", "config_invalid_value", 2, "instant"),
        ("[limits]\nbodies = 0", "config_invalid_value", 2, "1 byte"),
        ("[log]\nlevel = \"loud\"", "config_invalid_value", 2, "\"debug\""),
        ("[log]\nformat = \"xml\"", "config_invalid_value", 2, "\"json\""),
        ("[log]\nlevel = 5", "config_wrong_type", 2, "text in quotes"),
        ("[queues.a]\nlease = \"0s\"", "config_invalid_value", 2, "a lease lasts"),
        ("[queues.a]\nlevels = [\"5\"]", "config_invalid_value", 2, "duration"),
        ("[queues.a]\nbackoff = { bse = \"1s\" }", "config_invalid_value", 2, "unknown field"),
        ("[queues.a]\nmax_pending = 1.5", "config_invalid_value", 2, "whole number"),
        ("[defaults]\npartitions = 0", "config_invalid_value", 2, "spreads over"),
        ("[queues.a]\ndead_ttl = \"0s\"", "config_invalid_value", 2, "1,000 years"),
        ("[queues.a]\ndead_max = 9007199254740992", "config_invalid_value", 2, "9007199254740991"),
        ("[queues.a]\nmax_leased = 0", "config_invalid_value", 2, "pause"),
        ("[defaults]\non_expiry = \"gone\"", "config_invalid_value", 2, "drop"),
        ("[defaults]\nlapse_backoff = \"third\"", "config_invalid_value", 2, "second"),
        (&token("scopes = [\"read:a\"]"), "config_invalid_value", 5, "put:QUEUE"),
        ("[[tokens]]\nsha256 = \"dwell_hush\"", "config_invalid_value", 2, "64 hexadecimal digits"),
        ("[[tokens]]\nname = \"\"", "config_invalid_value", 2, "1 to 100 bytes"),
        // Incomplete pairs.
        ("[redisson]\nqueues = [\"orders\"]", "config_incomplete", 2, "redisson.url"),
        ("[tls]\ncertificate = \"c.pem\"", "config_incomplete", 2, "tls.key"),
        ("[tls]\nkey = \"k.pem\"", "config_incomplete", 2, "tls.certificate"),
        ("[tls]\nclient_ca = \"ca.pem\"", "config_incomplete", 2, "tls.certificate"),
        (&token(""), "config_incomplete", 2, "scopes"),
        (&token("scopes = []"), "config_incomplete", 2, "scopes"),
        ("[[tokens]]\nname = \"a\"\nscopes = [\"metrics\"]", "config_incomplete", 1, "dwell token new"),
        ("[[tokens]]\n", "config_incomplete", 1, "a 'name'"),
        // Contradictions.
        (
            "[http]\nlisten = \"127.0.0.1:5\"\n[beanstalkd]\nlisten = \"127.0.0.1:5\"",
            "config_conflict",
            4,
            "another port",
        ),
        // Exposed listeners.
        ("[http]\nlisten = \"0.0.0.0:7411\"", "listener_exposed", 2, "[[tokens]]"),
        ("[http]\nlisten = \"[::]:7411\"", "listener_exposed", 2, "http.insecure"),
        ("[beanstalkd]\nlisten = \"0.0.0.0:1\"", "listener_exposed", 2, "beanstalkd.insecure"),
        // Files.
        ("[tls]\ncertificate = \"c.pem\"\nkey = \"k.pem\"", "tls_unreadable", 2, "c.pem"),
        ("[tls]\ncertificate = \"dwell.toml\"\nkey = \"k.pem\"", "tls_invalid", 2, "-----BEGIN"),
    ];
    for (text, code, line, words) in cases {
        let found = refused(text);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        let (found_code, found_line, detail) = &found[0];
        assert_eq!((found_code, found_line), (code, line), "{text}: {detail}");
        assert!(detail.contains(words), "{text}: {detail} does not say '{words}'");
        assert!(
            !detail.contains("hush") && !detail.contains("dwell_secret"),
            "{text}: a secret is repeated: {detail}"
        );
    }
}

#[test]
fn two_tokens_are_two() {
    let two = |name: &str, digest: &str| {
        format!(
            "[[tokens]]\nname = \"a\"\nsha256 = \"{DIGEST}\"\nscopes = [\"metrics\"]\n\
             [[tokens]]\nname = \"{name}\"\nsha256 = \"{digest}\"\nscopes = [\"metrics\"]\n"
        )
    };
    let other = "0".repeat(64);
    assert_eq!(load(&two("b", &other)).unwrap().configuration.server.http.tokens.iter().count(), 2);
    for (text, words) in [(two("a", &other), "dwell.toml:1:"), (two("b", DIGEST), "same token as 'a'")] {
        let found = refused(&text);
        assert!(found.len() == 1 && found[0].0 == "config_conflict" && found[0].1 == 5, "{found:?}");
        assert!(found[0].2.contains(words), "{found:?}");
    }
}

#[test]
fn all_mistakes_are_told_at_once_in_the_order_of_their_lines() {
    let text = "[http]\nlisen = 1\nmax_wait = 5\n[store]\nsegment = \"1\"\n";
    let found: Vec<(&str, usize)> = refused(text).into_iter().map(|(code, line, _)| (code, line)).collect();
    assert_eq!(found, [("config_unknown_key", 2), ("config_wrong_type", 3), ("config_invalid_value", 5)]);
}

#[test]
fn what_keys_say_together_is_told_with_what_each_says_and_no_mistake_twice() {
    let text = "[http]\nmax_wait = 5\n[tls]\ncertificate = \"c.pem\"\n[beanstalkd]\nlisten = \"0.0.0.0:1\"\n\
                [[tokens]]\nname = \"a\"\nscopes = [\"x\", \"put:a\", \"y\"]\n";
    let found = refused(text);
    let kinds: Vec<(&str, usize)> = found.iter().map(|(code, line, _)| (*code, *line)).collect();
    assert_eq!(
        kinds,
        [
            ("config_wrong_type", 2),
            ("config_incomplete", 4),
            ("listener_exposed", 6),
            ("config_invalid_value", 9)
        ]
    );
    let said = &found[3].2;
    assert!(said.contains("'x'") && said.contains("'y'") && !said.contains("'put:a'"), "{said}");
    // The message is short for any number of them.
    let scopes = vec!["\"no scope\""; 1_000].join(", ");
    let said =
        &refused(&format!("[[tokens]]\nname = \"a\"\nsha256 = \"{DIGEST}\"\nscopes = [{scopes}]\n"))[0].2;
    assert!(said.len() < 1_000 && said.ends_with("; and 997 more"), "{said}");
    // Each of these is one error, though another key would look wrong with it.
    for text in [
        "[tls]\ncertificate = 5\nkey = \"k.pem\"\n",
        "[tls]\ncertificat = \"c.pem\"\nkey = \"k.pem\"\n",
        "[http]\nlisten = \"0.0.0.0:1\"\n[[tokens]]\nname = 5\n",
        "[http]\nlisten = \"0.0.0.0:1\"\n[[token]]\nname = \"a\"\n",
        "[http]\nlisten = \"0.0.0.0:1\"\ninsecure = 5\n",
        "[http]\nlisten = 5\n[beanstalkd]\nlisten = \"127.0.0.1:7411\"\n",
        "[redisson]\nurl = 5\nqueues = [\"q\"]\n",
        "[http\nlisten = 5\n",
    ] {
        assert_eq!(refused(text).len(), 1, "{text}: {:?}", refused(text));
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let at = |file: &Path| {
        let layers = Layers { file: Some(file.to_owned()), ..Layers::default() };
        let errors = Loaded::load(&layers).unwrap_err();
        assert!(errors.len() == 1 && errors[0].to_string().contains(file.to_str().unwrap()), "{errors:?}");
        errors[0].kind.code()
    };
    assert_eq!(at(&dir.path().join("nowhere.toml")), "config_unreadable");
    assert_eq!(at(dir.path()), "config_unreadable");
    let latin = dir.path().join("latin.toml");
    std::fs::write(&latin, b"[http]\n# \xe4\n").unwrap();
    assert_eq!(at(&latin), "config_malformed");
    let huge = dir.path().join("huge.toml");
    std::fs::File::create(&huge).unwrap().set_len(17 << 20).unwrap();
    assert_eq!(at(&huge), "config_unreadable");
}

#[test]
fn later_places_win_key_by_key_and_each_value_knows_its_own() {
    let text = "[http]\nlisten = \"127.0.0.1:1\"\nmax_wait = \"2s\"\nmax_connections = 3\n";
    let environment =
        [("DWELL_LISTEN", "127.0.0.1:2"), ("DWELL_HTTP_MAX_WAIT", "4s"), ("DWELL_DATA", ""), ("HOME", "/")];
    let loaded = load_over(text, &environment, &[("http.listen", "127.0.0.1:3")]).unwrap();
    let http = &loaded.configuration.server.http;
    assert_eq!((http.listen.port(), http.max_wait_ms, http.max_connections), (3, 4_000, 3));
    let origin = |key: &str| {
        loaded
            .shown
            .iter()
            .find(|shown| shown.key == key)
            .unwrap_or_else(|| panic!("{key}"))
            .origin
            .to_string()
    };
    assert_eq!(origin("http.listen"), "--listen");
    assert_eq!(origin("http.max_wait"), "DWELL_HTTP_MAX_WAIT");
    assert!(origin("http.max_connections").ends_with("dwell.toml:4:19"));
    assert_eq!((origin("http.body_timeout"), origin("store.data")), ("default".into(), "default".into()));
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
}

#[test]
fn a_mistake_in_the_environment_is_told_by_its_name() {
    let errors = load_over("", &[("DWELL_LISTEN", "here"), ("DWELL_MAX_BODY", "1MB")], &[]).unwrap_err();
    let said: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert!(said.len() == 2 && said.iter().any(|line| line.starts_with("DWELL_LISTEN: ")), "{said:?}");
    assert!(errors.iter().all(|error| error.kind.code() == "config_invalid_value"));
    // Unknown variables may be an orchestrator's.
    let loaded =
        load_over("", &[("DWELL_LISTN", "x"), ("DWELL_PORT_7411_TCP", "x"), ("DWELL_TOKEN", "x")], &[]);
    let warnings: Vec<String> = loaded.unwrap().warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("did you mean 'DWELL_LISTEN'?"), "{warnings:?}");
}

#[test]
fn all_that_is_said_arrives() {
    let text = format!(
        "[store]\nurl = \"memory\"\ndata = \"there\"\ndurability = \"interval:50ms\"\nsegment = 8192\n\
         [limits]\nbody = \"2MiB\"\nbatch = 7\nleased = 8\nqueues = 9\n\
         [http]\nlisten = \"0.0.0.0:80\"\nhosts = [\"dwell.example\"]\nbody_rate = 0\n\
         [beanstalkd]\nlisten = \"off\"\nidle_timeout = \"1h\"\n[shutdown]\ndrain = \"0s\"\n\
         [defaults]\nlease = \"7s\"\n[queues.orders]\nlease = \"1m\"\nbackoff = {{ cap = \"5s\" }}\n\
         [[tokens]]\nname = \"a\"\nsha256 = \"{DIGEST}\"\nscopes = [\"put:orders*\"]\n"
    );
    let loaded = load(&text).unwrap();
    let config = &loaded.configuration;
    assert_eq!(config.store.kind, StoreKind::Memory);
    assert!(
        config.store.data.is_absolute() && config.store.data.ends_with("there"),
        "from the file's folder"
    );
    assert_eq!(
        (config.store.durability, config.store.segment_bytes),
        (Durability::IntervalMs(50), Some(8_192))
    );
    let limits = &config.limits;
    assert_eq!((limits.body_len, limits.batch, limits.leased, limits.queues), (2 << 20, 7, 8, 9));
    assert_eq!((limits.defaults.lease_ms, config.server.drain_ms), (7_000, 0));
    assert!(config.server.beanstalkd.is_none() && config.server.http.body_rate == 0);
    assert_eq!(config.queues[0].settings.len(), 2);
    // A memory store does not use the other keys, tokens without TLS deserve a warning, and a digest is not a secret
    // but still private.
    assert_eq!(loaded.warnings.len(), 4, "{:?}", loaded.warnings);
    let shown: Vec<String> = loaded.shown.iter().map(|row| format!("{} = {}", row.key, row.value)).collect();
    let shown = shown.join("\n");
    assert!(shown.contains("tokens.\"a\".sha256 = \"ba7816bf…\"") && !shown.contains(DIGEST), "{shown}");
    assert!(shown.contains("queues.\"orders\".lease = \"1m\""), "{shown}");
}

#[test]
fn what_needs_a_restart_is_named() {
    let before = load("[limits]\nbatch = 5\n[queues.a]\nlease = \"1s\"\n").unwrap();
    let after =
        load("[limits]\nbatch = 6\n[http]\nhosts = [\"x\"]\nmax_wait = \"1s\"\n[defaults]\nlease = \"2s\"\n");
    let held_back = after.unwrap().held_back(&before);
    assert_eq!(held_back, ["defaults.lease", "http.max_wait", "limits.batch"]);
    assert!(before.held_back(&before).is_empty());
}

#[tokio::test]
async fn queues_are_as_the_file_says_and_otherwise_as_they_were_set() {
    let store = MemoryStore::new(Limits::default(), Arc::new(SystemClock::new()));
    let queues = |text: &str| load(text).unwrap().configuration.queues;
    let first = queues("[queues.a]\nlease = \"1m\"\nmax_pending = 5\n[queues.b]\nlease = \"2m\"\n");
    assert_eq!(apply_queues(&store, &[], &first).await.unwrap(), 2);
    assert_eq!(apply_queues(&store, &[], &first).await.unwrap(), 0, "nothing has to change");
    // At run time, a setting is changed that the file has, and one that it has not.
    let set = |setting| vec![dwell_model::SettingChange::Set(setting)];
    store.configure("a".parse().unwrap(), set(dwell_model::Setting::LeaseMs(1))).await.unwrap();
    store.configure("a".parse().unwrap(), set(dwell_model::Setting::IdempotencyMs(1))).await.unwrap();

    let second = queues("[queues.a]\nlease = \"3m\"\n");
    assert_eq!(apply_queues(&store, &first, &second).await.unwrap(), 2);
    let a = store.stats("a".parse().unwrap()).await.unwrap();
    let own: Vec<SettingName> = a.own.iter().map(|setting| setting.name()).collect();
    assert_eq!(own, [SettingName::Lease, SettingName::IdempotencyTtl]);
    assert_eq!((a.settings.lease_ms, a.settings.idempotency_ms), (180_000, 1));
    assert!(store.stats("b".parse().unwrap()).await.is_err(), "it has nothing of its own any more");
}

/// Not to the file's values, but to what they were: settings made at run time stay.
#[tokio::test]
async fn a_queue_that_refuses_leaves_the_others_as_they_were_found() {
    let store = MemoryStore::new(Limits::default(), Arc::new(SystemClock::new()));
    let queues = |text: &str| load(text).unwrap().configuration.queues;
    let own = async |name: &str| store.stats(name.parse().unwrap()).await.unwrap().own;
    let before = queues("[queues.a]\nlease = \"1m\"\n[queues.b]\nmax_pending = 9\n");
    apply_queues(&store, &[], &before).await.unwrap();
    let set = |setting| vec![dwell_model::SettingChange::Set(setting)];
    store.configure("a".parse().unwrap(), set(dwell_model::Setting::LeaseMs(1))).await.unwrap();
    store.configure("b".parse().unwrap(), set(dwell_model::Setting::MaxPending(5))).await.unwrap();
    // Its partitions are fixed while it has messages.
    assert!(store.put(vec![dwell_store::Put::new("b".parse().unwrap(), "x")]).await[0].is_ok());
    let (a, b) = (own("a").await, own("b").await);

    let now = queues(
        "[queues.a]\nlease = \"3m\"\nmax_attempts = 5\n[queues.b]\npartitions = 4\nmax_pending = 7\n[queues.c]\nlease = \"1s\"\n",
    );
    let refused = apply_queues(&store, &before, &now).await.unwrap_err();
    assert_eq!((refused.queue.as_str(), refused.error.code()), ("b", "setting_fixed"));
    assert!(refused.left.is_empty());
    assert_eq!((own("a").await, own("b").await), (a, b));
    assert!(store.stats("c".parse().unwrap()).await.is_err());
}

/// A value for each key, other than its default, as in the environment.
const SAMPLES: &[(&str, &str)] = &[
    ("store.url", "memory"),
    ("store.data", "/somewhere"),
    ("store.durability", "os"),
    ("store.segment", "4KiB"),
    ("store.memory_limit", "64MiB"),
    ("limits.body", "2MiB"),
    ("limits.batch", "5"),
    ("limits.leased", "6"),
    ("limits.leased_per_queue", "3"),
    ("limits.waiting_per_queue", "2"),
    ("limits.queues", "7"),
    ("limits.idempotency_keys", "9"),
    ("limits.idempotency_keys_per_queue", "4"),
    ("limits.bodies", "8MiB"),
    ("http.listen", "127.0.0.2:7411"),
    ("http.hosts", "a.example,b.example"),
    ("http.insecure", "true"),
    ("http.page", "false"),
    ("http.max_connections", "8"),
    ("http.max_wait", "9s"),
    ("http.head_timeout", "10s"),
    ("http.body_timeout", "11s"),
    ("http.body_rate", "12"),
    ("http.write_timeout", "13s"),
    ("tls.certificate", "cert.pem"),
    ("tls.key", "key.pem"),
    ("tls.client_ca", "ca.pem"),
    ("beanstalkd.listen", "127.0.0.2:11300"),
    ("beanstalkd.insecure", "true"),
    ("beanstalkd.max_connections", "14"),
    ("beanstalkd.idle_timeout", "15s"),
    ("beanstalkd.read_timeout", "16s"),
    ("beanstalkd.read_rate", "17"),
    ("beanstalkd.write_timeout", "18s"),
    ("shutdown.drain", "19s"),
    ("log.level", "debug"),
    ("log.format", "json"),
    ("redisson.url", "redis://127.0.0.2"),
    ("redisson.queues", "a,b"),
    ("redisson.name_prefix", "p:"),
    ("redisson.java", "new"),
    ("redisson.sweep", "2s"),
    ("redisson.max_attempts", "3"),
];

/// Keys of incomplete pairs, which are refused by themselves.
const HALVES: [&str; 5] = ["tls.certificate", "tls.key", "tls.client_ca", "redisson.url", "redisson.queues"];

/// The displayed value of `key`, and its origin.
fn shown(loaded: &Loaded, key: &str) -> (ConfigValue, Origin) {
    let shown = loaded.shown.iter().find(|shown| shown.key == key).unwrap_or_else(|| panic!("{key}"));
    (shown.value.clone(), shown.origin.clone())
}

#[test]
fn every_key_says_the_same_in_file_environment_and_option_and_the_later_wins() {
    let keys: Vec<_> = config_keys().map(|(path, env, _)| (path, env)).collect();
    for (path, env) in &keys {
        let sample = SAMPLES.iter().find(|(key, _)| key == path);
        let (_, sample) = sample.unwrap_or_else(|| panic!("SAMPLES needs a value for {path}"));
        if HALVES.contains(path) {
            let refused = load_over("", &[(env, sample)], &[]).expect_err(path);
            assert_eq!(refused[0].origin, Origin::Environment((*env).to_owned()), "{path}");
            continue;
        }
        let default = load("").unwrap().shown.iter().find(|shown| shown.key == *path).cloned();
        let by_environment = load_over("", &[(env, sample)], &[]).unwrap();
        let (value, origin) = shown(&by_environment, path);
        assert_eq!(origin, Origin::Environment((*env).to_owned()), "{path}");
        assert!(default.is_none_or(|default| default.value != value), "{path}: {value} is the default");

        let in_file = format!("{path} = {value}\n");
        let by_file = load(&in_file).unwrap();
        let (from_file, origin) = shown(&by_file, path);
        assert_eq!(from_file, value, "{path}");
        assert!(matches!(origin, Origin::File { line: 1, .. }), "{path}: {origin}");

        let texts: Vec<String> = match *path {
            "http.hosts" => sample.split(',').map(str::to_owned).collect(),
            _ => vec![(*sample).to_owned()],
        };
        let by_flag = Loaded::load(&Layers { flags: vec![(path, texts)], ..Layers::default() }).unwrap();
        let (by_option, origin) = shown(&by_flag, path);
        assert_eq!(by_option, value, "{path}");
        assert!(matches!(origin, Origin::Flag(_)), "{path}: {origin}");

        // Of two sources the later one counts: the default is set over the sample.
        let unchanged = load("").unwrap();
        let Some(default) = unchanged.shown.iter().find(|shown| shown.key == *path) else { continue };
        let default = default.value.to_string().trim_matches(['"', '[', ']']).to_owned();
        // An empty variable is ignored.
        if !default.is_empty() {
            let over_file = load_over(&in_file, &[(env, &default)], &[]).unwrap();
            assert_eq!(shown(&over_file, path).1, Origin::Environment((*env).to_owned()), "{path}");
            let over_both = load_over(&in_file, &[(env, sample)], &[(path, &default)]).unwrap();
            let (value_over_both, origin) = shown(&over_both, path);
            assert!(
                matches!(origin, Origin::Flag(_)) && value_over_both != value,
                "{path}: {value_over_both}"
            );
        }
    }
    for (path, _) in SAMPLES {
        assert!(keys.iter().any(|(key, _)| key == path), "there is no key {path}");
    }
}

/// A secret of 32 bytes, as in a file or a variable.
const SECRET: &str = "whsec_AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

/// A sink and a schedule with these lines in place of some of theirs.
fn sink(lines: &[&str]) -> String {
    let key = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    let whole = ["name = \"a\"", "queues = [\"q\"]", "kind = \"webhook\"", "url = \"https://h.example/x\""];
    let rest = whole.iter().filter(|line| !lines.iter().any(|other| key(other) == key(line)));
    let all: Vec<&str> = rest.chain(lines).copied().collect();
    format!("[[sinks]]\n{}\n", all.join("\n"))
}

#[test]
fn what_is_wrong_with_a_sink_has_its_code_and_a_way_out() {
    let name_no_more = |text: &str, key: &str| -> String {
        text.lines().filter(|line| !line.starts_with(key)).map(|line| format!("{line}\n")).collect()
    };
    let whole = sink(&[]);
    assert!(load(&whole).is_ok(), "{:?}", load(&whole));
    let cases = [
        // Missing parts.
        (name_no_more(&whole, "name"), "config_incomplete", "'name'"),
        (name_no_more(&whole, "queues"), "config_incomplete", "'queues'"),
        (name_no_more(&whole, "kind"), "config_incomplete", "'kind'"),
        (name_no_more(&whole, "url"), "config_incomplete", "'url_header'"),
        (name_no_more(&sink(&["url_header = \"webhook-url\""]), "url ="), "config_incomplete", "'hosts'"),
        // Contradictions.
        (sink(&["url_header = \"webhook-url\"", "hosts = [\"*\"]"]), "config_conflict", "not both"),
        (sink(&["hosts = [\"*\"]"]), "config_conflict", "'hosts'"),
        (sink(&["allow = [\"10.0.0.0/8\"]"]), "config_conflict", "'allow'"),
        (sink(&["queues = [\"q\", \"q\"]"]), "config_conflict", "twice"),
        (format!("{whole}{}", sink(&["name = \"b\""])), "config_conflict", "sink 'a' takes from queue 'q'"),
        (format!("{whole}{}", sink(&["queues = [\"r\"]"])), "config_conflict", "a sink 'a' already"),
        // Invalid values.
        (sink(&["kind = \"kafka\""]), "config_invalid_value", "\"webhook\""),
        (sink(&["name = \"two words\""]), "config_invalid_value", "A-Za-z0-9"),
        (sink(&["queues = [\"two words\"]"]), "config_invalid_value", "two words"),
        (sink(&["queues = [\"dwell:schedules\"]"]), "queue_reserved", "dwell's own"),
        (sink(&["url = \"ftp://h\""]), "invalid_sink", "https://"),
        (sink(&["url = \"https://u:hush@h.example/\""]), "invalid_sink", "https://"),
        (sink(&["timeout = \"0s\""]), "config_invalid_value", "1ms"),
        (sink(&["timeout = \"6m\""]), "config_invalid_value", "300 s"),
        (sink(&["concurrency = 0"]), "config_invalid_value", "from 1"),
        (sink(&["concurrency = 100001"]), "config_invalid_value", "100000"),
        (sink(&["rate = 0"]), "config_invalid_value", "from 1"),
        (sink(&["bytes_in_flight = 0"]), "config_invalid_value", "1 byte"),
        (sink(&["order = \"lax\""]), "config_invalid_value", "\"strict\""),
        (sink(&["retry = []"]), "invalid_ladder", "1 to 100"),
        (sink(&["retry = [\"soon\"]"]), "config_invalid_value", "soon"),
        (sink(&["lease = \"10ms\""]), "config_invalid_value", "1s"),
        (sink(&["secrets = [\"file:/there/is/none\"]"]), "unreadable_secret", "/there/is/none"),
        (sink(&["secrets = [\"env:DWELL_TEST_THERE_IS_NONE\"]"]), "unreadable_secret", "cannot be read"),
        (sink(&["secrets = [\"whsec_hush\"]"]), "unreadable_secret", "file:PATH"),
        (sink(&["ca = \"none.pem\""]), "config_invalid_value", "none.pem"),
        // Wrong types.
        (sink(&["concurrency = \"7\""]), "config_wrong_type", "whole number"),
        (sink(&["urls = \"x\""]), "config_unknown_key", "'url'"),
        ("sinks = 5".to_owned(), "config_wrong_type", "[[sinks]]"),
        ("[[sink]]\nname = \"a\"".to_owned(), "config_unknown_key", "'sinks'"),
    ];
    for (text, code, part) in cases {
        let errors = refused(&text);
        assert_eq!(errors.len(), 1, "{text}: {errors:?}");
        let (found, line, detail) = &errors[0];
        assert_eq!(*found, code, "{text}: {detail}");
        assert!(*line > 0 && detail.contains(part), "{text}: {detail}");
        assert!(!detail.contains("hush"), "{detail}");
    }
}

#[test]
fn a_mistake_in_a_sink_is_told_by_its_own_line() {
    let text = sink(&["timeout = \"never\"", "order = \"lax\""]);
    let lines: Vec<usize> = refused(&text).iter().map(|(_, line, _)| *line).collect();
    assert_eq!(lines, [6, 7]);
    // So is an error that shows only in the check across keys.
    let dir = tempfile::tempdir().unwrap();
    let pem = dir.path().join("ca.pem");
    std::fs::write(&pem, "no PEM").unwrap();
    let ca = format!("ca = \"{}\"", pem.display());
    let url = "url = \"https://h.example/x\"\n";
    let by_header = sink(&["url_header = \"u\"", "hosts = [\"a b\"]"]).replace(url, "");
    let no_header = sink(&["url_header = \"a b\"", "hosts = [\"*\"]"]).replace(url, "");
    for (text, line) in [(sink(&[&ca]), 6), (sink(&["url = \"x\""]), 5), (by_header, 6), (no_header, 5)] {
        let errors = refused(&text);
        assert_eq!((errors.len(), errors[0].0, errors[0].1), (1, "invalid_sink", line), "{text}: {errors:?}");
    }
}

#[test]
fn what_is_wrong_with_a_schedule_has_its_code_and_a_way_out() {
    let schedule = |lines: &str| format!("[[schedules]]\nname = \"s\"\nqueue = \"q\"\n{lines}\n");
    assert!(load(&schedule("cron = \"0 9 * * MON\"")).is_ok());
    let cases = [
        (schedule(""), "config_incomplete", "'cron' or 'every'"),
        ("[[schedules]]\nqueue = \"q\"\nevery = \"5s\"\n".to_owned(), "config_incomplete", "'name'"),
        ("[[schedules]]\nname = \"s\"\nevery = \"5s\"\n".to_owned(), "config_incomplete", "'queue'"),
        (schedule("cron = \"* * * * *\"\nevery = \"5s\""), "config_conflict", "not both"),
        (schedule("every = \"5s\"\nzone = \"UTC\""), "config_conflict", "'zone'"),
        (schedule("every = \"5s\"\ndialect = \"unix\""), "config_conflict", "'dialect'"),
        (schedule("cron = \"whenever\""), "malformed_cron", "whenever"),
        (schedule("cron = \"0 0 9 ? * 2\""), "ambiguous_dialect", "MON"),
        (schedule("cron = \"0 0 30 2 *\""), "cron_never_fires", "never fires"),
        (schedule("cron = \"* * * * *\"\nzone = \"Mars/Olympus\""), "unknown_zone", "IANA"),
        (schedule("cron = \"* * * * *\"\ndialect = \"vixie\""), "config_invalid_value", "\"quartz\""),
        (schedule("every = \"5ms\""), "invalid_schedule", "1s"),
        (schedule("every = \"5\""), "config_invalid_value", "'5'"),
        (schedule("every = \"5s\"\njitter = \"5s\""), "invalid_schedule", "jitter"),
        (schedule("every = \"5s\"\nmissed = \"never\""), "config_invalid_value", "\"skip\""),
        (schedule("every = \"5s\"\noverlap = \"never\""), "config_invalid_value", "\"replace\""),
        (schedule("every = \"5s\"\nheaders = { \"a b\" = \"c\" }"), "config_invalid_value", "a b"),
        (schedule("every = \"5s\"\nheaders = 5"), "config_wrong_type", "table of texts"),
        (
            "[[schedules]]\nname = \"s\"\nqueue = \"dwell:schedules\"\nevery = \"5s\"\n".to_owned(),
            "queue_reserved",
            "dwell's own",
        ),
        (
            format!("{}{}", schedule("every = \"5s\""), schedule("every = \"6s\"")),
            "config_conflict",
            "a schedule 's' already",
        ),
        (
            format!(
                "limits.body = \"1KiB\"\n{}",
                schedule(&format!("every = \"5s\"\nbody = \"{}\"", "x".repeat(1_025)))
            ),
            "config_invalid_value",
            "1025",
        ),
        // Twice as long as JSON, which is a header itself.
        (
            schedule(&format!("every = \"5s\"\nheaders = {{ h = '{}' }}", "\"".repeat(8 * 1_024))),
            "config_invalid_value",
            "schedule 's'",
        ),
        (schedule("evry = \"5s\""), "config_unknown_key", "'every'"),
        ("schedules = 5".to_owned(), "config_wrong_type", "[[schedules]]"),
    ];
    for (text, code, part) in cases {
        let errors = refused(&text);
        assert_eq!(errors.len(), 1, "{text}: {errors:?}");
        let (found, line, detail) = &errors[0];
        assert_eq!(*found, code, "{text}: {detail}");
        assert!(*line > 0 && detail.contains(part), "{text}: {detail}");
    }
    // A schedule that is over is valid: it was right when it was written.
    assert!(load(&schedule("cron = \"0 0 0 1 1 ? 2020\"")).is_ok());
}

#[test]
fn a_sink_is_another_one_when_what_is_in_its_secret_changes() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("dwell.toml");
    let text = sink(&["secrets = [\"file:shop.secret\"]", "url = \"https://h.example/hush\""]);
    std::fs::write(&file, text).unwrap();
    let load = || {
        let layers = Layers { file: Some(file.clone()), ..Layers::default() };
        Loaded::load(&layers).unwrap()
    };
    std::fs::write(dir.path().join("shop.secret"), SECRET).unwrap();
    let (first, again) = (load(), load());
    assert_eq!(first.configuration.sinks, again.configuration.sinks);
    std::fs::write(dir.path().join("shop.secret"), SECRET.replace("AQEB", "AgIC")).unwrap();
    assert_ne!(first.configuration.sinks, load().configuration.sinks);
    // None of it needs a restart, and no secret is displayed.
    assert!(first.held_back(&load()).is_empty());
    let shown = format!("{:?} {:?}", first.shown, first.configuration);
    assert!(!shown.contains("hush") && !shown.contains("AQEB"), "{shown}");
    assert!(shown.contains("sinks.\\\"a\\\".queues"), "{shown}");
}

//! Checks across keys: incomplete pairs, contradictions, and listeners that are exposed.
//!
//! What depends on parts that were refused is not checked: it would be refused for the same reason.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use dwell_delivery::sinks::webhook::Secret;
use dwell_redisson::Keys;

use super::error::{ConfigError, ConfigErrorKind, Origin};
use super::layers::{Draft, RedissonDraft, StoreKind, Warning};
use super::{schedules, sinks};
use crate::listener::is_loopback;
use crate::security::{Tls, TlsError, TlsFiles, Token, Tokens};

/// How files and secrets that a configuration names are read.
#[derive(Clone, Copy)]
pub(super) struct Files {
    pub(super) tls: fn(&TlsFiles) -> Result<Tls, TlsError>,
    /// Reads a secret from a file or the environment.
    pub(super) secret: fn(&str) -> dwell_delivery::Result<Secret>,
    /// Reads certificates to trust.
    pub(super) pem: fn(&Path) -> io::Result<Vec<u8>>,
}

/// Refuses contradictions, and assembles what has several keys: tokens, certificates and sinks.
pub(super) fn check(draft: &mut Draft, files: &Files, errors: &mut Vec<ConfigError>) {
    tokens(draft, errors);
    tls(draft, files.tls, errors);
    sinks::check(draft, files, errors);
    schedules::check(draft, errors);
    listeners(draft, errors);
    redisson(draft, errors);
}

/// Turns queue names, with a mapper's prefix, into Redis keys.
fn redisson(draft: &mut Draft, errors: &mut Vec<ConfigError>) {
    if draft.is_wrong("redisson.") {
        return;
    }
    let mut refuse = |said: &str, kind, detail: String| {
        errors.push(ConfigError::new(kind, &draft.origin(said), detail));
    };
    let RedissonDraft { redis, names, name_prefix, .. } = &draft.redisson;
    match (redis.is_some(), names.is_empty()) {
        (true, true) => {
            let detail = "which of its delayed queues? Set redisson.queues (--redisson-queue) too".to_owned();
            refuse("redisson.url", ConfigErrorKind::Incomplete, detail);
        }
        (false, false) => {
            let detail = "in which Redis? Set redisson.url (--redisson) too".to_owned();
            refuse("redisson.queues", ConfigErrorKind::Incomplete, detail);
        }
        _ => {}
    }
    let mut queues = Vec::new();
    for name in names {
        match Keys::with_prefix(name_prefix, name) {
            Ok(keys) if queues.contains(&keys) => {
                let detail = format!("queue '{name:.200}' is named twice");
                refuse("redisson.queues", ConfigErrorKind::Conflict, detail);
            }
            Ok(keys) => queues.push(keys),
            Err(error) => refuse("redisson.queues", ConfigErrorKind::InvalidValue, error.to_string()),
        }
    }
    draft.redisson.queues = queues;
}

fn tokens(draft: &mut Draft, errors: &mut Vec<ConfigError>) {
    let mut tokens = Vec::new();
    let mut names: BTreeMap<String, Origin> = BTreeMap::new();
    for token in draft.tokens.clone() {
        let origin = &token.origin;
        let mut missing = Vec::new();
        missing.extend(token.name.is_none().then_some("a 'name' to call it by"));
        missing.extend(token.digest.is_none().then_some("the 'sha256' that `dwell token new` prints"));
        let scopes = token.scopes.unwrap_or_default();
        missing.extend(
            scopes
                .is_empty()
                .then_some("'scopes', such as [\"put:orders\"], without which it is good for nothing"),
        );
        let (Some(name), Some(digest), true) = (token.name, token.digest, missing.is_empty()) else {
            let detail = format!("this token needs {}", missing.join(", and "));
            errors.push(ConfigError::new(ConfigErrorKind::Incomplete, origin, detail));
            continue;
        };
        if let Some(first) = names.insert(name.clone(), origin.clone()) {
            let detail =
                format!("there is a token '{name}' already, at {first}; give each a name of its own");
            errors.push(ConfigError::new(ConfigErrorKind::Conflict, origin, detail));
        }
        if let Some(same) = tokens.iter().find(|known: &&Token| known.digest == digest) {
            let detail =
                format!("this is the same token as '{}'; give that one the scopes of both", same.name);
            errors.push(ConfigError::new(ConfigErrorKind::Conflict, origin, detail));
        }
        tokens.push(Token { name, digest, scopes });
    }
    draft.http.tokens = Tokens::new(tokens);
}

fn tls(
    draft: &mut Draft,
    load_tls: impl FnOnce(&TlsFiles) -> Result<Tls, TlsError>,
    errors: &mut Vec<ConfigError>,
) {
    if draft.is_wrong("tls.") {
        return;
    }
    let mut half = |said: &str, detail: &str| {
        errors.push(ConfigError::new(ConfigErrorKind::Incomplete, &draft.origin(said), detail));
    };
    let (certificate, key) = match (&draft.tls.certificate, &draft.tls.key) {
        (Some(certificate), Some(key)) => (certificate.clone(), key.clone()),
        (Some(_), None) => return half("tls.certificate", "a certificate needs its key: set tls.key too"),
        (None, Some(_)) => return half("tls.key", "a key needs its certificate: set tls.certificate too"),
        (None, None) if draft.tls.client_ca.is_some() => {
            let detail = "clients show certificates under TLS alone: set tls.certificate and tls.key too";
            return half("tls.client_ca", detail);
        }
        (None, None) => return,
    };
    let files = TlsFiles { certificate, key, client_ca: draft.tls.client_ca.clone() };
    match load_tls(&files) {
        Ok(tls) => draft.http.tls = Some(tls),
        Err(error) => {
            let said = match error.file() {
                file if file == files.key => "tls.key",
                file if Some(file) == files.client_ca.as_deref() => "tls.client_ca",
                _ => "tls.certificate",
            };
            let kind = match error {
                TlsError::Unreadable { .. } => ConfigErrorKind::TlsUnreadable,
                TlsError::Invalid { .. } => ConfigErrorKind::TlsInvalid,
            };
            errors.push(ConfigError::new(kind, &draft.origin(said), error));
        }
    }
}

fn listeners(draft: &Draft, errors: &mut Vec<ConfigError>) {
    let http = &draft.http;
    let is_right = |keys: &[&str]| !keys.iter().any(|key| draft.is_wrong(key));
    let asks = !draft.tokens.is_empty() || draft.tls.client_ca.is_some();
    let is_known = is_right(&["http.listen", "http.insecure", "tokens", "tls.client_ca"]);
    if is_known && !is_loopback(http.listen.ip()) && !asks && !http.insecure {
        let detail = format!(
            "{} can be reached from other machines, and whoever calls there may do everything; configure \
             [[tokens]] (`dwell token new`), listen on 127.0.0.1, or say that it is meant so: http.insecure = true \
             (--insecure-http)",
            http.listen
        );
        errors.push(ConfigError::new(ConfigErrorKind::Exposed, &draft.origin("http.listen"), detail));
    }
    if !draft.speaks_beanstalkd || draft.is_wrong("beanstalkd.listen") {
        return;
    }
    let beanstalkd = &draft.beanstalkd;
    if is_right(&["beanstalkd.insecure"]) && !is_loopback(beanstalkd.listen.ip()) && !beanstalkd.insecure {
        let detail = format!(
            "{} can be reached from other machines, and beanstalkd's protocol knows neither passwords nor \
             encryption; listen on 127.0.0.1, or say that it is meant so: beanstalkd.insecure = true \
             (--insecure-beanstalkd)",
            beanstalkd.listen
        );
        errors.push(ConfigError::new(ConfigErrorKind::Exposed, &draft.origin("beanstalkd.listen"), detail));
    }
    let is_same = http.listen == beanstalkd.listen && http.listen.port() != 0;
    if is_right(&["http.listen"]) && is_same {
        let detail = format!(
            "HTTP and beanstalkd's protocol cannot both be spoken on {}; choose another port for one of them",
            http.listen
        );
        errors.push(ConfigError::new(ConfigErrorKind::Conflict, &draft.origin("beanstalkd.listen"), detail));
    }
}

/// Settings that are valid, and probably not intended.
pub(super) fn warnings(draft: &Draft) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |said: &str, text: String| warnings.push(Warning { origin: draft.origin(said), text });
    let http = &draft.http;
    if !is_loopback(http.listen.ip()) && http.tls.is_none() && !http.tokens.is_empty() {
        let text = format!(
            "tokens travel readably to {}; set tls.certificate and tls.key, unless something in front does TLS",
            http.listen
        );
        warn("http.listen", text);
    }
    if draft.speaks_beanstalkd && !http.tokens.is_empty() {
        let text = format!(
            "beanstalkd's protocol knows no tokens: whoever reaches {} may do there what they like; \
             beanstalkd.listen = \"off\" does without",
            draft.beanstalkd.listen
        );
        warn("beanstalkd.listen", text);
    }
    let elsewhere = match draft.store.kind {
        StoreKind::Engine => None,
        StoreKind::Memory => Some("in memory"),
        StoreKind::Redis(_) => Some("in Redis, whose own configuration decides"),
        StoreKind::Postgres(_) => Some("in PostgreSQL, whose own configuration decides"),
    };
    if let Some(elsewhere) = elsewhere {
        let tokens = matches!(draft.store.kind, StoreKind::Redis(_) | StoreKind::Postgres(_))
            .then_some("limits.idempotency_keys");
        let kept_nowhere = ["store.data", "store.durability", "store.segment", "store.memory_limit"];
        for path in kept_nowhere.into_iter().chain(tokens) {
            if draft.origin(path) != Origin::Default {
                warn(path, format!("{path} has no effect: the store is {elsewhere}"));
            }
        }
    }
    warnings
}

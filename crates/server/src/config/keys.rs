//! Every key that is one value: its names in file, environment and command line, what it may be, and the field that it
//! sets. `docs/configuration.md` has the same list.

use std::path::Path;

use dwell_model::format_duration_ms;
use serde::Serialize;

use super::layers::Draft;
use super::{error::Origin, values};

/// The TOML type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A text.
    Text,
    /// A whole number.
    Integer,
    /// A whole number of bytes, or a text with a unit.
    Size,
    /// True or false.
    Boolean,
    /// An array of texts; separated by commas in the environment.
    Texts,
}

/// A value as it was given: texts, whatever its type.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given<'a> {
    pub(super) texts: &'a [String],
    /// The folder that a relative path is resolved against.
    pub(super) folder: &'a Path,
}

impl Given<'_> {
    /// The single text of the value.
    pub(super) fn one(&self) -> &str {
        self.texts.first().map_or("", String::as_str)
    }
}

/// A value as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum ShownValue {
    /// A text.
    Text(String),
    /// A whole number.
    Integer(u64),
    /// True or false.
    Boolean(bool),
    /// Several texts.
    Texts(Vec<String>),
    /// A table's keys and values, as TOML has them.
    Table(Vec<String>),
}

impl std::fmt::Display for ShownValue {
    /// As TOML; JSON's escapes are TOML's too.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let ShownValue::Table(fields) = self {
            return write!(f, "{{ {} }}", fields.join(", "));
        }
        f.write_str(&serde_json::to_string(self).map_err(|_| std::fmt::Error)?)
    }
}

/// A key.
pub(super) struct ConfigKey {
    /// Section and name in the file.
    pub(super) path: &'static str,
    pub(super) env: &'static str,
    pub(super) flag: Option<&'static str>,
    pub(super) form: Form,
    /// Whether a reload applies it.
    pub(super) reloads: bool,
    pub(super) set: fn(&mut Draft, &Given<'_>) -> Result<(), String>,
    /// `None` where it has no value.
    pub(super) get: fn(&Draft) -> Option<ShownValue>,
}

impl ConfigKey {
    /// `http` of `http.listen`.
    pub(super) fn section(&self) -> &'static str {
        self.path.split_once('.').map_or(self.path, |(section, _)| section)
    }

    /// `listen` of `http.listen`.
    pub(super) fn name(&self) -> &'static str {
        self.path.split_once('.').map_or(self.path, |(_, name)| name)
    }

    /// The origin of a value given on the command line.
    pub(super) fn flag_origin(&self) -> Origin {
        Origin::Flag(self.flag.unwrap_or(self.path))
    }
}

fn text(value: impl std::fmt::Display) -> Option<ShownValue> {
    Some(ShownValue::Text(value.to_string()))
}

fn number(value: usize) -> Option<ShownValue> {
    Some(ShownValue::Integer(value as u64))
}

fn duration(ms: u64) -> Option<ShownValue> {
    text(format_duration_ms(ms))
}

fn size(bytes: u64) -> Option<ShownValue> {
    text(values::show_bytes(bytes))
}

macro_rules! key {
    ($path:literal, $env:literal, $flag:expr, $form:ident, $reloads:literal, |$draft:ident, $given:ident| $set:expr, $get:expr) => {
        ConfigKey {
            path: $path,
            env: $env,
            flag: $flag,
            form: Form::$form,
            reloads: $reloads,
            set: |$draft, $given| {
                $set;
                Ok(())
            },
            get: |$draft| $get,
        }
    };
}

/// All keys, by section.
#[rustfmt::skip]
pub(super) static KEYS: &[ConfigKey] = &[
    key!("store.url", "DWELL_STORE", Some("--store"), Text, false,
        |draft, given| draft.store.kind = values::store(given)?, text(draft.store.kind.shown())),
    key!("store.data", "DWELL_DATA", Some("--data"), Text, false,
        |draft, given| draft.store.data = values::path(given)?, text(draft.store.data.display())),
    key!("store.durability", "DWELL_DURABILITY", Some("--durability"), Text, false,
        |draft, given| draft.store.durability = values::durability(given)?, text(draft.store.durability)),
    key!("store.segment", "DWELL_SEGMENT", Some("--segment"), Size, false,
        |draft, given| draft.store.segment_bytes = Some(values::segment(given)?),
        draft.store.segment_bytes.and_then(size)),
    key!("store.memory_limit", "DWELL_MEMORY_LIMIT", Some("--memory-limit"), Size, false,
        |draft, given| draft.store.memory_limit = values::memory_limit(given)?,
        draft.store.memory_limit.map_or_else(|| text("off"), size)),
    key!("limits.body", "DWELL_MAX_BODY", Some("--max-body"), Size, false,
        |draft, given| draft.limits.body_len = values::body_len(given)?, size(draft.limits.body_len as u64)),
    key!("limits.batch", "DWELL_MAX_BATCH", Some("--max-batch"), Integer, false,
        |draft, given| draft.limits.batch = values::count(given)?, number(draft.limits.batch)),
    key!("limits.leased", "DWELL_MAX_LEASED", Some("--max-leased"), Integer, false,
        |draft, given| draft.limits.leased = values::count(given)?, number(draft.limits.leased)),
    key!("limits.leased_per_queue", "DWELL_MAX_LEASED_PER_QUEUE", Some("--max-leased-per-queue"), Integer, false,
        |draft, given| draft.limits.leased_per_queue = values::count(given)?, number(draft.limits.leased_per_queue)),
    key!("limits.waiting_per_queue", "DWELL_MAX_WAITING_PER_QUEUE", Some("--max-waiting-per-queue"), Integer, false,
        |draft, given| draft.limits.waiting_per_queue = values::count(given)?,
        number(draft.limits.waiting_per_queue)),
    key!("limits.queues", "DWELL_MAX_QUEUES", Some("--max-queues"), Integer, false,
        |draft, given| draft.limits.queues = values::count(given)?, number(draft.limits.queues)),
    key!("limits.idempotency_keys", "DWELL_MAX_IDEMPOTENCY_KEYS", Some("--max-idempotency-keys"), Integer, false,
        |draft, given| draft.limits.idempotency_keys = values::count(given)?, number(draft.limits.idempotency_keys)),
    key!("limits.idempotency_keys_per_queue", "DWELL_MAX_IDEMPOTENCY_KEYS_PER_QUEUE", Some("--max-idempotency-keys-per-queue"),
        Integer, false,
        |draft, given| draft.limits.idempotency_keys_per_queue = values::count(given)?,
        number(draft.limits.idempotency_keys_per_queue)),
    key!("limits.bodies", "DWELL_MAX_BODIES", Some("--max-bodies"), Size, false,
        |draft, given| draft.memory_bytes = values::some_bytes(given)?, size(draft.memory_bytes)),
    key!("http.listen", "DWELL_LISTEN", Some("--listen"), Text, false,
        |draft, given| draft.http.listen = values::address(given)?, text(draft.http.listen)),
    key!("http.hosts", "DWELL_HOSTS", Some("--host"), Texts, true,
        |draft, given| draft.http.hosts = values::hosts(given)?, Some(ShownValue::Texts(draft.http.hosts.clone()))),
    key!("http.insecure", "DWELL_INSECURE_HTTP", Some("--insecure-http"), Boolean, false,
        |draft, given| draft.http.insecure = values::boolean(given)?, Some(ShownValue::Boolean(draft.http.insecure))),
    key!("http.page", "DWELL_HTTP_PAGE", None, Boolean, false,
        |draft, given| draft.http.page = values::boolean(given)?, Some(ShownValue::Boolean(draft.http.page))),
    key!("http.max_connections", "DWELL_HTTP_MAX_CONNECTIONS", None, Integer, false,
        |draft, given| draft.http.max_connections = values::count(given)?, number(draft.http.max_connections)),
    key!("http.max_wait", "DWELL_HTTP_MAX_WAIT", None, Text, false,
        |draft, given| draft.http.max_wait_ms = values::wait_ms(given)?, duration(draft.http.max_wait_ms)),
    key!("http.head_timeout", "DWELL_HTTP_HEAD_TIMEOUT", None, Text, false,
        |draft, given| draft.http.head_ms = values::duration_ms(given)?, duration(draft.http.head_ms)),
    key!("http.body_timeout", "DWELL_HTTP_BODY_TIMEOUT", None, Text, false,
        |draft, given| draft.http.body_ms = values::duration_ms(given)?, duration(draft.http.body_ms)),
    key!("http.body_rate", "DWELL_HTTP_BODY_RATE", None, Size, false,
        |draft, given| draft.http.body_rate = values::bytes(given)?, size(draft.http.body_rate)),
    key!("http.write_timeout", "DWELL_HTTP_WRITE_TIMEOUT", None, Text, false,
        |draft, given| draft.http.write_ms = values::duration_ms(given)?, duration(draft.http.write_ms)),
    key!("tls.certificate", "DWELL_TLS_CERTIFICATE", Some("--tls-certificate"), Text, true,
        |draft, given| draft.tls.certificate = Some(values::path(given)?),
        draft.tls.certificate.as_ref().and_then(|path| text(path.display()))),
    key!("tls.key", "DWELL_TLS_KEY", Some("--tls-key"), Text, true,
        |draft, given| draft.tls.key = Some(values::path(given)?),
        draft.tls.key.as_ref().and_then(|path| text(path.display()))),
    key!("tls.client_ca", "DWELL_TLS_CLIENT_CA", None, Text, true,
        |draft, given| draft.tls.client_ca = Some(values::path(given)?),
        draft.tls.client_ca.as_ref().and_then(|path| text(path.display()))),
    key!("beanstalkd.listen", "DWELL_BEANSTALKD", Some("--beanstalkd"), Text, false,
        |draft, given| match values::address_or_off(given)? {
            Some(address) => {
                draft.beanstalkd.listen = address;
                draft.speaks_beanstalkd = true;
            }
            None => draft.speaks_beanstalkd = false,
        },
        if draft.speaks_beanstalkd { text(draft.beanstalkd.listen) } else { text("off") }),
    key!("beanstalkd.insecure", "DWELL_INSECURE_BEANSTALKD", Some("--insecure-beanstalkd"), Boolean, false,
        |draft, given| draft.beanstalkd.insecure = values::boolean(given)?,
        Some(ShownValue::Boolean(draft.beanstalkd.insecure))),
    key!("beanstalkd.max_connections", "DWELL_BEANSTALKD_MAX_CONNECTIONS", None, Integer, false,
        |draft, given| draft.beanstalkd.max_connections = values::count(given)?,
        number(draft.beanstalkd.max_connections)),
    key!("beanstalkd.idle_timeout", "DWELL_BEANSTALKD_IDLE_TIMEOUT", None, Text, false,
        |draft, given| draft.beanstalkd.idle_ms = values::duration_or_off(given)?,
        draft.beanstalkd.idle_ms.map_or_else(|| text("off"), duration)),
    key!("beanstalkd.read_timeout", "DWELL_BEANSTALKD_READ_TIMEOUT", None, Text, false,
        |draft, given| draft.beanstalkd.read_ms = values::duration_ms(given)?, duration(draft.beanstalkd.read_ms)),
    key!("beanstalkd.read_rate", "DWELL_BEANSTALKD_READ_RATE", None, Size, false,
        |draft, given| draft.beanstalkd.read_rate = values::bytes(given)?, size(draft.beanstalkd.read_rate)),
    key!("beanstalkd.write_timeout", "DWELL_BEANSTALKD_WRITE_TIMEOUT", None, Text, false,
        |draft, given| draft.beanstalkd.write_ms = values::duration_ms(given)?,
        duration(draft.beanstalkd.write_ms)),
    key!("redisson.url", "DWELL_REDISSON", Some("--redisson"), Text, false,
        |draft, given| draft.redisson.redis = Some(values::redis(given)?),
        draft.redisson.redis.as_ref().and_then(|redis| text(redis.shown()))),
    key!("redisson.queues", "DWELL_REDISSON_QUEUES", Some("--redisson-queue"), Texts, false,
        |draft, given| draft.redisson.names = given.texts.to_vec(),
        Some(ShownValue::Texts(draft.redisson.names.clone()))),
    key!("redisson.name_prefix", "DWELL_REDISSON_NAME_PREFIX", None, Text, false,
        |draft, given| draft.redisson.name_prefix = given.one().to_owned(),
        text(&draft.redisson.name_prefix)),
    key!("redisson.java", "DWELL_REDISSON_JAVA", Some("--redisson-java"), Text, false,
        |draft, given| draft.redisson.layout = values::layout(given)?,
        text(values::show_layout(draft.redisson.layout))),
    key!("redisson.sweep", "DWELL_REDISSON_SWEEP", None, Text, false,
        |draft, given| draft.redisson.sweep_ms = values::duration_ms(given)?, duration(draft.redisson.sweep_ms)),
    key!("redisson.max_attempts", "DWELL_REDISSON_MAX_ATTEMPTS", None, Integer, false,
        |draft, given| draft.redisson.max_attempts = values::count_or_none(given)?,
        number(draft.redisson.max_attempts as usize)),
    key!("shutdown.drain", "DWELL_DRAIN", Some("--drain"), Text, false,
        |draft, given| draft.drain_ms = values::wait_ms(given)?, duration(draft.drain_ms)),
    key!("log.level", "DWELL_LOG", Some("--log"), Text, false,
        |draft, given| draft.log.level = values::log_level(given)?, text(draft.log.level.as_str())),
    key!("log.format", "DWELL_LOG_FORMAT", Some("--log-format"), Text, false,
        |draft, given| draft.log.format = values::log_format(given)?, text(draft.log.format.as_str())),
];

/// The key with this path.
pub(super) fn key(path: &str) -> Option<&'static ConfigKey> {
    KEYS.iter().find(|key| key.path == path)
}

/// Every key: its path in the file, its environment variable, and its option if it has one.
pub fn config_keys() -> impl Iterator<Item = (&'static str, &'static str, Option<&'static str>)> {
    KEYS.iter().map(|key| (key.path, key.env, key.flag))
}

/// Checks a value of the key `path` as given on the command line.
///
/// # Errors
/// What would be valid, in words.
///
/// # Panics
/// If there is no such key, which is a bug.
pub fn check_value(path: &str, given: &str) -> Result<(), String> {
    let key = key(path).expect("the caller names a key that is in the list");
    let texts = [given.to_owned()];
    (key.set)(&mut Draft::default(), &Given { texts: &texts, folder: Path::new("") })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_name_is_given_twice_and_every_default_can_be_said() {
        let mut names = BTreeSet::new();
        for key in KEYS {
            assert!(names.insert(key.path) && names.insert(key.env), "{}", key.path);
            assert!(key.flag.is_none_or(|flag| names.insert(flag)), "{}", key.path);
            assert!(key.env.starts_with("DWELL_") && key.path.contains('.'), "{}", key.path);
            let mut draft = Draft::default();
            let Some(value) = (key.get)(&draft) else { continue };
            let texts = match &value {
                ShownValue::Text(text) => vec![text.clone()],
                ShownValue::Integer(number) => vec![number.to_string()],
                ShownValue::Boolean(boolean) => vec![boolean.to_string()],
                ShownValue::Texts(texts) | ShownValue::Table(texts) => texts.clone(),
            };
            let given = Given { texts: &texts, folder: Path::new("") };
            (key.set)(&mut draft, &given).unwrap_or_else(|error| panic!("{}: {error}", key.path));
            assert_eq!((key.get)(&draft), Some(value), "{}", key.path);
        }
    }

    #[test]
    fn the_documentation_has_every_key_and_no_other() {
        let page = include_str!("../../../../docs/configuration.md");
        let mut documented = BTreeSet::new();
        for row in page.lines().filter(|line| line.starts_with("| `") && line.contains("DWELL_")) {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let bare = |cell: &str| cell.trim_matches('`').to_owned();
            let path = bare(cells[1]);
            let known = key(&path).unwrap_or_else(|| panic!("docs/configuration.md: there is no key {path}"));
            let names = [known.env, known.flag.unwrap_or("")].map(str::to_owned);
            assert_eq!([bare(cells[3]), bare(cells[4])], names, "{path}");
            assert_eq!(cells[5] == "yes", known.reloads, "{path}");
            let default = (known.get)(&Draft::default()).map_or(String::new(), |value| value.to_string());
            assert_eq!(bare(cells[2]), default, "the default of {path}");
            documented.insert(path);
        }
        let missing: Vec<&str> =
            KEYS.iter().map(|key| key.path).filter(|path| !documented.contains(*path)).collect();
        assert!(missing.is_empty(), "docs/configuration.md lacks {missing:?}");
    }
}

//! Merges the file, the environment and the command line over the defaults, in this order, and records where each value
//! comes from.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use dwell_delivery::schedule::Schedule;
use dwell_delivery::sinks::webhook::Secret;
use dwell_model::{Limits, QueueName, Setting, SettingName};
use dwell_redis::Address;
use dwell_redisson::{Keys, Layout, MoverOptions};
use dwell_wire::QueueSettings;

use super::check::{self, Files};
use super::document::{self, Document};
use super::error::{ConfigError, ConfigErrorKind, Origin};
use super::keys::{Form, Given, KEYS, ShownValue, key};
use super::log::LogConfig;
use super::schedules::ScheduleDraft;
use super::server::{BeanstalkdConfig, HttpConfig, ServerConfig};
use super::sinks::SinkDraft;
use super::suggest::did_you_mean;
use crate::delivery::SinkConfig;
use crate::security::{Scope, Tls, TokenDigest};

/// The sources of a configuration.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    /// The configuration file, if there is one.
    pub file: Option<PathBuf>,
    /// Environment variables. Those that do not begin with `DWELL_` are ignored, and so are empty ones.
    pub environment: Vec<(String, String)>,
    /// The command line's values: a key's path, and its value or values.
    pub flags: Vec<(&'static str, Vec<String>)>,
}

/// Variables that dwell uses and that are not keys of a server.
const OTHER_VARIABLES: [&str; 8] = [
    "DWELL_CONFIG",
    "DWELL_REDIS",
    "DWELL_SERVER",
    "DWELL_TOKEN",
    "DWELL_TOKEN_FILE",
    "DWELL_CA",
    "DWELL_CLIENT_CERTIFICATE",
    "DWELL_CLIENT_KEY",
];

/// The maximum size of a configuration file.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// The kind of store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreKind {
    /// In files, durable.
    Engine,
    /// In memory: lost when the server ends.
    Memory,
    /// In a Redis, which several servers may share.
    Redis(Box<Address>),
    /// In a PostgreSQL, which several servers may share.
    Postgres(Box<dwell_postgres::Address>),
}

impl StoreKind {
    /// The word that configuration uses.
    pub const fn as_str(&self) -> &'static str {
        match self {
            StoreKind::Engine => "engine",
            StoreKind::Memory => "memory",
            StoreKind::Redis(_) => "redis",
            StoreKind::Postgres(_) => "postgres",
        }
    }

    /// As it was set, without a password.
    pub fn shown(&self) -> String {
        match self {
            StoreKind::Redis(address) => address.shown(),
            StoreKind::Postgres(address) => address.to_string(),
            named => named.as_str().to_owned(),
        }
    }
}

/// When a change is synced to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Before it is answered.
    Always,
    /// At most this many milliseconds after it was answered.
    IntervalMs(u64),
    /// When the operating system decides.
    Os,
}

/// The store and its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// The kind of store.
    pub kind: StoreKind,
    /// The engine's directory.
    pub data: PathBuf,
    /// When the engine syncs.
    pub durability: Durability,
    /// The size of a journal segment of the engine in bytes; `None` for the engine's own default.
    pub segment_bytes: Option<u64>,
    /// The memory limit of the engine's messages in bytes; `None` keeps all messages in memory.
    pub memory_limit: Option<u64>,
}

/// Delayed queues of Java's Redisson that the server also transfers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedissonConfig {
    /// The Redis that holds them.
    pub redis: Address,
    /// The queues.
    pub queues: Vec<Keys>,
    /// The layout that the Java clients read, if it is set: elements of the other layout are rewritten.
    pub layout: Option<Layout>,
    /// The interval at which queues are checked without a notification, in milliseconds.
    pub sweep_ms: u64,
    /// The number of failed attempts of dwell's own consumers after which a payload is dead; 0 for no limit.
    pub max_attempts: u32,
}

/// A queue with its own settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// Its name.
    pub name: QueueName,
    /// The settings that it overrides.
    pub settings: Vec<Setting>,
}

/// The whole configuration of a server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Configuration {
    /// The store.
    pub store: StoreConfig,
    /// The store's limits, and the settings of queues that have none of their own.
    pub limits: Limits,
    /// Listeners, tokens, certificates.
    pub server: ServerConfig,
    /// Queues with settings of their own.
    pub queues: Vec<QueueConfig>,
    /// Redisson's delayed queues to transfer.
    pub redisson: Option<RedissonConfig>,
    /// What forwards messages.
    pub sinks: Vec<SinkConfig>,
    /// What is put repeatedly.
    pub schedules: Vec<Schedule>,
    /// What is logged.
    pub log: LogConfig,
}

/// A configuration, and where its values come from.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Loaded {
    /// The configuration.
    pub configuration: Configuration,
    /// Every value with its origin, by section; without secrets.
    pub shown: Vec<LayeredValue>,
    /// Settings that are valid, and probably not intended.
    pub warnings: Vec<Warning>,
}

/// A value and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayeredValue {
    /// `http.listen`; of a queue `queues."orders".lease`, of a token `tokens."name".scopes`.
    pub key: String,
    /// The value, as TOML when it is displayed.
    pub value: ShownValue,
    /// Where it was set.
    pub origin: Origin,
    /// Whether a reload applies a change of it.
    pub reloads: bool,
}

/// A warning about a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The setting's origin.
    pub origin: Origin,
    /// What is unusual about it, and what can be done.
    pub text: String,
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.origin {
            Origin::Default => f.write_str(&self.text),
            origin => write!(f, "{origin}: {}", self.text),
        }
    }
}

/// The files of the certificate and key, as far as they are set.
#[derive(Clone, Debug, Default)]
pub(super) struct TlsDraft {
    pub(super) certificate: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
    pub(super) client_ca: Option<PathBuf>,
}

/// Redisson's delayed queues, as far as they are set.
#[derive(Clone, Debug)]
pub(super) struct RedissonDraft {
    pub(super) redis: Option<Address>,
    pub(super) names: Vec<String>,
    pub(super) name_prefix: String,
    pub(super) layout: Option<Layout>,
    pub(super) sweep_ms: u64,
    pub(super) max_attempts: u32,
    /// The keys that `check` makes of the names.
    pub(super) queues: Vec<Keys>,
}

impl Default for RedissonDraft {
    fn default() -> RedissonDraft {
        let MoverOptions { sweep_ms, max_attempts, layout, .. } = MoverOptions::default();
        let (redis, names, name_prefix, queues) = (None, Vec::new(), String::new(), Vec::new());
        RedissonDraft { redis, names, name_prefix, layout, sweep_ms, max_attempts, queues }
    }
}

/// A token, as far as it is set.
#[derive(Clone, Debug)]
pub(super) struct TokenDraft {
    pub(super) name: Option<String>,
    pub(super) digest: Option<TokenDigest>,
    pub(super) scopes: Option<Vec<Scope>>,
    pub(super) origin: Origin,
}

/// The configuration as read so far.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) store: StoreConfig,
    pub(super) limits: Limits,
    pub(super) http: HttpConfig,
    pub(super) tls: TlsDraft,
    pub(super) beanstalkd: BeanstalkdConfig,
    pub(super) speaks_beanstalkd: bool,
    pub(super) memory_bytes: u64,
    pub(super) drain_ms: u64,
    pub(super) log: LogConfig,
    pub(super) queues: Vec<QueueConfig>,
    pub(super) redisson: RedissonDraft,
    pub(super) tokens: Vec<TokenDraft>,
    pub(super) sinks: Vec<SinkDraft>,
    /// The sinks that `check` makes.
    pub(super) made_sinks: Vec<SinkConfig>,
    pub(super) schedules: Vec<ScheduleDraft>,
    origins: BTreeMap<String, Origin>,
    /// Keys and tables that were refused.
    wrong: BTreeSet<String>,
}

impl Default for Draft {
    fn default() -> Draft {
        let store = StoreConfig {
            kind: StoreKind::Engine,
            data: "dwell-data".into(),
            durability: Durability::Always,
            segment_bytes: None,
            memory_limit: Some(256 << 20),
        };
        let server = ServerConfig::default();
        Draft {
            store,
            limits: Limits::default(),
            http: server.http,
            tls: TlsDraft::default(),
            beanstalkd: BeanstalkdConfig::default(),
            speaks_beanstalkd: true,
            memory_bytes: server.memory_bytes,
            drain_ms: server.drain_ms,
            log: LogConfig::default(),
            queues: Vec::new(),
            redisson: RedissonDraft::default(),
            tokens: Vec::new(),
            sinks: Vec::new(),
            made_sinks: Vec::new(),
            schedules: Vec::new(),
            origins: BTreeMap::new(),
            wrong: BTreeSet::new(),
        }
    }
}

impl Draft {
    /// Records that the key or table `path` was set there; the last origin wins.
    pub(super) fn said(&mut self, path: &str, origin: Origin) {
        self.origins.insert(path.to_owned(), origin);
    }

    /// Records that the key or table `path` was refused; everything, if it is empty.
    pub(super) fn refused(&mut self, path: &str) {
        self.wrong.insert(path.to_owned());
    }

    /// Whether `path` was refused, or something in it, or a table that it is in. A check across keys would report the
    /// same error again.
    pub(super) fn is_wrong(&self, path: &str) -> bool {
        self.wrong.iter().any(|wrong| wrong.starts_with(path) || path.starts_with(wrong.as_str()))
    }

    /// Where `path` was set last.
    pub(super) fn origin(&self, path: &str) -> Origin {
        self.origins.get(path).cloned().unwrap_or(Origin::Default)
    }

    fn read_environment(
        &mut self,
        environment: &[(String, String)],
        errors: &mut Vec<ConfigError>,
    ) -> Vec<Warning> {
        let mut warnings = Vec::new();
        for (name, value) in environment.iter().filter(|(name, _)| name.starts_with("DWELL_")) {
            let origin = Origin::Environment(name.clone());
            let Some(key) = KEYS.iter().find(|key| key.env == name) else {
                if !OTHER_VARIABLES.contains(&name.as_str()) {
                    // Not refused: orchestrators set variables of their own there, named after services.
                    let meant = did_you_mean(name, KEYS.iter().map(|key| key.env));
                    let text = format!("dwell knows no such variable{meant}");
                    warnings.push(Warning { origin, text });
                }
                continue;
            };
            if value.is_empty() {
                continue;
            }
            let texts: Vec<String> = match key.form {
                Form::Texts => value.split(',').map(|text| text.trim().to_owned()).collect(),
                _ => vec![value.clone()],
            };
            self.set(key.path, &texts, origin, errors);
        }
        warnings
    }

    /// Sets a key from the environment or command line: paths are relative to the folder in which the server is
    /// started.
    fn set(&mut self, path: &str, texts: &[String], origin: Origin, errors: &mut Vec<ConfigError>) {
        let key = key(path).expect("the caller names a key that is in the list");
        match (key.set)(self, &Given { texts, folder: Path::new("") }) {
            Ok(()) => self.said(path, origin),
            Err(detail) => {
                self.refused(path);
                errors.push(ConfigError::new(ConfigErrorKind::InvalidValue, &origin, detail));
            }
        }
    }

    fn shown(&self) -> Vec<LayeredValue> {
        let keys = KEYS.iter().filter_map(|key| {
            let value = (key.get)(self)?;
            Some(LayeredValue {
                key: key.path.to_owned(),
                value,
                origin: self.origin(key.path),
                reloads: key.reloads,
            })
        });
        let mut shown: Vec<LayeredValue> = keys.collect();
        let defaults = settings_shown(&self.limits.defaults);
        shown.extend(defaults.into_iter().map(|(name, value)| {
            let key = format!("defaults.{name}");
            LayeredValue { origin: self.origin(&key), key, value, reloads: false }
        }));
        for queue in &self.queues {
            let in_force = settings_shown(&queue.over(&self.limits));
            for (name, value) in in_force.into_iter().filter(|(name, _)| queue.names(name)) {
                let origin = self.origin(&format!("queues.{}.{name}", queue.name));
                let key = format!("queues.\"{}\".{name}", queue.name);
                shown.push(LayeredValue { key, value, origin, reloads: true });
            }
        }
        for (token, draft) in self.http.tokens.iter().zip(&self.tokens) {
            let scopes = token.scopes.iter().map(Scope::to_string).collect();
            let values = [
                ("scopes", ShownValue::Texts(scopes)),
                ("sha256", ShownValue::Text(token.digest.abbreviated())),
            ];
            shown.extend(values.into_iter().map(|(name, value)| LayeredValue {
                key: format!("tokens.\"{}\".{name}", token.name),
                value,
                origin: draft.origin.clone(),
                reloads: true,
            }));
        }
        let delivered = self.sinks.iter().flat_map(|draft| draft.shown());
        let delivered = delivered.chain(self.schedules.iter().flat_map(|draft| draft.shown()));
        shown.extend(delivered.map(|(key, value, origin)| LayeredValue {
            key,
            value,
            origin,
            reloads: true,
        }));
        shown
    }

    fn finish(self, mut warnings: Vec<Warning>) -> Loaded {
        warnings.extend(check::warnings(&self));
        let shown = self.shown();
        let mut server = ServerConfig { http: self.http, ..ServerConfig::default() };
        server.beanstalkd = self.speaks_beanstalkd.then_some(self.beanstalkd);
        server.memory_bytes = self.memory_bytes;
        server.drain_ms = self.drain_ms;
        let RedissonDraft { redis, queues, layout, sweep_ms, max_attempts, .. } = self.redisson;
        let redisson = redis.map(|redis| RedissonConfig { redis, queues, layout, sweep_ms, max_attempts });
        let (store, limits, queues, log) = (self.store, self.limits, self.queues, self.log);
        let sinks = self.made_sinks;
        let schedules = self.schedules.into_iter().map(|draft| draft.schedule).collect();
        let configuration = Configuration { store, limits, server, queues, redisson, sinks, schedules, log };
        Loaded { configuration, shown, warnings }
    }
}

impl QueueConfig {
    fn names(&self, name: &str) -> bool {
        self.settings.iter().any(|setting| setting.name().as_str() == name)
    }

    fn over(&self, limits: &Limits) -> dwell_model::Settings {
        let mut own = dwell_model::OwnSettings::default();
        for setting in &self.settings {
            own.change(dwell_model::SettingChange::Set(setting.clone()));
        }
        own.over(&limits.defaults)
    }
}

/// Settings by the names that HTTP uses.
fn settings_shown(settings: &dwell_model::Settings) -> Vec<(&'static str, ShownValue)> {
    let json = serde_json::to_value(QueueSettings::from(settings)).unwrap_or_default();
    let value = |name: &str| match json.get(name)? {
        serde_json::Value::Null => None,
        serde_json::Value::String(text) => Some(ShownValue::Text(text.clone())),
        serde_json::Value::Number(number) => number.as_u64().map(ShownValue::Integer),
        serde_json::Value::Array(items) => {
            Some(ShownValue::Texts(items.iter().filter_map(|item| Some(item.as_str()?.to_owned())).collect()))
        }
        serde_json::Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("{name} = {value}"));
            Some(ShownValue::Table(fields.collect()))
        }
        serde_json::Value::Bool(boolean) => Some(ShownValue::Boolean(*boolean)),
    };
    SettingName::ALL.iter().filter_map(|name| Some((name.as_str(), value(name.as_str())?))).collect()
}

impl Loaded {
    /// Reads everything that `layers` names, certificates included.
    ///
    /// # Errors
    /// Every error that was found, those of the file by their lines.
    pub fn load(layers: &Layers) -> Result<Loaded, Vec<ConfigError>> {
        let text = layers.file.as_deref().map(read_file).transpose().map_err(|error| vec![error])?;
        let document =
            layers.file.as_deref().zip(text.as_deref()).map(|(file, text)| Document { file, text });
        let files = Files { tls: Tls::load, secret: Secret::load, pem: |path| std::fs::read(path) };
        load(document, layers, &files)
    }

    /// The keys whose values differ from those of `running` and cannot change while a server runs.
    pub fn held_back(&self, running: &Loaded) -> Vec<String> {
        let fixed = |loaded: &Loaded| -> BTreeMap<String, ShownValue> {
            let fixed = loaded.shown.iter().filter(|shown| !shown.reloads);
            fixed.map(|shown| (shown.key.clone(), shown.value.clone())).collect()
        };
        let (now, then) = (fixed(self), fixed(running));
        let mut changed: Vec<String> =
            now.keys().chain(then.keys()).filter(|key| now.get(*key) != then.get(*key)).cloned().collect();
        let has_tls = |loaded: &Loaded| loaded.configuration.server.http.tls.is_some();
        if has_tls(self) != has_tls(running) {
            changed.push("tls".to_owned());
        }
        // The displayed value is not the whole value: a password may have changed.
        let (now, then) = (&self.configuration, &running.configuration);
        if now.store.kind != then.store.kind {
            changed.push("store.url".to_owned());
        }
        let redis = |configuration: &Configuration| {
            configuration.redisson.as_ref().map(|redisson| redisson.redis.clone())
        };
        if redis(now) != redis(then) {
            changed.push("redisson.url".to_owned());
        }
        changed.sort();
        changed.dedup();
        changed
    }
}

/// Reads the text of a configuration file alone; certificates are not read.
#[cfg(feature = "fuzzing")]
pub(crate) fn read_text(text: &str, file: &Path) -> Result<Loaded, Vec<ConfigError>> {
    use crate::security::TlsError;

    let untouched = Files {
        tls: |files| {
            let source = std::io::ErrorKind::NotFound.into();
            Err(TlsError::Unreadable { file: files.certificate.clone(), source })
        },
        secret: |_| Secret::parse(""),
        pem: |_| Err(std::io::ErrorKind::NotFound.into()),
    };
    load(Some(Document { file, text }), &Layers::default(), &untouched)
}

fn load(document: Option<Document<'_>>, layers: &Layers, files: &Files) -> Result<Loaded, Vec<ConfigError>> {
    let mut draft = Draft::default();
    let mut errors = Vec::new();
    if let Some(document) = document {
        document::read(document, &mut draft, &mut errors);
    }
    let warnings = draft.read_environment(&layers.environment, &mut errors);
    for (path, texts) in &layers.flags {
        let origin = key(path).expect("the caller names a key that is in the list").flag_origin();
        draft.set(path, texts, origin, &mut errors);
    }
    check::check(&mut draft, files, &mut errors);
    if errors.is_empty() {
        return Ok(draft.finish(warnings));
    }
    errors.sort_by(|one, other| one.origin.cmp(&other.origin));
    Err(errors)
}

fn read_file(file: &Path) -> Result<String, ConfigError> {
    let origin = Origin::File { file: file.to_owned(), line: 1, column: 1 };
    let unreadable = |reason: &dyn std::fmt::Display| {
        let detail = format!("the configuration cannot be read: {reason}");
        ConfigError::new(ConfigErrorKind::Unreadable, &origin, detail)
    };
    let length = std::fs::metadata(file).map_err(|error| unreadable(&error))?.len();
    if length > MAX_FILE_BYTES {
        return Err(unreadable(&"it has more than 16 MiB, which no configuration has"));
    }
    let bytes = std::fs::read(file).map_err(|error| unreadable(&error))?;
    String::from_utf8(bytes).map_err(|error| {
        let valid =
            String::from_utf8_lossy(&error.as_bytes()[..error.utf8_error().valid_up_to()]).into_owned();
        let at = Document { file, text: &valid }.origin(valid.len()..valid.len());
        ConfigError::new(ConfigErrorKind::Malformed, &at, "this is not UTF-8; save the file as UTF-8")
    })
}

//! `[[sinks]]`: what forwards messages, from which queues, and to which destination.
//!
//! Each key is read separately, so that an error has its line. [`check`] then checks them together: incomplete pairs,
//! contradictions, and what has to be read from files.

use std::collections::BTreeMap;
use std::path::PathBuf;

use dwell_delivery::sinks::webhook::{Network, Webhook};
use dwell_delivery::{Ladder, Lane, Switch};
use dwell_model::{QueueName, Setting, format_duration_ms};
use toml::Spanned;
use toml::de::DeValue;

use super::check::Files;
use super::document::{Document, texts_of, wrong_type};
use super::error::{ConfigError, ConfigErrorKind, Origin};
use super::keys::{Form, Given, ShownValue};
use super::layers::Draft;
use super::suggest::did_you_mean;
use super::values;
use crate::delivery::{LaneConfig, SinkConfig, SinkKind, WebhookConfig, WebhookGoal, without_path};

/// A sink, as far as it was read.
#[derive(Clone, Debug)]
pub(super) struct SinkDraft {
    /// Where its table begins.
    origin: Origin,
    /// Its keys as displayed, with their origins.
    said: Vec<(&'static str, ShownValue, Origin)>,
    name: Option<String>,
    queues: Vec<QueueName>,
    /// Its kind, if that is known.
    kind: Option<Kind>,
    url: Option<String>,
    url_header: Option<String>,
    hosts: Vec<String>,
    allow: Vec<Network>,
    secrets: Vec<String>,
    ca: Option<PathBuf>,
    timeout_ms: u64,
    lane: LaneConfig,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Webhook,
}

/// All keys, and what TOML calls their values.
const KEYS: [(&str, Form); 16] = [
    ("name", Form::Text),
    ("queues", Form::Texts),
    ("kind", Form::Text),
    ("url", Form::Text),
    ("url_header", Form::Text),
    ("hosts", Form::Texts),
    ("allow", Form::Texts),
    ("secrets", Form::Texts),
    ("ca", Form::Text),
    ("timeout", Form::Text),
    ("concurrency", Form::Integer),
    ("rate", Form::Integer),
    ("bytes_in_flight", Form::Size),
    ("order", Form::Text),
    ("retry", Form::Texts),
    ("lease", Form::Text),
];

/// Why a value is refused.
pub(super) struct Refused(pub(super) ConfigErrorKind, pub(super) String);

impl From<String> for Refused {
    fn from(detail: String) -> Refused {
        Refused(ConfigErrorKind::InvalidValue, detail)
    }
}

impl From<&str> for Refused {
    fn from(detail: &str) -> Refused {
        detail.to_owned().into()
    }
}

impl From<dwell_delivery::Error> for Refused {
    fn from(error: dwell_delivery::Error) -> Refused {
        match error {
            // A value that every store refuses.
            dwell_delivery::Error::Store(error) => error.to_string().into(),
            error => Refused(ConfigErrorKind::Delivery(error.code()), error.to_string()),
        }
    }
}

impl SinkDraft {
    fn new(origin: Origin) -> SinkDraft {
        SinkDraft {
            origin,
            said: Vec::new(),
            name: None,
            queues: Vec::new(),
            kind: None,
            url: None,
            url_header: None,
            hosts: Vec::new(),
            allow: Vec::new(),
            secrets: Vec::new(),
            ca: None,
            timeout_ms: u64::try_from(Webhook::TIMEOUT.as_millis()).unwrap_or(u64::MAX),
            lane: LaneConfig::default(),
        }
    }

    /// Where a key was set; the beginning of the table, if it was not.
    fn origin_of(&self, key: &str) -> &Origin {
        self.said.iter().find(|(said, ..)| *said == key).map_or(&self.origin, |(_, _, origin)| origin)
    }

    /// Its keys as displayed.
    pub(super) fn shown(&self) -> impl Iterator<Item = (String, ShownValue, Origin)> {
        let name = self.name.as_deref().unwrap_or_default();
        let others = self.said.iter().filter(|(key, ..)| *key != "name");
        others.map(move |(key, value, origin)| {
            (format!("sinks.\"{name}\".{key}"), value.clone(), origin.clone())
        })
    }

    fn set(&mut self, key: &str, given: &Given<'_>) -> Result<(), Refused> {
        match key {
            "name" => self.name = Some(name(given.one())?),
            "queues" => {
                self.queues = given.texts.iter().map(|text| queue(text)).collect::<Result<_, Refused>>()?;
            }
            "kind" => {
                self.kind = match given.one() {
                    "webhook" => Some(Kind::Webhook),
                    other => {
                        let detail =
                            format!("there is no kind '{other:.40}'; this version knows \"webhook\"");
                        return Err(detail.into());
                    }
                }
            }
            "url" => self.url = Some(given.one().to_owned()),
            "url_header" => self.url_header = Some(given.one().to_owned()),
            "hosts" => self.hosts = given.texts.to_vec(),
            "allow" => {
                self.allow =
                    given.texts.iter().map(|text| text.parse::<Network>()).collect::<Result<_, _>>()?;
            }
            "secrets" => self.secrets = given.texts.iter().map(|text| in_folder(text, given)).collect(),
            "ca" => self.ca = Some(values::path(given)?),
            "timeout" => {
                self.timeout_ms = values::duration_ms(given)?;
                if u128::from(self.timeout_ms) > Webhook::MAX_TIMEOUT.as_millis() {
                    return Err(format!("this is up to {} s", Webhook::MAX_TIMEOUT.as_secs()).into());
                }
            }
            "concurrency" => {
                self.lane.concurrency = values::count(given)?;
                if self.lane.concurrency > Lane::MAX_CONCURRENCY {
                    return Err(format!("this is at most {}", Lane::MAX_CONCURRENCY).into());
                }
            }
            "rate" => {
                let rate = values::count(given)?;
                self.lane.rate =
                    Some(u32::try_from(rate).map_err(|_| "this is at most 4294967295 a second")?);
            }
            "bytes_in_flight" => {
                let bytes = values::some_bytes(given)?;
                self.lane.bytes_in_flight = Some(usize::try_from(bytes).unwrap_or(usize::MAX));
            }
            "order" => {
                self.lane.is_strict = match given.one() {
                    "strict" => true,
                    "any" => false,
                    _ => return Err("this is \"any\", or \"strict\" for one after the other".into()),
                }
            }
            "retry" => self.lane.retry = Some(Ladder::parse(given.texts.iter().map(String::as_str))?),
            "lease" => {
                self.lane.lease_ms = values::duration_ms(given)?;
                if !(Lane::MIN_LEASE_MS..=Setting::MAX_LEASE_MS).contains(&self.lane.lease_ms) {
                    let (least, most) = (Lane::MIN_LEASE_MS, Setting::MAX_LEASE_MS);
                    let (least, most) = (format_duration_ms(least), format_duration_ms(most));
                    return Err(format!("this is {least} to {most}").into());
                }
            }
            _ => unreachable!("each key has its arm; a test reads all"),
        }
        Ok(())
    }

    /// What is missing, and what contradicts; empty if the sink can be built.
    fn halves(&self) -> Vec<(ConfigErrorKind, Origin, String)> {
        let mut wrong = Vec::new();
        let mut missing = Vec::new();
        missing.extend(self.name.is_none().then_some("a 'name' to call it by"));
        missing.extend(self.queues.is_empty().then_some("the 'queues' that it takes from"));
        missing.extend(self.kind.is_none().then_some("its 'kind': \"webhook\""));
        let mut add =
            |kind, key: &str, detail: String| wrong.push((kind, self.origin_of(key).clone(), detail));
        match (&self.url, &self.url_header) {
            (None, None) => missing.push("a 'url', or the 'url_header' that messages name theirs in"),
            (Some(_), Some(_)) => {
                let detail = "either 'url', or 'url_header' for messages that name their own; not both";
                add(ConfigErrorKind::Conflict, "url_header", detail.to_owned());
            }
            (Some(_), None) => {
                for (key, is_said) in [("hosts", !self.hosts.is_empty()), ("allow", !self.allow.is_empty())] {
                    if is_said {
                        let detail =
                            format!("'{key}' is for URLs that come with messages; 'url' may lead anywhere");
                        add(ConfigErrorKind::Conflict, key, detail);
                    }
                }
            }
            (None, Some(_)) if self.hosts.is_empty() => {
                missing.push("the 'hosts' that messages may name; [\"*\"] for any public one");
            }
            (None, Some(_)) => {}
        }
        if !missing.is_empty() {
            let detail = format!("this sink needs {}", missing.join(", and "));
            wrong.push((ConfigErrorKind::Incomplete, self.origin.clone(), detail));
        }
        wrong
    }

    /// The sink's configuration, with what it reads from files.
    fn config(&self, files: &Files) -> Result<SinkConfig, (Origin, Refused)> {
        let at = |key: &str| self.origin_of(key).clone();
        let secret =
            |source: &String| (files.secret)(source).map_err(|error| (at("secrets"), Refused::from(error)));
        let secrets = self.secrets.iter().map(secret).collect::<Result<_, (Origin, Refused)>>()?;
        let ca = match &self.ca {
            None => None,
            Some(path) => Some((files.pem)(path).map_err(|error| {
                (
                    at("ca"),
                    Refused::from(format!("ca: {:.300} cannot be read: {error}", path.to_string_lossy())),
                )
            })?),
        };
        let goal = match (&self.url, &self.url_header) {
            (Some(url), _) => WebhookGoal::Url(url.clone()),
            (None, name) => WebhookGoal::Header {
                name: name.clone().unwrap_or_default(),
                hosts: self.hosts.clone(),
                allow: self.allow.clone(),
            },
        };
        let webhook = WebhookConfig { goal, secrets, ca, timeout_ms: self.timeout_ms };
        // It is built again when it starts. Here the build only checks it.
        webhook.build(&Switch::new()).map_err(|error| (at(webhook.culprit()), Refused::from(error)))?;
        Ok(SinkConfig {
            name: self.name.clone().unwrap_or_default(),
            queues: self.queues.clone(),
            kind: SinkKind::Webhook(webhook),
            lane: self.lane.clone(),
        })
    }
}

/// A name that can be a path segment: one that is valid for a queue.
pub(super) fn name(text: &str) -> Result<String, Refused> {
    match QueueName::new(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err("a name has 1 to 200 of A-Za-z0-9-+/;.$_():@, and does not begin with '-'".into()),
    }
}

/// A queue that is not reserved.
fn queue(text: &str) -> Result<QueueName, Refused> {
    let queue = QueueName::new(text).map_err(|invalid| invalid.to_string())?;
    if queue.is_reserved() {
        return Err(dwell_delivery::Error::ReservedQueue { queue }.into());
    }
    Ok(queue)
}

/// A secret's source; a file is relative to the configuration's folder.
fn in_folder(source: &str, given: &Given<'_>) -> String {
    match source.strip_prefix("file:") {
        Some(path) => format!("file:{}", given.folder.join(path).display()),
        None => source.to_owned(),
    }
}

/// A value as displayed: without what may be a secret.
fn shown(key: &str, form: Form, texts: &[String]) -> ShownValue {
    let is_source = |text: &String| text.starts_with("file:") || text.starts_with("env:");
    match (key, form) {
        ("url", _) => ShownValue::Text(without_path(&texts.concat())),
        ("secrets", _) => ShownValue::Texts(
            texts.iter().map(|text| if is_source(text) { text.clone() } else { "…".to_owned() }).collect(),
        ),
        (_, Form::Texts) => ShownValue::Texts(texts.to_vec()),
        (_, Form::Integer) => {
            let text = texts.concat();
            text.parse().map_or(ShownValue::Text(text), ShownValue::Integer)
        }
        _ => ShownValue::Text(texts.concat()),
    }
}

/// Reads all tables into the draft.
pub(super) fn read(
    document: Document<'_>,
    value: &Spanned<DeValue<'_>>,
    draft: &mut Draft,
    errors: &mut Vec<ConfigError>,
) {
    let DeValue::Array(sinks) = value.get_ref() else {
        draft.refused("sinks");
        errors.push(wrong_type(document, value.span(), "sinks", "tables [[sinks]]", value.get_ref()));
        return;
    };
    for sink in sinks.iter() {
        let DeValue::Table(table) = sink.get_ref() else {
            draft.refused("sinks");
            errors.push(wrong_type(document, sink.span(), "sinks", "tables [[sinks]]", sink.get_ref()));
            continue;
        };
        let mut read = SinkDraft::new(document.origin(sink.span()));
        let known = errors.len();
        for (name, value) in table {
            if let Err(error) = read_key(document, name, value, &mut read) {
                errors.push(error);
            }
        }
        // A key that is present and invalid is not reported as missing too.
        if errors.len() == known {
            draft.sinks.push(read);
        } else {
            draft.refused("sinks");
        }
    }
}

fn read_key(
    document: Document<'_>,
    name: &Spanned<toml::de::DeString<'_>>,
    value: &Spanned<DeValue<'_>>,
    sink: &mut SinkDraft,
) -> Result<(), ConfigError> {
    let given = name.get_ref().as_ref();
    let Some((key, form)) = KEYS.into_iter().find(|(key, _)| *key == given) else {
        let meant = did_you_mean(given, KEYS.map(|(key, _)| key));
        let detail = format!("there is no key '{given:.100}' in [[sinks]]{meant}");
        return Err(document.error(ConfigErrorKind::UnknownKey, name.span(), detail));
    };
    let texts = texts_of(document, value, key, form)?;
    let folder = document.folder();
    let set = sink.set(key, &Given { texts: &texts, folder: &folder });
    set.map_err(|Refused(kind, detail)| document.error(kind, value.span(), format!("{key}: {detail}")))?;
    sink.said.push((key, shown(key, form, &texts), document.origin(value.span())));
    Ok(())
}

/// Checks the sinks together.
pub(super) fn check(draft: &mut Draft, files: &Files, errors: &mut Vec<ConfigError>) {
    let mut names: BTreeMap<String, Origin> = BTreeMap::new();
    let mut queues: BTreeMap<QueueName, String> = BTreeMap::new();
    let mut made = Vec::new();
    for sink in &draft.sinks {
        let halves = sink.halves();
        if !halves.is_empty() {
            errors.extend(
                halves.into_iter().map(|(kind, origin, detail)| ConfigError::new(kind, &origin, detail)),
            );
            continue;
        }
        let name = sink.name.clone().unwrap_or_default();
        let mut conflict = |key: &str, detail: String| {
            errors.push(ConfigError::new(ConfigErrorKind::Conflict, sink.origin_of(key), detail));
        };
        if let Some(first) = names.insert(name.clone(), sink.origin.clone()) {
            conflict(
                "name",
                format!("there is a sink '{name}' already, at {first}; give each a name of its own"),
            );
        }
        for queue in &sink.queues {
            if let Some(other) = queues.insert(queue.clone(), name.clone()) {
                let detail = if other == name {
                    format!("queue '{queue}' is named twice")
                } else {
                    format!(
                        "sink '{other}' takes from queue '{queue}' already; a message goes to one of them, so name it in one"
                    )
                };
                conflict("queues", detail);
            }
        }
        match sink.config(files) {
            Ok(config) => made.push(config),
            Err((origin, Refused(kind, detail))) => errors.push(ConfigError::new(kind, &origin, detail)),
        }
    }
    draft.made_sinks = made;
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_key_is_read_and_a_url_is_shown_without_its_path() {
        let mut sink = SinkDraft::new(Origin::Default);
        for (key, texts) in [
            ("name", &["s"][..]),
            ("queues", &["a", "b"]),
            ("kind", &["webhook"]),
            ("url", &["https://h.example/hush?hush"]),
            ("url_header", &["x"]),
            ("hosts", &["*"]),
            ("allow", &["10.0.0.0/8"]),
            ("secrets", &["file:s", "env:S"]),
            ("ca", &["ca.pem"]),
            ("timeout", &["5s"]),
            ("concurrency", &["7"]),
            ("rate", &["9"]),
            ("bytes_in_flight", &["1MiB"]),
            ("order", &["strict"]),
            ("retry", &["1s", "2s"]),
            ("lease", &["1m"]),
        ] {
            let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
            let given = Given { texts: &texts, folder: Path::new("/etc/dwell") };
            if let Err(Refused(_, detail)) = sink.set(key, &given) {
                panic!("{key}: {detail}");
            }
        }
        let expected = LaneConfig {
            concurrency: 7,
            rate: Some(9),
            bytes_in_flight: Some(1 << 20),
            is_strict: true,
            retry: Some(Ladder::parse(["1s", "2s"]).unwrap()),
            lease_ms: 60_000,
        };
        assert_eq!(sink.lane, expected);
        assert_eq!(sink.secrets, ["file:/etc/dwell/s", "env:S"]);
        assert_eq!(sink.ca.as_deref(), Some(Path::new("/etc/dwell/ca.pem")));
        assert_eq!(without_path(sink.url.as_deref().unwrap()), "https://h.example/…");
        let debug = format!("{:?}", WebhookGoal::Url("https://u:hush@h.example/hush".into()));
        assert!(!debug.contains("hush"), "{debug}");
    }
}

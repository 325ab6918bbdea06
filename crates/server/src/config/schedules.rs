//! `[[schedules]]`: what is put repeatedly.

use std::collections::BTreeMap;

use dwell_delivery::schedule::{Dialect, Schedule, Times};
use dwell_model::{Headers, Timestamp, format_duration_ms, parse_duration_ms};
use toml::Spanned;
use toml::de::DeValue;

use super::document::{Document, texts_of, wrong_type};
use super::error::{ConfigError, ConfigErrorKind, Origin};
use super::keys::{Form, ShownValue};
use super::layers::Draft;
use super::sinks::{self, Refused};
use super::suggest::did_you_mean;
use crate::delivery::{Definition, Undefined, word};

/// A schedule that was read, with its origin.
#[derive(Clone, Debug)]
pub(super) struct ScheduleDraft {
    pub(super) schedule: Schedule,
    origin: Origin,
}

/// All keys but `headers`, which is a table, and what TOML calls their values.
const KEYS: [(&str, Form); 11] = [
    ("name", Form::Text),
    ("queue", Form::Text),
    ("cron", Form::Text),
    ("dialect", Form::Text),
    ("zone", Form::Text),
    ("every", Form::Text),
    ("body", Form::Text),
    ("missed", Form::Text),
    ("overlap", Form::Text),
    ("jitter", Form::Text),
    ("headers", Form::Text),
];

/// A table, as far as it was read.
struct Table {
    origin: Origin,
    origins: BTreeMap<&'static str, Origin>,
    name: Option<String>,
    definition: Definition,
}

impl ScheduleDraft {
    /// Its keys and values as displayed.
    pub(super) fn shown(&self) -> impl Iterator<Item = (String, ShownValue, Origin)> {
        let schedule = &self.schedule;
        let text = |text: &str| ShownValue::Text(text.to_owned());
        let mut values = vec![("queue", text(schedule.queue().as_str()))];
        match schedule.times() {
            Times::Cron { cron, zone_name, .. } => {
                values.push(("cron", text(cron.as_str())));
                values.extend(cron.dialect().map(|dialect| ("dialect", text(dialect.as_str()))));
                values.push(("zone", text(zone_name)));
            }
            Times::Every(every) => {
                values.push(("every", ShownValue::Text(format_duration_ms(every.as_ms()))))
            }
        }
        values.push(("missed", text(schedule.on_missed().as_str())));
        values.push(("overlap", text(schedule.on_overlap().as_str())));
        values.push(("jitter", ShownValue::Text(format_duration_ms(schedule.longest_jitter_ms()))));
        values.into_iter().map(move |(key, value)| {
            (format!("schedules.\"{}\".{key}", schedule.name()), value, self.origin.clone())
        })
    }
}

/// Reads all tables into the draft.
pub(super) fn read(
    document: Document<'_>,
    value: &Spanned<DeValue<'_>>,
    draft: &mut Draft,
    errors: &mut Vec<ConfigError>,
) {
    let DeValue::Array(schedules) = value.get_ref() else {
        draft.refused("schedules");
        errors.push(wrong_type(document, value.span(), "schedules", "tables [[schedules]]", value.get_ref()));
        return;
    };
    for schedule in schedules.iter() {
        let DeValue::Table(table) = schedule.get_ref() else {
            let error = wrong_type(
                document,
                schedule.span(),
                "schedules",
                "tables [[schedules]]",
                schedule.get_ref(),
            );
            draft.refused("schedules");
            errors.push(error);
            continue;
        };
        let mut read = Table {
            origin: document.origin(schedule.span()),
            origins: BTreeMap::new(),
            name: None,
            definition: Definition::default(),
        };
        let known = errors.len();
        for (name, value) in table {
            if let Err(error) = read_key(document, name, value, &mut read) {
                errors.push(error);
            }
        }
        // A key that is present and invalid is not reported as missing too.
        if errors.len() == known {
            match read.finish() {
                Ok(made) => add(made, draft, errors),
                Err(error) => errors.push(error),
            }
        }
        if errors.len() > known {
            draft.refused("schedules");
        }
    }
}

fn read_key(
    document: Document<'_>,
    name: &Spanned<toml::de::DeString<'_>>,
    value: &Spanned<DeValue<'_>>,
    table: &mut Table,
) -> Result<(), ConfigError> {
    let given = name.get_ref().as_ref();
    let Some((key, form)) = KEYS.into_iter().find(|(key, _)| *key == given) else {
        let meant = did_you_mean(given, KEYS.map(|(key, _)| key));
        let detail = format!("there is no key '{given:.100}' in [[schedules]]{meant}");
        return Err(document.error(ConfigErrorKind::UnknownKey, name.span(), detail));
    };
    let set = if key == "headers" {
        headers(document, value)?.map(|headers| table.definition.headers = headers)
    } else {
        table.set(key, texts_of(document, value, key, form)?.concat())
    };
    set.map_err(|Refused(kind, detail)| document.error(kind, value.span(), format!("{key}: {detail}")))?;
    table.origins.insert(key, document.origin(value.span()));
    Ok(())
}

/// A table of texts, as the headers of a message.
fn headers(
    document: Document<'_>,
    value: &Spanned<DeValue<'_>>,
) -> Result<Result<Headers, Refused>, ConfigError> {
    let DeValue::Table(table) = value.get_ref() else {
        return Err(wrong_type(document, value.span(), "headers", "a table of texts", value.get_ref()));
    };
    let mut pairs = Vec::new();
    for (name, value) in table {
        let text = texts_of(document, value, "a header", Form::Text)?.concat();
        pairs.push((name.get_ref().to_string(), text));
    }
    let headers = Headers::new(pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    Ok(headers.map_err(|invalid| invalid.to_string().into()))
}

impl Table {
    fn set(&mut self, key: &str, text: String) -> Result<(), Refused> {
        let duration = |text: &str| parse_duration_ms(text).map_err(|invalid| invalid.to_string());
        let definition = &mut self.definition;
        match key {
            "name" => self.name = Some(sinks::name(&text)?),
            "queue" => definition.queue = Some(text),
            "cron" => definition.cron = Some(text),
            "dialect" => {
                let all = [Dialect::Unix, Dialect::Spring, Dialect::Quartz];
                definition.dialect = Some(word(&text, &all, Dialect::as_str)?);
            }
            "zone" => definition.zone = Some(text),
            "every" => definition.every_ms = Some(duration(&text)?),
            "body" => definition.body = text.into(),
            "missed" => definition.missed(&text)?,
            "overlap" => definition.overlap(&text)?,
            "jitter" => definition.jitter_ms = duration(&text)?,
            _ => unreachable!("each key has its arm; a test reads all"),
        }
        Ok(())
    }

    /// The schedule, if it is complete and can ever fire.
    fn finish(self) -> Result<ScheduleDraft, ConfigError> {
        let Table { origin, origins, name, definition } = self;
        let Some(name) = name else {
            let detail = "this schedule needs a 'name' to call it by";
            return Err(ConfigError::new(ConfigErrorKind::Incomplete, &origin, detail));
        };
        let at = |key: &str| origins.get(key).unwrap_or(&origin).clone();
        // Checked from the epoch on: whether the last instant has passed is checked when the schedule is defined, and
        // is not an error of the file.
        let made = definition.schedule(&name).and_then(|schedule| {
            schedule.check(Timestamp::MIN)?;
            Ok(schedule)
        });
        match made {
            Ok(schedule) => Ok(ScheduleDraft { schedule, origin }),
            Err(Undefined::Missing(what)) => {
                let detail = format!("schedule '{name}' needs {what}");
                Err(ConfigError::new(ConfigErrorKind::Incomplete, &origin, detail))
            }
            Err(Undefined::Conflict(key, what)) => {
                Err(ConfigError::new(ConfigErrorKind::Conflict, &at(key), what))
            }
            Err(Undefined::Refused(error)) => {
                let origin = match error.code() {
                    "malformed_cron" | "ambiguous_dialect" | "cron_never_fires" => at("cron"),
                    "unknown_zone" => at("zone"),
                    "queue_reserved" | "invalid_queue_name" => at("queue"),
                    _ => origin.clone(),
                };
                let Refused(kind, detail) = error.into();
                Err(ConfigError::new(kind, &origin, detail))
            }
        }
    }
}

/// Refuses what a store with these limits cannot keep. They are known when all keys are.
pub(super) fn check(draft: &Draft, errors: &mut Vec<ConfigError>) {
    if draft.is_wrong("limits.body") {
        return;
    }
    for ScheduleDraft { schedule, origin } in &draft.schedules {
        if let Err(error) = schedule.check_size(&draft.limits) {
            let Refused(kind, detail) = error.into();
            let detail = format!("schedule '{}': {detail}", schedule.name());
            errors.push(ConfigError::new(kind, origin, detail));
        }
    }
}

fn add(made: ScheduleDraft, draft: &mut Draft, errors: &mut Vec<ConfigError>) {
    let name = made.schedule.name();
    let first = draft.schedules.iter().find(|known| known.schedule.name() == name);
    if let Some(first) = first {
        let detail =
            format!("there is a schedule '{name}' already, at {}; give each a name of its own", first.origin);
        errors.push(ConfigError::new(ConfigErrorKind::Conflict, &made.origin, detail));
        return;
    }
    draft.schedules.push(made);
}

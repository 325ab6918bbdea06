//! Reads a `dwell.toml`: sections of keys, and the tables of queues and tokens. All mistakes are collected, each
//! with its line.

use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{ConfigError, ConfigErrorKind, Origin};
use super::keys::{ConfigKey, Form, Given, KEYS, key};
use super::layers::Draft;
use super::suggest::{did_you_mean, nearest};
use super::{schedules, sinks, tables};

/// A file and its text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Document<'a> {
    pub(super) file: &'a Path,
    pub(super) text: &'a str,
}

impl Document<'_> {
    /// The position in the file at which the bytes of `span` begin.
    pub(super) fn origin(&self, span: Range<usize>) -> Origin {
        let mut at = span.start.min(self.text.len());
        while !self.text.is_char_boundary(at) {
            at -= 1;
        }
        let before = &self.text[..at];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Origin::File { file: self.file.to_owned(), line, column }
    }

    /// The folder that relative paths in the file are resolved against.
    pub(super) fn folder(&self) -> PathBuf {
        self.file.parent().unwrap_or(Path::new("")).to_owned()
    }

    /// An error about the text at `span`.
    pub(super) fn error(
        &self,
        kind: ConfigErrorKind,
        span: Range<usize>,
        detail: impl std::fmt::Display,
    ) -> ConfigError {
        ConfigError::new(kind, &self.origin(span), detail)
    }
}

/// The tables that are not sections of keys.
const TABLES: [&str; 5] = ["defaults", "queues", "tokens", "sinks", "schedules"];

/// Reads all of it into `draft`.
pub(super) fn read(document: Document<'_>, draft: &mut Draft, errors: &mut Vec<ConfigError>) {
    let root = match DeTable::parse(document.text) {
        Ok(root) => root,
        Err(error) => {
            // The parser's message without the line that it quotes, which may hold a secret.
            let said = error.message().lines().collect::<Vec<&str>>().join(", ");
            let detail = format!("this is no TOML: {said:.300}");
            errors.push(document.error(ConfigErrorKind::Malformed, error.span().unwrap_or(0..0), detail));
            draft.refused("");
            return;
        }
    };
    let root = root.get_ref();
    // Queues override the defaults, in whatever order the tables stand.
    if let Some(defaults) = root.get("defaults") {
        tables::defaults(document, defaults, draft, errors);
    }
    for (name, value) in root {
        let span = name.span();
        match name.get_ref().as_ref() {
            "defaults" => {}
            "queues" => tables::queues(document, value, draft, errors),
            "tokens" => tables::tokens(document, value, draft, errors),
            "sinks" => sinks::read(document, value, draft, errors),
            "schedules" => schedules::read(document, value, draft, errors),
            section if KEYS.iter().any(|key| key.section() == section) => match value.get_ref() {
                DeValue::Table(table) => read_section(document, section, table, draft, errors),
                other => {
                    draft.refused(section);
                    errors.push(wrong_type(document, value.span(), section, "a table", other));
                }
            },
            unknown => {
                draft.refused(meant(unknown).unwrap_or(unknown));
                let detail = format!("there is no key '{unknown:.100}'{}", elsewhere(unknown));
                errors.push(document.error(ConfigErrorKind::UnknownKey, span, detail));
            }
        }
    }
}

/// The section or table that a mistyped name was probably meant to be.
fn meant(unknown: &str) -> Option<&'static str> {
    nearest(unknown, KEYS.iter().map(ConfigKey::section).chain(TABLES))
}

/// A suggestion for a name at the top level that belongs elsewhere or is mistyped.
fn elsewhere(unknown: &str) -> String {
    if let Some(name) = meant(unknown) {
        return format!("; did you mean '{name}'?");
    }
    match KEYS.iter().find(|key| key.name() == unknown) {
        Some(key) => format!("; did you mean '{}', in the table [{}]?", key.name(), key.section()),
        None => String::new(),
    }
}

fn read_section(
    document: Document<'_>,
    section: &str,
    table: &DeTable<'_>,
    draft: &mut Draft,
    errors: &mut Vec<ConfigError>,
) {
    let folder = document.folder();
    for (name, value) in table {
        let path = format!("{section}.{}", name.get_ref());
        let Some(key) = key(&path) else {
            let names = KEYS.iter().filter(|key| key.section() == section).map(ConfigKey::name);
            let meant = did_you_mean(name.get_ref(), names);
            let detail = format!("there is no key '{:.100}' in [{section}]{meant}", name.get_ref());
            draft.refused(&path);
            errors.push(document.error(ConfigErrorKind::UnknownKey, name.span(), detail));
            continue;
        };
        let set = texts_of(document, value, key.path, key.form).and_then(|texts| {
            let set = (key.set)(draft, &Given { texts: &texts, folder: &folder });
            set.map_err(|detail| {
                let detail = format!("{}: {detail}", key.path);
                document.error(ConfigErrorKind::InvalidValue, value.span(), detail)
            })
        });
        match set {
            Ok(()) => draft.said(key.path, document.origin(value.span())),
            Err(error) => {
                draft.refused(key.path);
                errors.push(error);
            }
        }
    }
}

/// A value as texts, if it has the expected form.
pub(super) fn texts_of(
    document: Document<'_>,
    value: &Spanned<DeValue<'_>>,
    path: &str,
    form: Form,
) -> Result<Vec<String>, ConfigError> {
    let wrong = |expected: &str| Err(wrong_type(document, value.span(), path, expected, value.get_ref()));
    match (form, value.get_ref()) {
        (Form::Text | Form::Size, DeValue::String(text)) => Ok(vec![text.to_string()]),
        (Form::Integer | Form::Size, DeValue::Integer(number)) => {
            // In any base. A number that is too large is left to the key's own parser, which says what is allowed.
            let number = u64::from_str_radix(number.as_str(), number.radix());
            Ok(vec![number.map_or_else(|_| "out of range".to_owned(), |number| number.to_string())])
        }
        (Form::Boolean, DeValue::Boolean(boolean)) => Ok(vec![boolean.to_string()]),
        (Form::Texts, DeValue::Array(array)) => array
            .iter()
            .map(|item| match item.get_ref() {
                DeValue::String(text) => Ok(text.to_string()),
                other => Err(wrong_type(document, item.span(), path, "text in quotes", other)),
            })
            .collect(),
        (Form::Text, _) => wrong("text in quotes"),
        (Form::Integer, _) => wrong("a whole number without quotes"),
        (Form::Size, _) => wrong("a size such as \"1MiB\", or a whole number of bytes"),
        (Form::Boolean, _) => wrong("true or false, without quotes"),
        (Form::Texts, _) => wrong("an array of texts, such as [\"a\", \"b\"]"),
    }
}

/// The error for a value of the wrong type. The value itself is not repeated.
pub(super) fn wrong_type(
    document: Document<'_>,
    span: Range<usize>,
    path: &str,
    expected: &str,
    found: &DeValue<'_>,
) -> ConfigError {
    let detail = format!("{path:.300} is {expected}; this is {}", found.type_str());
    document.error(ConfigErrorKind::WrongType, span, detail)
}

//! The tables of a `dwell.toml` that are not sections of keys: queues with their settings, and tokens.

use dwell_model::{OwnSettings, QueueName, Setting, SettingChange, SettingName, Settings};
use serde_json::Value as Json;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::document::{Document, texts_of, wrong_type};
use super::error::{ConfigError, ConfigErrorKind};
use super::keys::Form;
use super::layers::{Draft, QueueConfig, TokenDraft};
use super::suggest::did_you_mean;
use crate::json::{SettingsIn, object};
use crate::security::{Scope, TokenDigest};

/// `[defaults]`: the settings of queues that have none of their own.
pub(super) fn defaults(
    document: Document<'_>,
    value: &Spanned<DeValue<'_>>,
    draft: &mut Draft,
    errors: &mut Vec<ConfigError>,
) {
    let DeValue::Table(table) = value.get_ref() else {
        errors.push(wrong_type(document, value.span(), "defaults", "a table", value.get_ref()));
        return;
    };
    let mut own = OwnSettings::default();
    for setting in settings(document, "defaults", table, &draft.limits.defaults.clone(), draft, errors) {
        own.change(SettingChange::Set(setting));
    }
    draft.limits.defaults = own.over(&draft.limits.defaults);
}

/// `[queues.NAME]`: the settings of one queue each.
pub(super) fn queues(
    document: Document<'_>,
    value: &Spanned<DeValue<'_>>,
    draft: &mut Draft,
    errors: &mut Vec<ConfigError>,
) {
    let DeValue::Table(queues) = value.get_ref() else {
        errors.push(wrong_type(document, value.span(), "queues", "tables [queues.NAME]", value.get_ref()));
        return;
    };
    let defaults = draft.limits.defaults.clone();
    for (name, value) in queues {
        let queue = match QueueName::new(name.get_ref().as_ref()) {
            Ok(queue) => queue,
            Err(invalid) => {
                errors.push(document.error(ConfigErrorKind::InvalidValue, name.span(), invalid));
                continue;
            }
        };
        let path = format!("queues.{queue}");
        let DeValue::Table(table) = value.get_ref() else {
            errors.push(wrong_type(document, value.span(), &path, "a table of settings", value.get_ref()));
            continue;
        };
        let settings = settings(document, &path, table, &defaults, draft, errors);
        draft.said(&path, document.origin(name.span()));
        draft.queues.push(QueueConfig { name: queue, settings });
    }
}

/// A table of settings, with the names and values that HTTP uses.
fn settings(
    document: Document<'_>,
    path: &str,
    table: &DeTable<'_>,
    defaults: &Settings,
    draft: &mut Draft,
    errors: &mut Vec<ConfigError>,
) -> Vec<Setting> {
    let names = || SettingName::ALL.iter().map(|name| name.as_str());
    let mut settings = Vec::new();
    for (name, value) in table {
        let path = format!("{path}.{}", name.get_ref());
        if !names().any(|known| known == name.get_ref()) {
            let meant = match value.get_ref() {
                DeValue::Table(_) if path.starts_with("queues.") => {
                    "; a queue's name with dots in it stands in quotes: [queues.\"a.b\"]".to_owned()
                }
                // HTTP has a second key in milliseconds; the file has only this one.
                _ => did_you_mean(name.get_ref().trim_end_matches("_ms"), names()),
            };
            let detail = format!("there is no setting '{:.100}'{meant}", name.get_ref());
            errors.push(document.error(ConfigErrorKind::UnknownKey, name.span(), detail));
            continue;
        }
        match setting(name.get_ref(), value.get_ref(), defaults) {
            Ok(setting) => {
                draft.said(&path, document.origin(value.span()));
                settings.push(setting);
            }
            Err(detail) => {
                let detail = format!("{path:.300}: {detail}");
                errors.push(document.error(ConfigErrorKind::InvalidValue, value.span(), detail));
            }
        }
    }
    settings
}

/// One setting, parsed as JSON is.
fn setting(name: &str, value: &DeValue<'_>, defaults: &Settings) -> Result<Setting, String> {
    let json = json(value).ok_or("this is text, a whole number, an array or a table")?;
    let text = Json::Object([(name.to_owned(), json)].into_iter().collect()).to_string();
    let changes = object::<SettingsIn>(&text).and_then(|settings| settings.changes(defaults));
    let mut changes = changes.map_err(|problem| without_position(problem.detail()).to_owned())?;
    match changes.pop() {
        Some(SettingChange::Set(setting)) => match setting.check() {
            Ok(()) => Ok(setting),
            Err(invalid) => Err(invalid.to_string()),
        },
        // Only null resets a setting, and TOML has no null.
        _ => Err("a value is needed".to_owned()),
    }
}

/// Removes serde_json's position, which refers to a text that the user has not seen.
fn without_position(detail: &str) -> &str {
    detail.split(" at line ").next().unwrap_or(detail)
}

/// A value as JSON; `None` for types that no setting has.
fn json(value: &DeValue<'_>) -> Option<Json> {
    Some(match value {
        DeValue::String(text) => Json::String(text.to_string()),
        DeValue::Integer(number) => {
            let wide = i128::from_str_radix(number.as_str(), number.radix()).ok()?;
            match (u64::try_from(wide), i64::try_from(wide)) {
                (Ok(number), _) => Json::from(number),
                (_, Ok(number)) => Json::from(number),
                _ => return None,
            }
        }
        DeValue::Boolean(boolean) => Json::Bool(*boolean),
        DeValue::Datetime(instant) => Json::String(instant.to_string()),
        DeValue::Array(items) => {
            Json::Array(items.iter().map(|item| json(item.get_ref())).collect::<Option<_>>()?)
        }
        DeValue::Table(table) => {
            let fields =
                table.iter().map(|(name, value)| Some((name.get_ref().to_string(), json(value.get_ref())?)));
            Json::Object(fields.collect::<Option<_>>()?)
        }
        DeValue::Float(_) => return None,
    })
}

const TOKEN_KEYS: [&str; 3] = ["name", "scopes", "sha256"];
/// Names that are mistaken for `digest`.
const DIGEST_NAMES: [&str; 6] = ["token", "secret", "hash", "digest", "value", "password"];
/// The maximum number of invalid scopes that an error lists.
const MOST_SCOPES_TOLD: usize = 3;

/// `[[tokens]]`: each with a name, a digest and scopes.
pub(super) fn tokens(
    document: Document<'_>,
    value: &Spanned<DeValue<'_>>,
    draft: &mut Draft,
    errors: &mut Vec<ConfigError>,
) {
    let DeValue::Array(tokens) = value.get_ref() else {
        draft.refused("tokens");
        errors.push(wrong_type(document, value.span(), "tokens", "tables [[tokens]]", value.get_ref()));
        return;
    };
    for token in tokens.iter() {
        let DeValue::Table(table) = token.get_ref() else {
            draft.refused("tokens");
            errors.push(wrong_type(document, token.span(), "tokens", "tables [[tokens]]", token.get_ref()));
            continue;
        };
        let mut read =
            TokenDraft { name: None, digest: None, scopes: None, origin: document.origin(token.span()) };
        let known = errors.len();
        for (name, value) in table {
            if let Err(error) = token_key(document, name, value, &mut read) {
                errors.push(error);
            }
        }
        // A key that is present and invalid is not reported as missing too.
        if errors.len() == known {
            draft.tokens.push(read);
        } else {
            draft.refused("tokens");
        }
    }
}

fn token_key(
    document: Document<'_>,
    name: &Spanned<toml::de::DeString<'_>>,
    value: &Spanned<DeValue<'_>>,
    token: &mut TokenDraft,
) -> Result<(), ConfigError> {
    let invalid = |detail: String| document.error(ConfigErrorKind::InvalidValue, value.span(), detail);
    match name.get_ref().as_ref() {
        "name" => {
            let text = texts_of(document, value, "a token's name", Form::Text)?.concat();
            if text.is_empty() || text.len() > 100 || text.chars().any(char::is_control) {
                return Err(invalid(
                    "a token's name has 1 to 100 bytes and no control characters".to_owned(),
                ));
            }
            token.name = Some(text);
        }
        "sha256" => {
            let text = texts_of(document, value, "sha256", Form::Text)?.concat();
            token.digest = Some(text.parse::<TokenDigest>().map_err(|error| invalid(error.to_string()))?);
        }
        "scopes" => {
            let texts = texts_of(document, value, "scopes", Form::Texts)?;
            let (mut scopes, mut wrong) = (Vec::new(), Vec::new());
            for text in texts {
                match text.parse::<Scope>() {
                    Ok(scope) => scopes.push(scope),
                    Err(error) => wrong.push(error.to_string()),
                }
            }
            if !wrong.is_empty() {
                // The error stays short, however long the list is.
                let more = wrong.len().saturating_sub(MOST_SCOPES_TOLD);
                wrong.truncate(MOST_SCOPES_TOLD);
                let told = wrong.join("; ");
                return Err(invalid(if more == 0 { told } else { format!("{told}; and {more} more") }));
            }
            token.scopes = Some(scopes);
        }
        other => {
            let meant = if DIGEST_NAMES.contains(&other) {
                "; a token's SHA-256 stands in 'sha256', and the token itself nowhere: see `dwell token new`"
                    .to_owned()
            } else {
                did_you_mean(other, TOKEN_KEYS)
            };
            let detail = format!("there is no key '{other:.100}' in [[tokens]]{meant}");
            return Err(document.error(ConfigErrorKind::UnknownKey, name.span(), detail));
        }
    }
    Ok(())
}

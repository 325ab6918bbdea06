//! Why a configuration is refused: a code, the origin of the value, and what to do.

use std::fmt;
use std::path::PathBuf;

/// Where a value was set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Nowhere: it is dwell's default.
    Default,
    /// In the configuration file; lines and columns are counted from 1, columns in characters.
    File {
        /// The file's path, as it was given.
        file: PathBuf,
        /// The line.
        line: usize,
        /// The column.
        column: usize,
    },
    /// In this environment variable.
    Environment(String),
    /// On the command line, by this option.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { file, line, column } => write!(f, "{}:{line}:{column}", file.display()),
            Origin::Environment(name) => f.write_str(name),
            Origin::Flag(flag) => f.write_str(flag),
        }
    }
}

/// The kinds of configuration errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigErrorKind {
    /// The file cannot be read.
    Unreadable,
    /// The file is not TOML.
    Malformed,
    /// The key does not exist.
    UnknownKey,
    /// The value has the wrong type, such as a number in place of a text.
    WrongType,
    /// The key does not allow this value.
    InvalidValue,
    /// A part is missing: a certificate without its key, a token without scopes.
    Incomplete,
    /// Two things that exclude each other.
    Conflict,
    /// A listener is reachable from other machines and does not authenticate its callers.
    Exposed,
    /// The file of a certificate or key cannot be read.
    TlsUnreadable,
    /// A certificate or key cannot be used.
    TlsInvalid,
    /// Delivery refuses the sink or schedule; holds delivery's own code.
    Delivery(&'static str),
}

impl ConfigErrorKind {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            ConfigErrorKind::Unreadable => "config_unreadable",
            ConfigErrorKind::Malformed => "config_malformed",
            ConfigErrorKind::UnknownKey => "config_unknown_key",
            ConfigErrorKind::WrongType => "config_wrong_type",
            ConfigErrorKind::InvalidValue => "config_invalid_value",
            ConfigErrorKind::Incomplete => "config_incomplete",
            ConfigErrorKind::Conflict => "config_conflict",
            ConfigErrorKind::Exposed => "listener_exposed",
            ConfigErrorKind::TlsUnreadable => "tls_unreadable",
            ConfigErrorKind::TlsInvalid => "tls_invalid",
            ConfigErrorKind::Delivery(code) => code,
        }
    }
}

/// One error in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The kind of error.
    pub kind: ConfigErrorKind,
    /// Where the value was set; [`Origin::Default`] if the error is about a value that was not set.
    pub origin: Origin,
    /// What is wrong and what to do.
    pub detail: String,
}

impl ConfigError {
    pub(super) fn new(kind: ConfigErrorKind, origin: &Origin, detail: impl fmt::Display) -> ConfigError {
        ConfigError { kind, origin: origin.clone(), detail: detail.to_string() }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Default => f.write_str(&self.detail),
            origin => write!(f, "{origin}: {}", self.detail),
        }
    }
}

impl std::error::Error for ConfigError {}

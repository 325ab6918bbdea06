//! Why a configuration is refused: a code, where it was said, and what to do.

use std::fmt;
use std::path::PathBuf;

/// Where a value was said.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Nowhere: it is what dwell does unless told otherwise.
    Default,
    /// In the configuration file; lines and columns are counted from 1, columns in characters.
    File {
        /// The file as it was named.
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

/// Kinds of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigErrorKind {
    /// The file can not be read.
    Unreadable,
    /// The file is no TOML.
    Malformed,
    /// There is no such key.
    UnknownKey,
    /// A number where text belongs, or the like.
    WrongType,
    /// A value that the key can not have.
    InvalidValue,
    /// A half of something: a certificate without its key, a token without scopes.
    Incomplete,
    /// Two things that exclude each other.
    Conflict,
    /// A listener that other machines reach, and nobody is asked who they are.
    Exposed,
    /// A certificate's or key's file can not be read.
    TlsUnreadable,
    /// A certificate or key is of no use.
    TlsInvalid,
    /// No sink or schedule can be made of this; with delivery's own code.
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

/// One thing that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// What kind of mistake it is.
    pub kind: ConfigErrorKind,
    /// Where it was said; [`Origin::Default`] where it is about what was not said.
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

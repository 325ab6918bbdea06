//! What a server logs to standard error, and in which form.

/// The log level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// Errors.
    Error,
    /// Warnings too.
    Warn,
    /// Changes of state too.
    #[default]
    Info,
    /// Each request too.
    Debug,
}

/// The form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// A line of text.
    #[default]
    Text,
    /// A line of JSON.
    Json,
}

/// The log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LogConfig {
    /// The level.
    pub level: LogLevel,
    /// Its form.
    pub format: LogFormat,
}

impl LogLevel {
    pub(super) const ALL: [LogLevel; 5] =
        [LogLevel::Off, LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug];

    /// The word that configuration uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            LogLevel::Off => "off",
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
        }
    }
}

impl LogFormat {
    pub(super) const ALL: [LogFormat; 2] = [LogFormat::Text, LogFormat::Json];

    /// The word that configuration uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        }
    }
}

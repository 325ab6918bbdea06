//! `--log` and `--log-format`: what the server says on standard error while it runs, and in which form.

use std::io;

use clap::{Args, ValueEnum};
use tracing_subscriber::filter::LevelFilter;

#[derive(Debug, Args)]
pub(super) struct Logging {
    /// What is logged to standard error: `info` has one line for what changes, `debug` one for each request
    #[arg(long = "log", env = "DWELL_LOG", value_enum, default_value_t = Level::Info, value_name = "LEVEL")]
    level: Level,
    /// The form of the log
    #[arg(long = "log-format", env = "DWELL_LOG_FORMAT", value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Level {
    /// Nothing
    Off,
    /// What is wrong
    Error,
    /// And what may go wrong
    Warn,
    /// And what changes
    Info,
    /// And each request
    Debug,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// A line of text
    Text,
    /// A line of JSON
    Json,
}

impl Logging {
    /// From here on events are logged.
    pub(super) fn start(&self) {
        let level = match self.level {
            Level::Off => LevelFilter::OFF,
            Level::Error => LevelFilter::ERROR,
            Level::Warn => LevelFilter::WARN,
            Level::Info => LevelFilter::INFO,
            Level::Debug => LevelFilter::DEBUG,
        };
        let log = tracing_subscriber::fmt().with_max_level(level).with_writer(io::stderr).with_ansi(false);
        // Fails only where the process logs already, which it then goes on with.
        let _ = match self.format {
            Format::Text => log.try_init(),
            Format::Json => log.json().flatten_event(true).try_init(),
        };
    }
}

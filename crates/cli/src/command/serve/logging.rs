//! The log on standard error.

use std::io;

use dwell_server::{LogConfig, LogFormat, LogLevel};
use tracing_subscriber::filter::LevelFilter;

/// Starts logging events.
pub(super) fn start(config: LogConfig) {
    let level = match config.level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    };
    // A line that cannot be written is lost. To report it, which the library would do, panics where standard error is a
    // pipe that nothing reads, or a file on a full disk.
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(io::stderr)
        .with_ansi(false)
        .log_internal_errors(false);
    // Fails only where the process logs already, and then keeps that logger.
    let _ = match config.format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
}

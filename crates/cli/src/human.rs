//! Output for people: colours, instants, messages, queues.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use dwell_model::{StateKind, Timestamp, format_duration_ms};
use dwell_time::{Clock as _, SystemClock};
use dwell_wire::Message;

pub(crate) const STRONG: Style = Style::new().bold();
pub(crate) const FAINT: Style = Style::new().dimmed();
pub(crate) const PLAIN: Style = Style::new();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
pub(crate) const NAME: Style = AnsiColor::Cyan.on_default();
pub(crate) const WAITING: Style = AnsiColor::Yellow.on_default();

/// The style of a state.
pub(crate) fn state_style(state: StateKind) -> Style {
    match state {
        StateKind::Scheduled => NAME,
        StateKind::Ready => GOOD,
        StateKind::Leased => WAITING,
        StateKind::Dead => BAD,
    }
}

/// An instant, with the distance from now: `2026-11-21T18:00:00.000Z (in 29m59s)`.
pub(crate) fn instant(at: Timestamp) -> String {
    let now = SystemClock::new().now().wall;
    let coarse = |ms: u64| format_duration_ms(if ms < 10_000 { ms } else { ms - ms % 1_000 });
    if at > now {
        format!("{at} (in {})", coarse(at.ms_since(now)))
    } else {
        format!("{at} ({} ago)", coarse(now.ms_since(at)))
    }
}

/// A body, cut to one line of at most `max` characters.
pub(crate) fn excerpt(message: &Message<'_>, max: usize) -> String {
    match message.text() {
        Some(text) => one_line(text, max),
        None => format!("<{} bytes>", message.size),
    }
}

/// An untrusted text, cut to one line of at most `max` characters.
pub(crate) fn one_line(text: &str, max: usize) -> String {
    let mut line: String = text.chars().take(max).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(max).is_some() {
        line.push('…');
    }
    line
}

/// Names and values, one per line.
pub(crate) fn pairs(out: &mut dyn Write, pairs: &[(&str, String)]) -> io::Result<()> {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in pairs {
        writeln!(out, "{FAINT}{name:width$}{FAINT:#}  {value}")?;
    }
    Ok(())
}

/// A whole message, with the deadline of its lease.
pub(crate) fn message(
    out: &mut dyn Write,
    message: &Message<'_>,
    lease_until: Option<Timestamp>,
) -> io::Result<()> {
    let style = state_style(message.state);
    writeln!(out, "{STRONG}{}{STRONG:#}  {style}{}{style:#}", message.id, message.state)?;
    let mut rows = vec![
        ("queue", message.queue.to_string()),
        ("number", message.number.to_string()),
        ("due", instant(message.due)),
        ("created", instant(message.created)),
    ];
    rows.extend(message.expires.map(|at| ("expires", instant(at))));
    rows.extend(message.key.as_ref().map(|key| ("key", key.to_string())));
    rows.extend(message.headers.iter().map(|(name, value)| ("header", format!("{name}: {value}"))));
    rows.push(("priority", message.priority.to_string()));
    rows.push(("attempt", message.attempt.to_string()));
    rows.extend(lease_until.map(|at| ("lease until", instant(at))));
    rows.extend(message.dead_reason.map(|reason| ("dead", reason.as_str().to_owned())));
    rows.extend(message.dead_at.map(|at| ("dead since", instant(at))));
    rows.extend(message.last_error.as_ref().map(|error| ("last error", error.to_string())));
    pairs(out, &rows)?;
    body(out, message)
}

/// A message's body, as text or as its size.
pub(crate) fn body(out: &mut dyn Write, message: &Message<'_>) -> io::Result<()> {
    match message.text() {
        Some(text) => writeln!(out, "{}", text.strip_suffix('\n').unwrap_or(text)),
        None => writeln!(out, "{FAINT}<{} bytes that are no text; --raw writes them>{FAINT:#}", message.size),
    }
}

/// A queue's pause in words.
pub(crate) fn pause(pause: &str) -> String {
    match pause {
        "running" => String::new(),
        "paused" => "paused".to_owned(),
        until => format!("paused until {until}"),
    }
}

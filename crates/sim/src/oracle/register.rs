//! A setting of a queue, as a register: what is written holds until something else is.

use super::linearize::Effect;
use super::window::{At, Seq};

/// What was done to a setting. Values are texts, and nothing where the queue follows the default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// It was set; not known to have happened unless `heard`.
    Write { value: Option<String>, heard: bool },
    /// It was shown.
    Read { value: Option<String> },
    /// Messages were handed out: the queue was not paused. Only of the setting `pause`.
    HandedOut,
}

/// How a pause without an end is written.
pub(crate) const PAUSED: &str = "paused";

/// How a pause until an instant is written, in milliseconds of the wall clock.
pub(crate) fn paused_until(end: i64) -> String {
    format!("until {end}")
}

/// What a setting may be, and since when: by default, since ever.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Written {
    pub(crate) value: Option<String>,
    /// The begin of the command that wrote it.
    since: Seq,
}

/// Whether a pause lets messages out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Running {
    No,
    /// Its end has come, but the clock was stepped back since, or the store may not have looked at it in time.
    Perhaps,
    Yes,
}

impl Effect for Access {
    type State = Written;

    fn after(&self, state: &Written, at: At<'_>) -> Vec<Written> {
        let written = |value: &Option<String>| Written { value: value.clone(), since: at.begin };
        let running = state.running(at);
        match self {
            Access::Write { value, heard: true } => vec![written(value)],
            Access::Write { value, heard: false } => vec![state.clone(), written(value)],
            // A pause that has ended is no setting any more.
            Access::Read { value: None } if state.ends() && running != Running::No => vec![state.clone()],
            Access::Read { value: Some(_) } if state.ends() && running == Running::Yes => Vec::new(),
            Access::Read { value } if *value == state.value => vec![state.clone()],
            Access::HandedOut if running != Running::No => vec![state.clone()],
            Access::Read { .. } | Access::HandedOut => Vec::new(),
        }
    }
}

impl Written {
    /// When it ends by itself, if it is a pause that does.
    fn end(&self) -> Option<i64> {
        self.value.as_deref()?.strip_prefix("until ")?.parse().ok()
    }

    fn ends(&self) -> bool {
        self.end().is_some()
    }

    /// Whether messages are handed out, if this is the pause.
    pub(crate) fn running(&self, at: At<'_>) -> Running {
        match self.end() {
            None if self.value.is_none() => Running::Yes,
            None => Running::No,
            Some(end) if end <= at.window.wall.lo => Running::Yes,
            Some(end) if end <= at.rules.peak(self.since, at.end, &at.window) => Running::Perhaps,
            Some(_) => Running::No,
        }
    }
}

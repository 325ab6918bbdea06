//! A setting of a queue, as a register: a value holds until the next write.

use super::linearize::Effect;
use super::window::{At, Seq};

/// An access to a setting. Values are texts, and `None` if the queue uses the default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// The setting was written; not known to have happened unless `heard`.
    Write { value: Option<String>, heard: bool },
    /// The setting was read.
    Read { value: Option<String> },
    /// Messages were delivered, so the queue was not paused. Only for the setting `pause`.
    HandedOut,
}

/// The text of a pause without an end.
pub(crate) const PAUSED: &str = "paused";

/// The text of a pause until an instant, in milliseconds of the wall clock.
pub(crate) fn paused_until(end: i64) -> String {
    format!("until {end}")
}

/// A possible value of a setting, and since when. The default holds from the beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WrittenValue {
    pub(crate) value: Option<String>,
    /// The begin of the command that wrote it.
    since: Seq,
}

/// Whether messages are delivered under a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunningWrite {
    No,
    /// Its end has passed, but the clock was stepped back since, or the store may not have checked it in time.
    Perhaps,
    Yes,
}

impl Effect for Access {
    type State = WrittenValue;

    fn after(&self, state: &WrittenValue, at: At<'_>) -> Vec<WrittenValue> {
        let written = |value: &Option<String>| WrittenValue { value: value.clone(), since: at.begin };
        let running = state.running(at);
        match self {
            Access::Write { value, heard: true } => vec![written(value)],
            Access::Write { value, heard: false } => vec![state.clone(), written(value)],
            // A pause that has ended is not shown as a setting any more.
            Access::Read { value: None } if state.ends() && running != RunningWrite::No => {
                vec![state.clone()]
            }
            Access::Read { value: Some(_) } if state.ends() && running == RunningWrite::Yes => Vec::new(),
            Access::Read { value } if *value == state.value => vec![state.clone()],
            Access::HandedOut if running != RunningWrite::No => vec![state.clone()],
            Access::Read { .. } | Access::HandedOut => Vec::new(),
        }
    }
}

impl WrittenValue {
    /// The instant at which it ends, if it is a pause with an end.
    fn end(&self) -> Option<i64> {
        self.value.as_deref()?.strip_prefix("until ")?.parse().ok()
    }

    fn ends(&self) -> bool {
        self.end().is_some()
    }

    /// Whether messages are delivered, if this is the setting `pause`.
    pub(crate) fn running(&self, at: At<'_>) -> RunningWrite {
        match self.end() {
            None if self.value.is_none() => RunningWrite::Yes,
            None => RunningWrite::No,
            Some(end) if end <= at.window.wall.lo => RunningWrite::Yes,
            Some(end) if end <= at.rules.peak(self.since, at.end, &at.window) => RunningWrite::Perhaps,
            Some(_) => RunningWrite::No,
        }
    }
}

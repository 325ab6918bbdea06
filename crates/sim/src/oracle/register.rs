//! A setting of a queue, as a register: what is written holds until something else is.

use super::linearize::Effect;
use super::window::At;

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

impl Effect for Access {
    type State = Option<String>;

    fn after(&self, state: &Option<String>, at: At<'_>) -> Vec<Option<String>> {
        match self {
            Access::Write { value, heard: true } => vec![value.clone()],
            Access::Write { value, heard: false } => vec![state.clone(), value.clone()],
            Access::Read { value } if value == state => vec![state.clone()],
            // A pause whose end has come may be shown or left out.
            Access::Read { value: None } if is_over(state.as_deref(), at) => vec![state.clone()],
            Access::HandedOut if hands_out(state.as_deref(), at) => vec![state.clone()],
            Access::Read { .. } | Access::HandedOut => Vec::new(),
        }
    }
}

fn hands_out(pause: Option<&str>, at: At<'_>) -> bool {
    pause.is_none() || is_over(pause, at)
}

fn is_over(pause: Option<&str>, at: At<'_>) -> bool {
    let end = pause.and_then(|pause| pause.strip_prefix("until ")).and_then(|end| end.parse::<i64>().ok());
    end.is_some_and(|end| end <= at.window.wall.hi)
}

//! What is measured: a file a scenario, and a line in this list.

mod disk;

use crate::Result;
use crate::run::Run;

/// One command of `dwell-bench`.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// One line for `list`.
    pub(crate) what: &'static str,
    pub(crate) run: fn(&mut Run) -> Result<()>,
}

/// All scenarios, as `list` shows them.
pub(crate) const SCENARIOS: &[Scenario] = &[disk::SCENARIO];

//! A switch that pauses lanes, and says why.

use std::sync::Arc;

use tokio::sync::watch;

/// Pauses the lanes that have it, and lets them go on. Clones are the same switch.
///
/// A paused lane takes nothing. What it had taken before is handled to its end.
#[derive(Clone, Debug)]
pub struct Switch(Arc<watch::Sender<Option<Arc<str>>>>);

impl Switch {
    /// A switch that pauses nothing.
    pub fn new() -> Switch {
        Switch(Arc::new(watch::Sender::new(None)))
    }

    /// Pauses. If it is paused already, the earlier reason stays.
    pub fn pause(&self, reason: &str) {
        self.0.send_if_modified(|paused| {
            let changes = paused.is_none();
            paused.get_or_insert_with(|| reason.into());
            changes
        });
    }

    /// Lets the lanes go on.
    pub fn resume(&self) {
        self.0.send_if_modified(|paused| paused.take().is_some());
    }

    /// Why it is paused, if it is.
    pub fn paused(&self) -> Option<Arc<str>> {
        self.0.borrow().clone()
    }

    /// Notified of each change.
    pub(crate) fn changes(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.0.subscribe()
    }
}

impl Default for Switch {
    fn default() -> Switch {
        Switch::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_stays_until_it_is_resumed() {
        let switch = Switch::new();
        let clone = switch.clone();
        assert_eq!(clone.paused(), None);
        switch.pause("gone");
        switch.pause("again");
        assert_eq!(clone.paused().as_deref(), Some("gone"));
        clone.resume();
        assert_eq!(switch.paused(), None);
    }
}
